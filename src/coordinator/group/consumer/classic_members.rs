//! Members of a consumer group that speak the classic protocol: their joins, syncs, heartbeats and goodbyes, each a step of
//! the same reconciliation. A heartbeat sends them back to join when there is something to get or to give up, and the
//! answer to a sync brings what they have. Nobody waits for anybody, so all are answered at once.
//!
//! In Kafka, heartbeats of the classic protocol do not look at the topics and make no target assignment, so that a group
//! that has no other members left, and may not become a classic one, waits for the next join. Here they do.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::super::classic::{
    CONSUMER_PROTOCOL_TYPE, HeartbeatError, Join, JoinError, JoinRefused, Joined, Leaving, MemberError, Sync,
    SyncError, Synced,
};
use super::super::command::Identity;
use super::super::{Name, Out};
use super::embedded::{Subscription, encode_assignment, identified, named, subscription};
use super::heartbeat::{Seat, reseated};
use super::member::{Classic, Member, MemberState, partitions_of};
use super::{ConsumerConfig, ConsumerGroup, Done, Downgrade, MigrationPolicy, TopicWatch};
use crate::coordinator::{Context, Encode};
use crate::types::kafka_uuid;

impl ConsumerGroup {
    /// JoinGroup to a group that has members. Nothing has changed when it is refused.
    pub fn join_classic(
        &mut self,
        context: &Context<'_>,
        watch: &mut TopicWatch,
        config: &ConsumerConfig,
        join: &Join,
        out: &mut Out,
    ) -> Result<Done<Joined>, JoinRefused> {
        watch.observe(context.image);
        let id: Name = match &*join.member_id {
            "" => kafka_uuid::format(join.fresh).into(),
            _ => join.member_id.clone(),
        };
        // As in Kafka, whose consumer groups do not say whom they refuse.
        let refused = |error| JoinRefused { member_id: Name::default(), error };
        self.check_join(&id, join, config).map_err(refused)?;
        if join.member_id.is_empty() && join.instance_id.is_none() && join.requires_known_id {
            return Err(JoinRefused { member_id: id, error: JoinError::MemberIdRequired });
        }
        let seat = self.classic_seat(&id, join).map_err(refused)?;
        let Some((protocol, metadata)) = join.protocols.first() else {
            return Err(refused(JoinError::InconsistentProtocol));
        };
        let subscribes = subscription(metadata).map_err(|_| refused(JoinError::InconsistentProtocol))?;
        let protocol = protocol.clone();
        let asks = asking(&seat.member, join, &subscribes);
        if seat.member != asks && self.member_record(&id, &asks).exceeds(context.record_max) {
            return Err(refused(JoinError::TooLarge));
        }
        let downgrade = self.take_classic_seat(context, watch, config, (&id, seat, &asks, &subscribes), out);
        let reply = Joined {
            generation: self.members.get(&id).map_or(self.epoch, |member| member.epoch),
            member_id: id.clone(),
            protocol_type: Some(CONSUMER_PROTOCOL_TYPE.into()),
            protocol: Some(protocol),
            leader: None,
            skip_assignment: false,
            members: Vec::new(),
        };
        if downgrade {
            return Ok(Done {
                reply,
                downgrade: Some(self.downgrade(context, &[], self.epoch > self.target_epoch, out)),
            });
        }
        let now = context.now.monotonic;
        self.timers.joined(&id, now.plus(join.rebalance_timeout_ms.into()));
        self.timers.set_session(&id, now.plus(join.session_timeout_ms.into()));
        Ok(Done::stays(reply))
    }

    fn check_join(&self, id: &Name, join: &Join, config: &ConsumerConfig) -> Result<(), JoinError> {
        if config.migration == MigrationPolicy::Disabled {
            return Err(JoinError::InconsistentProtocol);
        }
        if !self.has_room_for(id, join.instance_id.as_ref(), config) {
            return Err(JoinError::MaxSizeReached);
        }
        let everybody_supports = |name: &Name| {
            let mut classic = self.members.values().filter_map(|member| member.classic.as_ref());
            classic.all(|classic| classic.protocols.iter().any(|(known, _)| known == name))
        };
        let is_supported = *join.protocol_type == *CONSUMER_PROTOCOL_TYPE
            && join.protocols.iter().any(|(name, _)| everybody_supports(name));
        if is_supported { Ok(()) } else { Err(JoinError::InconsistentProtocol) }
    }

