//! Joining, synchronising, heartbeats, leaving in the classic protocol: finding the group, and making it for who comes
//! first. Members of consumer groups may speak the classic protocol as well (KIP-848).

use super::super::classic::{
    ClassicConfig, HeartbeatError, Join, JoinError, JoinRefused, Leaving, MemberError, Sync, SyncError,
};
use super::super::command::Identity;
use super::super::{Asked, Name, Now, Out, Reply, Settings};
use super::{Entry, Group, Groups};
use crate::coordinator::Context;

impl Groups {
    pub(super) fn configure(&mut self, settings: Settings, now: Now) -> Reply {
        self.cleanup.reconfigure(now, &self.settings, &settings);
        self.settings = settings;
        Reply::Configured
    }

    fn classic_config(&self, context: &Context<'_>) -> ClassicConfig {
        ClassicConfig { record_max: context.record_max, ..self.settings.classic }
    }

    pub(super) fn join(&mut self, context: &Context<'_>, id: &Name, join: &Asked<Join>, out: &mut Out) {
        match self.groups.get(id).map(|entry| &entry.group) {
            Some(Group::Classic(_)) => {}
            Some(Group::Consumer(group)) if !group.is_empty() => {
                return self.join_consumer_group(context, id, join, out);
            }
            // Only who has no id yet makes a group; a member of one that is gone starts anew.
            None | Some(Group::Consumer(_)) if !join.member_id.is_empty() => {
                let refused =
                    JoinRefused { member_id: join.member_id.clone(), error: JoinError::UnknownMember };
                return out.reply(join.token, Reply::Join(Err(refused)));
            }
            Some(Group::Consumer(_)) => self.bury(id, out),
            None => {}
        }
        let is_new = !self.groups.contains_key(id);
        self.ensure(id, context.now.wall);
        let config = self.classic_config(context);
        if let Some(Entry { group: Group::Classic(group), .. }) = self.groups.get_mut(id) {
            group.join(join, is_new, &config, context.now, out);
        }
        self.reschedule(id);
    }

    fn join_consumer_group(&mut self, context: &Context<'_>, id: &Name, join: &Asked<Join>, out: &mut Out) {
        let config = self.consumer_config(context, id);
        let Some(Entry { group: Group::Consumer(group), .. }) = self.groups.get_mut(id) else { return };
        let joined = group.join_classic(context, &mut self.watch, &config, join, out);
        let reply = match joined {
            Ok(done) => {
                self.take_downgrade(id, done.downgrade, context.now, out);
                Ok(done.reply)
            }
            Err(refused) => Err(refused),
        };
        out.reply(join.token, Reply::Join(reply));
        self.reschedule(id);
    }

    pub(super) fn sync(&mut self, context: &Context<'_>, id: &Name, sync: Asked<Sync>, out: &mut Out) {
        let config = self.classic_config(context);
        match self.groups.get_mut(id).map(|entry| &mut entry.group) {
            Some(Group::Classic(group)) => group.sync(sync, &config, context.now, out),
            Some(Group::Consumer(group)) => {
                let synced = group.sync_classic(context, &sync);
                out.reply(sync.token, Reply::Sync(synced));
            }
            None => out.reply(sync.token, Reply::Sync(Err(SyncError::UnknownMember))),
        }
        self.reschedule(id);
    }

    pub(super) fn heartbeat(
        &mut self,
        context: &Context<'_>,
        id: &Name,
        member: &Identity,
        out: &mut Out,
    ) -> Result<(), HeartbeatError> {
        match self.groups.get_mut(id).map(|entry| &mut entry.group) {
            // Its deadlines only move away by it, so they are left as they are.
            Some(Group::Classic(group)) => group.heartbeat(member, context.now),
            Some(Group::Consumer(group)) => {
                let config = self.settings.consumer.of_group(&context.image.configs, id);
                let result = group.heartbeat_classic(context, &mut self.watch, &config, member, out);
                self.reschedule(id);
                result
            }
            None => Err(MemberError::Unknown.into()),
        }
    }

    pub(super) fn leave(
        &mut self,
        context: &Context<'_>,
        id: &Name,
        leaving: &[Leaving],
        out: &mut Out,
    ) -> Vec<Result<(), MemberError>> {
        let config = self.consumer_config(context, id);
        let results = match self.groups.get_mut(id).map(|entry| &mut entry.group) {
            Some(Group::Classic(group)) => group.leave(leaving, &self.settings.classic, context.now, out),
            Some(Group::Consumer(group)) => {
                let (results, downgrade) =
                    group.leave_classic(context, &mut self.watch, &config, leaving, out);
                self.take_downgrade(id, downgrade, context.now, out);
                results
            }
            None => vec![Err(MemberError::Unknown); leaving.len()],
        };
        self.reschedule(id);
        results
    }
}
