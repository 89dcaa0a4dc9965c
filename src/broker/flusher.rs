//! Makes appended records durable: one queue per log directory, served by a few threads that fdatasync as a group.
//!
//! Never holds up appends or reads, and must not know leaders or answers: it reports up to where a partition is flushed and
//! the shard decides what that means. While a partition is being synced its newer work waits, and what gathers meanwhile is
//! one more sync: group commit. Syncs of different partitions run side by side, because a file system commits them to its
//! journal together.
//!
//! A sync costs the same for one batch as for ten, so after one the partition gathers: producers whose answers left with
//! it are about to send again, and the next sync waits until as many appends have come as were on their way, but no longer
//! than two syncs take. Where they do not come, that is tried less and less often; a partition that had one append on its
//! way never waits.
//!
//! Invariants: a partition is never synced by two threads at once; after a failed sync nothing of the directory is ever
//! reported as flushed again; no work waits for others longer than `GATHER_MAX`.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::directory::Directory;
use super::mailbox::{AbortOnPanic, Message};
use super::stall::Slot;
use crate::fault::{self, Fault};
use crate::storage::log::{self, FlushWork};
use crate::types::TopicIdPartition;

/// So many syncs of one directory run side by side at most. With 64 busy partitions on ext4, one thread synced 400 times a
/// second, four 5 000 times, sixteen 9 000 times, and more did not help. Threads start when there is work for them.
pub const DEFAULT_THREADS: usize = 16;

/// The longest that work waits for more to come.
const GATHER_MAX: Duration = Duration::from_millis(2);

/// A partition for which gathering has not paid goes without for fewer syncs than two to the power of this.
const MISSES_MAX: u32 = 6;

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
    /// Partitions that gather or did so, and until when at most; jobs that are in another state by now are passed over.
    gathering: VecDeque<(Instant, TopicIdPartition)>,
    /// The end of gathering for which an idle thread has set its alarm.
    watched: Option<Instant>,
    /// Where gathering did not pay lately.
    misses: HashMap<TopicIdPartition, Misses>,
    /// Rounds that have ended and whose reports are not with the shards yet.
    unreported: usize,
    /// So many rounds were taken.
    rounds: u64,
    threads: usize,
    idle_threads: usize,
    closed: bool,
}

#[derive(Debug)]
struct Job {
    shard: usize,
    /// Work that has not started, and the appends in it.
    waiting: Option<FlushWork>,
    appends: usize,
    /// The number of the round that has work of it.
    running: Option<u64>,
    /// Its next sync starts with so many appends, or when the time is over.
    gather: Option<Gather>,
}

#[derive(Clone, Copy, Debug)]
struct Gather {
    wanted: usize,
    /// Of those, the ones that were there when it began.
    had: usize,
    until: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Misses {
    in_a_row: u32,
    /// So many syncs go without gathering.
    skip: u32,
}

/// Some partitions' work, taken to be run.
#[derive(Debug)]
pub struct Round {
    jobs: Vec<RoundJob>,
}

#[derive(Debug)]
struct RoundJob {
    shard: usize,
    partition: TopicIdPartition,
    work: FlushWork,
    appends: usize,
}

/// A round whose syncs are done, but that nobody has heard of.
#[derive(Debug)]
pub struct Synced {
    /// With the appends that it made durable.
    done: Vec<(TopicIdPartition, usize)>,
    took: Duration,
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

    /// Hands over a partition's work with the `appends` in it; it takes in the work of the partition that still waits here.
    /// Returns true when a further thread would have something to do.
    pub fn submit(
        &self,
        shard: usize,
        partition: TopicIdPartition,
        mut work: FlushWork,
        appends: usize,
    ) -> bool {
        let mut state = self.lock();
        let State { jobs, misses, .. } = &mut *state;
        let job = jobs.entry(partition).or_insert_with(|| Job::new(shard));
        let older = job.waiting.take();
        let is_first = older.is_none();
        if let Some(older) = older {
            work.absorb(older);
        }
        job.waiting = Some(work);
        job.appends += appends;
        let has_gathered = job.gather.take_if(|gather| job.appends >= gather.wanted).is_some();
        if has_gathered {
            misses.remove(&partition);
        }
        let is_startable = job.running.is_none() && job.gather.is_none() && (is_first || has_gathered);
        if !is_startable {
            return false;
        }
        state.startable.push_back(partition);
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
        self.lock().take(share)
    }

