//! A copy of a log in another directory, which follows it and takes its place in the end: how a partition moves while it
//! serves. Must not know who reads or writes the log meanwhile, or which thread does what.
//!
//! A copy is brought up to a *view* of the log, over and over, by whoever has the time. The last step is the writer's: with the
//! log itself at hand, so that nothing comes in between, the copy gets the rest, becomes durable, takes the directory's name,
//! and answers to the same views.
//!
//! Invariants: below its end a copy holds what the log holds, or is cut before anything is added; a log is succeeded only by a
//! copy that ends where it ends, and all of which is on disk.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use thiserror::Error;

use super::append::AppendError;
use super::truncate::Doomed;
use super::view::{LogView, ReadError, ReadPlan};
use super::{Log, LogError, Ruler};
use crate::types::{LeaderEpoch, Offset, TimestampMs};

/// So many segments of a copy are deleted in one go.
const SEGMENTS_AT_A_TIME: usize = 64;

/// What bringing a copy up to date has done.
#[derive(Debug, Default)]
pub struct Advanced {
    /// The bytes that were added.
    pub bytes: usize,
    /// Segments of the copy that lie before the log's start.
    pub doomed: Option<Doomed>,
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

impl Log {
    /// Cuts what `source` does not have, moves the start to where that of `source` is, and copies up to `max_bytes` (one batch
    /// at least) from there.
    pub fn advance_to(
        &mut self,
        source: &LogView,
        max_bytes: usize,
        now: TimestampMs,
    ) -> Result<Advanced, CopyError> {
        self.cut_to_common(source, now)?;
        let doomed = self.start_like(source, now)?;
        let records = read_from(source, self.ruler.log_end, max_bytes)?;
        let bytes = records.len();
        if !records.is_empty() {
            match self.append_as_follower(&records, LeaderEpoch(i32::MAX), now) {
                Ok(_) => {}
                Err(AppendError::Log(error)) => return Err(error.into()),
                Err(AppendError::OutOfOrder { .. }) => {
                    // Its end lies within a batch of the other, so it was not made of it as it is now.
                    self.truncate_fully_and_start_at(source.log_start, now)?;
                    return Ok(Advanced { bytes: 0, doomed });
                }
                Err(error) => return Err(CopyError::Batch(error)),
            }
        }
        self.set_high_watermark(source.high_watermark);
        Ok(Advanced { bytes, doomed })
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

    fn start_like(&mut self, source: &LogView, now: TimestampMs) -> Result<Option<Doomed>, LogError> {
        let start = source.log_start;
        if start > self.ruler.log_end || start < self.ruler.log_start {
            self.truncate_fully_and_start_at(start, now)?;
            return Ok(None);
        }
        if start > self.ruler.log_start {
            self.set_high_watermark(source.high_watermark);
            self.advance_log_start(start)?;
        }
        self.delete_before_start(SEGMENTS_AT_A_TIME)
    }

    /// Brings the copy up to where `current` is, if at most `max_bytes` are missing. `false`: more are.
    pub fn catch_up_with(
        &mut self,
        current: &Log,
        max_bytes: usize,
        now: TimestampMs,
    ) -> Result<bool, CopyError> {
        let view = current.view();
        let mut left = max_bytes;
        loop {
            let bytes = self.advance_to(&view, left.max(1), now)?.bytes;
            if self.ruler.log_end == view.log_end {
                return Ok(true);
            }
            left = left.saturating_sub(bytes);
            if bytes == 0 {
                // A log that was cut within a batch ends behind its last one. Only here that is certain: elsewhere the files may
                // have been cut under the reader.
                self.producers.advance_end(view.log_end);
                self.draw(Ruler { log_end: view.log_end, ..self.ruler });
                self.set_high_watermark(view.high_watermark);
                return Ok(true);
            }
            if left == 0 {
                return Ok(false);
            }
        }
    }

    /// Takes the place of `current`, up to which it has caught up, in the directory `dir`: a name that is free, beside the one
    /// that it has. What the other knows beyond its batches comes along, and whoever loads views from it loads those of this
    /// log from now on. The other one must not be changed any more. After an error nobody knows which name the copy has, and it
    /// is out of service.
    pub fn succeed(&mut self, current: &Log, dir: &Path) -> Result<(), LogError> {
        self.check_in_service()?;
        let Ruler { log_start, high_watermark, log_end, .. } = current.ruler;
        assert!(self.ruler.log_end == log_end, "{} has not caught up", self.place.dir().display());
        self.config = current.config.clone();
        // An epoch that nobody has written in yet is in no batch.
        self.epoch_changes.note_if(self.epochs != current.epochs);
        self.epochs = current.epochs.clone();
        // Producers whose batches are deleted are in no batch either.
        self.producers = current.producers.clone();
        self.touched = true;
        let noted = self.keep_producers();
        self.or_full("take over the producers", noted)?;
        self.flush()?;
        let moved = self.place.rename(dir).and_then(|()| sync_parent(self, dir));
        self.or_poison("take over the name", moved)?;
        // Of what was synced of the other log nothing is to be taken for something of this one.
        self.truncations = self.truncations.max(current.truncations) + 1;
        self.epoch_changes = self.epoch_changes.after(current.epoch_changes);
        self.dir_changes = self.dir_changes.after(current.dir_changes);
        self.cut_changes = self.cut_changes.after(current.cut_changes);
        self.views = current.views.clone();
        self.draw(Ruler { log_start, high_watermark, flushed: log_end, log_end });
        Ok(())
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

#[cfg(test)]
mod tests;
