//! Starting and stopping a member of the metadata quorum.
//!
//! Invariants: when `start` returns, this node leads, its image holds everything that was ever acknowledged, and the
//! cluster's first records are in it, exactly once; after `shutdown` returns the directory may be opened again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use openraft::error::{CheckIsLeaderError, ClientWriteError, Fatal, ForwardToLeader, RaftError};
use openraft::{ChangeMembers, LogIdOptionExt, SnapshotPolicy};
use tokio::sync::oneshot;

use crate::controller::deciding::ProposeError;
use crate::controller::network::NoPeers;
use crate::controller::proposer::{self, MetadataHandle, MetadataLog};
use crate::controller::quorum::QuorumView;
use crate::controller::raft_store::{LogStore, OpenStoreError};
use crate::controller::raft_types::{Applied, Batch, Member, Raft, RaftNodeId, node_id, raft_id};
use crate::controller::snapshot::SnapshotDir;
use crate::controller::snapshot_keeper::{SnapshotLimits, keep_snapshots};
use crate::controller::state_machine::{LoadError, StateMachine};
use crate::metadata::{Decision, ImageVersion, Record};
use crate::storage::disk::Disk;
use crate::types::NodeId;

/// The directory of the metadata log, where a Kafka person looks for it. Its files are Floodmark's own.
pub const METADATA_LOG_DIR: &str = "__cluster_metadata-0";

/// A snapshot is taken after so many entries at the latest, which bounds what a restart replays.
const SNAPSHOT_ENTRIES: u64 = 10_000;
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
    /// `controller.quorum.voters`, this node among them.
    pub voters: BTreeMap<NodeId, Member>,
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
    pub election_timeout_min: Duration,
    pub election_timeout_max: Duration,
}

/// Alone there is nobody to hear a heartbeat and nobody to lose an election to. openraft's timer cannot be left out, so it
/// hardly ever fires; a quorum that grows has to start its members' Raft anew.
const QUIET: Timing = Timing {
    heartbeat: Duration::from_secs(3600),
    election_timeout_min: Duration::from_secs(2 * 3600),
    election_timeout_max: Duration::from_secs(3 * 3600),
};

impl Default for Timing {
    fn default() -> Self {
        Timing {
            heartbeat: Duration::from_millis(100),
            election_timeout_min: Duration::from_millis(300),
            election_timeout_max: Duration::from_millis(600),
        }
    }
}

/// Why the quorum's member cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "controller.quorum.voters names {0} nodes; this version runs a metadata quorum of one, the node itself"
    )]
    QuorumOfMany(usize),
    #[error("node {0} is not among controller.quorum.voters")]
    NotAVoter(NodeId),
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
    #[error("the metadata quorum stopped: {0}")]
    Stopped(String),
    #[error("the cluster's first records could not be written: {0}")]
    Bootstrap(ProposeError),
}

/// The running member. Dropped without `shutdown` it goes on until the runtime ends.
pub struct Controller {
    raft: Raft,
    store: LogStore,
    stop_proposer: oneshot::Sender<()>,
    proposer: tokio::task::JoinHandle<()>,
    keeper: tokio::task::JoinHandle<()>,
    log_ended: oneshot::Receiver<()>,
}

/// Starts the member: as the leader of a quorum of one, at once.
pub async fn start(config: ControllerConfig) -> Result<(MetadataHandle, Controller), StartError> {
    let me = config.voters.get(&config.node_id).cloned().ok_or(StartError::NotAVoter(config.node_id))?;
    if config.voters.len() > 1 {
        return Err(StartError::QuorumOfMany(config.voters.len()));
    }
    let raft_config = raft_config(&config)?;
    let (store, log_ended, state_machine) = open(&config).await?;
    let published = state_machine.published();
    let id = raft_id(config.node_id);
    let raft = Raft::new(id, Arc::new(raft_config), NoPeers, store.clone(), state_machine).await;
    let raft = raft.inspect_err(|_| store.stop()).map_err(|error| stopped(&error))?;
    let (stop_proposer, stop) = oneshot::channel();
    let view = QuorumView::new(raft.metrics());
    let (handle, proposer) =
        proposer::proposer(RaftLog { raft: raft.clone() }, Arc::clone(&published), view, stop);
    let keeper = keep_snapshots(raft.clone(), store.clone(), published, config.snapshots);
    let (proposer, keeper) = (tokio::spawn(proposer), tokio::spawn(keeper));
    let controller = Controller { raft, store, stop_proposer, proposer, keeper, log_ended };
    let begun = async {
        lead(&controller.raft, id, &me).await?;
        bootstrap(&handle, config.bootstrap_records).await.map_err(StartError::Bootstrap)
    };
    match begun.await {
        Ok(()) => Ok((handle, controller)),
        Err(error) => {
            controller.shutdown().await;
            Err(error)
        }
    }
}

