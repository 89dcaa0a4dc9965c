//! A copy of a log in another directory, which follows it and takes its place in the end: how a partition moves while it
//! serves. Must not know who reads or writes the log meanwhile, or which thread does what.
//!
//! A copy is brought up to a *view* of the log, over and over, by whoever has the time. The last step is the writer's: with the
//! log itself at hand, so that nothing comes in between, the copy gets the rest and becomes durable, the log gives up its name
//! and the copy takes it, and the copy answers to the same views.
//!
//! Invariants: below its end a copy holds what the log holds, or is cut before anything is added; a log is succeeded only by a
//! copy that ends where it ends, and all of which is on disk. Nothing is appended to the heir before the log's name is gone for
//! good: so a directory that has the name of the partition has all that was ever acknowledged, whatever else is lost.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use super::append::AppendError;
use super::read::HeaderWalk;
use super::sight::CutPoint;
use super::truncate::Doomed;
use super::view::{LogView, ReadError, ReadPlan, segment_of};
use super::{Log, LogError, Ruler};
use crate::storage::disk;
use crate::types::{LeaderEpoch, Offset, TimestampMs};

/// So many segments of a copy are deleted in one go.
const SEGMENTS_AT_A_TIME: usize = 64;
/// So much is copied at once in the last step.
const CHUNK: usize = 1 << 20;

/// What bringing a copy up to date has done.
#[derive(Debug, Default)]
pub struct Advanced {
    /// The bytes that were added.
    pub bytes: usize,
    /// Nothing was added, and that does not mean that nothing is left: the log was cut under the reader, or the copy was not
    /// made of it as it is now and began anew.
    pub is_void: bool,
}

/// Why a copy could not be brought up to date.
#[derive(Debug, Error)]
pub enum CopyError {
    #[error("the log cannot be read: {0}")]
    Source(io::Error),
    /// What was read is no batch, or does not follow the copy: the log may have been cut under the reader.
    #[error("what was read cannot be appended: {0}")]
    Batch(AppendError),
    #[error("the copy: {0}")]
    Copy(#[from] LogError),
}

/// Why a copy did not take the place of its log.
#[derive(Debug, Error)]
pub enum SuccessionError {
    /// The log is as it was, and has its name.
    #[error("the copy: {0}")]
    Copy(LogError),
    /// The same: there is no room for a longer name.
    #[error("the log's directory: {0}")]
    NoRoom(io::Error),
    /// Nobody knows which name the log has.
    #[error("the log's directory: {0}")]
    Source(io::Error),
    /// The log has given up its name, and nobody knows whether the copy has it. So the log must not take it again: the copy, which has
    /// nothing of what would be appended then, could be found under it as well.
    #[error("the copy has its log's name, or not: {0}")]
    Between(LogError),
}

/// Why a copy has not got a name.
enum NotNamed {
    /// It has the one that it had.
    Kept(LogError),
    Unknown(LogError),
}

impl Log {
    /// A log that nobody reads: nothing of it is kept in memory, and its producers are those of another that count.
    #[must_use]
    pub fn into_copy(mut self) -> Log {
        self.tail.set_idle(true);
        self.producers = std::mem::take(&mut self.producers).uncounted();
        self
    }

    /// Cuts what `source` does not have, moves the start to where that of `source` is, and copies up to `max_bytes` (one batch
    /// at least) from there. What is cut off waits for `take_doomed`.
    pub fn advance_to(
        &mut self,
        source: &LogView,
        max_bytes: usize,
        now: TimestampMs,
    ) -> Result<Advanced, CopyError> {
        self.cut_to_common(source, now)?;
        self.start_like(source, now)?;
        let records = read_from(source, self.ruler.log_end, max_bytes)?;
        if source.was_cut() {
            // What was read may not be what the view speaks of.
            return Ok(Advanced { bytes: 0, is_void: true });
        }
        let bytes = records.len();
        if !records.is_empty() {
            match self.append_as_follower(&records, LeaderEpoch(i32::MAX), now) {
                Ok(_) => {}
                Err(AppendError::Log(error)) => return Err(error.into()),
                Err(AppendError::OutOfOrder { .. }) => {
                    // Its end lies within a batch of the other, so it was not made of it as it is now.
                    self.truncate_fully_and_start_at(source.log_start, now)?;
                    return Ok(Advanced { bytes: 0, is_void: true });
                }
                Err(error) => return Err(CopyError::Batch(error)),
            }
        }
        self.set_high_watermark(source.high_watermark);
        Ok(Advanced { bytes, is_void: false })
    }

