//! TxnOffsetCommit: v0-6
//!
//! Behaviour: stores offsets for a group that count once the producer's transaction is committed; until then readers who want
//! stable offsets are told to wait (KIP-98, KIP-447). The partition of the group's coordinator becomes a part of the transaction,
//! which takes the word of the transaction coordinator, as for records (see `transactional`).
//!
//! Version notes: 2 adds leader epochs, and from there on a coordinator that reads its log is COORDINATOR_LOAD_IN_PROGRESS; 3 says
//! which member commits; 5 has the partition become a part of the transaction by itself (KIP-890); 6 names topics by id.

use super::commits::{Answered, Asked, commit_partition, shown, sort};
use super::coordination::{check_group_id, name, optional_name, reply};
use super::{Answer, Api, Call, Request, transactional};
use crate::coordinator::Producer;
use crate::coordinator::group::Command;
use crate::coordinator::group::command::{CommitOffsets, CommitTopic, Identity};
use crate::coordinator::group::reply::CommitError;
use crate::types::{ErrorCode, ProducerEpoch, ProducerId};
use crate::wire::messages::txn_offset_commit::{
    TxnOffsetCommitRequestTopic, TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use crate::wire::messages::{TxnOffsetCommitRequest, TxnOffsetCommitResponse};

const KNOWS_LOADING: i16 = 2;
/// From this version on the partition becomes a part of the transaction by being written to.
const ADDS_PARTITIONS: i16 = 5;
const TOPIC_IDS: i16 = 6;

pub async fn handle(
    api: &Api,
    _: &Call,
    mut request: Request<TxnOffsetCommitRequest>,
) -> Answer<TxnOffsetCommitResponse> {
    let version = request.version;
    let topics = std::mem::take(&mut request.body.topics).into_iter().map(asked).collect();
    let (mut answered, topics) = sort(version >= TOPIC_IDS, &api.metadata.image(), topics);
    if topics.is_empty() {
        return Answer::Now(respond(&answered));
    }
    let admitted = check_group_id(&request.body.group_id)
        .and_then(|()| transactional::admit_offsets(api, version < ADDS_PARTITIONS));
    if let Err(error) = admitted {
        answered.refused(&topics, error);
        return Answer::Now(respond(&answered));
    }
    let command = command(&request.body, topics.clone());
    let pending = api.ask_group(&request.body.group_id, command).await;
    Answer::Later(Box::pin(async move {
        match reply!(pending, CommitOffsetsInTransaction) {
            Ok(Ok(committed)) => answered.committed(committed),
            Ok(Err(error)) => answered.refused(&topics, code(error)),
            Err(ErrorCode::CoordinatorLoadInProgress) if version < KNOWS_LOADING => {
                answered.refused(&topics, ErrorCode::CoordinatorNotAvailable);
            }
            Err(error) => answered.refused(&topics, error),
        }
        Answer::Now(respond(&answered))
    }))
}

fn command(request: &TxnOffsetCommitRequest, topics: Vec<CommitTopic>) -> Command {
    let generation = request.generation_id_or_member_epoch;
    let commit = CommitOffsets {
        group: name(&request.group_id),
        member: Identity {
            member_id: name(&request.member_id),
            instance_id: optional_name(request.group_instance_id.as_ref()),
            generation: (generation >= 0).then_some(generation),
        },
        knows_epochs: true,
        retention_ms: None,
        topics,
    };
    let producer =
        Producer { id: ProducerId(request.producer_id), epoch: ProducerEpoch(request.producer_epoch) };
    Command::CommitOffsetsInTransaction { producer, commit }
}

fn asked(topic: TxnOffsetCommitRequestTopic) -> Asked {
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

fn respond(answered: &Answered) -> TxnOffsetCommitResponse {
    let topics = answered.0.iter().map(|told| {
        let (name, topic_id) = shown(told);
        let partitions = told.partitions.iter().map(|(index, error)| TxnOffsetCommitResponsePartition {
            partition_index: *index,
            error_code: error.code(),
            ..Default::default()
        });
        TxnOffsetCommitResponseTopic {
            name,
            topic_id,
            partitions: partitions.collect(),
            ..Default::default()
        }
    });
    TxnOffsetCommitResponse { topics: topics.collect(), ..Default::default() }
}

fn code(error: CommitError) -> ErrorCode {
    match error {
        // Producers know no other code for who is no member any more.
        CommitError::GroupNotFound | CommitError::IllegalGeneration | CommitError::StaleMemberEpoch => {
            ErrorCode::IllegalGeneration
        }
        CommitError::UnknownMember => ErrorCode::UnknownMemberId,
        CommitError::FencedInstance => ErrorCode::FencedInstanceId,
        CommitError::RebalanceInProgress => ErrorCode::RebalanceInProgress,
        CommitError::VersionWithoutEpochs => ErrorCode::UnsupportedVersion,
        CommitError::ProducerFenced => ErrorCode::InvalidProducerEpoch,
    }
}
