//! Changing the voters while the quorum runs (KIP-853): the leader takes one change at a time, and brings a new voter in only
//! when it has the log and is reached where it says.
//!
//! Knows openraft and messages; which changes may be made is in `voter_set`. Invariants: a change is checked on what the
//! leader sees when it makes it; one that has begun is seen through, whether or not somebody waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kafka_protocol::protocol::Request;
use openraft::ChangeMembers;
use openraft::error::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::raft::VoteRequest;
use tokio::time::{Instant, timeout, timeout_at};

use crate::controller::observers::Observers;
use crate::controller::peers::{Lane, PeerError, Peers};
use crate::controller::quorum::{Metrics, QuorumView};
use crate::controller::raft_store::LogStore;
use crate::controller::raft_types::{Member, Raft, RaftNodeId, node_id, raft_id};
use crate::controller::rpc::{self, Refusal};
use crate::controller::service::ServiceParts;
use crate::controller::voter_set::{ChangeRefused, VoterChange, VoterSet};
use crate::types::{DirectoryId, NodeId};
use crate::wire::messages::RaftFoundingRequest;

/// A voter that has not answered for so long does not count as reached.
const REACHED_WITHIN: Duration = Duration::from_secs(2);
/// So long a leader waits for voters that it does not reach.
const HEARD_WITHIN: Duration = Duration::from_secs(1);
const DIAL_LIMIT: Duration = Duration::from_secs(1);
/// How long a change that meets another one rests.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Why the voters were not changed, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeVotersError {
    #[error("this node does not lead the metadata quorum")]
    NotLeader { leader: Option<NodeId> },
    #[error(transparent)]
    Refused(#[from] ChangeRefused),
    #[error("node {0} does not follow the metadata log with this directory, or lags behind")]
    Behind(NodeId),
    #[error("node {node} is not reached where it is said to listen: {reason}")]
    NotReached { node: NodeId, reason: String },
    /// The change may still take effect.
    #[error("the change was not committed in time")]
    Timeout,
    #[error("the metadata quorum cannot take the change: {0}")]
    Unavailable(String),
}

/// The way to change the voters; cheap to clone.
#[derive(Clone)]
pub struct Voters {
    raft: Raft,
    store: LogStore,
    view: QuorumView,
    peers: Arc<Peers>,
    observers: Arc<Observers>,
    /// Whether a change is under way.
    changing: Arc<AtomicBool>,
}

