//! All log directories of this broker: which partitions lie where, and their logs opened, made, retired.
//!
//! Blocks on the disk, so it is called on threads that may. Must not know leaders or shards. Invariants: a partition's directory is
//! opened only for the topic whose id it carries; nothing that is not known to be deleted is removed (see
//! [`LogDirs::clear`]); a partition is not made anew while its log may lie in a directory that is out of service, or lies here and could not be opened.

mod copies;
mod left;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::blocking;
use super::directory::Directory;
use crate::config::BrokerConfig;
use crate::metadata::Image;
use crate::metadata::reconcile::{Replica, is_held};
use crate::storage::checkpoint::{OffsetCheckpoint, write_partition_metadata};
use crate::storage::disk::{self, Disk, Space};
use crate::storage::log::names::{self, FileName, Kind};
use crate::storage::log::{Budgets, Log, LogConfig, LogError};
use crate::storage::log_dir::{Fate, LogDirError, PartitionDir};
use crate::types::{
    BrokerEpoch, DirectoryId, NodeId, Offset, TimestampMs, TopicId, TopicIdPartition, TopicPartition, Uuid,
    directory_id,
};

/// The log directories and what was found in them.
#[derive(Debug)]
pub struct LogDirs {
    me: NodeId,
    disk: Arc<dyn Disk>,
    directories: Vec<Arc<Directory>>,
    /// Those of `log.dirs` that could not be taken at the start. What lies there is not known.
    lost: Vec<PathBuf>,
    budgets: Budgets,
    contents: Mutex<Contents>,
}

/// What lies in the directories and is not in use.
#[derive(Debug, Default)]
struct Contents {
    /// Partitions that nobody has opened yet, with the index of their directory. A name may be there more than once: its
    /// topic was deleted and made anew while one of the directories was out of service.
    unopened: HashMap<TopicPartition, Vec<(usize, PartitionDir)>>,
    /// What this broker should serve and could not open at the last attempt, wherever it lies.
    unserved: HashSet<TopicPartition>,
    /// Those of them that should have been opened and could not be.
    refused: HashSet<(usize, TopicPartition)>,
    /// Everything that was found at the start and has not been set aside since, whether it is open or not.
    found: HashSet<(usize, TopicPartition)>,
    /// Directories were set aside, of which the checkpoints still tell.
    have_replaced: bool,
    /// What was set aside to be removed, and a stop has interrupted that.
    retired: Vec<(usize, PartitionDir)>,
    /// Copies that a stop has kept from taking the place of their partitions' logs.
    futures: Vec<(usize, PartitionDir)>,
    /// In which directories clients want partitions that are not here yet.
    preferred: HashMap<TopicPartition, usize>,
}

/// What is known of a path of which somebody says that it is a log directory.
#[derive(Clone, Debug)]
pub enum Named {
    Online(Arc<Directory>),
    Offline,
    Unknown,
}

/// So many wishes for directories of partitions that do not exist are remembered.
const PREFERRED_MAX: usize = 100_000;

/// What goes into the choice of a directory for a new partition.
#[derive(Debug)]
pub struct Placement {
    /// How many partitions each directory has.
    hosted: Vec<usize>,
    /// Which directories take no new ones.
    cordoned: Vec<bool>,
    /// The partitions to open were not assigned to this broker before it started.
    are_new: bool,
}

impl Placement {
    fn rank(&self, directory: &Directory) -> (bool, usize) {
        let index = directory.index();
        (self.cordoned.get(index) == Some(&true), self.hosted.get(index).copied().unwrap_or(0))
    }
}

