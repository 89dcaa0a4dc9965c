//! Compacts the logs of topics with `cleanup.policy=compact`: threads that take the dirtiest log that is due, one after the
//! other.
//!
//! Must not know how a log is compacted. Invariants: a log is compacted by one thread at a time; one that cannot be compacted is
//! tried again later and later, and holds up no other.

mod pace;
mod uncleanable;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::checkpoints::Checkpoints;
use super::clock;
use super::directory::Directory;
use super::dynamic_config::DynamicConfig;
use super::messages::Compact;
use super::partitions::{Partition, Partitions};
use super::retention;
use crate::config::BrokerConfig;
use crate::metadata::topics::name::is_internal;
use crate::storage::checkpoint::OffsetCheckpoint;
use crate::storage::disk;
use crate::storage::log::compaction::{
    Basis, CleanError, CleanLimits, CleanStats, Cleaned, Dirt, MapLimits, Stopped, SwapError, Watch, clean,
};
use crate::types::{MonotonicMs, TopicIdPartition};
use pace::Pace;
use uncleanable::Telling;
pub use uncleanable::{Uncleanable, UncleanableByDir};

/// How long a log rests that could not be compacted; twice as long each further time.
const REST_MS: i64 = 30_000;
const REST_MAX_MS: i64 = 3_600_000;
/// The least that is read at a time, however many threads share the memory.
const CHUNK_MIN: usize = 16 << 10;

/// The threads. They end when this is stopped, or soon after it is dropped.
#[derive(Debug)]
pub struct Cleaner {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    partitions: Partitions,
    checkpoints: Arc<Checkpoints>,
    config: Arc<DynamicConfig>,
    /// Of the digests of keys.
    secret: u128,
    pace: Pace,
    state: Mutex<State>,
    /// Signalled for whoever sleeps: the threads are to end, or the configuration has changed.
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_stopping: bool,
    /// How often the configuration has changed.
    changes: u64,
    running: BTreeSet<usize>,
    threads: Vec<JoinHandle<()>>,
    busy: HashSet<TopicIdPartition>,
    /// Those that could not be compacted.
    resting: HashMap<TopicIdPartition, Rest>,
    /// Those of which something else came than a compaction, and until when others go first.
    passed_over: HashMap<TopicIdPartition, MonotonicMs>,
    telling: Telling,
}

/// A log that could not be compacted.
#[derive(Clone, Copy, Debug)]
struct Rest {
    until: MonotonicMs,
    ms: i64,
    lacks_room: bool,
    /// The same was said when it last failed.
    is_told: bool,
}

/// Why somebody who slept does not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    InTime,
    Changed,
    Stopping,
}

/// What the configuration says now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    threads: usize,
    backoff_ms: i64,
    limits: CleanLimits,
}

impl Settings {
    pub(super) fn new(config: &BrokerConfig, secret: u128) -> Settings {
        let enabled = config.log_cleaner_enable;
        let threads = usize::try_from(config.log_cleaner_threads).unwrap_or(0);
        let share = |bytes: i64| usize::try_from(bytes).unwrap_or(0) / threads.max(1);
        let map = MapLimits {
            bytes: share(config.log_cleaner_dedupe_buffer_size),
            load_factor: config.log_cleaner_io_buffer_load_factor,
            secret,
        };
        // One half to read, one to write.
        let chunk_bytes = (share(i64::from(config.log_cleaner_io_buffer_size)) / 2).max(CHUNK_MIN);
        Settings {
            threads: if enabled { threads } else { 0 },
            backoff_ms: config.log_cleaner_backoff_ms,
            limits: CleanLimits { map, chunk_bytes },
        }
    }
}

impl Cleaner {
    /// Starts the first thread, which starts the others as the configuration wants them. `secret` is known to nobody.
    pub fn start(
        partitions: Partitions,
        checkpoints: Arc<Checkpoints>,
        config: Arc<DynamicConfig>,
        secret: u128,
    ) -> io::Result<Cleaner> {
        let (pace, state, news) = Default::default();
        let shared = Arc::new(Shared { partitions, checkpoints, config, secret, pace, state, news });
        shared.spawn(0)?;
        let asleep = Arc::downgrade(&shared);
        shared.config.on_change(move || {
            if let Some(shared) = asleep.upgrade() {
                shared.wake();
            }
        });
        Ok(Cleaner { shared })
    }

