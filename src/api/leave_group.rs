//! LeaveGroup: v0-5
//!
//! Behaviour: members leave a group at once; static ones also on behalf of an operator, by their instance alone.
//!
//! Version notes: 3 lets several leave, each with a code of its own (KIP-345), before it the one member's code is that of the
//! whole; 5 adds reasons.

use std::sync::Arc;

use super::coordination::{check_group_id, member_code, name, optional_name, reply};
use super::{Answer, Api, Call, Request};
use crate::coordinator::group::Command;
use crate::coordinator::group::classic::Leaving;
use crate::types::ErrorCode;
use crate::wire::messages::leave_group_request::MemberIdentity;
use crate::wire::messages::leave_group_response::MemberResponse;
use crate::wire::messages::{LeaveGroupRequest, LeaveGroupResponse};

const SEVERAL: i16 = 3;

pub async fn handle(api: &Api, _: &Call, request: Request<LeaveGroupRequest>) -> Answer<LeaveGroupResponse> {
    let (version, request) = (request.version, request.body);
    let refused = |error: ErrorCode| LeaveGroupResponse::default().with_error_code(error.code());
    if let Err(error) = check_group_id(&request.group_id) {
        return Answer::Now(refused(error));
    }
    let group = name(&request.group_id.0);
    let members = if version >= SEVERAL {
        request.members
    } else {
        vec![MemberIdentity::default().with_member_id(request.member_id)]
    };
    let leaving = members.iter().map(|member| Leaving {
        member_id: name(&member.member_id),
        instance_id: optional_name(member.group_instance_id.as_ref()),
    });
    let command = Command::Leave { group: Arc::clone(&group), leaving: leaving.collect() };
    let pending = api.ask_group(&group, command).await;
    Answer::Later(Box::pin(async move {
        let results = match reply!(pending, Leave) {
            Ok(results) => results,
            Err(error) => return Answer::Now(refused(error)),
        };
        let codes = results.into_iter().map(|result| result.map_or_else(member_code, |()| ErrorCode::None));
        let mut told = members.into_iter().zip(codes);
        if version < SEVERAL {
            return Answer::Now(refused(told.next().map_or(ErrorCode::None, |(_, code)| code)));
        }
        let told = told.map(|(member, code)| {
            MemberResponse::default()
                .with_member_id(member.member_id)
                .with_group_instance_id(member.group_instance_id)
                .with_error_code(code.code())
        });
        Answer::Now(LeaveGroupResponse::default().with_members(told.collect()))
    }))
}
