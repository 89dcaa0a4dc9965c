//! Making a log durable without holding its writer up: the writer hands out a `FlushWork`, a flusher thread runs it, the
//! writer notes the result. Must not know who waits for it.
//!
//! Invariant: what `Flushed` reports is on disk for good, together with all that recovery needs and cannot rebuild:
//! the directory entries, the epochs, the aborted transactions, and for sealed segments the indexes.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::epoch_cache::EpochCache;
use super::lazy_file::Place;
use super::names;
use super::segment::Segment;
use super::view::segment_of;
use super::{Log, LogError, Ruler};
use crate::storage::checkpoint;
use crate::types::Offset;

/// What must be synced so that the log is durable up to an offset. The works of one log must be run in the order in which
/// they were handed out.
#[derive(Debug)]
pub struct FlushWork {
    place: Arc<Place>,
    /// Segments with unflushed batches; all but the last are sealed, and so is that when `all_sealed`.
    segments: Vec<Arc<Segment>>,
    all_sealed: bool,
    epochs: Option<EpochCache>,
    sync_dir: bool,
    flushed: Flushed,
}

/// How far a log became durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    pub upto: Offset,
    truncations: u32,
}

impl FlushWork {
    /// How far the log will be durable.
    pub fn upto(&self) -> Offset {
        self.flushed.upto
    }

    /// The directory of the log.
    pub fn dir(&self) -> &Path {
        &self.place.dir
    }

    /// Takes in an older work of the same log that was not run, so that running this one does for both.
    pub fn absorb(&mut self, older: FlushWork) {
        // Segments need no merging: this work begins at least where the older one did, or at what has become durable since.
        self.sync_dir |= older.sync_dir;
        self.epochs = self.epochs.take().or(older.epochs);
    }

    /// Syncs. After an error the log must be poisoned: a second attempt could succeed without the data being there.
    pub fn run(&self) -> io::Result<Flushed> {
        for (index, segment) in self.segments.iter().enumerate() {
            segment.sync(self.all_sealed || index + 1 < self.segments.len())?;
        }
        if let Some(epochs) = &self.epochs {
            let path = self.place.join(names::LEADER_EPOCHS);
            checkpoint::write_epochs(&*self.place.disk, &path, epochs.entries())?;
        } else if self.sync_dir {
            self.place.sync()?;
        }
        Ok(self.flushed)
    }
}

impl Log {
    /// What to sync so that all that was appended is durable; `None` when it is.
    pub fn flush_work(&mut self) -> Option<FlushWork> {
        let behind = self.ruler.flushed < self.ruler.log_end;
        if self.failure.is_some() || (!behind && !self.epochs_dirty && !self.dir_dirty) {
            return None;
        }
        let segments = if behind {
            self.segments[segment_of(&self.segments, self.ruler.flushed)..].to_vec()
        } else {
            Vec::new()
        };
        let epochs = std::mem::take(&mut self.epochs_dirty).then(|| self.epochs.clone());
        let sync_dir = std::mem::take(&mut self.dir_dirty);
        Some(FlushWork {
            place: self.place.clone(),
            segments,
            all_sealed: false,
            epochs,
            sync_dir,
            flushed: Flushed { upto: self.ruler.log_end, truncations: self.truncations },
        })
    }

    /// Notes the result of a flush. `true` when more of the log is durable than before.
    pub fn mark_flushed(&mut self, flushed: Flushed) -> bool {
        // A truncation since then may have replaced the batches that were synced.
        if flushed.truncations != self.truncations || flushed.upto <= self.ruler.flushed {
            return false;
        }
        self.draw(Ruler { flushed: flushed.upto.min(self.ruler.log_end), ..self.ruler });
        true
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
