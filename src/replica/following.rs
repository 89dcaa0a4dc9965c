//! The words of a follower: what it is told, what it wants to know, and what its driver must do. No behaviour.
//!
//! Kafka's error codes do not appear here: whoever reads an answer turns its code into a [`Refusal`].

use super::LogPosition;
use crate::types::{LeaderEpoch, MonotonicMs, NodeId, Offset};

/// Whom to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    pub leader: NodeId,
    pub leader_epoch: LeaderEpoch,
    /// The last epoch whose leader was elected uncleanly, `UNKNOWN` if none was. It and those after it may lack what was committed
    /// in earlier ones.
    pub lossy_epoch: LeaderEpoch,
    /// Whether this leader may rightly lack records below the local high watermark: leaders of the topic may be elected
    /// uncleanly, or its acknowledgements do not wait for the disk. Without it such a leader is not followed.
    pub may_lack_committed: bool,
}

/// The settings that a follower obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerConfig {
    /// The longest pause after an error (`replica.fetch.backoff.ms`); the first ones are shorter.
    pub backoff_max_ms: i64,
}

/// Where the local log stands and which epoch wrote its last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerLog {
    pub position: LogPosition,
    /// `None` when no epoch is known: an empty log, or one of an ancient format.
    pub last_epoch: Option<LeaderEpoch>,
}

/// What the follower wants from its leader now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Records.
    Fetch(FetchFrom),
    /// Where the leader's log starts and ends (ListOffsets).
    Bounds(BoundsQuery),
    /// Nothing before this moment; `None`: nothing until something else happens.
    Nothing { until: Option<MonotonicMs> },
}

/// One partition of the next Fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchFrom {
    /// The end of the local log.
    pub offset: Offset,
    /// By which the leader notices that the logs diverge (KIP-595).
    pub last_fetched_epoch: Option<LeaderEpoch>,
    pub log_start: Offset,
    pub current_leader_epoch: LeaderEpoch,
    /// What is below is on disk; it may lag behind `offset`, so that fetching does not wait for the disk.
    pub flushed: Offset,
    /// By which the leader notices that the follower has an old one (KIP-1166).
    pub high_watermark: Offset,
    /// How often the log was cut or the leader changed. Not sent; an answer counts only if this is still the same.
    pub cuts: u64,
}

/// A question for the bounds of the leader's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundsQuery {
    pub current_leader_epoch: LeaderEpoch,
    /// As in [`FetchFrom`].
    pub cuts: u64,
}

/// A leader epoch and the offset where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    pub epoch: LeaderEpoch,
    pub end: Offset,
}

/// What the leader says to a fetch of this partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchAnswer {
    /// The logs agree up to the offset that was asked for.
    Agrees {
        has_records: bool,
        high_watermark: Offset,
        log_start: Offset,
    },
    /// They do not: `theirs` is the largest epoch that the leader knows up to the last fetched one. `ours` is what the
    /// local log says about the leader's epoch, `None` when it knows none so old.
    Diverges {
        theirs: EpochEnd,
        ours: Option<EpochEnd>,
    },
    Refused(Refusal),
}

/// Where the leader's log starts and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub log_start: Offset,
    pub log_end: Offset,
}

/// Why the leader has no records for the follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It does not have this offset, any more or yet, or does not know the last fetched epoch.
    OffsetOutOfRange,
    /// It is at a later epoch: the metadata here is old.
    FencedLeaderEpoch,
    /// It is at an earlier epoch: its metadata is old.
    UnknownLeaderEpoch,
    NotLeader,
    UnknownTopicOrPartition,
    UnknownTopicId,
    InconsistentTopicId,
    /// Its log directory has failed; another leader will be elected.
    StorageError,
    /// Anything else.
    Other,
}

/// Why the answer's records were not appended, or the log was not cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalFailure {
    /// The records are damaged: they may come whole the next time.
    Corrupt,
    /// There is no room now.
    DiskFull,
    /// Records are not even tried to be written, for there is no room and whoever appends will say when there is.
    NoRoom,
    /// The log does not take these records, and will not the next time.
    Unfit,
    /// The log directory is out of service.
    Storage,
}

/// Why a follower has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The local log directory is out of service; only a new `Follower` on a reopened log goes on.
    Storage,
    /// The log does not take the leader's records. Over with the next term.
    Unfit,
    /// The leader's log lacks what lies below the local high watermark, from this offset on. Over with the next term.
    LacksCommitted { from: Offset },
}

/// Where a follower stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerState {
    /// Nothing keeps it from fetching.
    Fetching,
    /// The driver appends the records of an answer, which came with these offsets of the leader.
    Appending {
        high_watermark: Offset,
        log_start: Offset,
    },
    /// The driver cuts the log.
    Truncating {
        to: Offset,
    },
    /// The fetch offset is outside of the leader's log, whose bounds are to be asked for.
    OutOfRange,
    /// A pause after an error.
    Delayed {
        until: MonotonicMs,
        out_of_range: bool,
    },
    /// The leader is at a later epoch: only metadata helps.
    AwaitingMetadata,
    Stopped(Stopped),
}

/// What the driver of a follower must do. Effects are to be carried out in order, and those that name a report must be
/// reported before anything else happens to the follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerEffect {
    /// Append the records of the answer at hand, which follow `expected`, the end of the log. Batches of a later epoch
    /// than `up_to_epoch` are left out: they were written after the question (KAFKA-18723). Report to
    /// [`super::Follower::appended`]. Nothing must be durable first; the leader counts what is reported as flushed.
    Append { expected: Offset, up_to_epoch: LeaderEpoch },
    /// Drop the records from `to` on. Report to [`super::Follower::truncated`]. The cut must be on disk before anything at
    /// or beyond `to` is reported as flushed, else a crash brings the old records back below what the leader counts.
    Truncate { to: Offset },
    /// Drop everything; the next record gets the offset `at`. Report to [`super::Follower::truncated`]. As for `Truncate`.
    StartAt { at: Offset },
    /// Publish this high watermark to readers. It never passes the end of the log; nothing must be durable first.
    HighWatermark(Offset),
    /// Records below are deleted at the leader: move the log's start. Comes after the high watermark that covers it;
    /// nothing must be durable first.
    LogStart(Offset),
    /// The replica has stopped for this reason: tell the operator, once.
    Stopped(Stopped),
}
