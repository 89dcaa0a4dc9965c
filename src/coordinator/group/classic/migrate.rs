//! A group of consumers on its way to the consumer protocol and back (KIP-848): what is told of the one kind to make the
//! other.

use super::super::consumer::{ClassicMember, Downgrade, Upgrade};
use super::super::{Name, Now, Out};
use super::member::Member;
use super::{
    CONSUMER_PROTOCOL_TYPE, ClassicConfig, ClassicGroup, JoinError, JoinRefused, Phase, SyncError, Syncing,
};
use crate::types::MonotonicMs;

impl ClassicGroup {
    pub fn is_empty(&self) -> bool {
        matches!(self.phase, Phase::Empty)
    }

    /// What the group is, in the middle of a rebalance or not.
    pub fn upgrade(&self) -> Upgrade {
        let is_shared = |name: &Name| self.members.values().all(|member| member.supports(name));
        // Members may have said something else since the protocol was chosen, or none is chosen yet.
        let protocol = self.protocol.clone().filter(is_shared).or_else(|| self.selected_protocol());
        let member = |(id, member): (&Name, &Member)| ClassicMember {
            id: id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            session_timeout_ms: member.session_timeout_ms,
            protocols: member.protocols.clone(),
            assignment: member.assignment.clone(),
        };
        Upgrade {
            generation: self.generation,
            protocol: protocol.unwrap_or_default(),
            members: self.members.iter().map(member).collect(),
        }
    }

    /// The group is no more: who waits for a rebalance is to join what has taken its place.
    pub fn abandon(&mut self, out: &mut Out) {
        for (id, member) in &mut self.members {
            let refused = JoinRefused { member_id: id.clone(), error: JoinError::RebalanceInProgress };
            member.reply_join(Err(refused), out);
            member.reply_sync(Err(SyncError::RebalanceInProgress), out);
        }
    }

    /// The group that takes the place of a consumer group which only members of the classic protocol are left in.
    pub fn from_downgrade(
        id: Name,
        downgrade: &Downgrade,
        config: &ClassicConfig,
        now: Now,
        out: &mut Out,
    ) -> ClassicGroup {
        let mut group = ClassicGroup::new(id, now.wall);
        group.phase = Phase::Stable(Syncing::default());
        group.generation = downgrade.generation;
        group.protocol_type = Some(CONSUMER_PROTOCOL_TYPE.into());
        for former in &downgrade.members {
            let mut member = Member::idle(former.protocols.clone());
            member.instance_id.clone_from(&former.instance_id);
            member.client_id = former.client_id.clone();
            member.client_host = former.client_host.clone();
            member.rebalance_timeout_ms = former.rebalance_timeout_ms;
            member.session_timeout_ms = former.session_timeout_ms;
            member.heard(now.monotonic);
            if let Some(instance) = &former.instance_id {
                group.instances.insert(instance.clone(), former.id.clone());
            }
            group.leader.get_or_insert_with(|| former.id.clone());
            group.members.insert(former.id.clone(), member);
        }
        group.protocol = group.selected_protocol();
        group.subscribed = group.subscribed_topics();
        let protocol = group.protocol.clone().unwrap_or_default();
        for former in &downgrade.members {
            if let Some(member) = group.members.get_mut(&former.id) {
                member.assignment = former.assignment.encode(&member.metadata(&protocol).unwrap_or_default());
            }
        }
        out.record(group.record());
        if downgrade.rebalance {
            group.prepare_rebalance(config, now, out);
        }
        group
    }
}

impl Member {
    /// A member of which only this is known yet: it waits for nothing.
    pub(super) fn idle(protocols: Vec<(Name, bytes::Bytes)>) -> Member {
        Member {
            instance_id: None,
            client_id: Name::default(),
            client_host: Name::default(),
            rebalance_timeout_ms: 0,
            session_timeout_ms: 0,
            protocols,
            assignment: bytes::Bytes::new(),
            joining: None,
            syncing: None,
            is_new: false,
            expires: MonotonicMs(0),
        }
    }
}
