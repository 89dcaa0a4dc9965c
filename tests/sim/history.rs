//! What the clients know: which batches were sent, which were acknowledged where, and what is committed as far as anybody
//! outside could have seen it. The invariants hold the cluster against it.
//!
//! Must not know how the cluster works. Invariant: what was once committed stays in the history.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::ledger::Ledger;
use super::plan::TopicKind;
use crate::coordinator::Producer;
use crate::storage::log::{LogView, ReadPlan};
use crate::types::{LeaderEpoch, Offset, TopicId, TopicIdPartition};
use crate::wire::batch::{Batch, BatchHeader, Batches, PartialTail};
use crate::wire::control::{EndTxnMarker, TxnResult};

/// A batch as it lies in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub base: Offset,
    pub next: Offset,
    pub epoch: LeaderEpoch,
    /// What tells it from all other batches.
    pub crc: u32,
    /// Of which transaction it is.
    pub part: Option<Part>,
}

/// A batch of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub producer: Producer,
    /// It ends the transaction.
    pub marker: Option<TxnResult>,
}

impl Entry {
    fn of(batch: &Batch<'_>) -> Entry {
        let header = &batch.header;
        let BatchHeader { base_offset, leader_epoch, crc, .. } = *header;
        let part = header.is_transactional().then(|| {
            let marker = header.is_control().then(|| EndTxnMarker::of_batch(header, batch.body()));
            Part {
                producer: Producer { id: header.producer_id, epoch: header.producer_epoch },
                marker: marker.map(|marker| marker.expect("a marker").expect("a record in it").result),
            }
        });
        Entry { base: base_offset, next: header.next_offset(), epoch: leader_epoch, crc, part }
    }
}

/// Who sent a batch, and as which of its batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sent {
    pub is_idempotent: bool,
    pub producer: usize,
    pub number: u64,
}

/// The history of one partition.
#[derive(Debug, Default)]
pub struct PartitionHistory {
    /// Every committed batch, in order.
    pub committed: Vec<Entry>,
    /// Acknowledged with acks=all: where, and which.
    pub acknowledged: Vec<(Offset, u32)>,
    /// Records below were deleted on request.
    pub deleted: Offset,
}

impl PartitionHistory {
    pub fn end(&self) -> Offset {
        self.committed.last().map_or(Offset::ZERO, |entry| entry.next)
    }

    /// The committed batches from the one that holds `offset` on.
    pub fn from(&self, offset: Offset) -> &[Entry] {
        &self.committed[self.committed.partition_point(|entry| entry.next <= offset)..]
    }
}

#[derive(Debug, Default)]
pub struct History {
    pub partitions: BTreeMap<TopicIdPartition, PartitionHistory>,
    /// By checksum.
    pub sent: BTreeMap<u32, Sent>,
    pub acknowledgements: u64,
    pub ledger: Ledger,
    /// What the topics are for that are not plain.
    pub kinds: BTreeMap<TopicId, TopicKind>,
}

impl History {
    pub fn kind(&self, id: TopicIdPartition) -> TopicKind {
        self.kinds.get(&id.topic_id).copied().unwrap_or(TopicKind::Plain)
    }

    pub fn of(&mut self, id: TopicIdPartition) -> &mut PartitionHistory {
        self.partitions.entry(id).or_default()
    }
}

/// The batches of a log from `from` up to `upto`, both of which are where a batch begins or ends. `None` when it cannot be
/// read now.
pub fn entries(view: &LogView, from: Offset, upto: Offset) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    each_batch(view, from, upto, |batch| entries.push(Entry::of(batch)))?;
    Some(entries)
}

/// Shows each batch of a log from `from` up to `upto`. `None` when it cannot be read now.
pub fn each_batch(
    view: &LogView,
    from: Offset,
    upto: Offset,
    mut shown: impl FnMut(&Batch<'_>),
) -> Option<()> {
    let mut from = from.max(view.log_start);
    while from < upto {
        let bytes: Bytes = match view.read(from, 1 << 20, upto, true).ok()? {
            ReadPlan::Ready(parts) if parts.len() == 1 => parts[0].clone(),
            ReadPlan::Ready(parts) => parts.concat().into(),
            ReadPlan::Cold(cold) => cold.run().ok()?,
        };
        let before = from;
        for batch in Batches::new(&bytes, PartialTail::Ignore) {
            let batch = batch.ok()?;
            let (base, next) = (batch.header.base_offset, batch.header.next_offset());
            if next > from && base < upto {
                shown(&batch);
                from = next;
            }
        }
        if from == before {
            return None;
        }
    }
    Some(())
}
