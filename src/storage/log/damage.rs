//! A batch on disk that is not what was written: who finds one, what is remembered of it, and how it is cut out. Must not know
//! replicas: whether what is cut can be had from others is for those to say who call.
//!
//! Invariant: what is remembered was found in a segment that is part of the log, by somebody who read it as it is.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::mend::small_sound_at;
use super::segment::Segment;
use super::{Log, LogError};
use crate::types::{Offset, TimestampMs};
use crate::wire::batch::{BatchError, BatchHeader, HEADER_LEN, is_legacy_message, magic_and_size};

/// What a reader has found. It travels as the inner error of an [`io::Error`].
#[derive(Clone, Debug)]
pub struct Damage {
    segment: Arc<Segment>,
    position: u64,
    why: BatchError,
    /// How often the log had been cut when the reader's view was published.
    truncations: u32,
}

impl Damage {
    pub(super) fn new(segment: &Arc<Segment>, position: u64, why: BatchError, truncations: u32) -> Damage {
        Damage { segment: segment.clone(), position, why, truncations }
    }

    /// The damage that a read has failed of, if that is why.
    pub fn of(error: &io::Error) -> Option<&Damage> {
        error.get_ref()?.downcast_ref()
    }

    /// Whether it is a whole message of a format that is no longer written.
    pub(super) fn is_legacy_message(&self) -> bool {
        matches!(self.why, BatchError::LegacyMagic(_))
            && self.message().is_ok_and(|message| is_legacy_message(&message))
    }

    /// As many bytes as it says that it has, if there are so many.
    fn message(&self) -> io::Result<Vec<u8>> {
        let file = self.segment.log_file().get()?;
        let size = match magic_and_size(&file.read_vec(HEADER_LEN, self.position)?) {
            Ok((_, size)) if self.position + size as u64 <= self.segment.size() => size,
            _ => 0,
        };
        file.read_vec(size, self.position)
    }

    /// Whether a sound batch is there by now. Reads only what somebody has written anew.
    fn is_mended(&self) -> bool {
        if !self.segment.was_mended() {
            return false;
        }
        let Ok(Some(header)) = small_sound_at(&self.segment, self.position) else { return false };
        // The checksum does not cover the base offset.
        let BatchHeader { base_offset, last_offset_delta, .. } = header;
        self.why != BatchError::OffsetRange { base_offset, last_offset_delta }
    }

    /// Whether the log's writer has taken it down.
    pub fn is_known(&self) -> bool {
        self.segment.damages().contains(&self.position)
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: {}", self.segment.log_file().path().display(), self.position, self.why)
    }
}

impl std::error::Error for Damage {}

impl From<Damage> for io::Error {
    fn from(damage: Damage) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, damage)
    }
}

/// Checks that a batch lies where it can: the checksum does not cover its base offset.
pub(super) fn check_offsets(header: &BatchHeader, within: Range<Offset>) -> Result<(), BatchError> {
    let (base_offset, last_offset_delta) = (header.base_offset, header.last_offset_delta);
    let is_within =
        within.start <= base_offset && last_offset_delta >= 0 && header.last_offset() < within.end;
    if is_within { Ok(()) } else { Err(BatchError::OffsetRange { base_offset, last_offset_delta }) }
}

impl Log {
    /// Takes down damage that a reader has found, if it is still there. `false`: it is not, or was known.
    pub fn note_damage(&self, damage: &Damage) -> bool {
        let is_there = self.truncations == damage.truncations
            && self.segments.iter().any(|segment| Arc::ptr_eq(segment, &damage.segment));
        is_there
            && damage.segment.takes_damage(damage.position)
            && !damage.is_mended()
            && damage.segment.note_damage(damage.position)
    }

    /// Whether there is damage that is known.
    pub fn is_damaged(&self) -> bool {
        self.segments.iter().any(|segment| !segment.damages().is_empty())
    }

    /// Drops what lies from the first segment with damage on; everything when none is known, for somebody knew of some. Whoever
    /// calls this has to have the records again from another replica.
    pub fn drop_damaged(&mut self, now: TimestampMs) -> Result<(), LogError> {
        let start = self.log_start();
        let damaged = self.segments.iter().find(|segment| !segment.damages().is_empty());
        match damaged.map(|segment| segment.base()).filter(|base| *base > start) {
            Some(base) => self.truncate_to(base, now).map(drop),
            None => self.truncate_fully_and_start_at(start, now),
        }
    }
}

#[cfg(test)]
mod tests;