fn raft_config(config: &ControllerConfig) -> Result<openraft::Config, StartError> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let alone = config.voters.len() == 1;
    let timing = if alone { QUIET } else { config.timing };
    let raft_config = openraft::Config {
        cluster_name: config.cluster_id.clone(),
        heartbeat_interval: millis(timing.heartbeat),
        election_timeout_min: millis(timing.election_timeout_min),
        election_timeout_max: millis(timing.election_timeout_max),
        snapshot_policy: SnapshotPolicy::LogsSinceLast(SNAPSHOT_ENTRIES),
        max_in_snapshot_log_to_keep: KEPT_ENTRIES,
        enable_tick: !alone,
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

/// Makes this node the leader of its quorum of one, and waits until it has applied all there is.
async fn lead(raft: &Raft, id: RaftNodeId, me: &Member) -> Result<(), StartError> {
    if raft.is_initialized().await.map_err(|error| stopped(&error))? {
        let membership = raft.metrics().borrow().membership_config.clone();
        let voters: Vec<RaftNodeId> = membership.voter_ids().collect();
        if !voters.contains(&id) {
            let voters = voters.into_iter().map(node_id).collect();
            return Err(StartError::OtherQuorum { node: node_id(id), voters });
        }
        raft.trigger().elect().await.map_err(|error| stopped(&error))?;
    } else {
        let members = BTreeMap::from([(id, me.clone())]);
        raft.initialize(members).await.map_err(|error| StartError::Stopped(error.to_string()))?;
    }
    let mut metrics = raft.metrics();
    let leads = metrics.wait_for(|metrics| {
        metrics.running_state.is_err()
            || metrics.state.is_leader() && metrics.last_applied.index() == metrics.last_log_index
    });
    let metrics = leads.await.map_err(|_| stopped(&Fatal::<RaftNodeId>::Stopped))?.clone();
    metrics.running_state.map_err(|error| stopped(&error))?;
    let known = metrics.membership_config.membership().get_node(&id);
    if known != Some(me) {
        let changed = ChangeMembers::SetNodes(BTreeMap::from([(id, me.clone())]));
        let changed = raft.change_membership(changed, true).await;
        changed.map_err(|error| StartError::Stopped(error.to_string()))?;
    }
    Ok(())
}

/// Writes the first records of a new cluster.
async fn bootstrap(handle: &MetadataHandle, records: Vec<Record>) -> Result<(), ProposeError> {
    if records.is_empty() || handle.image().version > ImageVersion(0) {
        return Ok(());
    }
    let first = handle.run(move |image| {
        // Another node may have been first.
        let records = if image.version == ImageVersion(0) { records.clone() } else { Vec::new() };
        Decision::new(records, ())
    });
    first.await
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
        self.keeper.abort();
        let _ = self.raft.shutdown().await;
        self.store.stop();
        let _ = self.log_ended.await;
    }
}

/// The metadata log behind openraft.
struct RaftLog {
    raft: Raft,
}

impl MetadataLog for RaftLog {
    async fn propose(&self, batch: Batch) -> Result<Applied, ProposeError> {
        match self.raft.client_write(batch).await {
            Ok(response) => Ok(response.data),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => Err(not_leader(&forward)),
            Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(error))) => {
                Err(ProposeError::Unavailable(error.to_string()))
            }
            Err(RaftError::Fatal(error)) => Err(fatal(&error)),
        }
    }

    async fn confirm(&self) -> Result<(), ProposeError> {
        match self.raft.ensure_linearizable().await {
            Ok(_) => Ok(()),
            Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(forward))) => {
                Err(not_leader(&forward))
            }
            Err(RaftError::APIError(CheckIsLeaderError::QuorumNotEnough(error))) => {
                Err(ProposeError::Unavailable(error.to_string()))
            }
            Err(RaftError::Fatal(error)) => Err(fatal(&error)),
        }
    }
}

fn not_leader(forward: &ForwardToLeader<RaftNodeId, Member>) -> ProposeError {
    ProposeError::NotLeader { leader: forward.leader_id.map(node_id) }
}

fn fatal(error: &Fatal<RaftNodeId>) -> ProposeError {
    match error {
        Fatal::Stopped => ProposeError::ShuttingDown,
        Fatal::StorageError(_) | Fatal::Panicked => ProposeError::Unavailable(error.to_string()),
    }
}
