//! Puts the broker's parts together, in the order in which they need each other, and takes them apart again.
//!
//! Must not know sockets. Invariant: nothing is acknowledged before the logs are open and the registration of this process is
//! in the metadata.

use std::collections::HashSet;
use std::io;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::assignments::{self, Report};
use super::blocking::blocking;
use super::checkpoints::{self, CheckpointIntervals, Checkpoints, Periodic};
use super::cleaner::Cleaner;
use super::controller_channel::ControllerChannel;
use super::coordination::Coordination;
use super::coordinators::KeeperParts;
use super::departures::Departures;
use super::directory::Directory;
use super::dynamic_config::DynamicConfig;
use super::fetcher::{self, driver::FetcherContext};
use super::flusher::DEFAULT_THREADS;
use super::isr_changes::IsrChanges;
use super::lease::Lease;
use super::lifecycle::{BrokerIdentity, Lifecycle, LifecycleError, LifecycleParts};
use super::log_dirs::LogDirs;
use super::mailbox::{self, ShardSender, mailbox};
use super::mending::Mender;
use super::moves::{MoveParts, Moves};
use super::outbox::{Inlets, Outlets, outlets};
use super::partitions::{Partition, Partitions};
use super::peer_silence::PeerSilence;
use super::producer_ids::ProducerIds;
use super::readiness::Readiness;
use super::reconciler::{Chore, Reconciled, Reconciler};
use super::repairs;
use super::retention::{self, Retention, RetentionTimes};
use super::shard::Shard;
use super::stall::{DiskWaits, StallLimits};
use super::throttles::ReplicationThrottle;
use super::transactions::Peers;
use crate::config::BrokerConfig;
use crate::controller::MetadataHandle;
use crate::metadata::brokers::Endpoint;
use crate::storage::disk::{Disk, DiskLock};
use crate::storage::log::{Budgets, Log, LogError};
use crate::storage::log_dir::LogDir;
use crate::types::{BrokerEpoch, NodeId, Uuid};

/// Requests that may wait for one shard; more wait at their connections.
const MAILBOX_CAPACITY: usize = 1024;
/// How long a stop waits for syncs that are under way.
const FLUSH_WAIT: Duration = Duration::from_secs(5);
/// Newest batches in memory, of all logs and of one: some tens of milliseconds of what a disk takes, so that readers who
/// follow find them. More would only keep frames from being used again while they are in the processor's caches, and who is
/// farther behind reads from the page cache.
const TAIL_BYTES: usize = 8 << 20;
const TAIL_BYTES_PER_LOG: usize = 1 << 20;

/// What a broker starts from.
#[derive(Debug)]
pub struct BrokerOptions {
    pub id: NodeId,
    pub config: Arc<DynamicConfig>,
    pub disk: Arc<dyn Disk>,
    /// Its log directories, in the order of `log.dirs`. Each has an id.
    pub log_dirs: Vec<LogDir>,
    /// Those of `log.dirs` that could not be taken.
    pub lost_dirs: Vec<PathBuf>,
    /// How many files the logs may keep open.
    pub open_files: usize,
    /// Where it listens, as others are told.
    pub endpoints: Vec<Endpoint>,
    /// The name of the listener through which brokers reach each other.
    pub inter_broker_listener: Arc<str>,
    pub rack: Option<Arc<str>>,
    /// The way to the active controller.
    pub controller: ControllerChannel,
    /// No other node can be told of this broker: it need not show that it lives.
    pub is_alone: bool,
    /// Hears how far the start is.
    pub readiness: Readiness,
}

/// Why a broker does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("could not start a thread: {0}")]
    Thread(#[from] io::Error),
    #[error(transparent)]
    Lifecycle(#[from] LifecycleError),
    #[error("no log directory is in service")]
    NoDirectory,
}

/// What request handlers use of a broker. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BrokerHandles {
    pub partitions: Partitions,
    pub producer_ids: ProducerIds,
    pub reconciled: Reconciled,
    pub lifecycle: Lifecycle,
    pub controller: ControllerChannel,
    pub silence: PeerSilence,
    pub departures: Departures,
    pub log_dirs: Arc<LogDirs>,
    pub moves: Moves,
    pub coordination: Coordination,
}

/// A broker that runs. Whoever holds it stops it.
#[derive(Debug)]
pub struct RunningBroker {
    handles: BrokerHandles,
    checkpoints: Arc<Checkpoints>,
    upkeep: Upkeep,
    tasks: Vec<JoinHandle<()>>,
}

