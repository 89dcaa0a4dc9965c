//! One producer of a partition.
//!
//! Owns what is remembered of it and how a batch changes that. Knows nothing of other producers. Invariant: the batches
//! are of the current epoch, oldest first, each after the one before, five at most.

use super::ActiveProducer;
use crate::types::{Offset, ProducerEpoch, ProducerId, TimestampMs};
use crate::wire::batch::{BatchHeader, NO_SEQUENCE, sequence_minus};
use crate::wire::control::EndTxnMarker;

/// How many batches are known again: an idempotent producer has at most as many in flight.
pub const BATCHES_MAX: usize = 5;

/// A batch that a producer wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequencedBatch {
    pub last_sequence: i32,
    pub last_offset: Offset,
    /// From the first record to the last.
    pub offset_delta: i32,
    pub timestamp: TimestampMs,
}

impl SequencedBatch {
    pub fn first_sequence(&self) -> i32 {
        sequence_minus(self.last_sequence, self.offset_delta)
    }

    pub fn first_offset(&self) -> Offset {
        Offset(self.last_offset.0 - i64::from(self.offset_delta))
    }

    /// Its sequences come after those of `before`, at once or after a gap; they begin again after the largest.
    fn is_after(&self, before: &SequencedBatch) -> bool {
        let ahead = sequence_minus(self.first_sequence(), before.last_sequence);
        (1..=i32::MAX / 2).contains(&ahead)
    }
}

/// What is remembered of a producer. There may be very many of them, most with one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    batches: Vec<SequencedBatch>,
    pub epoch: ProducerEpoch,
    /// That of the coordinator which wrote the last marker; -1 before the first.
    pub coordinator_epoch: i32,
    pub last_timestamp: TimestampMs,
    pub current_txn_first_offset: Option<Offset>,
    /// Of the last record or marker, as far as it is known.
    pub(super) last_used: Offset,
}

/// A producer of which nothing is known.
pub(super) static UNKNOWN_PRODUCER: ProducerEntry = ProducerEntry::EMPTY;

impl ProducerEntry {
    /// A producer of which nothing is known.
    pub const EMPTY: ProducerEntry = ProducerEntry {
        batches: Vec::new(),
        epoch: ProducerEpoch::NONE,
        coordinator_epoch: -1,
        last_timestamp: TimestampMs::NONE,
        current_txn_first_offset: None,
        last_used: Offset::UNKNOWN,
    };

    /// The batches that are remembered, oldest first.
    pub fn batches(&self) -> &[SequencedBatch] {
        &self.batches
    }

    pub fn last_batch(&self) -> Option<&SequencedBatch> {
        self.batches().last()
    }

    /// [`NO_SEQUENCE`] when the producer wrote nothing in its epoch.
    pub fn last_sequence(&self) -> i32 {
        self.last_batch().map_or(NO_SEQUENCE, |batch| batch.last_sequence)
    }

    /// The remembered batch with exactly the epoch and sequences of `header`.
    pub fn find_duplicate(&self, header: &BatchHeader) -> Option<SequencedBatch> {
        if header.producer_epoch != self.epoch {
            return None;
        }
        let sequences = (header.base_sequence, header.last_sequence());
        self.batches().iter().find(|b| (b.first_sequence(), b.last_sequence) == sequences).copied()
    }

    pub fn describe(&self, producer_id: ProducerId) -> ActiveProducer {
        ActiveProducer {
            producer_id,
            epoch: self.epoch,
            last_sequence: self.last_sequence(),
            last_timestamp: self.last_timestamp,
            coordinator_epoch: self.coordinator_epoch,
            current_txn_first_offset: self.current_txn_first_offset,
        }
    }

    pub(super) fn has_expired(&self, expired_before: TimestampMs) -> bool {
        self.current_txn_first_offset.is_none() && self.last_timestamp <= expired_before
    }

    pub(super) fn push(&mut self, epoch: ProducerEpoch, batch: SequencedBatch) {
        self.set_epoch(epoch);
        // A leader that has forgotten the producer lets it begin again where it likes. What is remembered of before here would be
        // taken for repetitions when its sequences come to be used once more.
        if self.last_batch().is_some_and(|last| !batch.is_after(last)) {
            self.batches.clear();
        }
        if self.batches.len() == BATCHES_MAX {
            self.batches.remove(0);
        } else if self.batches.len() == self.batches.capacity() {
            // Few producers ever need more than one, those that do soon need all.
            let room = if self.batches.is_empty() { 1 } else { BATCHES_MAX };
            self.batches.reserve_exact(room - self.batches.len());
        }
        self.batches.push(batch);
        self.last_timestamp = batch.timestamp;
        self.last_used = batch.last_offset;
    }

    /// Puts the batches back that it wrote in this epoch before those that are remembered.
    pub(super) fn recall(&mut self, earlier: impl Iterator<Item = SequencedBatch>) {
        let (timestamp, known) = (self.last_timestamp, std::mem::take(&mut self.batches));
        for batch in earlier.chain(known) {
            self.push(self.epoch, batch);
        }
        self.last_timestamp = timestamp;
    }

    /// Ends the open transaction and returns where it began.
    pub(super) fn end_transaction(
        &mut self,
        epoch: ProducerEpoch,
        offset: Offset,
        marker: &EndTxnMarker,
    ) -> Option<Offset> {
        self.set_epoch(epoch);
        self.last_used = offset;
        self.coordinator_epoch = marker.coordinator_epoch;
        self.last_timestamp = marker.timestamp;
        self.current_txn_first_offset.take()
    }

    /// Sequences begin again with each epoch.
    fn set_epoch(&mut self, epoch: ProducerEpoch) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.batches.clear();
        }
    }
}
