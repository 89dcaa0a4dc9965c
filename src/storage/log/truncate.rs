//! Cutting a log: at its end (a follower drops what its leader does not have), at its start (records were deleted), or whole
//! (a follower starts over).
//!
//! Invariants: what is cut is unreachable through views before its files go, and no checkpoint speaks of it then; a cut renames
//! files, and somebody else removes them.

use std::io;
use std::sync::Arc;

use super::lazy_file::Place;
use super::names::{FileName, Kind, Stage};
use super::producer_state::ProducerState;
use super::segment::Segment;
use super::sight::{CutPoint, Headers};
use super::snapshots::Replay;
use super::time_index::TimestampOffset;
use super::view::segment_of;
use super::{Active, Log, LogError, Ruler};
use crate::storage::checkpoint::{Lowered, OffsetFiles};
use crate::storage::disk::{self, OpenMode};
use crate::types::{Offset, TimestampMs, TopicPartition};

/// Segments that are no longer part of their log. Their files have the suffix `.deleted` and go when `remove` runs, which
/// may take a while: readers that hold an older view get to finish.
#[derive(Debug)]
#[must_use = "the files stay until the next start"]
pub struct Doomed {
    place: Arc<Place>,
    bases: Vec<Offset>,
}

impl Doomed {
    pub(super) fn new(place: Arc<Place>, bases: Vec<Offset>) -> Doomed {
        Doomed { place, bases }
    }

    /// How many segments those are.
    pub fn count(&self) -> usize {
        self.bases.len()
    }

    pub(super) fn into_bases(self) -> Vec<Offset> {
        self.bases
    }

    /// Removes the files.
    pub fn remove(&self) -> io::Result<()> {
        for &base in &self.bases {
            for kind in Kind::ALL {
                self.place.remove(FileName::live(base, kind).at(Stage::Deleted))?;
            }
        }
        Ok(())
    }
}

impl Log {
    /// Drops the records from `offset` on. `true` when there were some.
    pub fn truncate_to(&mut self, offset: Offset, now: TimestampMs) -> Result<bool, LogError> {
        self.check_in_service()?;
        let end = self.ruler.log_end;
        if offset >= end {
            // A leader that never wrote has noted an epoch at the end that its successor may contradict.
            self.epoch_changes.note_if(self.epochs.truncate_from_end(end));
            self.publish();
            return Ok(false);
        }
        if offset < self.segments[0].base() {
            self.truncate_fully_and_start_at(offset, now)?;
            return Ok(true);
        }
        let checkpoints = self.checkpoints.clone();
        let _lowered = self.lower(checkpoints.as_ref(), offset)?;
        let cut = self.cut_end(offset, now);
        self.or_poison("truncate", cut)?;
        self.publish();
        Ok(true)
    }

