//! OffsetCommit: v2-10
//!
//! Behaviour: stores offsets for a group, with a text and the leader epoch of the record before each. A member commits under its
//! generation or epoch; who is no member commits for a group without members. Each partition succeeds or fails by itself,
//! unless the group refuses all. The group id may be empty.
//!
//! Version notes: 2-4 say how long the offsets are kept; 6 adds leader epochs; 7 static members; 9 member epochs (KIP-848), from
//! which on a group that does not exist is GROUP_ID_NOT_FOUND; 10 names topics by id.

use super::commits::{self, Answered, Asked, commit_partition, shown, sort};
use super::coordination::{name, optional_name, reply};
use super::{Answer, Api, Call, Request};
use crate::coordinator::group::Command;
use crate::coordinator::group::command::{CommitOffsets, Identity};
use crate::coordinator::group::reply::CommitError;
use crate::types::ErrorCode;
use crate::wire::messages::offset_commit::{
    OffsetCommitRequestTopic, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use crate::wire::messages::{OffsetCommitRequest, OffsetCommitResponse};

const MEMBER_EPOCHS: i16 = 9;
const TOPIC_IDS: i16 = 10;

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<OffsetCommitRequest>,
) -> Answer<OffsetCommitResponse> {
    let (version, request) = (request.version, request.body);
    let topics = request.topics.into_iter().map(asked).collect();
    let (mut answered, topics) = sort(version >= TOPIC_IDS, &api.metadata.image(), topics);
    if topics.is_empty() {
        return Answer::Now(respond(&answered));
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
        Answer::Now(respond(&answered))
    }))
}

fn asked(topic: OffsetCommitRequestTopic) -> Asked {
    let partitions = topic.partitions.iter().map(|partition| {
        commit_partition(
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata.as_ref(),
        )
    });
    Asked { partitions: partitions.collect(), name: topic.name, id: topic.topic_id }
}

fn respond(answered: &Answered) -> OffsetCommitResponse {
    let topics = answered.0.iter().map(|told| {
        let (name, topic_id) = shown(told);
        let partitions = told.partitions.iter().map(|(index, error)| OffsetCommitResponsePartition {
            partition_index: *index,
            error_code: error.code(),
            ..Default::default()
        });
        OffsetCommitResponseTopic { name, topic_id, partitions: partitions.collect(), ..Default::default() }
    });
    OffsetCommitResponse { topics: topics.collect(), ..Default::default() }
}

fn code(version: i16, error: CommitError) -> ErrorCode {
    match error {
        CommitError::GroupNotFound if version >= MEMBER_EPOCHS => ErrorCode::GroupIdNotFound,
        error => commits::code(error),
    }
}