    fn classic_seat(&self, id: &Name, join: &Join) -> Result<Seat, JoinError> {
        let member = || self.members.get(id).cloned().unwrap_or_else(Member::new);
        let Some(instance) = &join.instance_id else { return Ok(Seat { member: member(), replaces: None }) };
        match self.static_member(instance) {
            None if join.member_id.is_empty() => Ok(Seat { member: member(), replaces: None }),
            None => Err(JoinError::UnknownMember),
            Some((former, member)) if join.member_id.is_empty() => {
                Ok(Seat { member: reseated(member), replaces: Some(former.clone()) })
            }
            Some((current, _)) if current != id => Err(JoinError::FencedInstance),
            Some((_, member)) => Ok(Seat { member: member.clone(), replaces: None }),
        }
    }

    /// The member is in, and a step nearer to its target. True when the group has no other kind of members now and is to
    /// become a classic one.
    fn take_classic_seat(
        &mut self,
        context: &Context<'_>,
        watch: &mut TopicWatch,
        config: &ConsumerConfig,
        (id, seat, asks, subscribes): (&Name, Seat, &Member, &Subscription),
        out: &mut Out,
    ) -> bool {
        let Seat { member: before, replaces } = seat;
        let matched_at = self.matched_at();
        let former = replaces.as_ref().and_then(|former| self.members.get(former));
        let downgrades = former.is_some_and(|former| !former.is_classic())
            && self.members.values().filter(|member| !member.is_classic()).count() == 1
            && config.migration.allows_downgrade()
            && self.members.len() <= config.classic_max_size
            && self.classic_size_without(&[], context.image) <= context.record_max;
        if let Some(former) = replaces {
            self.replace(&former, id, &before, out);
        }
        let change = self.subscribe(id, &before, asks, out);
        let has_changed = change.topics || change.regex;
        if has_changed || self.has_news(context) {
            self.look_at_topics(context, watch, has_changed, out);
        }
        let owned = identified(&subscribes.owned, context.image);
        if !downgrades {
            self.update_target(context, config, out);
        }
        if !downgrades || self.target_epoch >= self.epoch {
            self.reconcile_member(context, id, Some(&owned), has_changed, out);
        }
        self.timers.set_rebalance(id, None);
        if !downgrades {
            self.refresh_regexes(context, watch, config, matched_at, out);
        }
        downgrades
    }

    /// SyncGroup.
    pub fn sync_classic(&mut self, context: &Context<'_>, sync: &Sync) -> Result<Synced, SyncError> {
        let (member, classic) = self.classic_member(&sync.member_id, sync.instance_id.as_ref())?;
        let chosen = classic.protocols.first();
        let is_other = |asked: &Option<Name>, ours: &str| asked.as_deref().is_some_and(|asked| asked != ours);
        if sync.generation != member.epoch {
            return Err(SyncError::IllegalGeneration);
        }
        if is_other(&sync.protocol_type, CONSUMER_PROTOCOL_TYPE)
            || is_other(&sync.protocol, chosen.map_or("", |(name, _)| name))
        {
            return Err(SyncError::InconsistentProtocol);
        }
        let now = context.now.monotonic;
        // One that has partitions to give up has joined already; it is to learn of them first.
        if self.target_epoch > member.epoch && member.state != MemberState::UnrevokedPartitions {
            self.timers.start_join(&sync.member_id, now.plus(member.rebalance_timeout_ms.into()));
            return Err(SyncError::RebalanceInProgress);
        }
        let metadata = chosen.map_or_else(Bytes::new, |(_, metadata)| metadata.clone());
        let assigned = named(&partitions_of(&member.assigned), context.image);
        let session = now.plus(classic.session_timeout_ms.into());
        self.timers.synced(&sync.member_id);
        self.timers.set_session(&sync.member_id, session);
        Ok(Synced {
            protocol_type: sync.protocol_type.clone(),
            protocol: sync.protocol.clone(),
            assignment: encode_assignment(&assigned, &metadata),
        })
    }

