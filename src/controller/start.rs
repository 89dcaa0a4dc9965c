//! Starting and stopping a member of the metadata quorum.
//!
//! Invariants: when `Controller::join` returns, this node's image holds everything that was acknowledged before, the
//! cluster's first records among it, exactly once; for a quorum of one that is so when `start` returns. After `shutdown`
//! returns the directory may be opened again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use openraft::error::Fatal;
use openraft::{ChangeMembers, LogIdOptionExt, SnapshotPolicy};
use tokio::sync::{oneshot, watch};

use crate::controller::deciding::ProposeError;
use crate::controller::forward::{QuorumLog, fatal};
use crate::controller::founding::{self, Foundation, Founding, FoundingError};
use crate::controller::learners::Learners;
use crate::controller::network::Network;
use crate::controller::observer::Observer;
use crate::controller::observers::Observers;
use crate::controller::pace::Pace;
use crate::controller::peers::Peers;
use crate::controller::proposer::{self, MetadataHandle};
use crate::controller::pulse::Pulse;
use crate::controller::quorum::QuorumView;
use crate::controller::raft_store::{LogStore, OpenStoreError};
use crate::controller::raft_types::{Member, Membership, Raft, RaftNodeId, node_id, raft_id};
use crate::controller::rpc::Identity;
use crate::controller::service::{RaftService, ServiceParts};
use crate::controller::snapshot::SnapshotDir;
use crate::controller::snapshot_keeper::{SnapshotLimits, keep_snapshots};
use crate::controller::state_machine::{LoadError, StateMachine};
use crate::controller::upkeep::Upkeep;
use crate::controller::voter_set::is_static;
use crate::metadata::{Decision, Image, ImageVersion, Record};
use crate::peer::Address;
use crate::storage::disk::Disk;
use crate::types::{DirectoryId, NodeId};

/// The directory of the metadata log, where a Kafka person looks for it. Its files are Floodmark's own.
pub const METADATA_LOG_DIR: &str = "__cluster_metadata-0";

/// A snapshot is taken after so many entries at the latest, which bounds what a restart replays.
const SNAPSHOT_ENTRIES: u64 = 10_000;
/// After this time a start that waits for others says so.
const WAIT_TELL: Duration = Duration::from_secs(1);
/// Entries kept in the log beyond the snapshot, for members that are only a little behind.
const KEPT_ENTRIES: u64 = 1_000;

/// What a member of the quorum needs to know.
#[derive(Debug)]
pub struct ControllerConfig {
    pub node_id: NodeId,
    pub cluster_id: String,
    /// `metadata.log.dir`.
    pub dir: PathBuf,
    pub disk: Arc<dyn Disk>,
    /// This node as others know it: its metadata directory, and its controller listeners if it has any.
    pub me: Member,
    /// The voters with which the quorum begins. A node that is not among them follows the log without a vote.
    pub voters: BTreeMap<NodeId, Member>,
    /// Where voters are to be found, by configuration: it goes before what the log remembers.
    pub addresses: BTreeMap<NodeId, Address>,
    /// Where to look for the quorum besides: `controller.quorum.bootstrap.servers`.
    pub servers: Vec<Address>,
    /// The first of `controller.listener.names`.
    pub listener: Option<String>,
    /// Whether this node makes itself a voter: `controller.quorum.auto.join.enable`.
    pub joins_voters: bool,
    /// `metadata.log.segment.bytes`.
    pub segment_bytes: u64,
    pub snapshots: SnapshotLimits,
    pub timing: Timing,
    /// The records with which a new cluster begins.
    pub bootstrap_records: Vec<Record>,
}

/// The quorum's clock. A quorum of one does without: it wakes for changes only.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub heartbeat: Duration,
    /// A voter that has not heard its leader for a random time between these stands for election. One whose leader has
    /// crashed for all to see does not wait for it.
    pub election_timeout_min: Duration,
    pub election_timeout_max: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            heartbeat: Duration::from_millis(100),
            election_timeout_min: Duration::from_millis(600),
            election_timeout_max: Duration::from_millis(1_000),
        }
    }
}

