//! What a member does by itself for the set of voters: a voter tells where it listens when that has changed, the leader
//! ends changes that another one has half made, and a controller that may join the voters asks to.
//!
//! Knows the messages of Kafka's for it and no policy on changes. Invariant: as long as there is nothing to do, it sleeps.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::controller::peers::{PeerError, Peers};
use crate::controller::quorum::{Metrics, QuorumView};
use crate::controller::raft_types::{Endpoint, Member, raft_id};
use crate::controller::voter_set::{VoterChange, is_static};
use crate::controller::voters::Voters;
use crate::peer::{Address, Connection};
use crate::types::{DirectoryId, NodeId};
use crate::wire::messages::add_raft_voter_request::AddedVoterListener;
use crate::wire::messages::describe_quorum_request::{PartitionData, TopicData};
use crate::wire::messages::update_raft_voter_request::{KRaftVersionFeature, Listener};
use crate::wire::messages::{
    AddRaftVoterRequest, DescribeQuorumRequest, DescribeQuorumResponse, RemoveRaftVoterRequest, StrBytes,
    TopicName, UpdateRaftVoterRequest,
};

/// How long something that was tried rests before it is tried again.
const PAUSE: Duration = Duration::from_secs(1);
const DIAL_LIMIT: Duration = Duration::from_secs(1);
/// How long the leader may take for a change.
const CHANGE_LIMIT: Duration = Duration::from_secs(10);
const LOG_TOPIC: &str = "__cluster_metadata";

/// The upkeep of a member.
pub struct Upkeep {
    pub voters: Voters,
    pub view: QuorumView,
    pub peers: Arc<Peers>,
    /// This node as it should be known.
    pub me: Member,
    /// `controller.quorum.auto.join.enable`.
    pub joins: bool,
    /// `controller.quorum.bootstrap.servers`.
    pub servers: Vec<Address>,
}

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    FinishChange,
    TellEndpoints,
    Join,
}

/// A voter as DescribeQuorum tells it.
type Told = (NodeId, DirectoryId);

impl Upkeep {
    /// Runs as long as the member does.
    pub async fn run(self) {
        let mut metrics = self.view.metrics();
        loop {
            let work = {
                let now = metrics.borrow_and_update();
                if now.running_state.is_err() {
                    return;
                }
                self.due(&now)
            };
            let Some(work) = work else {
                if metrics.changed().await.is_err() {
                    return;
                }
                continue;
            };
            if let Err(error) = self.work(work).await {
                tracing::debug!(?work, %error, "upkeep of the voters is tried again");
            }
            sleep(PAUSE).await;
        }
    }

    fn due(&self, metrics: &Metrics) -> Option<Work> {
        let membership = metrics.membership_config.membership();
        let is_committed = *metrics.membership_config.log_id() <= metrics.last_applied;
        if metrics.state.is_leader() && membership.get_joint_config().len() > 1 && is_committed {
            return Some(Work::FinishChange);
        }
        let voters = || membership.voter_ids().filter_map(|id| membership.get_node(&id));
        let me = raft_id(self.peers.me.node);
        let own = membership.get_node(&me).filter(|_| membership.voter_ids().any(|id| id == me));
        let own = own.filter(|member| member.directory_id == self.me.directory_id);
        match own {
            _ if is_static(voters()) => None,
            Some(own) if own.endpoints != self.me.endpoints && metrics.current_leader.is_some() => {
                Some(Work::TellEndpoints)
            }
            Some(_) => None,
            None => self.joins.then_some(Work::Join),
        }
    }

    async fn work(&self, work: Work) -> Result<(), Failed> {
        match work {
            Work::FinishChange => self.voters.finish_change().await.map(|_| ())?,
            Work::TellEndpoints => self.tell_endpoints().await?,
            Work::Join => self.join().await?,
        }
        Ok(())
    }

    async fn tell_endpoints(&self) -> Result<(), Failed> {
        let node = self.peers.me.node;
        if self.view.is_leader() {
            let change = VoterChange::Update { node, member: self.me.clone() };
            return Ok(self.voters.change(change, CHANGE_LIMIT, true).await?);
        }
        let term = self.view.leadership_seen().term;
        let supported = KRaftVersionFeature::default().with_max_supported_version(1);
        let request = UpdateRaftVoterRequest::default()
            .with_cluster_id(Some(self.cluster_id()))
            .with_current_leader_epoch(i32::try_from(term).unwrap_or(i32::MAX))
            .with_voter_id(node.0)
            .with_voter_directory_id(self.me.directory_id)
            .with_listeners(self.me.endpoints.iter().map(update_listener).collect())
            .with_k_raft_version_feature(supported);
        let answer = self.voters.ask_leader(&request, 0, CHANGE_LIMIT).await;
        accepted(answer.ok_or(Failed::NoLeader)?.error_code)
    }

