//! The partitions' directories within the log directories: found at the start, opened, made, retired.
//!
//! Blocks on the disk, so it is called on threads that may. Must not know leaders or shards. Invariants: a partition's directory is
//! opened only for the topic whose id it carries; nothing that is not known to be deleted is removed.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::directory::Directory;
use crate::metadata::reconcile::Replica;
use crate::storage::checkpoint::{
    CLEAN_SHUTDOWN_FILE, OffsetCheckpoint, read_clean_shutdown, read_offsets, read_partition_metadata,
    write_partition_metadata,
};
use crate::storage::disk::{Disk, Space, remove_if_exists};
use crate::storage::log::{Log, LogConfig, LogError, OpenArgs, TailBudget};
use crate::types::{BrokerEpoch, DirectoryId, Offset, TimestampMs, TopicId, TopicPartition, Uuid};

const DELETE_SUFFIX: &str = "-delete";
const STRAY_SUFFIX: &str = "-stray";
/// No file system that we know takes longer names.
const NAME_MAX: usize = 255;

/// The log directories of this broker and what was found in them.
#[derive(Debug)]
pub struct LogDirs {
    disk: Arc<dyn Disk>,
    directories: Vec<Arc<Directory>>,
    tail_budget: Arc<TailBudget>,
    /// Directories that nobody has opened yet.
    found: Mutex<HashMap<TopicPartition, Found>>,
    /// The epoch with which all directories were closed in an orderly way the last time.
    previous_epoch: BrokerEpoch,
}

/// A partition's directory.
#[derive(Clone, Debug)]
struct Found {
    directory: usize,
    /// `None` when a broker of before KIP-516 made it.
    topic_id: Option<TopicId>,
    clean_shutdown: bool,
    recovery_point: Offset,
    high_watermark: Offset,
    log_start: Offset,
}

/// A log to serve, and where it lies.
#[derive(Debug)]
pub struct Opened {
    pub log: Log,
    pub directory: Arc<Directory>,
}

/// Why a partition cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("no log directory is in service")]
    NoDirectory,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Log(#[from] LogError),
}

impl OpenError {
    /// Whether another attempt may go better: there was no room.
    pub fn may_pass(&self) -> bool {
        match self {
            OpenError::Io(error) => error.kind() == io::ErrorKind::StorageFull,
            OpenError::Log(LogError::Io { error, .. }) => error.kind() == io::ErrorKind::StorageFull,
            OpenError::Log(error) => matches!(error, LogError::DiskFull),
            OpenError::NoDirectory => false,
        }
    }
}

impl LogDirs {
    /// Looks into the log directories. Their clean shutdown markers are used up: from here on a stop is unclean until it is
    /// known not to be.
    pub fn scan(
        disk: Arc<dyn Disk>,
        directories: Vec<Arc<Directory>>,
        tail_budget: Arc<TailBudget>,
    ) -> LogDirs {
        let mut found = HashMap::new();
        let mut epochs = Vec::new();
        for directory in &directories {
            match scan_directory(&*disk, directory, &mut found) {
                Ok(epoch) => epochs.push(epoch),
                Err(error) => directory.fail("look into it", &error),
            }
        }
        let first = epochs.first().copied().unwrap_or(BrokerEpoch::UNKNOWN);
        let all_agree = epochs.len() == directories.len() && epochs.iter().all(|epoch| *epoch == first);
        let previous_epoch = if all_agree { first } else { BrokerEpoch::UNKNOWN };
        LogDirs { disk, directories, tail_budget, found: Mutex::new(found), previous_epoch }
    }

    pub fn directories(&self) -> &[Arc<Directory>] {
        &self.directories
    }

    /// How large the volume of a log directory is, and what is free on it.
    pub fn space(&self, directory: &Directory) -> io::Result<Space> {
        self.disk.space(directory.path())
    }

    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The broker's epoch before the last stop, if that lost nothing (KIP-966).
    pub fn previous_epoch(&self) -> BrokerEpoch {
        self.previous_epoch
    }

    /// The partitions' directories that nobody has opened.
    pub fn unopened(&self) -> Vec<TopicPartition> {
        self.found().keys().cloned().collect()
    }

