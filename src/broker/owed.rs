//! The answers that a shard owes: parked under a token in the replica core, kept here until the core says how they end.
//!
//! Must not know offsets. Invariant: a token names one answer from `park` to `take`.

use crate::replica::{AckError, AckToken, Acks};
use crate::types::Offset;

use super::messages::{DeleteRecordsError, ProduceError, Produced};
use super::reply::ReplySlot;

/// One answer that waits for replicas or for the disk.
#[derive(Debug)]
pub(super) enum Answer {
    Produce(ReplySlot<Result<Produced, ProduceError>>, Produced, Acks),
    DeleteRecords(ReplySlot<Result<Offset, DeleteRecordsError>>),
}

#[derive(Debug, Default)]
pub(super) struct Owed {
    answers: Vec<Option<Answer>>,
    free: Vec<usize>,
}

impl Owed {
    pub(super) fn park(&mut self, answer: Answer) -> AckToken {
        let at = match self.free.pop() {
            Some(at) => {
                self.answers[at] = Some(answer);
                at
            }
            None => {
                self.answers.push(Some(answer));
                self.answers.len() - 1
            }
        };
        AckToken(at as u64)
    }

    pub(super) fn take(&mut self, token: AckToken) -> Answer {
        let at = token.0 as usize;
        let answer = self.answers[at].take().expect("the core answers a token once");
        self.free.push(at);
        if self.free.len() == self.answers.len() {
            // Nothing is owed: give the memory of a busy moment back, beyond what is always needed.
            self.answers.clear();
            self.free.clear();
            self.answers.shrink_to(1024);
            self.free.shrink_to(1024);
        }
        answer
    }
}

impl Answer {
    /// Ends the wait: acknowledged, or not.
    pub(super) fn send(self, result: Result<(), AckError>, low_watermark: Offset) {
        match self {
            Answer::Produce(reply, produced, _) => {
                reply.answer(result.map(|()| produced).map_err(|error| ProduceError::Ack(error, produced)));
            }
            Answer::DeleteRecords(reply) => {
                reply.answer(result.map(|()| low_watermark).map_err(DeleteRecordsError::Ack));
            }
        }
    }

    /// Whether it rests on this broker's word alone that the records are there.
    pub(super) fn is_of_leader_alone(&self) -> bool {
        matches!(self, Answer::Produce(_, _, Acks::Leader))
    }

    /// Ends the wait: the log directory is out of service.
    pub(super) fn send_offline(self) {
        match self {
            Answer::Produce(reply, ..) => reply.answer(Err(ProduceError::Offline)),
            Answer::DeleteRecords(reply) => reply.answer(Err(DeleteRecordsError::Offline)),
        }
    }
}
