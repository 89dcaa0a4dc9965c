//! DescribeGroups: v0-6
//!
//! Behaviour: groups of the classic protocol with their members; metadata and assignments while the group is stable. Who asks
//! for another kind of group is told that there is none of this kind.
//!
//! Version notes: 3 tells what the client may do with the group (KIP-430); 4 adds static members (KIP-345); 6 answers
//! GROUP_ID_NOT_FOUND where before the group was shown as dead (KIP-1043).

use std::collections::HashMap;

use super::coordination::{optional_text, reply};
use super::topic_view::text;
use super::{Answer, Api, Call, Request, authorized};
use crate::coordinator::group::classic::{ClassicDescription, DescribedMember};
use crate::coordinator::group::reply::DescribeError;
use crate::coordinator::group::{Command, Name};
use crate::types::ErrorCode;
use crate::wire::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use crate::wire::messages::{DescribeGroupsRequest, DescribeGroupsResponse, GroupId, StrBytes};

const STATIC_MEMBERS: i16 = 4;
const NOT_FOUND: i16 = 6;

/// Kafka's name for the state of a group that does not exist.
const DEAD: &str = "Dead";

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<DescribeGroupsRequest>,
) -> Answer<DescribeGroupsResponse> {
    let (version, request) = (request.version, request.body);
    let wants_operations = request.include_authorized_operations;
    let mut parts = Vec::new();
    for (partition, groups) in api.by_partition(request.groups.iter().map(|group| group.as_str())) {
        let pending = api.broker().groups.ask(partition, Command::DescribeGroups(groups.clone())).await;
        parts.push((groups, pending));
    }
    Answer::Later(Box::pin(async move {
        let mut shown: HashMap<Name, DescribedGroup> = HashMap::new();
        for (groups, pending) in parts {
            match reply!(pending, DescribeGroups) {
                Ok(described) => shown.extend(
                    described
                        .into_iter()
                        .map(|(group, described)| (Name::clone(&group), show(version, &group, described))),
                ),
                Err(error) => {
                    let refused = DescribedGroup::default().with_error_code(error.code());
                    shown.extend(groups.into_iter().map(|group| (group, refused.clone())));
                }
            }
        }
        let groups = request.groups.into_iter().filter_map(|group| {
            let shown = shown.get(group.as_str())?.clone();
            let tells_operations = wants_operations && shown.error_code == ErrorCode::None.code();
            let operations = if tells_operations { authorized::on_group() } else { authorized::NOT_ASKED };
            Some(shown.with_group_id(group).with_authorized_operations(operations))
        });
        Answer::Now(DescribeGroupsResponse::default().with_groups(groups.collect()))
    }))
}

fn show(version: i16, group: &Name, described: Result<ClassicDescription, DescribeError>) -> DescribedGroup {
    let shown = DescribedGroup::default().with_group_id(GroupId(text(group)));
    match described {
        Ok(described) => {
            let members = described.members.into_iter().map(|member| show_member(version, member));
            shown
                .with_group_state(text(described.state.name()))
                .with_protocol_type(text(&described.protocol_type))
                .with_protocol_data(optional_text(described.protocol.as_ref()).unwrap_or_default())
                .with_members(members.collect())
        }
        Err(DescribeError::GroupNotFound | DescribeError::OtherType) if version < NOT_FOUND => {
            shown.with_group_state(StrBytes::from_static_str(DEAD))
        }
        Err(error) => {
            let message = match error {
                DescribeError::GroupNotFound => format!("Group {group} not found."),
                DescribeError::OtherType => format!("Group {group} is not a classic group."),
            };
            shown
                .with_group_state(StrBytes::from_static_str(DEAD))
                .with_error_code(ErrorCode::GroupIdNotFound.code())
                .with_error_message(Some(text(&message)))
        }
    }
}

fn show_member(version: i16, member: DescribedMember) -> DescribedGroupMember {
    let shown = DescribedGroupMember::default()
        .with_member_id(text(&member.member_id))
        .with_client_id(text(&member.client_id))
        .with_client_host(text(&member.client_host))
        .with_member_metadata(member.metadata)
        .with_member_assignment(member.assignment);
    if version >= STATIC_MEMBERS {
        shown.with_group_instance_id(optional_text(member.instance_id.as_ref()))
    } else {
        shown
    }
}
