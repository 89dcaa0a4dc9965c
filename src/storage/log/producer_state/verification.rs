//! The producers about which a transaction coordinator is being asked: their next transactional batch would begin a
//! transaction here, and one that no coordinator knows of would never end (KIP-890).
//!
//! Whoever asks gets a [`Guard`] first and shows it with the batch. An end marker that is written meanwhile takes the guard
//! away, so that an answer of before the marker begins nothing after it. Must not know how the coordinator is asked.
//! Invariant: a guard is given out for one stretch between two ends of a producer's transactions, and never again.

use std::collections::HashMap;

use super::bound::Held;
use crate::types::{ProducerEpoch, ProducerId, TimestampMs};

/// More producers than that do not begin transactions in one partition at a time. Beyond it, or when the broker remembers too many
/// in all, all begin anew, so that made-up producers fill no memory.
const VERIFICATIONS_MAX: usize = 1 << 16;

/// What an append shows to begin a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard(u64);

/// The batch for which the coordinator is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstBatch {
    pub producer_id: ProducerId,
    pub epoch: ProducerEpoch,
    pub sequence: i32,
    /// The producer raises its epoch with each transaction: version 2 of transactions.
    pub raises_epoch: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Verification {
    guard: Guard,
    began: TimestampMs,
    pub(super) epoch: ProducerEpoch,
    /// The lowest first sequence of the batches that were asked for: it is to be written before any later one.
    pub(super) lowest_sequence: i32,
    pub(super) raises_epoch: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Verifications {
    pending: HashMap<ProducerId, Verification>,
    next_guard: u64,
    held: Held,
}

impl Verifications {
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn count_in(&mut self, held: Held) {
        self.held = held;
        self.held.set(self.pending.len());
    }

    pub(super) fn get(&self, producer_id: ProducerId) -> Option<&Verification> {
        self.pending.get(&producer_id)
    }

    pub(super) fn begin(&mut self, batch: &FirstBatch, now: TimestampMs) -> Guard {
        let is_full = self.pending.len() >= VERIFICATIONS_MAX || self.held.surplus() > 0;
        if is_full && !self.pending.contains_key(&batch.producer_id) {
            self.pending = HashMap::new();
        }
        let guard = Guard(self.next_guard);
        let next_guard = &mut self.next_guard;
        let verification = self.pending.entry(batch.producer_id).or_insert_with(|| {
            *next_guard += 1;
            Verification {
                guard,
                began: now,
                epoch: batch.epoch,
                lowest_sequence: batch.sequence,
                raises_epoch: batch.raises_epoch,
            }
        });
        if batch.epoch > verification.epoch {
            (verification.epoch, verification.lowest_sequence) = (batch.epoch, batch.sequence);
        } else if batch.epoch == verification.epoch {
            verification.lowest_sequence = verification.lowest_sequence.min(batch.sequence);
        }
        let guard = verification.guard;
        self.held.set(self.pending.len());
        guard
    }

    pub(super) fn holds(&self, producer_id: ProducerId, guard: Guard) -> bool {
        self.get(producer_id).is_some_and(|verification| verification.guard == guard)
    }

    /// The producer's transaction has begun here.
    pub(super) fn begun(&mut self, producer_id: ProducerId) {
        self.remove(producer_id);
    }

    fn remove(&mut self, producer_id: ProducerId) {
        self.pending.remove(&producer_id);
        self.held.set(self.pending.len());
    }

    /// A transaction of the producer was ended by a marker of this epoch. Where each transaction has its own epoch, the one
    /// that is being asked about may already be the next.
    pub(super) fn ended(&mut self, producer_id: ProducerId, epoch: ProducerEpoch) {
        let is_next = |verification: &Verification| verification.raises_epoch && verification.epoch == epoch;
        if !self.get(producer_id).is_some_and(is_next) {
            self.remove(producer_id);
        }
    }

    pub(super) fn expire(&mut self, expired_before: TimestampMs) {
        self.pending.retain(|_, verification| verification.began > expired_before);
        self.held.set(self.pending.len());
    }

    /// Nobody is being asked about any more, and guards of before stay void.
    pub(super) fn restart(&mut self) -> Verifications {
        let mut held = std::mem::take(&mut self.held);
        held.set(0);
        Verifications { pending: HashMap::new(), next_guard: self.next_guard, held }
    }
}
