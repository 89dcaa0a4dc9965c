//! A partition of which there is more than one log here: copies that are on their way to another directory, and what the end of
//! a process leaves of that.
//!
//! Must not know how copies are filled. Invariant: of what may be all that there is of a partition nothing is removed.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::super::directory::Directory;
use super::super::partitions::Partition;
use super::{Contents, LogDirs, OpenError, Opened, Retired, guarded};
use crate::metadata::reconcile::Replica;
use crate::storage::disk;
use crate::storage::log::{Log, LogConfig};
use crate::storage::log_dir::{Fate, PartitionDir};
use crate::types::{TimestampMs, TopicPartition, Uuid};

impl LogDirs {
    /// A move that ended together with the process may have left two logs of the partition. One of them has all that the other
    /// has, and is served; the other one is kept as a stray.
    pub(super) fn compare_with_others(
        &self,
        first: Opened,
        replica: &Replica,
        config: &Arc<LogConfig>,
        now: TimestampMs,
    ) -> Opened {
        let mut best = first;
        loop {
            let claimed = self.contents().claim_twin(replica);
            let Some((index, found)) = claimed else { return best };
            let Ok(other) = self.open_claimed(index, found, replica, config, now) else {
                tracing::error!("A second log of {} cannot be opened", replica.name);
                return best;
            };
            let reach = |opened: &Opened| {
                let latest = opened.log.epochs().latest().map(|latest| latest.epoch);
                (latest, opened.log.log_end(), opened.log.log_start())
            };
            let twin = if reach(&other) > reach(&best) { std::mem::replace(&mut best, other) } else { other };
            let Opened { log, directory, .. } = twin;
            drop(log);
            let found = PartitionDir {
                partition: replica.name.clone(),
                fate: Fate::Live,
                path: directory.dir().path_of(&replica.name),
                topic_id: Some(replica.id.topic_id),
            };
            match guarded(&directory, &found.path, || self.take_away(&directory, &found, Fate::Stray)) {
                Ok(path) => tracing::warn!(
                    "{} has less of {} than {}, and is kept as {}",
                    found.path.display(),
                    replica.name,
                    best.directory.path().display(),
                    path.display()
                ),
                Err(_) => drop(self.contents().put_back(directory.index(), found)),
            }
            self.sync([directory.index()].into());
        }
    }

    /// A copy of a log that is nowhere becomes the log. Not while the log may lie in a directory that is out of service: the copy may
    /// lack records of it.
    pub(super) fn take_orphan(&self, replica: &Replica) -> Result<Option<(usize, PartitionDir)>, OpenError> {
        let claimed = self.contents().claim_future(replica, |index| self.is_named(replica, index));
        let Some((index, found)) = claimed else { return Ok(None) };
        let directory = &self.directories[index];
        if self.any_is_out_of_service() {
            self.contents().futures.push((index, found));
            return Err(OpenError::CopyAlone);
        }
        let lives = guarded(directory, &found.path, || Ok(directory.dir().make_live(&found)?));
        let lives = lives.inspect_err(|_| self.contents().futures.push((index, found.clone())))?;
        tracing::warn!("{} is all that there is of {}, and is served", found.path.display(), replica.name);
        Ok(Some((index, lives)))
    }

    /// The copies that were found at the start and whose partitions may have a log besides.
    pub fn take_futures(&self) -> Vec<(Arc<Directory>, PartitionDir)> {
        let futures = std::mem::take(&mut self.contents().futures);
        futures.into_iter().map(|(index, found)| (self.directories[index].clone(), found)).collect()
    }

    /// Notes copies that are left where they are until the next start.
    pub fn leave_futures(&self, futures: Vec<(Arc<Directory>, PartitionDir)>) {
        let futures = futures.into_iter().map(|(directory, found)| (directory.index(), found));
        self.contents().futures.extend(futures);
    }