    /// Asks the leader to make this node a voter; a voter that has this node's id and another directory is what it was before
    /// it lost its disk, and goes first.
    async fn join(&self) -> Result<(), Failed> {
        let (connection, voters) = self.find_leader().await?;
        let node = self.peers.me.node;
        match voters.iter().find(|(id, _)| *id == node) {
            Some((_, directory)) if directory.is_nil() || *directory == self.me.directory_id => Ok(()),
            Some((_, directory)) => {
                let request = RemoveRaftVoterRequest::default()
                    .with_cluster_id(Some(self.cluster_id()))
                    .with_voter_id(node.0)
                    .with_voter_directory_id(*directory);
                accepted(connection.call(&request, CHANGE_LIMIT).await.map_err(PeerError::from)?.error_code)
            }
            None => {
                let request = AddRaftVoterRequest {
                    cluster_id: Some(self.cluster_id()),
                    timeout_ms: i32::try_from(CHANGE_LIMIT.as_millis()).unwrap_or(i32::MAX),
                    voter_id: node.0,
                    voter_directory_id: self.me.directory_id,
                    listeners: self.me.endpoints.iter().map(add_listener).collect(),
                    ack_when_committed: true,
                    ..AddRaftVoterRequest::default()
                };
                let limit = 2 * CHANGE_LIMIT;
                accepted(connection.call(&request, limit).await.map_err(PeerError::from)?.error_code)
            }
        }
    }

    /// A connection to the leader, and the voters as it tells them. Where it is, is asked wherever controllers may be.
    async fn find_leader(&self) -> Result<(Connection, Vec<Told>), Failed> {
        let leader = self.view.leader().and_then(|leader| self.view.address(leader));
        let hint = self.peers.leader_hint().map(|(_, address)| address);
        let voters = self.view.voters();
        let voters = voters.iter().filter_map(|(node, member)| self.peers.address(*node, Some(member)));
        for address in leader.into_iter().chain(hint).chain(voters).chain(self.servers.iter().cloned()) {
            match self.voters_at(&address).await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(error) => tracing::debug!(%address, %error, "no voters are told there"),
            }
        }
        Err(Failed::NoLeader)
    }

    async fn voters_at(&self, address: &Address) -> Result<Option<(Connection, Vec<Told>)>, PeerError> {
        let connection = self.peers.dial(address, DIAL_LIMIT).await?;
        let topic = TopicData::default()
            .with_topic_name(TopicName(StrBytes::from_static_str(LOG_TOPIC)))
            .with_partitions(vec![PartitionData::default()]);
        let request = DescribeQuorumRequest::default().with_topics(vec![topic]);
        let answer = connection.call(&request, CHANGE_LIMIT).await?;
        Ok(voters_told(&answer).map(|voters| (connection, voters)))
    }

    fn cluster_id(&self) -> StrBytes {
        StrBytes::from_string(self.peers.me.cluster_id.clone())
    }
}

fn voters_told(answer: &DescribeQuorumResponse) -> Option<Vec<Told>> {
    let log = answer.topics.first()?.partitions.first()?;
    let voters = log.current_voters.iter();
    (answer.error_code == 0 && log.error_code == 0)
        .then(|| voters.map(|voter| (NodeId(voter.replica_id.0), voter.replica_directory_id)).collect())
}

fn add_listener(endpoint: &Endpoint) -> AddedVoterListener {
    AddedVoterListener {
        name: StrBytes::from_string(endpoint.listener.clone()),
        host: StrBytes::from_string(endpoint.host.clone()),
        port: endpoint.port,
        ..AddedVoterListener::default()
    }
}

fn update_listener(endpoint: &Endpoint) -> Listener {
    Listener::default()
        .with_name(StrBytes::from_string(endpoint.listener.clone()))
        .with_host(StrBytes::from_string(endpoint.host.clone()))
        .with_port(endpoint.port)
}

/// Why something was not done this time.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("no leader is known")]
    NoLeader,
    #[error("the leader answers with error {0}")]
    Refused(i16),
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error(transparent)]
    Change(#[from] crate::controller::voters::ChangeVotersError),
}

fn accepted(error_code: i16) -> Result<(), Failed> {
    if error_code == 0 { Ok(()) } else { Err(Failed::Refused(error_code)) }
}
