//! A partition of which there is more than one log here: copies that are on their way to another directory, and what the end of
//! a process leaves of that.
//!
//! Must not know how copies are filled. Invariant: of what may be all that there is of a partition nothing is removed.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::super::directory::Directory;
use super::super::partitions::Partition;
use super::{Contents, LogDirs, OpenError, Opened, Retired, guarded};
use crate::metadata::reconcile::Replica;
use crate::storage::disk;
use crate::storage::log::{Log, LogConfig};
use crate::storage::log_dir::{Fate, PartitionDir, set_aside_for};
use crate::types::{TimestampMs, TopicIdPartition, TopicPartition, Uuid};

impl LogDirs {
    /// A move that ended together with the process, or the disk, may have left two logs of the partition. One of them has all that the
    /// other has, and is served; the other one is kept as a stray. Where it cannot be told which one, or the other would be found again
    /// later, none is: what is appended to one must never lack in the one that is served next.
    pub(super) fn compare_with_others(
        &self,
        first: Opened,
        replica: &Replica,
        config: &Arc<LogConfig>,
        now: TimestampMs,
    ) -> Result<Opened, OpenError> {
        let mut best = first;
        loop {
            let claimed = self.contents().claim_twin(replica);
            let Some((index, found)) = claimed else { return Ok(best) };
            let other = match self.open_claimed(index, found, replica, config, now) {
                Ok(other) => other,
                Err(error) => {
                    tracing::error!("A second log of {} cannot be opened", replica.name);
                    self.refuse_opened(best, replica);
                    return Err(if error.may_pass() { error } else { OpenError::Twin });
                }
            };
            let reach = |opened: &Opened| {
                let latest = opened.log.epochs().latest().map(|latest| latest.epoch);
                (latest, opened.log.log_end(), opened.log.log_start())
            };
            let twin = if reach(&other) > reach(&best) { std::mem::replace(&mut best, other) } else { other };
            match self.set_twin_aside(&twin.directory, replica) {
                Ok(path) => tracing::warn!(
                    "{} has less of {} than {}, and is kept as {}",
                    twin.directory.path().display(),
                    replica.name,
                    best.directory.path().display(),
                    path.display()
                ),
                Err(error) => {
                    self.refuse_opened(twin, replica);
                    self.refuse_opened(best, replica);
                    return Err(if error.may_pass() { error } else { OpenError::Twin });
                }
            }
        }
    }

    /// Takes a log out of the way of another one; durable when it returns.
    fn set_twin_aside(&self, directory: &Arc<Directory>, replica: &Replica) -> Result<PathBuf, OpenError> {
        let found = found_in(directory, replica);
        let path = guarded(directory, &found.path, || self.take_away(directory, &found, Fate::Stray))?;
        if let Err(error) = directory.dir().sync() {
            // Whether it has its name after a crash is not known.
            directory.fail(&format!("set {} aside", found.path.display()), &error);
            return Err(OpenError::Twin);
        }
        Ok(path)
    }

    /// A log that was opened is not served. The next attempt must find it again.
    fn refuse_opened(&self, opened: Opened, replica: &Replica) {
        let Opened { log, directory, .. } = opened;
        drop(log);
        let found = found_in(&directory, replica);
        if self.disk.stat(&found.path).is_ok() {
            self.contents().refuse(directory.index(), found);
        }
    }

    /// A copy of a log that is nowhere becomes the log: the process ended when the log had given up its name, and the copy, which was
    /// whole, had not got it yet. Not while the log may lie in a directory that is out of service: the copy may lack records of it. Unless
    /// what it gave its name up for lies here.
    pub(super) fn open_orphan(
        &self,
        replica: &Replica,
        config: &Arc<LogConfig>,
        now: TimestampMs,
    ) -> Result<Option<Opened>, OpenError> {
        let claimed = self.contents().claim_future(replica, |index| self.is_named(replica, index));
        let Some((index, found)) = claimed else { return Ok(None) };
        let directory = &self.directories[index];
        // The log's name must not come back once something is appended to this one. A directory that cannot promise that fails.
        self.sync((0..self.directories.len()).filter(|index| self.directories[*index].is_online()).collect());
        let is_online = |index: usize| self.directories[index].is_online();
        let is_whole = is_online(index) && self.contents().has_given_way(&found, is_online);
        if self.any_is_out_of_service() && !is_whole {
            self.contents().futures.push((index, found));
            let is_announced = (0..self.directories.len())
                .any(|index| self.is_named(replica, index) && self.directories[index].is_online());
            return Err(if is_announced { OpenError::AnnouncedCopyAlone } else { OpenError::CopyAlone });
        }
        let lives = guarded(directory, &found.path, || Ok(directory.dir().make_live(&found)?));
        let lives = lives.inspect_err(|_| self.contents().futures.push((index, found.clone())))?;
        tracing::warn!("{} is all that there is of {}, and is served", found.path.display(), replica.name);
        self.open_claimed(index, lives, replica, config, now).map(Some)
    }

