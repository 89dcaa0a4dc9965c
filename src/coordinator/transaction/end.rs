//! EndTxn, in both generations, and the abort that fences a producer.
//!
//! In the first generation a producer keeps its epoch, and the same request again means the same transaction. In the second
//! (KIP-890) each transaction ends with the next epoch, which tells a repetition from the end of the next transaction, and
//! aborting what was never begun is allowed: the client may not know whether it was.
//!
//! Invariant: a transaction is decided once.

use super::state::{State, Transaction, TransactionVersion};
use super::{Command, Context, Out, Producer, Refused, Reply, Transactions, version_of};
use crate::fault::{self, Fault};
use crate::types::{ProducerEpoch, ProducerId};
use crate::wire::control::TxnResult;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndTxn {
    pub transactional_id: String,
    pub producer: Producer,
    pub result: TxnResult,
    /// What the client speaks.
    pub client_version: TransactionVersion,
    /// An id that nobody has had.
    pub fresh: Option<ProducerId>,
}

/// What is to be done about an EndTxn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    End,
    /// It was done before.
    Repeated,
    Refuse(Refused),
}

impl Transactions {
    pub(super) fn end_txn(&mut self, context: &Context<'_>, end: EndTxn, out: &mut Out) -> Reply {
        let Some(current) = self.transactions.get(&end.transactional_id) else {
            return Reply::EndTxn(Err(Refused::UnknownProducer));
        };
        let raises_epoch = end.client_version.raises_epoch();
        let judge = if raises_epoch { judge_second } else { judge_first };
        match judge(current, end.producer, end.result) {
            Verdict::Refuse(refused) => Reply::EndTxn(Err(refused)),
            Verdict::Repeated => Reply::EndTxn(Ok(raises_epoch.then(|| current.producer()))),
            Verdict::End => {
                let needs_id = raises_epoch && current.is_exhausted();
                if needs_id && end.fresh.is_none() {
                    return Reply::NeedsProducerId(Box::new(Command::EndTxn(end)));
                }
                let next_id = end.fresh.filter(|_| needs_id).unwrap_or(ProducerId::NONE);
                // What the version of the client lacks is written as 0.
                let version = if raises_epoch { end.client_version } else { TransactionVersion::default() };
                let next = current.ending(end.result, version, next_id, context.now.wall);
                let (id, epoch) = next.producer_after();
                self.put_ending(context, &end.transactional_id, next, out);
                Reply::EndTxn(Ok(raises_epoch.then_some(Producer { id, epoch })))
            }
        }
    }

    /// Aborts the open transaction with an epoch that its producer does not have. `None`: nothing was done, because that takes
    /// a fresh producer id.
    pub(super) fn fence(
        &mut self,
        context: &Context<'_>,
        transactional_id: &str,
        fresh: Option<ProducerId>,
        out: &mut Out,
    ) -> Option<()> {
        let current = self.transactions.get(transactional_id)?;
        let (version, now) = (version_of(context), context.now.wall);
        let next = if version.raises_epoch() {
            let next_id = if current.is_exhausted() { fresh? } else { ProducerId::NONE };
            current.ending(TxnResult::Abort, version, next_id, now)
        } else {
            let epoch = ProducerEpoch(current.epoch.0.saturating_add(1));
            let fenced = Transaction { epoch, last_epoch: ProducerEpoch::NONE, ..current.clone() };
            fenced.ending(TxnResult::Abort, TransactionVersion::default(), ProducerId::NONE, now)
        };
        self.put_ending(context, transactional_id, next, out);
        Some(())
    }
}

/// A client that keeps its epoch.
fn judge_first(current: &Transaction, producer: Producer, result: TxnResult) -> Verdict {
    if current.producer_id != producer.id {
        return Verdict::Refuse(Refused::UnknownProducer);
    }
    if current.epoch != producer.epoch {
        return Verdict::Refuse(Refused::Fenced);
    }
    match (current.state, result) {
        (State::Ongoing, _) => Verdict::End,
        (State::PrepareCommit | State::PrepareAbort, _) => Verdict::Refuse(Refused::Concurrent),
        (State::CompleteCommit, TxnResult::Commit) | (State::CompleteAbort, TxnResult::Abort) => {
            Verdict::Repeated
        }
        (State::Empty | State::CompleteCommit | State::CompleteAbort, _) => {
            Verdict::Refuse(Refused::InvalidState)
        }
    }
}

/// A client whose epoch is raised with each transaction.
fn judge_second(current: &Transaction, producer: Producer, result: TxnResult) -> Verdict {
    if current.state.ending().is_some() {
        return Verdict::Refuse(Refused::Concurrent);
    }
    let again_after_rotation = current.previous_producer_id == producer.id
        && producer.epoch == ProducerEpoch(i16::MAX - 1)
        && current.epoch == ProducerEpoch(0);
    let again = again_after_rotation || i32::from(current.epoch.0) == i32::from(producer.epoch.0) + 1;
    if current.producer_id != producer.id && !again_after_rotation {
        return Verdict::Refuse(Refused::UnknownProducer);
    }
    let is_repetition = again && current.is_at_rest() && current.state != State::Empty;
    let is_other = producer.epoch != current.epoch && !fault::is_active(Fault::EndsAnyTransaction);
    if is_other && !is_repetition {
        return Verdict::Refuse(Refused::Fenced);
    }
    match (current.state, result) {
        (State::CompleteCommit, TxnResult::Commit) | (State::CompleteAbort, TxnResult::Abort)
            if is_repetition =>
        {
            Verdict::Repeated
        }
        _ if is_repetition => Verdict::Refuse(Refused::InvalidState),
        (State::Ongoing, _) | (_, TxnResult::Abort) => Verdict::End,
        (_, TxnResult::Commit) => Verdict::Refuse(Refused::InvalidState),
    }
}
