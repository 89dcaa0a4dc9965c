//! ConsumerGroupHeartbeat: v0-1 (KIP-848)
//!
//! Behaviour: a member of a group of the consumer protocol joins (epoch 0), says what is new of it, hears its epoch and what it is
//! to have, and leaves (epoch -1, or -2 for a static member that comes back). UNSUPPORTED_VERSION where the protocol is not
//! among `group.coordinator.rebalance.protocols`, or the feature group.version is below 1.
//!
//! Version notes: 1 has the member choose its id itself, and adds subscriptions by regular expression.

use std::sync::Arc;

use uuid::Uuid;

use super::coordination::{check_consumer_protocol, name, optional_name, reply};
use super::refusal::Refusal;
use super::topic_view::text;
use super::{Answer, Api, Call, Request};
use crate::broker::coordinators::groups::assignor;
use crate::coordinator::group::Command;
use crate::coordinator::group::assignor::Assignor;
use crate::coordinator::group::consumer::{
    Heartbeat, HeartbeatError, HeartbeatReply, JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH,
};
use crate::coordinator::group::reply::ConsumerHeartbeatError;
use crate::types::{ErrorCode, PartitionIndex};
use crate::wire::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use crate::wire::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, StrBytes};

/// From this version on members choose their ids.
const OWN_MEMBER_ID: i16 = 1;
/// What stands where the time-out has not changed.
const UNCHANGED: i32 = -1;

pub async fn handle(
    api: &Api,
    call: &Call,
    request: Request<ConsumerGroupHeartbeatRequest>,
) -> Answer<ConsumerGroupHeartbeatResponse> {
    if let Err(error) = check_consumer_protocol(api) {
        return Answer::Now(of_code(error));
    }
    if let Err(refusal) = check(api, request.version, &request.body) {
        return Answer::Now(refused(&refusal));
    }
    let group = name(&request.body.group_id.0);
    let heartbeat = Box::new(heartbeat(call, request));
    let command = Command::ConsumerHeartbeat { group: Arc::clone(&group), heartbeat };
    let pending = api.ask_group(&group, command).await;
    Answer::Later(Box::pin(async move {
        Answer::Now(match reply!(pending, ConsumerHeartbeat) {
            Ok(Ok(reply)) => accepted(&reply),
            Ok(Err(error)) => refused(&Refusal::new(code(&error), error.to_string())),
            Err(error) => of_code(error),
        })
    }))
}

fn check(api: &Api, version: i16, request: &ConsumerGroupHeartbeatRequest) -> Result<(), Refusal> {
    let invalid = |reason: &str| Err(Refusal::new(ErrorCode::InvalidRequest, reason));
    let epoch = request.member_epoch;
    let is_empty = |text: &Option<StrBytes>| text.as_ref().is_some_and(|text| text.is_empty());
    if request.member_id.is_empty()
        && (version >= OWN_MEMBER_ID || epoch > JOIN_EPOCH || epoch == LEAVE_EPOCH)
    {
        return invalid("the member id must not be empty");
    }
    if request.group_id.is_empty() {
        return invalid("GroupId can't be empty.");
    }
    if is_empty(&request.instance_id) || is_empty(&request.rack_id) {
        return invalid("the instance id and the rack must not be empty");
    }
    if epoch == JOIN_EPOCH {
        if request.rebalance_timeout_ms == UNCHANGED {
            return invalid("the first request must tell the rebalance timeout");
        }
        if request.topic_partitions.as_ref().is_none_or(|owned| !owned.is_empty()) {
            return invalid("who joins must tell that it has no partitions");
        }
        if request.subscribed_topic_names.is_none() && request.subscribed_topic_regex.is_none() {
            return invalid("who joins must tell its subscription");
        }
    } else if epoch == LEAVE_STATIC_EPOCH && request.instance_id.is_none() {
        return invalid("a static member must tell its instance id");
    } else if epoch < LEAVE_STATIC_EPOCH {
        return invalid("there is no such member epoch");
    }
    check_assignor(api, request.server_assignor.as_ref())
}

