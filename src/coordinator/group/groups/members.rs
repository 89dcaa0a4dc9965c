//! Joining, synchronising, heartbeats, leaving: finding the group, and making it for who comes first.

use super::super::classic::{
    HeartbeatError, Join, JoinError, JoinRefused, Leaving, MemberError, Sync, SyncError,
};
use super::super::command::Identity;
use super::super::{Asked, Name, Now, Out, Reply, Settings};
use super::{Group, Groups};

impl Groups {
    pub(super) fn configure(&mut self, settings: Settings, now: Now) -> Reply {
        self.cleanup.reconfigure(now, &self.settings, &settings);
        self.settings = settings;
        Reply::Configured
    }

    pub(super) fn join(&mut self, id: &Name, join: &Asked<Join>, now: Now, out: &mut Out) {
        let is_new = !self.groups.contains_key(id);
        if is_new && !join.member_id.is_empty() {
            // Only who has no id yet makes a group; a member of one that is gone starts anew.
            let refused = JoinRefused { member_id: join.member_id.clone(), error: JoinError::UnknownMember };
            return out.reply(join.token, Reply::Join(Err(refused)));
        }
        self.ensure(id, now.wall);
        if let Some(entry) = self.groups.get_mut(id) {
            match &mut entry.group {
                Group::Classic(group) => group.join(join, is_new, &self.settings.classic, now, out),
            }
        }
        self.reschedule(id);
    }

    pub(super) fn sync(&mut self, id: &Name, sync: Asked<Sync>, now: Now, out: &mut Out) {
        match self.groups.get_mut(id).map(|entry| &mut entry.group) {
            Some(Group::Classic(group)) => group.sync(sync, now, out),
            None => out.reply(sync.token, Reply::Sync(Err(SyncError::UnknownMember))),
        }
        self.reschedule(id);
    }

    /// Sessions only move away by it, so the group's deadline is left as it is.
    pub(super) fn heartbeat(&mut self, id: &str, member: &Identity, now: Now) -> Result<(), HeartbeatError> {
        match self.groups.get_mut(id).map(|entry| &mut entry.group) {
            Some(Group::Classic(group)) => group.heartbeat(member, now),
            None => Err(MemberError::Unknown.into()),
        }
    }

    pub(super) fn leave(
        &mut self,
        id: &Name,
        leaving: &[Leaving],
        now: Now,
        out: &mut Out,
    ) -> Vec<Result<(), MemberError>> {
        let results = match self.groups.get_mut(id).map(|entry| &mut entry.group) {
            Some(Group::Classic(group)) => group.leave(leaving, &self.settings.classic, now, out),
            None => vec![Err(MemberError::Unknown); leaving.len()],
        };
        self.reschedule(id);
        results
    }
}
