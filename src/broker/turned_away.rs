//! The batches of idempotent producers that one partition has turned away for a reason that passes.
//!
//! A producer sends several batches before it hears what became of the first. When that one comes just before this broker leads,
//! or before its lease is renewed, those behind it would meet a partition that takes batches again. To take one of them would
//! be to lose the order, where the producer is not known yet; to call it out of order tells the producer that records are lost:
//! librdkafka then goes on with a new epoch, under which it repeats whatever else it has no answer for, and what is in a log
//! already is there twice. So what follows a batch that was turned away is turned away for the same reason, until
//! that batch comes again.
//!
//! Owns which batches those are. Must not know roles or requests. Invariant: nothing is held against a producer whose batch has
//! come into the log since, by whatever way, nor for longer than [`KEPT_MS`].

use std::collections::HashMap;

use super::messages::ProduceError;
use crate::replica::NotEnoughReplicas;
use crate::storage::log::producer_state::{FirstBatch, ProducerState};
use crate::storage::log::{AppendError, LogError};
use crate::types::{MonotonicMs, ProducerEpoch, ProducerId};
use crate::wire::batch::{BatchHeader, sequence_minus};

/// By then a producer has heard of it and come again, or goes on in another way.
const KEPT_MS: i64 = 10_000;

/// So many producers are remembered at most.
const PRODUCERS_MAX: usize = 1024;

/// By what a producer's batch is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    producer_id: ProducerId,
    epoch: ProducerEpoch,
    sequence: i32,
}

impl Sent {
    /// `None` without a producer id.
    pub(super) fn of(records: &[u8]) -> Option<Sent> {
        let header = BatchHeader::parse(records).ok().filter(BatchHeader::has_producer_id)?;
        let BatchHeader { producer_id, producer_epoch: epoch, base_sequence: sequence, .. } = header;
        Some(Sent { producer_id, epoch, sequence })
    }
}

impl From<&FirstBatch> for Sent {
    fn from(batch: &FirstBatch) -> Sent {
        let FirstBatch { producer_id, epoch, sequence, .. } = *batch;
        Sent { producer_id, epoch, sequence }
    }
}

/// A reason that passes.
#[derive(Clone, Copy, Debug)]
enum Passing {
    NotLeader,
    NotEnoughReplicas(NotEnoughReplicas),
    DiskFull,
}

impl Passing {
    fn of(error: &ProduceError) -> Option<Passing> {
        match error {
            ProduceError::NotLeader => Some(Passing::NotLeader),
            ProduceError::NotEnoughReplicas(replicas) => Some(Passing::NotEnoughReplicas(*replicas)),
            ProduceError::Append(AppendError::Log(LogError::DiskFull)) => Some(Passing::DiskFull),
            _ => None,
        }
    }

    fn error(self) -> ProduceError {
        match self {
            Passing::NotLeader => ProduceError::NotLeader,
            Passing::NotEnoughReplicas(replicas) => ProduceError::NotEnoughReplicas(replicas),
            Passing::DiskFull => ProduceError::Append(AppendError::Log(LogError::DiskFull)),
        }
    }
}

/// The first batch of its producer's epoch that was turned away.
#[derive(Clone, Copy, Debug)]
struct First {
    epoch: ProducerEpoch,
    sequence: i32,
    why: Passing,
    at: MonotonicMs,
}

#[derive(Debug, Default)]
pub(super) struct TurnedAway(HashMap<ProducerId, First>);

impl TurnedAway {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Fails as the batch did that `sent` follows, if one was turned away that has not come into the log since.
    pub(super) fn check(
        &mut self,
        sent: Sent,
        log: &ProducerState,
        now: MonotonicMs,
    ) -> Result<(), ProduceError> {
        let Some(first) = self.0.get(&sent.producer_id) else { return Ok(()) };
        let has_come = has_come(log, Sent { epoch: first.epoch, sequence: first.sequence, ..sent });
        if has_come || sent.epoch > first.epoch || first.is_over(now) {
            self.0.remove(&sent.producer_id);
            return Ok(());
        }
        let follows = sent.epoch == first.epoch && is_after(sent.sequence, first.sequence);
        if follows { Err(first.why.error()) } else { Ok(()) }
    }