/// How long a message to a peer may take. openraft calls it the heartbeat's interval, but `pace` beats.
const RPC_LIMIT: Duration = Duration::from_millis(500);
/// While a leader was heard so recently, nobody else gets a vote. Shorter than any voter's patience.
const LEASE: Duration = Duration::from_millis(502);
/// openraft wakes for ticks even when they are off; who has no peers and nobody to find it lets them be rare.
const QUIET: Duration = Duration::from_secs(3600);

/// Why the quorum's member cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "the metadata log belongs to a quorum of which node {node} is not a voter: its voters are {voters:?}"
    )]
    OtherQuorum { node: NodeId, voters: Vec<NodeId> },
    #[error("the quorum's timing is not possible: {0}")]
    Timing(String),
    #[error(transparent)]
    Store(#[from] OpenStoreError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Founding(#[from] FoundingError),
    #[error(
        "this node was formatted as it started, but the quorum runs already: controller {0} knows nothing of its metadata \
         directory. Its disk may be lost or not mounted. A voter that comes back without what it had must not vote by \
         itself: if the other voters have everything, empty {dir} and run 'floodmark storage format' for it",
        dir = .1.display()
    )]
    LostDisk(NodeId, PathBuf),
    #[error("the metadata log cannot be begun: {0}")]
    Begin(std::io::Error),
    #[error(
        "this node has no part in the metadata quorum, because its beginning cannot be written down: {0}"
    )]
    NotBegun(String),
    #[error("the metadata quorum stopped: {0}")]
    Stopped(String),
    #[error("the cluster's first records could not be written: {0}")]
    Bootstrap(ProposeError),
}

/// The running member. Dropped without `shutdown` it goes on until the runtime ends.
pub struct Controller {
    id: RaftNodeId,
    raft: Raft,
    store: LogStore,
    handle: MetadataHandle,
    service: RaftService,
    peers: Arc<Peers>,
    bootstrap_records: Vec<Record>,
    stop_proposer: oneshot::Sender<()>,
    proposer: tokio::task::JoinHandle<()>,
    founding: watch::Receiver<Founding>,
    dir: PathBuf,
    /// All that ends when it is told to.
    tasks: Vec<tokio::task::JoinHandle<()>>,
    log_ended: oneshot::Receiver<()>,
}

/// Starts the member. One that is its whole quorum leads at once; [`Controller::join`] waits for that of others.
pub async fn start(config: ControllerConfig) -> Result<(MetadataHandle, Controller), StartError> {
    let raft_config = raft_config(&config)?;
    let (store, log_ended, state_machine) = open(&config).await?;
    let begun = begin_log(&store, &config).await.inspect_err(|_| store.stop())?;
    let (founding, founded) = watch::channel(begun);
    let published = state_machine.published();
    let id = raft_id(config.node_id);
    let peers = Arc::new(Peers::new(identity(&config), config.addresses.clone(), config.listener.clone()));
    let observers = Arc::new(Observers::default());
    let network = Network { peers: Arc::clone(&peers), observers: Arc::clone(&observers) };
    let raft = Raft::new(id, Arc::new(raft_config), network, store.clone(), state_machine).await;
    let raft = raft.inspect_err(|_| store.stop()).map_err(|error| stopped(&error))?;
    let (view, follow_leadership) = QuorumView::new(raft.metrics(), Arc::clone(&peers));
    let log = QuorumLog::new(raft.clone(), view.clone(), Arc::clone(&peers), Arc::clone(&published));
    let (stop_proposer, stop) = oneshot::channel();
    let (handle, proposer) = proposer::proposer(log.clone(), Arc::clone(&published), view.clone(), stop);
    let learners = Learners::new(raft.clone(), view.clone(), Arc::clone(&observers), Arc::clone(&published));
    let parts = ServiceParts {
        raft: raft.clone(),
        store: store.clone(),
        log,
        view,
        peers: Arc::clone(&peers),
        observers,
        learners,
        pulse: Arc::default(),
        founding: founded.clone(),
        lease: LEASE,
    };
    let (pace, watch) = (Pace::new(&parts, config.timing), Pace::new(&parts, config.timing));
    let learners = parts.learners.clone();
    let (view, pulse) = (parts.view.clone(), Arc::clone(&parts.pulse));
    let service = RaftService::new(parts);
    let (observer, upkeep) = by_itself(&service, view, pulse, &peers, &config);
    let mut tasks = vec![tokio::spawn(follow_leadership)];
    tasks.push(tokio::spawn(keep_snapshots(raft.clone(), store.clone(), published, config.snapshots)));
    tasks.extend(foundation(&config, &raft, &peers, founding).map(|it| tokio::spawn(it.run())));
    let proposer = tokio::spawn(proposer);
    let (voters, bootstrap_records, dir) = (config.voters, config.bootstrap_records, config.dir);
    let mut controller = Controller {
        id,
        raft,
        store,
        handle: handle.clone(),
        service,
        peers,
        bootstrap_records,
        stop_proposer,
        proposer,
        founding: founded.clone(),
        dir,
        tasks,
        log_ended,
    };
    match controller.begin(&config.me, voters).await {
        Ok(()) => {
            controller.tasks.extend([tokio::spawn(pace.run()), tokio::spawn(watch.watch_leader())]);
            controller.tasks.extend([tokio::spawn(observer.run(founded)), tokio::spawn(learners.tidy())]);
            controller.tasks.push(tokio::spawn(upkeep.run()));
            Ok((handle, controller))
        }
        Err(error) => {
            controller.shutdown().await;
            Err(error)
        }
    }
}

