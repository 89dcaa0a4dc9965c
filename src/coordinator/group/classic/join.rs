//! Joining: who is let in, under which id, and whether the group has to rebalance for it.

use super::super::{Asked, Name, Now, Out, Reply, ReplyToken};
use super::{
    ClassicConfig, ClassicGroup, Join, JoinError, JoinRefused, Joined, JoinedMember, Member, MemberError,
    Phase, SyncError,
};
use crate::coordinator::Encode;

impl ClassicGroup {
    /// A client joins, or joins again. `is_new_group`: the group was made for it, so that it must be written down even if
    /// nothing else comes of it.
    pub fn join(
        &mut self,
        join: &Asked<Join>,
        is_new_group: bool,
        config: &ClassicConfig,
        now: Now,
        out: &mut Out,
    ) {
        let written = out.records.len();
        if !self.has_room_for(&join.member_id, config) {
            self.dismiss(&join.member_id, out);
            refuse(join.token, "", JoinError::MaxSizeReached, out);
        } else if !self.shares_protocol_with(join) {
            refuse(join.token, &join.member_id, JoinError::InconsistentProtocol, out);
        } else if join.member_id.is_empty() {
            self.join_new(join, config, now, out);
        } else if self.pending.contains_key(&join.member_id) && join.instance_id.is_none() {
            self.add_member(join.member_id.clone(), join, config, now, out);
        } else {
            self.join_again(join, config, now, out);
        }
        if is_new_group && out.records.len() == written {
            out.record(self.empty_record());
        }
    }

    fn has_room_for(&self, member: &str, config: &ClassicConfig) -> bool {
        let known = self.members.get(member);
        match self.phase {
            Phase::Empty => true,
            // Who waits already stays. The group may be larger than is allowed now; those who come last are sent away.
            Phase::Preparing(_) => {
                known.is_some_and(|member| member.joining.is_some()) || self.joining_count() < config.max_size
            }
            Phase::Completing(_) | Phase::Stable(_) => {
                known.is_some() || self.members.len() < config.max_size
            }
        }
    }

    fn shares_protocol_with(&self, join: &Join) -> bool {
        if matches!(self.phase, Phase::Empty) {
            return !join.protocol_type.is_empty() && !join.protocols.is_empty();
        }
        let everybody_supports =
            |protocol: &str| self.members.values().all(|member| member.supports(protocol));
        self.protocol_type.as_ref() == Some(&join.protocol_type)
            && join.protocols.iter().any(|(name, _)| everybody_supports(name))
    }

    fn join_new(&mut self, join: &Asked<Join>, config: &ClassicConfig, now: Now, out: &mut Out) {
        let prefix = join.instance_id.as_ref().unwrap_or(&join.client_id);
        let id: Name = format!("{prefix}-{}", join.fresh).into();
        match &join.instance_id {
            Some(instance) => match self.instances.get(instance).cloned() {
                Some(old) if self.record_with(&old, &id, join).exceeds(config.record_max) => {
                    refuse(join.token, "", JoinError::TooLarge, out);
                }
                Some(old) => self.replace_static(&old, &id, join, config, now, out),
                None => self.add_member(id, join, config, now, out),
            },
            None if join.requires_known_id => {
                self.pending.insert(id.clone(), now.monotonic.plus(i64::from(join.session_timeout_ms)));
                refuse(join.token, &id, JoinError::MemberIdRequired, out);
            }
            None => self.add_member(id, join, config, now, out),
        }
    }

    fn add_member(&mut self, id: Name, join: &Asked<Join>, config: &ClassicConfig, now: Now, out: &mut Out) {
        if let Phase::Preparing(preparing) = &mut self.phase
            && let Some(initial) = &mut preparing.initial
        {
            initial.member_added = true;
        }
        if self.members.is_empty() {
            self.protocol_type = Some(join.protocol_type.clone());
        }
        self.pending.remove(&id);
        if let Some(instance) = &join.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        self.leader.get_or_insert_with(|| id.clone());
        self.members.insert(id, Member::joining(join, config, now));
        self.rebalance_or_complete(config, now, out);
    }

