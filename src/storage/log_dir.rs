//! A log directory: a place of partitions with one owner. How it was left, which partitions lie in it, and their opening,
//! making and retiring; `claim` has its lock and what it says about itself. Must not know which partitions belong here:
//! that is for the metadata.
//!
//! Invariants: until a `LogDir` is dropped, or the lock that it has released, no other process has the directory. The marker of an orderly stop is gone before the
//! first log is opened, so that it speaks only for the stop that wrote it.

mod claim;
mod names;
mod opening;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::checkpoint::{
    CLEAN_SHUTDOWN_FILE, CleanShutdown, META_PROPERTIES_FILE, MetaProperties, OffsetCheckpoint, OffsetFiles,
    PARTITION_METADATA_FILE, read_clean_shutdown, read_partition_metadata, write_clean_shutdown,
    write_partition_metadata,
};
use super::disk::{DirEntry, Disk, DiskLock, Space, remove_if_exists};
use super::foreign::Foreign;
use super::locked;
use super::log::{Amount, Budgets, Log, LogConfig, LogError, OpenArgs, to_check};
use super::watched_disk::WatchedDisk;
use crate::types::{BrokerEpoch, Offset, TimestampMs, TopicId, TopicPartition, Uuid};
use claim::LOCK_FILE;
pub use claim::{Claim, LogDirError, Owner, lock};
use names::is_partition_dir;
pub use names::{DirName, Fate, set_aside_for};
pub use opening::Left;
use opening::Opening;

/// A log directory that this process owns.
#[derive(Debug)]
pub struct LogDir {
    disk: Arc<WatchedDisk>,
    path: PathBuf,
    properties: MetaProperties,
    /// How the directory was left, if in an orderly way.
    clean: Option<CleanShutdown>,
    offsets: Arc<OffsetFiles>,
    /// A log was opened of which they say more than it has.
    says_too_much: AtomicBool,
    opening: Opening,
    lock: Mutex<Option<Box<dyn DiskLock>>>,
}

/// A directory of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionDir {
    pub partition: TopicPartition,
    pub fate: Fate,
    pub path: PathBuf,
    /// From `partition.metadata`; `None` when the file is missing.
    pub topic_id: Option<TopicId>,
}

/// What lies in a log directory.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub partitions: Vec<PartitionDir>,
    /// Files and directories that are none of a log directory's. They are kept.
    pub foreign: Foreign,
}

