//! A member of a consumer group: what it asks for and what it has. No behaviour of the group.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::super::Name;
use super::super::assignor::Assignment;
use crate::types::{PartitionIndex, TopicId};

/// The epoch of a member that wants to join.
pub const JOIN_EPOCH: i32 = 0;
/// The epoch of a member that leaves for good.
pub const LEAVE_EPOCH: i32 = -1;
/// The epoch of a static member that leaves and will be back.
pub const LEAVE_STATIC_EPOCH: i32 = -2;

/// Partitions, each with the epoch in which the member got it. A topic that is there has partitions.
pub(super) type Owned = BTreeMap<TopicId, BTreeMap<PartitionIndex, i32>>;

/// How far a member is on its way to its target assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberState {
    /// It has what it is to have in its epoch.
    Stable,
    /// It has to give up partitions before it comes into the next epoch.
    UnrevokedPartitions,
    /// It is in the latest epoch and waits for partitions that others have not given up.
    UnreleasedPartitions,
    /// A later version of the software has left it in a state that is not known here.
    Unknown(i8),
}

impl MemberState {
    pub(super) fn code(self) -> i8 {
        match self {
            MemberState::Stable => 0,
            MemberState::UnrevokedPartitions => 1,
            MemberState::UnreleasedPartitions => 2,
            MemberState::Unknown(code) => code,
        }
    }

    pub(super) fn from_code(code: i8) -> MemberState {
        match code {
            0 => MemberState::Stable,
            1 => MemberState::UnrevokedPartitions,
            2 => MemberState::UnreleasedPartitions,
            code => MemberState::Unknown(code),
        }
    }
}

/// What a member that speaks the classic protocol said when it joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Classic {
    pub(super) session_timeout_ms: i32,
    /// Names and metadata, the preferred one first.
    pub(super) protocols: Vec<(Name, Bytes)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) epoch: i32,
    /// The epoch before; a request that still names it is from a client that missed an answer.
    pub(super) previous_epoch: i32,
    pub(super) state: MemberState,
    pub(super) instance_id: Option<Name>,
    pub(super) rack: Option<Name>,
    pub(super) client_id: Name,
    pub(super) client_host: Name,
    pub(super) rebalance_timeout_ms: i32,
    pub(super) topics: BTreeSet<Name>,
    /// As the member gave it; empty is none.
    pub(super) regex: Option<Name>,
    pub(super) assignor: Option<Name>,
    pub(super) assigned: Owned,
    /// What it has to give up.
    pub(super) revoking: Owned,
    pub(super) classic: Option<Classic>,
}

impl Member {
    pub(super) fn new() -> Member {
        Member {
            epoch: JOIN_EPOCH,
            previous_epoch: -1,
            state: MemberState::Stable,
            instance_id: None,
            rack: None,
            client_id: "".into(),
            client_host: "".into(),
            rebalance_timeout_ms: -1,
            topics: BTreeSet::new(),
            regex: Some("".into()),
            assignor: None,
            assigned: Owned::new(),
            revoking: Owned::new(),
            classic: None,
        }
    }

    /// Whether there is nothing left to do for it to be in this epoch.
    pub(super) fn is_reconciled_to(&self, epoch: i32) -> bool {
        self.state == MemberState::Stable && self.epoch == epoch
    }

    /// The regular expression that it is subscribed to.
    pub(super) fn pattern(&self) -> Option<&Name> {
        self.regex.as_ref().filter(|regex| !regex.is_empty())
    }

    pub(super) fn is_classic(&self) -> bool {
        self.classic.is_some()
    }

    /// In which epoch it got a partition that it has.
    pub(super) fn epoch_of(&self, topic: TopicId, partition: PartitionIndex) -> Option<i32> {
        let among = |owned: &Owned| owned.get(&topic).and_then(|epochs| epochs.get(&partition)).copied();
        among(&self.assigned).or_else(|| among(&self.revoking))
    }

    /// The member in another epoch.
    pub(super) fn enter(&mut self, epoch: i32) {
        self.previous_epoch = self.epoch;
        self.epoch = epoch;
    }

    /// Everything that nobody else may have.
    pub(super) fn held(&self) -> impl Iterator<Item = (TopicId, PartitionIndex)> {
        self.assigned
            .iter()
            .chain(&self.revoking)
            .flat_map(|(topic, epochs)| epochs.keys().map(|partition| (*topic, *partition)))
    }
}

/// Without the epochs.
pub(super) fn partitions_of(owned: &Owned) -> Assignment {
    owned.iter().map(|(topic, epochs)| (*topic, epochs.keys().copied().collect())).collect()
}
