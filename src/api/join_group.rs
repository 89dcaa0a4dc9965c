//! JoinGroup: v0-9
//!
//! Behaviour: a client becomes a member of a group of the classic protocol, or joins its rebalance; answered when the rebalance
//! has ended. The leader is told all members with their metadata.
//!
//! Version notes: 1 adds the rebalance timeout, before it is the session timeout; 4 sends a client without a member id back with
//! one (KIP-394); 5 static members (KIP-345); 7 the protocol type, and a protocol that may be null; 8 the reason; 9 a leader
//! that need not assign (KIP-814).

use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::coordination::{check_group_id, name, optional_name, optional_text, reply};
use super::topic_view::text;
use super::{Answer, Api, Call, Request};
use crate::coordinator::group::Command;
use crate::coordinator::group::classic::{Join, JoinError, JoinRefused, Joined};
use crate::types::ErrorCode;
use crate::wire::messages::join_group_response::JoinGroupResponseMember;
use crate::wire::messages::{JoinGroupRequest, JoinGroupResponse, StrBytes};

const REBALANCE_TIMEOUT: i16 = 1;
const KNOWN_MEMBER_ID: i16 = 4;
const STATIC_MEMBERS: i16 = 5;
const PROTOCOL_TYPE: i16 = 7;
const SKIP_ASSIGNMENT: i16 = 9;

const NO_GENERATION: i32 = -1;

pub async fn handle(
    api: &Arc<Api>,
    call: &Call,
    request: Request<JoinGroupRequest>,
) -> Answer<JoinGroupResponse> {
    let version = request.version;
    let member_id = request.body.member_id.clone();
    if let Err(error) = check(api, &request.body) {
        return Answer::Now(refused(version, member_id, error));
    }
    let group = name(&request.body.group_id.0);
    let join = Box::new(join(call, request));
    let pending = api.ask_group(&group, Command::Join { group: Arc::clone(&group), join }).await;
    Answer::Later(Box::pin(async move {
        Answer::Now(match reply!(pending, Join) {
            Ok(Ok(joined)) => accepted(version, &joined),
            Ok(Err(JoinRefused { member_id, error })) => refused(version, text(&member_id), code(error)),
            Err(error) => refused(version, member_id, error),
        })
    }))
}

fn check(api: &Api, request: &JoinGroupRequest) -> Result<(), ErrorCode> {
    check_group_id(&request.group_id)?;
    let settings = &api.config.latest().broker;
    let allowed = settings.group_min_session_timeout_ms..=settings.group_max_session_timeout_ms;
    if allowed.contains(&request.session_timeout_ms) { Ok(()) } else { Err(ErrorCode::InvalidSessionTimeout) }
}

fn join(call: &Call, request: Request<JoinGroupRequest>) -> Join {
    let Request { version, client_id, body } = request;
    let rebalance_timeout_ms =
        if version >= REBALANCE_TIMEOUT { body.rebalance_timeout_ms } else { body.session_timeout_ms };
    let protocols = body.protocols.iter();
    Join {
        member_id: name(&body.member_id),
        instance_id: optional_name(body.group_instance_id.as_ref()),
        client_id: client_id.as_ref().map_or_else(|| "".into(), name),
        client_host: call.client_host(),
        session_timeout_ms: body.session_timeout_ms,
        rebalance_timeout_ms,
        protocol_type: name(&body.protocol_type),
        // The group keeps them for long, and not the frame in which they came.
        protocols: protocols
            .map(|protocol| (name(&protocol.name), Bytes::copy_from_slice(&protocol.metadata)))
            .collect(),
        requires_known_id: version >= KNOWN_MEMBER_ID,
        can_skip_assignment: version >= SKIP_ASSIGNMENT,
        fresh: Uuid::new_v4(),
    }
}

fn accepted(version: i16, joined: &Joined) -> JoinGroupResponse {
    let members = joined.members.iter().map(|member| {
        let shown = JoinGroupResponseMember::default()
            .with_member_id(text(&member.member_id))
            .with_metadata(member.metadata.clone());
        if version >= STATIC_MEMBERS {
            shown.with_group_instance_id(optional_text(member.instance_id.as_ref()))
        } else {
            shown
        }
    });
    let response = JoinGroupResponse::default()
        .with_generation_id(joined.generation)
        .with_protocol_name(protocol_name(version, optional_text(joined.protocol.as_ref())))
        .with_leader(optional_text(joined.leader.as_ref()).unwrap_or_default())
        .with_member_id(text(&joined.member_id))
        .with_members(members.collect());
    let response = if version >= PROTOCOL_TYPE {
        response.with_protocol_type(optional_text(joined.protocol_type.as_ref()))
    } else {
        response
    };
    if version >= SKIP_ASSIGNMENT { response.with_skip_assignment(joined.skip_assignment) } else { response }
}

fn refused(version: i16, member_id: StrBytes, error: ErrorCode) -> JoinGroupResponse {
    JoinGroupResponse::default()
        .with_error_code(error.code())
        .with_generation_id(NO_GENERATION)
        .with_protocol_name(protocol_name(version, None))
        .with_member_id(member_id)
}

/// Before it may be null, no protocol is an empty one; after that never.
fn protocol_name(version: i16, protocol: Option<StrBytes>) -> Option<StrBytes> {
    let protocol = protocol.filter(|protocol| !protocol.is_empty());
    if version >= PROTOCOL_TYPE { protocol } else { Some(protocol.unwrap_or_default()) }
}

fn code(error: JoinError) -> ErrorCode {
    match error {
        JoinError::UnknownMember => ErrorCode::UnknownMemberId,
        JoinError::FencedInstance => ErrorCode::FencedInstanceId,
        JoinError::InconsistentProtocol => ErrorCode::InconsistentGroupProtocol,
        JoinError::MemberIdRequired => ErrorCode::MemberIdRequired,
        JoinError::MaxSizeReached => ErrorCode::GroupMaxSizeReached,
        JoinError::RebalanceInProgress => ErrorCode::RebalanceInProgress,
        JoinError::TooLarge => ErrorCode::UnknownServerError,
    }
}