/// A log to serve, and where it lies.
#[derive(Debug)]
pub struct Opened {
    pub log: Log,
    pub directory: Arc<Directory>,
    /// What is below was compacted.
    pub cleaned: Option<Offset>,
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
    /// It is not made anew elsewhere: its records may come back with the directory.
    #[error("its log is not found, and may lie in a directory that is out of service")]
    Elsewhere,
    /// The same, and the cluster believes that it is in one that is in service.
    #[error(
        "its log is not where the cluster believes it to be, and may lie in a directory that is out of service"
    )]
    NotWhereNamed,
    #[error("there is an unfinished copy of its log, which may lie in a directory that is out of service")]
    CopyAlone,
    /// The same, and the cluster believes that the copy is the log.
    #[error(
        "there is an unfinished copy of its log, for which the cluster takes it, and the log may lie in a directory that \
         is out of service"
    )]
    AnnouncedCopyAlone,
    #[error("there is another log of it, and it is not certain that it would not be found again")]
    Twin,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Log(#[from] LogError),
}

impl OpenError {
    /// Whether another attempt may go better: there was no room.
    pub fn may_pass(&self) -> bool {
        match self {
            OpenError::Io(error) => disk::is_full(error),
            OpenError::Log(LogError::Io { error, .. }) => disk::is_full(error),
            OpenError::Log(error) => matches!(error, LogError::DiskFull),
            OpenError::NoDirectory
            | OpenError::Elsewhere
            | OpenError::NotWhereNamed
            | OpenError::CopyAlone
            | OpenError::AnnouncedCopyAlone
            | OpenError::Twin => false,
        }
    }
}

impl LogDirs {
    /// Looks into the log directories. `lost` are those of `log.dirs` that are not among them.
    pub fn scan(
        me: NodeId,
        disk: Arc<dyn Disk>,
        directories: Vec<Arc<Directory>>,
        lost: Vec<PathBuf>,
        budgets: Budgets,
    ) -> LogDirs {
        let mut contents = Contents::default();
        for directory in &directories {
            for error in directory.dir().offsets().malformed() {
                tracing::error!("{error}. Logs are recovered as if this file were missing");
            }
            if let Err(error) = contents.take_in(directory) {
                directory.fail("look into it", &error);
            }
        }
        LogDirs { me, disk, directories, lost, budgets, contents: Mutex::new(contents) }
    }

    pub fn directories(&self) -> &[Arc<Directory>] {
        &self.directories
    }

    /// The directories that are out of service since before this broker began.
    pub fn lost(&self) -> &[PathBuf] {
        &self.lost
    }

    /// The log directory that has this absolute path.
    pub fn named(&self, path: &Path) -> Named {
        let is_it = |dir: &Path| {
            std::path::absolute(dir).is_ok_and(|absolute| absolute.as_os_str() == path.as_os_str())
        };
        match self.directories.iter().find(|directory| is_it(directory.path())) {
            Some(directory) if directory.is_online() => Named::Online(directory.clone()),
            Some(_) => Named::Offline,
            None if self.lost.iter().any(|dir| is_it(dir)) => Named::Offline,
            None => Named::Unknown,
        }
    }

    /// Remembers where to make a partition that is not here.
    pub fn prefer(&self, partition: TopicPartition, directory: &Directory) {
        let preferred = &mut self.contents().preferred;
        if preferred.len() < PREFERRED_MAX || preferred.contains_key(&partition) {
            preferred.insert(partition, directory.index());
        }
    }

    pub fn any_is_out_of_service(&self) -> bool {
        !self.lost.is_empty() || self.directories.iter().any(|directory| !directory.is_online())
    }

    /// The epoch that this broker had when it last stopped, if it lost nothing since (KIP-966): all directories were left in an
    /// orderly way, and by the same registration.
    pub fn previous_epoch(&self) -> BrokerEpoch {
        let epoch =
            |directory: &Arc<Directory>| directory.dir().clean_shutdown().map(|clean| clean.broker_epoch);
        let first = self.directories.first().and_then(epoch);
        let all_agree =
            self.lost.is_empty() && self.directories.iter().all(|directory| epoch(directory) == first);
        first.filter(|_| all_agree).unwrap_or(BrokerEpoch::UNKNOWN)
    }

