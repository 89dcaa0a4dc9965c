//! The offset checkpoints of the log directories: recovery points, high watermarks, log starts, what is compacted. The thread
//! that writes them also looks how much room there is.
//!
//! Reads published views alone, so no shard is disturbed. Invariants: a checkpoint never says more than the views did: what
//! lies below a recovery point is on disk; of a partition that is not open it goes on saying what it says.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::clock;
use super::directory::Directory;
use super::log_dirs::LogDirs;
use super::partitions::{Partition, Partitions};
use crate::storage::checkpoint::{OffsetCheckpoint, Offsets};
use crate::storage::disk;
use crate::storage::log::LogView;
use crate::types::{BrokerEpoch, MonotonicMs, Offset, TopicPartition};

/// How often it is looked how much room there is.
const ROOM_INTERVAL: Duration = Duration::from_secs(1);

/// How often each checkpoint is written, and old files are removed.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointIntervals {
    /// `log.flush.offset.checkpoint.interval.ms`
    pub recovery_point_ms: i64,
    /// `replica.high.watermark.checkpoint.interval.ms`
    pub high_watermark_ms: i64,
    /// `log.flush.start.offset.checkpoint.interval.ms`
    pub log_start_ms: i64,
}

/// Writes checkpoints when asked to.
#[derive(Debug)]
pub struct Checkpoints {
    partitions: Partitions,
    dirs: Arc<LogDirs>,
    /// A file may still say something of a partition that is gone, and whose name can be used again.
    is_stale: AtomicBool,
}

impl Checkpoints {
    pub fn new(partitions: Partitions, dirs: Arc<LogDirs>) -> Checkpoints {
        Checkpoints { partitions, dirs, is_stale: AtomicBool::new(false) }
    }

    /// Writes one kind of checkpoint in every directory, where it has changed. Blocks on the disk.
    pub fn write(&self, which: OffsetCheckpoint) {
        for directory in self.dirs.directories().iter().filter(|directory| directory.is_online()) {
            match directory.dir().offsets().write(which, |says| self.gather(which, directory, says)) {
                Ok(true) => drop(directory.lack_checkpoints(false)),
                Ok(false) => {}
                Err(error) => self.note_failure(directory, which.file_name(), &error),
            }
        }
    }

    /// What a file should say that `says` something. What is there and not open stays as it is.
    fn gather(
        &self,
        which: OffsetCheckpoint,
        directory: &Directory,
        says: &[(TopicPartition, Offset)],
    ) -> Offsets {
        let mut left = self.dirs.found_in(directory);
        let all = self.partitions.all();
        let mut offsets = Vec::with_capacity(all.len());
        for partition in all.values() {
            let Some(of) = lying(partition, directory) else { continue };
            left.remove(&partition.name);
            offsets.extend(of.offset(which).map(|offset| (partition.name.clone(), offset)));
        }
        offsets.extend(says.iter().filter(|(name, _)| left.contains(name)).cloned());
        offsets
    }

    /// What the files say of a partition must not be taken for one that is new under its name.
    pub fn note_stale(&self) {
        self.is_stale.store(true, Ordering::Release);
    }

    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Acquire)
    }

    /// Writes all checkpoints: before a partition's name can be used again, and at the end.
    pub fn write_all(&self) {
        self.is_stale.store(false, Ordering::Release);
        for which in OffsetCheckpoint::ALL {
            self.write(which);
        }
    }

    /// Notes in each directory that is sound that it was closed in an orderly way, by this registration of the broker. Every
    /// log is closed.
    pub fn write_clean_shutdown(&self, epoch: BrokerEpoch, is_sound: impl Fn(&Directory) -> bool) {
        let sound = |directory: &&Arc<Directory>| directory.is_online() && is_sound(directory);
        for directory in self.dirs.directories().iter().filter(sound) {
            if let Err(error) = directory.dir().mark_clean(epoch) {
                self.note_failure(directory, "the clean shutdown marker", &error);
            }
        }
    }

    /// An old checkpoint costs time at the next start, so a full disk is no reason to stop.
    fn note_failure(&self, directory: &Directory, file: &str, error: &io::Error) {
        if disk::is_full(error) {
            self.note_stale();
            directory.note_full(clock::monotonic());
            if !directory.lack_checkpoints(true) {
                tracing::warn!("Could not write {file} in {}: {error}", directory.path().display());
            }
        } else {
            directory.fail(&format!("write {file}"), error);
        }
    }
}

