//! ListGroups: v0-5
//!
//! Behaviour: the groups whose coordinator is this broker; a client asks all brokers. One coordinator that still reads its log
//! has the whole request tried again.
//!
//! Version notes: 4 adds states and a filter by them (KIP-518); 5 types and a filter by them (KIP-848).

use super::coordination::reply;
use super::topic_view::text;
use super::{Answer, Api, Call, Request};
use crate::coordinator::group::Command;
use crate::coordinator::group::command::Filter;
use crate::types::ErrorCode;
use crate::wire::messages::list_groups_response::ListedGroup;
use crate::wire::messages::{GroupId, ListGroupsRequest, ListGroupsResponse, StrBytes};

const STATES: i16 = 4;
const TYPES: i16 = 5;

pub async fn handle(api: &Api, _: &Call, request: Request<ListGroupsRequest>) -> Answer<ListGroupsResponse> {
    let (version, request) = (request.version, request.body);
    let strings = |texts: &[StrBytes]| texts.iter().map(ToString::to_string).collect();
    let filter = Filter { states: strings(&request.states_filter), types: strings(&request.types_filter) };
    let coordinators = &api.broker().groups;
    let mut pending = Vec::new();
    for partition in coordinators.partitions() {
        pending.push(coordinators.ask(partition, Command::ListGroups(filter.clone())).await);
    }
    Answer::Later(Box::pin(async move {
        let mut groups = Vec::new();
        for pending in pending {
            match reply!(pending, ListGroups) {
                Ok(listed) => groups.extend(listed),
                // It has moved, and its groups are listed where it is now.
                Err(ErrorCode::NotCoordinator) => {}
                Err(error) => {
                    return Answer::Now(ListGroupsResponse::default().with_error_code(error.code()));
                }
            }
        }
        let groups = groups.iter().map(|group| {
            let shown = ListedGroup::default()
                .with_group_id(GroupId(text(&group.id)))
                .with_protocol_type(text(&group.protocol_type));
            let shown = if version >= STATES { shown.with_group_state(text(group.state)) } else { shown };
            if version >= TYPES { shown.with_group_type(text(group.kind.name())) } else { shown }
        });
        Answer::Now(ListGroupsResponse::default().with_groups(groups.collect()))
    }))
}
