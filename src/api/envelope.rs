//! Envelope: v0 (KIP-590)
//!
//! Behaviour: unwraps a request that a broker forwards for a client, handles it as that client's, and wraps the answer.
//! Only requests that Kafka's brokers forward are taken. Errors of the envelope: PRINCIPAL_DESERIALIZATION_FAILURE,
//! INVALID_REQUEST for a client address or an API that cannot be, UNSUPPORTED_VERSION for a request that cannot be read.
//! Only for other brokers than ours, which carry out what their clients ask by themselves.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Buf, Bytes};

use super::{Answer, Api, Call, Handled, Reply, Request};
use crate::types::{ErrorCode, Principal};
use crate::wire::frame::{self, RequestFrame};
use crate::wire::messages::EnvelopeRequest;
use crate::wire::messages::default_principal::DefaultPrincipalData;
use crate::wire::messages::envelope_response::EnvelopeResponse;

/// The keys of what may be forwarded: changes of topics (19, 20, 37), ACLs (30, 31), configurations (33, 44), delegation
/// tokens (38 to 40), quotas (49) and SCRAM credentials (51), elections (43), reassignments (45, 46), the quorum (55, 80,
/// 81, 94), features (57), registrations (64) and producer ids (67).
const FORWARDABLE: [i16; 22] =
    [19, 20, 30, 31, 33, 37, 38, 39, 40, 43, 44, 45, 46, 49, 51, 55, 57, 64, 67, 80, 81, 94];

/// The length that precedes a frame on a connection, which the answer in an envelope does without.
const FRAME_LENGTH_LEN: usize = 4;

pub async fn handle(
    api: &Arc<Api>,
    call: &Call,
    request: Request<EnvelopeRequest>,
) -> Answer<EnvelopeResponse> {
    let (principal, frame) = match unwrap(request.body) {
        Ok(unwrapped) => unwrapped,
        Err(error) => return failed(error).into(),
    };
    if !call.serves(frame.api.listeners) {
        return failed(ErrorCode::InvalidRequest).into();
    }
    let inner = Call::of(Arc::clone(&call.listener), Arc::clone(&call.connection), principal);
    match dispatch(api, &inner, frame).await {
        Handled::Done(reply) => wrap(reply).into(),
        Handled::Later(later) => Answer::Later(Box::pin(async move { wrap(later.await).into() })),
    }
}

/// Without a name for the future's type, as one of its kind may be within it.
fn dispatch<'a>(
    api: &'a Arc<Api>,
    call: &'a Call,
    frame: RequestFrame,
) -> Pin<Box<dyn Future<Output = Handled> + Send + 'a>> {
    Box::pin(api.dispatch(call, frame))
}

fn unwrap(envelope: EnvelopeRequest) -> Result<(Principal, RequestFrame), ErrorCode> {
    let principal = principal(envelope.request_principal.unwrap_or_default());
    let principal = principal.ok_or(ErrorCode::PrincipalDeserializationFailure)?;
    client_address(&envelope.client_host_address).ok_or(ErrorCode::InvalidRequest)?;
    let frame = frame::parse_request(envelope.request_data).map_err(|_| ErrorCode::UnsupportedVersion)?;
    if FORWARDABLE.contains(&frame.api.key) { Ok((principal, frame)) } else { Err(ErrorCode::InvalidRequest) }
}

fn principal(mut bytes: Bytes) -> Option<Principal> {
    let version = bytes.try_get_i16().ok().filter(|version| *version == 0)?;
    let data = frame::decode::<DefaultPrincipalData>(bytes, version).ok()?;
    Some(Principal {
        kind: data.principal_type.as_str().into(),
        name: data.name.as_str().into(),
        token_authenticated: data.token_authenticated,
    })
}

fn client_address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

fn wrap(reply: Reply) -> EnvelopeResponse {
    match reply {
        Reply::Send(rope) => {
            let answer = rope.into_bytes().split_off(FRAME_LENGTH_LEN);
            EnvelopeResponse::default().with_response_data(Some(answer))
        }
        // Each API that is forwarded answers.
        Reply::Nothing => failed(ErrorCode::UnknownServerError),
        Reply::Close(reason) => {
            tracing::info!(reason, "a forwarded request cannot be served");
            failed(ErrorCode::UnsupportedVersion)
        }
    }
}

fn failed(error: ErrorCode) -> EnvelopeResponse {
    EnvelopeResponse::default().with_response_data(None).with_error_code(error.code())
}
