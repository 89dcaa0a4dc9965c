//! A topic as Metadata and DescribeTopicPartitions show it to clients of one listener: which brokers can be reached there,
//! which replicas are offline, and what is wrong with a partition.

use crate::metadata::Image;
use crate::metadata::brokers::Endpoint;
use crate::metadata::topics::PartitionRegistration;
pub use crate::metadata::topics::name::is_internal;
use crate::types::{ErrorCode, NodeId};
use crate::wire::messages::{BrokerId, StrBytes, TopicName};

/// How a request wants what is unavailable to be shown.
#[derive(Clone, Copy, Debug)]
pub struct Showing<'a> {
    pub image: &'a Image,
    pub listener: &'a str,
    /// Replicas on brokers without an endpoint here make the partition erroneous (Metadata 0), or are listed all the same.
    pub error_on_unavailable: bool,
    /// LISTENER_NOT_FOUND for a leader that is there but does not listen here (Metadata 6), or LEADER_NOT_AVAILABLE.
    pub names_missing_listeners: bool,
}

/// What is said of one partition.
#[derive(Debug)]
pub struct Shown {
    pub error: ErrorCode,
    pub leader: NodeId,
    pub replicas: Vec<NodeId>,
    pub isr: Vec<NodeId>,
    pub offline: Vec<NodeId>,
}

impl<'a> Showing<'a> {
    /// Where a broker can be reached through this listener.
    pub fn endpoint(&self, broker: NodeId) -> Option<&'a Endpoint> {
        self.image.brokers.get(broker)?.endpoint(self.listener)
    }

    pub fn partition(&self, partition: &PartitionRegistration) -> Shown {
        let replicas = self.reachable(&partition.replicas);
        let isr = self.reachable(&partition.isr);
        let offline = self.offline(partition);
        if self.endpoint(partition.leader).is_none() {
            let there = self.image.brokers.get(partition.leader).is_some();
            let error = if there && self.names_missing_listeners {
                ErrorCode::ListenerNotFound
            } else {
                ErrorCode::LeaderNotAvailable
            };
            return Shown { error, leader: NodeId::NONE, replicas, isr, offline };
        }
        let complete = replicas.len() == partition.replicas.len() && isr.len() == partition.isr.len();
        let error = if complete { ErrorCode::None } else { ErrorCode::ReplicaNotAvailable };
        Shown { error, leader: partition.leader, replicas, isr, offline }
    }

    fn reachable(&self, brokers: &[NodeId]) -> Vec<NodeId> {
        let listed = |broker: &&NodeId| !self.error_on_unavailable || self.endpoint(**broker).is_some();
        brokers.iter().filter(listed).copied().collect()
    }

    fn offline(&self, partition: &PartitionRegistration) -> Vec<NodeId> {
        let replicas = partition.replicas.iter().zip(&partition.directories);
        replicas
            .filter(|&(&replica, &directory)| {
                let broker = self.image.brokers.get(replica);
                broker.is_none_or(|broker| broker.fenced || !broker.has_online(directory))
            })
            .map(|(&replica, _)| replica)
            .collect()
    }
}

pub fn broker_ids(nodes: &[NodeId]) -> Vec<BrokerId> {
    nodes.iter().map(|node| BrokerId(node.0)).collect()
}

pub fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}