fn identity(config: &ControllerConfig) -> Identity {
    Identity {
        cluster_id: config.cluster_id.clone(),
        node: config.node_id,
        directory: config.me.directory_id,
    }
}

/// What finds out how the quorum begins, if that is open.
fn foundation(
    config: &ControllerConfig,
    raft: &Raft,
    peers: &Arc<Peers>,
    founding: watch::Sender<Founding>,
) -> Option<Foundation> {
    if founding.borrow().is_over() {
        return None;
    }
    let (raft, peers, voters) = (raft.clone(), Arc::clone(peers), config.voters.clone());
    let (disk, dir) = (Arc::clone(&config.disk), config.dir.clone());
    Some(Foundation { raft, peers, voters, disk, dir, founding })
}

/// What a member does for itself: it follows the log while it has no vote, and looks after its place among the voters.
fn by_itself(
    service: &RaftService,
    view: QuorumView,
    pulse: Arc<Pulse>,
    peers: &Arc<Peers>,
    config: &ControllerConfig,
) -> (Observer, Upkeep) {
    let upkeep = Upkeep {
        voters: service.voters().clone(),
        view: view.clone(),
        peers: Arc::clone(peers),
        me: config.me.clone(),
        joins: config.joins_voters,
        servers: config.servers.clone(),
    };
    let (service, peers, servers) = (service.clone(), Arc::clone(peers), config.servers.clone());
    (Observer { service, pulse, view, peers, servers }, upkeep)
}

/// How far this node is with the beginning of its quorum. One that votes alone, or not at all, has nobody to ask.
fn how_begun(config: &ControllerConfig) -> Result<Founding, FoundingError> {
    let voters = &config.voters;
    if !voters.contains_key(&config.node_id) || voters.len() < 2 {
        return Ok(Founding::ByHand);
    }
    founding::read(&*config.disk, &config.dir)
}

fn raft_config(config: &ControllerConfig) -> Result<openraft::Config, StartError> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if config.timing.election_timeout_min <= LEASE || config.timing.heartbeat >= LEASE {
        return Err(StartError::Timing(format!("{:?}", config.timing)));
    }
    // Alone, and not to be found by anybody: there is nothing that would have to be in time.
    let alone = config.voters.keys().all(|id| *id == config.node_id) && !config.voters.is_empty();
    let limit = if alone && config.me.endpoints.is_empty() { QUIET } else { RPC_LIMIT };
    let raft_config = openraft::Config {
        cluster_name: config.cluster_id.clone(),
        heartbeat_interval: millis(limit),
        election_timeout_min: millis(limit) + 1,
        election_timeout_max: millis(limit) + 2,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(SNAPSHOT_ENTRIES),
        max_in_snapshot_log_to_keep: KEPT_ENTRIES,
        enable_tick: false,
        enable_heartbeat: false,
        enable_elect: false,
        ..openraft::Config::default()
    };
    raft_config.validate().map_err(|error| StartError::Timing(error.to_string()))
}