    /// Drops what is not in `source`. The same epoch and offset are the same record, so the last epoch that both know tells
    /// up to where they agree.
    fn cut_to_common(&mut self, source: &LogView, now: TimestampMs) -> Result<(), LogError> {
        loop {
            let end = self.ruler.log_end;
            let Some(latest) = self.epochs.latest() else {
                return self.truncate_to(source.log_end, now).map(drop);
            };
            let common = match source.end_offset_for_epoch(latest.epoch) {
                Some((epoch, theirs)) if epoch == latest.epoch => {
                    return if theirs < end { self.truncate_to(theirs, now).map(drop) } else { Ok(()) };
                }
                // Their epoch before ours ends somewhere, and so does ours of that epoch.
                Some((epoch, theirs)) => {
                    let ours = self.epochs.end_offset_for(epoch, end).map_or(theirs, |(_, ours)| ours);
                    ours.min(theirs).min(latest.start)
                }
                None => latest.start,
            };
            // The latest epoch goes with what is cut.
            self.truncate_to(common, now)?;
        }
    }

    fn start_like(&mut self, source: &LogView, now: TimestampMs) -> Result<(), LogError> {
        let start = source.log_start;
        let Ruler { log_start, log_end, .. } = self.ruler;
        // Where nothing is left in common, nor is anything kept: it may end within a batch, and recovery would take that for a loss.
        if start < log_start || start >= log_end && start > log_start {
            return self.truncate_fully_and_start_at(start, now);
        }
        if start > log_start {
            self.set_high_watermark(source.high_watermark);
            self.advance_log_start(start)?;
        }
        let doomed = self.delete_before_start(SEGMENTS_AT_A_TIME)?;
        // Nobody reads a copy, so they may go as soon as those that are cut off.
        self.cut_off.extend(doomed.into_iter().flat_map(Doomed::into_bases));
        Ok(())
    }

    /// How much the copy lacks of a log, from the last batch on that both have.
    pub fn missing_of(&mut self, source: &LogView, now: TimestampMs) -> Result<usize, CopyError> {
        self.cut_to_common(source, now)?;
        self.start_like(source, now)?;
        let missing = size_from(source, self.ruler.log_end).map_err(CopyError::Source)?;
        Ok(usize::try_from(missing).unwrap_or(usize::MAX))
    }

    /// Brings the copy up to where `current` is. `false`: it was not made of it as it is now, and began anew.
    pub fn catch_up_with(&mut self, current: &Log, now: TimestampMs) -> Result<bool, CopyError> {
        let view = current.view();
        loop {
            let Advanced { bytes, is_void } = self.advance_to(&view, CHUNK, now)?;
            if is_void {
                return Ok(false);
            }
            if self.ruler.log_end == view.log_end {
                return Ok(true);
            }
            if bytes == 0 {
                // A log that was cut within a batch ends behind its last one. Only here that is certain: elsewhere the files may
                // have been cut under the reader.
                check_ends_at(&view, self.ruler.log_end).map_err(CopyError::Source)?;
                self.producers.advance_end(view.log_end);
                self.draw(Ruler { log_end: view.log_end, ..self.ruler });
                self.set_high_watermark(view.high_watermark);
                return Ok(true);
            }
        }
    }

    /// Takes the place of `current`, up to which it has caught up. `current` gets the name `aside`, and the copy its name `dir`,
    /// which lies beside the name that it has. What the other knows beyond its batches comes along, and whoever loads views from it
    /// loads those of this log from now on. The other one must not be changed any more.
    pub fn succeed(&mut self, current: &Log, dir: &Path, aside: &Path) -> Result<(), SuccessionError> {
        self.complete_like(current).map_err(SuccessionError::Copy)?;
        let name = current.dir();
        current.rename_durably(aside)?;
        match self.take_name(dir) {
            Ok(()) => {}
            Err(NotNamed::Unknown(error)) => return Err(SuccessionError::Between(error)),
            Err(NotNamed::Kept(error)) => {
                return Err(match current.rename_durably(&name) {
                    Ok(()) => SuccessionError::Copy(error),
                    Err(SuccessionError::NoRoom(error)) => SuccessionError::Source(error),
                    Err(error) => error,
                });
            }
        }
        let Ruler { log_start, high_watermark, log_end, .. } = current.ruler;
        // What is being made of the other log, compacted segments and all, is nothing to this one.
        self.note_truncation(self.truncations.max(current.truncations) + 1);
        self.tail.set_idle(false);
        self.views = current.views.clone();
        self.draw(Ruler { log_start, high_watermark, flushed: log_end, log_end });
        Ok(())
    }

