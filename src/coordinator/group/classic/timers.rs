//! What happens when time passes: sessions, given-out ids, the ends of joining and synchronising.

use super::super::{Name, Now, Out};
use super::{ClassicConfig, ClassicGroup, Phase};
use crate::types::MonotonicMs;

impl ClassicGroup {
    /// The coordinator has taken over: members have a whole session to be heard from. In a group that has become too
    /// large for the settings, some will not be let in again.
    pub fn begin(&mut self, config: &ClassicConfig, now: Now, out: &mut Out) {
        for member in self.members.values_mut() {
            member.heard(now.monotonic);
        }
        if self.members.len() > config.max_size {
            self.prepare_rebalance(config, now, out);
        }
    }

    /// When [`tick`](Self::tick) has something to do, at the latest.
    pub fn next_deadline(&self) -> Option<MonotonicMs> {
        let phase = match &self.phase {
            Phase::Empty => None,
            Phase::Preparing(preparing) => Some(preparing.deadline),
            Phase::Completing(syncing) | Phase::Stable(syncing) => syncing.deadline,
        };
        // Who waits for the group cannot expire; the end of the waiting sets the session anew.
        let sessions = self.members.values().filter(|member| !member.waits()).map(|member| member.expires);
        phase.into_iter().chain(self.pending.values().copied()).chain(sessions).min()
    }

    pub fn tick(&mut self, config: &ClassicConfig, now: Now, out: &mut Out) {
        let at = now.monotonic;
        let ids: Vec<Name> =
            self.pending.iter().filter(|(_, until)| **until <= at).map(|(id, _)| id.clone()).collect();
        if !ids.is_empty() {
            ids.iter().for_each(|id| self.remove(id));
            self.complete_if_all_joined(now, out);
        }
        let gone: Vec<Name> = self
            .members
            .iter()
            .filter(|(_, member)| member.has_expired(at))
            .map(|(id, _)| id.clone())
            .collect();
        if !gone.is_empty() {
            gone.iter().for_each(|id| self.dismiss(id, out));
            match self.phase {
                Phase::Preparing(_) => self.complete_if_all_joined(now, out),
                Phase::Completing(_) | Phase::Stable(_) => self.prepare_rebalance(config, now, out),
                Phase::Empty => {}
            }
        }
        match &self.phase {
            Phase::Preparing(preparing) if preparing.deadline <= at => {
                self.join_deadline_passed(config, now, out);
            }
            Phase::Completing(syncing) | Phase::Stable(syncing)
                if syncing.deadline.is_some_and(|deadline| deadline <= at) =>
            {
                self.sync_deadline_passed(config, now, out);
            }
            _ => {}
        }
    }

    /// Members that joined and never asked for their assignment are gone.
    fn sync_deadline_passed(&mut self, config: &ClassicConfig, now: Now, out: &mut Out) {
        let (Phase::Completing(syncing) | Phase::Stable(syncing)) = &self.phase else { return };
        let missing: Vec<Name> = syncing.pending.iter().cloned().collect();
        missing.iter().for_each(|id| self.dismiss(id, out));
        self.prepare_rebalance(config, now, out);
    }
}