    /// Opens or makes the logs of many partitions on several threads. The answers are in the order of the jobs.
    pub fn open_all(
        &self,
        jobs: &[(Replica, Arc<LogConfig>)],
        hosted: &[usize],
        threads: usize,
        now: TimestampMs,
    ) -> Vec<Result<Opened, OpenError>> {
        let counts = Mutex::new(hosted.to_vec());
        let next = AtomicUsize::new(0);
        let results: Mutex<Vec<Option<Result<Opened, OpenError>>>> =
            Mutex::new(std::iter::repeat_with(|| None).take(jobs.len()).collect());
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some((replica, config)) = jobs.get(at) else { break };
                let result = self.open(replica, config, &counts, now);
                lock(&results)[at] = Some(result);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.min(jobs.len()) {
                scope.spawn(work);
            }
            work();
        });
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.into_iter().map(|result| result.unwrap_or(Err(OpenError::NoDirectory))).collect()
    }

    fn open(
        &self,
        replica: &Replica,
        config: &Arc<LogConfig>,
        hosted: &Mutex<Vec<usize>>,
        now: TimestampMs,
    ) -> Result<Opened, OpenError> {
        let found = self.found().remove(&replica.name);
        let topic_id = replica.id.topic_id;
        if let Some(found) = found {
            let directory = self.directories[found.directory].clone();
            let dir = directory.path().join(replica.name.to_string());
            if found.topic_id.is_none_or(|of| of == topic_id) {
                let log = self.guarded(&directory, &dir, || {
                    if found.topic_id.is_none() {
                        write_partition_metadata(&*self.disk, &dir, topic_id)?;
                    }
                    self.open_found(&dir, config, &found, now)
                })?;
                return Ok(Opened { log, directory });
            }
            tracing::warn!("{} belongs to an older topic of that name; it is kept as a stray", dir.display());
            self.guarded(&directory, &dir, || Ok(self.set_aside(&dir, STRAY_SUFFIX).map(drop)?))?;
        }
        let directory = self.choose(replica, hosted)?;
        let dir = directory.path().join(replica.name.to_string());
        let log = self.guarded(&directory, &dir, || {
            self.disk.create_dir_all(&dir)?;
            write_partition_metadata(&*self.disk, &dir, topic_id)?;
            let args = OpenArgs {
                recovery_point: Offset::ZERO,
                log_start: Offset::ZERO,
                clean_shutdown: true,
                now,
                tail_budget: self.tail_budget.clone(),
            };
            Ok(Log::create(self.disk.clone(), &dir, config.clone(), &args)?)
        })?;
        Ok(Opened { log, directory })
    }

    fn open_found(
        &self,
        dir: &Path,
        config: &Arc<LogConfig>,
        found: &Found,
        now: TimestampMs,
    ) -> Result<Log, OpenError> {
        let args = OpenArgs {
            recovery_point: found.recovery_point,
            log_start: found.log_start,
            clean_shutdown: found.clean_shutdown,
            now,
            tail_budget: self.tail_budget.clone(),
        };
        let mut log = Log::open(self.disk.clone(), dir, config.clone(), &args)?;
        log.set_high_watermark(found.high_watermark);
        let recovered = log.recovered();
        if recovered.truncated_bytes > 0 {
            tracing::info!("{}: cut {} bytes of a torn tail", dir.display(), recovered.truncated_bytes);
        }
        if recovered.lost_flushed {
            tracing::error!("{}: batches that had been flushed are damaged", dir.display());
        }
        Ok(log)
    }

    /// Runs what a partition's directory must withstand; when the disk does not, the log directory fails. A full disk is no
    /// failure.
    fn guarded<T>(
        &self,
        directory: &Directory,
        dir: &Path,
        work: impl FnOnce() -> Result<T, OpenError>,
    ) -> Result<T, OpenError> {
        work().inspect_err(|error| {
            if !error.may_pass() {
                directory.fail(&format!("open {}", dir.display()), error);
            }
        })
    }

    /// The directory that the metadata names, else the one with the fewest partitions.
    fn choose(&self, replica: &Replica, hosted: &Mutex<Vec<usize>>) -> Result<Arc<Directory>, OpenError> {
        let named = |id: DirectoryId| self.directories.iter().find(move |directory| directory.id() == id);
        let mut assigned = replica.registration.directories.iter().filter_map(|id| named(*id));
        let mut hosted = lock(hosted);
        let online = self.directories.iter().filter(|directory| directory.is_online());
        let emptiest = online.min_by_key(|directory| hosted.get(directory.index()).copied().unwrap_or(0));
        let chosen = assigned.next().filter(|directory| directory.is_online()).or(emptiest);
        let chosen = chosen.ok_or(OpenError::NoDirectory)?;
        if let Some(count) = hosted.get_mut(chosen.index()) {
            *count += 1;
        }
        Ok(chosen.clone())
    }

    /// Takes a deleted partition's directory out of the way; its files go with [`remove`](Self::remove).
    pub fn retire(&self, dir: &Path) -> io::Result<PathBuf> {
        self.set_aside(dir, DELETE_SUFFIX)
    }

    /// Removes a directory that was set aside for deletion.
    pub fn remove(&self, dir: &Path) -> io::Result<()> {
        match self.disk.remove_dir_all(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// Directories of partitions whose deletion a stop has interrupted.
    pub fn interrupted_deletions(&self) -> Vec<PathBuf> {
        let mut dirs = Vec::new();
        for directory in self.directories.iter().filter(|directory| directory.is_online()) {
            let entries = self.disk.list(directory.path()).unwrap_or_default();
            let deleted =
                entries.into_iter().filter(|entry| entry.is_dir && entry.name.ends_with(DELETE_SUFFIX));
            dirs.extend(deleted.map(|entry| directory.path().join(entry.name)));
        }
        dirs
    }

    /// Kafka's name for it: `topic-partition.unique-suffix`, the topic cut where the name would be too long.
    fn set_aside(&self, dir: &Path, suffix: &str) -> io::Result<PathBuf> {
        let (Some(parent), Some(name)) = (dir.parent(), dir.file_name().and_then(|name| name.to_str()))
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let (topic, partition) = name.rsplit_once('-').unwrap_or((name, "0"));
        let tail = format!("-{partition}.{}{suffix}", Uuid::new_v4().simple());
        let topic = &topic[..topic.len().min(NAME_MAX - tail.len())];
        let aside = parent.join(format!("{topic}{tail}"));
        self.disk.rename(dir, &aside)?;
        self.disk.sync_dir(parent)?;
        Ok(aside)
    }

    fn found(&self) -> MutexGuard<'_, HashMap<TopicPartition, Found>> {
        lock(&self.found)
    }
}

