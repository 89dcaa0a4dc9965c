//! Putting right what is damaged on disk by what another replica has in its place, so that nothing is cut and no offset changes.
//! Must not know how the bytes are got, nor whose they are.
//!
//! Invariant: a batch is written only where it is what was there. Either the bytes before the part that the checksum covers, with
//! the checksum among them and but for the leader epoch, are as they are here: then it is the batch that they speak of. Or nothing is
//! left to compare, and it is told by its place: it begins where the batch before it ended, the next sound one begins where it ends,
//! in offsets as in bytes, and nothing of it was compacted away, there or here. In both cases it is whole and sound, committed, and
//! of the epoch that the log knows there. What does not fit so is not written.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use super::damage::{EpochWatch, check_offsets};
use super::flush::Changes;
use super::segment::Segment;
use super::sight::Sight;
use super::view::LogView;
use super::{Log, LogError};
use crate::fault::{self, Fault};
use crate::types::Offset;
use crate::wire::batch::{BatchHeader, Batches, CRC_FROM, HEADER_LEN, LEADER_EPOCH_AT, PartialTail};

/// How far a damaged segment has been looked at.
#[derive(Clone, Debug)]
pub struct Progress {
    segment: Arc<Segment>,
    truncations: u32,
    /// Where damage was known when the look began.
    known: Vec<u64>,
    at: Point,
    /// Some of what was looked at is not what was written.
    has_wounds: bool,
}

/// Where a batch begins, or should.
#[derive(Clone, Copy, Debug)]
struct Point {
    position: u64,
    /// The offset after the batch before it.
    next: Offset,
    /// Nothing was compacted away of what was sound so far.
    is_whole: bool,
}

/// What has come of a look at a segment.
#[derive(Clone, Debug)]
pub enum Looked {
    /// It is not part of the log any more.
    Gone,
    /// The log was cut meanwhile.
    Cut,
    /// It has been looked at to its end.
    Done(Progress),
    Wound(Wound),
}

/// A place where a log is not what was written.
#[derive(Clone, Debug)]
pub struct Wound {
    progress: Progress,
    /// Where it says itself that it begins, if that is later than the batch before it ended.
    says: Option<Offset>,
    /// Where, at the latest, it is again.
    beyond: Point,
}

/// What is to be written there.
#[derive(Clone, Debug)]
pub struct Patch {
    segment: Arc<Segment>,
    truncations: u32,
    position: u64,
    bytes: Bytes,
    /// The offset after it.
    next: Offset,
    /// Some of it is told by its place.
    is_by_place: bool,
    is_whole: bool,
}

/// Why what another replica has is not written here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unfit {
    #[error("there is nothing")]
    Nothing,
    /// The first `len` bytes fit, and more are needed, from `next` on.
    #[error("more of it is damaged than fits into memory")]
    Short { next: Offset, len: usize },
    #[error("it is damaged there too")]
    Damaged,
    #[error("it is not known to be committed here")]
    Uncommitted,
    #[error("it is of another leader epoch")]
    Epoch,
    #[error("it is not told for certain what was here, for logs differ where they are compacted")]
    Other,
    #[error("the log was cut meanwhile")]
    Gone,
}

impl Unfit {
    /// It is sound there.
    pub fn is_sound(self) -> bool {
        !matches!(self, Unfit::Nothing | Unfit::Damaged | Unfit::Gone)
    }
}

impl Progress {
    /// The offset after what was looked at.
    pub fn next(&self) -> Offset {
        self.at.next
    }

    /// Forgets what was known of damage, if nothing is damaged.
    pub fn forget_damage(&self) {
        if !self.has_wounds {
            self.segment.forget_damages(&self.known);
        }
    }
}

impl Wound {
    /// From this offset on records are wanted.
    pub fn from(&self) -> Offset {
        self.progress.at.next
    }

    /// Or from this one on: what lies before may have been compacted away here, and not elsewhere.
    pub fn says(&self) -> Option<Offset> {
        self.says
    }

    /// Goes on behind what was written here.
    pub fn mended(self, patch: &Patch) -> Progress {
        let position = patch.position + patch.bytes.len() as u64;
        let at = Point { position, next: patch.next, is_whole: patch.is_whole };
        Progress { at, ..self.progress }
    }

    /// Goes on behind it, and leaves it as it is.
    pub fn left(self) -> Progress {
        Progress { at: self.beyond, has_wounds: true, ..self.progress }
    }
}

