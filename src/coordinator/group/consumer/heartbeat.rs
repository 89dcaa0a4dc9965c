//! A heartbeat in its parts: who the member is, what it asks for, what that makes of the group, and what it gets.

use super::super::{Name, Out};
use super::member::{JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, Member, MemberState, Owned};
use super::regex::{InvalidRegex, compile};
use super::{ConsumerConfig, ConsumerGroup, Done, Heartbeat, HeartbeatReply, TopicPartitions, TopicWatch};
use crate::coordinator::{Context, Encode};
use crate::types::kafka_uuid;

/// Why a heartbeat is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeartbeatError {
    #[error("the group does not know the member")]
    UnknownMember,
    #[error("the member is in another epoch: it must give up all its partitions and join again")]
    FencedMemberEpoch,
    #[error("another member has the group instance id")]
    FencedInstance,
    #[error("the member with the group instance id has not left")]
    UnreleasedInstance,
    #[error("the group has as many members as it may have")]
    MaxSizeReached,
    #[error(transparent)]
    InvalidRegex(#[from] InvalidRegex),
    #[error("what the member asks for is larger than the group's log takes")]
    TooLarge,
}

/// The place that a request is for.
pub(super) struct Seat {
    /// As it is, or new, or what a static member before it has left.
    pub(super) member: Member,
    /// The id of the member that it replaces.
    pub(super) replaces: Option<Name>,
}

/// What is another in a member's subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SubscriptionChange {
    pub(super) topics: bool,
    pub(super) regex: bool,
    /// The topics of the new regular expression are known, or there is none any more.
    pub(super) is_regex_resolved: bool,
}

impl ConsumerGroup {
    /// A member joins, stays, or leaves. Nothing has changed when it is refused.
    pub fn heartbeat(
        &mut self,
        context: &Context<'_>,
        watch: &mut TopicWatch,
        config: &ConsumerConfig,
        request: &Heartbeat,
        out: &mut Out,
    ) -> Result<Done<HeartbeatReply>, HeartbeatError> {
        watch.observe(context.image);
        match request.member_epoch {
            LEAVE_EPOCH | LEAVE_STATIC_EPOCH => self.leave(context, watch, config, request, out),
            _ => self.stay(context, watch, config, request, out).map(Done::stays),
        }
    }

    fn stay(
        &mut self,
        context: &Context<'_>,
        watch: &mut TopicWatch,
        config: &ConsumerConfig,
        request: &Heartbeat,
        out: &mut Out,
    ) -> Result<HeartbeatReply, HeartbeatError> {
        if let Some(reply) = self.stay_as_it_is(context, config, request) {
            self.refresh_regexes(context, watch, config, self.matched_at(), out);
            return Ok(reply);
        }
        if !self.has_room_for(&request.member_id, request.instance_id.as_ref(), config) {
            return Err(HeartbeatError::MaxSizeReached);
        }
        let id: Name = match &*request.member_id {
            "" => kafka_uuid::format(request.fresh).into(),
            _ => request.member_id.clone(),
        };
        let Seat { member: before, replaces } = self.seat(&id, request)?;
        let asks = asking(&before, request);
        if let Some(regex) = asks.pattern()
            && !self.regex_subscribers.contains_key(regex)
        {
            compile(regex)?;
        }
        if before != asks && self.member_record(&id, &asks).exceeds(context.record_max) {
            return Err(HeartbeatError::TooLarge);
        }
        let matched_at = self.matched_at();
        if let Some(replaced) = replaces {
            self.replace(&replaced, &id, &before, out);
        }
        let assignor = self.assignor(config);
        let change = self.subscribe(&id, &before, &asks, out);
        let has_changed = change.topics || change.is_regex_resolved || self.assignor(config) != assignor;
        if has_changed || self.has_news(context) {
            self.look_at_topics(context, watch, has_changed, out);
        }
        self.update_target(context, config, out);
        self.reconcile_member(context, &id, request.owned.as_ref(), change.topics || change.regex, out);
        self.timers.set_session(&id, context.now.monotonic.plus(config.session_timeout_ms.into()));
        let reply = self.reply(&id, &before, config, request);
        self.refresh_regexes(context, watch, config, matched_at, out);
        Ok(reply)
    }