async fn open(
    config: &ControllerConfig,
) -> Result<(LogStore, oneshot::Receiver<()>, StateMachine), StartError> {
    let (disk, dir) = (Arc::clone(&config.disk), config.dir.join(METADATA_LOG_DIR));
    let segment_bytes = config.segment_bytes;
    let opened = tokio::task::spawn_blocking(move || {
        let (store, log_ended) = LogStore::open(Arc::clone(&disk), &dir, segment_bytes)?;
        let state_machine = StateMachine::load(SnapshotDir::new(disk, &dir)).inspect_err(|_| store.stop())?;
        Ok((store, log_ended, state_machine))
    });
    opened.await.map_err(|error| StartError::Stopped(error.to_string()))?
}

/// Gives the new log of a voter its voters. All begin with the same entry, so none has to ask the others, unless it is open
/// how the quorum begins.
async fn begin_log(store: &LogStore, config: &ControllerConfig) -> Result<Founding, StartError> {
    let founding = how_begun(config)?;
    let has_begun = store.last_log_id().is_some() || !founding.is_over();
    if has_begun || !config.voters.contains_key(&config.node_id) {
        return Ok(founding);
    }
    let nodes: BTreeMap<RaftNodeId, Member> =
        config.voters.iter().map(|(node, member)| (raft_id(*node), member.clone())).collect();
    let membership = Membership::new(vec![nodes.keys().copied().collect()], nodes);
    store.begin(membership).await.map_err(StartError::Begin)?;
    Ok(founding)
}

impl Controller {
    /// Checks the voters that the log knows. A member that is the only voter leads when this returns, and has applied all
    /// there is.
    async fn begin(&self, me: &Member, voters: BTreeMap<NodeId, Member>) -> Result<(), StartError> {
        let node = node_id(self.id);
        if !self.raft.is_initialized().await.map_err(|error| stopped(&error))? {
            return Ok(());
        }
        let mut metrics = self.raft.metrics();
        let known = metrics.wait_for(|metrics| {
            metrics.running_state.is_err() || metrics.membership_config.voter_ids().next().is_some()
        });
        let known = known.await.map_err(|_| stopped(&Fatal::<RaftNodeId>::Stopped))?.clone();
        let membership = known.membership_config.membership();
        let members = membership.voter_ids().filter_map(|id| membership.get_node(&id));
        // Only where the configuration says who votes should the log know the same; others may have changed.
        let is_static = is_static(voters.values()) && is_static(members);
        let known: Vec<NodeId> = membership.voter_ids().map(node_id).collect();
        if is_static && !known.contains(&node) && voters.contains_key(&node) {
            return Err(StartError::OtherQuorum { node, voters: known });
        }
        if is_static && !voters.keys().eq(known.iter()) {
            tracing::warn!(
                "The metadata log knows the voters {known:?}, not those of the configuration, {:?}; the log counts",
                voters.keys().collect::<Vec<_>>()
            );
        }
        if known == [node] {
            self.raft.trigger().elect().await.map_err(|error| stopped(&error))?;
            self.lead(me).await?;
            let records = self.bootstrap_records.clone();
            bootstrap(&self.handle, records).await.map_err(StartError::Bootstrap)?;
        }
        Ok(())
    }

    /// Waits until this node, the only voter, leads and has applied all there is.
    async fn lead(&self, me: &Member) -> Result<(), StartError> {
        let mut metrics = self.raft.metrics();
        let leads = metrics.wait_for(|metrics| {
            metrics.running_state.is_err()
                || metrics.state.is_leader() && metrics.last_applied.index() == metrics.last_log_index
        });
        let metrics = leads.await.map_err(|_| stopped(&Fatal::<RaftNodeId>::Stopped))?.clone();
        metrics.running_state.map_err(|error| stopped(&error))?;
        let known = metrics.membership_config.membership().get_node(&self.id);
        let mut me = me.clone();
        if known.is_some_and(|known| known.directory_id.is_nil()) {
            // The voters of a configuration have no directories.
            me.directory_id = DirectoryId::nil();
        }
        if known != Some(&me) {
            let changed = ChangeMembers::SetNodes(BTreeMap::from([(self.id, me)]));
            let changed = self.raft.change_membership(changed, true).await;
            changed.map_err(|error| StartError::Stopped(error.to_string()))?;
        }
        Ok(())
    }

