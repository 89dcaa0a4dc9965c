//! The only place where hard state changes: a record is taken in, of the log or just made. What follows from the members,
//! such as who holds a partition, is kept in step here.

use std::collections::HashMap;

use super::super::record::Record;
use super::super::{Name, Out};
use super::member::{Classic, LEAVE_EPOCH, Member, MemberState, Owned};
use super::stored::{name, owned_from, target_from};
use super::{ConsumerGroup, Demand, Resolved};
use crate::types::{PartitionIndex, TimestampMs, TopicId};
use crate::wire::messages::groups::{
    ConsumerGroupCurrentMemberAssignmentValue, ConsumerGroupMemberMetadataValue,
    ConsumerGroupRegularExpressionValue,
};

impl ConsumerGroup {
    /// Takes in a record of this group. The tombstone of its epoch, with which the group is no more, is for the owner of
    /// the group to see; so are records of other kinds, which change nothing here.
    pub fn replay(&mut self, record: &Record) {
        match record {
            Record::ConsumerGroupMetadata(_, Some(value)) => {
                self.epoch = value.epoch;
                self.metadata_hash = value.metadata_hash;
            }
            Record::ConsumerGroupPartitionMetadata(_, value) => self.has_partition_metadata = value.is_some(),
            Record::ConsumerGroupMemberMetadata(key, Some(value)) => {
                self.change_member(&name(&key.member_id), |member| subscribe(member, value));
            }
            Record::ConsumerGroupMemberMetadata(key, None) => self.put_member(&name(&key.member_id), None),
            Record::ConsumerGroupTargetAssignmentMetadata(_, value) => {
                (self.target_epoch, self.target_made_at) = match value {
                    Some(value) => (value.assignment_epoch, TimestampMs(value.assignment_timestamp)),
                    None => (-1, TimestampMs(0)),
                };
            }
            Record::ConsumerGroupTargetAssignmentMember(key, Some(value)) => {
                self.target.insert(name(&key.member_id), target_from(value));
            }
            Record::ConsumerGroupTargetAssignmentMember(key, None) => {
                self.target.remove(key.member_id.as_str());
            }
            Record::ConsumerGroupCurrentMemberAssignment(key, Some(value)) => {
                self.place_member(&name(&key.member_id), |member| place(member, value));
            }
            Record::ConsumerGroupCurrentMemberAssignment(key, None) => {
                if self.members.contains_key(key.member_id.as_str()) {
                    self.place_member(&name(&key.member_id), |member| {
                        member.epoch = LEAVE_EPOCH;
                        member.previous_epoch = LEAVE_EPOCH;
                        member.assigned = Owned::new();
                        member.revoking = Owned::new();
                    });
                }
            }
            Record::ConsumerGroupRegularExpression(key, value) => {
                let resolved = value.as_ref().map(resolved_from);
                self.put_regex(name(&key.regular_expression), resolved);
            }
            Record::ConsumerGroupMetadata(_, None)
            | Record::GroupMetadata(..)
            | Record::OffsetCommit(..)
            | Record::LegacyOffsetCommit(..) => {}
        }
    }

    /// Makes a record: it counts at once, and goes into the log.
    pub(super) fn write(&mut self, record: Record, out: &mut Out) {
        self.replay(&record);
        out.record(record);
    }

    /// Changes a member, or one that is made for it: in a compacted log its records may come in any order.
    fn change_member(&mut self, id: &Name, change: impl FnOnce(&mut Member)) {
        let mut member = self.members.get(id).cloned().unwrap_or_else(Member::new);
        change(&mut member);
        self.put_member(id, Some(member));
    }

    /// Changes what a member has, and nothing of what it asks for.
    fn place_member(&mut self, id: &Name, place: impl FnOnce(&mut Member)) {
        let Some(member) = self.members.get_mut(id) else { return self.change_member(id, place) };
        disown(&mut self.owners, id, member);
        place(member);
        self.owners.extend(member.held().map(|partition| (partition, id.clone())));
    }

    fn put_member(&mut self, id: &Name, member: Option<Member>) {
        if let Some(old) = self.members.remove(id) {
            self.forget(id, &old);
        }
        if let Some(member) = member {
            self.note(id, &member);
            self.members.insert(id.clone(), member);
        }
    }

