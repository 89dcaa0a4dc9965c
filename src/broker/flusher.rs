//! Makes appended records durable: one queue per log directory, served by a few threads that fdatasync as a group.
//!
//! Never holds up appends or reads, and must not know leaders or answers: it reports up to where a partition is flushed and
//! the shard decides what that means. While a partition is being synced its newer work waits, and what gathers meanwhile is
//! one more sync: group commit without a timer. Syncs of different partitions run side by side, because a file system
//! commits them to its journal together.
//!
//! Invariants: a partition is never synced by two threads at once; after a failed sync nothing of the directory is ever
//! reported as flushed again.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::directory::Directory;
use super::mailbox::{AbortOnPanic, Message};
use crate::storage::log::{self, FlushWork};
use crate::types::TopicIdPartition;

/// So many syncs of one directory run side by side at most. With 64 busy partitions on ext4, one thread synced 400 times a
/// second, four 5 000 times, sixteen 9 000 times, and more did not help. Threads start when there is work for them.
pub const DEFAULT_THREADS: usize = 16;

/// How far a partition became durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushReport {
    pub partition: TopicIdPartition,
    pub flushed: log::Flushed,
}

/// What the flusher has done since the start.
#[derive(Debug, Default)]
pub struct FlushCounters {
    pub rounds: AtomicU64,
    pub syncs: AtomicU64,
    pub sync_nanos: AtomicU64,
}

/// The work that waits for one log directory.
#[derive(Debug)]
pub struct FlushQueue {
    /// None: rounds are run by whoever calls [`take`](FlushQueue::take), as the simulator does.
    max_threads: usize,
    state: Mutex<State>,
    work_waits: Condvar,
    round_ended: Condvar,
    pub counters: FlushCounters,
}

#[derive(Debug, Default)]
struct State {
    /// The partitions whose work can start, oldest first.
    startable: VecDeque<TopicIdPartition>,
    jobs: HashMap<TopicIdPartition, Job>,
    threads: usize,
    idle_threads: usize,
    closed: bool,
}

#[derive(Debug)]
struct Job {
    shard: usize,
    /// Work that has not started.
    waiting: Option<FlushWork>,
    running: bool,
}

/// Some partitions' work, taken to be run.
#[derive(Debug)]
pub struct Round {
    jobs: Vec<(usize, TopicIdPartition, FlushWork)>,
}

/// A round whose syncs are done, but that nobody has heard of.
#[derive(Debug)]
pub struct Synced {
    partitions: Vec<TopicIdPartition>,
    /// By shard.
    reports: Vec<Vec<FlushReport>>,
}

impl FlushQueue {
    pub fn new(max_threads: usize) -> FlushQueue {
        FlushQueue {
            max_threads,
            state: Mutex::default(),
            work_waits: Condvar::new(),
            round_ended: Condvar::new(),
            counters: FlushCounters::default(),
        }
    }

    /// Hands over a partition's work; it takes in the work of the partition that still waits here. Returns true when a
    /// further thread would have something to do.
    pub fn submit(&self, shard: usize, partition: TopicIdPartition, mut work: FlushWork) -> bool {
        let mut state = self.lock();
        let job = state.jobs.entry(partition).or_insert(Job { shard, waiting: None, running: false });
        let older = job.waiting.take();
        let is_startable = older.is_none() && !job.running;
        if let Some(older) = older {
            work.absorb(older);
        }
        job.waiting = Some(work);
        if is_startable {
            state.startable.push_back(partition);
        }
        let more_threads = state.threads < self.max_threads && state.startable.len() > state.idle_threads;
        if more_threads {
            state.threads += 1;
        }
        drop(state);
        self.work_waits.notify_one();
        more_threads
    }

    /// Takes the work that one of `share` threads should do now; `None` when there is none.
    pub fn take(&self, share: usize) -> Option<Round> {
        self.take_of(&mut self.lock(), share)
    }

    fn take_of(&self, state: &mut State, share: usize) -> Option<Round> {
        let count = state.startable.len().div_ceil(share);
        let mut jobs = Vec::with_capacity(count);
        for _ in 0..count {
            let Some(partition) = state.startable.pop_front() else { break };
            let Some(job) = state.jobs.get_mut(&partition) else { continue };
            if let Some(work) = job.waiting.take() {
                job.running = true;
                jobs.push((job.shard, partition, work));
            }
        }
        if jobs.is_empty() { None } else { Some(Round { jobs }) }
    }

