//! A group of the classic protocol: members join, one of them, the leader, assigns, all synchronise, and heartbeats keep
//! them in it.
//!
//! Knows no other groups and no committed offsets. Invariants: in `Stable` and `Empty` the group is what its last record
//! says, so a new coordinator goes on from there; each token that comes in with a join or a sync is replied to once.
//!
//! In reading order: this file (the words and the state), `member`, `join`, `rebalance` (from joining to the next
//! generation), `sync`, `leave` (and heartbeats), `timers`, `commit` (what offsets have to do with it), `stored` (the
//! group as a record), `migrate` (to the consumer protocol and back).

mod commit;
mod join;
mod leave;
mod member;
mod migrate;
mod rebalance;
mod stored;
mod sync;
mod timers;

#[cfg(test)]
mod laws;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::Name;
use crate::types::{MonotonicMs, TimestampMs, Uuid};
pub use leave::{HeartbeatError, Leaving};
use member::Member;
pub use stored::MalformedGroup;

/// The protocol type of consumers, whose subscriptions the coordinator can read.
pub const CONSUMER_PROTOCOL_TYPE: &str = "consumer";

/// The settings that a group obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassicConfig {
    /// `group.max.size`
    pub max_size: usize,
    /// `group.initial.rebalance.delay.ms`
    pub initial_rebalance_delay_ms: i64,
    /// How long a member that has just joined may wait for the rebalance to end; Kafka's fixed five minutes.
    pub new_member_join_timeout_ms: i64,
    /// How large the group's record may be, key and value together.
    pub record_max: usize,
}

impl Default for ClassicConfig {
    fn default() -> ClassicConfig {
        ClassicConfig {
            max_size: usize::MAX,
            initial_rebalance_delay_ms: 3_000,
            new_member_join_timeout_ms: 300_000,
            record_max: usize::MAX,
        }
    }
}

/// A client that wants to be a member.
#[derive(Clone, Debug)]
pub struct Join {
    /// Empty for a client that has none yet.
    pub member_id: Name,
    /// `group.instance.id` of a static member (KIP-345).
    pub instance_id: Option<Name>,
    pub client_id: Name,
    pub client_host: Name,
    pub session_timeout_ms: i32,
    pub rebalance_timeout_ms: i32,
    pub protocol_type: Name,
    /// Names and metadata, the preferred one first.
    pub protocols: Vec<(Name, Bytes)>,
    /// A client without a member id is sent back with one before it counts (KIP-394).
    pub requires_known_id: bool,
    /// It understands that it leads and need not assign (KIP-814).
    pub can_skip_assignment: bool,
    /// For a member id, if one is to be made.
    pub fresh: Uuid,
}

impl Join {
    /// What it says of itself under a protocol.
    fn metadata(&self, protocol: &str) -> Option<Bytes> {
        let named = self.protocols.iter().find(|(name, _)| **name == *protocol);
        named.map(|(_, metadata)| metadata.clone())
    }
}

/// A member is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    pub member_id: Name,
    pub generation: i32,
    pub protocol_type: Option<Name>,
    pub protocol: Option<Name>,
    pub leader: Option<Name>,
    pub skip_assignment: bool,
    /// For the leader: everybody, with the metadata of the chosen protocol.
    pub members: Vec<JoinedMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedMember {
    pub member_id: Name,
    pub instance_id: Option<Name>,
    pub metadata: Bytes,
}

/// A member is not in; `member_id` is what the answer names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRefused {
    pub member_id: Name,
    pub error: JoinError,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    #[error("the group does not know the member")]
    UnknownMember,
    #[error("another member has taken over the group instance id")]
    FencedInstance,
    #[error("the group shares no protocol with the member")]
    InconsistentProtocol,
    #[error("the member is to join again with the id that it is given")]
    MemberIdRequired,
    #[error("the group has as many members as it may have")]
    MaxSizeReached,
    #[error("the group rebalances: join again")]
    RebalanceInProgress,
    #[error("what is to be written down is larger than the group's log takes")]
    TooLarge,
}

