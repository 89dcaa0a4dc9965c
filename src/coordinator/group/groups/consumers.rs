//! Groups of the consumer protocol: heartbeats, and the ways from one protocol to the other. A group becomes a consumer
//! group when the first member of that protocol joins it, and a classic one again when the last has left.

use super::super::classic::ClassicGroup;
use super::super::consumer::{
    ConsumerConfig, ConsumerGroup, Done, Downgrade, Heartbeat, HeartbeatReply, JOIN_EPOCH,
};
use super::super::reply::ConsumerHeartbeatError;
use super::super::{Name, Now, Out};
use super::{Entry, Group, Groups};
use crate::coordinator::Context;

impl Groups {
    pub(super) fn consumer_config(&self, context: &Context<'_>, id: &Name) -> ConsumerConfig {
        self.settings.consumer.of_group(&context.image.configs, id)
    }

    pub(super) fn consumer_heartbeat(
        &mut self,
        context: &Context<'_>,
        id: &Name,
        heartbeat: &Heartbeat,
        out: &mut Out,
    ) -> Result<HeartbeatReply, ConsumerHeartbeatError> {
        let config = self.consumer_config(context, id);
        let is_joining = heartbeat.member_epoch == JOIN_EPOCH;
        let done = match self.groups.get_mut(id).map(|entry| &mut entry.group) {
            Some(Group::Consumer(group)) => {
                group.heartbeat(context, &mut self.watch, &config, heartbeat, out)?
            }
            Some(Group::Classic(_)) if !is_joining => return Err(ConsumerHeartbeatError::OtherType),
            None if !is_joining => return Err(ConsumerHeartbeatError::GroupNotFound),
            Some(Group::Classic(_)) | None => {
                self.begin_consumer_group(context, id, &config, heartbeat, out)?
            }
        };
        self.take_downgrade(id, done.downgrade, context.now, out);
        self.reschedule(id);
        Ok(done.reply)
    }

    /// The first member of the consumer protocol comes: to a group that is new, or empty, or whose members of the classic
    /// protocol it joins.
    fn begin_consumer_group(
        &mut self,
        context: &Context<'_>,
        id: &Name,
        config: &ConsumerConfig,
        heartbeat: &Heartbeat,
        out: &mut Out,
    ) -> Result<Done<HeartbeatReply>, ConsumerHeartbeatError> {
        // Nothing of this counts unless the member is let in.
        let mut made = Out::default();
        let mut group = match self.groups.get(id).map(|entry| &entry.group) {
            Some(Group::Classic(classic)) if !classic.is_empty() => {
                if !classic.uses_consumer_protocol() {
                    return Err(ConsumerHeartbeatError::OtherType);
                }
                let upgrade = classic.upgrade();
                ConsumerGroup::upgrade(id.clone(), context, &mut self.watch, config, &upgrade, &mut made)?
            }
            _ => ConsumerGroup::new(id.clone()),
        };
        let done = group.heartbeat(context, &mut self.watch, config, heartbeat, &mut made)?;
        if let Some(Entry { group: Group::Classic(classic), .. }) = self.groups.get_mut(id) {
            classic.abandon(out);
            out.record(classic.tombstone());
        }
        out.records.append(&mut made.records);
        self.put(id.clone(), Group::Consumer(Box::new(group)));
        Ok(done)
    }

    /// Puts a classic group in the place of a consumer group that has become one. Its records have been made.
    pub(super) fn take_downgrade(
        &mut self,
        id: &Name,
        downgrade: Option<Downgrade>,
        now: Now,
        out: &mut Out,
    ) {
        let Some(downgrade) = downgrade else { return };
        let group = ClassicGroup::from_downgrade(id.clone(), &downgrade, &self.settings.classic, now, out);
        self.put(id.clone(), Group::Classic(Box::new(group)));
    }
}