    /// Most heartbeats say only that the member is there, and find nothing to do.
    fn stay_as_it_is(
        &mut self,
        context: &Context<'_>,
        config: &ConsumerConfig,
        request: &Heartbeat,
    ) -> Option<HeartbeatReply> {
        let (id, member) = self.members.get_key_value(&request.member_id)?;
        let asks_nothing = request.topics.is_none()
            && request.regex.is_none()
            && request.rack.is_none()
            && request.assignor.is_none()
            && request.rebalance_timeout_ms.is_none()
            && (request.instance_id.is_none() || request.instance_id == member.instance_id)
            && (&request.client_id, &request.client_host) == (&member.client_id, &member.client_host)
            && !member.is_classic();
        let has_all = request.member_epoch == member.epoch
            && member.is_reconciled_to(self.target_epoch)
            && self.target_epoch >= self.epoch
            && !self.has_news(context);
        if !asks_nothing || !has_all {
            return None;
        }
        self.timers.set_session(id, context.now.monotonic.plus(config.session_timeout_ms.into()));
        Some(HeartbeatReply {
            member_id: id.clone(),
            member_epoch: member.epoch,
            heartbeat_interval_ms: config.heartbeat_interval_ms,
            assignment: None,
        })
    }

    /// When a member is to come again. One that waits, for the others to let partitions go or for the next target, would
    /// hear of it late if it came no sooner than the others. While some still speak the classic protocol it is they who are
    /// waited for, and they do not hurry.
    fn next_heartbeat_ms(&self, member: &Member, config: &ConsumerConfig) -> i32 {
        let waits = member.state == MemberState::UnreleasedPartitions || self.target_epoch < self.epoch;
        if waits && !self.members.values().any(Member::is_classic) {
            (config.heartbeat_interval_ms / WAITING_SHARE).max(1)
        } else {
            config.heartbeat_interval_ms
        }
    }

    /// Whether there is a place for the member. Who has one, or comes back to one, keeps it.
    pub(super) fn has_room_for(&self, id: &Name, instance: Option<&Name>, config: &ConsumerConfig) -> bool {
        instance.is_some_and(|instance| self.instances.contains_key(instance))
            || self.members.len() < config.max_size
            || self.members.contains_key(id)
    }

    fn seat(&self, id: &Name, request: &Heartbeat) -> Result<Seat, HeartbeatError> {
        let is_joining = request.member_epoch == JOIN_EPOCH;
        let found = request.instance_id.as_ref().map(|instance| self.static_member(instance));
        let member = match found {
            Some(Some((former, member))) if is_joining => {
                if !member.is_classic() && member.epoch != LEAVE_STATIC_EPOCH {
                    return Err(HeartbeatError::UnreleasedInstance);
                }
                return Ok(Seat { member: reseated(member), replaces: Some(former.clone()) });
            }
            Some(Some((current, _))) if current != id => return Err(HeartbeatError::FencedInstance),
            Some(Some((_, member))) => Some(member),
            Some(None) if is_joining => {
                let member = self.members.get(id).cloned().unwrap_or_else(Member::new);
                return Ok(Seat { member, replaces: None });
            }
            Some(None) => None,
            None => self.members.get(id),
        };
        let Some(member) = member else {
            return if is_joining {
                Ok(Seat { member: Member::new(), replaces: None })
            } else {
                Err(HeartbeatError::UnknownMember)
            };
        };
        check_epoch(member, request.member_epoch, request.owned.as_ref())?;
        let has_nothing = request.owned.as_ref().is_some_and(Vec::is_empty);
        if matches!(member.state, MemberState::Unknown(_)) && !has_nothing {
            return Err(HeartbeatError::FencedMemberEpoch);
        }
        Ok(Seat { member: member.clone(), replaces: None })
    }

    /// A static member takes over from its former self, under another id.
    pub(super) fn replace(&mut self, former: &Name, id: &Name, member: &Member, out: &mut Out) {
        let target = self.target.get(former).cloned().unwrap_or_default();
        self.remove_member(former, out);
        self.write(self.member_record(id, member), out);
        self.write(self.target_record(id, &target), out);
        self.write(self.current_record(id, member), out);
    }

