//! Reading a coordinator's log: every record from its start to its end, committed or not, goes into the machine. Blocks on the
//! disk.
//!
//! Must not know what records mean. Invariant: what was read is the log of one term of this leader.

use std::io;

use bytes::Bytes;

use super::super::partitions::{Leadership, Partition, Role};
use crate::coordinator::{Machine, Producer};
use crate::storage::log::{ReadError, ReadPlan};
use crate::types::{LeaderEpoch, Offset};
use crate::wire::batch::{Batch, BatchError, Batches, PartialTail};
use crate::wire::compression::{Compression, DecompressError, Scratch, UnknownCompression, decompress};
use crate::wire::control::{ControlError, EndTxnMarker};
use crate::wire::records::{RecordError, Records};

/// A batch was checked when it was appended; this only keeps a damaged one from filling the memory.
const BODY_MAX: usize = 1 << 30;

/// Why a log was not folded.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error("the broker does not lead the partition in this term any more")]
    Moved,
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error("a batch from offset {0} on cannot be read: {1}")]
    Batch(Offset, BatchFault),
    #[error("the record at offset {0} cannot be read: {1}")]
    Record(Offset, String),
}

/// What is wrong with a batch.
#[derive(Debug, thiserror::Error)]
pub(super) enum BatchFault {
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error(transparent)]
    Codec(#[from] UnknownCompression),
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    #[error(transparent)]
    Records(#[from] RecordError),
    #[error(transparent)]
    Control(#[from] ControlError),
}

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loaded {
    /// Where the log ended.
    pub(super) end: Offset,
    pub(super) records: u64,
}

/// Folds the log of `partition` into `machine`, reading about `chunk` bytes at a time.
pub(super) fn load<M: Machine>(
    partition: &Partition,
    leader_epoch: LeaderEpoch,
    chunk: usize,
    machine: &mut M,
) -> Result<Loaded, LoadError> {
    let mut next = partition.view().log_start;
    let mut fold = Fold { machine, scratch: Scratch::new(), records: 0 };
    loop {
        let view = partition.view();
        check_term(partition.leadership(), leader_epoch)?;
        if next >= view.log_end {
            return Ok(Loaded { end: view.log_end, records: fold.records });
        }
        let batches = match view.read(next, chunk, view.log_end, true) {
            Ok(ReadPlan::Ready(pieces)) => joined(&pieces),
            Ok(ReadPlan::Cold(cold)) => cold.run().inspect_err(|error| partition.note_unreadable(error))?,
            // Records were deleted, or the log was cut, which the next look at the term tells.
            Err(ReadError::OutOfRange { log_start, .. }) => {
                next = next.max(log_start).min(view.log_end);
                continue;
            }
        };
        // What was read of a log that was cut meanwhile may not be what it holds.
        check_term(partition.leadership(), leader_epoch)?;
        next = fold.batches(&batches, next)?;
        if batches.is_empty() {
            // Compaction has taken the last records.
            next = view.log_end;
        }
    }
}

/// What was read, in one piece.
fn joined(pieces: &[Bytes]) -> Bytes {
    match pieces {
        [one] => one.clone(),
        several => several.concat().into(),
    }
}

fn check_term(leadership: Leadership, leader_epoch: LeaderEpoch) -> Result<(), LoadError> {
    let is_same = leadership.role == Role::Leader && leadership.leader_epoch == leader_epoch;
    if is_same { Ok(()) } else { Err(LoadError::Moved) }
}

struct Fold<'a, M> {
    machine: &'a mut M,
    scratch: Scratch,
    records: u64,
}

impl<M: Machine> Fold<'_, M> {
    /// Folds whole batches; gives where the next one begins.
    fn batches(&mut self, bytes: &[u8], mut next: Offset) -> Result<Offset, LoadError> {
        for batch in Batches::new(bytes, PartialTail::Refuse) {
            let batch = batch.map_err(|error| LoadError::Batch(next, error.into()))?;
            let first = batch.header.base_offset;
            if batch.header.is_control() {
                self.marker(&batch).map_err(|fault| LoadError::Batch(first, fault))?;
            } else {
                self.batch(&batch)?;
            }
            next = batch.header.next_offset();
        }
        Ok(next)
    }

    fn marker(&mut self, batch: &Batch<'_>) -> Result<(), BatchFault> {
        let header = &batch.header;
        self.records += u64::try_from(header.record_count).unwrap_or(0);
        if header.has_producer_id()
            && let Some(marker) = EndTxnMarker::of_batch(header, batch.body())?
        {
            let producer = Producer { id: header.producer_id, epoch: header.producer_epoch };
            self.machine.replay_marker(producer, marker.result);
        }
        Ok(())
    }

    fn batch(&mut self, batch: &Batch<'_>) -> Result<(), LoadError> {
        let header = &batch.header;
        let at_fault = |fault: BatchFault| LoadError::Batch(header.base_offset, fault);
        let producer = header
            .is_transactional()
            .then_some(Producer { id: header.producer_id, epoch: header.producer_epoch });
        // Records share the memory of their batch, and not that of all that was read at once.
        let body: Bytes = match header.compression().map_err(|error| at_fault(error.into()))? {
            Compression::None => Bytes::copy_from_slice(batch.body()),
            codec => decompress(codec, batch.body(), BODY_MAX, &mut self.scratch)
                .map_err(|error| at_fault(error.into()))?
                .into(),
        };
        for record in Records::new(&body, header.record_count) {
            let record = record.map_err(|error| at_fault(error.into()))?;
            let offset = header.base_offset.plus(i64::from(record.offset_delta));
            let key = record.key.map(|key| body.slice_ref(key)).unwrap_or_default();
            let value = record.value.map(|value| body.slice_ref(value));
            let replayed = self.machine.replay(offset, producer, key, value);
            replayed.map_err(|error| LoadError::Record(offset, error.to_string()))?;
            self.records += 1;
        }
        Ok(())
    }
}