    /// `sent` has failed. Nothing waits for one that the log has already, and comes again.
    pub(super) fn note(&mut self, sent: Sent, error: &ProduceError, log: &ProducerState, now: MonotonicMs) {
        let Some(why) = Passing::of(error).filter(|_| !has_come(log, sent)) else { return };
        let first = First { epoch: sent.epoch, sequence: sent.sequence, why, at: now };
        if let Some(known) = self.0.get(&sent.producer_id) {
            let is_earlier = sent.epoch == known.epoch && !is_after(sent.sequence, known.sequence);
            let is_settled = known.is_over(now)
                || has_come(log, Sent { epoch: known.epoch, sequence: known.sequence, ..sent });
            if !is_settled && !is_earlier && sent.epoch <= known.epoch {
                return;
            }
        } else if self.0.len() >= PRODUCERS_MAX {
            self.forget(now);
            if self.0.len() >= PRODUCERS_MAX {
                return;
            }
        }
        self.0.insert(sent.producer_id, first);
    }

    /// Forgets what is over.
    pub(super) fn forget(&mut self, now: MonotonicMs) {
        self.0.retain(|_, first| !first.is_over(now));
        if self.0.is_empty() {
            self.0 = HashMap::new();
        }
    }
}

impl First {
    fn is_over(&self, now: MonotonicMs) -> bool {
        self.at.plus(KEPT_MS) <= now
    }
}

/// Whether the log has this batch, or what makes it too late.
fn has_come(log: &ProducerState, sent: Sent) -> bool {
    log.get(sent.producer_id).is_some_and(|entry| {
        let is_at = |last: i32| last >= 0 && !is_after(sent.sequence, last);
        entry.epoch > sent.epoch || (entry.epoch == sent.epoch && is_at(entry.last_sequence()))
    })
}

