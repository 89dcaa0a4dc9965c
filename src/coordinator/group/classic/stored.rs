//! The group as a record, and back; and what the coordinator reads of subscriptions.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, Bytes};

use super::super::Name;
use super::super::record::Record;
use super::{CONSUMER_PROTOCOL_TYPE, ClassicGroup, Join, Member, Phase, Syncing};
use crate::types::TimestampMs;
use crate::wire::messages::StrBytes;
use crate::wire::messages::groups::{GroupMetadataKey, GroupMetadataMember, GroupMetadataValue};

/// A record that no group can have written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("group {group}: member {member} is there twice")]
pub struct MalformedGroup {
    pub group: Name,
    pub member: Name,
}

impl ClassicGroup {
    /// The group as it is now.
    pub(super) fn record(&self) -> Record {
        Record::GroupMetadata(self.key(), Some(self.stored()))
    }

    /// The group when a static member has started anew, under a new id.
    pub(super) fn record_with(&self, old: &Name, new: &Name, join: &Join) -> Record {
        let mut stored = self.stored();
        let metadata = self.protocol.as_ref().and_then(|name| join.metadata(name)).unwrap_or_default();
        for member in stored.members.iter_mut().filter(|member| *member.member_id == **old) {
            member.member_id = text(new);
            member.client_id = text(&join.client_id);
            member.client_host = text(&join.client_host);
            member.subscription = metadata.clone();
        }
        Record::GroupMetadata(self.key(), Some(stored))
    }

    /// A group without members and generation, which says only that there is one.
    pub(super) fn empty_record(&self) -> Record {
        let current_state_timestamp = self.since.0;
        let value = GroupMetadataValue {
            current_state_timestamp,
            protocol: None,
            leader: None,
            ..Default::default()
        };
        Record::GroupMetadata(self.key(), Some(value))
    }

    /// The end of the group.
    pub fn tombstone(&self) -> Record {
        Record::GroupMetadata(self.key(), None)
    }

    fn key(&self) -> GroupMetadataKey {
        GroupMetadataKey { group: text(&self.id), ..Default::default() }
    }

    /// What is written down of the group.
    pub(super) fn stored(&self) -> GroupMetadataValue {
        let member = |(id, member): (&Name, &Member)| GroupMetadataMember {
            member_id: text(id),
            group_instance_id: member.instance_id.as_ref().map(text),
            client_id: text(&member.client_id),
            client_host: text(&member.client_host),
            rebalance_timeout: member.rebalance_timeout_ms,
            session_timeout: member.session_timeout_ms,
            subscription: self.protocol.as_ref().and_then(|name| member.metadata(name)).unwrap_or_default(),
            assignment: member.assignment.clone(),
            ..Default::default()
        };
        GroupMetadataValue {
            protocol_type: self.protocol_type.as_ref().map(text).unwrap_or_default(),
            generation: self.generation,
            protocol: self.protocol.as_ref().map(text),
            leader: self.leader.as_ref().map(text),
            current_state_timestamp: self.since.0,
            members: self.members.iter().map(member).collect(),
            ..Default::default()
        }
    }

    /// The group that a record tells of. The sessions of its members begin when it does (`begin`).
    pub fn from_stored(id: Name, value: &GroupMetadataValue) -> Result<ClassicGroup, MalformedGroup> {
        let protocol = value.protocol.as_ref().map(name);
        let mut group = ClassicGroup {
            phase: if value.members.is_empty() { Phase::Empty } else { Phase::Stable(Syncing::default()) },
            generation: value.generation,
            protocol_type: Some(name(&value.protocol_type)).filter(|kind| !kind.is_empty()),
            protocol: protocol.clone(),
            leader: value.leader.as_ref().map(name),
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            pending: BTreeMap::new(),
            subscribed: None,
            since: TimestampMs(value.current_state_timestamp),
            id,
        };
        for stored in &value.members {
            let member_id = name(&stored.member_id);
            let subscription = (protocol.clone().unwrap_or_default(), stored.subscription.clone());
            let mut member = Member::idle(vec![subscription]);
            member.instance_id = stored.group_instance_id.as_ref().map(name);
            member.client_id = name(&stored.client_id);
            member.client_host = name(&stored.client_host);
            // The first version of the record had no such time.
            member.rebalance_timeout_ms = match stored.rebalance_timeout {
                -1 => stored.session_timeout,
                timeout => timeout,
            };
            member.session_timeout_ms = stored.session_timeout;
            member.assignment = stored.assignment.clone();
            if let Some(instance) = &member.instance_id {
                group.instances.insert(instance.clone(), member_id.clone());
            }
            if group.members.insert(member_id.clone(), member).is_some() {
                return Err(MalformedGroup { group: group.id, member: member_id });
            }
        }
        group.subscribed = group.subscribed_topics();
        Ok(group)
    }

    /// The topics of all members; `None` where the subscriptions cannot be read.
    pub(super) fn subscribed_topics(&self) -> Option<BTreeSet<Name>> {
        if self.protocol_type.as_deref() != Some(CONSUMER_PROTOCOL_TYPE) {
            return None;
        }
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            let metadata = member.metadata(self.protocol.as_ref()?)?;
            topics.extend(subscription_topics(metadata)?);
        }
        Some(topics)
    }
}

/// The topics in a consumer's subscription: version (int16), then an array of strings, which every version begins with.
fn subscription_topics(mut metadata: Bytes) -> Option<Vec<Name>> {
    metadata.try_get_i16().ok()?;
    let count = usize::try_from(metadata.try_get_i32().ok()?).ok()?;
    let mut topics = Vec::new();
    for _ in 0..count {
        let len = usize::try_from(metadata.try_get_i16().ok()?).ok()?;
        if metadata.len() < len {
            return None;
        }
        topics.push(std::str::from_utf8(&metadata.split_to(len)).ok()?.into());
    }
    Some(topics)
}

fn text(name: &Name) -> StrBytes {
    StrBytes::from_string(name.to_string())
}

fn name(text: &StrBytes) -> Name {
    text.as_str().into()
}

#[cfg(test)]
impl ClassicGroup {
    /// All that a settled group's record says of it; when it came into its state is not kept of a group that nobody has
    /// joined.
    pub(in crate::coordinator::group) fn hard_state(&self) -> String {
        let mut stored = self.stored();
        if self.protocol_type.is_none() {
            stored.current_state_timestamp = 0;
        }
        format!("{stored:?}")
    }
}
