//! All log directories of this broker: which partitions lie where, and their logs opened, made, retired.
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
use crate::storage::checkpoint::write_partition_metadata;
use crate::storage::disk::{Disk, Space};
use crate::storage::log::{Log, LogConfig, LogError, TailBudget};
use crate::storage::log_dir::{Fate, LogDirError, PartitionDir};
use crate::types::{BrokerEpoch, DirectoryId, TimestampMs, TopicPartition, Uuid};

/// The log directories and what was found in them.
#[derive(Debug)]
pub struct LogDirs {
    disk: Arc<dyn Disk>,
    directories: Vec<Arc<Directory>>,
    tail_budget: Arc<TailBudget>,
    contents: Mutex<Contents>,
}

/// What lies in the directories and is not in use.
#[derive(Debug, Default)]
struct Contents {
    /// Partitions that nobody has opened yet, with the index of their directory.
    unopened: HashMap<TopicPartition, (usize, PartitionDir)>,
    /// Partitions whose deletion a stop has interrupted.
    retired: Vec<(usize, PathBuf)>,
}

/// A log to serve, and where it lies.
#[derive(Debug)]
pub struct Opened {
    pub log: Log,
    pub directory: Arc<Directory>,
}

/// A deleted partition's files.
#[derive(Debug)]
pub struct Retired {
    directory: Arc<Directory>,
    path: PathBuf,
}

/// Why a partition cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("no log directory is in service")]
    NoDirectory,
    #[error(transparent)]
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
    /// Looks into the log directories.
    pub fn scan(
        disk: Arc<dyn Disk>,
        directories: Vec<Arc<Directory>>,
        tail_budget: Arc<TailBudget>,
    ) -> LogDirs {
        let mut contents = Contents::default();
        for directory in &directories {
            if let Err(error) = contents.take_in(directory) {
                directory.fail("look into it", &error);
            }
        }
        LogDirs { disk, directories, tail_budget, contents: Mutex::new(contents) }
    }

    pub fn directories(&self) -> &[Arc<Directory>] {
        &self.directories
    }

    /// The epoch that this broker had when it last stopped, if it lost nothing since (KIP-966): all directories were left in an
    /// orderly way, and by the same registration.
    pub fn previous_epoch(&self) -> BrokerEpoch {
        let epoch =
            |directory: &Arc<Directory>| directory.dir().clean_shutdown().map(|clean| clean.broker_epoch);
        let first = self.directories.first().and_then(epoch);
        let all_agree = self.directories.iter().all(|directory| epoch(directory) == first);
        first.filter(|_| all_agree).unwrap_or(BrokerEpoch::UNKNOWN)
    }

    /// The partitions in the directories that nobody has opened.
    pub fn unopened(&self) -> Vec<TopicPartition> {
        self.contents().unopened.keys().cloned().collect()
    }

    /// How large the volume of a log directory is, and what is free on it.
    pub fn space(&self, directory: &Directory) -> io::Result<Space> {
        self.disk.space(directory.path())
    }

    /// Opens or makes the logs of many partitions on several threads. `hosted` says how many partitions each directory has. The
    /// answers are in the order of the jobs.
    pub fn open_all(
        &self,
        jobs: &[(Replica, Arc<LogConfig>)],
        hosted: Vec<usize>,
        threads: usize,
        now: TimestampMs,
    ) -> Vec<Result<Opened, OpenError>> {
        let hosted = Mutex::new(hosted);
        let next = AtomicUsize::new(0);
        let results: Mutex<Vec<Option<Result<Opened, OpenError>>>> =
            Mutex::new(std::iter::repeat_with(|| None).take(jobs.len()).collect());
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some((replica, config)) = jobs.get(at) else { break };
                let result = self.open(replica, config, &hosted, now);
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
        let found = self.contents().unopened.remove(&replica.name);
        if let Some((index, found)) = found {
            let directory = self.directories[index].clone();
            if found.topic_id.is_none_or(|of| of == replica.id.topic_id) {
                let log = guarded(&directory, &found.path, || {
                    self.open_found(&directory, &found, replica, config, now)
                })?;
                return Ok(Opened { log, directory });
            }
            tracing::warn!(
                "{} belongs to an older topic of that name; kept as a stray",
                found.path.display()
            );
            let retire = || Ok(directory.dir().retire(&replica.name, Fate::Stray, Uuid::new_v4())?);
            guarded(&directory, &found.path, retire)?;
        }
        let directory = self.choose(replica, hosted)?;
        let (dir, topic_id) = (directory.dir(), replica.id.topic_id);
        let create =
            || Ok(dir.create_log(&replica.name, topic_id, config.clone(), now, self.tail_budget.clone())?);
        let log = guarded(&directory, &dir.path_of(&replica.name), create)?;
        Ok(Opened { log, directory })
    }

    fn open_found(
        &self,
        directory: &Directory,
        found: &PartitionDir,
        replica: &Replica,
        config: &Arc<LogConfig>,
        now: TimestampMs,
    ) -> Result<Log, OpenError> {
        if found.topic_id.is_none() {
            // A broker of before KIP-516 made it, or a stop interrupted its making.
            write_partition_metadata(&*self.disk, &found.path, replica.id.topic_id)?;
        }
        let log = directory.dir().open_log(found, config.clone(), now, self.tail_budget.clone())?;
        let recovered = log.recovered();
        if recovered.truncated_bytes > 0 {
            tracing::info!(
                "{}: cut {} bytes of a torn tail",
                found.path.display(),
                recovered.truncated_bytes
            );
        }
        if recovered.lost_flushed {
            tracing::error!("{}: batches that had been flushed are damaged", found.path.display());
        }
        Ok(log)
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

    /// Takes a deleted partition's directory out of the way, so that its name can be used again.
    pub fn retire(&self, directory: &Arc<Directory>, partition: &TopicPartition) -> io::Result<Retired> {
        let path = directory.dir().retire(partition, Fate::Delete, Uuid::new_v4())?;
        Ok(Retired { directory: directory.clone(), path })
    }

    /// Removes the files of deleted partitions.
    pub fn remove(&self, retired: &[Retired]) {
        for Retired { directory, path } in retired {
            match directory.dir().remove(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!("Could not remove {}: {error}", path.display());
                }
                _ => {}
            }
        }
    }

    /// Partitions whose deletion a stop has interrupted; the second call has none.
    pub fn take_interrupted(&self) -> Vec<Retired> {
        let retired = std::mem::take(&mut self.contents().retired);
        retired
            .into_iter()
            .map(|(index, path)| Retired { directory: self.directories[index].clone(), path })
            .collect()
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        lock(&self.contents)
    }
}

impl Contents {
    fn take_in(&mut self, directory: &Directory) -> Result<(), LogDirError> {
        for found in directory.dir().list()?.partitions {
            match found.fate {
                Fate::Live => {
                    let path = found.path.clone();
                    let other = self.unopened.insert(found.partition.clone(), (directory.index(), found));
                    if let Some((_, other)) = other {
                        tracing::error!(
                            "{} is also {}; that is ignored",
                            path.display(),
                            other.path.display()
                        );
                    }
                }
                Fate::Delete => self.retired.push((directory.index(), found.path)),
                Fate::Future | Fate::Stray => {}
            }
        }
        Ok(())
    }
}

/// Runs what a partition's directory must withstand; when the disk does not, the log directory fails. A full disk is no
/// failure.
fn guarded<T>(
    directory: &Directory,
    path: &Path,
    work: impl FnOnce() -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    work().inspect_err(|error| {
        if !error.may_pass() {
            directory.fail(&format!("open {}", path.display()), error);
        }
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
