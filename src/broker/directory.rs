//! One log directory of this broker while it runs: whether it is in service, and its flusher's queue.
//!
//! Must not know what lies in it. Invariant: once it has failed it stays out of service until the process starts again; every
//! shard is told once.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::sync::Notify;

use super::flusher::FlushQueue;
use super::mailbox::{Message, ShardSender};
use super::room::{Admission, Room, Turn};
use super::stall::DiskWaits;
use crate::storage::log::Doomed;
use crate::storage::log_dir::LogDir;

use crate::types::{DirectoryId, MonotonicMs, directory_id};

#[derive(Debug)]
pub struct Directory {
    index: usize,
    dir: LogDir,
    pub(crate) flush: FlushQueue,
    service: Arc<Service>,
    /// Segments that are no longer part of their logs, and when their files may go.
    doomed: Mutex<Vec<(MonotonicMs, Doomed)>>,
    waits: DiskWaits,
    room: Room,
    /// It was told that a checkpoint found no room, and none has since.
    lacks_checkpoints: AtomicBool,
}

/// Whether it is in service, and who hears when it is not any more. Shared with what reads its files.
#[derive(Debug)]
struct Service {
    index: usize,
    path: PathBuf,
    failure: OnceLock<String>,
    shards: Vec<ShardSender>,
    /// Signalled when the directory fails.
    on_failure: OnceLock<Arc<Notify>>,
}

impl Service {
    fn fail(&self, doing: &str, error: &dyn fmt::Display) {
        let failure = format!("could not {doing}: {error}");
        if self.failure.set(failure.clone()).is_ok() {
            tracing::error!(
                "Log directory {} is out of service, its partitions are offline: {failure}",
                self.path.display()
            );
            for shard in &self.shards {
                shard.send_event(Message::DirectoryFailed(self.index));
            }
            if let Some(on_failure) = self.on_failure.get() {
                on_failure.notify_one();
            }
        }
    }
}

impl Directory {
    /// `flush_threads`: see [`FlushQueue`].
    pub fn new(index: usize, dir: LogDir, shards: Vec<ShardSender>, flush_threads: usize) -> Directory {
        let flush = FlushQueue::new(flush_threads);
        let (failure, on_failure, doomed, waits, room) = Default::default();
        let lacks_checkpoints = AtomicBool::new(false);
        let path = dir.path().to_owned();
        let service = Arc::new(Service { index, path, failure, shards, on_failure });
        let told = service.clone();
        // Whoever reads: what cannot be read here must be read elsewhere.
        dir.on_failed_read(move |path, error| told.fail(&format!("read {}", path.display()), error));
        Directory { index, dir, flush, service, doomed, waits, room, lacks_checkpoints }
    }

    /// Signals there when it fails.
    #[must_use]
    pub fn with_failure_signal(self, on_failure: Arc<Notify>) -> Directory {
        let _ = self.service.on_failure.set(on_failure);
        self
    }

    /// Whoever calls the disk for it says so there.
    #[must_use]
    pub fn with_waits(self, waits: DiskWaits) -> Directory {
        Directory { waits, ..self }
    }

    pub(super) fn waits(&self) -> &DiskWaits {
        &self.waits
    }

    /// So many bytes of its file system are not for records of clients. Nothing is kept until this is called.
    pub(super) fn keep_free(&self, bytes: u64) {
        self.room.keep(bytes);
    }

    /// Notes whether its checkpoints find room; returns what was noted before.
    pub(super) fn lack_checkpoints(&self, lacks: bool) -> bool {
        self.lacks_checkpoints.swap(lacks, Ordering::Relaxed)
    }

    /// There is no room for records of clients now.
    pub(super) fn is_short(&self) -> bool {
        self.room.is_short()
    }

    /// Whether records of clients may be written here.
    pub(super) fn admits(&self, bytes: usize, now: MonotonicMs) -> bool {
        match self.room.admit(bytes) {
            Admission::Granted => true,
            Admission::Refused => false,
            Admission::Unknown => {
                self.measure(bytes, now);
                !self.room.is_short()
            }
        }
    }

    /// Whether so many bytes fit at once, beyond the reserve or with it. What cannot be measured is tried.
    pub(super) fn fits(&self, bytes: u64, may_use_reserve: bool) -> bool {
        self.dir.space().map_or(true, |space| self.room.fits(space, bytes, may_use_reserve))
    }

    /// Looks how much room there is, for records of `needed` bytes. What cannot be measured changes nothing.
    pub(super) fn measure(&self, needed: usize, now: MonotonicMs) {
        if let Ok(space) = self.dir.space() {
            self.tell(self.room.measured(space, needed, now));
        }
    }

    /// A write found no room.
    pub(super) fn note_full(&self, now: MonotonicMs) {
        if let Ok(space) = self.dir.space() {
            self.tell(self.room.failed(space, now));
        }
    }

    fn tell(&self, turn: Option<Turn>) {
        let path = self.path().display();
        match turn {
            Some(Turn::Short { free, reserve }) => tracing::error!(
                "No room in log directory {path}: {free} bytes are free, of which {reserve} are kept in reserve \
                 (log.dir.reserve.bytes). Records are refused until there is more"
            ),
            Some(Turn::Enough { free, reserve }) => tracing::info!(
                "There is room in log directory {path} again: {free} bytes are free, {reserve} are kept in reserve"
            ),
            None => {}
        }
    }

    /// Its place in `log.dirs`.
    pub fn index(&self) -> usize {
        self.index
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Reserved when the directory was formatted before directories had ids.
    pub fn id(&self) -> DirectoryId {
        self.dir.properties().directory_id.unwrap_or(directory_id::MIGRATING)
    }

    pub(super) fn dir(&self) -> &LogDir {
        &self.dir
    }

    pub fn is_online(&self) -> bool {
        self.service.failure.get().is_none()
    }

    /// Why the directory is out of service, if it is.
    pub fn failure(&self) -> Option<&str> {
        self.service.failure.get().map(String::as_str)
    }

    /// Puts the directory out of service: a write, a sync or a read that must not fail has failed. Of reads it hears by itself.
    pub fn fail(&self, doing: &str, error: &dyn fmt::Display) {
        self.service.fail(doing, error);
    }

    /// Has the files of segments removed at `at`; readers get to finish until then.
    pub(super) fn doom(&self, doomed: Doomed, at: MonotonicMs) {
        self.doomed.lock().unwrap_or_else(PoisonError::into_inner).push((at, doomed));
    }

    /// Removes the files whose time has come. Blocks on the disk.
    pub(crate) fn remove_doomed(&self, now: MonotonicMs) {
        let mut doomed = self.doomed.lock().unwrap_or_else(PoisonError::into_inner);
        let due: Vec<_> = doomed.extract_if(.., |(at, _)| *at <= now).collect();
        drop(doomed);
        for (_, segments) in due {
            if let Err(error) = segments.remove() {
                // They are found again at the next start.
                tracing::warn!("Could not remove old segments in {}: {error}", self.path().display());
            }
        }
    }

    pub(super) fn shards(&self) -> &[ShardSender] {
        &self.service.shards
    }
}