impl LogView {
    /// The next segment that is known to be damaged, behind the one that was looked at before.
    pub fn next_damaged(&self, after: Option<&Progress>) -> Option<Progress> {
        let is_next = |segment: &&Arc<Segment>| {
            let is_later = after.is_none_or(|after| segment.base() > after.segment.base());
            is_later && self.end_of(segment) > self.log_start && !segment.damages().is_empty()
        };
        let segment = self.segments.iter().find(is_next)?;
        Some(Progress {
            segment: segment.clone(),
            truncations: self.truncations,
            known: segment.damages(),
            at: Point { position: 0, next: segment.base(), is_whole: true },
            has_wounds: false,
        })
    }

    /// Goes on looking at a segment. Blocks on the disk.
    pub fn look(&self, from: Progress) -> io::Result<Looked> {
        if let Some(gone) = self.is_gone(&from) {
            return Ok(gone);
        }
        let mut progress = from;
        let (size, end) = (self.size_of(&progress.segment), self.end_of(&progress.segment));
        let mut sight = Sight::of(&progress.segment)?;
        let mut before = progress.at;
        let mut epochs = EpochWatch::new(&self.epochs);
        while progress.at.position < size {
            let at = progress.at;
            let header = sight.sound_at(at.position, size)?;
            let lies = header.filter(|header| check_offsets(header, at.next..end).is_ok());
            if let Some(header) = lies {
                let next = at.behind(&header);
                let behind = || sight.sound_at(next.position, size).ok().flatten();
                if epochs.check(&header, behind).is_ok() {
                    before = at;
                    progress.at = next;
                    continue;
                }
            }
            // Of two whose offsets contradict each other it may be the first that is wrong.
            progress.at = if header.is_some() && lies.is_none() { before } else { at };
            let beyond = self.beyond(&mut sight, &progress, at.position, (size, end))?;
            let says = BatchHeader::parse(sight.bytes(progress.at.position, HEADER_LEN)?);
            let says = says.map(|header| header.base_offset).ok();
            let says = says.filter(|says| (progress.at.next.plus(1)..end).contains(says));
            let wound = Wound { progress, says, beyond };
            if beyond.next > self.log_start {
                return Ok(Looked::Wound(wound));
            }
            // Nobody has these records any more.
            progress = wound.left();
            before = beyond;
        }
        Ok(Looked::Done(progress))
    }

    /// What of `records`, which another replica has from where the wound begins on, is to take its place. Blocks on the disk.
    pub fn patch(&self, wound: &Wound, records: &Bytes) -> io::Result<Result<Patch, Unfit>> {
        let Progress { segment, truncations, at, .. } = &wound.progress;
        if self.is_gone(&wound.progress).is_some() {
            return Ok(Err(Unfit::Gone));
        }
        let (size, end) = (self.size_of(segment), self.end_of(segment));
        let mut sight = Sight::of(segment)?;
        let mut to = Patch {
            segment: segment.clone(),
            truncations: *truncations,
            position: at.position,
            bytes: Bytes::new(),
            next: at.next,
            is_by_place: false,
            is_whole: at.is_whole,
        };
        for batch in Batches::new(records, PartialTail::Ignore) {
            let header = match batch.map(|batch| (batch.check_crc(), batch.header)) {
                Ok((Ok(()), header)) if header.check_ranges().is_ok() => header,
                _ => return Ok(Err(Unfit::Damaged)),
            };
            if let Err(unfit) = self.check_fit(&header, to.next..end) {
                return Ok(Err(unfit));
            }
            let position = to.position + to.bytes.len() as u64;
            let len = header.size_in_bytes();
            let Some(bytes) = records.get(to.bytes.len()..to.bytes.len() + len) else { break };
            let is_same = is_same_batch(sight.bytes(position, CRC_FROM)?, bytes);
            to.is_whole &= header.base_offset == to.next && is_as_appended(&header);
            to.is_by_place |= !is_same;
            if position + len as u64 > size || (to.is_by_place && !to.is_whole) {
                return Ok(Err(Unfit::Other));
            }
            to.bytes = records.slice(..to.bytes.len() + len);
            to.next = header.next_offset();
            match self.continues(&mut sight, &to, (size, end))? {
                Some(true) => return Ok(Ok(to)),
                Some(false) => return Ok(Err(Unfit::Other)),
                None => {}
            }
        }
        let (next, len) = (to.next, to.bytes.len());
        Ok(Err(if len == 0 { Unfit::Nothing } else { Unfit::Short { next, len } }))
    }

