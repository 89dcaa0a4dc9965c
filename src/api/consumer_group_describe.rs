//! ConsumerGroupDescribe: v0-1 (KIP-848)
//!
//! Behaviour: groups of the consumer protocol with their epochs, and their members with what they have and what they are to have.
//! Other groups are GROUP_ID_NOT_FOUND here; UNSUPPORTED_VERSION where the protocol is off.
//!
//! Version notes: 1 tells whether a member speaks the classic protocol (KIP-1099).

use std::collections::HashMap;

use super::coordination::{check_consumer_protocol, check_group_id, optional_text, reply};
use super::topic_view::{text, topic_name};
use super::{Answer, Api, Call, Request, authorized};
use crate::coordinator::group::consumer::{Described, DescribedMember, DescribedTopic};
use crate::coordinator::group::reply::DescribeError;
use crate::coordinator::group::{Command, Name};
use crate::types::ErrorCode;
use crate::wire::messages::consumer_group_describe_response::{
    Assignment, DescribedGroup, Member, TopicPartitions,
};
use crate::wire::messages::{ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, GroupId};

const MEMBER_TYPES: i16 = 1;
const CLASSIC: i8 = 0;
const CONSUMER: i8 = 1;

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<ConsumerGroupDescribeRequest>,
) -> Answer<ConsumerGroupDescribeResponse> {
    let (version, request) = (request.version, request.body);
    if let Err(error) = check_consumer_protocol(api) {
        let refused = request.group_ids.into_iter().map(|group| refused(group, error));
        return Answer::Now(ConsumerGroupDescribeResponse::default().with_groups(refused.collect()));
    }
    let wants_operations = request.include_authorized_operations;
    let named = request.group_ids.iter().filter(|group| !group.is_empty());
    let mut parts = Vec::new();
    for (partition, groups) in api.by_partition(named.map(|group| group.as_str())) {
        let command = Command::DescribeConsumerGroups(groups.clone());
        parts.push((groups, api.broker().groups.ask(partition, command).await));
    }
    Answer::Later(Box::pin(async move {
        let mut shown: HashMap<Name, DescribedGroup> = HashMap::new();
        for (groups, pending) in parts {
            match reply!(pending, DescribeConsumerGroups) {
                Ok(described) => shown.extend(described.into_iter().map(|(group, described)| {
                    let shown = show(version, &group, described);
                    (group, shown)
                })),
                Err(error) => {
                    let refused = DescribedGroup::default().with_error_code(error.code());
                    shown.extend(groups.into_iter().map(|group| (group, refused.clone())));
                }
            }
        }
        let groups = request.group_ids.into_iter().map(|group| {
            if let Err(error) = check_group_id(&group) {
                return refused(group, error);
            }
            let Some(shown) = shown.get(group.as_str()).cloned() else {
                return refused(group, ErrorCode::UnknownServerError);
            };
            let tells_operations = wants_operations && shown.error_code == ErrorCode::None.code();
            let operations = if tells_operations { authorized::on_group() } else { authorized::NOT_ASKED };
            shown.with_group_id(group).with_authorized_operations(operations)
        });
        Answer::Now(ConsumerGroupDescribeResponse::default().with_groups(groups.collect()))
    }))
}

fn refused(group: GroupId, error: ErrorCode) -> DescribedGroup {
    DescribedGroup::default().with_group_id(group).with_error_code(error.code())
}

fn show(version: i16, group: &Name, described: Result<Described, DescribeError>) -> DescribedGroup {
    match described {
        Ok(described) => {
            let members = described.members.iter().map(|member| show_member(version, member));
            DescribedGroup::default()
                .with_group_state(text(described.state.name()))
                .with_group_epoch(described.epoch)
                .with_assignment_epoch(described.target_epoch)
                .with_assignor_name(text(&described.assignor))
                .with_members(members.collect())
        }
        Err(error) => {
            let message = match error {
                DescribeError::GroupNotFound => format!("Group {group} not found."),
                DescribeError::OtherType => format!("Group {group} is not a consumer group."),
            };
            DescribedGroup::default()
                .with_error_code(ErrorCode::GroupIdNotFound.code())
                .with_error_message(Some(text(&message)))
        }
    }
}

fn show_member(version: i16, member: &DescribedMember) -> Member {
    let shown = Member::default()
        .with_member_id(text(&member.member_id))
        .with_instance_id(optional_text(member.instance_id.as_ref()))
        .with_rack_id(optional_text(member.rack.as_ref()))
        .with_member_epoch(member.member_epoch)
        .with_client_id(text(&member.client_id))
        .with_client_host(text(&member.client_host))
        .with_subscribed_topic_names(member.topics.iter().map(|topic| topic_name(topic)).collect())
        .with_subscribed_topic_regex(optional_text(member.regex.as_ref()))
        .with_assignment(assignment(&member.assigned))
        .with_target_assignment(assignment(&member.target));
    if version >= MEMBER_TYPES {
        shown.with_member_type(if member.is_classic { CLASSIC } else { CONSUMER })
    } else {
        shown
    }
}

fn assignment(topics: &[DescribedTopic]) -> Assignment {
    let topics = topics.iter().map(|topic| {
        TopicPartitions::default()
            .with_topic_id(topic.id)
            .with_topic_name(topic_name(&topic.name))
            .with_partitions(topic.partitions.iter().map(|index| index.0).collect())
    });
    Assignment::default().with_topic_partitions(topics.collect())
}