/// What there is of a partition in one directory.
struct Lying {
    view: Arc<LogView>,
    cleaned: Option<Offset>,
}

/// The partition's log, or the copy that is being made of it. Each view knows where it lies: a copy may take the place of the log
/// while we look.
fn lying(partition: &Partition, directory: &Directory) -> Option<Lying> {
    let lies_here = |view: &LogView| view.dir().parent() == Some(directory.path());
    let future = partition.future().and_then(|future| future.view());
    let view = partition.view();
    if lies_here(&view) {
        return Some(Lying { view, cleaned: partition.cleaned() });
    }
    Some(Lying { view: future.filter(|view| lies_here(view))?, cleaned: None })
}

impl Lying {
    fn offset(&self, which: OffsetCheckpoint) -> Option<Offset> {
        match which {
            OffsetCheckpoint::RecoveryPoint => Some(self.view.flushed),
            OffsetCheckpoint::Replication => Some(self.view.high_watermark),
            OffsetCheckpoint::LogStart => Some(self.view.log_start).filter(|start| *start != Offset::ZERO),
            OffsetCheckpoint::Cleaner => self.cleaned,
        }
    }
}

/// Keeps the periodic thread going; it ends when this is dropped.
#[derive(Debug)]
pub struct Periodic {
    _stop: mpsc::Sender<()>,
}

/// Starts the thread that writes checkpoints now and then, and removes the files of deleted segments. `reserve` is how much of
/// each directory is to be kept free of records now.
pub fn spawn(
    checkpoints: Arc<Checkpoints>,
    intervals: CheckpointIntervals,
    reserve: impl Fn() -> u64 + Send + 'static,
) -> io::Result<Periodic> {
    let (stop, stopped) = mpsc::channel();
    let mut due = Due::new(intervals, clock::monotonic());
    std::thread::Builder::new().name("checkpoints".to_owned()).spawn(move || {
        loop {
            let wait_ms = due.next().0.saturating_sub(clock::monotonic().0);
            let wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0)).min(ROOM_INTERVAL);
            if !matches!(stopped.recv_timeout(wait), Err(mpsc::RecvTimeoutError::Timeout)) {
                return;
            }
            let now = clock::monotonic();
            let online = checkpoints.dirs.directories().iter().filter(|directory| directory.is_online());
            for directory in online {
                directory.keep_free(reserve());
                directory.measure(0, now);
            }
            for which in due.take(now) {
                checkpoints.write(which);
            }
            for directory in checkpoints.dirs.directories() {
                directory.remove_doomed(now);
            }
        }
    })?;
    Ok(Periodic { _stop: stop })
}

/// When each checkpoint is due.
#[derive(Debug)]
struct Due([(OffsetCheckpoint, i64, MonotonicMs); 3]);

impl Due {
    fn new(intervals: CheckpointIntervals, now: MonotonicMs) -> Due {
        let of = |which, every_ms: i64| (which, every_ms.max(1), now.plus(every_ms.max(1)));
        Due([
            of(OffsetCheckpoint::RecoveryPoint, intervals.recovery_point_ms),
            of(OffsetCheckpoint::Replication, intervals.high_watermark_ms),
            of(OffsetCheckpoint::LogStart, intervals.log_start_ms),
        ])
    }

    fn next(&self) -> MonotonicMs {
        self.0.iter().map(|(_, _, at)| *at).min().unwrap_or_default()
    }

    fn take(&mut self, now: MonotonicMs) -> Vec<OffsetCheckpoint> {
        let mut due = Vec::new();
        for (which, every_ms, at) in &mut self.0 {
            if *at <= now {
                *at = now.plus(*every_ms);
                due.push(*which);
            }
        }
        due
    }
}
