//! Retention: which of the oldest segments have outlived the settings of their log, and their removal. Must not know when
//! somebody looks, or what becomes of the files.
//!
//! Invariant: only whole segments below the high watermark go, the oldest first, and the log's start moves with them.

use std::io;

use super::config::LogConfig;
use super::segment::Segment;
use super::truncate::Doomed;
use super::view::LogView;
use super::{Log, LogError};
use crate::types::{Offset, TimestampMs};

/// What retention has done in one go.
#[derive(Debug)]
pub struct Retained {
    /// The segments that went.
    pub doomed: Option<Doomed>,
    /// There are more of them.
    pub more: bool,
}

impl LogView {
    /// How many of the oldest segments are due: they lie before the log's start, are more than the size that is kept, or
    /// older than the time. May have to look at the disk.
    pub fn overdue(&self, config: &LogConfig, now: TimestampMs) -> io::Result<usize> {
        let before_start = self.segments[1..].partition_point(|next| next.base() <= self.log_start);
        if !config.delete {
            return Ok(before_start);
        }
        let oversize = self.oversize(before_start, config.retention_bytes);
        self.overage(oversize, config.retention_ms, now)
    }

    /// Whether retention may take the segment at `index`, provided that those before it go.
    fn may_go(&self, index: usize, segment: &Segment) -> bool {
        let next = self.segments.get(index + 1);
        let end = next.map_or(self.log_end, |next| next.base());
        end <= self.high_watermark && (next.is_some() || segment.size() > 0)
    }

    fn oversize(&self, from: usize, limit: i64) -> usize {
        let Ok(limit) = u64::try_from(limit) else { return from };
        let total: u64 = self.segments[from..].iter().map(|segment| segment.size()).sum();
        let Some(mut excess) = total.checked_sub(limit) else { return from };
        let due = self.segments.iter().enumerate().skip(from).take_while(|(index, segment)| {
            let fits = self.may_go(*index, segment).then(|| excess.checked_sub(segment.size())).flatten();
            excess = fits.unwrap_or(excess);
            fits.is_some()
        });
        from + due.count()
    }

    fn overage(&self, from: usize, limit_ms: i64, now: TimestampMs) -> io::Result<usize> {
        let mut due = from;
        while let Some(segment) = self.segments.get(due).filter(|_| limit_ms >= 0) {
            if !self.may_go(due, segment) || now.0.saturating_sub(newest(segment)?.0) <= limit_ms {
                break;
            }
            due += 1;
        }
        Ok(due)
    }
}

/// The time that a segment's age counts from.
pub(super) fn newest(segment: &Segment) -> io::Result<TimestampMs> {
    match segment.max_timestamp()?.timestamp {
        timestamp if timestamp > TimestampMs::NONE => Ok(timestamp),
        // None of its records has a timestamp.
        _ => segment.modified(),
    }
}

impl Log {
    /// Removes segments that are due, the oldest `at_most`. When even the active one is, a new one takes its place.
    pub fn retain(&mut self, now: TimestampMs, at_most: usize) -> Result<Retained, LogError> {
        self.check_in_service()?;
        let overdue = self.view().overdue(&self.config, now);
        let overdue = overdue.map_err(|error| LogError::io("retention of", &self.place.dir(), error))?;
        let count = overdue.min(at_most);
        if count == 0 {
            return Ok(Retained { doomed: None, more: false });
        }
        let start = match self.segments.get(count) {
            Some(next) => next.base(),
            None => self.roll_everything(now)?,
        };
        self.advance_log_start(start)?;
        let doomed = self.delete_before_start(at_most)?;
        Ok(Retained { doomed, more: overdue > count })
    }

    fn roll_everything(&mut self, now: TimestampMs) -> Result<Offset, LogError> {
        let end = self.ruler.log_end;
        let rolled = self.roll(end, now);
        self.or_full("roll", rolled)?;
        Ok(end)
    }
}

#[cfg(test)]
mod tests;