/// The threads that look after the logs.
#[derive(Debug)]
struct Upkeep {
    periodic: Periodic,
    retention: Retention,
    cleaner: Cleaner,
}

/// Opens the logs, registers the broker, and hosts what the metadata assigns to it. It is fenced until
/// [`RunningBroker::unfence`].
pub async fn start(
    options: BrokerOptions,
    metadata: MetadataHandle,
) -> Result<(BrokerHandles, RunningBroker), StartError> {
    let BrokerOptions { id, config, disk, log_dirs, lost_dirs, open_files, endpoints, .. } = options;
    let (rack, listener) = (options.rack, options.inter_broker_listener);
    let (controller, is_alone, readiness) = (options.controller, options.is_alone, options.readiness);
    let (outlets, inlets) = outlets();
    let (lease, silence, waits) = (Lease::expired(), PeerSilence::default(), DiskWaits::default());
    let shards = start_shards(id, &config.at(&metadata.image()).broker, &outlets, &lease, &waits)?;
    let failure = Arc::new(Notify::new());
    let directories = directories(log_dirs, &shards, &failure, &waits, reserve(&config.latest().broker));
    let partitions = Partitions::new(shards);
    let found = Found { id, disk, directories, lost_dirs, open_files };
    let storage = Storage::open(found, &partitions, &config, &metadata).await;
    let Storage { dirs, checkpoints, moves, mut reconciler, reconciled, to_do } = storage;
    reconciler.clear(metadata.image()).await;
    readiness.registers();
    let identity = identity(id, endpoints, rack, &dirs)?;
    let (channel, stall_limits) = (controller.separate(), StallLimits::default());
    let parts = LifecycleParts {
        metadata: metadata.clone(),
        config: config.clone(),
        channel,
        lease: lease.clone(),
        silence: silence.clone(),
        reconciled: reconciled.clone(),
        waits,
        stall_limits,
        is_quiet: is_alone,
    };
    let (lifecycle, beat) = Lifecycle::register(parts, identity).await?;
    // It lives from here on, however long its logs take to be recovered.
    let beat = tokio::spawn(beat);
    let fetching = FetcherContext {
        me: id,
        epoch: epoch_of(&lifecycle),
        listener: listener.clone(),
        metadata: metadata.clone(),
        throttle: ReplicationThrottle::of_followers(config.clone()),
        config: config.clone(),
        partitions: partitions.clone(),
        silence: silence.clone(),
    };
    // A broker catches up before it says that it serves.
    let [fetching, altering, repairing] = replicate(fetching, controller.separate(), inlets, &lifecycle);
    open_logs(&mut reconciler, &dirs, &readiness, (id, &metadata)).await;
    readiness.follows(&reconciled);
    moves.resume();
    let upkeep = start_upkeep(config.clone(), &partitions, &checkpoints)?;
    let (producer_ids, give_out) = ProducerIds::new(metadata.clone(), id, epoch_of(&lifecycle));
    let mut tasks = vec![beat, fetching, altering, repairing, tokio::spawn(give_out)];
    let departures = follow(reconciler, &metadata, &mut tasks);
    tasks.extend(look_after(&dirs, &lifecycle, failure, to_do));
    let keeping = keeper_parts(id, metadata, config, (partitions.clone(), reconciled.clone(), lease));
    let coordination = Coordination::start(keeping, &listener, producer_ids.clone(), &mut tasks);
    let handles = BrokerHandles {
        partitions,
        producer_ids,
        reconciled,
        lifecycle,
        controller,
        silence,
        departures,
        log_dirs: dirs,
        moves,
        coordination,
    };
    Ok((handles.clone(), RunningBroker { handles, checkpoints, upkeep, tasks }))
}

/// Opens the logs of what the metadata assigns to this broker.
async fn open_logs(
    reconciler: &mut Reconciler,
    dirs: &Arc<LogDirs>,
    readiness: &Readiness,
    (id, metadata): (NodeId, &MetadataHandle),
) {
    readiness.opens(dirs);
    let telling = tokio::spawn(readiness.clone().tell(id, metadata.clone()));
    reconciler.catch_up(metadata.image()).await;
    telling.abort();
    tell_strays(dirs);
}

/// What all logs share.
fn budgets(open_files: usize, config: &BrokerConfig) -> Budgets {
    let producers = usize::try_from(config.producer_state_max).unwrap_or(1);
    Budgets::new(TAIL_BYTES, TAIL_BYTES_PER_LOG, open_files).with_producers(producers)
}

