//! The metadata quorum as its members see it: who leads, who follows, and how far each is. What DescribeQuorum answers.
//!
//! Knows openraft's metrics and nothing of the records. Offsets here are indexes of the quorum's log, exclusive.

use openraft::LogIdOptionExt;
use tokio::sync::watch;

use crate::controller::duties::Office;
use crate::controller::raft_types::{Endpoint, Member, RaftNodeId, node_id};
use crate::types::{DirectoryId, NodeId, Offset, TimestampMs};

type Metrics = openraft::RaftMetrics<RaftNodeId, Member>;

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

/// Looks at the quorum through this node's eyes.
#[derive(Clone, Debug)]
pub struct QuorumView {
    metrics: watch::Receiver<Metrics>,
}

impl QuorumView {
    pub fn new(metrics: watch::Receiver<Metrics>) -> QuorumView {
        QuorumView { metrics }
    }

    pub fn status(&self, now: TimestampMs) -> QuorumStatus {
        status(&self.metrics.borrow(), now)
    }

    /// The term in which this node leads, for as long as it does. The task behind it ends with the member.
    pub fn office(&self) -> Office {
        let held = |metrics: &Metrics| metrics.state.is_leader().then_some(metrics.current_term);
        let mut metrics = self.metrics.clone();
        let (office, watched) = watch::channel(held(&metrics.borrow_and_update()));
        tokio::spawn(async move {
            while metrics.changed().await.is_ok() {
                let now = held(&metrics.borrow_and_update());
                office.send_if_modified(|known| std::mem::replace(known, now) != now);
            }
            office.send_replace(None);
        });
        watched
    }

    /// The node that leads, as far as this node knows.
    pub fn leader(&self) -> Option<NodeId> {
        self.metrics.borrow().current_leader.map(node_id)
    }
}

fn status(metrics: &Metrics, now: TimestampMs) -> QuorumStatus {
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
        ReplicaStatus {
            node: node_id(*id),
            directory_id: member.directory_id,
            endpoints: member.endpoints.clone(),
            log_end: reached.map(next_offset),
            // The leader hears itself all the time. openraft does not tell when it heard others.
            last_fetch: is_self.then_some(now),
            last_caught_up: is_self.then_some(now),
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
