//! One producer of a partition.
//!
//! Owns what is remembered of it and how a batch changes that. Knows nothing of other producers. Invariant: the batches
//! are of the current epoch, oldest first, five at most.

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
    const NONE: SequencedBatch = SequencedBatch {
        last_sequence: NO_SEQUENCE,
        last_offset: Offset::UNKNOWN,
        offset_delta: 0,
        timestamp: TimestampMs::NONE,
    };

    pub fn first_sequence(&self) -> i32 {
        sequence_minus(self.last_sequence, self.offset_delta)
    }

    pub fn first_offset(&self) -> Offset {
        Offset(self.last_offset.0 - i64::from(self.offset_delta))
    }
}

/// What is remembered of a producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    batches: [SequencedBatch; BATCHES_MAX],
    batch_count: u8,
    pub epoch: ProducerEpoch,
    /// That of the coordinator which wrote the last marker; -1 before the first.
    pub coordinator_epoch: i32,
    pub last_timestamp: TimestampMs,
    pub current_txn_first_offset: Option<Offset>,
}

impl ProducerEntry {
    /// A producer of which nothing is known.
    pub const EMPTY: ProducerEntry = ProducerEntry {
        batches: [SequencedBatch::NONE; BATCHES_MAX],
        batch_count: 0,
        epoch: ProducerEpoch::NONE,
        coordinator_epoch: -1,
        last_timestamp: TimestampMs::NONE,
        current_txn_first_offset: None,
    };

    /// The batches that are remembered, oldest first.
    pub fn batches(&self) -> &[SequencedBatch] {
        &self.batches[..usize::from(self.batch_count)]
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
        let count = usize::from(self.batch_count);
        if count == BATCHES_MAX {
            self.batches.rotate_left(1);
            self.batches[BATCHES_MAX - 1] = batch;
        } else {
            self.batches[count] = batch;
            self.batch_count += 1;
        }
        self.last_timestamp = batch.timestamp;
    }

    /// Puts the batches back that it wrote in this epoch before those that are remembered.
    pub(super) fn recall(&mut self, earlier: impl Iterator<Item = SequencedBatch>) {
        let (known, timestamp) = (self.clone(), self.last_timestamp);
        self.batch_count = 0;
        for batch in earlier.chain(known.batches().iter().copied()) {
            self.push(known.epoch, batch);
        }
        self.last_timestamp = timestamp;
    }

    /// Ends the open transaction and returns where it began.
    pub(super) fn end_transaction(&mut self, epoch: ProducerEpoch, marker: &EndTxnMarker) -> Option<Offset> {
        self.set_epoch(epoch);
        self.coordinator_epoch = marker.coordinator_epoch;
        self.last_timestamp = marker.timestamp;
        self.current_txn_first_offset.take()
    }

    /// Sequences begin again with each epoch.
    fn set_epoch(&mut self, epoch: ProducerEpoch) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.batches = [SequencedBatch::NONE; BATCHES_MAX];
            self.batch_count = 0;
        }
    }
}
