//! What is past its time: offsets that have expired, groups that are left with nothing, offsets of topics that are gone.
//!
//! Owns when the next round is due, and how far the one under way is: a round goes through the groups in the order of
//! their ids, and rests when it has made many records, so that it never holds up the members of other groups.

use super::super::{Name, Now, Out, Settings};
use super::{Entry, Groups};
use crate::metadata::topics::Topics;
use crate::types::MonotonicMs;

/// How many tombstones a step makes before it lets others have their turn.
const RECORDS_AT_ONCE: usize = 2_000;

/// How many groups a step looks at.
const GROUPS_AT_ONCE: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Cleanup {
    /// None until the coordinator has begun.
    due: Option<MonotonicMs>,
    /// The groups that the round under way has not come to yet, the next one last.
    left: Vec<Name>,
}

impl Cleanup {
    pub(super) fn begin(&mut self, now: Now, settings: &Settings) {
        *self = Cleanup { due: Some(next_round(now, settings)), left: Vec::new() };
    }

    pub(super) fn due(&self) -> Option<MonotonicMs> {
        self.due
    }

    /// Another interval holds from now on.
    pub(super) fn reconfigure(&mut self, now: Now, old: &Settings, new: &Settings) {
        let is_other = old.offsets.retention_check_interval_ms != new.offsets.retention_check_interval_ms;
        if is_other && self.due.is_some() && self.left.is_empty() {
            self.due = Some(next_round(now, new));
        }
    }
}

fn next_round(now: Now, settings: &Settings) -> MonotonicMs {
    now.monotonic.plus(settings.offsets.retention_check_interval_ms)
}

impl Groups {
    /// Goes on with the round that is due, if one is.
    pub(super) fn clean_up(&mut self, now: Now, out: &mut Out) {
        if self.cleanup.due.is_none_or(|due| due > now.monotonic) {
            return;
        }
        if self.cleanup.left.is_empty() {
            self.cleanup.left = self.ids();
            self.cleanup.left.reverse();
        }
        let written = out.records.len();
        for _ in 0..GROUPS_AT_ONCE {
            let Some(id) = self.cleanup.left.pop() else { break };
            self.expire_group(&id, now, out);
            if out.records.len() - written >= RECORDS_AT_ONCE {
                break;
            }
        }
        if !self.cleanup.left.is_empty() {
            return;
        }
        self.producers.expire(now.wall);
        self.cleanup.due = Some(next_round(now, &self.settings));
    }

    /// Forgets what has expired of a group, and the group when nothing is left of it.
    fn expire_group(&mut self, id: &Name, now: Now, out: &mut Out) {
        let Some(Entry { group, .. }) = self.groups.get(id) else { return };
        let retention_ms = self.settings.offsets.retention_ms;
        let is_subscribed = |topic: &str| group.is_subscribed_to(topic);
        let has_none = self.offsets.expire(id, group.expiry(), is_subscribed, retention_ms, now.wall, out);
        if has_none && group.is_abandoned() {
            self.bury(id, out);
        }
    }

    /// Forgets what was committed for topics that were there before and are deleted.
    pub(super) fn forget_deleted_topics(&mut self, before: &Topics, out: &mut Out) {
        for (old, new) in self.topics.changed_since(before) {
            if let (Some(topic), None) = (old, new) {
                self.offsets.topic_deleted(&topic.name, topic.id, out);
            }
        }
    }
}
