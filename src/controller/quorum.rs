//! The metadata quorum as its members see it: who leads, who follows, where each is, and how far. What DescribeQuorum
//! answers.
//!
//! Knows openraft's metrics and nothing of the records. Offsets here are indexes of the quorum's log, exclusive.

use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft::error::Fatal;
use openraft::{LogIdOptionExt, ServerState};
use tokio::sync::watch;

use crate::controller::duties::Office;
use crate::controller::peers::Peers;
use crate::controller::raft_types::{Endpoint, Member, RaftNodeId, node_id, raft_id};
use crate::controller::voter_set::is_static;
use crate::peer::Address;
use crate::types::{DirectoryId, NodeId, Offset, TimestampMs};

pub type Metrics = openraft::RaftMetrics<RaftNodeId, Member>;

/// A leader that a majority has not answered for so long may have been replaced without its knowledge. The others elect
/// in about half of it.
const CUT_OFF: Duration = Duration::from_secs(2);

/// The quorum at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumStatus {
    pub leader: Option<NodeId>,
    /// The leader's term.
    pub epoch: i32,
    /// All below it is committed.
    pub high_watermark: Offset,
    pub voters: Vec<ReplicaStatus>,
    pub observers: Vec<ReplicaStatus>,
}

/// A member and how far its log reaches. Only the leader knows this of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    pub node: NodeId,
    pub directory_id: DirectoryId,
    pub endpoints: Vec<Endpoint>,
    pub log_end: Option<Offset>,
    /// When it was last heard from.
    pub last_fetch: Option<TimestampMs>,
    /// When it last had all there was.
    pub last_caught_up: Option<TimestampMs>,
}

/// Who leads, and since which term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    pub leader: Option<NodeId>,
    pub term: u64,
}

/// What this node sees of its own part.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub state: ServerState,
    pub leader: Option<RaftNodeId>,
    pub term: u64,
    /// For a leader: since when a majority has not answered, in ms.
    pub since_quorum_ack: Option<u64>,
}

/// Looks at the quorum through this node's eyes.
#[derive(Clone, Debug)]
pub struct QuorumView {
    metrics: watch::Receiver<Metrics>,
    leadership: watch::Receiver<Leadership>,
    /// When openraft spoke last: while it hangs, the last it said stays as it is.
    spoke: watch::Receiver<Instant>,
    peers: Arc<Peers>,
}

impl QuorumView {
    /// The view, and the task that tells of changes of the leader as long as the member runs.
    pub fn new(
        metrics: watch::Receiver<Metrics>,
        peers: Arc<Peers>,
    ) -> (QuorumView, impl Future<Output = ()> + Send) {
        let (changes, leadership) = watch::channel(leadership(&metrics.borrow()));
        let (speaks, spoke) = watch::channel(Instant::now());
        let follow = follow_leadership(metrics.clone(), changes, speaks);
        (QuorumView { metrics, leadership, spoke, peers }, follow)
    }

    pub fn status(&self, now: TimestampMs) -> QuorumStatus {
        status(&self.metrics.borrow(), &self.peers, now)
    }

    /// The term in which this node leads, for as long as it does. The task behind it ends with the member.
    pub fn office(&self) -> Office {
        let (mut metrics, now) = (self.metrics.clone(), self.metrics.clone());
        let (office, watched) = watch::channel(held(&metrics.borrow_and_update()));
        tokio::spawn(async move {
            while metrics.changed().await.is_ok() {
                let now = held(&metrics.borrow_and_update());
                office.send_if_modified(|known| std::mem::replace(known, now) != now);
            }
            office.send_replace(None);
        });
        Office::new(watched, move |term| held(&now.borrow()) == Some(term))
    }

    /// The node that leads, as far as this node knows.
    pub fn leader(&self) -> Option<NodeId> {
        self.metrics.borrow().current_leader.map(node_id)
    }

    pub fn is_leader(&self) -> bool {
        self.metrics.borrow().state.is_leader()
    }

    /// Whether this node holds itself for the leader and a majority has not told it so for long.
    pub fn is_cut_off(&self) -> bool {
        let silent = self.spoke.borrow().elapsed();
        is_cut_off(&self.metrics.borrow(), silent)
    }