    /// Heartbeat. Nothing has changed when it does not come from a member.
    pub fn heartbeat_classic(
        &mut self,
        context: &Context<'_>,
        watch: &mut TopicWatch,
        config: &ConsumerConfig,
        identity: &Identity,
        out: &mut Out,
    ) -> Result<(), HeartbeatError> {
        let id = &identity.member_id;
        let (member, classic) = self.classic_member(id, identity.instance_id.as_ref())?;
        if identity.generation != Some(member.epoch) {
            return Err(HeartbeatError::IllegalGeneration);
        }
        let now = context.now.monotonic;
        let join = now.plus(member.rebalance_timeout_ms.into());
        let session = now.plus(classic.session_timeout_ms.into());
        self.timers.set_session(id, session);
        watch.observe(context.image);
        if self.has_news(context) {
            self.look_at_topics(context, watch, false, out);
        }
        self.update_target(context, config, out);
        if self.is_to_join(id) {
            self.timers.start_join(id, join);
            return Err(HeartbeatError::RebalanceInProgress);
        }
        Ok(())
    }

    /// Whether there is something for the member to get or to give up.
    fn is_to_join(&self, id: &Name) -> bool {
        self.members.get(id).is_some_and(|member| {
            member.epoch < self.target_epoch
                || match member.state {
                    MemberState::UnrevokedPartitions => true,
                    MemberState::UnreleasedPartitions => !self.waits_for_others(id, member),
                    MemberState::Stable | MemberState::Unknown(_) => false,
                }
        })
    }

    /// Whether others hold something that the member is to have.
    fn waits_for_others(&self, id: &Name, member: &Member) -> bool {
        let target = self.target.get(id).into_iter().flatten();
        let mut wanted =
            target.flat_map(|(topic, partitions)| partitions.iter().map(|partition| (*topic, *partition)));
        wanted.any(|(topic, partition)| {
            let has = member.assigned.get(&topic).is_some_and(|epochs| epochs.contains_key(&partition));
            !has && self.owners.contains_key(&(topic, partition))
        })
    }

    /// LeaveGroup: one result for each. Operators remove members of both protocols in this way.
    pub fn leave_classic(
        &mut self,
        context: &Context<'_>,
        watch: &mut TopicWatch,
        config: &ConsumerConfig,
        leaving: &[Leaving],
        out: &mut Out,
    ) -> (Vec<Result<(), MemberError>>, Option<Downgrade>) {
        watch.observe(context.image);
        let found: Vec<Result<Name, MemberError>> =
            leaving.iter().map(|leaving| self.leaver(leaving)).collect();
        let ids: BTreeSet<Name> = found.iter().flatten().cloned().collect();
        let downgrade = self.fence(&ids.into_iter().collect::<Vec<_>>(), context, watch, config, out);
        (found.into_iter().map(|result| result.map(|_| ())).collect(), downgrade)
    }

    fn leaver(&self, leaving: &Leaving) -> Result<Name, MemberError> {
        let Some(instance) = &leaving.instance_id else {
            let found = self.members.get_key_value(&leaving.member_id);
            return found.map(|(id, _)| id.clone()).ok_or(MemberError::Unknown);
        };
        let (id, _) = self.static_member(instance).ok_or(MemberError::Unknown)?;
        if leaving.member_id.is_empty() || leaving.member_id == *id {
            Ok(id.clone())
        } else {
            Err(MemberError::FencedInstance)
        }
    }

    fn classic_member(&self, id: &Name, instance: Option<&Name>) -> Result<(&Member, &Classic), MemberError> {
        let member = match instance {
            None => self.members.get(id),
            Some(instance) => match self.static_member(instance) {
                Some((current, _)) if current != id => return Err(MemberError::FencedInstance),
                found => found.map(|(_, member)| member),
            },
        };
        let member = member.ok_or(MemberError::Unknown)?;
        member.classic.as_ref().map(|classic| (member, classic)).ok_or(MemberError::Unknown)
    }
}

/// The member as its join wants it.
fn asking(member: &Member, join: &Join, subscribes: &Subscription) -> Member {
    let mut asks = member.clone();
    if join.instance_id.is_some() {
        asks.instance_id.clone_from(&join.instance_id);
    }
    if subscribes.rack.is_some() {
        asks.rack.clone_from(&subscribes.rack);
    }
    asks.rebalance_timeout_ms = join.rebalance_timeout_ms;
    asks.topics = subscribes.topics.iter().cloned().collect();
    asks.regex = Some("".into());
    asks.client_id = join.client_id.clone();
    asks.client_host = join.client_host.clone();
    asks.classic =
        Some(Classic { session_timeout_ms: join.session_timeout_ms, protocols: join.protocols.clone() });
    asks
}