    /// The partitions in the directories that nobody has opened.
    pub fn unopened(&self) -> Vec<TopicPartition> {
        let contents = self.contents();
        contents.unopened.values().flatten().map(|(_, found)| found.partition.clone()).collect()
    }

    /// Whether a partition that lies in the directory should be served and could not be opened: what an unclean stop has left
    /// of it has not been looked at yet.
    pub fn has_unrecovered(&self, directory: &Directory) -> bool {
        let contents = self.contents();
        let is_refused = contents.refused.iter().any(|(index, _)| *index == directory.index());
        // Nor has a copy that nobody has gone on with.
        is_refused || contents.futures.iter().any(|(index, _)| *index == directory.index())
    }

    /// The partitions that were found in the directory at the start and are still there. Of those that are not open, what the
    /// checkpoints say is all that is known, and must be said again.
    pub fn found_in(&self, directory: &Directory) -> HashSet<TopicPartition> {
        let contents = self.contents();
        let here = contents.found.iter().filter(|(index, _)| *index == directory.index());
        here.map(|(_, name)| name.clone()).collect()
    }

    /// The partition is about to be set aside; what was known of it at the start says nothing of the next one of its name.
    pub fn forget(&self, directory: &Directory, partition: &TopicPartition) {
        self.contents().found.remove(&(directory.index(), partition.clone()));
    }

    /// How large the volume of a log directory is, and what is free on it.
    pub fn space(&self, directory: &Directory) -> io::Result<Space> {
        self.disk.space(directory.path())
    }

    /// What placement goes by now, with the indexes of the directories of the partitions that are `hosted` already.
    pub fn placement(
        &self,
        config: &BrokerConfig,
        hosted: impl Iterator<Item = usize>,
        are_new: bool,
    ) -> Placement {
        let mut counts = vec![0; self.directories.len()];
        for index in hosted {
            counts[index] += 1;
        }
        let cordoned = self.directories.iter().map(|directory| config.cordons(directory.path())).collect();
        Placement { hosted: counts, cordoned, are_new }
    }

    /// Opens or makes the logs of many partitions on several threads. The answers are in the order of the jobs.
    pub fn open_all(
        &self,
        jobs: &[(Replica, Arc<LogConfig>)],
        placement: Placement,
        threads: usize,
        now: TimestampMs,
    ) -> Vec<Result<Opened, OpenError>> {
        let placement = Mutex::new(placement);
        in_parallel(jobs, blocking::threads(threads), |(replica, config)| {
            self.open(replica, config, &placement, now)
        })
    }

    fn open(
        &self,
        replica: &Replica,
        config: &Arc<LogConfig>,
        placement: &Mutex<Placement>,
        now: TimestampMs,
    ) -> Result<Opened, OpenError> {
        let opened = self.find_or_make(replica, config, placement, now);
        let unserved = &mut self.contents().unserved;
        if opened.is_ok() {
            unserved.remove(&replica.name)
        } else {
            unserved.insert(replica.name.clone())
        };
        opened
    }

    fn find_or_make(
        &self,
        replica: &Replica,
        config: &Arc<LogConfig>,
        placement: &Mutex<Placement>,
        now: TimestampMs,
    ) -> Result<Opened, OpenError> {
        let claimed = self.contents().claim(replica, |index| self.is_named(replica, index));
        if let Some((index, found)) = claimed {
            let opened = self.open_claimed(index, found, replica, config, now)?;
            return self.compare_with_others(opened, replica, config, now);
        }
        self.set_aside(replica)?;
        if let Some(opened) = self.open_orphan(replica, config, now)? {
            return Ok(opened);
        }
        let directory = self.choose(replica, &mut lock(placement))?;
        let (dir, topic_id) = (directory.dir(), replica.id.topic_id);
        let create =
            || Ok(dir.create_log(&replica.name, topic_id, config.clone(), now, self.budgets.clone())?);
        let log = guarded(&directory, &dir.path_of(&replica.name), create)?;
        Ok(Opened { log, directory, cleaned: None })
    }

