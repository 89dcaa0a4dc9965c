//! OffsetCommit: v2-10
//!
//! Behaviour: stores offsets for a group, with a text and the leader epoch of the record before each. A member commits under its
//! generation or epoch; who is no member commits for a group without members. Each partition succeeds or fails by itself,
//! unless the group refuses all. The group id may be empty.
//!
//! Version notes: 2-4 say how long the offsets are kept; 6 adds leader epochs; 7 static members; 9 member epochs (KIP-848), from
//! which on a group that does not exist is GROUP_ID_NOT_FOUND; 10 names topics by id.

use super::coordination::{name, optional_name, reply};
use super::topic_view::text;
use super::{Answer, Api, Call, Request};
use crate::coordinator::group::Command;
use crate::coordinator::group::command::{CommitOffsets, CommitPartition, CommitTopic, Identity};
use crate::coordinator::group::reply::{CommitError, CommittedTopic};
use crate::metadata::Image;
use crate::types::{ErrorCode, LeaderEpoch, Offset, PartitionIndex, TopicId, Uuid};
use crate::wire::messages::offset_commit::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
};
use crate::wire::messages::{OffsetCommitRequest, OffsetCommitResponse, StrBytes};

const MEMBER_EPOCHS: i16 = 9;
const TOPIC_IDS: i16 = 10;

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<OffsetCommitRequest>,
) -> Answer<OffsetCommitResponse> {
    let (version, request) = (request.version, request.body);
    let (mut answered, topics) = sort(version, &api.metadata.image(), request.topics);
    if topics.is_empty() {
        return Answer::Now(OffsetCommitResponse { topics: answered.0, ..Default::default() });
    }
    let generation = request.generation_id_or_member_epoch;
    let commit = CommitOffsets {
        group: name(&request.group_id),
        member: Identity {
            member_id: name(&request.member_id),
            instance_id: optional_name(request.group_instance_id.as_ref()),
            generation: (generation >= 0).then_some(generation),
        },
        knows_epochs: version >= MEMBER_EPOCHS,
        retention_ms: Some(request.retention_time_ms).filter(|ms| *ms >= 0),
        topics: topics.clone(),
    };
    let pending = api.ask_group(&request.group_id, Command::CommitOffsets(commit)).await;
    Answer::Later(Box::pin(async move {
        match reply!(pending, CommitOffsets) {
            Ok(Ok(committed)) => answered.committed(committed),
            Ok(Err(error)) => answered.refused(&topics, code(version, error)),
            Err(error) => answered.refused(&topics, error),
        }
        Answer::Now(OffsetCommitResponse { topics: answered.0, ..Default::default() })
    }))
}

/// The partitions that have their codes, by topic.
struct Answered(Vec<OffsetCommitResponseTopic>);

impl Answered {
    fn add(&mut self, topic_name: &str, topic_id: TopicId, partition: i32, error: ErrorCode) {
        let told = OffsetCommitResponsePartition {
            partition_index: partition,
            error_code: error.code(),
            ..Default::default()
        };
        let same = |topic: &&mut OffsetCommitResponseTopic| {
            topic.name.as_str() == topic_name && topic.topic_id == topic_id
        };
        match self.0.iter_mut().rev().find(same) {
            Some(topic) => topic.partitions.push(told),
            None => self.0.push(OffsetCommitResponseTopic {
                name: text(topic_name),
                topic_id,
                partitions: vec![told],
                ..Default::default()
            }),
        }
    }

    fn committed(&mut self, topics: Vec<CommittedTopic>) {
        for topic in topics {
            for (partition, result) in topic.partitions {
                let error = result.map_or(ErrorCode::OffsetMetadataTooLarge, |()| ErrorCode::None);
                self.add(&topic.name, topic.id, partition.0, error);
            }
        }
    }

    fn refused(&mut self, topics: &[CommitTopic], error: ErrorCode) {
        for topic in topics {
            for partition in &topic.partitions {
                self.add(&topic.name, topic.id, partition.index.0, error);
            }
        }
    }
}

/// Sorts out the partitions that do not exist; the rest is for the coordinator.
fn sort(version: i16, image: &Image, topics: Vec<OffsetCommitRequestTopic>) -> (Answered, Vec<CommitTopic>) {
    let (mut answered, mut known) = (Answered(Vec::new()), Vec::new());
    for topic in topics {
        let by_id = version >= TOPIC_IDS;
        let found = if by_id {
            image.topics.by_id(topic.topic_id)
        } else {
            image.topics.by_name(topic.name.as_str())
        };
        let Some(found) = found else {
            let (id, error) = if by_id {
                (topic.topic_id, ErrorCode::UnknownTopicId)
            } else {
                (Uuid::nil(), ErrorCode::UnknownTopicOrPartition)
            };
            for partition in &topic.partitions {
                answered.add(topic.name.as_str(), id, partition.partition_index, error);
            }
            continue;
        };
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            if found.partition(PartitionIndex(partition.partition_index)).is_some() {
                partitions.push(commit_partition(&partition));
            } else {
                let error = ErrorCode::UnknownTopicOrPartition;
                answered.add(&found.name, found.id, partition.partition_index, error);
            }
        }
        if !partitions.is_empty() {
            known.push(CommitTopic { name: found.name.clone(), id: found.id, partitions });
        }
    }
    (answered, known)
}

fn commit_partition(partition: &OffsetCommitRequestPartition) -> CommitPartition {
    CommitPartition {
        index: PartitionIndex(partition.partition_index),
        offset: Offset(partition.committed_offset),
        leader_epoch: LeaderEpoch(partition.committed_leader_epoch),
        metadata: partition.committed_metadata.as_ref().map_or("", StrBytes::as_str).into(),
    }
}

fn code(version: i16, error: CommitError) -> ErrorCode {
    match error {
        CommitError::GroupNotFound if version >= MEMBER_EPOCHS => ErrorCode::GroupIdNotFound,
        CommitError::GroupNotFound | CommitError::IllegalGeneration => ErrorCode::IllegalGeneration,
        CommitError::UnknownMember => ErrorCode::UnknownMemberId,
        CommitError::FencedInstance => ErrorCode::FencedInstanceId,
        CommitError::StaleMemberEpoch => ErrorCode::StaleMemberEpoch,
        CommitError::RebalanceInProgress => ErrorCode::RebalanceInProgress,
        CommitError::VersionWithoutEpochs => ErrorCode::UnsupportedVersion,
        CommitError::ProducerFenced => ErrorCode::InvalidProducerEpoch,
    }
}
