//! Layer 2, pure: what a partition's leader and its followers decide. Events come in (appended, flushed, a follower
//! fetched, the leader answered, the metadata changed, time passed), [`Effect`]s and [`FollowerEffect`]s go out, and a
//! driver does what they say. Both are in `broker`.
//!
//! This module sees offsets and epochs, never bytes, files, clocks or threads. A partition with one replica goes through
//! the same code as one with three.
//!
//! Invariants: the high watermark never falls within a leader epoch and never passes what the in-sync replicas hold;
//! each token that was handed in is answered exactly once.

mod fetch_plan;
mod follower;
mod following;
mod isr;
mod leader;
mod pending;
mod progress;
mod throttle;

#[cfg(test)]
mod follower_script;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod pair_events;
#[cfg(test)]
mod pair_laws;
#[cfg(test)]
mod script;

use crate::types::{BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch};

pub use fetch_plan::{FetchPlan, LaneAnswer, PlanConfig, PlannedFetch, Report};
pub use follower::Follower;
pub use following::{
    Bounds, BoundsQuery, EpochEnd, FetchAnswer, FetchFrom, FollowerConfig, FollowerEffect, FollowerLog,
    FollowerState, LocalFailure, Refusal, Stopped, Term, Wants,
};
pub use isr::IsrState;
pub use leader::{InSyncFollower, Leader};
pub use throttle::Throttle;

/// Names an answer that the driver owes. The core hands it back once, in [`Effect::Answer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AckToken(pub u64);

/// What an append's answer waits for. Without acknowledgement (acks=0) nothing waits, so the core never hears of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// acks=1: the leader alone.
    Leader,
    /// acks=all: every in-sync replica.
    All,
}

/// Why a parked answer is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AckError {
    #[error("the in-sync replicas fell below min.insync.replicas after the records were appended")]
    NotEnoughReplicasAfterAppend,
    #[error("this broker is no longer the leader")]
    NotLeader,
    #[error("the replicas did not acknowledge in time")]
    TimedOut,
}

/// An acks=all append is refused before it is written: too few replicas are in sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("in sync: {in_sync} replicas, min.insync.replicas asks for {required}")]
pub struct NotEnoughReplicas {
    pub in_sync: usize,
    pub required: usize,
}

/// A follower's fetch does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchRejected {
    #[error("the broker is not a replica of the partition")]
    NotReplica,
    #[error("the fetch comes from an earlier registration of the broker")]
    StaleBrokerEpoch,
}

/// What the driver must do. Effects are to be carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Publish this high watermark to readers. What lies below it is already as durable as the topic asks for, on each
    /// in-sync replica; nothing further must be written first.
    HighWatermark(Offset),
    /// Answer a parked request. When `result` is `Ok`, what it waited for has happened; nothing further must be written
    /// first.
    Answer { token: AckToken, result: Result<(), AckError> },
    /// Ask the controller for this in-sync set and report the outcome to [`Leader::alter_done`]. Until then the core
    /// counts the larger of the two sets, so nothing must be written first.
    AlterPartition(AlterPartition),
}

/// A proposed in-sync set; the controller accepts it only at exactly these epochs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterPartition {
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    /// Each member with the registration under which it last fetched (KIP-841), `UNKNOWN` when it has not fetched yet.
    pub isr: Vec<(NodeId, BrokerEpoch)>,
}

/// What became of an [`AlterPartition`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlterOutcome {
    /// The controller answered with the partition's state after the change.
    Applied { leader_epoch: LeaderEpoch, partition_epoch: PartitionEpoch, isr: Vec<NodeId> },
    /// The controller knows the epochs and certainly did not apply the change: an ineligible member, or not attempted.
    Refused,
    /// The proposal is out of date; newer metadata is on its way and will settle the state.
    Superseded,
    /// Nobody knows whether it was applied: ask again.
    Unknown,
}

/// A broker as the metadata shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerStanding {
    Absent,
    Fenced(BrokerEpoch),
    /// In controlled shutdown: alive, but may not join an in-sync set.
    Leaving(BrokerEpoch),
    Active(BrokerEpoch),
}

impl BrokerStanding {
    pub fn epoch(self) -> BrokerEpoch {
        match self {
            BrokerStanding::Absent => BrokerEpoch::UNKNOWN,
            BrokerStanding::Fenced(epoch)
            | BrokerStanding::Leaving(epoch)
            | BrokerStanding::Active(epoch) => epoch,
        }
    }

    fn is_alive(self) -> bool {
        matches!(self, BrokerStanding::Leaving(_) | BrokerStanding::Active(_))
    }
}

/// The partition as the metadata shows it, for the broker that leads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    /// Every replica, this broker among them.
    pub replicas: Vec<(NodeId, BrokerStanding)>,
    pub isr: Vec<NodeId>,
}

/// The settings that the core obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaConfig {
    /// `min.insync.replicas`; more than there are replicas counts as all of them.
    pub min_insync_replicas: usize,
    /// `flush.before.ack`: acknowledgements and the high watermark count flushed offsets.
    pub durable_acks: bool,
    /// `replica.lag.time.max.ms`
    pub lag_time_max_ms: i64,
    /// `unclean.leader.election.enable`: while this broker is fenced, any other replica may be made the leader.
    pub unclean_election: bool,
}

/// Where the local log stands when leadership begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    pub log_start: Offset,
    pub high_watermark: Offset,
    pub flushed: Offset,
    pub log_end: Offset,
}

/// One partition of a follower's Fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerFetch {
    pub follower: NodeId,
    /// The registration under which it fetches; `UNKNOWN` from a client of an older protocol.
    pub broker_epoch: BrokerEpoch,
    /// The offset that it wants next: it has appended everything below.
    pub fetch_offset: Offset,
    /// What it has flushed; a follower that does not tell counts as flushed where it fetches.
    pub flushed_offset: Option<Offset>,
    pub log_start: Offset,
}
