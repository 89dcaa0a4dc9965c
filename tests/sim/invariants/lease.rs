//! No lease outlives an election: with acks=all nothing is acknowledged by a leader once another one has been elected uncleanly,
//! for nobody will have it. Of clean elections the replicas in sync take care. And nobody is fenced whose lease holds, unless it
//! leaves: the controller that has renewed it knows that the broker lives, and the next one waits until it is over.

use std::collections::BTreeMap;

use super::Broken;
use crate::metadata::Image;
use crate::sim::node::Node;
use crate::types::{BrokerEpoch, LeaderEpoch, MonotonicMs, NodeId, TopicIdPartition};

pub fn check(head: &Image, node: NodeId, id: TopicIdPartition, epoch: LeaderEpoch) -> Result<(), Broken> {
    let partition = head.topics.partition(id.topic_id, id.partition);
    let lossy = partition.map_or(LeaderEpoch::UNKNOWN, |partition| partition.lossy_epoch);
    if lossy > epoch {
        return Err(format!(
            "lease: {node} acknowledges in epoch {epoch} of {id:?}, which ended with {lossy}"
        ));
    }
    Ok(())
}

/// The brokers that are not fenced.
#[derive(Debug, Default)]
pub struct Active(BTreeMap<NodeId, BrokerEpoch>);

impl Active {
    /// The metadata has moved on.
    pub fn check(&mut self, head: &Image, nodes: &[Node], now: MonotonicMs) -> Result<(), Broken> {
        let active = head.brokers.iter().filter(|broker| broker.is_active());
        let active = active.map(|broker| (broker.id, broker.epoch)).collect();
        for (id, epoch) in std::mem::replace(&mut self.0, active) {
            let is_fenced =
                head.brokers.get(id).is_some_and(|broker| broker.epoch == epoch && !broker.is_active());
            let process = nodes.iter().find(|node| node.me == id).and_then(|node| node.process.as_ref());
            let process = process.filter(|process| process.epoch == Some(epoch) && !process.leaves);
            if is_fenced && process.is_some_and(|process| process.holds_lease(now)) {
                return Err(format!("lease: broker {id} is fenced in epoch {epoch} while its lease holds"));
            }
        }
        Ok(())
    }
}
