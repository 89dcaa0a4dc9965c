//! Heartbeat: v0-4
//!
//! Behaviour: a member of a group of the classic protocol shows that it lives, and hears of rebalances. While the coordinator
//! reads its log every heartbeat is good: nobody's session runs then.
//!
//! Version notes: 3 adds static members (KIP-345).

use std::sync::Arc;

use super::coordination::{check_group_id, member_code, name, optional_name, reply};
use super::{Answer, Api, Call, Request};
use crate::coordinator::group::Command;
use crate::coordinator::group::classic::HeartbeatError;
use crate::coordinator::group::command::Identity;
use crate::types::ErrorCode;
use crate::wire::messages::{HeartbeatRequest, HeartbeatResponse};

pub async fn handle(api: &Api, _: &Call, request: Request<HeartbeatRequest>) -> Answer<HeartbeatResponse> {
    let request = request.body;
    let answer = |error: ErrorCode| Answer::Now(HeartbeatResponse::default().with_error_code(error.code()));
    if let Err(error) = check_group_id(&request.group_id) {
        return answer(error);
    }
    let group = name(&request.group_id.0);
    let member = Identity {
        member_id: name(&request.member_id),
        instance_id: optional_name(request.group_instance_id.as_ref()),
        generation: Some(request.generation_id),
    };
    let pending = api.ask_group(&group, Command::Heartbeat { group: Arc::clone(&group), member }).await;
    Answer::Later(Box::pin(async move {
        answer(match reply!(pending, Heartbeat) {
            Ok(Ok(())) | Err(ErrorCode::CoordinatorLoadInProgress) => ErrorCode::None,
            Ok(Err(error)) => code(error),
            Err(error) => error,
        })
    }))
}

fn code(error: HeartbeatError) -> ErrorCode {
    match error {
        HeartbeatError::Member(error) => member_code(error),
        HeartbeatError::IllegalGeneration => ErrorCode::IllegalGeneration,
        HeartbeatError::RebalanceInProgress => ErrorCode::RebalanceInProgress,
    }
}