/// Sequences begin again after the largest.
fn is_after(sequence: i32, before: i32) -> bool {
    (1..=i32::MAX / 2).contains(&sequence_minus(sequence, before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::log::producer_state::Verified;

    const P: ProducerId = ProducerId(7);

    fn sent(epoch: i16, sequence: i32) -> Sent {
        Sent { producer_id: P, epoch: ProducerEpoch(epoch), sequence }
    }

    /// What a log knows in which the producer's last batch ended with `sequence`.
    fn log(epoch: i16, sequence: i32) -> ProducerState {
        use crate::storage::log::Origin;
        use crate::storage::log::producer_state::{Checked, Coordinated};
        use crate::types::TimestampMs;
        use crate::wire::batch::Batches;
        use crate::wire::batch::PartialTail;
        use crate::wire::batch_builder::BatchBuilder;

        let mut builder = BatchBuilder::new().producer(P, ProducerEpoch(epoch), sequence);
        builder.push(TimestampMs(0), None, Some(b"v"), &[]);
        let records = builder.build().unwrap();
        let header = Batches::new(&records, PartialTail::Refuse).next().unwrap().unwrap().header;
        let mut state = ProducerState::default();
        let coordinated = Coordinated { verified: Verified::Waived, ..Coordinated::default() };
        let Checked::Append(update) = state.check(&header, &[], Origin::Client, coordinated).unwrap() else {
            panic!("it is new")
        };
        state.apply(update);
        state
    }

    fn is_turned_away(turned_away: &mut TurnedAway, sent: Sent, log: &ProducerState, now: i64) -> bool {
        matches!(turned_away.check(sent, log, MonotonicMs(now)), Err(ProduceError::NotLeader))
    }

    fn after(epoch: i16, sequence: i32) -> TurnedAway {
        let mut turned_away = TurnedAway::default();
        turned_away.note(
            sent(epoch, sequence),
            &ProduceError::NotLeader,
            &ProducerState::default(),
            MonotonicMs(0),
        );
        turned_away
    }

    #[test]
    fn what_follows_a_batch_that_was_turned_away_is_turned_away() {
        let unknown = ProducerState::default();
        for (sequence, next) in [(0, 1), (5, 17), (i32::MAX, 0), (i32::MAX - 3, 2)] {
            let mut it = after(0, sequence);
            assert!(is_turned_away(&mut it, sent(0, next), &unknown, 1));
            assert!(!is_turned_away(&mut it, sent(0, sequence), &unknown, 1));
            // It is turned away once more, and so is another one before it.
            it.note(sent(0, next), &ProduceError::NotLeader, &unknown, MonotonicMs(2));
            it.note(sent(0, sequence), &ProduceError::NotLeader, &unknown, MonotonicMs(2));
            assert!(is_turned_away(&mut it, sent(0, next), &unknown, KEPT_MS + 1));
            assert!(!is_turned_away(&mut it, sent(0, sequence), &unknown, 3));
            let before = log(0, sequence_minus(sequence, 1));
            assert!(is_turned_away(&mut it, sent(0, next), &before, 3));
        }
    }

    /// Also when those before it are turned away again, or were, and have come into the log by another way.
    #[test]
    fn the_first_one_that_the_log_lacks_counts() {
        let has_five = log(0, 5);
        // Five is in the log, and its answer was lost; both come again, and then six does not.
        let mut both = TurnedAway::default();
        both.note(sent(0, 5), &ProduceError::NotLeader, &has_five, MonotonicMs(0));
        both.note(sent(0, 6), &ProduceError::NotLeader, &has_five, MonotonicMs(0));
        // Five was turned away before it came.
        let mut six = after(0, 5);
        six.note(sent(0, 6), &ProduceError::NotLeader, &has_five, MonotonicMs(1));
        for it in [&mut both, &mut six] {
            assert!(is_turned_away(it, sent(0, 7), &has_five, 2));
            assert!(!is_turned_away(it, sent(0, 6), &has_five, 2));
            assert!(!is_turned_away(it, sent(0, 7), &log(0, 6), 2));
        }
    }

    #[test]
    fn it_is_over_when_the_batch_has_come_the_epoch_is_another_or_time_has_passed() {
        let unknown = ProducerState::default();
        for last in [5, 6, 900] {
            assert!(!is_turned_away(&mut after(3, 5), sent(3, 7), &log(3, last), 1));
        }
        assert!(is_turned_away(&mut after(3, 5), sent(3, 7), &log(2, 900), 1));
        assert!(!is_turned_away(&mut after(3, 5), sent(3, 7), &log(4, 0), 1));
        assert!(!is_turned_away(&mut after(3, 5), sent(4, 7), &unknown, 1));
        assert!(!is_turned_away(&mut after(3, 5), sent(2, 7), &unknown, 1));
        assert!(is_turned_away(&mut after(3, 5), sent(3, 7), &unknown, KEPT_MS - 1));
        let mut late = after(3, 5);
        assert!(!is_turned_away(&mut late, sent(3, 7), &unknown, KEPT_MS));
        assert!(late.is_empty());
    }

    #[test]
    fn only_reasons_that_pass_are_held_against_a_producer_and_only_so_many() {
        let mut it = TurnedAway::default();
        for error in [ProduceError::Offline, ProduceError::Moved, ProduceError::ShuttingDown] {
            it.note(sent(0, 0), &error, &ProducerState::default(), MonotonicMs(0));
        }
        assert!(it.is_empty());
        for n in 0..2 * PRODUCERS_MAX as i64 {
            let other = Sent { producer_id: ProducerId(n), ..sent(0, 0) };
            it.note(other, &ProduceError::NotLeader, &ProducerState::default(), MonotonicMs(0));
        }
        assert_eq!(it.0.len(), PRODUCERS_MAX);
        it.note(
            Sent { producer_id: ProducerId(9999), ..sent(0, 0) },
            &ProduceError::NotLeader,
            &ProducerState::default(),
            MonotonicMs(KEPT_MS),
        );
        assert_eq!(it.0.len(), 1);
        it.forget(MonotonicMs(2 * KEPT_MS));
        assert!(it.is_empty());
    }
}
