//! OffsetFetch: v1-10
//!
//! Behaviour: what groups have committed, for the partitions that are named or for all; -1 where there is nothing. A group that
//! does not exist has committed nothing. The group id may be empty.
//!
//! Version notes: 2 asks for all partitions and has a code for the whole, before it the code is told with each partition;
//! 5 adds leader epochs; 7 holds back what an open transaction may change (KIP-447); 8 asks for several groups; 9 says which
//! member asks (KIP-848); 10 names topics by id.

use std::sync::Arc;

use super::coordination::{name, reply};
use super::topic_view::text;
use super::{Answer, Api, Call, Request};
use crate::broker::coordinators::Pending;
use crate::coordinator::group::command::{FetchOffsets, FetchTopic};
use crate::coordinator::group::reply::{FetchError, FetchedOffset, FetchedTopic};
use crate::coordinator::group::{Command, Reply};
use crate::metadata::Image;
use crate::types::{ErrorCode, LeaderEpoch, Offset, PartitionIndex};
use crate::wire::messages::offset_fetch::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponseGroup,
    OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use crate::wire::messages::{OffsetFetchRequest, OffsetFetchResponse, StrBytes};

/// The first version with a code for the whole answer.
const ERROR_OF_ALL: i16 = 2;
const SEVERAL_GROUPS: i16 = 8;
const TOPIC_IDS: i16 = 10;

pub async fn handle(
    api: &Arc<Api>,
    _: &Call,
    request: Request<OffsetFetchRequest>,
) -> Answer<OffsetFetchResponse> {
    let (version, request) = (request.version, request.body);
    let require_stable = request.require_stable;
    let groups = if version >= SEVERAL_GROUPS { request.groups } else { vec![only_group(request)] };
    let image = api.metadata.image();
    let mut parts = Vec::with_capacity(groups.len());
    for group in groups {
        parts.push(ask(api, version, &image, group, require_stable).await);
    }
    let api = Arc::clone(api);
    Answer::Later(Box::pin(async move {
        let mut answers = Vec::with_capacity(parts.len());
        for part in parts {
            answers.push(part.answer(&api, version).await);
        }
        Answer::Now(if version >= SEVERAL_GROUPS {
            OffsetFetchResponse { groups: answers, ..Default::default() }
        } else {
            of_one_group(answers.into_iter().next().unwrap_or_default())
        })
    }))
}

/// The group of a version that asks for one.
fn only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup {
    let topics = request.topics.map(|topics| {
        let topics = topics.into_iter().map(|topic| OffsetFetchRequestTopics {
            name: topic.name,
            partition_indexes: topic.partition_indexes,
            ..Default::default()
        });
        topics.collect()
    });
    OffsetFetchRequestGroup { group_id: request.group_id, topics, ..Default::default() }
}

/// What one group is asked for.
struct Part {
    group: OffsetFetchRequestGroup,
    /// Topics whose ids are not known.
    unknown: Vec<OffsetFetchResponseTopics>,
    pending: Pending<Reply>,
}

async fn ask(
    api: &Api,
    version: i16,
    image: &Image,
    group: OffsetFetchRequestGroup,
    require_stable: bool,
) -> Part {
    let mut unknown = Vec::new();
    let mut known = |topic: &OffsetFetchRequestTopics| {
        let topic_name = if version >= TOPIC_IDS {
            match image.topics.by_id(topic.topic_id) {
                Some(found) => Arc::clone(&found.name),
                None => {
                    unknown.push(refused_topic(topic, ErrorCode::UnknownTopicId));
                    return None;
                }
            }
        } else {
            name(&topic.name)
        };
        let partitions = topic.partition_indexes.iter().map(|index| PartitionIndex(*index)).collect();
        Some(FetchTopic { name: topic_name, id: topic.topic_id, partitions })
    };
    let topics = group.topics.as_ref().map(|topics| topics.iter().filter_map(&mut known).collect());
    // Who says nothing of a member is an operator, or a client of before.
    let says_nothing = group.member_id.is_none() && group.member_epoch < 0;
    let member_id = group.member_id.as_ref().map_or("", StrBytes::as_str);
    let fetch = FetchOffsets {
        group: name(&group.group_id),
        member: (!says_nothing).then(|| (member_id.into(), group.member_epoch)),
        topics,
        require_stable,
    };
    let pending = api.ask_group(&group.group_id, Command::FetchOffsets(fetch)).await;
    Part { group, unknown, pending }
}

