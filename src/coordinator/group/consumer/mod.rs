//! A group of the consumer protocol (KIP-848): members say what they want, the group says what each is to have, and each
//! comes there step by step, so that no partition ever has two owners.
//!
//! Three things move one after the other. The *group epoch* grows when what decides changes: members, subscriptions,
//! topics. The *target assignment* is made for a group epoch by an assignor. The *current assignment* of each member goes
//! towards its target with the member's heartbeats: first it gives up, then its epoch becomes the target's, then it gets
//! what others have given up.
//!
//! Knows no other groups and no committed offsets. Invariants: hard state changes by `fold` of records alone, so what a
//! new coordinator folds is what this one has; a partition that a member holds is given to no other; a request that is
//! refused changes nothing.
//!
//! In reading order: this file (the words and the state), `member`, `heartbeat` (a request in its parts), `regex`, `target`
//! (group epoch and target assignment), `reconcile` (the current assignment), `leave`, `timers`, `commits`, `describe`;
//! beside them `stored` and `fold` (records), `topics` (what changes of the cluster), and of the classic protocol
//! `embedded` (what its members say), `classic_members` and `migration`.

mod classic_members;
mod commits;
mod describe;
mod embedded;
mod fold;
mod heartbeat;
mod leave;
mod member;
mod migration;
mod reconcile;
mod regex;
mod stored;
mod target;
mod timers;
mod topics;

#[cfg(test)]
mod cluster;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod script;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Name;
use super::assignor::{Assignment, Assignor};
use crate::metadata::image::ImageVersion;
use crate::types::{PartitionIndex, TimestampMs, TopicId, Uuid};
pub use commits::{CommitCheck, CommitError};
pub use describe::{Described, DescribedMember, DescribedTopic, State};
pub use heartbeat::HeartbeatError;
use member::Member;
pub use member::{JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH};
pub use migration::{ClassicMember, Downgrade, NamedAssignment, Upgrade, UpgradeRefused};
pub use regex::InvalidRegex;
use timers::Timers;
pub use topics::TopicWatch;

/// Which way a group may go from one protocol to the other while it has members (`group.consumer.migration.policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MigrationPolicy {
    #[default]
    Bidirectional,
    Upgrade,
    Downgrade,
    Disabled,
}

impl MigrationPolicy {
    /// The policy of this name, in upper or lower case.
    pub fn named(name: &str) -> Option<MigrationPolicy> {
        let policies = [
            ("bidirectional", MigrationPolicy::Bidirectional),
            ("upgrade", MigrationPolicy::Upgrade),
            ("downgrade", MigrationPolicy::Downgrade),
            ("disabled", MigrationPolicy::Disabled),
        ];
        policies.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, policy)| policy)
    }

    pub fn allows_upgrade(self) -> bool {
        matches!(self, MigrationPolicy::Bidirectional | MigrationPolicy::Upgrade)
    }

    pub fn allows_downgrade(self) -> bool {
        matches!(self, MigrationPolicy::Bidirectional | MigrationPolicy::Downgrade)
    }
}

/// The settings that a group obeys; some may be set for the group alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerConfig {
    /// `group.consumer.max.size`
    pub max_size: usize,
    /// `consumer.heartbeat.interval.ms`: what members are told.
    pub heartbeat_interval_ms: i32,
    /// `consumer.session.timeout.ms`
    pub session_timeout_ms: i32,
    /// `consumer.assignment.interval.ms`: the least time between two target assignments.
    pub assignment_interval_ms: i32,
    /// The first of `group.consumer.assignors`.
    pub default_assignor: Assignor,
    /// `group.consumer.regex.refresh.interval.ms`
    pub regex_refresh_interval_ms: i64,
    pub migration: MigrationPolicy,
    /// `group.max.size`, which a group must keep to before it can become a classic one.
    pub classic_max_size: usize,
}

impl Default for ConsumerConfig {
    fn default() -> ConsumerConfig {
        ConsumerConfig {
            max_size: usize::MAX,
            heartbeat_interval_ms: 5_000,
            session_timeout_ms: 45_000,
            assignment_interval_ms: 1_000,
            default_assignor: Assignor::Uniform,
            regex_refresh_interval_ms: 600_000,
            migration: MigrationPolicy::Bidirectional,
            classic_max_size: usize::MAX,
        }
    }
}