/// A member asks for its assignment; the leader brings everybody's.
#[derive(Clone, Debug)]
pub struct Sync {
    pub member_id: Name,
    pub instance_id: Option<Name>,
    pub generation: i32,
    pub protocol_type: Option<Name>,
    pub protocol: Option<Name>,
    pub assignments: Vec<(Name, Bytes)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    pub protocol_type: Option<Name>,
    pub protocol: Option<Name>,
    pub assignment: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyncError {
    #[error("the group does not know the member")]
    UnknownMember,
    #[error("another member has taken over the group instance id")]
    FencedInstance,
    #[error("the group is at another generation")]
    IllegalGeneration,
    #[error("the group has chosen another protocol")]
    InconsistentProtocol,
    #[error("the group rebalances: join again")]
    RebalanceInProgress,
    #[error("the group with its assignment is larger than its log takes")]
    TooLarge,
}

/// Why a request does not come from a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    #[error("the group does not know the member")]
    Unknown,
    #[error("another member has taken over the group instance id")]
    FencedInstance,
}

/// Where a group stands, in Kafka's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Empty,
    PreparingRebalance,
    CompletingRebalance,
    Stable,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::PreparingRebalance => "PreparingRebalance",
            State::CompletingRebalance => "CompletingRebalance",
            State::Stable => "Stable",
        }
    }
}

#[derive(Debug)]
pub struct ClassicGroup {
    id: Name,
    phase: Phase,
    generation: i32,
    protocol_type: Option<Name>,
    protocol: Option<Name>,
    leader: Option<Name>,
    members: BTreeMap<Name, Member>,
    /// Member ids by group instance id.
    instances: BTreeMap<Name, Name>,
    /// Ids that were given out, and until when their members may come.
    pending: BTreeMap<Name, MonotonicMs>,
    /// The topics of all members; `None` where the coordinator cannot read the subscriptions.
    subscribed: Option<BTreeSet<Name>>,
    /// When the phase began.
    since: TimestampMs,
}

/// Where a group stands, with what matters there only.
#[derive(Debug)]
enum Phase {
    Empty,
    Preparing(Preparing),
    Completing(Syncing),
    Stable(Syncing),
}

/// Members join until all have, or until the deadline.
#[derive(Debug)]
struct Preparing {
    deadline: MonotonicMs,
    /// Only of the rebalance with which an empty group begins: it waits for more members.
    initial: Option<InitialDelay>,
}

#[derive(Clone, Copy, Debug)]
struct InitialDelay {
    delay_ms: i64,
    /// By how much it may still be extended.
    remaining_ms: i64,
    member_added: bool,
}

/// Members that have not asked for their assignment yet, and until when they may.
#[derive(Debug, Default)]
struct Syncing {
    pending: BTreeSet<Name>,
    deadline: Option<MonotonicMs>,
}

impl ClassicGroup {
    /// A group that nobody has joined yet.
    pub fn new(id: Name, now: TimestampMs) -> ClassicGroup {
        ClassicGroup {
            id,
            phase: Phase::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            pending: BTreeMap::new(),
            subscribed: None,
            since: now,
        }
    }

    pub fn id(&self) -> &Name {
        &self.id
    }

    pub fn state(&self) -> State {
        match self.phase {
            Phase::Empty => State::Empty,
            Phase::Preparing(_) => State::PreparingRebalance,
            Phase::Completing(_) => State::CompletingRebalance,
            Phase::Stable(_) => State::Stable,
        }
    }

    pub fn generation(&self) -> i32 {
        self.generation
    }

    pub fn protocol_type(&self) -> Option<&Name> {
        self.protocol_type.as_ref()
    }

    pub fn protocol(&self) -> Option<&Name> {
        self.protocol.as_ref()
    }

