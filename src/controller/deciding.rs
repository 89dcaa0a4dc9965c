//! From waiting decisions to one batch: each is run on the image as the ones before it will have left it.
//!
//! Pure: knows neither Raft nor time. Invariants: the batch's records, applied to the image it was made from, give what
//! each decision saw and what the answers speak of; a batch takes effect in the one term for which a decision in it is, if there
//! is one; a decision that panics or cannot be written takes nobody with it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::BytesMut;
use tokio::sync::oneshot;

use crate::controller::raft_types::{Batch, put_record};
use crate::metadata::{Decision, Image, Record};
use crate::types::NodeId;

/// Why a decision has not taken effect, or is not known to have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    #[error("this node does not lead the metadata quorum")]
    NotLeader { leader: Option<NodeId> },
    #[error("the metadata quorum cannot take the change: {0}")]
    Unavailable(String),
    /// The change may still take effect.
    #[error("the metadata quorum did not answer in time")]
    Timeout,
    #[error("the node is shutting down")]
    ShuttingDown,
    /// A defect of ours, which has been logged.
    #[error("the change could not be decided")]
    Defect,
}

/// A decision and the one who waits for it.
pub trait Command: Send {
    /// Decides anew on `image`; may be called several times, of which the last counts.
    fn decide(&mut self, image: &Image) -> Vec<Record>;
    /// The only term in which what it decides may take effect, if there is one.
    fn term(&self) -> Option<u64>;
    /// Whether nobody waits any more.
    fn is_abandoned(&self) -> bool;
    /// Tells how it went: the reply of the last decision, or why there is none.
    fn answer(self: Box<Self>, outcome: Result<(), ProposeError>);
}

/// The decisions that wait for their turn, in order.
pub type Waiting = VecDeque<Box<dyn Command>>;

struct Pending<R, F> {
    decide: F,
    term: Option<u64>,
    reply: Option<R>,
    to: oneshot::Sender<Result<R, ProposeError>>,
}

/// A command, and where its answer arrives.
pub type Asked<R> = (Box<dyn Command>, oneshot::Receiver<Result<R, ProposeError>>);

/// The command for a closure that goes by the image alone.
pub fn command<R: Send + 'static>(decide: impl FnMut(&Image) -> Decision<R> + Send + 'static) -> Asked<R> {
    command_of(None, decide)
}

/// The same for one that goes by what is known in one `term`. Once that is over it must decide on no records any more.
pub fn command_of<R: Send + 'static>(
    term: Option<u64>,
    decide: impl FnMut(&Image) -> Decision<R> + Send + 'static,
) -> Asked<R> {
    let (to, answer) = oneshot::channel();
    (Box::new(Pending { decide, term, reply: None, to }), answer)
}

impl<R: Send, F: FnMut(&Image) -> Decision<R> + Send> Command for Pending<R, F> {
    fn decide(&mut self, image: &Image) -> Vec<Record> {
        let decision = (self.decide)(image);
        self.reply = Some(decision.reply);
        decision.records
    }

    fn term(&self) -> Option<u64> {
        self.term
    }

    fn is_abandoned(&self) -> bool {
        self.to.is_closed()
    }

    fn answer(self: Box<Self>, outcome: Result<(), ProposeError>) {
        let Pending { reply, to, .. } = *self;
        // Who has stopped waiting misses nothing.
        let _ = to.send(outcome.and_then(|()| reply.ok_or(ProposeError::Defect)));
    }
}

/// Takes decisions from the front of `waiting` until their records reach `max_bytes`, or are for another term than those before.
/// Gives the batch, which may hold no records, and those who wait for it.
pub fn decide_all(image: &Image, waiting: &mut Waiting, max_bytes: usize) -> (Batch, Vec<Box<dyn Command>>) {
    let mut scratch = image.clone();
    let (mut records, mut term) = (BytesMut::new(), None);
    let mut decided = Vec::new();
    while records.len() < max_bytes
        && let Some(mut command) = waiting.pop_front()
    {
        if command.is_abandoned() {
            continue;
        }
        match decide(&scratch, &mut *command) {
            Some((_, bytes)) if !bytes.is_empty() && differ(term, command.term()) => {
                waiting.push_front(command);
                break;
            }
            Some((next, bytes)) => {
                scratch = next;
                term = term.or(command.term().filter(|_| !bytes.is_empty()));
                records.unsplit(bytes);
                decided.push(command);
            }
            None => command.answer(Err(ProposeError::Defect)),
        }
    }
    (Batch { base: image.version.0, tag: 0, term, records: records.freeze() }, decided)
}

/// Whether what is for the one term cannot be in a batch with what is for the other.
fn differ(one: Option<u64>, other: Option<u64>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

/// One decision: the image after it and its records' bytes; `None` when it fails, having changed nothing.
fn decide(image: &Image, command: &mut dyn Command) -> Option<(Image, BytesMut)> {
    // What the closure holds may be left half changed by a panic, but then it is dropped with its answer.
    let result = catch_unwind(AssertUnwindSafe(|| {
        let records = command.decide(image);
        let mut next = image.clone();
        let mut bytes = BytesMut::new();
        for record in &records {
            put_record(&mut bytes, &record.encode(next.metadata_version())?);
            next.apply(record);
        }
        Ok((next, bytes))
    }));
    match result {
        Ok(Ok(done)) => Some(done),
        Ok(Err(error)) => {
            let error: crate::metadata::record::RecordError = error;
            tracing::error!(%error, "a metadata record could not be written; the change is dropped");
            None
        }
        // The panic hook has reported it.
        Err(_) => None,
    }
}