    /// A member that the group knows joins again.
    fn join_again(&mut self, join: &Asked<Join>, config: &ClassicConfig, now: Now, out: &mut Out) {
        let id = &join.member_id;
        if let Err(error) = self.check_member(id, join.instance_id.as_ref()) {
            return refuse(join.token, id, error.into(), out);
        }
        let is_leader = self.is_leader(id);
        let Some(member) = self.members.get_mut(id) else { return };
        let is_unchanged = member.protocols == join.protocols;
        // Nothing new, and the rebalance is over: the answer may have been lost. A leader of a stable group wants a
        // rebalance, for reasons of its own.
        let only_asks = match self.phase {
            Phase::Completing(_) => is_unchanged,
            Phase::Stable(_) => is_unchanged && !is_leader,
            Phase::Preparing(_) | Phase::Empty => false,
        };
        if only_asks {
            let joined = self.joined(id.clone());
            out.reply(join.token, Reply::Join(Ok(joined)));
        } else {
            member.rejoin(join, out);
            self.rebalance_or_complete(config, now, out);
        }
    }

    /// A static member has started anew: it takes the place of its former self.
    fn replace_static(
        &mut self,
        old: &Name,
        new: &Name,
        join: &Asked<Join>,
        config: &ClassicConfig,
        now: Now,
        out: &mut Out,
    ) {
        let old_leader = self.leader.clone();
        let Some(mut member) = self.members.remove(old) else { return };
        let fenced = JoinRefused { member_id: old.clone(), error: JoinError::FencedInstance };
        member.reply_join(Err(fenced), out);
        member.reply_sync(Err(SyncError::FencedInstance), out);
        member.client_id = join.client_id.clone();
        member.client_host = join.client_host.clone();
        member.rejoin(join, out);
        member.heard(now.monotonic);
        member.is_new = false;
        if self.is_leader(old) {
            self.leader = Some(new.clone());
        }
        if let Some(instance) = &join.instance_id {
            self.instances.insert(instance.clone(), new.clone());
        }
        if let Phase::Completing(syncing) | Phase::Stable(syncing) = &mut self.phase {
            syncing.received(old);
        }
        self.members.insert(new.clone(), member);
        match self.phase {
            Phase::Stable(_) if self.protocol.is_some() && self.selected_protocol() == self.protocol => {
                out.record(self.record());
                let mut joined = self.joined(new.clone());
                if join.can_skip_assignment {
                    joined.skip_assignment = self.is_leader(new);
                } else {
                    // It must not take itself for the leader, or it would assign anew.
                    joined.leader = old_leader;
                    joined.members = Vec::new();
                }
                if let Some(member) = self.members.get_mut(new) {
                    member.reply_join(Ok(joined), out);
                }
            }
            // The leader may have been told of the old id already, and would assign to it.
            Phase::Stable(_) | Phase::Completing(_) => self.prepare_rebalance(config, now, out),
            Phase::Preparing(_) | Phase::Empty => self.complete_if_all_joined(now, out),
        }
    }

    /// The answer to a join, as the generation is now.
    pub(super) fn joined(&self, member_id: Name) -> Joined {
        let members = if self.is_leader(&member_id) { self.members_for_leader() } else { Vec::new() };
        Joined {
            member_id,
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            skip_assignment: false,
            members,
        }
    }

    fn members_for_leader(&self) -> Vec<JoinedMember> {
        let member = |(id, member): (&Name, &Member)| JoinedMember {
            member_id: id.clone(),
            instance_id: member.instance_id.clone(),
            metadata: self.protocol.as_ref().and_then(|name| member.metadata(name)).unwrap_or_default(),
        };
        self.members.iter().map(member).collect()
    }
}

impl From<MemberError> for JoinError {
    fn from(error: MemberError) -> JoinError {
        match error {
            MemberError::Unknown => JoinError::UnknownMember,
            MemberError::FencedInstance => JoinError::FencedInstance,
        }
    }
}

fn refuse(token: ReplyToken, member_id: &str, error: JoinError, out: &mut Out) {
    let refused = JoinRefused { member_id: member_id.into(), error };
    out.reply(token, Reply::Join(Err(refused)));
}
