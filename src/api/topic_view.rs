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
    /// Replicas on brokers that are fenced or have no endpoint here make the partition erroneous (Metadata 0), or are listed
    /// all the same.
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
        let alive = |broker: NodeId| {
            let registration = self.image.brokers.get(broker).filter(|registration| !registration.fenced);
            registration.and_then(|registration| registration.endpoint(self.listener)).is_some()
        };
        let listed = |broker: &&NodeId| !self.error_on_unavailable || alive(**broker);
        brokers.iter().filter(listed).copied().collect()
    }

    fn offline(&self, partition: &PartitionRegistration) -> Vec<NodeId> {
        let replicas = partition.replicas.iter().zip(&partition.directories);
        replicas
            .filter(|&(&replica, &directory)| {
                self.image.brokers.get(replica).is_none_or(|broker| {
                    let listens_here = broker.endpoint(self.listener).is_some();
                    broker.fenced || !listens_here || !broker.has_online(directory)
                })
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

#[cfg(test)]
mod tests {
    use super::{Showing, Shown};
    use crate::metadata::{Image, Record};
    use crate::types::{DirectoryId, ErrorCode, NodeId, Uuid};
    use crate::wire::messages::StrBytes;
    use crate::wire::messages::metadata::{
        BrokerEndpoint, PartitionRecord, RegisterBrokerRecord, TopicRecord,
    };

    const TOPIC: Uuid = Uuid::from_u128(77);
    const DIRECTORY: DirectoryId = Uuid::from_u128(1_001);

    fn broker(id: i32, listeners: &[&'static str], fenced: bool) -> Record {
        let end_points = listeners.iter().map(|name| BrokerEndpoint {
            name: StrBytes::from_static_str(name),
            host: StrBytes::from_static_str("localhost"),
            port: 9092,
            ..BrokerEndpoint::default()
        });
        RegisterBrokerRecord {
            broker_id: id,
            broker_epoch: i64::from(id),
            end_points: end_points.collect(),
            log_dirs: vec![DIRECTORY],
            fenced,
            ..RegisterBrokerRecord::default()
        }
        .into()
    }

    /// Brokers 1 (alive), 2 (fenced), 3 (only on INSIDE) and 4 (its directory is lost); 5 is not registered.
    fn shown(leader: i32, error_on_unavailable: bool, names_missing_listeners: bool) -> Shown {
        let mut image = Image::default();
        let records = [
            broker(1, &["OUTSIDE", "INSIDE"], false),
            broker(2, &["OUTSIDE"], true),
            broker(3, &["INSIDE"], false),
            broker(4, &["OUTSIDE"], false),
            TopicRecord { name: StrBytes::from_static_str("t"), topic_id: TOPIC, ..TopicRecord::default() }
                .into(),
            PartitionRecord {
                topic_id: TOPIC,
                replicas: vec![1, 2, 3, 4, 5],
                isr: vec![1, 2],
                directories: vec![DIRECTORY, DIRECTORY, DIRECTORY, Uuid::from_u128(1_002), DIRECTORY],
                leader,
                ..PartitionRecord::default()
            }
            .into(),
        ];
        for record in &records {
            image.apply(record);
        }
        let showing =
            Showing { image: &image, listener: "OUTSIDE", error_on_unavailable, names_missing_listeners };
        let topic = image.topics.by_id(TOPIC).unwrap();
        showing.partition(topic.partitions().next().unwrap().1)
    }

    fn ids(nodes: &[NodeId]) -> Vec<i32> {
        nodes.iter().map(|node| node.0).collect()
    }

    #[test]
    fn replicas_that_nobody_reaches_here_are_offline() {
        let shown = shown(1, false, true);
        assert_eq!((shown.error, shown.leader), (ErrorCode::None, NodeId(1)));
        assert_eq!(ids(&shown.replicas), [1, 2, 3, 4, 5]);
        assert_eq!(ids(&shown.isr), [1, 2]);
        assert_eq!(ids(&shown.offline), [2, 3, 4, 5]);
    }

    #[test]
    fn the_first_version_leaves_out_who_cannot_be_reached() {
        let shown = shown(1, true, false);
        assert_eq!(shown.error, ErrorCode::ReplicaNotAvailable);
        assert_eq!((ids(&shown.replicas), ids(&shown.isr)), (vec![1, 4], vec![1]));
    }

    #[test]
    fn a_leader_that_is_not_here_is_told_by_what_the_version_knows() {
        for (leader, names_missing, expected) in [
            (3, true, ErrorCode::ListenerNotFound),
            (3, false, ErrorCode::LeaderNotAvailable),
            (5, true, ErrorCode::LeaderNotAvailable),
            (-1, true, ErrorCode::LeaderNotAvailable),
        ] {
            let shown = shown(leader, false, names_missing);
            assert_eq!((shown.error, shown.leader), (expected, NodeId::NONE), "leader {leader}");
        }
        // A fenced broker that still leads is named: who asks it is refused there.
        assert_eq!(shown(2, false, true).leader, NodeId(2));
    }
}
