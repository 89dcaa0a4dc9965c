//! What OffsetCommit and TxnOffsetCommit have in common: topics by name or by id, of which those that exist are for the
//! coordinator, and a code for each partition.
//!
//! As in Kafka, what needs no coordinator comes first in the answer.

use super::topic_view::text;
use crate::coordinator::group::Name;
use crate::coordinator::group::command::{CommitPartition, CommitTopic};
use crate::coordinator::group::reply::{CommitError, CommittedTopic, MetadataTooLarge};
use crate::metadata::Image;
use crate::types::{ErrorCode, LeaderEpoch, Offset, PartitionIndex, TopicId, Uuid};
use crate::wire::messages::StrBytes;

/// The code for offsets that are not stored. The versions of either API differ in some, and say so themselves.
pub(super) fn code(error: CommitError) -> ErrorCode {
    match error {
        CommitError::GroupNotFound | CommitError::IllegalGeneration => ErrorCode::IllegalGeneration,
        CommitError::UnknownMember => ErrorCode::UnknownMemberId,
        CommitError::FencedInstance => ErrorCode::FencedInstanceId,
        CommitError::StaleMemberEpoch => ErrorCode::StaleMemberEpoch,
        CommitError::RebalanceInProgress => ErrorCode::RebalanceInProgress,
        CommitError::VersionWithoutEpochs => ErrorCode::UnsupportedVersion,
        CommitError::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        CommitError::TransactionEnded => ErrorCode::InvalidTxnState,
    }
}

/// A topic of a request.
pub(super) struct Asked {
    /// Empty when it is named by id.
    pub name: StrBytes,
    pub id: TopicId,
    pub partitions: Vec<CommitPartition>,
}

/// A topic of an answer: the codes of its partitions.
pub(super) struct Told {
    pub name: Name,
    pub id: TopicId,
    pub partitions: Vec<(i32, ErrorCode)>,
}

/// The partitions that have their codes, by topic.
#[derive(Default)]
pub(super) struct Answered(pub Vec<Told>);

impl Answered {
    fn add(&mut self, name: &str, id: TopicId, partition: i32, error: ErrorCode) {
        match self.0.iter_mut().rev().find(|topic| *topic.name == *name && topic.id == id) {
            Some(topic) => topic.partitions.push((partition, error)),
            None => self.0.push(Told { name: name.into(), id, partitions: vec![(partition, error)] }),
        }
    }

    pub(super) fn committed(&mut self, topics: Vec<CommittedTopic>) {
        for topic in topics {
            for (partition, result) in topic.partitions {
                let error = match result {
                    Ok(()) => ErrorCode::None,
                    Err(MetadataTooLarge) => ErrorCode::OffsetMetadataTooLarge,
                };
                self.add(&topic.name, topic.id, partition.0, error);
            }
        }
    }

    pub(super) fn refused(&mut self, topics: &[CommitTopic], error: ErrorCode) {
        for topic in topics {
            for partition in &topic.partitions {
                self.add(&topic.name, topic.id, partition.index.0, error);
            }
        }
    }
}

pub(super) fn commit_partition(
    index: i32,
    offset: i64,
    leader_epoch: i32,
    metadata: Option<&StrBytes>,
) -> CommitPartition {
    CommitPartition {
        index: PartitionIndex(index),
        offset: Offset(offset),
        leader_epoch: LeaderEpoch(leader_epoch),
        metadata: metadata.map_or("", StrBytes::as_str).into(),
    }
}

/// Sorts out the partitions that do not exist; the rest is for the coordinator.
pub(super) fn sort(by_id: bool, image: &Image, topics: Vec<Asked>) -> (Answered, Vec<CommitTopic>) {
    let (mut answered, mut known) = (Answered::default(), Vec::new());
    for topic in topics {
        let found = if by_id { image.topics.by_id(topic.id) } else { image.topics.by_name(&topic.name) };
        let Some(found) = found else {
            let (id, error) = if by_id {
                (topic.id, ErrorCode::UnknownTopicId)
            } else {
                (Uuid::nil(), ErrorCode::UnknownTopicOrPartition)
            };
            for partition in &topic.partitions {
                answered.add(&topic.name, id, partition.index.0, error);
            }
            continue;
        };
        let (exist, missing): (Vec<_>, Vec<_>) =
            topic.partitions.into_iter().partition(|partition| found.partition(partition.index).is_some());
        for partition in missing {
            answered.add(&found.name, found.id, partition.index.0, ErrorCode::UnknownTopicOrPartition);
        }
        if !exist.is_empty() {
            known.push(CommitTopic { name: found.name.clone(), id: found.id, partitions: exist });
        }
    }
    (answered, known)
}

pub(super) fn shown(told: &Told) -> (StrBytes, TopicId) {
    (text(&told.name), told.id)
}