/// The log directories before anybody has looked into them.
struct Found {
    id: NodeId,
    disk: Arc<dyn Disk>,
    directories: Vec<Arc<Directory>>,
    lost_dirs: Vec<PathBuf>,
    open_files: usize,
}

/// The log directories, and what looks after them.
struct Storage {
    dirs: Arc<LogDirs>,
    checkpoints: Arc<Checkpoints>,
    moves: Moves,
    reconciler: Reconciler,
    reconciled: Reconciled,
    to_do: mpsc::UnboundedReceiver<Chore>,
}

impl Storage {
    async fn open(
        found: Found,
        partitions: &Partitions,
        config: &Arc<DynamicConfig>,
        metadata: &MetadataHandle,
    ) -> Storage {
        let Found { id, disk, directories, lost_dirs, open_files } = found;
        let budgets = budgets(open_files, &config.latest().broker);
        let scanned = disk.clone();
        let scan = move || LogDirs::scan(id, scanned, directories, lost_dirs, budgets);
        let dirs = Arc::new(blocking(scan).await);
        let checkpoints = Arc::new(Checkpoints::new(partitions.clone(), dirs.clone()));
        let (chores, to_do) = mpsc::unbounded_channel();
        let moves = Moves::new(MoveParts {
            me: id,
            metadata: metadata.clone(),
            partitions: partitions.clone(),
            dirs: dirs.clone(),
            checkpoints: checkpoints.clone(),
            config: config.clone(),
            chores: chores.clone(),
        });
        let partitions = partitions.clone();
        let (reconciler, reconciled) =
            Reconciler::new(id, config.clone(), partitions, dirs.clone(), checkpoints.clone(), chores);
        let reconciler = reconciler.with_moves(moves.clone());
        Storage { dirs, checkpoints, moves, reconciler, reconciled, to_do }
    }
}

/// What this broker says of itself: with the log directories that are in service.
fn identity(
    id: NodeId,
    endpoints: Vec<Endpoint>,
    rack: Option<Arc<str>>,
    dirs: &LogDirs,
) -> Result<BrokerIdentity, StartError> {
    let online = dirs.directories().iter().filter(|directory| directory.is_online());
    let directories: Vec<_> = online.map(|directory| (directory.id(), directory.path().to_owned())).collect();
    if directories.is_empty() {
        return Err(StartError::NoDirectory);
    }
    Ok(BrokerIdentity { id, endpoints, rack, directories, previous_epoch: dirs.previous_epoch() })
}

/// What coordinators are kept with.
fn keeper_parts(
    me: NodeId,
    metadata: MetadataHandle,
    config: Arc<DynamicConfig>,
    (partitions, reconciled, lease): (Partitions, Reconciled, Lease),
) -> KeeperParts {
    KeeperParts { me, metadata, config, partitions, reconciled, lease }
}

fn start_upkeep(
    config: Arc<DynamicConfig>,
    partitions: &Partitions,
    checkpoints: &Arc<Checkpoints>,
) -> io::Result<Upkeep> {
    let broker = config.latest().broker.clone();
    let secret = Uuid::new_v4().as_u128();
    let reserving = config.clone();
    let reserve = move || reserve(&reserving.latest().broker);
    Ok(Upkeep {
        periodic: checkpoints::spawn(checkpoints.clone(), intervals(&broker), reserve)?,
        retention: retention::spawn(partitions.clone(), retention_times(&broker))?,
        cleaner: Cleaner::start(partitions.clone(), checkpoints.clone(), config, secret)?,
    })
}

/// What each log directory keeps free of records.
fn reserve(config: &BrokerConfig) -> u64 {
    u64::try_from(config.log_dir_reserve_bytes).unwrap_or(0)
}

impl Upkeep {
    /// Ends what may still write to logs.
    async fn stop(self) {
        let Upkeep { periodic, retention, cleaner } = self;
        drop((periodic, retention));
        blocking(move || cleaner.stop()).await;
    }
}

/// The tasks that carry what shards tell other brokers and the controller.
fn replicate(
    fetching: FetcherContext,
    controller: ControllerChannel,
    inlets: Inlets,
    lifecycle: &Lifecycle,
) -> [JoinHandle<()>; 3] {
    let FetcherContext { me, epoch, partitions, metadata, listener, .. } = fetching.clone();
    let peers = Peers::new(format!("broker-{me}-mending"), listener, metadata.clone());
    let mender = Mender { peers, partitions: partitions.clone() };
    let Inlets { leaders, proposals, repairs } = inlets;
    let altering = IsrChanges { me, epoch, controller, partitions };
    [
        tokio::spawn(fetcher::driver::run(fetching, leaders)),
        tokio::spawn(altering.run(proposals)),
        tokio::spawn(repairs::run(me, lifecycle.clone(), mender, metadata.subscribe(), repairs)),
    ]
}