    fn open_claimed(
        &self,
        index: usize,
        found: PartitionDir,
        replica: &Replica,
        config: &Arc<LogConfig>,
        now: TimestampMs,
    ) -> Result<Opened, OpenError> {
        let directory = self.directories[index].clone();
        let opened =
            guarded(&directory, &found.path, || self.open_found(&directory, &found, replica, config, now));
        match opened {
            Ok(log) => {
                let cleaned = directory.dir().offsets().said(OffsetCheckpoint::Cleaner, &replica.name);
                Ok(Opened { log, directory, cleaned })
            }
            Err(error) => {
                // The next attempt must find it again.
                self.contents().refuse(index, found);
                Err(error)
            }
        }
    }

    /// Takes the directories out of the way that this broker should not have, before it registers: `image` is current and has
    /// the registration of the process before. Comes with those that are to be removed.
    ///
    /// A broker that was away while a topic was deleted does not hear of it, and finds a directory that the metadata does not
    /// know. That alone is no reason to remove it: the metadata may have been begun anew, or the directory put there by
    /// somebody. But where the metadata knows the log directory, an earlier process has cleared it under this same
    /// metadata; and a partition that its checkpoints name was served by that process. So it was deleted since, or given to
    /// others. Whatever cannot be shown to be so is kept as a stray, as Kafka keeps all of them.
    pub fn clear(&self, image: &Image) -> Vec<Retired> {
        let is_stray = |(_, found): &mut (usize, PartitionDir)| {
            !is_held(self.me, &image.topics, &found.partition, found.topic_id)
        };
        let mut strays = Vec::new();
        self.contents().unopened.retain(|_, same_name| {
            strays.extend(same_name.extract_if(.., &is_stray));
            !same_name.is_empty()
        });
        strays.extend(self.contents().futures.extract_if(.., &is_stray));
        let (mut retired, mut touched) = (Vec::new(), HashSet::new());
        for (index, found) in strays {
            let directory = &self.directories[index];
            let fate = if self.was_served(directory, &found, image) { Fate::Delete } else { Fate::Stray };
            match guarded(directory, &found.path, || self.take_away(directory, &found, fate)) {
                Ok(path) if fate == Fate::Delete => {
                    tracing::info!("{} was deleted while this broker was away", found.path.display());
                    retired.push(Retired { directory: directory.clone(), path });
                }
                Ok(path) => tracing::warn!(
                    "{} is of no partition that this broker holds, and kept as {}",
                    found.path.display(),
                    path.display()
                ),
                Err(_) if found.fate == Fate::Future => self.contents().futures.push((index, found)),
                Err(_) => drop(self.contents().put_back(index, found)),
            }
            touched.insert(index);
        }
        self.sync(touched);
        retired
    }

    /// Makes the names in these log directories durable.
    fn sync(&self, touched: HashSet<usize>) {
        for directory in touched.into_iter().map(|index| &self.directories[index]) {
            // What it means for the directory is dealt with.
            let _ = guarded(directory, directory.path(), || Ok(directory.dir().sync()?));
        }
    }

    /// Whether a process before this one has served the partition under the same metadata.
    fn was_served(&self, directory: &Directory, found: &PartitionDir, image: &Image) -> bool {
        let Some(registered) = image.brokers.get(self.me) else { return false };
        let dir = directory.dir();
        // An epoch that is newer than the metadata means that the metadata was put back to an older state.
        let is_newer = dir.clean_shutdown().is_some_and(|clean| clean.broker_epoch > registered.epoch);
        let checkpoints = [OffsetCheckpoint::RecoveryPoint, OffsetCheckpoint::Replication];
        registered.directories.contains(&directory.id())
            && !is_newer
            && found.topic_id.is_some()
            && checkpoints.into_iter().any(|which| dir.offsets().said(which, &found.partition).is_some())
    }