    /// Takes over what is in no batch, and becomes durable.
    fn complete_like(&mut self, current: &Log) -> Result<(), LogError> {
        self.check_in_service()?;
        assert!(self.ruler.log_end == current.ruler.log_end, "{} lags", self.place.dir().display());
        self.config = current.config.clone();
        // An epoch that nobody has written in yet is in no batch.
        self.epoch_changes.note_if(self.epochs != current.epochs);
        self.epochs = current.epochs.clone();
        // Producers whose batches are deleted are in no batch either.
        self.producers = current.producers.clone();
        self.touched = true;
        let noted = self.keep_producers();
        self.or_full("take over the producers", noted)?;
        self.flush()
    }

    /// Gets the name of a log. Where somebody else has it, nothing has happened.
    fn take_name(&mut self, dir: &Path) -> Result<(), NotNamed> {
        let copy = self.place.dir();
        let failed = match self.place.rename(dir) {
            Err(error) if is_taken(&error) || disk::is_full(&error) => {
                return Err(NotNamed::Kept(LogError::io("taking the name", dir, error)));
            }
            Err(error) => error,
            Ok(()) => match sync_parent(self, dir) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            },
        };
        let is_undone = self.keep_name(&copy, dir).is_ok();
        self.poison(&format!("take over the name: {failed}"));
        let error = LogError::Io { what: "take over the name".into(), error: Arc::new(failed) };
        Err(if is_undone { NotNamed::Kept(error) } else { NotNamed::Unknown(error) })
    }

    /// Sees to it that it has the name `copy` and not `dir`, also after a crash.
    fn keep_name(&self, copy: &Path, dir: &Path) -> io::Result<()> {
        if self.place.dir() == dir {
            self.place.rename(copy)?;
        }
        match self.place.disk.stat(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => sync_parent(self, copy),
            Err(error) => Err(error),
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }

    /// Gives the directory another name beside the one that it has.
    fn rename_durably(&self, to: &Path) -> Result<(), SuccessionError> {
        match self.place.rename(to) {
            Err(error) if disk::is_full(&error) => return Err(SuccessionError::NoRoom(error)),
            renamed => renamed.map_err(SuccessionError::Source)?,
        }
        sync_parent(self, to).map_err(SuccessionError::Source)
    }

    /// Writes a snapshot of the producers, unless there never were any.
    fn keep_producers(&mut self) -> io::Result<()> {
        let end = self.ruler.log_end;
        if self.producers.is_empty() && self.snapshots.is_empty() {
            return Ok(());
        }
        self.producers.advance_end(end);
        self.snapshots.take(&self.place, &self.producers)?;
        self.place.sync_file(super::names::FileName::live(end, super::names::Kind::ProducerSnapshot))?;
        self.dir_changes.note();
        Ok(())
    }

    /// Where it lies.
    pub fn dir(&self) -> PathBuf {
        self.place.dir()
    }

    /// Gives the directory another name, under which readers of older views find its files; not durable yet.
    pub fn rename(&self, dir: &Path) -> io::Result<()> {
        self.place.rename(dir)
    }
}

fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty)
}

fn sync_parent(log: &Log, dir: &Path) -> io::Result<()> {
    dir.parent().map_or(Ok(()), |parent| log.place.disk.sync_dir(parent))
}

/// The batches of `source` from an offset on, in one piece.
fn read_from(source: &LogView, from: Offset, max_bytes: usize) -> Result<Bytes, CopyError> {
    match source.read(from, max_bytes, source.log_end, true) {
        Ok(ReadPlan::Ready(mut pieces)) if pieces.len() == 1 => Ok(pieces.swap_remove(0)),
        Ok(ReadPlan::Ready(pieces)) => Ok(pieces.concat().into()),
        Ok(ReadPlan::Cold(read)) => read.run().map_err(CopyError::Source),
        Err(error @ ReadError::OutOfRange { .. }) => {
            Err(CopyError::Source(io::Error::new(io::ErrorKind::InvalidInput, error)))
        }
    }
}

/// How much there is of batches at or after an offset.
fn size_from(source: &LogView, from: Offset) -> io::Result<u64> {
    if from >= source.log_end {
        return Ok(0);
    }
    let segments = &source.segments[segment_of(&source.segments, from)..];
    let all: u64 = segments.iter().map(|segment| segment.size()).sum();
    Ok(all.saturating_sub(CutPoint::of(&segments[0], from, source.end_of(&segments[0]))?.position))
}

/// Fails if there are batches at or after an offset, or should be: a file may be shorter than it was made.
fn check_ends_at(source: &LogView, end: Offset) -> io::Result<()> {
    for segment in &source.segments[segment_of(&source.segments, end)..] {
        let mut walk = HeaderWalk::before(segment, end)?;
        while let Some((position, header)) = walk.advance()? {
            if header.last_offset() >= end {
                let file = segment.log_file().path();
                let why = format!("{} at {position}: a batch is not read", file.display());
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