impl Part {
    async fn answer(self, api: &Api, version: i16) -> OffsetFetchResponseGroup {
        let Part { group, unknown, pending } = self;
        let fetched = match reply!(pending, FetchOffsets) {
            Ok(Ok(fetched)) => fetched,
            Ok(Err(error)) => return refused(version, &group, code(error)),
            // Clients do not expect the coordinator's own code here, and look for another one by this.
            Err(ErrorCode::CoordinatorNotAvailable) => {
                return refused(version, &group, ErrorCode::NotCoordinator);
            }
            Err(error) => return refused(version, &group, error),
        };
        let image = api.metadata.image();
        let mut topics: Vec<_> =
            fetched.into_iter().filter_map(|topic| shown(version, &image, topic)).collect();
        topics.extend(unknown);
        OffsetFetchResponseGroup { group_id: group.group_id, topics, ..Default::default() }
    }
}

/// A topic's offsets; `None` when the version names topics by id and this one has none any more.
fn shown(version: i16, image: &Image, topic: FetchedTopic) -> Option<OffsetFetchResponseTopics> {
    let topic_id = if version >= TOPIC_IDS && topic.id.is_nil() {
        image.topics.by_name(&topic.name)?.id
    } else {
        topic.id
    };
    let partitions = topic.partitions.into_iter().map(|(index, fetched)| match fetched {
        FetchedOffset::None => partition(index.0, ErrorCode::None),
        FetchedOffset::Unstable => partition(index.0, ErrorCode::UnstableOffsetCommit),
        FetchedOffset::Offset { offset, leader_epoch, metadata } => OffsetFetchResponsePartitions {
            partition_index: index.0,
            committed_offset: offset.0,
            committed_leader_epoch: leader_epoch.0,
            metadata: Some(text(&metadata)),
            ..Default::default()
        },
    });
    let (name, partitions) = (text(&topic.name), partitions.collect());
    Some(OffsetFetchResponseTopics { name, topic_id, partitions, ..Default::default() })
}

/// A partition without an offset.
fn partition(index: i32, error: ErrorCode) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions {
        partition_index: index,
        committed_offset: Offset::UNKNOWN.0,
        committed_leader_epoch: LeaderEpoch::UNKNOWN.0,
        metadata: Some(StrBytes::default()),
        error_code: error.code(),
        ..Default::default()
    }
}

fn refused_topic(topic: &OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics {
    OffsetFetchResponseTopics {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partitions: topic.partition_indexes.iter().map(|index| partition(*index, error)).collect(),
        ..Default::default()
    }
}

fn refused(version: i16, group: &OffsetFetchRequestGroup, error: ErrorCode) -> OffsetFetchResponseGroup {
    let group_id = group.group_id.clone();
    if version >= ERROR_OF_ALL {
        return OffsetFetchResponseGroup { group_id, error_code: error.code(), ..Default::default() };
    }
    let topics = group.topics.iter().flatten().map(|topic| refused_topic(topic, error)).collect();
    OffsetFetchResponseGroup { group_id, topics, ..Default::default() }
}

/// The answer in the form of before several groups.
fn of_one_group(group: OffsetFetchResponseGroup) -> OffsetFetchResponse {
    let topics = group.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|partition| OffsetFetchResponsePartition {
            partition_index: partition.partition_index,
            committed_offset: partition.committed_offset,
            committed_leader_epoch: partition.committed_leader_epoch,
            metadata: partition.metadata,
            error_code: partition.error_code,
            ..Default::default()
        });
        OffsetFetchResponseTopic { name: topic.name, partitions: partitions.collect(), ..Default::default() }
    });
    OffsetFetchResponse { topics: topics.collect(), error_code: group.error_code, ..Default::default() }
}

fn code(error: FetchError) -> ErrorCode {
    match error {
        FetchError::UnknownMember => ErrorCode::UnknownMemberId,
        FetchError::StaleMemberEpoch => ErrorCode::StaleMemberEpoch,
        FetchError::IllegalGeneration => ErrorCode::IllegalGeneration,
    }
}
