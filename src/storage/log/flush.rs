//! Making a log durable without holding its writer up: the writer hands out a `FlushWork`, a flusher thread runs it, the
//! writer notes the result. Must not know who waits for it.
//!
//! Invariant: what `Flushed` reports is on disk for good, together with all that recovery needs and cannot rebuild:
//! the directory entries, the aborted transactions, and for sealed segments the indexes. The epochs are, too, unless the disk
//! is full: opening the log finds them in the batches.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::epoch_cache::EpochCache;
use super::lazy_file::Place;
use super::names::{self, FileName, Kind};
use super::segment::Segment;
use super::view::segment_of;
use super::{Log, LogError, Ruler};
use crate::storage::checkpoint;
use crate::storage::disk;
use crate::types::Offset;

/// What must be synced so that the log is durable up to an offset. A work that is dropped without having run does no harm.
#[derive(Debug)]
pub struct FlushWork {
    place: Arc<Place>,
    /// Segments with unflushed batches; all but the last are sealed.
    segments: Vec<Arc<Segment>>,
    /// Segments in which something was put right.
    mended: Vec<Arc<Segment>>,
    epochs: Option<EpochCache>,
    sync_dir: bool,
    flushed: Flushed,
}

/// How far a log became durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    pub upto: Offset,
    log: LogId,
    truncations: u32,
    /// The changes of the epochs, of the directory and by cuts that are durable with it.
    epochs: u32,
    dir: u32,
    cuts: u32,
    mends: u32,
}

/// Tells a log from another that has its name later, or that takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogId(u64);

impl LogId {
    pub fn next() -> LogId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        LogId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Counts changes, and how many of them are durable.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changes {
    made: u32,
    durable: u32,
}

impl Changes {
    pub fn note(&mut self) {
        self.made += 1;
    }

    pub fn note_if(&mut self, changed: bool) {
        self.made += u32::from(changed);
    }

    pub fn pending(self) -> bool {
        self.made != self.durable
    }

    fn mark_durable(&mut self, made: u32) {
        self.durable = self.durable.max(made);
    }
}

impl FlushWork {
    /// The directory of the log.
    pub fn dir(&self) -> PathBuf {
        self.place.dir()
    }

    /// What is durable once this has run.
    pub fn flushed(&self) -> Flushed {
        self.flushed
    }

    /// Takes in an older work of the same log that was not run, so that running this one does for both.
    pub fn absorb(&mut self, older: FlushWork) {
        // Segments need no merging: this work begins at least where the older one did, or at what has become durable since. So with those
        // in which something was put right.
        self.sync_dir |= older.sync_dir;
        self.epochs = self.epochs.take().or(older.epochs);
    }

    /// Syncs. After an error the log must be poisoned: a second attempt could succeed without the data being there.
    pub fn run(&self) -> io::Result<Flushed> {
        self.mended.iter().try_for_each(|segment| segment.sync(false))?;
        for (index, segment) in self.segments.iter().enumerate() {
            let next = self.segments.get(index + 1);
            segment.sync(next.is_some())?;
            if let Some(next) = next {
                // The snapshot that was taken when the segment was sealed.
                self.place.sync_file(FileName::live(next.base(), Kind::ProducerSnapshot))?;
            }
        }
        let has_epochs = self.write_epochs()?;
        if self.sync_dir && !has_epochs {
            self.place.sync()?;
        }
        let epochs = if has_epochs { self.flushed.epochs } else { 0 };
        Ok(Flushed { epochs, ..self.flushed })
    }

