//! The group's records: made from the state here, taken in by `fold`.

use super::super::Name;
use super::super::assignor::Assignment;
use super::super::record::Record;
use super::member::{Member, Owned};
use super::{ConsumerGroup, Resolved};
use crate::types::{PartitionIndex, TimestampMs};
use crate::wire::messages::StrBytes;
use crate::wire::messages::groups::{
    ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue, ConsumerGroupPartitionMetadataKey, ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue, ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue, ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue, CurrentTopicPartitions, StoredClassicMember,
    StoredClassicProtocol, TargetTopicPartitions,
};

impl ConsumerGroup {
    pub(super) fn member_record(&self, id: &Name, member: &Member) -> Record {
        let classic_member_metadata = member.classic.as_ref().map(|classic| StoredClassicMember {
            session_timeout_ms: classic.session_timeout_ms,
            supported_protocols: classic
                .protocols
                .iter()
                .map(|(name, metadata)| StoredClassicProtocol {
                    name: text(name),
                    metadata: metadata.clone(),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        });
        let value = ConsumerGroupMemberMetadataValue {
            instance_id: member.instance_id.as_ref().map(text),
            rack_id: member.rack.as_ref().map(text),
            client_id: text(&member.client_id),
            client_host: text(&member.client_host),
            subscribed_topic_names: member.topics.iter().map(text).collect(),
            subscribed_topic_regex: member.regex.as_ref().map(text),
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            server_assignor: member.assignor.as_ref().map(text),
            classic_member_metadata,
            ..Default::default()
        };
        Record::ConsumerGroupMemberMetadata(self.member_key(id), Some(value))
    }

    pub(super) fn member_tombstone(&self, id: &Name) -> Record {
        Record::ConsumerGroupMemberMetadata(self.member_key(id), None)
    }

    pub(super) fn current_record(&self, id: &Name, member: &Member) -> Record {
        let value = ConsumerGroupCurrentMemberAssignmentValue {
            member_epoch: member.epoch,
            previous_member_epoch: member.previous_epoch,
            state: member.state.code(),
            assigned_partitions: stored_owned(&member.assigned),
            partitions_pending_revocation: stored_owned(&member.revoking),
            ..Default::default()
        };
        Record::ConsumerGroupCurrentMemberAssignment(self.current_key(id), Some(value))
    }

    pub(super) fn current_tombstone(&self, id: &Name) -> Record {
        Record::ConsumerGroupCurrentMemberAssignment(self.current_key(id), None)
    }

    pub(super) fn target_record(&self, id: &Name, target: &Assignment) -> Record {
        let topic_partitions = target.iter().map(|(topic, partitions)| TargetTopicPartitions {
            topic_id: *topic,
            partitions: partitions.iter().map(|partition| partition.0).collect(),
            ..Default::default()
        });
        let value = ConsumerGroupTargetAssignmentMemberValue {
            topic_partitions: topic_partitions.collect(),
            ..Default::default()
        };
        Record::ConsumerGroupTargetAssignmentMember(self.target_key(id), Some(value))
    }

    pub(super) fn target_tombstone(&self, id: &Name) -> Record {
        Record::ConsumerGroupTargetAssignmentMember(self.target_key(id), None)
    }

    /// All members have a target of this epoch, made at this time; 0 lets the next one be made at once.
    pub(super) fn target_epoch_record(&self, epoch: i32, at: TimestampMs) -> Record {
        let value = ConsumerGroupTargetAssignmentMetadataValue {
            assignment_epoch: epoch,
            assignment_timestamp: at.0,
            ..Default::default()
        };
        Record::ConsumerGroupTargetAssignmentMetadata(self.target_epoch_key(), Some(value))
    }

    pub(super) fn target_epoch_tombstone(&self) -> Record {
        Record::ConsumerGroupTargetAssignmentMetadata(self.target_epoch_key(), None)
    }

    pub(super) fn epoch_record(&self, epoch: i32, metadata_hash: i64) -> Record {
        let value = ConsumerGroupMetadataValue { epoch, metadata_hash, ..Default::default() };
        Record::ConsumerGroupMetadata(self.key(), Some(value))
    }

    pub(super) fn epoch_tombstone(&self) -> Record {
        Record::ConsumerGroupMetadata(self.key(), None)
    }

    pub(super) fn partition_metadata_tombstone(&self) -> Record {
        let key = ConsumerGroupPartitionMetadataKey { group_id: text(&self.id), ..Default::default() };
        Record::ConsumerGroupPartitionMetadata(key, None)
    }

    pub(super) fn regex_record(&self, regex: &Name, resolved: &Resolved) -> Record {
        let value = ConsumerGroupRegularExpressionValue {
            topics: resolved.topics.iter().map(text).collect(),
            version: resolved.version,
            timestamp: resolved.at.0,
            ..Default::default()
        };
        Record::ConsumerGroupRegularExpression(self.regex_key(regex), Some(value))
    }

    pub(super) fn regex_tombstone(&self, regex: &Name) -> Record {
        Record::ConsumerGroupRegularExpression(self.regex_key(regex), None)
    }

    /// The end of the group, in the order in which Kafka writes it.
    pub fn tombstones(&self) -> Vec<Record> {
        let members = || self.members.keys();
        let mut records: Vec<Record> = members().map(|id| self.current_tombstone(id)).collect();
        records.extend(members().map(|id| self.target_tombstone(id)));
        records.push(self.target_epoch_tombstone());
        records.extend(members().map(|id| self.member_tombstone(id)));
        records.extend(self.regexes.keys().map(|regex| self.regex_tombstone(regex)));
        records.push(self.partition_metadata_tombstone());
        records.push(self.epoch_tombstone());
        records
    }

    fn key(&self) -> ConsumerGroupMetadataKey {
        ConsumerGroupMetadataKey { group_id: text(&self.id), ..Default::default() }
    }

    fn member_key(&self, id: &Name) -> ConsumerGroupMemberMetadataKey {
        ConsumerGroupMemberMetadataKey { group_id: text(&self.id), member_id: text(id), ..Default::default() }
    }

    fn current_key(&self, id: &Name) -> ConsumerGroupCurrentMemberAssignmentKey {
        ConsumerGroupCurrentMemberAssignmentKey {
            group_id: text(&self.id),
            member_id: text(id),
            ..Default::default()
        }
    }

    fn target_key(&self, id: &Name) -> ConsumerGroupTargetAssignmentMemberKey {
        ConsumerGroupTargetAssignmentMemberKey {
            group_id: text(&self.id),
            member_id: text(id),
            ..Default::default()
        }
    }

    fn target_epoch_key(&self) -> ConsumerGroupTargetAssignmentMetadataKey {
        ConsumerGroupTargetAssignmentMetadataKey { group_id: text(&self.id), ..Default::default() }
    }

    fn regex_key(&self, regex: &Name) -> ConsumerGroupRegularExpressionKey {
        ConsumerGroupRegularExpressionKey {
            group_id: text(&self.id),
            regular_expression: text(regex),
            ..Default::default()
        }
    }
}

fn stored_owned(owned: &Owned) -> Vec<CurrentTopicPartitions> {
    owned
        .iter()
        .map(|(topic, epochs)| CurrentTopicPartitions {
            topic_id: *topic,
            partitions: epochs.keys().map(|partition| partition.0).collect(),
            assignment_epochs: Some(epochs.values().copied().collect()),
            ..Default::default()
        })
        .collect()
}

/// Partitions with the epochs in which the member got them. Kafka before 4.4 wrote none: then it is the member's epoch.
pub(super) fn owned_from(stored: &[CurrentTopicPartitions], member_epoch: i32) -> Owned {
    let mut owned = Owned::new();
    for topic in stored.iter().filter(|topic| !topic.partitions.is_empty()) {
        let epochs = topic.assignment_epochs.as_ref().filter(|epochs| epochs.len() == topic.partitions.len());
        let epoch =
            |at: usize| epochs.and_then(|epochs| epochs.get(at)).copied().unwrap_or(member_epoch.max(0));
        let partitions = topic.partitions.iter().enumerate();
        let partitions = partitions.map(|(at, partition)| (PartitionIndex(*partition), epoch(at)));
        owned.entry(topic.topic_id).or_default().extend(partitions);
    }
    owned
}

pub(super) fn target_from(stored: &ConsumerGroupTargetAssignmentMemberValue) -> Assignment {
    let mut target = Assignment::new();
    for topic in stored.topic_partitions.iter().filter(|topic| !topic.partitions.is_empty()) {
        target
            .entry(topic.topic_id)
            .or_default()
            .extend(topic.partitions.iter().copied().map(PartitionIndex));
    }
    target
}

pub(super) fn text(name: &Name) -> StrBytes {
    StrBytes::from_string(name.to_string())
}

pub(super) fn name(text: &StrBytes) -> Name {
    text.as_str().into()
}

#[cfg(test)]
#[path = "stored_tests.rs"]
mod tests;