    /// Takes out some of the copies that were found at the start and that nobody has gone on with.
    pub fn claim_copies(
        &self,
        mut is_wanted: impl FnMut(&PartitionDir) -> bool,
    ) -> Vec<(Arc<Directory>, PartitionDir)> {
        let mut contents = self.contents();
        let claimed = contents.futures.extract_if(.., |(_, found)| is_wanted(found));
        claimed.map(|(index, found)| (self.directories[index].clone(), found)).collect()
    }

    /// Notes a copy that is left where it is until the next start.
    pub fn leave_copy(&self, directory: &Directory, found: PartitionDir) {
        self.contents().futures.push((directory.index(), found));
    }

    /// Sets aside what was found of copies of a partition that is deleted.
    pub(super) fn retire_copies(&self, id: &TopicIdPartition, name: &TopicPartition) -> Vec<Retired> {
        let is_of = |found: &PartitionDir| found.partition == *name && found.topic_id == Some(id.topic_id);
        let mut retired = Vec::new();
        for (directory, found) in self.claim_copies(is_of) {
            if !directory.is_online() {
                self.leave_copy(&directory, found);
                continue;
            }
            self.forget(&directory, name);
            self.contents().have_replaced = true;
            match self.retire_found(&directory, &found) {
                Ok(files) => retired.extend(files),
                // It is found again at the next start, and removed then.
                Err(error) => tracing::warn!("Could not delete {}: {error}", found.path.display()),
            }
        }
        retired
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
            let log = dir.create_at(
                &partition.name,
                &path,
                topic_id,
                log_start,
                config,
                now,
                self.budgets.clone(),
            )?;
            Ok(log.into_copy())
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
        let dir = directory.dir();
        guarded(directory, &found.path, || {
            let log = dir.open_log(found, config, now, self.budgets.clone())?;
            // It grows before anybody writes the checkpoints.
            let lowered = dir.offsets().lower(&found.partition, log.log_end());
            drop(lowered.map_err(OpenError::Io)?);
            Ok(log.into_copy())
        })
    }

    /// Where the log of a partition lies when it lies in this directory.
    pub fn path_in(&self, directory: &Directory, partition: &TopicPartition) -> PathBuf {
        directory.dir().path_of(partition)
    }

    /// A name for a log in the directory whose place a copy takes. A later start removes what has it, and knows by it that the copy
    /// is whole.
    pub fn path_aside(&self, directory: &Directory, partition: &TopicPartition, copy: &Log) -> PathBuf {
        let copy = copy.dir();
        match copy.file_name().and_then(OsStr::to_str).and_then(set_aside_for) {
            Some(name) => directory.path().join(name),
            None => directory.dir().path_for(partition, Fate::Delete, Uuid::new_v4()),
        }
    }

    /// Whether the directory has nothing of the name of a partition.
    pub fn is_free(&self, directory: &Directory, partition: &TopicPartition) -> Result<bool, OpenError> {
        let path = directory.dir().path_of(partition);
        match self.disk.stat(&path) {
            Ok(_) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => guarded(directory, &path, || Err(error.into())),
        }
    }

    /// A log that was set aside already, to be removed.
    pub fn as_retired(&self, directory: &Arc<Directory>, log: &Log) -> Retired {
        Retired { directory: directory.clone(), path: log.dir() }
    }

    /// A copy in the directory could not be closed in an orderly way.
    pub fn note_incomplete(&self, directory: &Directory, partition: &TopicPartition) {
        self.contents().refused.insert((directory.index(), partition.clone()));
    }

    /// Sets a copy aside that is not wanted any more. Durable when it returns. `None` when it is gone already, for there was not even room for a new name.
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

/// The directory of a partition's log in a log directory.
fn found_in(directory: &Directory, replica: &Replica) -> PartitionDir {
    PartitionDir {
        partition: replica.name.clone(),
        fate: Fate::Live,
        path: directory.dir().path_of(&replica.name),
        topic_id: Some(replica.id.topic_id),
    }
}

impl Contents {
    /// Whether the log that this is a copy of has given up its name for it, in a directory that can be trusted.
    fn has_given_way(&self, copy: &PartitionDir, is_online: impl Fn(usize) -> bool) -> bool {
        let name = |found: &PartitionDir| Some(found.path.file_name()?.to_str()?.to_owned());
        let aside = name(copy).and_then(|name| set_aside_for(&name));
        aside.is_some() && self.retired.iter().any(|(index, gone)| name(gone) == aside && is_online(*index))
    }

    /// Takes out another directory of a topic of which one has been opened.
    pub(super) fn claim_twin(&mut self, replica: &Replica) -> Option<(usize, PartitionDir)> {
        let same_name = self.unopened.get(&replica.name)?;
        let is_twin = |(_, found): &(usize, PartitionDir)| found.topic_id == Some(replica.id.topic_id);
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
