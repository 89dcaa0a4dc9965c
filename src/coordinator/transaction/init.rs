//! InitProducerId: a producer begins, or begins again after an error. Whoever had the transactional id before is fenced by the
//! next epoch; a transaction that it left open is aborted first, and the new producer has to ask again.
//!
//! Invariant: an answer that succeeds has an epoch that nobody else was given, unless its owner asks again (KIP-360).

use super::state::{Transaction, is_exhausted};
use super::{Command, Context, Out, Producer, Refused, Reply, Transactions};
use crate::types::{ProducerEpoch, ProducerId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitProducerId {
    pub transactional_id: String,
    pub timeout_ms: i32,
    /// The producer that the client says to be, after an error.
    pub expected: Option<Producer>,
    /// An id that nobody has had.
    pub fresh: Option<ProducerId>,
}

impl Transactions {
    pub(super) fn init_producer_id(
        &mut self,
        context: &Context<'_>,
        init: InitProducerId,
        out: &mut Out,
    ) -> Reply {
        let InitProducerId { expected, timeout_ms, fresh, .. } = init;
        let now = context.now.wall;
        let Some(current) = self.transactions.get(&init.transactional_id) else {
            let Some(fresh) = fresh else {
                return Reply::NeedsProducerId(Box::new(Command::InitProducerId(init)));
            };
            let new = Transaction::new(fresh, timeout_ms, now);
            let first = new.initialized((fresh, ProducerEpoch(0)), ProducerEpoch::NONE, timeout_ms, now);
            return self.initialize(context, &init.transactional_id, first, out);
        };
        if current.state.ending().is_some() {
            return Reply::InitProducerId(Err(Refused::Concurrent));
        }
        if expected.is_some_and(|expected| !is_its_producer(current, expected)) {
            return Reply::InitProducerId(Err(Refused::Fenced));
        }
        if !current.is_at_rest() {
            return match self.fence(context, &init.transactional_id, fresh, out) {
                Some(()) => Reply::InitProducerId(Err(Refused::Concurrent)),
                None => Reply::NeedsProducerId(Box::new(Command::InitProducerId(init))),
            };
        }
        let is_current = expected.is_none_or(|expected| expected.epoch == current.epoch);
        if current.is_exhausted() && is_current {
            let Some(fresh) = fresh else {
                return Reply::NeedsProducerId(Box::new(Command::InitProducerId(init)));
            };
            let last = expected.map_or(ProducerEpoch::NONE, |_| current.epoch);
            let next = current.initialized((fresh, ProducerEpoch(0)), last, timeout_ms, now);
            return self.initialize(context, &init.transactional_id, next, out);
        }
        let (epoch, last) = match expected {
            None => (ProducerEpoch(current.epoch.0 + 1), ProducerEpoch::NONE),
            Some(_) if is_current => (ProducerEpoch(current.epoch.0 + 1), current.epoch),
            // It did not hear the answer to the same question.
            Some(expected) if expected.epoch == current.last_epoch => (current.epoch, current.last_epoch),
            Some(_) => return Reply::InitProducerId(Err(Refused::Fenced)),
        };
        let next = current.initialized((current.producer_id, epoch), last, timeout_ms, now);
        self.initialize(context, &init.transactional_id, next, out)
    }

    fn initialize(
        &mut self,
        context: &Context<'_>,
        transactional_id: &str,
        next: Transaction,
        out: &mut Out,
    ) -> Reply {
        let producer = next.producer();
        self.put(context, transactional_id, next, out);
        Reply::InitProducerId(Ok(producer))
    }
}

/// Whether this can be the owner of the transactional id: it has its producer id, or asks again after its id was used up.
fn is_its_producer(current: &Transaction, expected: Producer) -> bool {
    expected.id == current.producer_id
        || (expected.id == current.previous_producer_id && is_exhausted(expected.epoch))
}