/// Finds the partitions of one log directory; returns the epoch with which it was closed.
fn scan_directory(
    disk: &dyn Disk,
    directory: &Directory,
    found: &mut HashMap<TopicPartition, Found>,
) -> io::Result<BrokerEpoch> {
    let path = directory.path();
    let clean = read_clean_shutdown(disk, path)?;
    let [recovery, high, start] = OffsetCheckpoint::ALL.map(|which| {
        read_offsets(disk, path, which).unwrap_or_else(|error| {
            // Without it more is looked at and less is shown at first; nothing is lost.
            tracing::warn!("{} in {} is passed over: {error}", which.file_name(), path.display());
            HashMap::new()
        })
    });
    for entry in disk.list(path)?.into_iter().filter(|entry| entry.is_dir) {
        let Some(name) = partition_of(&entry.name) else { continue };
        let at =
            |offsets: &HashMap<TopicPartition, Offset>| offsets.get(&name).copied().unwrap_or(Offset::ZERO);
        let one = Found {
            directory: directory.index(),
            topic_id: read_partition_metadata(disk, &path.join(&entry.name))?,
            clean_shutdown: clean.is_some(),
            recovery_point: at(&recovery),
            high_watermark: at(&high),
            log_start: at(&start),
        };
        if let Some(other) = found.insert(name, one) {
            tracing::error!("{} is also in log directory {}; that is ignored", entry.name, other.directory);
        }
    }
    if remove_if_exists(disk, &path.join(CLEAN_SHUTDOWN_FILE))? {
        disk.sync_dir(path)?;
    }
    Ok(clean.map_or(BrokerEpoch::UNKNOWN, |clean| clean.broker_epoch))
}

/// The partition that a directory is named after; `None` for the metadata log and for what was set aside.
fn partition_of(name: &str) -> Option<TopicPartition> {
    let (topic, partition) = name.rsplit_once('-')?;
    let is_number = !partition.is_empty() && partition.bytes().all(|digit| digit.is_ascii_digit());
    if topic.is_empty() || topic == "__cluster_metadata" || !is_number {
        return None;
    }
    Some(TopicPartition::new(topic, partition.parse().ok()?))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