    /// Before a cut: after a crash, what the checkpoints say of what goes would be taken to hold of what comes in its place. They do
    /// not rise again before the views have fallen.
    fn lower<'a>(
        &mut self,
        checkpoints: Option<&'a (Arc<OffsetFiles>, TopicPartition)>,
        to: Offset,
    ) -> Result<Option<Lowered<'a>>, LogError> {
        let lowered = checkpoints.map(|(files, name)| files.lower(name, to)).transpose();
        self.or_poison("lower the checkpoints", lowered)
    }

    fn cut_end(&mut self, offset: Offset, now: TimestampMs) -> io::Result<()> {
        self.note_truncation(self.truncations + 1);
        self.touched = true;
        self.tail.clear();
        let keep = segment_of(&self.segments, offset);
        let last = self.segments[keep].clone();
        let doomed = self.segments[keep + 1..].to_vec();
        let end = doomed.first().map_or(self.ruler.log_end, |next| next.base());
        self.segments = self.segments[..=keep].into();
        let CutPoint { position, is_behind_damage } = CutPoint::of(&last, offset, end)?;
        self.epoch_changes.note_if(self.epochs.truncate_from_end(offset));
        let Ruler { log_start, high_watermark, flushed, .. } = self.ruler;
        self.draw(Ruler {
            log_start: log_start.min(offset),
            high_watermark: high_watermark.min(offset),
            flushed: flushed.min(offset),
            log_end: offset,
        });
        self.take_out(&doomed)?;
        last.truncate(offset, position)?;
        self.forget_producers(offset, now)?;
        self.cut_changes.note();
        find_max_timestamp(&last, offset)?;
        self.active = Active::new(now);
        if is_behind_damage {
            // What comes now is found, whatever the bytes before it say of themselves.
            match self.roll(offset, now) {
                Err(error) if !disk::is_full(&error) => return Err(error),
                _ => {}
            }
        }
        self.note_emptied()
    }

    /// Sees to it that a log without records that had some is told from one to which nothing was ever written: the next start
    /// has to make the cut durable. What it is told by need not be, for after a crash that takes it the cut may be gone as well.
    fn note_emptied(&self) -> io::Result<()> {
        let [segment] = &self.segments[..] else { return Ok(()) };
        if segment.size() > 0 {
            return Ok(());
        }
        match self.place.open(FileName::live(segment.base(), Kind::TxnIndex), OpenMode::Create) {
            Err(error) if !disk::is_full(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes the producers back to where they were at `offset`, the new end of the log.
    fn forget_producers(&mut self, offset: Offset, now: TimestampMs) -> io::Result<()> {
        // A snapshot of what was cut must not come back after a crash and be taken for one of what follows.
        if self.snapshots.retain(&self.place, |at| at <= offset)? {
            self.place.sync()?;
        }
        // Who knew nobody then knows nobody now.
        let rebuilt = if self.producers.is_empty() {
            ProducerState::new(offset)
        } else {
            let replay = Replay {
                place: &self.place,
                config: &self.config,
                segments: &self.segments,
                log_start: self.ruler.log_start,
                log_end: offset,
            };
            // What ended at or above the high watermark is not stable yet, which snapshots do not say.
            self.snapshots.rebuild(&replay, offset.min(self.ruler.high_watermark), now)?
        };
        self.producers.become_state(rebuilt);
        self.producers.on_high_watermark(self.ruler.high_watermark);
        Ok(())
    }

    /// Drops everything; the next record gets the offset `start`.
    pub fn truncate_fully_and_start_at(&mut self, start: Offset, now: TimestampMs) -> Result<(), LogError> {
        self.check_in_service()?;
        let checkpoints = self.checkpoints.clone();
        let _lowered = self.lower(checkpoints.as_ref(), start)?;
        self.note_truncation(self.truncations + 1);
        self.touched = true;
        self.tail.clear();
        self.epoch_changes.note_if(self.epochs.truncate_from_end(Offset::ZERO));
        let started = self.start_over(start, now);
        self.or_poison("truncate", started)?;
        self.draw(Ruler { log_start: start, high_watermark: start, flushed: start, log_end: start });
        Ok(())
    }

    fn start_over(&mut self, start: Offset, now: TimestampMs) -> io::Result<()> {
        let doomed = self.segments.to_vec();
        self.take_out(&doomed)?;
        self.snapshots.retain(&self.place, |_| false)?;
        self.producers.become_state(ProducerState::new(start));
        self.segments = [Arc::new(Segment::create(self.place.clone(), start)?)].into();
        self.dir_changes.note();
        self.active = Active::new(now);
        self.note_emptied()
    }

    /// Moves the start of the log, at most to the high watermark. Segments that lie before it stay until
    /// `delete_before_start`.
    pub fn advance_log_start(&mut self, to: Offset) -> Result<(), LogError> {
        self.check_in_service()?;
        let Ruler { log_start, high_watermark, .. } = self.ruler;
        if to > high_watermark {
            return Err(LogError::OutOfRange { offset: to, from: log_start, to: high_watermark });
        }
        if to > log_start {
            self.epoch_changes.note_if(self.epochs.truncate_from_start(to));
            self.producers.on_log_start(to);
            self.draw(Ruler { log_start: to, ..self.ruler });
        }
        Ok(())
    }

    /// Takes the segments that end at or before the log's start out of the log, the oldest `at_most`.
    pub fn delete_before_start(&mut self, at_most: usize) -> Result<Option<Doomed>, LogError> {
        self.check_in_service()?;
        // A segment ends where the next begins; the active one stays.
        let count = self.segments[1..].partition_point(|next| next.base() <= self.ruler.log_start);
        let count = count.min(at_most);
        if count == 0 {
            return Ok(None);
        }
        let old: Vec<Arc<Segment>> = self.segments[..count].to_vec();
        self.segments = self.segments[count..].into();
        self.publish();
        let marked = old.iter().try_for_each(|segment| segment.mark_deleted());
        self.or_poison("delete", marked)?;
        self.snapshots.forget_before(self.segments[0].base());
        let bases = old.iter().map(|segment| segment.base()).collect();
        Ok(Some(Doomed::new(self.place.clone(), bases)))
    }

    /// The segments that cuts have taken out since it was asked last.
    pub fn take_doomed(&mut self) -> Option<Doomed> {
        let bases = std::mem::take(&mut self.cut_off);
        (!bases.is_empty()).then(|| Doomed::new(self.place.clone(), bases))
    }

    /// Gives the files of segments other names, from the newest to the oldest, so that a crash leaves no gap. To remove large ones
    /// takes longer than those who append should wait.
    fn take_out(&mut self, doomed: &[Arc<Segment>]) -> io::Result<()> {
        for segment in doomed.iter().rev() {
            segment.mark_cut()?;
            self.cut_off.push(segment.base());
        }
        if !doomed.is_empty() {
            self.place.sync()?;
        }
        Ok(())
    }
}

/// Looks up the largest timestamp of a segment that was cut: its time index no longer ends with that.
fn find_max_timestamp(segment: &Segment, end: Offset) -> io::Result<()> {
    segment.forget_max_timestamp();
    let mut max = segment.max_timestamp()?;
    let mut walk = Headers::before(segment, max.offset, segment.base()..end)?;
    while let Some((_, header)) = walk.advance()? {
        if header.newest_timestamp() > max.timestamp {
            max = TimestampOffset { timestamp: header.newest_timestamp(), offset: header.last_offset() };
        }
    }
    segment.set_max_timestamp(max);
    Ok(())
}
