//! The next step of a member towards its target assignment.
//!
//! Knows no group, only whether somebody holds a partition. Invariant: what a member gets is held by nobody, and it enters
//! the epoch of its target only when it holds nothing that the target gives to others.

use std::collections::BTreeMap;

use super::super::assignor::Assignment;
use super::TopicPartitions;
use super::member::{Member, MemberState, Owned};
use crate::fault::{self, Fault};
use crate::types::{PartitionIndex, TopicId};

/// What the step depends on.
pub(super) struct Towards<'a> {
    pub(super) epoch: i32,
    pub(super) target: &'a Assignment,
    /// What the member says it has; `None` when the request does not tell.
    pub(super) owned: Option<&'a TopicPartitions>,
    pub(super) is_subscribed: &'a dyn Fn(TopicId) -> bool,
    /// Whether any member holds the partition.
    pub(super) is_held: &'a dyn Fn(TopicId, PartitionIndex) -> bool,
    /// Its subscription is another than before this request, so it may have what it no longer wants.
    pub(super) has_subscription_changed: bool,
}

/// The member after the step; `None` where there is nothing to do. A member in an unknown state must have nothing.
pub(super) fn reconcile(member: &Member, towards: &Towards<'_>) -> Option<Member> {
    let next = match member.state {
        MemberState::Stable if member.epoch != towards.epoch => Some(towards.next(member, member.epoch)),
        MemberState::UnrevokedPartitions if towards.has_any(&member.revoking) => {
            if towards.has_subscription_changed { towards.without_unsubscribed(member) } else { None }
        }
        MemberState::UnrevokedPartitions | MemberState::UnreleasedPartitions => {
            Some(towards.next(member, member.epoch))
        }
        MemberState::Stable if towards.has_subscription_changed => towards.without_unsubscribed(member),
        MemberState::Stable => None,
        MemberState::Unknown(_) => Some(towards.next(member, towards.epoch)),
    };
    next.filter(|next| next != member)
}

impl Towards<'_> {
    /// Whether the member may still have any of these. If it does not tell, it may.
    fn has_any(&self, partitions: &Owned) -> bool {
        let Some(owned) = self.owned else { return true };
        owned.iter().any(|(topic, indexes)| {
            partitions.get(topic).is_some_and(|epochs| indexes.iter().any(|index| epochs.contains_key(index)))
        })
    }

    /// From `epoch`, and with what the member has, towards the target.
    fn next(&self, member: &Member, epoch: i32) -> Member {
        let mut keeps = Owned::new();
        let mut gives_up = Owned::new();
        for (topic, epochs) in &member.assigned {
            let wanted = self.target.get(topic).filter(|_| (self.is_subscribed)(*topic));
            let (kept, given): (BTreeMap<_, _>, BTreeMap<_, _>) = epochs
                .iter()
                .map(|(index, epoch)| (*index, *epoch))
                .partition(|(index, _)| wanted.is_some_and(|wanted| wanted.contains(index)));
            for (owned, partitions) in [(&mut keeps, kept), (&mut gives_up, given)] {
                if !partitions.is_empty() {
                    owned.insert(*topic, partitions);
                }
            }
        }
        let mut next = member.clone();
        next.assigned = keeps;
        if !gives_up.is_empty() && self.has_any(&gives_up) {
            next.enter(epoch);
            next.state = MemberState::UnrevokedPartitions;
            next.revoking = gives_up;
            return next;
        }
        let waits = self.take_free(member, &mut next.assigned);
        next.enter(self.epoch);
        next.state = if waits { MemberState::UnreleasedPartitions } else { MemberState::Stable };
        next.revoking = Owned::new();
        next
    }

    /// Adds what the target has, and nobody holds. True when others hold something of it.
    fn take_free(&self, member: &Member, assigned: &mut Owned) -> bool {
        let mut waits = false;
        for (topic, indexes) in self.target.iter().filter(|(topic, _)| (self.is_subscribed)(**topic)) {
            for index in indexes {
                if assigned.get(topic).is_some_and(|epochs| epochs.contains_key(index)) {
                    continue;
                }
                // What the member itself has just given up is its own for the taking.
                let is_its_own = member.revoking.get(topic).is_some_and(|epochs| epochs.contains_key(index));
                let may_share = is_its_own || fault::is_active(Fault::SharesPartitions);
                if (self.is_held)(*topic, *index) && !may_share {
                    waits = true;
                } else {
                    assigned.entry(*topic).or_default().insert(*index, self.epoch);
                }
            }
        }
        waits
    }

    /// The member without the topics that it is not subscribed to any more; `None` when it has none of them.
    fn without_unsubscribed(&self, member: &Member) -> Option<Member> {
        let (keeps, gives_up): (Owned, Owned) =
            member.assigned.clone().into_iter().partition(|(topic, _)| (self.is_subscribed)(*topic));
        if gives_up.is_empty() {
            return None;
        }
        let mut revoking = member.revoking.clone();
        for (topic, epochs) in gives_up {
            revoking.entry(topic).or_default().extend(epochs);
        }
        let mut next = member.clone();
        next.enter(member.epoch);
        next.assigned = keeps;
        // What the client does not have any more is gone at once.
        if self.has_any(&revoking) {
            next.state = MemberState::UnrevokedPartitions;
            next.revoking = revoking;
        }
        Some(next)
    }
}

#[cfg(test)]
#[path = "reconcile_tests.rs"]
mod tests;
