//! What a shard tells the rest of the broker of its own accord: what its followers want from their leaders, the in-sync
//! sets that its leaders want, and which replicas are damaged. Gathered during a step and sent at its end.
//!
//! Must not know connections or the controller. Invariant: what a shard says of a partition to one leader's fetcher arrives in
//! the order in which it was said.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use super::messages::{IsrProposal, PartitionWants};
use super::repairs::Repair;
use crate::types::NodeId;

/// Where shards send. Cheap to clone; all shards of a broker share it.
#[derive(Clone, Debug)]
pub struct Outlets {
    routes: Arc<Mutex<HashMap<NodeId, mpsc::UnboundedSender<Vec<PartitionWants>>>>>,
    leaders: mpsc::UnboundedSender<LeaderInlet>,
    proposals: mpsc::UnboundedSender<Vec<IsrProposal>>,
    repairs: mpsc::UnboundedSender<Repair>,
}

/// What followers want from one leader, from the first time that there is such a leader on.
#[derive(Debug)]
pub struct LeaderInlet {
    pub leader: NodeId,
    pub wants: mpsc::UnboundedReceiver<Vec<PartitionWants>>,
}

/// The other end.
#[derive(Debug)]
pub struct Inlets {
    pub leaders: mpsc::UnboundedReceiver<LeaderInlet>,
    pub proposals: mpsc::UnboundedReceiver<Vec<IsrProposal>>,
    pub repairs: mpsc::UnboundedReceiver<Repair>,
}

/// Both ends of what the shards of one broker tell.
pub fn outlets() -> (Outlets, Inlets) {
    let (leader_sender, leaders) = mpsc::unbounded_channel();
    let (proposal_sender, proposals) = mpsc::unbounded_channel();
    let (repair_sender, repairs) = mpsc::unbounded_channel();
    let outlets = Outlets {
        routes: Arc::default(),
        leaders: leader_sender,
        proposals: proposal_sender,
        repairs: repair_sender,
    };
    (outlets, Inlets { leaders, proposals, repairs })
}

impl Outlets {
    /// Bounded by nature: a partition says something new only after something happened to it. Nobody listens any more
    /// while the broker stops.
    fn send_wants(&self, leader: NodeId, wants: Vec<PartitionWants>) {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let route = routes.entry(leader).or_insert_with(|| {
            let (route, receiver) = mpsc::unbounded_channel();
            let _ = self.leaders.send(LeaderInlet { leader, wants: receiver });
            route
        });
        let _ = route.send(wants);
    }
}

/// What one shard has gathered during a step.
#[derive(Debug)]
pub(super) struct Outbox {
    outlets: Outlets,
    wants: Vec<(NodeId, PartitionWants)>,
    proposals: Vec<IsrProposal>,
}

impl Outbox {
    pub(super) fn new(outlets: Outlets) -> Outbox {
        Outbox { outlets, wants: Vec::new(), proposals: Vec::new() }
    }

    pub(super) fn want(&mut self, leader: NodeId, wants: PartitionWants) {
        if leader != NodeId::NONE {
            self.wants.push((leader, wants));
        }
    }

    pub(super) fn propose(&mut self, proposal: IsrProposal) {
        self.proposals.push(proposal);
    }

    /// So rare that it is not gathered.
    pub(super) fn repair(&self, repair: Repair) {
        let _ = self.outlets.repairs.send(repair);
    }

    /// Sends what was gathered, in order.
    pub(super) fn send(&mut self) {
        if !self.wants.is_empty() {
            // The sort is stable, so the order within a leader stays.
            self.wants.sort_by_key(|(leader, _)| *leader);
            let mut wants = self.wants.drain(..).peekable();
            while let Some((leader, first)) = wants.next() {
                let mut batch = vec![first];
                while let Some((_, next)) = wants.next_if(|(other, _)| *other == leader) {
                    batch.push(next);
                }
                self.outlets.send_wants(leader, batch);
            }
        }
        if !self.proposals.is_empty() {
            let _ = self.outlets.proposals.send(std::mem::take(&mut self.proposals));
        }
    }
}