/// The tasks that deal with log directories.
fn look_after(
    dirs: &Arc<LogDirs>,
    lifecycle: &Lifecycle,
    failure: Arc<Notify>,
    to_do: mpsc::UnboundedReceiver<Chore>,
) -> [JoinHandle<()>; 4] {
    let old = dirs.clone();
    let (reports, to_report) = mpsc::unbounded_channel();
    [
        tokio::spawn(do_chores(to_do, dirs.clone(), reports)),
        tokio::spawn(assignments::run(to_report, lifecycle.clone())),
        tokio::spawn(report_failures(failure, dirs.clone(), lifecycle.clone())),
        tokio::task::spawn_blocking(move || old.remove(&old.take_interrupted())),
    ]
}

/// The tasks that follow the metadata.
fn follow(reconciler: Reconciler, metadata: &MetadataHandle, tasks: &mut Vec<JoinHandle<()>>) -> Departures {
    let departures = Departures::default();
    tasks.push(tokio::spawn(reconciler.run(metadata.subscribe())));
    tasks.push(tokio::spawn(departures.clone().follow(metadata.subscribe())));
    departures
}

/// The epoch as it is whenever somebody asks: a broker that was forgotten registers again.
fn epoch_of(lifecycle: &Lifecycle) -> Arc<dyn Fn() -> BrokerEpoch + Send + Sync> {
    let lifecycle = lifecycle.clone();
    Arc::new(move || lifecycle.epoch())
}

fn directories(
    log_dirs: Vec<LogDir>,
    shards: &[ShardSender],
    failure: &Arc<Notify>,
    waits: &DiskWaits,
    reserve: u64,
) -> Vec<Arc<Directory>> {
    let with_index = log_dirs.into_iter().enumerate();
    let directories = with_index.map(|(index, dir)| {
        let directory = Directory::new(index, dir, shards.to_vec(), DEFAULT_THREADS);
        directory.keep_free(reserve);
        Arc::new(directory.with_failure_signal(failure.clone()).with_waits(waits.clone()))
    });
    directories.collect()
}

fn intervals(config: &BrokerConfig) -> CheckpointIntervals {
    CheckpointIntervals {
        recovery_point_ms: i64::from(config.log_flush_offset_checkpoint_interval_ms),
        high_watermark_ms: config.replica_high_watermark_checkpoint_interval_ms,
        log_start_ms: i64::from(config.log_flush_start_offset_checkpoint_interval_ms),
    }
}

fn retention_times(config: &BrokerConfig) -> RetentionTimes {
    RetentionTimes {
        first_ms: config.log_initial_task_delay_ms,
        interval_ms: config.log_retention_check_interval_ms,
    }
}

impl RunningBroker {
    /// Lets the cluster know that this broker serves, and waits until its partitions are led.
    pub async fn unfence(&mut self) -> Result<(), LifecycleError> {
        let version = self.handles.lifecycle.unfence().await?;
        self.handles.reconciled.reached(version).await;
        Ok(())
    }

    /// Resolves, with the reason, when this process can no longer be the broker.
    pub async fn failed(&self) -> String {
        self.handles.lifecycle.ousted().await
    }

    /// Leaves the cluster: whoever can takes over what this broker leads. Requests that come meanwhile are still answered.
    pub async fn leave(&self) {
        // What is about to be acknowledged should be, before leadership goes.
        wait_flushed(&self.handles.log_dirs).await;
        self.handles.lifecycle.leave().await;
    }

    /// Leaves the cluster, flushes and closes everything, and notes that it was done in an orderly way. Requests must have ended
    /// before. The locks of the log directories come back, for the metadata log may lie in one.
    pub async fn stop(self) -> Vec<Box<dyn DiskLock>> {
        self.leave().await;
        let RunningBroker { handles, checkpoints, upkeep, tasks } = self;
        handles.moves.stop().await;
        for task in tasks {
            task.abort();
        }
        upkeep.stop().await;
        // Closing a log must not overtake a sync that is under way.
        wait_flushed(&handles.log_dirs).await;
        let logs = handles.partitions.close().await;
        let (dirs, epoch) = (handles.log_dirs, handles.lifecycle.epoch());
        blocking(move || {
            let incomplete = close_logs(logs);
            checkpoints.write_all();
            // A log that could not be opened, or closed as it should be, still has to be recovered.
            let is_complete = |directory: &Directory| !incomplete.contains(&directory.index());
            checkpoints.write_clean_shutdown(epoch, |directory| {
                !dirs.has_unrecovered(directory) && is_complete(directory)
            });
            let release = |directory: &Arc<Directory>| {
                directory.flush.close();
                directory.dir().release()
            };
            dirs.directories().iter().filter_map(release).collect()
        })
        .await
    }
}