    /// Makes an empty copy of a log that starts at `log_start`.
    pub fn create_future(
        &self,
        directory: &Directory,
        partition: &Partition,
        now: TimestampMs,
    ) -> Result<Log, OpenError> {
        let dir = directory.dir();
        let path = dir.path_for(&partition.name, Fate::Future, Uuid::new_v4());
        let (topic_id, config) = (partition.id.topic_id, partition.log_config());
        let log_start = partition.view().log_start;
        guarded(directory, &path, || {
            Ok(dir.create_at(&path, topic_id, log_start, config, now, self.budgets.clone())?)
        })
    }

    /// Opens a copy that was found at the start.
    pub fn open_future(
        &self,
        directory: &Directory,
        found: &PartitionDir,
        config: Arc<LogConfig>,
        now: TimestampMs,
    ) -> Result<Log, OpenError> {
        let open = || Ok(directory.dir().open_log(found, config, now, self.budgets.clone())?);
        guarded(directory, &found.path, open)
    }

    /// Where the log of a partition lies when it lies in this directory.
    pub fn path_in(&self, directory: &Directory, partition: &TopicPartition) -> PathBuf {
        directory.dir().path_of(partition)
    }

    /// A copy in the directory could not be closed in an orderly way.
    pub fn note_incomplete(&self, directory: &Directory, partition: &TopicPartition) {
        self.contents().refused.insert((directory.index(), partition.clone()));
    }

    /// Sets a log aside that another one has taken the place of, or a copy that is not wanted any more. Whoever still reads it
    /// goes on reading it. Durable when it returns. `None` when it is gone already, for there was not even room for a new name.
    pub fn retire_log(
        &self,
        directory: &Arc<Directory>,
        partition: &Partition,
        log: &Log,
    ) -> io::Result<Option<Retired>> {
        let path = directory.dir().path_for(&partition.name, Fate::Delete, Uuid::new_v4());
        match log.rename(&path) {
            Err(error) if disk::is_full(&error) => {
                directory.dir().remove(&log.dir())?;
                return Ok(None);
            }
            renamed => renamed?,
        }
        directory.dir().sync()?;
        Ok(Some(Retired { directory: directory.clone(), path }))
    }

    /// The same for a copy that was found at the start and is not open.
    pub fn retire_found(
        &self,
        directory: &Arc<Directory>,
        found: &PartitionDir,
    ) -> io::Result<Option<Retired>> {
        let unique = Uuid::new_v4();
        match directory.dir().retire_from(&found.path, &found.partition, Fate::Delete, unique) {
            Err(error) if disk::is_full(&error) => {
                directory.dir().remove(&found.path)?;
                Ok(None)
            }
            path => Ok(Some(Retired { directory: directory.clone(), path: path? })),
        }
    }
}

impl Contents {
    /// Takes out another directory of a topic of which one has been opened.
    pub(super) fn claim_twin(&mut self, replica: &Replica) -> Option<(usize, PartitionDir)> {
        let same_name = self.unopened.get(&replica.name)?;
        let is_twin = |(index, found): &(usize, PartitionDir)| {
            let is_refused = self.refused.contains(&(*index, replica.name.clone()));
            found.topic_id == Some(replica.id.topic_id) && !is_refused
        };
        same_name.iter().any(is_twin).then(|| self.claim(replica, |_| false)).flatten()
    }

    /// Takes out an unfinished copy of a replica, the one in the directory that the metadata names rather than another.
    pub(super) fn claim_future(
        &mut self,
        replica: &Replica,
        is_named: impl Fn(usize) -> bool,
    ) -> Option<(usize, PartitionDir)> {
        let futures = self.futures.iter().enumerate();
        let of_replica = futures.filter(|(_, (_, found))| {
            found.partition == replica.name && found.topic_id == Some(replica.id.topic_id)
        });
        let (at, _) = of_replica.max_by_key(|(_, (index, _))| is_named(*index))?;
        Some(self.futures.remove(at))
    }
}
