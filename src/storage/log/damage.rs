//! A batch on disk that is not what was written: who finds one, what is remembered of it, and how it is cut out. Must not know
//! replicas: whether what is cut can be had from others is for those to say who call.
//!
//! Invariant: what is remembered was found in a segment that is part of the log, by somebody who read it as it is.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::epoch_cache::EpochCache;
use super::names::DAMAGED;
use super::read::header_at;
use super::segment::Segment;
use super::sight::small_sound_at;
use super::view::LogView;
use super::{Log, LogError};
use crate::storage::disk::{self, OpenMode};
use crate::types::{LeaderEpoch, Offset, TimestampMs};
use crate::wire::batch::{Batch, BatchError, BatchHeader, HEADER_LEN, is_legacy_message, magic_and_size};

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
        // The checksum does not cover the base offset, nor the epoch.
        let BatchHeader { base_offset, last_offset_delta, leader_epoch, .. } = header;
        match self.why {
            BatchError::LeaderEpoch { found, .. } => found != leader_epoch,
            why => why != BatchError::OffsetRange { base_offset, last_offset_delta },
        }
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

/// Looks at the leader epochs of batches that follow each other: the checksum does not cover those either.
///
/// One that the log does not know there is not what was written, provided that its neighbours are known: where several are not, it is
/// rather the log that knows too little, and what is there was written so.
#[derive(Debug)]
pub(super) struct EpochWatch<'a> {
    epochs: &'a EpochCache,
    /// Whether the batch before is known; `None` when none was seen.
    before: Option<bool>,
}

impl EpochWatch<'_> {
    pub fn new(epochs: &EpochCache) -> EpochWatch<'_> {
        EpochWatch { epochs, before: None }
    }

    /// The same behind a batch.
    pub fn behind<'a>(epochs: &'a EpochCache, before: Option<&BatchHeader>) -> EpochWatch<'a> {
        let watch = EpochWatch::new(epochs);
        let before = before.map(|before| watch.contradiction(before).is_none());
        EpochWatch { epochs, before }
    }

    /// Checks the next batch; `behind` gives the one behind it, if there is one.
    pub fn check(
        &mut self,
        header: &BatchHeader,
        behind: impl FnOnce() -> Option<BatchHeader>,
    ) -> Result<(), BatchError> {
        let Some(why) = self.contradiction(header) else {
            self.before = Some(true);
            return Ok(());
        };
        let neighbours = match self.before {
            Some(false) => [Some(false), None],
            before => [before, behind().map(|behind| self.contradiction(&behind).is_none())],
        };
        if neighbours.contains(&Some(true)) && !neighbours.contains(&Some(false)) {
            return Err(why);
        }
        self.before = Some(false);
        Ok(())
    }

    fn contradiction(&self, header: &BatchHeader) -> Option<BatchError> {
        let found = header.leader_epoch;
        let known = self.epochs.epoch_of(header.base_offset)?;
        (found != LeaderEpoch::UNKNOWN && found != known).then_some(BatchError::LeaderEpoch { found, known })
    }
}

/// What holds of the batches of a segment in a row, beyond what their checksums say.
#[derive(Debug)]
pub(super) struct Sequence<'a> {
    segment: &'a Segment,
    within: Range<Offset>,
    epochs: EpochWatch<'a>,
}

impl<'a> Sequence<'a> {
    /// Of a segment of this view.
    pub fn of(segment: &'a Segment, view: &'a LogView) -> Sequence<'a> {
        let within = segment.base()..view.end_of(segment);
        Sequence { segment, within, epochs: EpochWatch::new(&view.epochs) }
    }

    /// Whether the batch is what was written, as far as can be told.
    pub fn check(&mut self, position: u64, batch: &Batch<'_>) -> Result<(), BatchError> {
        let header = &batch.header;
        batch.check_crc()?;
        header.check_ranges()?;
        check_offsets(header, self.within.clone())?;
        let behind = || {
            let next = position + batch.bytes.len() as u64;
            header_at(&*self.segment.log_file().get().ok()?, next, self.segment.size()).ok()?
        };
        self.epochs.check(header, behind)?;
        self.within.start = header.next_offset();
        Ok(())
    }
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

    /// Whether an earlier process has known of damage, and has not put it right.
    pub fn is_suspect(&self) -> bool {
        self.is_suspect
    }

    /// Drops what lies from the first segment with damage on; everything when none is known, for somebody knew of some. Whoever
    /// calls this has to have the records again from another replica.
    pub fn drop_damaged(&mut self, now: TimestampMs) -> Result<(), LogError> {
        let start = self.log_start();
        let damaged = self.segments.iter().find(|segment| !segment.damages().is_empty());
        // Where an earlier process has found some, this one may not have looked.
        let first = damaged.map(|segment| segment.base()).filter(|base| *base > start && !self.is_suspect);
        match first {
            Some(base) => self.truncate_to(base, now).map(drop)?,
            None => self.truncate_fully_and_start_at(start, now)?,
        }
        self.note_whole()
    }

    /// Whatever was known of damage is not there any more.
    pub fn note_whole(&mut self) -> Result<(), LogError> {
        self.check_in_service()?;
        let cleared = self.view().clear_mark();
        self.or_full("note that it is whole", cleared)?;
        self.is_suspect = false;
        Ok(())
    }
}

impl LogView {
    /// Has whoever opens the log next know that some of it is not what was written. Durable when it returns.
    pub fn mark_damaged(&self) -> io::Result<()> {
        let place = self.segments[0].place();
        place.within(|dir| place.disk.open(&dir.join(DAMAGED), OpenMode::Create).map(drop))?;
        place.sync()
    }

    /// The opposite.
    pub fn clear_mark(&self) -> io::Result<()> {
        let place = self.segments[0].place();
        if place.within(|dir| disk::remove_if_exists(&*place.disk, &dir.join(DAMAGED)))? {
            place.sync()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod copying;
#[cfg(test)]
mod tests;