    fn take_away(
        &self,
        directory: &Directory,
        found: &PartitionDir,
        fate: Fate,
    ) -> Result<PathBuf, OpenError> {
        let path = directory.dir().retire_from(&found.path, &found.partition, fate, Uuid::new_v4())?;
        self.contents().have_replaced = true;
        self.forget(directory, &found.partition);
        Ok(path)
    }

    /// Whether the checkpoints may say too much since the last call: directories were set aside whose names can be used again, or
    /// logs have less than what is said of them.
    pub fn take_replaced(&self) -> bool {
        let exceed = self.directories.iter().filter(|directory| directory.dir().take_excess()).count() > 0;
        std::mem::take(&mut self.contents().have_replaced) || exceed
    }

    /// Whether the metadata says that the partition lies in the directory with this index.
    fn is_named(&self, replica: &Replica, index: usize) -> bool {
        replica.registration.directory(self.me) == Some(self.directories[index].id())
    }

    /// Takes what older topics have left under the name of a partition out of its way.
    fn set_aside(&self, replica: &Replica) -> Result<(), OpenError> {
        loop {
            // Not in the condition of the loop, where the lock would be held all through its body.
            let popped = self.contents().pop(&replica.name);
            let Some((index, found)) = popped else { return Ok(()) };
            let directory = &self.directories[index];
            if !directory.is_online() {
                continue;
            }
            tracing::warn!(
                "{} belongs to an older topic of that name; kept as a stray",
                found.path.display()
            );
            let take_away = || self.take_away(directory, &found, Fate::Stray);
            if let Err(error) = guarded(directory, &found.path, take_away) {
                self.contents().put_back(index, found);
                return Err(error);
            }
            self.sync([index].into());
        }
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
        let offsets = directory.dir().offsets();
        let committed = offsets.said(OffsetCheckpoint::Replication, &found.partition);
        let log = directory.dir().open_log(found, config.clone(), now, self.budgets.clone())?;
        let recovered = log.recovered();
        if !recovered.foreign.is_empty() {
            tracing::warn!(
                "{} holds what is none of a partition's files, and is kept: {}",
                found.path.display(),
                recovered.foreign
            );
        }
        if recovered.lost_epochs {
            let path = found.path.join(names::LEADER_EPOCHS);
            tracing::error!("{} is damaged. It is made anew from the records", path.display());
        }
        if recovered.truncated_bytes > 0 {
            tracing::info!(
                "{}: cut {} bytes of a torn tail",
                found.path.display(),
                recovered.truncated_bytes
            );
        }
        let committed = committed.filter(|committed| *committed > log.log_end());
        if recovered.lost_flushed || committed.is_some() {
            let name = |base| FileName::live(base, Kind::Log).path(&found.path);
            let at =
                recovered.cut_at.map(|(base, position)| format!("{} at {position}", name(base).display()));
            let upto = committed.map(|committed| format!("; it was committed up to {committed}"));
            tracing::error!(
                "{}: batches that had been flushed are damaged or missing, and the log ends at {} now{}. What followed is \
                 lost unless another replica has it",
                at.unwrap_or_else(|| found.path.display().to_string()),
                log.log_end(),
                upto.unwrap_or_default()
            );
        }
        Ok(log)
    }