    /// Waits for work; `None` when the queue is closed and empty.
    fn next_round(&self) -> Option<Round> {
        let mut state = self.lock();
        loop {
            if let Some(round) = self.take_of(&mut state, self.max_threads) {
                return Some(round);
            }
            if state.closed {
                state.threads -= 1;
                return None;
            }
            state.idle_threads += 1;
            state = self.work_waits.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle_threads -= 1;
        }
    }

    fn finished(&self, partitions: impl Iterator<Item = TopicIdPartition>) {
        let mut state = self.lock();
        for partition in partitions {
            let Some(job) = state.jobs.get_mut(&partition) else { continue };
            job.running = false;
            if job.waiting.is_some() {
                state.startable.push_back(partition);
            } else {
                state.jobs.remove(&partition);
            }
        }
        drop(state);
        self.round_ended.notify_all();
    }

    /// Drops the work of a partition and waits until none of it runs: its files may be moved then. Its shard has let go of
    /// it, so no more will come.
    pub fn forget(&self, partition: &TopicIdPartition) {
        let mut state = self.lock();
        state.startable.retain(|startable| startable != partition);
        while let Some(job) = state.jobs.get_mut(partition) {
            job.waiting = None;
            if !job.running {
                state.jobs.remove(partition);
                return;
            }
            state = self.round_ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until nothing runs and nothing waits, but not for ever.
    pub fn wait_idle(&self, limit: Duration) {
        let state = self.lock();
        drop(self.round_ended.wait_timeout_while(state, limit, |state| !state.jobs.is_empty()));
    }

    /// No more work will come: the threads end once the queue is empty.
    pub fn close(&self) {
        self.lock().closed = true;
        self.work_waits.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Round {
    /// Syncs, and reports per shard. The first failure fails the directory.
    pub fn run(self, directory: &Directory) {
        self.sync(directory).report(directory);
    }

    /// Syncs. The first failure fails the directory.
    pub fn sync(self, directory: &Directory) -> Synced {
        let mut reports: Vec<Vec<FlushReport>> = vec![Vec::new(); directory.shards().len()];
        let started = Instant::now();
        let mut partitions = Vec::with_capacity(self.jobs.len());
        for (shard, partition, work) in self.jobs {
            partitions.push(partition);
            if !directory.is_online() {
                continue;
            }
            match work.run() {
                Ok(flushed) => reports[shard].push(FlushReport { partition, flushed }),
                Err(error) => directory.fail(&format!("sync {}", work.dir().display()), &error),
            }
        }
        directory.flush.counters.count(partitions.len(), started.elapsed());
        Synced { partitions, reports }
    }
}

impl Synced {
    /// Reports per shard, unless the directory has failed.
    pub fn report(self, directory: &Directory) {
        directory.flush.finished(self.partitions.into_iter());
        if !directory.is_online() {
            return; // a sync that went well beside one that failed proves nothing
        }
        for (shard, flushed) in directory.shards().iter().zip(self.reports) {
            if !flushed.is_empty() {
                shard.send_event(Message::Flushed(flushed));
            }
        }
    }
}

impl FlushCounters {
    fn count(&self, syncs: usize, took: Duration) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
        self.syncs.fetch_add(syncs as u64, Ordering::Relaxed);
        self.sync_nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// Submits work, and starts a thread when that helps.
pub fn submit(directory: &Arc<Directory>, shard: usize, partition: TopicIdPartition, work: FlushWork) {
    if !directory.flush.submit(shard, partition, work) {
        return;
    }
    let thread_directory = directory.clone();
    let spawned = std::thread::Builder::new().name("flusher".to_owned()).spawn(move || {
        // Whoever waits for its syncs would wait for ever.
        let _fatal = AbortOnPanic;
        while let Some(round) = thread_directory.flush.next_round() {
            round.run(&thread_directory);
        }
    });
    if let Err(error) = spawned {
        directory.fail("start a thread to sync", &error);
    }
}