fn check_assignor(api: &Api, asked: Option<&StrBytes>) -> Result<(), Refusal> {
    let settings = api.config.latest();
    let offered = settings.broker.group_consumer_assignors.iter().filter_map(|name| assignor(name));
    let offered: Vec<&str> = offered.map(Assignor::name).collect();
    match asked {
        Some(asked) if !offered.contains(&asked.as_str()) => {
            let message = format!("the assignors are {}", offered.join(", "));
            Err(Refusal::new(ErrorCode::UnsupportedAssignor, message))
        }
        _ => Ok(()),
    }
}

fn heartbeat(call: &Call, request: Request<ConsumerGroupHeartbeatRequest>) -> Heartbeat {
    let Request { client_id, body, .. } = request;
    let owned = body.topic_partitions.map(|owned| {
        let topics = owned
            .into_iter()
            .map(|topic| (topic.topic_id, topic.partitions.into_iter().map(PartitionIndex).collect()));
        topics.collect()
    });
    Heartbeat {
        member_id: name(&body.member_id),
        member_epoch: body.member_epoch,
        instance_id: optional_name(body.instance_id.as_ref()),
        rack: optional_name(body.rack_id.as_ref()),
        rebalance_timeout_ms: Some(body.rebalance_timeout_ms).filter(|ms| *ms != UNCHANGED),
        topics: body.subscribed_topic_names.map(|topics| topics.iter().map(|topic| name(&topic.0)).collect()),
        regex: optional_name(body.subscribed_topic_regex.as_ref()),
        assignor: optional_name(body.server_assignor.as_ref()),
        owned,
        client_id: client_id.as_ref().map_or_else(|| "".into(), name),
        client_host: call.client_host(),
        fresh: Uuid::new_v4(),
    }
}

fn accepted(reply: &HeartbeatReply) -> ConsumerGroupHeartbeatResponse {
    let assignment = reply.assignment.as_ref().map(|topics| {
        let topics = topics.iter().map(|(id, partitions)| {
            TopicPartitions::default()
                .with_topic_id(*id)
                .with_partitions(partitions.iter().map(|index| index.0).collect())
        });
        Assignment::default().with_topic_partitions(topics.collect())
    });
    ConsumerGroupHeartbeatResponse::default()
        .with_member_id(Some(text(&reply.member_id)))
        .with_member_epoch(reply.member_epoch)
        .with_heartbeat_interval_ms(reply.heartbeat_interval_ms)
        .with_assignment(assignment)
}

/// A refusal that needs no words.
fn of_code(error: ErrorCode) -> ConsumerGroupHeartbeatResponse {
    ConsumerGroupHeartbeatResponse::default().with_error_code(error.code())
}

fn refused(refusal: &Refusal) -> ConsumerGroupHeartbeatResponse {
    of_code(refusal.code).with_error_message(Some(text(&refusal.message)))
}

fn code(error: &ConsumerHeartbeatError) -> ErrorCode {
    match error {
        ConsumerHeartbeatError::GroupNotFound
        | ConsumerHeartbeatError::OtherType
        | ConsumerHeartbeatError::NotUpgraded(_) => ErrorCode::GroupIdNotFound,
        ConsumerHeartbeatError::Refused(error) => match error {
            HeartbeatError::UnknownMember => ErrorCode::UnknownMemberId,
            HeartbeatError::FencedMemberEpoch => ErrorCode::FencedMemberEpoch,
            HeartbeatError::FencedInstance => ErrorCode::FencedInstanceId,
            HeartbeatError::UnreleasedInstance => ErrorCode::UnreleasedInstanceId,
            HeartbeatError::MaxSizeReached => ErrorCode::GroupMaxSizeReached,
            HeartbeatError::InvalidRegex(_) => ErrorCode::InvalidRegularExpression,
            HeartbeatError::TooLarge => ErrorCode::UnknownServerError,
        },
    }
}
