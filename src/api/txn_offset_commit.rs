//! TxnOffsetCommit: v0-6
//!
//! Behaviour: stores offsets for a group that count once the producer's transaction is committed; until then readers who want
//! stable offsets are told to wait (KIP-98, KIP-447). The partition of the group's coordinator becomes a part of the transaction,
//! for which its coordinator is asked first.
//!
//! Version notes: 2 adds leader epochs, and from there on a coordinator that reads its log is COORDINATOR_LOAD_IN_PROGRESS; 3 says
//! which member commits; 4 knows TRANSACTION_ABORTABLE; 5 has the partition become a part of the transaction by itself (KIP-890); 6 names topics by id,
//! and tells of groups that do not exist and of member epochs (KIP-1319), which before are ILLEGAL_GENERATION.

use std::time::Duration;

use super::commits::{self, Answered, Asked, commit_partition, shown, sort};
use super::coordination::{check_group_id, name, optional_name, reply};
use super::{Answer, Api, Call, Request};
use crate::broker::transactions::{Inquiry, NotPart};
use crate::coordinator::Producer;
use crate::coordinator::group::Command;
use crate::coordinator::group::command::{CommitOffsets, CommitTopic, Identity};
use crate::coordinator::group::producers::Ended;
use crate::coordinator::group::reply::CommitError;
use crate::types::{ErrorCode, ProducerEpoch, ProducerId};
use crate::wire::messages::txn_offset_commit::{
    TxnOffsetCommitRequestTopic, TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use crate::wire::messages::{TxnOffsetCommitRequest, TxnOffsetCommitResponse};

const KNOWS_LOADING: i16 = 2;
const KNOWS_ABORTABLE: i16 = 4;
/// From this version on the partition becomes a part of the transaction by being written to.
const ADDS_PARTITIONS: i16 = 5;
const TOPIC_IDS: i16 = 6;
/// The first version with codes of their own for a group that does not exist, and for the epoch of a member.
const KNOWS_GROUPS: i16 = 6;

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
    let admitted = match check_group_id(&request.body.group_id) {
        Ok(()) => verify(api, version, &request.body).await,
        Err(error) => Err(error),
    };
    let since = match admitted {
        Ok(since) => since,
        Err(error) => {
            answered.refused(&topics, error);
            return Answer::Now(respond(&answered));
        }
    };
    let command = command(&request.body, since, topics.clone());
    let pending = api.ask_group(&request.body.group_id, command).await;
    Answer::Later(Box::pin(async move {
        match reply!(pending, CommitOffsetsInTransaction) {
            Ok(Ok(committed)) => answered.committed(committed),
            Ok(Err(error)) => answered.refused(&topics, code(version, error)),
            Err(error) => answered.refused(&topics, loading(version, error)),
        }
        Answer::Now(respond(&answered))
    }))
}

/// Asks the transaction's coordinator whether the group's offsets are part of it, or makes them so. Gives by what the group's
/// coordinator knows whether the transaction has ended meanwhile; where each transaction has an epoch of its own, that
/// tells already.
async fn verify(
    api: &Api,
    version: i16,
    request: &TxnOffsetCommitRequest,
) -> Result<Option<Ended>, ErrorCode> {
    let adds = version >= ADDS_PARTITIONS;
    let settings = &api.config.latest().broker;
    if !adds && !settings.transaction_partition_verification_enable {
        return Ok(None);
    }
    let mut since = None;
    if !adds {
        let count = Command::CountEnds(ProducerId(request.producer_id));
        let pending = api.ask_group(&request.group_id, count).await;
        since = Some(reply!(pending, CountEnds).map_err(|error| loading(version, error))?);
    }
    let inquiry = Inquiry {
        transactional_id: request.transactional_id.to_string(),
        producer: producer_of(request),
        partitions: vec![api.offsets_of(&request.group_id)],
        adds,
    };
    let limit = Duration::from_millis(u64::try_from(settings.request_timeout_ms).unwrap_or(0));
    let not_part = api.broker().inquiry.ask(inquiry, limit).await.into_iter().next();
    not_part.map_or(Ok(since), |(_, reason)| Err(not_part_code(version, reason)))
}

/// Clients of the first versions do not know that a coordinator may be reading its log.
fn loading(version: i16, error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::CoordinatorLoadInProgress if version < KNOWS_LOADING => ErrorCode::CoordinatorNotAvailable,
        error => error,
    }
}

/// What may be over soon is COORDINATOR_LOAD_IN_PROGRESS, on which clients try again without looking for another coordinator.
fn not_part_code(version: i16, reason: NotPart) -> ErrorCode {
    match reason {
        NotPart::NotAdded if version < KNOWS_ABORTABLE => ErrorCode::InvalidTxnState,
        NotPart::NotAdded => ErrorCode::TransactionAbortable,
        NotPart::Fenced => ErrorCode::InvalidProducerEpoch,
        NotPart::UnknownProducer => ErrorCode::InvalidProducerIdMapping,
        NotPart::Concurrent => ErrorCode::ConcurrentTransactions,
        NotPart::Unanswered if version < KNOWS_LOADING => ErrorCode::CoordinatorNotAvailable,
        NotPart::Unanswered => ErrorCode::CoordinatorLoadInProgress,
        NotPart::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
        NotPart::Refused => ErrorCode::InvalidTxnState,
    }
}

fn producer_of(request: &TxnOffsetCommitRequest) -> Producer {
    Producer { id: ProducerId(request.producer_id), epoch: ProducerEpoch(request.producer_epoch) }
}

fn command(request: &TxnOffsetCommitRequest, since: Option<Ended>, topics: Vec<CommitTopic>) -> Command {
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
    Command::CommitOffsetsInTransaction { producer: producer_of(request), since, commit }
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

fn code(version: i16, error: CommitError) -> ErrorCode {
    match error {
        CommitError::GroupNotFound if version >= KNOWS_GROUPS => ErrorCode::GroupIdNotFound,
        CommitError::StaleMemberEpoch if version < KNOWS_GROUPS => ErrorCode::IllegalGeneration,
        error => commits::code(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_group_refuses_has_a_code_that_the_version_knows() {
        for (error, before, since) in [
            (CommitError::GroupNotFound, ErrorCode::IllegalGeneration, ErrorCode::GroupIdNotFound),
            (CommitError::StaleMemberEpoch, ErrorCode::IllegalGeneration, ErrorCode::StaleMemberEpoch),
            (CommitError::IllegalGeneration, ErrorCode::IllegalGeneration, ErrorCode::IllegalGeneration),
            (CommitError::UnknownMember, ErrorCode::UnknownMemberId, ErrorCode::UnknownMemberId),
        ] {
            for version in 0..=6 {
                let expected = if version >= 6 { since } else { before };
                assert_eq!(code(version, error), expected, "{error} in version {version}");
            }
        }
    }
}