    /// Where to make a partition: in the directory that a client wants, or that the metadata names, else in the one with the fewest partitions that
    /// takes new ones, else in any. Not at all when it may have been made before.
    fn choose(&self, replica: &Replica, placement: &mut Placement) -> Result<Arc<Directory>, OpenError> {
        let online = || self.directories.iter().filter(|directory| directory.is_online());
        let assigned = replica.registration.directory(self.me).unwrap_or(directory_id::UNASSIGNED);
        let named = online().find(|directory| directory.id() == assigned);
        let is_new = placement.are_new && (named.is_some() || !is_known(assigned));
        if !is_new && self.any_is_out_of_service() {
            // The metadata names the directory that a partition is being moved to before its log is there.
            return Err(if named.is_some() { OpenError::NotWhereNamed } else { OpenError::Elsewhere });
        }
        let preferred = self.contents().preferred.remove(&replica.name);
        let preferred = online().find(|directory| Some(directory.index()) == preferred);
        let emptiest = || online().min_by_key(|directory| placement.rank(directory));
        let chosen = preferred.or(named).or_else(emptiest).ok_or(OpenError::NoDirectory)?;
        if let Some(count) = placement.hosted.get_mut(chosen.index()) {
            *count += 1;
        }
        Ok(chosen.clone())
    }

    /// Takes a deleted partition's directory out of the way, so that its name can be used again. What is done to many is
    /// made durable by [`LogDirs::sync_retired`]. `None` when it is gone already, for there was not even room for a new name.
    pub fn retire(
        &self,
        directory: &Arc<Directory>,
        partition: &TopicPartition,
    ) -> io::Result<Option<Retired>> {
        match directory.dir().retire(partition, Fate::Delete, Uuid::new_v4()) {
            Err(error) if disk::is_full(&error) => {
                directory.dir().remove_in_place(partition)?;
                Ok(None)
            }
            path => Ok(Some(Retired { directory: directory.clone(), path: path? })),
        }
    }

    /// The same for a partition that could not be opened, wherever it lies.
    pub fn retire_unopened(&self, id: &TopicIdPartition, name: &TopicPartition) -> Vec<Retired> {
        let claimed = self.contents().claim_all(name, id.topic_id);
        let mut retired = self.retire_copies(id, name);
        self.contents().unserved.remove(name);
        for (index, found) in claimed {
            let directory = &self.directories[index];
            if !directory.is_online() {
                self.contents().refuse(index, found);
                continue;
            }
            self.forget(directory, name);
            match self.retire(directory, name) {
                Ok(files) => {
                    self.contents().have_replaced = true;
                    retired.extend(files);
                }
                // It is found again at the next start, and removed then.
                Err(error) => tracing::warn!("Could not delete {}: {error}", found.path.display()),
            }
        }
        retired
    }

    /// After partitions were retired. One sync of a directory is enough for all of them.
    pub fn sync_retired(&self, retired: &[Retired]) {
        self.sync(retired.iter().map(|retired| retired.directory.index()).collect());
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

    /// What was set aside and is to be removed, for a stop has interrupted that; the second call has none. What is left of a partition
    /// that is not served stays: its log may have given up its name for a copy that is away.
    pub fn take_interrupted(&self) -> Vec<Retired> {
        let contents = &mut *self.contents();
        let (unserved, unopened) = (&contents.unserved, &contents.unopened);
        let is_needed = |name: &TopicPartition| unserved.contains(name) || unopened.contains_key(name);
        let retired = contents.retired.extract_if(.., |(_, gone)| !is_needed(&gone.partition));
        let retired: Vec<Retired> = retired
            .map(|(index, gone)| Retired { directory: self.directories[index].clone(), path: gone.path })
            .collect();
        for (_, kept) in &contents.retired {
            tracing::warn!("{} is kept, for {} is not served", kept.path.display(), kept.partition);
        }
        retired
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        lock(&self.contents)
    }
}

impl Contents {
    /// Takes out the directory of a replica: of its topic rather than of an unknown one, and the one that the metadata names
    /// rather than another.
    fn claim(
        &mut self,
        replica: &Replica,
        is_named: impl Fn(usize) -> bool,
    ) -> Option<(usize, PartitionDir)> {
        let same_name = self.unopened.get_mut(&replica.name)?;
        let rank = |(index, found): &(usize, PartitionDir)| match found.topic_id {
            Some(of) if of != replica.id.topic_id => None,
            topic_id => Some((topic_id.is_some(), is_named(*index))),
        };
        let ranks = same_name.iter().map(rank).enumerate();
        let (at, _) = ranks.filter_map(|(at, rank)| Some((at, rank?))).max_by_key(|(_, rank)| *rank)?;
        let claimed = same_name.remove(at);
        if same_name.is_empty() {
            self.unopened.remove(&replica.name);
        }
        self.refused.remove(&(claimed.0, replica.name.clone()));
        Some(claimed)
    }