    /// What cannot be compacted now. May have to look at the disk.
    pub fn uncleanable(&self) -> UncleanableByDir {
        self.shared.uncleanable()
    }

    /// Ends the threads, and waits for that. The shards must still be there.
    pub fn stop(self) {
        loop {
            let threads = {
                let mut state = self.shared.lock();
                state.is_stopping = true;
                std::mem::take(&mut state.threads)
            };
            self.shared.news.notify_all();
            if threads.is_empty() {
                return;
            }
            for thread in threads {
                // What it panicked of was told.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        self.shared.lock().is_stopping = true;
        self.shared.news.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        self.lock().is_stopping
    }

    /// The configuration has changed: it goes for those who sleep as well, and for those who are not there yet.
    fn wake(self: &Arc<Shared>) {
        self.lock().changes += 1;
        self.news.notify_all();
        self.spawn_others(&self.settings());
    }

    /// How often the configuration has changed; to be asked before it is looked at.
    fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Sleeps, unless the configuration has changed since there were so many changes.
    fn sleep(&self, time: Duration, changes: u64) -> Woken {
        let until = Instant::now() + time;
        let mut state = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if state.is_stopping {
                return Woken::Stopping;
            } else if state.changes != changes {
                return Woken::Changed;
            } else if left.is_zero() {
                return Woken::InTime;
            }
            state = self.news.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for as long as so many bytes take at the rate that is allowed. False when the threads are to end.
    fn keep_pace(&self, bytes: usize) -> bool {
        let rate = || self.config.latest().broker.log_cleaner_io_max_bytes_per_second;
        let (mut changes, allowed, now) = (self.changes(), rate(), Instant::now());
        let until = now + self.pace.spend(bytes, allowed, now);
        loop {
            match self.sleep(until.saturating_duration_since(Instant::now()), changes) {
                Woken::InTime => return true,
                Woken::Stopping => return false,
                Woken::Changed => changes = self.changes(),
            }
            if rate().to_bits() != allowed.to_bits() {
                // What was spent at another rate is not paid for at this one.
                self.pace.forgive();
                return true;
            }
        }
    }

    fn settings(&self) -> Settings {
        Settings::new(&self.config.latest().broker, self.secret)
    }

    fn spawn(self: &Arc<Shared>, index: usize) -> io::Result<()> {
        let mut state = self.lock();
        if state.is_stopping || !state.running.insert(index) {
            return Ok(());
        }
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name(format!("cleaner-{index}")).spawn(move || {
            shared.work(index);
            shared.lock().running.remove(&index);
        });
        match thread {
            Ok(thread) => state.threads.push(thread),
            Err(error) => {
                state.running.remove(&index);
                return Err(error);
            }
        }
        Ok(())
    }

    fn spawn_others(self: &Arc<Shared>, settings: &Settings) {
        for other in 1..settings.threads {
            if let Err(error) = self.spawn(other) {
                tracing::warn!("Could not start a thread for compaction: {error}");
            }
        }
    }

    /// The body of a thread. The first one sees to it that there are as many as there should be.
    fn work(self: &Arc<Shared>, index: usize) {
        while !self.is_stopping() {
            let changes = self.changes();
            let settings = self.settings();
            if index == 0 {
                self.spawn_others(&settings);
                self.tell_uncleanable();
            } else if index >= settings.threads {
                return;
            }
            if index < settings.threads && self.compact_one(&settings) {
                continue;
            }
            if index == 0 {
                // Of compacted logs as well, segments may be deleted.
                retention::run(&self.partitions, |config| config.compact, || self.is_stopping());
            }
            let backoff = Duration::from_millis(u64::try_from(settings.backoff_ms).unwrap_or(0).max(1));
            if self.sleep(backoff, changes) == Woken::Stopping {
                return;
            }
        }
    }

    fn tell_uncleanable(&self) {
        let is_due = {
            let State { resting, telling, .. } = &mut *self.lock();
            telling.is_due(!resting.is_empty(), clock::monotonic())
        };
        if is_due {
            tracing::warn!("Logs that cannot be compacted now, and are tried again: {}", self.uncleanable());
        }
    }

    fn uncleanable(&self) -> UncleanableByDir {
        let mut found = UncleanableByDir::default();
        let ids: Vec<TopicIdPartition> = self.lock().resting.keys().copied().collect();
        let hosted = ids.iter().filter_map(|id| self.partitions.get(id));
        for partition in hosted.filter(|partition| partition.directory().is_online()) {
            let dirt = partition.view().dirt(&partition.log_config(), partition.cleaned(), clock::wall());
            // Of one that cannot even be looked at, all may wait.
            let bytes = dirt.map_or_else(|_| partition.view().size_in_bytes(), |dirt| dirt.dirty_bytes);
            found.add(partition.directory().path().to_owned(), bytes);
        }
        found
    }

    /// Compacts the dirtiest log that is due. False when there is none.
    fn compact_one(&self, settings: &Settings) -> bool {
        let Some((id, partition)) = self.choose() else { return false };
        let (began, directory) = (Instant::now(), partition.directory());
        let outcome = self.compact(id, &partition, settings);
        let mut state = self.lock();
        state.busy.remove(&id);
        match outcome {
            Ok(None)
            | Err(CleanError::Stopped(_) | CleanError::Swap(SwapError::Gone | SwapError::Outdated)) => {
                // It is the dirtiest one still, and others are due.
                state.passed_over.insert(id, clock::monotonic().plus(settings.backoff_ms.max(1)));
                true
            }
            Ok(Some((dirt, stats))) => {
                state.resting.remove(&id);
                drop(state);
                tell(&partition, &dirt, &stats, began.elapsed());
                true
            }
            Err(error) => {
                let rest = state.rest(id, lacks_room(&error));
                drop(state);
                self.note_failure(id, &partition, &directory, &error, rest);
                true
            }
        }
    }

    fn choose(&self) -> Option<(TopicIdPartition, Arc<Partition>)> {
        let (now, all) = (clock::monotonic(), self.partitions.all());
        let passed_over: HashSet<TopicIdPartition> = {
            let mut state = self.lock();
            state.resting.retain(|id, _| all.contains_key(id));
            state.passed_over.retain(|_, until| *until > now);
            let resting = state.resting.iter().filter(|(_, rest)| rest.until > now).map(|(id, _)| id);
            resting.chain(&state.busy).chain(state.passed_over.keys()).copied().collect()
        };
        let mut dirtiest: Option<(f64, TopicIdPartition, &Arc<Partition>)> = None;
        for (id, partition) in &all {
            let config = partition.log_config();
            let rests = passed_over.contains(id) || partition.future().is_some();
            if !config.compact || rests || !partition.directory().is_online() {
                continue;
            }
            match partition.view().dirt(&config, partition.cleaned(), clock::wall()) {
                Ok(dirt) if dirt.is_due(&config) => {
                    if dirtiest.is_none_or(|(ratio, ..)| dirt.ratio() > ratio) {
                        dirtiest = Some((dirt.ratio(), *id, partition));
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    let rest = self.lock().rest(*id, false);
                    self.note_failure(*id, partition, &partition.directory(), &CleanError::Read(error), rest);
                }
            }
        }
        let (_, id, partition) = dirtiest?;
        self.lock().busy.insert(id).then(|| (id, partition.clone()))
    }

    fn compact(
        &self,
        id: TopicIdPartition,
        partition: &Arc<Partition>,
        settings: &Settings,
    ) -> Result<Option<(Dirt, CleanStats)>, CleanError> {
        let basis: Basis = self.ask(id, Compact::Begin).ok_or(Stopped)?;
        let (config, now) = (partition.log_config(), clock::wall());
        let dirt = basis.view.dirt(&config, partition.cleaned(), now).map_err(CleanError::Read)?;
        if !dirt.is_due(&config) {
            return Ok(None);
        }
        let mut watch = Watching { shared: self, id, partition };
        let stats = clean(&basis, &config, &dirt, &settings.limits, now, &mut watch)?;
        self.ask(id, |reply| Compact::End { basis, upto: stats.upto, reply }).ok_or(Stopped)?;
        self.checkpoints.write(OffsetCheckpoint::Cleaner);
        Ok(Some((dirt, stats)))
    }

    /// Asks the shard of a partition; `None` when the partition is not there any more.
    fn ask<T>(
        &self,
        id: TopicIdPartition,
        question: impl FnOnce(oneshot::Sender<T>) -> Compact,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.partitions.compact(id, question(reply));
        answer.blocking_recv().ok()
    }

    /// Compaction has failed of a log that lay in `directory` when it began.
    fn note_failure(
        &self,
        id: TopicIdPartition,
        partition: &Arc<Partition>,
        directory: &Arc<Directory>,
        error: &CleanError,
        rest: Rest,
    ) {
        if !self.is_hosted(id, partition) {
            return;
        }
        if !rest.is_told {
            tracing::warn!(
                partition = %partition.name,
                "could not be compacted, and is left as it is for {} s: {error}",
                rest.ms / 1000
            );
        }
        if let CleanError::Damaged(damage) = error {
            partition.note_damage(damage);
        }
        if let CleanError::Write(error) = error
            && !disk::is_full(error)
            // Where it lies no more, its files are removed.
            && Arc::ptr_eq(&partition.directory(), directory)
        {
            directory.fail(&format!("compact {}", partition.name), error);
        }
    }

    fn is_hosted(&self, id: TopicIdPartition, partition: &Arc<Partition>) -> bool {
        self.partitions.get(&id).is_some_and(|hosted| Arc::ptr_eq(&hosted, partition))
            && partition.directory().is_online()
    }
}

impl State {
    /// Has a log rest, longer than the last time.
    fn rest(&mut self, id: TopicIdPartition, lacks_room: bool) -> Rest {
        let before = self.resting.get(&id);
        let ms = before.map_or(REST_MS, |rest| (rest.ms * 2).min(REST_MAX_MS));
        let is_told = lacks_room && before.is_some_and(|rest| rest.lacks_room);
        let rest = Rest { until: clock::monotonic().plus(ms), ms, lacks_room, is_told };
        self.resting.insert(id, rest);
        rest
    }
}

fn lacks_room(error: &CleanError) -> bool {
    match error {
        CleanError::NoRoom(_) => true,
        CleanError::Write(error) => disk::is_full(error),
        _ => false,
    }
}

/// What a compaction looks after while it runs.
struct Watching<'a> {
    shared: &'a Shared,
    id: TopicIdPartition,
    partition: &'a Arc<Partition>,
}

impl Watch for Watching<'_> {
    fn spend(&mut self, bytes: usize) -> Result<(), Stopped> {
        let goes_on = self.shared.keep_pace(bytes);
        // What is being copied must not change before it is whole.
        let rests = !self.partition.log_config().compact || self.partition.future().is_some();
        let is_wanted = !rests && self.shared.is_hosted(self.id, self.partition);
        if goes_on && is_wanted { Ok(()) } else { Err(Stopped) }
    }

    /// What coordinators write may use the reserve, and is made smaller there.
    fn has_room(&mut self, bytes: u64) -> bool {
        let may_use_reserve = is_internal(&self.partition.name.topic);
        self.partition.directory().fits(bytes, may_use_reserve)
    }

    fn swap(&mut self, cleaned: Cleaned) -> Result<(), SwapError> {
        self.shared.ask(self.id, |reply| Compact::Swap(cleaned, reply)).unwrap_or(Err(SwapError::Gone))
    }
}

fn tell(partition: &Partition, dirt: &Dirt, stats: &CleanStats, took: Duration) {
    let more = if stats.map_was_full { "; there are more keys than the memory for them holds" } else { "" };
    tracing::info!(
        partition = %partition.name,
        "compacted from offset {} to {} in {:.1} s: {} bytes became {}{more}",
        dirt.from,
        stats.upto,
        took.as_secs_f64(),
        stats.bytes_before,
        stats.bytes_after,
    );
}

#[cfg(test)]
mod tests;