    /// Waits until this node's image has all that was acknowledged before, which takes a quorum that works. May be dropped,
    /// and the member stopped, at any time.
    pub async fn join(&self) -> Result<(), StartError> {
        let mut founding = self.founding.clone();
        // Whoever waits for the beginning says so itself.
        let begun = founding.wait_for(|founding| *founding != Founding::Open).await;
        match begun.as_deref() {
            Ok(Founding::Lost(node)) => return Err(StartError::LostDisk(*node, self.dir.clone())),
            Ok(Founding::Failed(why)) => return Err(StartError::NotBegun(why.clone())),
            _ => drop(begun),
        }
        let mut told = false;
        loop {
            let joined = async {
                if self.bootstrap_records.is_empty() {
                    self.handle.changed(ImageVersion(0)).await;
                }
                let records = self.bootstrap_records.clone();
                self.handle.run_within(WAIT_TELL, move |image| first_records(image, &records)).await
            };
            let limited = tokio::time::timeout(2 * WAIT_TELL, joined);
            match limited.await.unwrap_or(Err(ProposeError::Timeout)) {
                Ok(()) => return Ok(()),
                Err(ProposeError::Timeout | ProposeError::NotLeader { .. }) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::info!(
                            "Waiting for the metadata quorum: no majority of its voters is there, or none is reached"
                        );
                    }
                }
                Err(error) => return Err(StartError::Bootstrap(error)),
            }
        }
    }

    /// What peers ask of this member.
    pub fn service(&self) -> RaftService {
        self.service.clone()
    }
}

/// Writes the first records of a new cluster.
async fn bootstrap(handle: &MetadataHandle, records: Vec<Record>) -> Result<(), ProposeError> {
    if records.is_empty() || handle.image().version > ImageVersion(0) {
        return Ok(());
    }
    handle.run(move |image| first_records(image, &records)).await
}

fn first_records(image: &Image, records: &[Record]) -> Decision<()> {
    // Another node may have been first.
    Decision::new(if image.version == ImageVersion(0) { records.to_vec() } else { Vec::new() }, ())
}

fn stopped(error: &Fatal<RaftNodeId>) -> StartError {
    StartError::Stopped(error.to_string())
}

impl Controller {
    /// Waits until the member stops by itself, which it does when its disk fails, and tells why.
    pub async fn failed(&self) -> String {
        let mut metrics = self.raft.metrics();
        match metrics.wait_for(|metrics| metrics.running_state.is_err()).await {
            Ok(metrics) => metrics.running_state.as_ref().err().map_or_else(String::new, ToString::to_string),
            Err(_) => "it has ended".to_owned(),
        }
    }

    /// Whether changes wait for room on the disk.
    pub fn disk_is_full(&self) -> bool {
        self.store.disk_is_full()
    }

    /// Takes a snapshot of the image as it is now, and waits for it.
    pub async fn snapshot_taken(&self) -> Result<(), ProposeError> {
        let mut metrics = self.raft.metrics();
        let applied = metrics.borrow().last_applied;
        self.raft.trigger().snapshot().await.map_err(|error| fatal(&error))?;
        let taken = metrics.wait_for(|metrics| metrics.running_state.is_err() || metrics.snapshot >= applied);
        match taken.await.map(|metrics| metrics.running_state.is_ok()) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(ProposeError::ShuttingDown),
        }
    }

    /// Stops the member: whoever waits is answered, what was appended is synced, the files are closed.
    pub async fn shutdown(self) {
        self.store.stop_waiting_for_room();
        // The proposer may have ended already, and so may everything below.
        let _ = self.stop_proposer.send(());
        let _ = self.proposer.await;
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
        let _ = self.raft.shutdown().await;
        self.peers.disconnect();
        self.store.stop();
        let _ = self.log_ended.await;
    }
}