    /// Where the active controller may be found. Where this node holds itself for it: at the other voters, and then here.
    pub fn leader_candidates(&self) -> Vec<Address> {
        let Some(leader) = self.leader() else { return Vec::new() };
        let me = node_id(self.metrics.borrow().id);
        let others = self.voters().into_iter().map(|(id, _)| id).filter(|id| leader == me && *id != me);
        others.chain([leader]).filter_map(|id| self.address(id)).collect()
    }

    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    pub fn metrics(&self) -> watch::Receiver<Metrics> {
        self.metrics.clone()
    }

    pub fn leadership_seen(&self) -> Seen {
        let metrics = self.metrics.borrow();
        Seen {
            state: metrics.state,
            leader: metrics.current_leader,
            term: metrics.current_term,
            since_quorum_ack: metrics.millis_since_quorum_ack,
        }
    }

    pub fn member(&self, node: NodeId) -> Option<Member> {
        let metrics = self.metrics.borrow();
        metrics.membership_config.membership().get_node(&raft_id(node)).cloned()
    }

    pub fn is_voter(&self, node: NodeId) -> bool {
        let id = raft_id(node);
        self.metrics.borrow().membership_config.voter_ids().any(|voter| voter == id)
    }

    /// All voters, with what is known of them.
    pub fn voters(&self) -> Vec<(NodeId, Member)> {
        let metrics = self.metrics.borrow();
        let membership = metrics.membership_config.membership();
        let voters = membership.voter_ids();
        voters.filter_map(|id| Some((node_id(id), membership.get_node(&id)?.clone()))).collect()
    }

    /// The level of the feature kraft.version: 0 while the voters are those of the configuration (KIP-853).
    pub fn kraft_version(&self) -> i16 {
        let voters = self.voters();
        i16::from(!voters.is_empty() && !is_static(voters.iter().map(|(_, member)| member)))
    }

    /// Where a controller listens.
    pub fn address(&self, node: NodeId) -> Option<Address> {
        let known = self.peers.address(node, self.member(node).as_ref());
        known.or_else(|| Some(self.peers.leader_hint()?).filter(|(id, _)| *id == node).map(|(_, at)| at))
    }

    /// Why this member has stopped, if it has.
    pub fn failure(&self) -> Option<Fatal<RaftNodeId>> {
        self.metrics.borrow().running_state.clone().err()
    }

    /// Waits until this node does not lead.
    pub async fn lost_leadership(&self) {
        let mut metrics = self.metrics.clone();
        // A member that has ended leads no more either.
        let _ = metrics.wait_for(|metrics| !metrics.state.is_leader()).await;
    }

    /// Waits, but not for long, until another node than `node` is known to lead.
    pub async fn led_by_other_than(&self, node: NodeId, most: Duration) {
        let mut leadership = self.leadership.clone();
        let led = leadership.wait_for(|now| now.leader.is_some_and(|leader| leader != node));
        let _ = tokio::time::timeout(most, led).await;
    }
}

fn held(metrics: &Metrics) -> Option<u64> {
    metrics.state.is_leader().then_some(metrics.current_term)
}

fn leadership(metrics: &Metrics) -> Leadership {
    Leadership { leader: metrics.current_leader.map(node_id), term: metrics.current_term }
}

/// `silent` is for how long openraft has not spoken.
fn is_cut_off(metrics: &Metrics, silent: Duration) -> bool {
    let has_others = metrics.membership_config.voter_ids().any(|voter| voter != metrics.id);
    // A new leader has not been answered yet.
    let unanswered = Duration::from_millis(metrics.millis_since_quorum_ack.unwrap_or(0));
    metrics.state.is_leader() && has_others && unanswered + silent > CUT_OFF
}

async fn follow_leadership(
    mut metrics: watch::Receiver<Metrics>,
    changes: watch::Sender<Leadership>,
    speaks: watch::Sender<Instant>,
) {
    loop {
        speaks.send_replace(Instant::now());
        let now = leadership(&metrics.borrow_and_update());
        if changes.send_if_modified(|known| std::mem::replace(known, now) != now)
            && let Some(leader) = now.leader
        {
            tracing::info!("Node {leader} is the active controller, in epoch {}", now.term);
        }
        if metrics.changed().await.is_err() {
            return;
        }
    }
}

