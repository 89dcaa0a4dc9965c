//! How data requests find the partition that they name, and what they are refused: the partition does not exist, is led
//! elsewhere, is offline, or the client's leader epoch is not the current one (KIP-320).

use std::sync::Arc;

use crate::broker::partitions::{Leadership, Partition, Role};
use crate::broker::serving::NotServed;
use crate::metadata::Image;
use crate::types::{ErrorCode, LeaderEpoch, NodeId, PartitionIndex, TopicIdPartition};

use super::Api;

/// A partition that this node leads.
#[derive(Clone, Debug)]
pub struct Led {
    pub partition: Arc<Partition>,
    pub leadership: Leadership,
}

impl Api {
    /// The partition of a topic by name, if this node leads it.
    pub(super) fn led_by_name(
        &self,
        image: &Image,
        topic: &str,
        partition: i32,
        epoch: LeaderEpoch,
    ) -> Result<Led, ErrorCode> {
        let topic = image.topics.by_name(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        self.led(image, TopicIdPartition { topic_id: topic.id, partition: PartitionIndex(partition) }, epoch)
    }

    /// The partition of a topic by name, if this node has a replica of it that is in service.
    pub(super) fn hosted_by_name(
        &self,
        image: &Image,
        topic: &str,
        partition: i32,
        epoch: LeaderEpoch,
    ) -> Result<Led, ErrorCode> {
        let topic = image.topics.by_name(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        self.hosted(
            image,
            TopicIdPartition { topic_id: topic.id, partition: PartitionIndex(partition) },
            epoch,
        )
    }

    /// The partition of a known topic, if this node leads it in `epoch` (`UNKNOWN`: in any).
    pub(super) fn led(
        &self,
        image: &Image,
        id: TopicIdPartition,
        epoch: LeaderEpoch,
    ) -> Result<Led, ErrorCode> {
        let led = self.hosted(image, id, epoch)?;
        match led.leadership.role {
            Role::Leader => Ok(led),
            Role::Follower | Role::Offline => Err(ErrorCode::NotLeaderOrFollower),
        }
    }

    /// The partition, if this node has a replica of it that is in service.
    pub(super) fn hosted(
        &self,
        image: &Image,
        id: TopicIdPartition,
        epoch: LeaderEpoch,
    ) -> Result<Led, ErrorCode> {
        if image.topics.partition(id.topic_id, id.partition).is_none() {
            return Err(ErrorCode::UnknownTopicOrPartition);
        }
        let Some(partition) = self.broker().partitions.get(&id) else {
            let is_unserved = self.broker().partitions.is_unserved(&id);
            return Err(if is_unserved {
                ErrorCode::KafkaStorageError
            } else {
                ErrorCode::NotLeaderOrFollower
            });
        };
        let leadership = partition.leadership();
        leadership.admits(epoch).map_err(not_served_code)?;
        Ok(Led { partition, leadership })
    }
}

pub(super) fn not_served_code(refused: NotServed) -> ErrorCode {
    match refused {
        NotServed::NotLeader => ErrorCode::NotLeaderOrFollower,
        NotServed::Offline => ErrorCode::KafkaStorageError,
        NotServed::FencedLeaderEpoch => ErrorCode::FencedLeaderEpoch,
        NotServed::UnknownLeaderEpoch => ErrorCode::UnknownLeaderEpoch,
    }
}

/// Who leads a partition as the metadata says: what a client that came to the wrong node is told (KIP-951).
#[derive(Clone, Debug)]
pub struct CurrentLeader {
    pub id: NodeId,
    pub epoch: LeaderEpoch,
    /// Host, port and rack, when the leader can be reached through the listener of the request.
    pub endpoint: Option<(Arc<str>, u16, Option<Arc<str>>)>,
}

/// The leader of a partition; `None` when the partition does not exist.
pub fn current_leader(image: &Image, id: TopicIdPartition, listener: &str) -> Option<CurrentLeader> {
    let partition = image.topics.partition(id.topic_id, id.partition)?;
    let broker = image.brokers.get(partition.leader);
    let endpoint = broker.and_then(|broker| {
        let endpoint = broker.endpoint(listener)?;
        Some((Arc::clone(&endpoint.host), endpoint.port, broker.rack.clone()))
    });
    Some(CurrentLeader { id: partition.leader, epoch: partition.leader_epoch, endpoint })
}
