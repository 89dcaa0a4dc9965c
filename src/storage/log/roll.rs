//! When the active segment makes way for a new one, and how. As in Kafka, only appends and retention roll: a segment to which
//! nothing is written stays however old it is, until its records have outlived their time.
//!
//! Invariant: a sealed segment's indexes are complete and exactly as long as their entries.

use std::io;
use std::sync::Arc;

use super::names::{FileName, Kind};
use super::read::header_at;
use super::segment::Segment;
use super::{Active, Log};
use crate::types::{Offset, TimestampMs};

/// What an append will add to the active segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coming {
    pub size: usize,
    pub first_offset: Offset,
    pub last_offset: Offset,
    pub max_timestamp: TimestampMs,
}

impl Log {
    /// Rolls when the active segment cannot or should not take what is coming.
    pub(super) fn roll_for(&mut self, coming: Coming, now: TimestampMs) -> io::Result<()> {
        if !self.must_roll(&coming, now)? {
            return Ok(());
        }
        // A segment begins where the one before ends, so that recovery can tell when something is missing between them.
        // Only a jump in a leader's offsets that no index entry can express makes an exception.
        let end = self.ruler.log_end;
        let spans = coming.last_offset.since(end) <= i64::from(i32::MAX);
        self.roll(if spans { end } else { coming.first_offset }, now)
    }

    fn must_roll(&mut self, coming: &Coming, now: TimestampMs) -> io::Result<bool> {
        let segment = self.active().clone();
        let size = segment.size();
        if !segment.spans(coming.last_offset)
            || size + coming.size as u64 > u64::from(self.config.segment_bytes)
            || segment.offset_index.is_full(self.config.segment_index_bytes)?
            || segment.time_index.is_full(self.config.segment_index_bytes)?
        {
            // It would not help to replace an empty segment by its like.
            return Ok(size > 0 || !segment.spans(coming.last_offset));
        }
        Ok(size > 0 && self.age_at(&segment, coming.max_timestamp, now)? > self.roll_after_ms(&segment))
    }

    /// How old the segment is when a batch with the timestamp comes: by the timestamps of records if they have some, by the
    /// clock otherwise.
    fn age_at(&mut self, segment: &Segment, timestamp: TimestampMs, now: TimestampMs) -> io::Result<i64> {
        let first = match self.active.first_timestamp {
            Some(first) => first,
            None => {
                let file = segment.log_file().get()?;
                let first = match header_at(&*file, 0, segment.size()) {
                    Ok(None) => return Ok(0),
                    Ok(Some(header)) => header.max_timestamp,
                    // It is damaged, which is for readers to find.
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => TimestampMs::NONE,
                    Err(error) => return Err(error),
                };
                *self.active.first_timestamp.insert(first)
            }
        };
        let (from, to) =
            if first > TimestampMs::NONE { (first, timestamp) } else { (self.active.created, now) };
        Ok(to.0.saturating_sub(from.0))
    }

    fn roll_after_ms(&self, segment: &Segment) -> i64 {
        // Segments of one log should differ, and so should logs: their directories' names tell them apart.
        let dir = self.place.dir();
        let seed =
            u64::from(crc32c::crc32c(dir.as_os_str().as_encoded_bytes())) << 32 ^ segment.base().0 as u64;
        self.config.roll_after_ms(seed)
    }

    /// Seals the active segment and starts one at `base`.
    pub(super) fn roll(&mut self, base: Offset, now: TimestampMs) -> io::Result<()> {
        self.active().seal()?;
        self.producers.advance_end(base);
        self.snapshots.take(&self.place, &self.producers)?;
        self.dir_changes.note();
        let segment = match Segment::create(self.place.clone(), base) {
            Ok(segment) => segment,
            Err(error) => {
                self.undo_roll(base);
                return Err(error);
            }
        };
        self.touched = true;
        let mut segments = self.segments.to_vec();
        segments.retain(|old| old.base() < base);
        segments.push(Arc::new(segment));
        self.segments = segments.into();
        self.active = Active::new(now);
        Ok(())
    }

    /// Removes what was made of a new segment. Batches may still go to the old one, and would lie behind the new one's base: a
    /// file of that name must not be there at the next start.
    fn undo_roll(&mut self, base: Offset) {
        let kinds = [Kind::Log, Kind::OffsetIndex, Kind::TimeIndex];
        let removed =
            kinds.iter().try_for_each(|kind| self.place.remove(FileName::live(base, *kind)).map(drop));
        if let Err(error) = removed {
            self.poison(&format!("undo a roll: {error}"));
        }
    }
}