    /// Waits for work; `None` when the queue is closed and empty.
    fn next_round(&self) -> Option<Round> {
        let mut state = self.lock();
        loop {
            let gathered_until = self.end_gathering(&mut state, Instant::now);
            if let Some(round) = state.take(self.max_threads) {
                let is_unwatched = gathered_until.is_some() && state.watched.is_none();
                if is_unwatched && state.idle_threads > 0 {
                    self.work_waits.notify_one();
                }
                return Some(round);
            }
            if state.closed && state.gathering.is_empty() {
                state.threads -= 1;
                return None;
            }
            state = self.idle(state, gathered_until);
        }
    }

    /// Sleeps until there may be work: until it is told, or `gathered_until` if no other thread sees to that.
    fn idle<'q>(
        &'q self,
        mut state: MutexGuard<'q, State>,
        gathered_until: Option<Instant>,
    ) -> MutexGuard<'q, State> {
        state.idle_threads += 1;
        let alarm = gathered_until.filter(|until| state.watched.is_none_or(|watched| *until < watched));
        match alarm {
            None => state = self.work_waits.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                state.watched = alarm;
                let left = until.saturating_duration_since(Instant::now());
                let woken = self.work_waits.wait_timeout(state, left);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
                if state.watched == alarm {
                    state.watched = None;
                }
            }
        }
        state.idle_threads -= 1;
        state
    }

    /// Lets the work start whose time to gather is over. Returns when that is next the case.
    fn end_gathering(&self, state: &mut State, now: impl FnOnce() -> Instant) -> Option<Instant> {
        if state.gathering.is_empty() {
            return None;
        }
        let jobs = state.jobs.len();
        let next = state.end_gathering(now());
        if state.jobs.len() < jobs {
            self.round_ended.notify_all();
        }
        next
    }

    /// Ends the syncs of these partitions, which `took` so long and made so many appends durable. What came meanwhile can
    /// start, or gathers.
    fn finished(&self, done: impl Iterator<Item = (TopicIdPartition, usize)>, took: Duration, now: Instant) {
        let mut state = self.lock();
        state.unreported += 1;
        // Where others wait as well, they give it time enough; where nobody watches the time, nothing may wait for it.
        let gathers = self.max_threads > 0 && state.startable.is_empty() && !state.closed;
        let until = gathers.then(|| now + (took * 2).min(GATHER_MAX));
        for (partition, appends) in done {
            state.finished(partition, appends, until);
        }
        drop(state);
        self.round_ended.notify_all();
    }

    fn reported(&self) {
        self.lock().unreported -= 1;
        self.round_ended.notify_all();
    }

    /// Drops the work of a partition and waits until none of it runs: its files may be moved then. Its shard has let go of
    /// it, so no more will come.
    pub fn forget(&self, partition: &TopicIdPartition) {
        self.drop_waiting(partition);
        self.await_running(partition);
        // What it may have begun to gather for.
        self.drop_waiting(partition);
    }

    /// Drops the work of a partition that has not started: it is of a log that another one has taken the place of.
    pub fn drop_waiting(&self, partition: &TopicIdPartition) {
        let mut state = self.lock();
        state.startable.retain(|startable| startable != partition);
        state.misses.remove(partition);
        let Some(job) = state.jobs.get_mut(partition) else { return };
        (job.waiting, job.gather, job.appends) = (None, None, 0);
        if job.running.is_none() {
            state.jobs.remove(partition);
            self.round_ended.notify_all();
        }
    }

    /// Waits until the work of a partition has ended that runs now, whatever is begun meanwhile.
    pub fn await_running(&self, partition: &TopicIdPartition) {
        let mut state = self.lock();
        let running = |state: &State| state.jobs.get(partition).and_then(|job| job.running);
        let now = running(&state);
        while now.is_some() && running(&state) == now {
            state = self.round_ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until nothing runs, nothing waits and everything is reported, but not for ever.
    pub fn wait_idle(&self, limit: Duration) {
        let state = self.lock();
        drop(self.round_ended.wait_timeout_while(state, limit, |state| !state.is_idle()));
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

impl State {
    fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.unreported == 0
    }

    fn take(&mut self, share: usize) -> Option<Round> {
        let count = self.startable.len().div_ceil(share);
        self.rounds += 1;
        let mut jobs = Vec::with_capacity(count);
        for _ in 0..count {
            let Some(partition) = self.startable.pop_front() else { break };
            let Some(job) = self.jobs.get_mut(&partition) else { continue };
            if let Some(work) = job.waiting.take() {
                job.running = Some(self.rounds);
                let (shard, appends) = (job.shard, std::mem::take(&mut job.appends));
                jobs.push(RoundJob { shard, partition, work, appends });
            }
        }
        if jobs.is_empty() { None } else { Some(Round { jobs }) }
    }

    fn finished(&mut self, partition: TopicIdPartition, appends: usize, gather_until: Option<Instant>) {
        let State { jobs, misses, .. } = self;
        let Some(job) = jobs.get_mut(&partition) else { return };
        job.running = None;
        let (had, wanted) = (job.appends, appends + job.appends);
        let until = gather_until.filter(|_| appends > 0 && wanted > 1);
        match until.filter(|_| misses.get_mut(&partition).is_none_or(Misses::is_over)) {
            Some(until) => {
                job.gather = Some(Gather { wanted, had, until });
                self.gathering.push_back((until, partition));
            }
            None if job.waiting.is_some() => self.startable.push_back(partition),
            None => drop(self.jobs.remove(&partition)),
        }
    }

    fn end_gathering(&mut self, now: Instant) -> Option<Instant> {
        let State { gathering, jobs, startable, misses, .. } = self;
        let mut next: Option<Instant> = None;
        gathering.retain(|(until, partition)| {
            let Some(job) = jobs.get_mut(partition) else { return false };
            let Some(gather) = job.gather.filter(|gather| gather.until == *until) else { return false };
            if *until > now {
                next = next.into_iter().chain([*until]).min();
                return true;
            }
            job.gather = None;
            let (came, awaited) = (job.appends - gather.had, gather.wanted - gather.had);
            if came * 2 < awaited {
                misses.entry(*partition).or_default().miss();
            } else {
                misses.remove(partition);
            }
            if job.waiting.is_some() {
                startable.push_back(*partition);
            } else {
                jobs.remove(partition);
            }
            false
        });
        next
    }
}

impl Round {
    /// Syncs, and reports per shard. The first failure fails the directory.
    pub fn run(self, directory: &Directory) {
        self.run_as(directory, &Slot::unwatched());
    }

    /// The same on the thread with this slot.
    fn run_as(self, directory: &Directory, slot: &Slot) {
        self.sync_as(directory, slot).report(directory);
    }

    /// Syncs. The first failure fails the directory.
    pub fn sync(self, directory: &Directory) -> Synced {
        self.sync_as(directory, &Slot::unwatched())
    }

    fn sync_as(self, directory: &Directory, slot: &Slot) -> Synced {
        let mut reports: Vec<Vec<FlushReport>> = vec![Vec::new(); directory.shards().len()];
        let started = Instant::now();
        let mut done = Vec::with_capacity(self.jobs.len());
        for RoundJob { shard, partition, work, appends } in self.jobs {
            done.push((partition, appends));
            if !directory.is_online() {
                continue;
            }
            let synced = {
                let _waiting = slot.begin();
                work.run()
            };
            match synced {
                Ok(flushed) => reports[shard].push(FlushReport { partition, flushed }),
                Err(_) if fault::is_active(Fault::IgnoresFailedSync) => {
                    reports[shard].push(FlushReport { partition, flushed: work.flushed() });
                }
                Err(error) => directory.fail(&format!("sync {}", work.dir().display()), &error),
            }
        }
        let took = started.elapsed();
        directory.flush.counters.count(done.len(), took);
        Synced { done, took, reports }
    }
}

impl Synced {
    /// Reports per shard, unless the directory has failed.
    pub fn report(self, directory: &Directory) {
        directory.flush.finished(self.done.into_iter(), self.took, Instant::now());
        // A sync that went well beside one that failed proves nothing.
        if directory.is_online() {
            for (shard, flushed) in directory.shards().iter().zip(self.reports) {
                if !flushed.is_empty() {
                    shard.send_event(Message::Flushed(flushed));
                }
            }
        }
        directory.flush.reported();
    }
}

impl Misses {
    fn miss(&mut self) {
        self.in_a_row = (self.in_a_row + 1).min(MISSES_MAX);
        self.skip = (1 << self.in_a_row) - 1;
    }

    /// Whether a sync may gather again; counts those that may not.
    fn is_over(&mut self) -> bool {
        let is_over = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        is_over
    }
}

impl Job {
    fn new(shard: usize) -> Job {
        Job { shard, waiting: None, appends: 0, running: None, gather: None }
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
pub fn submit(
    directory: &Arc<Directory>,
    shard: usize,
    partition: TopicIdPartition,
    work: FlushWork,
    appends: usize,
) {
    if !directory.flush.submit(shard, partition, work, appends) {
        return;
    }
    let thread_directory = directory.clone();
    let spawned = std::thread::Builder::new().name("flusher".to_owned()).spawn(move || {
        // Whoever waits for its syncs would wait for ever.
        let _fatal = AbortOnPanic;
        let slot = thread_directory.waits().slot();
        while let Some(round) = thread_directory.flush.next_round() {
            round.run_as(&thread_directory, &slot);
        }
    });
    if let Err(error) = spawned {
        directory.fail("start a thread to sync", &error);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::broker::clock;
    use crate::broker::mailbox::mailbox;
    use crate::broker::messages::Host;
    use crate::broker::rig::{id, lead, new_host, open_dir, records};
    use crate::broker::stall::DiskWaits;
    use crate::storage::disk::Disk;
    use crate::storage::log::{Log, LogConfig, Origin};
    use crate::storage::sim_disk::{FaultOn, SimDisk};
    use crate::types::{LeaderEpoch, TimestampMs};

    const TOOK: Duration = Duration::from_micros(400);

    /// A queue of which the test is the only thread, and the log of one partition.
    struct Bench {
        queue: FlushQueue,
        log: Log,
        partition: TopicIdPartition,
        now: Instant,
    }

    impl Bench {
        fn new() -> Bench {
            let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
            let dir = open_dir(&disk, Path::new("/data"));
            let directory = Arc::new(Directory::new(0, dir, Vec::new(), 0));
            let partition = id(1, 0);
            let Host { log, .. } = new_host(&directory, partition, LogConfig::default(), lead(1, &[1]));
            Bench { queue: FlushQueue::new(1), log, partition, now: Instant::now() }
        }

        fn submit(&mut self, partition: TopicIdPartition, appends: usize) {
            let (epoch, now) = (LeaderEpoch(1), TimestampMs(1_000_000));
            for _ in 0..appends {
                self.log.append_as_leader(&records(&["v"]), epoch, Origin::Client, now).unwrap();
            }
            let work = self.log.flush_work().expect("something to sync");
            self.queue.submit(0, partition, work, appends);
        }

        /// The appends of the round that can run now.
        fn take(&self) -> Option<usize> {
            let mut state = self.queue.lock();
            self.queue.end_gathering(&mut state, || self.now);
            let round = state.take(1)?;
            Some(round.jobs.iter().map(|job| job.appends).sum())
        }

        fn finish(&self, appends: usize) {
            self.queue.finished([(self.partition, appends)].into_iter(), TOOK, self.now);
            self.queue.reported();
        }

        fn is_idle(&self) -> bool {
            self.queue.lock().is_idle()
        }
    }

    #[test]
    fn a_sync_waits_for_as_many_appends_as_were_on_their_way() {
        let mut bench = Bench::new();
        let partition = bench.partition;
        bench.submit(partition, 2);
        assert_eq!(bench.take(), Some(2));
        bench.submit(partition, 1);
        assert_eq!(bench.take(), None, "the partition is being synced");
        bench.finish(2);
        assert_eq!(bench.take(), None, "the two that were answered come again");
        bench.submit(partition, 1);
        assert_eq!(bench.take(), None);
        bench.submit(partition, 1);
        assert_eq!(bench.take(), Some(3));
        bench.finish(3);
        bench.submit(partition, 2);
        assert_eq!(bench.take(), None);
        bench.submit(partition, 2);
        assert_eq!(bench.take(), Some(4));
    }

    #[test]
    fn a_sync_that_does_not_return_is_seen() {
        let sim = SimDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let waits = DiskWaits::default();
        let dir = open_dir(&disk, Path::new("/data"));
        let (shard, _mailbox) = mailbox(1);
        let directory = Arc::new(Directory::new(0, dir, vec![shard], 1).with_waits(waits.clone()));
        let Host { mut log, .. } = new_host(&directory, id(1, 0), LogConfig::default(), lead(1, &[1]));
        let (epoch, now) = (LeaderEpoch(1), TimestampMs(1_000_000));
        log.append_as_leader(&records(&["v"]), epoch, Origin::Client, now).unwrap();
        sim.hang(FaultOn::Sync, ".log");
        submit(&directory, 0, id(1, 0), log.flush_work().expect("something to sync"), 1);
        let in_a_minute = || clock::monotonic().plus(60_000);
        while waits.longest(in_a_minute()) < 60_000 {
            std::thread::yield_now();
        }
        sim.heal();
        while waits.longest(in_a_minute()) > 0 {
            std::thread::yield_now();
        }
        assert!(directory.is_online());
        directory.flush.close();
    }

    #[test]
    fn whoever_waits_finds_the_reports_with_the_shards() {
        let mut bench = Bench::new();
        bench.submit(bench.partition, 1);
        assert_eq!(bench.take(), Some(1));
        bench.queue.finished([(bench.partition, 1)].into_iter(), TOOK, bench.now);
        assert!(!bench.is_idle());
        bench.queue.reported();
        assert!(bench.is_idle());
    }

    #[test]
    fn gathering_ends() {
        let mut bench = Bench::new();
        let partition = bench.partition;
        bench.submit(partition, 5);
        assert_eq!(bench.take(), Some(5));
        bench.finish(5);
        bench.submit(partition, 1);
        assert_eq!(bench.take(), None);
        bench.now += TOOK;
        assert_eq!(bench.take(), None);
        bench.now += TOOK;
        assert_eq!(bench.take(), Some(1), "the time is over");
        bench.finish(1);
        bench.submit(partition, 2);
        assert_eq!(bench.take(), Some(2));
        bench.finish(2);
        bench.now += GATHER_MAX;
        assert_eq!(bench.take(), None);
        assert!(bench.is_idle(), "nothing came, and nothing is left to look after");
    }

    #[test]
    fn what_does_not_come_is_awaited_less_and_less_often() {
        let mut bench = Bench::new();
        let partition = bench.partition;
        bench.submit(partition, 3);
        assert_eq!(bench.take(), Some(3));
        let mut awaited = Vec::new();
        for round in 0..30 {
            bench.submit(partition, 3);
            bench.finish(3);
            if bench.take().is_none() {
                awaited.push(round);
                bench.now += GATHER_MAX;
                assert_eq!(bench.take(), Some(3), "none of those that were answered came again");
            }
        }
        assert_eq!(awaited, [0, 2, 6, 14]);
        for _ in 0..2 {
            bench.submit(partition, 3);
            bench.finish(3);
            assert_eq!(bench.take(), None, "it is tried again, and once it has paid, every time");
            bench.submit(partition, 3);
            assert_eq!(bench.take(), Some(6));
        }
    }

    #[test]
    fn nothing_gathers_without_need() {
        let mut bench = Bench::new();
        let (partition, other) = (bench.partition, id(1, 1));
        for _ in 0..3 {
            bench.submit(partition, 1);
            assert_eq!(bench.take(), Some(1), "single appends do not wait");
            bench.finish(1);
            assert!(bench.is_idle());
        }
        bench.submit(partition, 2);
        assert_eq!(bench.take(), Some(2));
        bench.submit(partition, 1);
        bench.submit(other, 1);
        bench.finish(2);
        assert_eq!(bench.take(), Some(2), "another partition's turn gives it time enough");
        bench.queue.close();
        bench.submit(partition, 1);
        bench.finish(2);
        assert_eq!(bench.take(), Some(1), "nobody waits when the queue is closed");
    }

    #[test]
    fn a_partition_that_gathers_can_be_forgotten() {
        let mut bench = Bench::new();
        let partition = bench.partition;
        bench.submit(partition, 3);
        assert_eq!(bench.take(), Some(3));
        bench.finish(3);
        bench.submit(partition, 1);
        bench.queue.forget(&partition);
        assert!(bench.is_idle());
        bench.now += GATHER_MAX;
        assert_eq!(bench.take(), None);
    }
}
