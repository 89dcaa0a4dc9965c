//! Goodbyes: of members that leave, and of those whose time is over. The last member of the consumer protocol leaves a
//! classic group behind.

use std::collections::BTreeSet;

use super::super::{Name, Out};
use super::member::LEAVE_STATIC_EPOCH;
use super::{
    ConsumerConfig, ConsumerGroup, Done, Downgrade, Heartbeat, HeartbeatError, HeartbeatReply, TopicWatch,
};
use crate::coordinator::Context;
use crate::types::TimestampMs;

impl ConsumerGroup {
    pub(super) fn leave(
        &mut self,
        context: &Context<'_>,
        watch: &mut TopicWatch,
        config: &ConsumerConfig,
        request: &Heartbeat,
        out: &mut Out,
    ) -> Result<Done<HeartbeatReply>, HeartbeatError> {
        let id = match &request.instance_id {
            None => self.members.get_key_value(&request.member_id).map(|(id, _)| id.clone()),
            Some(instance) => self.static_member(instance).map(|(id, _)| id.clone()),
        };
        let id = id.ok_or(HeartbeatError::UnknownMember)?;
        if id != request.member_id {
            return Err(HeartbeatError::FencedInstance);
        }
        let reply = HeartbeatReply {
            member_id: id.clone(),
            member_epoch: request.member_epoch,
            heartbeat_interval_ms: 0,
            assignment: None,
        };
        if request.member_epoch == LEAVE_STATIC_EPOCH && request.instance_id.is_some() {
            self.step_out(&id, out);
            return Ok(Done::stays(reply));
        }
        let downgrade = self.fence(&[id], context, watch, config, out);
        Ok(Done { reply, downgrade })
    }

    /// A static member goes and will be back: its place and its partitions are kept until its session ends.
    fn step_out(&mut self, id: &Name, out: &mut Out) {
        let Some(mut member) = self.members.get(id).cloned() else { return };
        member.epoch = LEAVE_STATIC_EPOCH;
        member.revoking.clear();
        // Whoever comes back has had them from its beginning.
        for epoch in member.assigned.values_mut().flat_map(|epochs| epochs.values_mut()) {
            *epoch = 0;
        }
        self.write(self.current_record(id, &member), out);
    }

    /// Members are out, for whatever reason. What they had is free, and the group has a new epoch.
    pub(super) fn fence(
        &mut self,
        ids: &[Name],
        context: &Context<'_>,
        watch: &mut TopicWatch,
        config: &ConsumerConfig,
        out: &mut Out,
    ) -> Option<Downgrade> {
        if ids.is_empty() {
            return None;
        }
        if self.becomes_classic_without(ids, config, context) {
            return Some(self.downgrade(context, ids, true, out));
        }
        let regexes: BTreeSet<Name> =
            ids.iter().filter_map(|id| self.members.get(id)?.pattern()).cloned().collect();
        for id in ids {
            self.remove_member(id, out);
        }
        for regex in
            regexes.iter().filter(|regex| !self.regex_subscribers.contains_key(*regex)).collect::<Vec<_>>()
        {
            self.write(self.regex_tombstone(regex), out);
        }
        let hash = watch.hash_of_group(context.image, self.demand.keys());
        self.write(self.epoch_record(self.epoch + 1, hash), out);
        if self.members.is_empty() {
            // Nobody is left to be assigned anything; and who comes next need not wait.
            self.write(self.target_epoch_record(self.epoch, TimestampMs(0)), out);
        }
        None
    }

    /// The order is Kafka's, which refuses to forget a member that still has something.
    pub(super) fn remove_member(&mut self, id: &Name, out: &mut Out) {
        self.write(self.current_tombstone(id), out);
        self.write(self.target_tombstone(id), out);
        self.write(self.member_tombstone(id), out);
        self.timers.forget(id);
    }
}