    /// Replaces the file of the epochs, and syncs the directory by that. `false` when they are as they were, or when there is no
    /// room: then they wait for the next flush. The batches say the same (`epoch_recovery`), and a full disk must not end
    /// a log whose batches are safe.
    fn write_epochs(&self) -> io::Result<bool> {
        let Some(epochs) = &self.epochs else { return Ok(false) };
        // The log may get another name at any moment, with this in the middle of it.
        let written = self.place.within(|dir| {
            checkpoint::write_epochs(&*self.place.disk, &dir.join(names::LEADER_EPOCHS), epochs.entries())
        });
        match written {
            Err(error) if disk::is_full(&error) => Ok(false),
            result => result.map(|()| true),
        }
    }
}

impl Log {
    /// What to sync so that all that was appended is durable; `None` when it is.
    pub fn flush_work(&mut self) -> Option<FlushWork> {
        let behind = self.ruler.flushed < self.ruler.log_end || self.cut_changes.pending();
        let pending = behind || self.epoch_changes.pending() || self.dir_changes.pending();
        let pending = pending || self.mended.changes.pending();
        if self.failure.is_some() || !pending {
            return None;
        }
        let segments = if behind {
            // From the segment of the last flushed record on: it may have been sealed since, and its indexes with it.
            self.segments[segment_of(&self.segments, self.ruler.flushed.plus(-1))..].to_vec()
        } else {
            Vec::new()
        };
        let epochs = self.epoch_changes.pending().then(|| self.epochs.clone());
        let sync_dir = self.dir_changes.pending();
        Some(FlushWork {
            place: self.place.clone(),
            segments,
            mended: self.mended.segments.clone(),
            epochs,
            sync_dir,
            flushed: Flushed {
                upto: self.ruler.log_end,
                log: self.id,
                truncations: self.truncations,
                epochs: self.epoch_changes.made,
                dir: self.dir_changes.made,
                cuts: self.cut_changes.made,
                mends: self.mended.changes.made,
            },
        })
    }

    /// Notes the result of a flush. `true` when more of the log is durable than before.
    pub fn mark_flushed(&mut self, flushed: Flushed) -> bool {
        if flushed.log != self.id {
            return false;
        }
        self.epoch_changes.mark_durable(flushed.epochs);
        self.dir_changes.mark_durable(flushed.dir);
        self.cut_changes.mark_durable(flushed.cuts);
        self.mended.changes.mark_durable(flushed.mends);
        if !self.mended.changes.pending() {
            self.mended.segments.clear();
        }
        // A truncation since then may have replaced the batches that were synced.
        if flushed.truncations != self.truncations || flushed.upto <= self.ruler.flushed {
            return false;
        }
        self.draw(Ruler { flushed: flushed.upto.min(self.ruler.log_end), ..self.ruler });
        true
    }

    /// Flushes on the calling thread, completes the files as a closed log has them, and takes no more changes. An idle log
    /// costs nothing. When there is no room to complete them, the log is closed, and must be recovered when it is opened.
    pub fn close(&mut self) -> Result<(), LogError> {
        self.check_in_service()?;
        let completed = if self.touched { self.complete_files() } else { Ok(()) };
        let completed = self.or_full("close", completed);
        if !matches!(completed, Ok(()) | Err(LogError::DiskFull)) {
            return completed;
        }
        self.flush()?;
        self.tail.clear();
        self.poison("closed");
        completed
    }

    fn complete_files(&mut self) -> io::Result<()> {
        let segment = self.active().clone();
        segment.seal()?;
        segment.sync(true)?;
        let end = self.ruler.log_end;
        // Where there never were producers, a clean start needs no snapshot to know it.
        let needed = !self.producers.is_empty() || !self.snapshots.is_empty();
        if needed && self.snapshots.latest() != Some(end) {
            self.producers.advance_end(end);
            self.snapshots.take(&self.place, &self.producers)?;
            self.place.sync_file(FileName::live(end, Kind::ProducerSnapshot))?;
            self.dir_changes.note();
        }
        Ok(())
    }

    /// Flushes on the calling thread.
    pub fn flush(&mut self) -> Result<(), LogError> {
        self.check_in_service()?;
        if let Some(work) = self.flush_work() {
            let result = work.run();
            let flushed = self.or_poison("flush", result)?;
            self.mark_flushed(flushed);
        }
        Ok(())
    }
}
