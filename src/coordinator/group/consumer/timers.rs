//! What happens when time passes: members that are not heard from, that do not give up what they must, or that do not
//! come back to join or to synchronise, are out.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Name, Out};
use super::member::MemberState;
use super::{ConsumerConfig, ConsumerGroup, Downgrade, TopicWatch};
use crate::coordinator::Context;
use crate::types::MonotonicMs;

/// The deadlines of one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Deadlines {
    session: Option<MonotonicMs>,
    /// Until when it must have left the epoch beside it.
    rebalance: Option<(MonotonicMs, i32)>,
    /// Of classic members: until when it must have joined anew, or asked for its assignment.
    join: Option<MonotonicMs>,
    sync: Option<MonotonicMs>,
}

impl Deadlines {
    fn first(&self) -> Option<MonotonicMs> {
        let rebalance = self.rebalance.map(|(deadline, _)| deadline);
        [self.session, rebalance, self.join, self.sync].into_iter().flatten().min()
    }
}

/// The deadlines of all members, by member and by time.
#[derive(Debug, Default)]
pub(super) struct Timers {
    by_member: BTreeMap<Name, Deadlines>,
    by_time: BTreeSet<(MonotonicMs, Name)>,
}

impl Timers {
    fn change(&mut self, member: &Name, change: impl FnOnce(&mut Deadlines)) {
        let deadlines = self.by_member.entry(member.clone()).or_default();
        let before = deadlines.first();
        change(deadlines);
        let after = deadlines.first();
        if before != after {
            if let Some(deadline) = before {
                self.by_time.remove(&(deadline, member.clone()));
            }
            if let Some(deadline) = after {
                self.by_time.insert((deadline, member.clone()));
            }
        }
        if after.is_none() {
            self.by_member.remove(member);
        }
    }

    pub(super) fn set_session(&mut self, member: &Name, deadline: MonotonicMs) {
        self.change(member, |deadlines| deadlines.session = Some(deadline));
    }

    pub(super) fn set_rebalance(&mut self, member: &Name, deadline: Option<(MonotonicMs, i32)>) {
        self.change(member, |deadlines| deadlines.rebalance = deadline);
    }

    /// A deadline that runs already stays.
    pub(super) fn start_join(&mut self, member: &Name, deadline: MonotonicMs) {
        self.change(member, |deadlines| deadlines.join = deadlines.join.or(Some(deadline)));
    }

    pub(super) fn joined(&mut self, member: &Name, sync: MonotonicMs) {
        self.change(member, |deadlines| (deadlines.join, deadlines.sync) = (None, Some(sync)));
    }

    pub(super) fn synced(&mut self, member: &Name) {
        self.change(member, |deadlines| deadlines.sync = None);
    }

    pub(super) fn forget(&mut self, member: &Name) {
        self.change(member, |deadlines| *deadlines = Deadlines::default());
    }

    fn next(&self) -> Option<MonotonicMs> {
        self.by_time.first().map(|(deadline, _)| *deadline)
    }
}

impl ConsumerGroup {
    /// This coordinator looks after the group from now on: everybody has a whole session to be heard from.
    pub fn begin(&mut self, context: &Context<'_>, config: &ConsumerConfig) {
        let now = context.now.monotonic;
        self.timers = Timers::default();
        for (id, member) in &self.members {
            self.timers.set_session(id, now.plus(config.session_timeout_ms.into()));
            if member.state == MemberState::UnrevokedPartitions && !member.is_classic() {
                let deadline = now.plus(member.rebalance_timeout_ms.into());
                self.timers.set_rebalance(id, Some((deadline, member.epoch)));
            }
        }
    }

    /// When [`tick`](Self::tick) has something to do, at the latest.
    pub fn next_deadline(&self) -> Option<MonotonicMs> {
        self.timers.next()
    }

    pub fn tick(
        &mut self,
        context: &Context<'_>,
        watch: &mut TopicWatch,
        config: &ConsumerConfig,
        out: &mut Out,
    ) -> Option<Downgrade> {
        let now = context.now.monotonic;
        watch.observe(context.image);
        while let Some((deadline, id)) = self.timers.by_time.first().cloned()
            && deadline <= now
        {
            if !self.members.contains_key(&id) {
                self.timers.forget(&id);
            } else if !self.is_out(&id, now) {
                // It has left the epoch in time.
                self.timers.set_rebalance(&id, None);
            } else if let Some(downgrade) = self.fence(&[id], context, watch, config, out) {
                return Some(downgrade);
            }
        }
        None
    }

    /// Whether the time of a member is over, and not only the time to leave an epoch that it has left.
    fn is_out(&self, id: &Name, now: MonotonicMs) -> bool {
        let Some(member) = self.members.get(id) else { return false };
        let Some(deadlines) = self.timers.by_member.get(id) else { return false };
        let others = [deadlines.session, deadlines.join, deadlines.sync];
        others.into_iter().flatten().any(|deadline| deadline <= now)
            || deadlines.rebalance.is_some_and(|(deadline, epoch)| deadline <= now && epoch == member.epoch)
    }
}