    pub fn leader(&self) -> Option<&Name> {
        self.leader.as_ref()
    }

    pub fn member_count(&self) -> usize {
        self.members.len()
    }

    /// When the group came into the state in which it is.
    pub fn since(&self) -> TimestampMs {
        self.since
    }

    /// Whether it exists for committed offsets alone: no member has ever joined, or is about to.
    pub fn is_simple(&self) -> bool {
        self.protocol_type.is_none() && self.members.is_empty() && self.pending.is_empty()
    }

    /// Whether its members subscribe to topics in the way that the coordinator understands.
    pub fn uses_consumer_protocol(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER_PROTOCOL_TYPE)
    }

    /// Whether a member may read the topic. Where the coordinator cannot tell, consumers count as subscribed to all.
    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        match &self.subscribed {
            Some(topics) => topics.contains(topic),
            None => self.uses_consumer_protocol(),
        }
    }

    /// The group as DescribeGroups shows it. What members read and are assigned is told of a stable group alone.
    pub fn describe(&self) -> ClassicDescription {
        let protocol = self.protocol.as_ref().filter(|_| matches!(self.phase, Phase::Stable(_)));
        let described = |(id, member): (&Name, &Member)| DescribedMember {
            member_id: id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            metadata: protocol.and_then(|name| member.metadata(name)).unwrap_or_default(),
            assignment: protocol.map(|_| member.assignment.clone()).unwrap_or_default(),
        };
        ClassicDescription {
            state: self.state(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol: protocol.cloned(),
            members: self.members.iter().map(described).collect(),
        }
    }

    /// Whether a request may come from this member: it is known, and under its instance id.
    fn check_member(&self, member: &str, instance: Option<&Name>) -> Result<(), MemberError> {
        if let Some(instance) = instance {
            let current = self.instances.get(instance).ok_or(MemberError::Unknown)?;
            if **current != *member {
                return Err(MemberError::FencedInstance);
            }
        }
        if self.members.contains_key(member) { Ok(()) } else { Err(MemberError::Unknown) }
    }

    fn is_leader(&self, member: &str) -> bool {
        self.leader.as_deref() == Some(member)
    }

    fn enter(&mut self, phase: Phase, now: TimestampMs) {
        self.phase = phase;
        self.since = now;
    }

    /// The longest time that a member asks for to join anew.
    fn rebalance_timeout_ms(&self) -> i64 {
        self.members.values().map(|member| i64::from(member.rebalance_timeout_ms)).max().unwrap_or(0)
    }

    fn joining_count(&self) -> usize {
        self.members.values().filter(|member| member.joining.is_some()).count()
    }

    fn has_all_joined(&self) -> bool {
        self.pending.is_empty() && self.members.values().all(|member| member.joining.is_some())
    }

    /// Takes a member out; whoever waits for it must have been replied to.
    fn remove(&mut self, id: &str) {
        self.pending.remove(id);
        if let Phase::Completing(syncing) | Phase::Stable(syncing) = &mut self.phase {
            syncing.received(id);
        }
        let Some(member) = self.members.remove(id) else { return };
        if let Some(instance) = &member.instance_id {
            self.instances.remove(instance);
        }
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
    }
}

/// A group as DescribeGroups shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassicDescription {
    pub state: State,
    /// Empty for a group that no member has ever joined.
    pub protocol_type: Name,
    pub protocol: Option<Name>,
    pub members: Vec<DescribedMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedMember {
    pub member_id: Name,
    pub instance_id: Option<Name>,
    pub client_id: Name,
    pub client_host: Name,
    pub metadata: Bytes,
    pub assignment: Bytes,
}

impl Syncing {
    /// The member has asked, or is gone. When it was the last one, nothing is waited for.
    fn received(&mut self, member: &str) {
        self.pending.remove(member);
        if self.pending.is_empty() {
            self.deadline = None;
        }
    }
}
