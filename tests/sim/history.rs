//! What the clients know: which batches were sent, which were acknowledged where, and what is committed as far as anybody
//! outside could have seen it. The invariants hold the cluster against it.
//!
//! Must not know how the cluster works. Invariant: what was once committed stays in the history.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;

use super::invariants::Broken;
use super::ledger::Ledger;
use super::plan::TopicKind;
use crate::broker::partitions::Partition;
use crate::coordinator::Producer;
use crate::storage::log::{LogView, ReadPlan};
use crate::types::{LeaderEpoch, Offset, TopicId, TopicIdPartition};
use crate::wire::batch::{Batch, BatchHeader, Batches, PartialTail};
use crate::wire::control::{EndTxnMarker, TxnResult};

/// So much is read at a time.
const READ_BYTES: usize = 1 << 20;

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
        let bytes = read_some(view, from, upto, false).ok()?;
        from = each_of(&bytes, from, upto, &mut shown)?;
    }
    Some(())
}

fn read_some(view: &LogView, from: Offset, upto: Offset, is_cold: bool) -> io::Result<Bytes> {
    if is_cold {
        return view.cold(from, READ_BYTES, upto, true).run();
    }
    match view.read(from, READ_BYTES, upto, true).map_err(io::Error::other)? {
        ReadPlan::Ready(parts) if parts.len() == 1 => Ok(parts[0].clone()),
        ReadPlan::Ready(parts) => Ok(parts.concat().into()),
        ReadPlan::Cold(cold) => cold.run(),
    }
}

/// The offset after what was shown; `None` when that is nothing.
fn each_of(bytes: &Bytes, from: Offset, upto: Offset, mut shown: impl FnMut(&Batch<'_>)) -> Option<Offset> {
    let mut at = from;
    for batch in Batches::new(bytes, PartialTail::Ignore) {
        let batch = batch.ok()?;
        let (base, next) = (batch.header.base_offset, batch.header.next_offset());
        if next > at && base < upto {
            shown(&batch);
            at = next;
        }
    }
    (at > from).then_some(at)
}

/// Why a reader has got nothing.
#[derive(Debug)]
pub enum Unread {
    /// It was told so.
    Refused(io::Error),
    /// It was given what is wrong.
    Wrong(Broken),
}

impl Unread {
    /// A replica was read. Whoever serves tells its shard of damage.
    pub fn of(self, partition: &Partition) -> Result<(), Broken> {
        match self {
            Unread::Refused(error) => {
                partition.note_unreadable(&error);
                Ok(())
            }
            Unread::Wrong(broken) => Err(broken),
        }
    }
}

/// What a reader gets who checks it: whole batches without a gap, each as it was made. `is_cold`: from disk, whatever is in memory.
pub fn read(view: &LogView, from: Offset, upto: Offset, is_cold: bool) -> Result<Vec<Entry>, Unread> {
    let (mut entries, mut next) = (Vec::new(), from.max(view.log_start));
    let mut wrong = None;
    while next < upto {
        let bytes = read_some(view, next, upto, is_cold).map_err(Unread::Refused)?;
        let mut expected = next;
        let end = each_of(&bytes, next, upto, |batch| {
            let BatchHeader { base_offset, .. } = batch.header;
            let skips = base_offset > expected;
            if skips || batch.check_crc().is_err() {
                wrong.get_or_insert(format!("read: at {expected} a reader is given {:?}", batch.header));
            } else {
                entries.push(Entry::of(batch));
            }
            expected = batch.header.next_offset();
        });
        if let Some(wrong) = wrong {
            return Err(Unread::Wrong(wrong));
        }
        next = end.ok_or_else(|| Unread::Refused(io::Error::other(format!("there is nothing at {next}"))))?;
    }
    Ok(entries)
}