    /// Takes out all directories of a topic's partition.
    fn claim_all(&mut self, name: &TopicPartition, of: TopicId) -> Vec<(usize, PartitionDir)> {
        let Some(same_name) = self.unopened.get_mut(name) else { return Vec::new() };
        let claimed: Vec<_> = same_name.extract_if(.., |(_, found)| found.topic_id == Some(of)).collect();
        if same_name.is_empty() {
            self.unopened.remove(name);
        }
        for (index, _) in &claimed {
            self.refused.remove(&(*index, name.clone()));
        }
        claimed
    }

    fn pop(&mut self, name: &TopicPartition) -> Option<(usize, PartitionDir)> {
        let same_name = self.unopened.get_mut(name)?;
        let last = same_name.pop();
        if same_name.is_empty() {
            self.unopened.remove(name);
        }
        last
    }

    /// Notes a directory that nobody has opened; returns all of that name.
    fn put_back(&mut self, index: usize, found: PartitionDir) -> &[(usize, PartitionDir)] {
        let same_name = self.unopened.entry(found.partition.clone()).or_default();
        same_name.push((index, found));
        same_name
    }

    fn refuse(&mut self, index: usize, found: PartitionDir) {
        self.refused.insert((index, found.partition.clone()));
        self.put_back(index, found);
    }

    fn take_in(&mut self, directory: &Directory) -> Result<(), LogDirError> {
        let listing = directory.dir().list()?;
        if !listing.foreign.is_empty() {
            let path = directory.path().display();
            tracing::warn!(
                "{path} holds what is none of a log directory's, and is kept: {}",
                listing.foreign
            );
        }
        for found in listing.partitions {
            match found.fate {
                Fate::Live => {
                    let path = found.path.clone();
                    self.found.insert((directory.index(), found.partition.clone()));
                    let same_name = self.put_back(directory.index(), found);
                    if let [.., (_, other), _] = same_name {
                        tracing::warn!(
                            "{} is also {}; only one can be served",
                            path.display(),
                            other.path.display()
                        );
                    }
                }
                Fate::Delete => self.retired.push((directory.index(), found)),
                Fate::Future => {
                    self.found.insert((directory.index(), found.partition.clone()));
                    self.futures.push((directory.index(), found));
                }
                Fate::Stray => {}
            }
        }
        Ok(())
    }
}

/// Whether the metadata says where the partition lies.
fn is_known(assigned: DirectoryId) -> bool {
    !matches!(assigned, directory_id::UNASSIGNED | directory_id::MIGRATING)
}

/// Does the work for each job on up to `threads` threads; the results are in the order of the jobs.
fn in_parallel<J: Sync, R: Send>(jobs: &[J], threads: usize, work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(jobs.len()));
    let worker = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(at) else { break };
            let result = work(job);
            lock(&done).push((at, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(jobs.len()) {
            scope.spawn(worker);
        }
        worker();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
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

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn jobs_run_side_by_side_and_answer_in_their_order() {
        let all_at_once = Barrier::new(4);
        let jobs: Vec<usize> = (0..8).collect();
        let squares = in_parallel(&jobs, 4, |job| {
            all_at_once.wait();
            job * job
        });
        assert_eq!(squares, [0, 1, 4, 9, 16, 25, 36, 49]);
        assert_eq!(in_parallel(&jobs[..1], 4, |job| *job), [0]);
        assert_eq!(in_parallel(&jobs[..0], 4, |job| *job), [0; 0]);
    }
}