    /// Writes down what a member asks for, if it is new. Forgets the regular expression that nobody asks for any more.
    pub(super) fn subscribe(
        &mut self,
        id: &Name,
        before: &Member,
        asks: &Member,
        out: &mut Out,
    ) -> SubscriptionChange {
        let (old, new) = (before.pattern(), asks.pattern());
        let is_last = old.is_some_and(|regex| self.regex_subscribers.get(regex) == Some(&1));
        let regex = before.regex != asks.regex;
        let is_known = match new {
            Some(regex) => self.regex_subscribers.contains_key(regex) && self.regexes.contains_key(regex),
            None => old.is_some(),
        };
        if before != asks || !self.members.contains_key(id) {
            self.write(self.member_record(id, asks), out);
        }
        if regex
            && is_last
            && let Some(old) = old
        {
            self.write(self.regex_tombstone(old), out);
        }
        SubscriptionChange {
            topics: before.topics != asks.topics,
            regex,
            is_regex_resolved: regex && is_known,
        }
    }

    fn reply(
        &self,
        id: &Name,
        before: &Member,
        config: &ConsumerConfig,
        request: &Heartbeat,
    ) -> HeartbeatReply {
        let member = self.members.get(id).unwrap_or(before);
        let is_full = request.rebalance_timeout_ms.is_some()
            && (request.topics.is_some() || request.regex.is_some())
            && request.owned.is_some();
        let tells = request.member_epoch == JOIN_EPOCH || is_full || member.assigned != before.assigned;
        HeartbeatReply {
            member_id: id.clone(),
            member_epoch: member.epoch,
            heartbeat_interval_ms: self.next_heartbeat_ms(member, config),
            assignment: tells.then(|| listed(&member.assigned)),
        }
    }
}

/// A member that waits for partitions is asked to come back in this part of the usual time.
const WAITING_SHARE: i32 = 10;

/// The member as the request wants it.
fn asking(member: &Member, request: &Heartbeat) -> Member {
    let mut asks = member.clone();
    let take = |field: &mut Option<Name>, value: &Option<Name>| {
        if value.is_some() {
            field.clone_from(value);
        }
    };
    take(&mut asks.instance_id, &request.instance_id);
    take(&mut asks.rack, &request.rack);
    take(&mut asks.assignor, &request.assignor);
    take(&mut asks.regex, &request.regex);
    if let Some(timeout) = request.rebalance_timeout_ms {
        asks.rebalance_timeout_ms = timeout;
    }
    if let Some(topics) = &request.topics {
        asks.topics = topics.iter().cloned().collect();
    }
    asks.client_id = request.client_id.clone();
    asks.client_host = request.client_host.clone();
    asks.classic = None;
    asks
}

/// What a static member finds when it comes back: all that it had, and it joins anew.
pub(super) fn reseated(member: &Member) -> Member {
    Member { epoch: JOIN_EPOCH, previous_epoch: 0, ..member.clone() }
}

/// Whether a request in this epoch may be the member's. One in the epoch before is, if the client has nothing but what it
/// is to have: the answer that told the new epoch may have been lost.
fn check_epoch(member: &Member, epoch: i32, owned: Option<&TopicPartitions>) -> Result<(), HeartbeatError> {
    let has_no_more = |owned: &TopicPartitions| {
        owned.iter().all(|(topic, partitions)| {
            let has = member.assigned.get(topic);
            has.is_some_and(|has| partitions.iter().all(|partition| has.contains_key(partition)))
        })
    };
    let may_be = epoch == JOIN_EPOCH
        || epoch == member.epoch
        || (epoch < member.epoch && epoch == member.previous_epoch && owned.is_some_and(has_no_more));
    if may_be { Ok(()) } else { Err(HeartbeatError::FencedMemberEpoch) }
}

pub(super) fn listed(owned: &Owned) -> TopicPartitions {
    owned.iter().map(|(topic, epochs)| (*topic, epochs.keys().copied().collect())).collect()
}
