//! What shards are asked and what they answer. Data only; which error code an answer becomes is decided in `api`.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::directory::Directory;
use super::partitions::Partition;
use super::reply::ReplySlot;
use crate::replica::{
    AckError, Acks, AlterOutcome, AlterPartition, Bounds, BoundsQuery, EpochEnd, FetchFrom, FollowerConfig,
    FollowerFetch, NotEnoughReplicas, Refusal, Registration, ReplicaConfig, Term, Wants,
};
use crate::storage::log::compaction::{Basis, Cleaned, SwapError};
use crate::storage::log::producer_state::{Coordinated, FirstBatch, Guard};
use crate::storage::log::succession::CopyError;
use crate::storage::log::{AppendError, Log, LogError, Origin};
use crate::types::{
    LeaderEpoch, MonotonicMs, Offset, PartitionEpoch, TimestampMs, TopicIdPartition, TopicPartition,
};

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
    pub coordinated: Coordinated,
    pub reply: ReplySlot<Result<Produced, ProduceError>>,
}

/// Appends of a coordinator, which knows where its partition's log ends: in this term and at this offset, or not at all. From
/// the first batch that fails on nothing is appended. Answered when the high watermark has passed all of it; without batches,
/// when it has passed the end of the log.
#[derive(Debug)]
pub struct AppendAt {
    pub partition: TopicIdPartition,
    pub leader_epoch: LeaderEpoch,
    pub log_end: Offset,
    pub batches: Vec<(Bytes, Coordinated)>,
    pub reply: ReplySlot<Result<Produced, ProduceError>>,
}

/// What is to be appended to one partition.
#[derive(Clone, Debug)]
pub struct Appending {
    pub partition: TopicIdPartition,
    pub records: Bytes,
    /// What a transaction coordinator has said about it.
    pub coordinated: Coordinated,
}

/// A coordinator is going to be asked whether a producer may begin a transaction in a partition.
#[derive(Debug)]
pub struct BeginVerification {
    pub partition: TopicIdPartition,
    pub batch: FirstBatch,
    pub reply: ReplySlot<Result<Option<Guard>, ProduceError>>,
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
    /// Of [`AppendAt`] alone.
    #[error("the log has moved on: it is in another term, or ends at another offset")]
    Moved,
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

/// What a shard is asked for the compaction of a log.
#[derive(Debug)]
pub enum Compact {
    /// Tell what a compaction must know.
    Begin(oneshot::Sender<Basis>),
    /// Put a compacted segment in its place.
    Swap(Cleaned, oneshot::Sender<Result<(), SwapError>>),
    /// All below `upto` is compacted, if the log is still the one of `basis`.
    End { basis: Basis, upto: Offset, reply: oneshot::Sender<()> },
}

/// A copy that is to take the place of a partition's log.
#[derive(Debug)]
pub struct Promote {
    /// What it is a copy of.
    pub partition: Arc<Partition>,
    pub future: Log,
    /// Where it lies.
    pub directory: Arc<Directory>,
    pub names: Names,
    /// How often the log had been rebuilt when the copy was begun.
    pub rebuilds: u32,
    /// So much may be missing of it: it is copied and synced in one step, for which the other partitions of the shard wait.
    pub missing_max: usize,
    pub reply: oneshot::Sender<Promoted>,
}

/// What directories are called once a copy has taken the place of a log.
#[derive(Clone, Debug)]
pub struct Names {
    /// That of the copy.
    pub log: PathBuf,
    /// That of the log that there was.
    pub aside: PathBuf,
}

/// What became of a copy.
#[derive(Debug)]
pub enum Promoted {
    /// It is the log now; this is the one before, which has lost its name and which nobody writes to any more.
    Done(Log),
    /// So many bytes are missing yet, which is too much.
    Behind(Log, usize),
    /// It could not be brought up to date, or could not take over.
    Failed(Log, CopyError),
    /// The partition is not here, or its log is out of service.
    Gone(Log),
}

/// A partition for a shard to take over.
#[derive(Debug)]
pub struct Host {
    pub partition: Arc<Partition>,
    pub log: Log,
    pub config: ReplicaSettings,
    pub role: RoleSpec,
}

/// The settings of a replica, whichever role it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaSettings {
    pub leader: ReplicaConfig,
    /// It is listed in `leader.replication.throttled.replicas`.
    pub leader_throttled: bool,
    pub follower: FollowerSettings,
}

/// The settings of a replica that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerSettings {
    pub core: FollowerConfig,
    /// Leaders of the topic may be elected uncleanly, or its acknowledgements do not wait for the disk.
    pub may_lack_committed: bool,
    /// It is listed in `follower.replication.throttled.replicas`.
    pub throttled: bool,
}

/// Who leads, as the metadata says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleSpec {
    Lead(Registration),
    /// The term's leader is `NONE` while the partition has none.
    Follow(Term),
    /// The same for a replica that is damaged: it has to have its records from the leader again.
    Rebuild(Term),
}

/// What a follower wants from its leader now, for whoever fetches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionWants {
    pub id: TopicIdPartition,
    pub name: TopicPartition,
    /// `None`: it follows this leader no longer.
    pub wants: Option<Wants>,
    pub throttled: bool,
    /// The last answer of the leader has been dealt with.
    pub is_word: bool,
}

/// What a leader said to one partition's question.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub id: TopicIdPartition,
    pub answer: LeaderAnswer,
}

#[derive(Clone, Debug)]
pub enum LeaderAnswer {
    /// The logs agree up to where the question asked; the records follow, if there are some.
    Records {
        asked: FetchFrom,
        records: Bytes,
        high_watermark: Offset,
        log_start: Offset,
        /// The leader's high watermark waits for what the follower has flushed.
        counts_flushed: bool,
    },
    /// The logs diverge: the largest epoch that the leader knows up to the last fetched one.
    Diverges {
        asked: FetchFrom,
        theirs: EpochEnd,
    },
    Refused {
        asked: FetchFrom,
        refusal: Refusal,
    },
    Bounds {
        asked: BoundsQuery,
        bounds: Result<Bounds, Refusal>,
    },
}

/// A follower has fetched from a partition that was led in this epoch, and its log agrees with the leader's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerFetched {
    pub id: TopicIdPartition,
    pub leader_epoch: LeaderEpoch,
    pub fetch: FollowerFetch,
}

/// The in-sync set that a leader wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsrProposal {
    pub id: TopicIdPartition,
    pub alter: AlterPartition,
}

/// What became of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsrAltered {
    pub id: TopicIdPartition,
    pub proposed_at: PartitionEpoch,
    pub outcome: AlterOutcome,
}