    fn note(&mut self, id: &Name, member: &Member) {
        for topic in &member.topics {
            self.demand.entry(topic.clone()).or_default().by_name += 1;
        }
        if let Some(regex) = member.pattern() {
            *self.regex_subscribers.entry(regex.clone()).or_default() += 1;
        }
        if let Some(assignor) = &member.assignor {
            *self.assignors.entry(assignor.clone()).or_default() += 1;
        }
        if let Some(instance) = &member.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        self.owners.extend(member.held().map(|partition| (partition, id.clone())));
    }

    fn forget(&mut self, id: &Name, member: &Member) {
        for topic in &member.topics {
            self.demand_less(topic, |demand| demand.by_name -= 1);
        }
        for (counts, name) in
            [(&mut self.regex_subscribers, member.pattern()), (&mut self.assignors, member.assignor.as_ref())]
        {
            let Some(name) = name else { continue };
            if let Some(count) = counts.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(name);
                }
            }
        }
        if let Some(instance) = &member.instance_id
            && self.instances.get(instance) == Some(id)
        {
            self.instances.remove(instance);
        }
        disown(&mut self.owners, id, member);
    }

    fn put_regex(&mut self, regex: Name, resolved: Option<Resolved>) {
        if let Some(old) = self.regexes.remove(&regex) {
            for topic in &old.topics {
                self.demand_less(topic, |demand| demand.by_regex -= 1);
            }
        }
        if let Some(resolved) = resolved {
            for topic in &resolved.topics {
                self.demand.entry(topic.clone()).or_default().by_regex += 1;
            }
            self.regexes.insert(regex, resolved);
        }
    }

    fn demand_less(&mut self, topic: &Name, change: impl FnOnce(&mut Demand)) {
        let Some(demand) = self.demand.get_mut(topic) else { return };
        change(demand);
        if *demand == Demand::default() {
            self.demand.remove(topic);
        }
    }
}

fn disown(owners: &mut HashMap<(TopicId, PartitionIndex), Name>, id: &Name, member: &Member) {
    for partition in member.held() {
        if owners.get(&partition) == Some(id) {
            owners.remove(&partition);
        }
    }
}

fn subscribe(member: &mut Member, value: &ConsumerGroupMemberMetadataValue) {
    member.instance_id = value.instance_id.as_ref().map(name);
    member.rack = value.rack_id.as_ref().map(name);
    member.client_id = name(&value.client_id);
    member.client_host = name(&value.client_host);
    member.topics = value.subscribed_topic_names.iter().map(name).collect();
    member.regex = value.subscribed_topic_regex.as_ref().map(name);
    member.rebalance_timeout_ms = value.rebalance_timeout_ms;
    member.assignor = value.server_assignor.as_ref().map(name);
    member.classic = value.classic_member_metadata.as_ref().map(|classic| Classic {
        session_timeout_ms: classic.session_timeout_ms,
        protocols: classic
            .supported_protocols
            .iter()
            .map(|protocol| (name(&protocol.name), protocol.metadata.clone()))
            .collect(),
    });
}

fn place(member: &mut Member, value: &ConsumerGroupCurrentMemberAssignmentValue) {
    member.epoch = value.member_epoch;
    member.previous_epoch = value.previous_member_epoch;
    member.state = MemberState::from_code(value.state);
    member.assigned = owned_from(&value.assigned_partitions, value.member_epoch);
    member.revoking = owned_from(&value.partitions_pending_revocation, value.member_epoch);
}

fn resolved_from(value: &ConsumerGroupRegularExpressionValue) -> Resolved {
    Resolved {
        topics: value.topics.iter().map(name).collect(),
        version: value.version,
        at: TimestampMs(value.timestamp),
    }
}

#[cfg(test)]
impl ConsumerGroup {
    /// All that is in the records.
    pub(in crate::coordinator::group) fn hard_state(&self) -> String {
        let epochs = (self.epoch, self.metadata_hash, self.target_epoch, self.target_made_at);
        format!("{epochs:?} {:?} {:?} {:?}", self.members, self.target, self.regexes)
    }
}