/// The right to change the voters, given back when it is dropped.
struct Turn(Arc<AtomicBool>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Voters {
    pub fn new(parts: &ServiceParts) -> Voters {
        Voters {
            raft: parts.raft.clone(),
            store: parts.store.clone(),
            view: parts.view.clone(),
            peers: Arc::clone(&parts.peers),
            observers: Arc::clone(&parts.observers),
            changing: Arc::default(),
        }
    }

    /// Changes the voters, if this node leads and the change may be made within `limit`. Without `until_committed` it returns
    /// when the change has begun.
    pub async fn change(
        &self,
        change: VoterChange,
        limit: Duration,
        until_committed: bool,
    ) -> Result<(), ChangeVotersError> {
        if !self.view.is_leader() {
            return Err(self.not_leader());
        }
        let deadline = Instant::now() + limit;
        let turn = self.begin().ok_or(ChangeRefused::Pending)?;
        self.check_settled(&change, deadline).await?;
        let set = self.seen();
        if set.is_static() || is_so_already(&set, &change) {
            return Ok(());
        }
        if let VoterChange::Add { node, member } = &change {
            self.prepare(*node, member, deadline).await?;
            self.check_settled(&change, deadline).await?;
        }
        let voters = self.clone();
        let made = tokio::spawn(async move {
            let made = voters.make(change).await;
            drop(turn);
            made
        });
        if !until_committed {
            return Ok(());
        }
        match timeout_at(deadline, made).await {
            Ok(Ok(made)) => made,
            Ok(Err(error)) => Err(ChangeVotersError::Unavailable(error.to_string())),
            Err(_) => Err(ChangeVotersError::Timeout),
        }
    }

    /// Lets the quorum know its voters by their directories, so that they can be changed from here on (kraft.version 1): until
    /// now they are those of everybody's configuration. Each voter is asked which directory it has, so all must be there.
    pub async fn make_dynamic(&self, limit: Duration) -> Result<(), ChangeVotersError> {
        if !self.view.is_leader() {
            return Err(self.not_leader());
        }
        let turn = self.begin().ok_or(ChangeRefused::Pending)?;
        let set = self.seen();
        if !set.is_static() {
            return Ok(());
        }
        let named = set.voters.iter().map(|(node, member)| async move {
            let directory_id = self.directory_of(*node, member).await?;
            Ok::<_, ChangeVotersError>((raft_id(*node), Member { directory_id, ..member.clone() }))
        });
        let named = futures_util::future::try_join_all(named).await?.into_iter().collect();
        let voters = self.clone();
        let made = tokio::spawn(async move {
            let made = voters.apply(ChangeMembers::SetNodes(named), true).await;
            drop(turn);
            made
        });
        match timeout(limit, made).await {
            Ok(Ok(Ok(()))) => {
                tracing::info!(
                    "The voters of the metadata quorum can be changed from now on: kraft.version is 1"
                );
                Ok(())
            }
            Ok(Ok(Err(error))) => Err(error),
            Ok(Err(error)) => Err(ChangeVotersError::Unavailable(error.to_string())),
            Err(_) => Err(ChangeVotersError::Timeout),
        }
    }

    /// The metadata directory of a voter, as it says itself.
    async fn directory_of(&self, node: NodeId, member: &Member) -> Result<DirectoryId, ChangeVotersError> {
        if node == self.peers.me.node {
            return Ok(self.peers.me.directory);
        }
        let asked = async {
            let address = self.peers.address(node, Some(member)).ok_or(PeerError::NoAddress)?;
            let connection = self.peers.dial(&address, DIAL_LIMIT).await?;
            let sender = self.peers.me.sender(Some(node));
            let message = RaftFoundingRequest { sender, ..RaftFoundingRequest::default() };
            let answer = connection.call(&message, DIAL_LIMIT).await?;
            Refusal::of(answer.refusal).map_err(|refusal| PeerError::Refused(node, refusal))?;
            Ok::<_, PeerError>(answer.directory_id)
        };
        asked.await.map_err(|error| ChangeVotersError::NotReached { node, reason: error.to_string() })
    }

    /// Ends a change that a leader before this one has half made. Returns whether there was one.
    pub async fn finish_change(&self) -> Result<bool, ChangeVotersError> {
        let (half_made, stays) = {
            let metrics = self.view.metrics();
            let metrics = metrics.borrow();
            let configs = metrics.membership_config.membership().get_joint_config();
            let me = raft_id(self.peers.me.node);
            (configs.len() > 1, configs.last().is_some_and(|new| new.contains(&me)))
        };
        let Some(_turn) = self.begin().filter(|_| half_made) else { return Ok(false) };
        // Whatever the new voters are: they are so from here on. Whether this leader is one of them decides whether it stays.
        self.apply(ChangeMembers::AddVoterIds(BTreeSet::new()), stays).await?;
        Ok(true)
    }

    /// Asks the leader, if it is another node whose address is known.
    pub async fn ask_leader<R: Request + 'static>(
        &self,
        request: &R,
        version: i16,
        limit: Duration,
    ) -> Option<R::Response> {
        let leader = self.view.leader().filter(|leader| *leader != self.peers.me.node)?;
        let address = self.view.address(leader)?;
        let asked = async {
            let connection = self.peers.connect(leader, &address, Lane::Forward, DIAL_LIMIT).await?;
            Ok::<_, PeerError>(connection.call_at(version, request, limit).await?)
        };
        asked.await.inspect_err(|error| tracing::debug!(%leader, %error, "the leader was not reached")).ok()
    }

    fn begin(&self) -> Option<Turn> {
        let free = self.changing.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire);
        free.ok().map(|_| Turn(Arc::clone(&self.changing)))
    }

    fn not_leader(&self) -> ChangeVotersError {
        ChangeVotersError::NotLeader { leader: self.view.leader() }
    }

    /// The voters as this node, the leader, sees them.
    pub(super) fn seen(&self) -> VoterSet {
        let metrics = self.view.metrics();
        let metrics = metrics.borrow();
        let is_reached =
            |id: &RaftNodeId| *id == metrics.id || self.peers.reaches(node_id(*id), REACHED_WITHIN);
        VoterSet {
            voters: self.view.voters().into_iter().collect(),
            reached: metrics.membership_config.voter_ids().filter(is_reached).map(node_id).collect(),
            settled: is_settled(&metrics),
            listener: self.peers.listener().map(str::to_owned),
        }
    }

    /// Checks a change, and waits if only another one stands in its way.
    async fn check_settled(&self, change: &VoterChange, deadline: Instant) -> Result<(), ChangeVotersError> {
        let grace = Instant::now() + HEARD_WITHIN;
        loop {
            let refused = match self.seen().check(change) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            let is_young = Instant::now() < grace.min(deadline);
            match refused {
                ChangeRefused::Pending => {}
                // A leader that has just begun has not heard the others yet.
                ChangeRefused::NoMajority { .. } | ChangeRefused::LosesQuorum { .. } if is_young => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                    continue;
                }
                refused => return Err(refused.into()),
            }
            let mut metrics = self.view.metrics();
            let settled = metrics.wait_for(|now| is_settled(now) || !now.state.is_leader());
            match timeout_at(deadline, settled).await {
                Ok(Ok(now)) if now.state.is_leader() => {}
                Ok(_) => return Err(self.not_leader()),
                Err(_) => return Err(refused.into()),
            }
        }
    }

    /// Makes sure that a node has the log and is reached where it says, so that the quorum can count on it at once.
    async fn prepare(
        &self,
        node: NodeId,
        member: &Member,
        deadline: Instant,
    ) -> Result<(), ChangeVotersError> {
        let mut metrics = self.view.metrics();
        let target = metrics.borrow().last_log_index;
        let follows = |now: &Metrics| {
            let known = now.membership_config.membership().get_node(&raft_id(node));
            known.is_some_and(|known| known.directory_id == member.directory_id)
                && self.observers.polls(node)
                && now
                    .replication
                    .as_ref()
                    .and_then(|all| all.get(&raft_id(node)).copied().flatten())
                    .is_some_and(|reached| Some(reached.index) >= target)
        };
        let caught_up = metrics.wait_for(|now| !now.state.is_leader() || follows(now));
        match timeout_at(deadline, caught_up).await {
            Ok(Ok(now)) if now.state.is_leader() => {}
            Ok(_) => return Err(self.not_leader()),
            Err(_) => return Err(ChangeVotersError::Behind(node)),
        }
        let not_reached = |reason: String| ChangeVotersError::NotReached { node, reason };
        let address = self.peers.address(node, Some(member));
        let address = address.ok_or_else(|| not_reached("it has no address".to_owned()))?;
        let answered = timeout(2 * DIAL_LIMIT, async {
            let connection = self.peers.dial(&address, DIAL_LIMIT).await?;
            let vote = self.raft.with_raft_state(|state| *state.vote_ref()).await;
            let vote = vote.map_err(|_| PeerError::Malformed)?;
            // Nobody is elected by this; whoever it is not for says so.
            let request = VoteRequest { vote, last_log_id: self.store.last_log_id() };
            let message = rpc::vote_request(self.peers.me.sender(Some(node)), true, &request);
            let answer = connection.call(&message, DIAL_LIMIT).await?;
            Refusal::of(answer.refusal).map_err(|refusal| PeerError::Refused(node, refusal))
        });
        match answered.await {
            Ok(answered) => answered.map_err(|error| not_reached(error.to_string())),
            Err(_) => Err(not_reached("it does not answer".to_owned())),
        }
    }

    async fn make(&self, change: VoterChange) -> Result<(), ChangeVotersError> {
        let set_member = |node, member| ChangeMembers::SetNodes(BTreeMap::from([(raft_id(node), member)]));
        match change {
            VoterChange::Add { node, member } => {
                self.apply(set_member(node, member), true).await?;
                self.apply(ChangeMembers::AddVoterIds(BTreeSet::from([raft_id(node)])), true).await?;
                tracing::info!("Node {node} is a voter of the metadata quorum now");
            }
            VoterChange::Remove { node, .. } => {
                // It follows the log from here on, and so learns that it votes no more. A leader that takes itself out stays one
                // as long as it is a member, so it goes altogether, and asks the next leader for the log.
                let stays = node != self.peers.me.node;
                self.apply(ChangeMembers::RemoveVoters(BTreeSet::from([raft_id(node)])), stays).await?;
                tracing::info!("Node {node} is no voter of the metadata quorum any more");
            }
            VoterChange::Update { node, member } => {
                self.apply(set_member(node, member), true).await?;
                tracing::info!("Voter {node} of the metadata quorum listens at another address now");
            }
        }
        Ok(())
    }

    /// Makes one change of the members, after whatever other one is under way. Whom it takes the vote from is a learner then if
    /// it `stays`.
    async fn apply(
        &self,
        change: ChangeMembers<RaftNodeId, Member>,
        stays: bool,
    ) -> Result<(), ChangeVotersError> {
        loop {
            let Err(error) = self.raft.change_membership(change.clone(), stays).await else { return Ok(()) };
            match error {
                RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => {
                    return Err(ChangeVotersError::NotLeader { leader: forward.leader_id.map(node_id) });
                }
                // A node that begins or ceases to follow the log is a change too.
                RaftError::APIError(ClientWriteError::ChangeMembershipError(
                    ChangeMembershipError::InProgress(_),
                )) => tokio::time::sleep(RETRY_PAUSE).await,
                error => return Err(ChangeVotersError::Unavailable(error.to_string())),
            }
        }
    }
}

/// Whether the last change of the members is committed and none is half made.
fn is_settled(metrics: &Metrics) -> bool {
    let stored = &metrics.membership_config;
    stored.membership().get_joint_config().len() == 1 && *stored.log_id() <= metrics.last_applied
}

fn is_so_already(set: &VoterSet, change: &VoterChange) -> bool {
    matches!(change, VoterChange::Update { node, member } if set.voters.get(node) == Some(member))
}
