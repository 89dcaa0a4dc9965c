//! SyncGroup: v0-5
//!
//! Behaviour: a member asks for its assignment; the leader brings those of all members. Answered when the leader has.
//!
//! Version notes: 3 adds static members (KIP-345); 5 protocol type and name, which must be there (KIP-559).

use std::sync::Arc;

use bytes::Bytes;

use super::coordination::{check_group_id, name, optional_name, optional_text, reply};
use super::{Answer, Api, Call, Request};
use crate::coordinator::group::Command;
use crate::coordinator::group::classic::{Sync, SyncError, Synced};
use crate::types::ErrorCode;
use crate::wire::messages::{SyncGroupRequest, SyncGroupResponse};

const PROTOCOL: i16 = 5;

pub async fn handle(api: &Api, _: &Call, request: Request<SyncGroupRequest>) -> Answer<SyncGroupResponse> {
    let (version, request) = (request.version, request.body);
    if let Err(error) = check(version, &request) {
        return Answer::Now(refused(error));
    }
    let group = name(&request.group_id.0);
    // The group keeps them for long, and not the frame in which they came.
    let assignments = request
        .assignments
        .iter()
        .map(|assigned| (name(&assigned.member_id), Bytes::copy_from_slice(&assigned.assignment)));
    let sync = Sync {
        member_id: name(&request.member_id),
        instance_id: optional_name(request.group_instance_id.as_ref()),
        generation: request.generation_id,
        protocol_type: optional_name(request.protocol_type.as_ref()),
        protocol: optional_name(request.protocol_name.as_ref()),
        assignments: assignments.collect(),
    };
    let pending = api.ask_group(&group, Command::Sync { group: Arc::clone(&group), sync }).await;
    Answer::Later(Box::pin(async move {
        Answer::Now(match reply!(pending, Sync) {
            Ok(Ok(synced)) => accepted(version, synced),
            Ok(Err(error)) => {
                if error == SyncError::TooLarge {
                    // Who runs the brokers can give it room.
                    tracing::warn!(
                        "The group {group} with its assignment is larger than max.message.bytes allows"
                    );
                }
                refused(code(error))
            }
            Err(error) => refused(error),
        })
    }))
}

fn check(version: i16, request: &SyncGroupRequest) -> Result<(), ErrorCode> {
    if version >= PROTOCOL && (request.protocol_type.is_none() || request.protocol_name.is_none()) {
        return Err(ErrorCode::InconsistentGroupProtocol);
    }
    check_group_id(&request.group_id)
}

fn accepted(version: i16, synced: Synced) -> SyncGroupResponse {
    let response = SyncGroupResponse::default().with_assignment(synced.assignment);
    if version >= PROTOCOL {
        response
            .with_protocol_type(optional_text(synced.protocol_type.as_ref()))
            .with_protocol_name(optional_text(synced.protocol.as_ref()))
    } else {
        response
    }
}

fn refused(error: ErrorCode) -> SyncGroupResponse {
    SyncGroupResponse::default().with_error_code(error.code())
}

fn code(error: SyncError) -> ErrorCode {
    match error {
        SyncError::UnknownMember => ErrorCode::UnknownMemberId,
        SyncError::FencedInstance => ErrorCode::FencedInstanceId,
        SyncError::IllegalGeneration => ErrorCode::IllegalGeneration,
        SyncError::InconsistentProtocol => ErrorCode::InconsistentGroupProtocol,
        SyncError::RebalanceInProgress => ErrorCode::RebalanceInProgress,
        SyncError::TooLarge => ErrorCode::UnknownServerError,
    }
}
