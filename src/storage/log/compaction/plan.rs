//! How much of a log waits for compaction, whether that is worth while, and in which pieces it is done. Must not know who
//! compacts, or when.
//!
//! Invariant: nothing at or above the last stable offset, the end of what is flushed, or in the active segment is ever part of it.

use std::io;
use std::sync::Arc;

use super::super::config::LogConfig;
use super::super::read::header_at;
use super::super::retention::newest;
use super::super::segment::Segment;
use super::super::view::{LogView, segment_of};
use crate::types::{Offset, TimestampMs};

/// So many segments are put into one at most: each costs some renames, for which appends wait.
const GROUP_MAX: usize = 32;

/// What waits for compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirt {
    /// All below has been compacted.
    pub from: Offset,
    /// What may be compacted now ends here; where a segment begins.
    pub upto: Offset,
    /// The bytes of the segments that begin below `from`.
    pub clean_bytes: u64,
    /// The bytes of the segments between.
    pub dirty_bytes: u64,
    /// Some of it has waited for `max.compaction.lag.ms`.
    pub is_overdue: bool,
}

impl Dirt {
    /// The share of the log, as far as it may be compacted, that is dirty.
    pub fn ratio(&self) -> f64 {
        match self.clean_bytes + self.dirty_bytes {
            0 => 0.0,
            total => self.dirty_bytes as f64 / total as f64,
        }
    }

    /// Whether compaction is due.
    pub fn is_due(&self, config: &LogConfig) -> bool {
        self.dirty_bytes > 0 && (self.is_overdue || self.ratio() > config.min_cleanable_dirty_ratio)
    }
}

impl LogView {
    /// What waits for compaction in a log that was compacted up to `cleaned`. May have to look at the disk.
    pub fn dirt(&self, config: &LogConfig, cleaned: Option<Offset>, now: TimestampMs) -> io::Result<Dirt> {
        // What was noted of a log that has lost its end, or of whose start records were deleted, says nothing.
        let from =
            cleaned.filter(|at| (self.log_start..=self.log_end).contains(at)).unwrap_or(self.log_start);
        let sealed = &self.segments[..self.segments.len() - 1];
        let first_dirty = segment_of(&self.segments, from).min(sealed.len());
        let mut limit = self.last_stable.min(self.flushed).max(from);
        if config.min_compaction_lag_ms > 0 {
            let since = now.0.saturating_sub(config.min_compaction_lag_ms);
            for segment in &sealed[first_dirty..] {
                if newest(segment)?.0 > since {
                    limit = limit.min(segment.base().max(from));
                    break;
                }
            }
        }
        let end = segment_of(&self.segments, limit).min(sealed.len());
        let dirty = &sealed[first_dirty.min(end)..end];
        let bytes = |segments: &[Arc<Segment>]| segments.iter().map(|segment| segment.size()).sum();
        Ok(Dirt {
            from,
            upto: self.segments[end].base(),
            clean_bytes: bytes(&sealed[..sealed.partition_point(|segment| segment.base() < from)]),
            dirty_bytes: bytes(dirty),
            is_overdue: is_overdue(&sealed[first_dirty..], config, now)?,
        })
    }

    /// The segments that begin below `upto`, in groups of which each becomes one segment: small segments are put together.
    pub(super) fn groups(&self, upto: Offset, config: &LogConfig) -> io::Result<Vec<Vec<Arc<Segment>>>> {
        let all = &self.segments[..self.segments.partition_point(|segment| segment.base() < upto)];
        let mut groups: Vec<Vec<Arc<Segment>>> = Vec::new();
        let mut load = Load::default();
        for (index, segment) in all.iter().enumerate() {
            let of_segment = Load::of(segment)?;
            let end = self.segments.get(index + 1).map_or(self.log_end, |next| next.base());
            let group = groups.last_mut().filter(|group| {
                let spans = segment.size() == 0 || group[0].spans(end.plus(-1));
                spans && group.len() < GROUP_MAX && load.plus(of_segment).fits(config)
            });
            match group {
                Some(group) => {
                    group.push(segment.clone());
                    load = load.plus(of_segment);
                }
                None => {
                    groups.push(vec![segment.clone()]);
                    load = of_segment;
                }
            }
        }
        Ok(groups)
    }
}

/// What a group comes to.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    bytes: u64,
    offset_index_bytes: u64,
    time_index_bytes: u64,
}

impl Load {
    fn of(segment: &Segment) -> io::Result<Load> {
        Ok(Load {
            bytes: segment.size(),
            offset_index_bytes: segment.offset_index.size()?,
            time_index_bytes: segment.time_index.size()?,
        })
    }

    fn plus(self, other: Load) -> Load {
        Load {
            bytes: self.bytes + other.bytes,
            offset_index_bytes: self.offset_index_bytes + other.offset_index_bytes,
            time_index_bytes: self.time_index_bytes + other.time_index_bytes,
        }
    }

    fn fits(self, config: &LogConfig) -> bool {
        self.bytes <= u64::from(config.segment_bytes)
            && self.offset_index_bytes <= u64::from(config.segment_index_bytes)
            && self.time_index_bytes <= u64::from(config.segment_index_bytes)
    }
}

/// Whether the first batch of a dirty segment is older than `max.compaction.lag.ms`.
fn is_overdue(dirty: &[Arc<Segment>], config: &LogConfig, now: TimestampMs) -> io::Result<bool> {
    if config.max_compaction_lag_ms == i64::MAX {
        return Ok(false);
    }
    let since = now.0.saturating_sub(config.max_compaction_lag_ms.max(0));
    for segment in dirty {
        let file = segment.log_file().get()?;
        let first = match header_at(&*file, 0, segment.size()) {
            // It is damaged: that shows when it is read, whenever that is.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => continue,
            first => first?.map(|header| header.max_timestamp.0),
        };
        if first.is_some_and(|first| first > 0 && first < since) {
            return Ok(true);
        }
    }
    Ok(false)
}