fn status(metrics: &Metrics, peers: &Peers, now: TimestampMs) -> QuorumStatus {
    let membership = metrics.membership_config.membership();
    let voters: Vec<RaftNodeId> = membership.voter_ids().collect();
    let replica = |(id, member): (&RaftNodeId, &Member)| {
        let is_self = *id == metrics.id;
        let reached = if is_self {
            Some(metrics.last_log_index)
        } else {
            let replication = metrics.replication.as_ref();
            replication.and_then(|replication| replication.get(id)).map(LogIdOptionExt::index)
        };
        let contact = peers.contact(node_id(*id));
        let last_heard = contact.map(|contact| contact.last_heard);
        let has_all = reached == Some(metrics.last_log_index);
        let caught_up = if has_all { last_heard } else { contact.and_then(|it| it.last_caught_up) };
        ReplicaStatus {
            node: node_id(*id),
            directory_id: member.directory_id,
            endpoints: member.endpoints.clone(),
            log_end: reached.map(next_offset),
            // The leader hears itself all the time.
            last_fetch: if is_self { Some(now) } else { last_heard },
            last_caught_up: if is_self { Some(now) } else { caught_up },
        }
    };
    let (voters, observers): (Vec<_>, Vec<_>) = membership.nodes().partition(|(id, _)| voters.contains(id));
    QuorumStatus {
        leader: metrics.current_leader.map(node_id),
        epoch: i32::try_from(metrics.current_term).unwrap_or(i32::MAX),
        high_watermark: next_offset(metrics.last_applied.index()),
        voters: voters.into_iter().map(replica).collect(),
        observers: observers.into_iter().map(replica).collect(),
    }
}

fn next_offset(last: Option<u64>) -> Offset {
    Offset(last.and_then(|last| i64::try_from(last + 1).ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use openraft::{Membership, StoredMembership};

    use super::*;
    use crate::controller::rpc::Identity;
    use crate::types::Uuid;

    fn leader_of(voters: &[RaftNodeId]) -> Metrics {
        let nodes: BTreeMap<RaftNodeId, Member> = voters.iter().map(|id| (*id, Member::default())).collect();
        let voters: BTreeSet<RaftNodeId> = voters.iter().copied().collect();
        let membership = Arc::new(StoredMembership::new(None, Membership::new(vec![voters], nodes)));
        Metrics {
            state: ServerState::Leader,
            current_leader: Some(1),
            millis_since_quorum_ack: Some(100),
            membership_config: membership,
            ..Metrics::new_initial(1)
        }
    }

    #[test]
    fn a_leader_is_cut_off_when_its_quorum_or_its_own_raft_is_silent() {
        let second = Duration::from_secs(1);
        let leader = leader_of(&[1, 2, 3]);
        assert!(!is_cut_off(&leader, second));
        assert!(is_cut_off(&leader, 2 * second), "openraft hangs");
        let unheard = Metrics { millis_since_quorum_ack: Some(2_100), ..leader.clone() };
        assert!(is_cut_off(&unheard, Duration::ZERO), "the others are silent");
        let new = Metrics { millis_since_quorum_ack: None, ..leader.clone() };
        assert!(!is_cut_off(&new, Duration::ZERO));
        assert!(is_cut_off(&new, 3 * second));
        let follower = Metrics { state: ServerState::Follower, ..leader };
        assert!(!is_cut_off(&follower, 10 * second));
        assert!(!is_cut_off(&leader_of(&[1]), 10_000 * second), "nobody else could lead");
    }

    #[tokio::test]
    async fn an_office_has_ended_as_soon_as_openraft_says_so() {
        let (metrics, seen) = watch::channel(Metrics { current_term: 5, ..leader_of(&[1, 2, 3]) });
        let me = Identity { cluster_id: "c".to_owned(), node: NodeId(1), directory: Uuid::from_u128(1) };
        let (view, _) = QuorumView::new(seen, Arc::new(Peers::new(me, BTreeMap::new(), None)));
        let mut office = view.office();
        assert_eq!(office.term(), Some(5));
        // No task has run since.
        metrics.send_modify(|metrics| metrics.state = ServerState::Follower);
        assert_eq!(office.term(), None);
        // The next term begins once it is noted.
        metrics.send_modify(|metrics| (metrics.state, metrics.current_term) = (ServerState::Leader, 7));
        assert_eq!(office.term(), None);
        assert!(office.changed().await);
        assert_eq!(office.term(), Some(7));
        // What openraft said last stays when it has ended.
        drop(metrics);
        office.ends().await;
        assert_eq!(office.term(), None);
    }
}
