//! What everybody but the writer sees of a log: its offsets at one moment and its records. Immutable; the writer publishes
//! a new one after each change. Must not know who reads or why: the bound of a read is an argument.
//!
//! Invariant: the offsets obey the ruler of `log`, and every batch below `log_end` is in `segments`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use thiserror::Error;

use super::epoch_cache::EpochCache;
use super::read::ColdRead;
use super::segment::Segment;
use super::tail_cache::TailCache;
use crate::types::{LeaderEpoch, Offset};

/// The handle through which readers load the latest view.
pub type LogViews = Arc<ArcSwap<LogView>>;

/// One moment of a log.
#[derive(Clone, Debug)]
pub struct LogView {
    pub log_start: Offset,
    pub last_stable: Offset,
    pub high_watermark: Offset,
    /// What is below is on disk for good.
    pub flushed: Offset,
    pub log_end: Offset,
    /// How often the log had been cut.
    pub(super) truncations: u32,
    pub(super) epochs: EpochCache,
    pub(super) segments: Arc<[Arc<Segment>]>,
    /// How much of the newest segment lies below `log_end`: it grows while this does not.
    pub(super) active_size: u64,
    pub(super) tail: Arc<TailCache>,
    /// How often it has been by now.
    pub(super) truncations_now: Arc<AtomicU32>,
}

/// Why a read could not be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    #[error("offset {from} is outside of the log from {log_start} to {log_end}")]
    OutOfRange { from: Offset, log_start: Offset, log_end: Offset },
}

/// How to get the bytes of a read.
#[derive(Debug)]
pub enum ReadPlan {
    /// Here they are: whole batches, one after the other, possibly none. Where one piece ends and the next begins says nothing: the
    /// header of a batch may be a piece by itself.
    Ready(Vec<Bytes>),
    /// They must be read from disk, on a thread that may block.
    Cold(ColdRead),
}

impl LogView {
    /// Plans a read of whole batches from the one that holds `from`, all of them below `upto`. At most `max_bytes`, save
    /// that the first batch comes whatever its size when `min_one_batch`.
    pub fn read(
        &self,
        from: Offset,
        max_bytes: usize,
        upto: Offset,
        min_one_batch: bool,
    ) -> Result<ReadPlan, ReadError> {
        if from < self.log_start || from > self.log_end {
            let (log_start, log_end) = (self.log_start, self.log_end);
            return Err(ReadError::OutOfRange { from, log_start, log_end });
        }
        let upto = upto.min(self.log_end);
        if from >= upto || (max_bytes == 0 && !min_one_batch) {
            return Ok(ReadPlan::Ready(Vec::new()));
        }
        if let Some(batches) = self.tail.read(from, max_bytes, upto, min_one_batch) {
            return Ok(ReadPlan::Ready(batches));
        }
        Ok(ReadPlan::Cold(self.cold(from, max_bytes, upto, min_one_batch)))
    }

    /// Plans to read from disk.
    pub fn cold(&self, from: Offset, max_bytes: usize, upto: Offset, min_one_batch: bool) -> ColdRead {
        ColdRead {
            segments: self.segments.clone(),
            active_size: self.active_size,
            log_end: self.log_end,
            truncations: self.truncations,
            epochs: self.epochs.clone(),
            from,
            max_bytes,
            upto,
            min_one_batch,
        }
    }

    /// How much of a segment this shows.
    pub(super) fn size_of(&self, segment: &Arc<Segment>) -> u64 {
        shown_size(&self.segments, self.active_size, segment)
    }

    /// Where a segment's offsets end.
    pub(super) fn end_of(&self, segment: &Segment) -> Offset {
        end_of(&self.segments, segment, self.log_end)
    }

    /// Whether the log was cut since. Memory and files are those of the log as it is, so what is read may then be what it got
    /// in the place of what was cut.
    pub fn was_cut(&self) -> bool {
        self.truncations_now.load(Ordering::Acquire) != self.truncations
    }

    /// The directory in which what it shows lies.
    pub fn dir(&self) -> PathBuf {
        self.segments[0].place().dir()
    }

    pub fn epochs(&self) -> &EpochCache {
        &self.epochs
    }

    /// The largest epoch known up to `epoch` and the offset where it ends; `None` when nothing is known about it.
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        self.epochs.end_offset_for(epoch, self.log_end)
    }

    /// The bytes of all batches.
    pub fn size_in_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size()).sum()
    }

    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }
}

/// How much of a segment a view shows. What was appended since lies beyond its end, and is no damage because of that: a log can end
/// in a gap, where a reader looks for what comes next.
pub(super) fn shown_size(segments: &[Arc<Segment>], active_size: u64, segment: &Arc<Segment>) -> u64 {
    let is_active = segments.last().is_some_and(|last| Arc::ptr_eq(last, segment));
    if is_active { segment.size().min(active_size) } else { segment.size() }
}

/// Where the offsets of one of these segments of a log end.
pub(super) fn end_of(segments: &[Arc<Segment>], segment: &Segment, log_end: Offset) -> Offset {
    let next = segments.partition_point(|other| other.base() <= segment.base());
    segments.get(next).map_or(log_end, |next| next.base())
}

/// The index of the segment that holds `offset`, or would.
pub(super) fn segment_of(segments: &[Arc<Segment>], offset: Offset) -> usize {
    segments.partition_point(|segment| segment.base() <= offset).saturating_sub(1)
}
