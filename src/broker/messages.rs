//! What shards are asked and what they answer. Data only; which error code an answer becomes is decided in `api`.

use std::sync::Arc;

use bytes::Bytes;

use super::partitions::Partition;
use super::reply::ReplySlot;
use crate::replica::{AckError, Acks, NotEnoughReplicas, Registration, ReplicaConfig};
use crate::storage::log::{AppendError, Log, LogError, Origin};
use crate::types::{LeaderEpoch, MonotonicMs, NodeId, Offset, PartitionEpoch, TimestampMs, TopicIdPartition};

/// The appends of one request to the partitions of one shard.
#[derive(Debug)]
pub struct Produce {
    /// What the answer waits for; `None` answers when the append is done (acks=0, where only an error matters).
    pub acks: Option<Acks>,
    pub origin: Origin,
    /// When an answer that still waits becomes [`AckError::TimedOut`].
    pub deadline: MonotonicMs,
    pub appends: Vec<Append>,
}

/// The append to one partition.
#[derive(Debug)]
pub struct Append {
    pub partition: TopicIdPartition,
    pub records: Bytes,
    pub reply: ReplySlot<Result<Produced, ProduceError>>,
}

/// Records are appended and acknowledged as was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Produced {
    pub base_offset: Offset,
    /// `NONE` unless the topic's timestamps are those of the append.
    pub log_append_time: TimestampMs,
    pub log_start: Offset,
}

/// Why records were not appended, or not acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum ProduceError {
    #[error("this broker does not host the partition")]
    NotHosted,
    #[error("this broker does not lead the partition")]
    NotLeader,
    #[error("the partition's log directory is out of service")]
    Offline,
    #[error(transparent)]
    NotEnoughReplicas(NotEnoughReplicas),
    #[error(transparent)]
    Append(AppendError),
    /// Appended as it says, but not acknowledged.
    #[error("{0}")]
    Ack(AckError, Produced),
    #[error("the broker is shutting down")]
    ShuttingDown,
}

/// Delete the records below an offset.
#[derive(Debug)]
pub struct DeleteRecords {
    pub partition: TopicIdPartition,
    /// `None` is the high watermark.
    pub upto: Option<Offset>,
    pub deadline: MonotonicMs,
    pub reply: ReplySlot<Result<Offset, DeleteRecordsError>>,
}

/// Why records were not deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteRecordsError {
    #[error("this broker does not host the partition")]
    NotHosted,
    #[error("this broker does not lead the partition")]
    NotLeader,
    #[error("the partition's log directory is out of service")]
    Offline,
    #[error("cleanup.policy of the topic is compact alone")]
    CompactedTopic,
    #[error("{upto} is outside of the log, whose high watermark is {high_watermark}")]
    OutOfRange { upto: Offset, high_watermark: Offset },
    #[error(transparent)]
    Log(LogError),
    /// Deleted here, but not on every live replica.
    #[error(transparent)]
    Ack(AckError),
    #[error("the broker is shutting down")]
    ShuttingDown,
}

/// A partition for a shard to take over.
#[derive(Debug)]
pub struct Host {
    pub partition: Arc<Partition>,
    pub log: Log,
    pub config: ReplicaConfig,
    pub role: RoleSpec,
}

/// Who leads, as the metadata says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleSpec {
    Lead(Registration),
    Follow { leader: NodeId, leader_epoch: LeaderEpoch, partition_epoch: PartitionEpoch },
}