    fn check_fit(&self, header: &BatchHeader, within: std::ops::Range<Offset>) -> Result<(), Unfit> {
        let epoch_of = |offset| self.epochs.epoch_of(offset);
        if header.last_offset() >= self.high_watermark {
            return Err(Unfit::Uncommitted);
        }
        if check_offsets(header, within).is_err() {
            return Err(Unfit::Other);
        }
        // What began an epoch below the log's start is not known any more.
        let is_known = [header.base_offset.max(self.log_start), header.last_offset()]
            .into_iter()
            .all(|offset| epoch_of(offset) == Some(header.leader_epoch));
        if is_known { Ok(()) } else { Err(Unfit::Epoch) }
    }

    /// Whether the log is as it should be behind a patch; `None`: it is still damaged there.
    fn continues(
        &self,
        sight: &mut Sight,
        to: &Patch,
        (size, end): (u64, Offset),
    ) -> io::Result<Option<bool>> {
        let position = to.position + to.bytes.len() as u64;
        if position == size {
            return Ok(Some(!to.is_by_place || to.next == end));
        }
        let header = sight.sound_at(position, size)?;
        let follows = header.filter(|header| check_offsets(header, to.next..end).is_ok());
        Ok(follows
            .map(|header| !to.is_by_place || (header.base_offset == to.next && is_as_appended(&header))))
    }

    /// Where the log is sound again behind a place where it is not, as far as the index tells; else the segment's end.
    fn beyond(
        &self,
        sight: &mut Sight,
        wound: &Progress,
        mut position: u64,
        (size, end): (u64, Offset),
    ) -> io::Result<Point> {
        // An index that cannot be read leads nowhere.
        while let Ok(Some(entry)) = wound.segment.offset_index.behind(position) {
            position = u64::from(entry.position);
            if let Some(header) = sight.sound_at(position, size)?
                && header.last_offset() == entry.offset
                && check_offsets(&header, wound.at.next..end).is_ok()
            {
                return Ok(Point { position, next: header.base_offset, ..wound.at });
            }
        }
        Ok(Point { position: size, next: end, ..wound.at })
    }

    fn is_gone(&self, at: &Progress) -> Option<Looked> {
        if !self.segments.iter().any(|segment| Arc::ptr_eq(segment, &at.segment)) {
            return Some(Looked::Gone);
        }
        (self.truncations != at.truncations).then_some(Looked::Cut)
    }
}

impl Point {
    fn behind(self, header: &BatchHeader) -> Point {
        Point {
            position: self.position + header.size_in_bytes() as u64,
            next: header.next_offset(),
            is_whole: self.is_whole && header.base_offset == self.next && is_as_appended(header),
        }
    }
}

/// Whether what is left of a header tells that it is this batch's. Of which epoch it is, the log knows.
fn is_same_batch(left: &[u8], batch: &[u8]) -> bool {
    let told_by = [0..LEADER_EPOCH_AT, LEADER_EPOCH_AT + 4..CRC_FROM];
    left.len() == CRC_FROM && told_by.into_iter().all(|part| left[part.clone()] == batch[part])
}

/// A batch that compaction has been at may lack records, or say when they may go.
fn is_as_appended(header: &BatchHeader) -> bool {
    header.record_count.checked_sub(1) == Some(header.last_offset_delta) && header.delete_horizon().is_none()
}

/// The segments of which something was written anew and not synced.
#[derive(Debug, Default)]
pub(super) struct Mended {
    pub segments: Vec<Arc<Segment>>,
    pub changes: Changes,
}

impl Log {
    /// Writes what another replica has over what is damaged, if the log is as it was.
    pub fn mend(&mut self, patch: &Patch) -> Result<Result<(), Unfit>, LogError> {
        self.check_in_service()?;
        let is_there = self.truncations == patch.truncations
            && self.segments.iter().any(|segment| Arc::ptr_eq(segment, &patch.segment));
        if !is_there {
            return Ok(Err(Unfit::Gone));
        }
        if patch.is_by_place && self.config.compact {
            return Ok(Err(Unfit::Other));
        }
        // Also what is written in part is to be synced.
        if !self.mended.segments.iter().any(|segment| Arc::ptr_eq(segment, &patch.segment)) {
            self.mended.segments.push(patch.segment.clone());
        }
        self.mended.changes.note();
        if fault::is_active(Fault::ForgetsToMend) {
            return Ok(Ok(()));
        }
        match patch.segment.overwrite(patch.position, &patch.bytes) {
            // Somebody has taken it away.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Err(Unfit::Gone)),
            written => self.or_full("mend", written).map(Ok),
        }
    }

    /// What was put right is to be synced.
    pub fn has_unsynced_mends(&self) -> bool {
        self.mended.changes.pending()
    }
}

#[cfg(test)]
pub(super) mod tests;
