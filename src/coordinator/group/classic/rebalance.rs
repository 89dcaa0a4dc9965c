//! From joining to the next generation: when members are asked to join, when that ends, and what it ends in.

use std::collections::BTreeSet;

use super::super::{Name, Now, Out};
use super::{
    ClassicConfig, ClassicGroup, InitialDelay, JoinError, JoinRefused, Phase, Preparing, SyncError, Syncing,
};
use crate::fault::{self, Fault};

impl ClassicGroup {
    /// Something has changed that needs a new generation.
    pub(super) fn rebalance_or_complete(&mut self, config: &ClassicConfig, now: Now, out: &mut Out) {
        match self.phase {
            Phase::Preparing(_) => self.complete_if_all_joined(now, out),
            Phase::Empty | Phase::Completing(_) | Phase::Stable(_) => {
                self.prepare_rebalance(config, now, out);
            }
        }
    }

    /// Asks everybody to join.
    pub(super) fn prepare_rebalance(&mut self, config: &ClassicConfig, now: Now, out: &mut Out) {
        if matches!(self.phase, Phase::Completing(_)) {
            // What the leader brings now would be for the members of before.
            for member in self.members.values_mut() {
                member.assignment.clear();
                if member.syncing.is_some() {
                    member.heard(now.monotonic);
                }
                member.reply_sync(Err(SyncError::RebalanceInProgress), out);
            }
        }
        let timeout_ms = self.rebalance_timeout_ms();
        let (initial, wait_ms) = match self.phase {
            Phase::Empty => {
                let delay_ms = config.initial_rebalance_delay_ms;
                let remaining_ms = (timeout_ms - delay_ms).max(0);
                (Some(InitialDelay { delay_ms, remaining_ms, member_added: false }), delay_ms)
            }
            _ => (None, timeout_ms),
        };
        let deadline = now.monotonic.plus(wait_ms);
        self.enter(Phase::Preparing(Preparing { deadline, initial }), now.wall);
        self.complete_if_all_joined(now, out);
    }

    /// Ends the joining when nobody is missing. The first rebalance of a group ends by its delay.
    pub(super) fn complete_if_all_joined(&mut self, now: Now, out: &mut Out) {
        let may_end = matches!(&self.phase, Phase::Preparing(Preparing { initial: None, .. }));
        if may_end && self.has_all_joined() {
            self.complete_join(now, out);
        }
    }

    /// The time to join is over, or the delay of the first rebalance.
    pub(super) fn join_deadline_passed(&mut self, config: &ClassicConfig, now: Now, out: &mut Out) {
        if let Phase::Preparing(Preparing { deadline, initial: Some(initial) }) = &mut self.phase
            && initial.member_added
            && initial.remaining_ms > 0
        {
            // Others have come meanwhile, so more may come.
            let delay_ms = config.initial_rebalance_delay_ms.min(initial.remaining_ms);
            *deadline = now.monotonic.plus(delay_ms);
            *initial = InitialDelay {
                delay_ms,
                remaining_ms: (initial.remaining_ms - initial.delay_ms).max(0),
                member_added: false,
            };
            return;
        }
        self.complete_join(now, out);
    }

    /// Begins the next generation with those who have joined.
    fn complete_join(&mut self, now: Now, out: &mut Out) {
        // Static members may be away for as long as their session lasts.
        let missing: Vec<Name> = self
            .members
            .iter()
            .filter(|(_, member)| member.joining.is_none() && member.instance_id.is_none())
            .map(|(id, _)| id.clone())
            .collect();
        for id in missing {
            self.remove(&id);
        }
        if !self.elect_leader_among_joined() && !self.members.is_empty() {
            // Only static members are left, and all are away: wait until they are back, or gone.
            let deadline = now.monotonic.plus(self.rebalance_timeout_ms().max(1));
            if let Phase::Preparing(preparing) = &mut self.phase {
                (preparing.deadline, preparing.initial) = (deadline, None);
            }
            return;
        }
        let step = i32::from(!fault::is_active(Fault::SkipsGeneration));
        self.generation = self.generation.checked_add(step).unwrap_or(1);
        self.protocol = self.selected_protocol();
        self.subscribed = self.subscribed_topics();
        if self.members.is_empty() {
            self.enter(Phase::Empty, now.wall);
            out.record(self.record());
            return;
        }
        let pending: BTreeSet<Name> = self.members.keys().cloned().collect();
        let deadline = Some(now.monotonic.plus(self.rebalance_timeout_ms()));
        self.enter(Phase::Completing(Syncing { pending, deadline }), now.wall);
        let ids: Vec<Name> = self.members.keys().cloned().collect();
        for id in ids {
            let joined = self.joined(id.clone());
            if let Some(member) = self.members.get_mut(&id) {
                member.reply_join(Ok(joined), out);
                member.heard(now.monotonic);
                member.is_new = false;
            }
        }
    }

    /// The leader stays if it has joined; else the first who has. False when nobody has.
    fn elect_leader_among_joined(&mut self) -> bool {
        let Some(leader) = &self.leader else { return false };
        if self.members.get(leader).is_some_and(|member| member.joining.is_some()) {
            return true;
        }
        let joined = self.members.iter().find(|(_, member)| member.joining.is_some());
        let Some((id, _)) = joined else { return false };
        self.leader = Some(id.clone());
        true
    }

    /// What most members prefer among the protocols that all of them support; `None` without members.
    pub(super) fn selected_protocol(&self) -> Option<Name> {
        let first = self.members.values().next()?;
        let shared = |name: &Name| self.members.values().all(|member| member.supports(name));
        let candidates: Vec<&Name> =
            first.protocols.iter().map(|(name, _)| name).filter(|name| shared(name)).collect();
        let mut best: Option<(&Name, usize)> = None;
        for candidate in &candidates {
            let votes = self.members.values().filter(|member| {
                let vote = member.protocols.iter().find(|(name, _)| candidates.contains(&name));
                vote.is_some_and(|(name, _)| name == *candidate)
            });
            let votes = votes.count();
            if best.is_none_or(|(_, most)| votes > most) {
                best = Some((candidate, votes));
            }
        }
        best.map(|(name, _)| name.clone())
    }

    /// A member is gone for a reason of its own; whoever waits with it is sent away.
    pub(super) fn dismiss(&mut self, id: &Name, out: &mut Out) {
        if let Some(member) = self.members.get_mut(id) {
            let refused = JoinRefused { member_id: "".into(), error: JoinError::UnknownMember };
            member.reply_join(Err(refused), out);
            member.reply_sync(Err(SyncError::UnknownMember), out);
        }
        self.remove(id);
    }
}