impl LogDir {
    fn read(
        disk: Arc<dyn Disk>,
        path: &Path,
        properties: MetaProperties,
        lock: Box<dyn DiskLock>,
    ) -> Result<LogDir, LogDirError> {
        let in_path = |error| LogDirError::io("reading how it was left", path, error);
        let clean = read_clean_shutdown(&*disk, path).map_err(in_path)?;
        if remove_if_exists(&*disk, &path.join(CLEAN_SHUTDOWN_FILE)).map_err(in_path)? {
            disk.sync_dir(path).map_err(in_path)?;
        }
        // A checkpoint only saves work: without one, a log is recovered from its start.
        let disk = Arc::new(WatchedDisk::new(disk));
        let offsets = OffsetFiles::read(disk.clone(), path).map_err(in_path)?;
        Ok(LogDir {
            offsets: Arc::new(offsets),
            says_too_much: AtomicBool::new(false),
            opening: Opening::default(),
            disk,
            path: path.to_owned(),
            properties,
            clean,
            lock: Mutex::new(Some(lock)),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn properties(&self) -> &MetaProperties {
        &self.properties
    }

    /// The disk, through which everything in the directory is read.
    pub fn disk(&self) -> Arc<dyn Disk> {
        self.disk.clone()
    }

    /// From now on `hear` is told of every read in the directory that fails, with what could not be read.
    pub fn on_failed_read(&self, hear: impl Fn(&Path, &io::Error) + Send + Sync + 'static) {
        self.disk.on_failed_read(hear);
    }

    /// How large the file system is that it lies on, and what is free.
    pub fn space(&self) -> io::Result<Space> {
        self.disk.space(&self.path)
    }

    /// How the directory was left; `None` when not in an orderly way.
    pub fn clean_shutdown(&self) -> Option<CleanShutdown> {
        self.clean
    }

    /// Its offset checkpoints as they are now.
    pub fn offsets(&self) -> &Arc<OffsetFiles> {
        &self.offsets
    }

    /// Whether a log was opened, since the last call, of which the checkpoints say more than it has: they must be written before
    /// anything is appended to it.
    pub fn take_excess(&self) -> bool {
        self.says_too_much.swap(false, Ordering::AcqRel)
    }

    /// These logs are going to be opened; what is left of that is told by [`LogDir::left`].
    pub fn expect_opening(&self, dirs: impl IntoIterator<Item = PathBuf>) {
        dirs.into_iter().for_each(|dir| self.opening.expect(dir));
    }

    /// What was expected has been opened, but for what nobody wants.
    pub fn opened(&self) {
        self.opening.end();
    }

    /// What is still to be opened, and how much of it to be checked, as far as that was counted.
    pub fn left(&self) -> Left {
        self.opening.left()
    }

    /// Counts what is to be checked of the logs that wait to be opened.
    pub fn count_left(&self) {
        let disk = self.disk();
        self.opening.count(|dir| {
            if self.clean.is_some() {
                return Some(Amount::default());
            }
            let partition = dir.file_name()?.to_str().and_then(DirName::parse)?.partition;
            let recovery_point = self.offsets.said(OffsetCheckpoint::RecoveryPoint, &partition);
            to_check(&disk, dir, recovery_point.unwrap_or(Offset::ZERO)).ok()
        });
    }

    /// What lies in the directory.
    pub fn list(&self) -> Result<Listing, LogDirError> {
        let mut listing = Listing::default();
        let entries = self.disk.list(&self.path).map_err(|error| self.error(error))?;
        let (ours, foreign): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_ours);
        listing.foreign = foreign.into_iter().map(|entry| entry.name).collect();
        for entry in ours.into_iter().filter(|entry| entry.is_dir) {
            let path = self.path.join(&entry.name);
            if let Some(DirName { partition, fate }) = DirName::parse(&entry.name) {
                let topic_id = match fate {
                    Fate::Delete => None,
                    _ => read_partition_metadata(&*self.disk, &path).map_err(|error| self.error(error))?,
                };
                listing.partitions.push(PartitionDir { partition, fate, path, topic_id });
            }
        }
        listing.partitions.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(listing)
    }

    /// The directory of a partition, whether it exists or not.
    pub fn path_of(&self, partition: &TopicPartition) -> PathBuf {
        self.path.join(partition.to_string())
    }

    /// Makes an empty log for a partition.
    pub fn create_log(
        &self,
        partition: &TopicPartition,
        topic_id: TopicId,
        config: Arc<LogConfig>,
        now: TimestampMs,
        budgets: Budgets,
    ) -> Result<Log, LogError> {
        self.create_at(partition, &self.path_of(partition), topic_id, Offset::ZERO, config, now, budgets)
    }

    /// Makes an empty log, from `log_start` on, in a directory of this one.
    pub fn create_at(
        &self,
        partition: &TopicPartition,
        dir: &Path,
        topic_id: TopicId,
        log_start: Offset,
        config: Arc<LogConfig>,
        now: TimestampMs,
        budgets: Budgets,
    ) -> Result<Log, LogError> {
        let (recovery_point, unchecked) = (Offset::ZERO, Arc::default());
        let args = OpenArgs { recovery_point, log_start, clean_shutdown: true, now, budgets, unchecked };
        let in_dir = |error| LogError::io("creating", dir, error);
        // What is said of an older one of the name says nothing of this one.
        drop(self.offsets.lower(partition, log_start).map_err(in_dir)?);
        let log = Log::create(self.disk.clone(), dir, config, &args)?;
        write_partition_metadata(&*self.disk, dir, topic_id).map_err(in_dir)?;
        Ok(log.with_checkpoints(self.offsets.clone(), partition.clone()))
    }

    /// Opens the log of a partition that lies here.
    pub fn open_log(
        &self,
        dir: &PartitionDir,
        config: Arc<LogConfig>,
        now: TimestampMs,
        budgets: Budgets,
    ) -> Result<Log, LogError> {
        let begun = self.opening.begin(dir.path.clone());
        let known = |which| self.offsets.said(which, &dir.partition);
        let args = OpenArgs {
            recovery_point: known(OffsetCheckpoint::RecoveryPoint).unwrap_or(Offset::ZERO),
            log_start: known(OffsetCheckpoint::LogStart).unwrap_or(Offset::ZERO),
            clean_shutdown: self.clean.is_some(),
            now,
            budgets,
            unchecked: begun.unchecked().clone(),
        };
        let mut log = Log::open(self.disk.clone(), &dir.path, config, &args)?;
        if let Some(high_watermark) = known(OffsetCheckpoint::Replication) {
            log.set_high_watermark(high_watermark);
        }
        if self.offsets.exceed(&dir.partition, log.log_end()) {
            self.says_too_much.store(true, Ordering::Release);
        }
        Ok(log.with_checkpoints(self.offsets.clone(), dir.partition.clone()))
    }

    /// Renames the directory of a partition so that the partition is gone and the directory can be removed later, with
    /// `unique` to tell it from others of its kind. Durable with the next [`sync`](LogDir::sync): many are retired at once.
    pub fn retire(&self, partition: &TopicPartition, fate: Fate, unique: Uuid) -> io::Result<PathBuf> {
        self.retire_from(&self.path_of(partition), partition, fate, unique)
    }

    /// The same for a directory of the partition that has another name, like a copy that is not finished.
    pub fn retire_from(
        &self,
        from: &Path,
        partition: &TopicPartition,
        fate: Fate,
        unique: Uuid,
    ) -> io::Result<PathBuf> {
        let path = self.path_for(partition, fate, unique);
        self.disk.rename(from, &path)?;
        Ok(path)
    }

    /// Removes the directory of a partition where it is, for there is no room for another name. A crash leaves it to be found
    /// again as what it was: the file that says so goes last.
    pub fn remove_in_place(&self, partition: &TopicPartition) -> io::Result<()> {
        let dir = self.path_of(partition);
        for entry in self.disk.list(&dir)?.into_iter().filter(|entry| entry.name != PARTITION_METADATA_FILE) {
            remove_if_exists(&*self.disk, &dir.join(&entry.name))?;
        }
        self.disk.sync_dir(&dir)?;
        self.disk.remove_dir_all(&dir)
    }

    /// The directory of a partition that has another fate than to live there.
    pub fn path_for(&self, partition: &TopicPartition, fate: Fate, unique: Uuid) -> PathBuf {
        self.path.join(names::retired(partition, fate, unique))
    }

    /// A copy becomes the log of its partition, which has none here. Durable when it returns.
    pub fn make_live(&self, found: &PartitionDir) -> io::Result<PartitionDir> {
        let path = self.path_of(&found.partition);
        self.disk.rename(&found.path, &path)?;
        self.sync()?;
        Ok(PartitionDir { path, fate: Fate::Live, ..found.clone() })
    }

    /// Makes the names in it durable.
    pub fn sync(&self) -> io::Result<()> {
        self.disk.sync_dir(&self.path)
    }

    /// Removes a directory that was retired. May take long.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir_all(path)
    }

    /// Notes that the directory is left in an orderly way. Every log in it must have been closed, and the checkpoints
    /// written.
    pub fn mark_clean(&self, broker_epoch: BrokerEpoch) -> io::Result<()> {
        write_clean_shutdown(&*self.disk, &self.path, broker_epoch)
    }

    /// Gives up the directory, which nobody must touch through this any more; once the lock that comes back is dropped,
    /// another process may have it.
    #[must_use]
    pub fn release(&self) -> Option<Box<dyn DiskLock>> {
        locked(&self.lock).take()
    }

    fn error(&self, error: io::Error) -> LogDirError {
        LogDirError::io("looking into it", &self.path, error)
    }
}

/// What a file system has in its root is nobody's.
const LOST_AND_FOUND: &str = "lost+found";
/// Older Kafkas write it, and read it when a cluster begins.
const BOOTSTRAP_FILE: &str = "bootstrap.checkpoint";

/// Whether it belongs into a log directory.
pub fn is_ours(entry: &DirEntry) -> bool {
    if entry.is_dir {
        return is_partition_dir(&entry.name) || entry.name == LOST_AND_FOUND;
    }
    // One that was being replaced.
    let name = entry.name.strip_suffix(".tmp").unwrap_or(&entry.name);
    let mut checkpoints = OffsetCheckpoint::ALL.iter().map(|checkpoint| checkpoint.file_name());
    [LOCK_FILE, META_PROPERTIES_FILE, CLEAN_SHUTDOWN_FILE, BOOTSTRAP_FILE].contains(&name)
        || checkpoints.any(|checkpoint| checkpoint == name)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod cut_tests;
#[cfg(test)]
mod kafka_tests;