/// Partitions by topic, as requests and answers list them.
pub type TopicPartitions = Vec<(TopicId, Vec<PartitionIndex>)>;

/// ConsumerGroupHeartbeat. What is `None` has not changed since the last request. The service level has checked what
/// needs no group: that ids are not empty, that a first request is full, that the assignor is one of the configured ones.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    /// Empty in version 0 when the member has none yet.
    pub member_id: Name,
    /// [`JOIN_EPOCH`], [`LEAVE_EPOCH`], [`LEAVE_STATIC_EPOCH`], or the member's.
    pub member_epoch: i32,
    pub instance_id: Option<Name>,
    pub rack: Option<Name>,
    pub rebalance_timeout_ms: Option<i32>,
    pub topics: Option<Vec<Name>>,
    pub regex: Option<Name>,
    pub assignor: Option<Name>,
    /// What the member has.
    pub owned: Option<TopicPartitions>,
    pub client_id: Name,
    pub client_host: Name,
    /// For a member id, if one is to be made.
    pub fresh: Uuid,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatReply {
    pub member_id: Name,
    pub member_epoch: i32,
    /// 0 for a member that leaves.
    pub heartbeat_interval_ms: i32,
    /// What the member is to have now; `None` when it knows.
    pub assignment: Option<TopicPartitions>,
}

/// What a request leads to beside its records. With a downgrade the group is no more: its tombstones are among the
/// records, and a classic group takes its place in the same step.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Done<T> {
    pub reply: T,
    pub downgrade: Option<Downgrade>,
}

impl<T> Done<T> {
    fn stays(reply: T) -> Done<T> {
        Done { reply, downgrade: None }
    }
}

/// The topics that a regular expression matched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Resolved {
    topics: BTreeSet<Name>,
    /// Of the image.
    version: i64,
    at: TimestampMs,
}

/// By how many members, and by how many regular expressions, a topic is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Demand {
    by_name: usize,
    by_regex: usize,
}

#[derive(Debug)]
pub struct ConsumerGroup {
    id: Name,
    epoch: i32,
    /// Of the subscribed topics, when the epoch last grew.
    metadata_hash: i64,
    /// The group epoch that the target assignment is for.
    target_epoch: i32,
    /// When it was made; 0 where the next one need not wait.
    target_made_at: TimestampMs,
    members: BTreeMap<Name, Member>,
    target: BTreeMap<Name, Assignment>,
    regexes: BTreeMap<Name, Resolved>,
    /// Kafka 4.0 has left a record that is to be deleted.
    has_partition_metadata: bool,

    // What follows from the above.
    /// Member ids by group instance id.
    instances: BTreeMap<Name, Name>,
    /// Who holds a partition.
    owners: HashMap<(TopicId, PartitionIndex), Name>,
    demand: BTreeMap<Name, Demand>,
    /// How many members are subscribed to a regular expression, and how many ask for an assignor.
    regex_subscribers: BTreeMap<Name, usize>,
    assignors: BTreeMap<Name, usize>,

    // Soft state.
    timers: Timers,
    /// The image against which the topics were last looked at.
    looked_at: Option<ImageVersion>,
}

impl ConsumerGroup {
    /// A group that nobody has joined yet.
    pub fn new(id: Name) -> ConsumerGroup {
        ConsumerGroup {
            id,
            epoch: 1,
            metadata_hash: 0,
            target_epoch: 1,
            target_made_at: TimestampMs(0),
            members: BTreeMap::new(),
            target: BTreeMap::new(),
            regexes: BTreeMap::new(),
            has_partition_metadata: false,
            instances: BTreeMap::new(),
            owners: HashMap::new(),
            demand: BTreeMap::new(),
            regex_subscribers: BTreeMap::new(),
            assignors: BTreeMap::new(),
            timers: Timers::default(),
            looked_at: None,
        }
    }

    pub fn id(&self) -> &Name {
        &self.id
    }

    pub fn epoch(&self) -> i32 {
        self.epoch
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn member_count(&self) -> usize {
        self.members.len()
    }

    /// Whether a member may read the topic.
    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        self.demand.contains_key(topic)
    }

    /// The member with this instance id, and its own id.
    fn static_member(&self, instance: &str) -> Option<(&Name, &Member)> {
        let id = self.instances.get(instance)?;
        self.members.get_key_value(id)
    }
}