/// Closes logs side by side: what it takes is mostly waiting for the disk. Gives the directories with logs that found no room
/// for all of their files.
fn close_logs(logs: Vec<(Arc<Partition>, Log)>) -> HashSet<usize> {
    let incomplete = Mutex::new(HashSet::new());
    let threads = DEFAULT_THREADS.min(logs.len());
    let logs = Mutex::new(logs.into_iter());
    let next = || logs.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some((partition, mut log)) = next() {
            let directory = partition.directory();
            match log.close() {
                Err(LogError::DiskFull) => {
                    let mut incomplete = incomplete.lock().unwrap_or_else(PoisonError::into_inner);
                    if incomplete.insert(directory.index()) {
                        let path = directory.path().display();
                        tracing::warn!("No room to close logs in {path}: the next start has to check them");
                    }
                }
                // A log whose directory has failed is closed as it is.
                Err(error) if directory.is_online() => {
                    directory.fail(&format!("close {}", partition.name), &error);
                }
                _ => {}
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    incomplete.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the syncs that are under way; a disk that hangs holds nobody up for long.
async fn wait_flushed(dirs: &Arc<LogDirs>) {
    let dirs = dirs.clone();
    blocking(move || {
        for directory in dirs.directories().iter().filter(|directory| directory.is_online()) {
            directory.flush.wait_idle(FLUSH_WAIT);
        }
    })
    .await;
}

fn start_shards(
    me: NodeId,
    config: &BrokerConfig,
    outlets: &Outlets,
    lease: &Lease,
    waits: &DiskWaits,
) -> io::Result<Vec<ShardSender>> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let count = usize::try_from(config.num_shard_threads).ok().filter(|count| *count > 0).unwrap_or(cores);
    let mut senders = Vec::with_capacity(count);
    for index in 0..count {
        let (sender, mailbox) = mailbox(MAILBOX_CAPACITY);
        let shard = Shard::new(index, me, outlets.clone()).with_lease(lease.clone()).with_slot(waits.slot());
        mailbox::spawn(index, shard, mailbox)?;
        senders.push(sender);
    }
    Ok(senders)
}

fn tell_strays(dirs: &LogDirs) {
    let mut strays: Vec<String> = dirs.unopened().iter().map(ToString::to_string).collect();
    if !strays.is_empty() {
        strays.sort_unstable();
        tracing::warn!(
            "Directories of {} partitions are not served, and kept: {}",
            strays.len(),
            strays.join(", ")
        );
    }
}

/// Does what the reconciler leaves to others, each thing by itself.
async fn do_chores(
    mut chores: mpsc::UnboundedReceiver<Chore>,
    dirs: Arc<LogDirs>,
    reports: mpsc::UnboundedSender<Report>,
) {
    while let Some(chore) = chores.recv().await {
        match chore {
            Chore::ReportPlacement(report) => drop(reports.send(report)),
            Chore::Remove { retired, delay_ms } => {
                let dirs = dirs.clone();
                tokio::spawn(async move {
                    let delay = Duration::from_millis(u64::try_from(delay_ms).unwrap_or(0));
                    tokio::time::sleep(delay).await;
                    blocking(move || dirs.remove(&retired)).await;
                });
            }
        }
    }
}

/// Tells the cluster of log directories that fail. When none is left there is nothing that the cluster could do better, and
/// the partitions go on answering that their storage is out of service.
async fn report_failures(failure: Arc<Notify>, dirs: Arc<LogDirs>, lifecycle: Lifecycle) {
    loop {
        failure.notified().await;
        let (online, failed): (Vec<_>, Vec<_>) =
            dirs.directories().iter().partition(|directory| directory.is_online());
        if online.is_empty() {
            tracing::error!("No log directory is in service any more");
            continue;
        }
        let failed = failed.into_iter().map(|directory| directory.id()).collect();
        if let Err(error) = lifecycle.report_failed_directories(failed).await {
            tracing::error!("Could not report failed log directories: {error}");
        }
    }
}
