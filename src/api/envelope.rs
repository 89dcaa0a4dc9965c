//! Envelope: v0 (KIP-590)
//!
//! Behaviour: unwraps a request that a broker forwards for a client, handles it as that client's, and wraps the answer.
//! Only requests that Kafka's brokers forward are taken. Errors of the envelope: PRINCIPAL_DESERIALIZATION_FAILURE,
//! INVALID_REQUEST for a client address or an API that cannot be, UNSUPPORTED_VERSION for a request that cannot be read,
//! NOT_CONTROLLER, in place of the answer, where that says so: the broker then looks for the controller and sends the
//! request again, which its client would not do. Only for other brokers than ours, which carry out what their clients ask
//! by themselves, and wait for another controller within the time that the request has.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Buf, Bytes};

use super::{Answer, Api, Call, Handled, Reply, Request};
use crate::types::{ErrorCode, Principal};
use crate::wire::api::ApiRow;
use crate::wire::frame::{self, DecodeError, RequestFrame};
use crate::wire::messages::default_principal::DefaultPrincipalData;
use crate::wire::messages::envelope_response::EnvelopeResponse;
use crate::wire::messages::{
    AddRaftVoterResponse, AllocateProducerIdsResponse, AlterConfigsResponse,
    AlterPartitionReassignmentsResponse, CreatePartitionsResponse, CreateTopicsResponse,
    DeleteTopicsResponse, DescribeQuorumResponse, ElectLeadersResponse, EnvelopeRequest,
    IncrementalAlterConfigsResponse, ListPartitionReassignmentsResponse, RemoveRaftVoterResponse,
    UnregisterBrokerResponse, UnregisterControllerResponse, UpdateFeaturesResponse,
};

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
    let (asked, version) = (frame.api, frame.version);
    match dispatch(api, &inner, frame).await {
        Handled::Done(reply) => wrap(asked, version, reply).into(),
        Handled::Later(later) => {
            Answer::Later(Box::pin(async move { wrap(asked, version, later.await).into() }))
        }
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

fn wrap(api: &'static ApiRow, version: i16, reply: Reply) -> EnvelopeResponse {
    match reply {
        Reply::Send(rope) => {
            let answer = rope.into_bytes().split_off(FRAME_LENGTH_LEN);
            // What we have encoded can be decoded.
            if says_not_controller(api, version, answer.clone()).unwrap_or(false) {
                return failed(ErrorCode::NotController);
            }
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

/// Whether an answer says, as a whole or of a part of what was asked, that this node is not the active controller.
fn says_not_controller(api: &'static ApiRow, version: i16, answer: Bytes) -> Result<bool, DecodeError> {
    /// The error codes in a response.
    macro_rules! codes {
        ($response:ty, $codes:expr) => {{
            let (_, body) = frame::parse_response(api, version, answer)?;
            let of: fn(&$response) -> Vec<i16> = $codes;
            of(&frame::decode::<$response>(body, version)?)
        }};
    }
    let codes = match api.key {
        19 => codes!(CreateTopicsResponse, |it| it.topics.iter().map(|it| it.error_code).collect()),
        20 => codes!(DeleteTopicsResponse, |it| it.responses.iter().map(|it| it.error_code).collect()),
        33 => codes!(AlterConfigsResponse, |it| it.responses.iter().map(|it| it.error_code).collect()),
        37 => codes!(CreatePartitionsResponse, |it| it.results.iter().map(|it| it.error_code).collect()),
        43 => codes!(ElectLeadersResponse, |it| {
            let topics = it.replica_election_results.iter();
            let parts = topics.flat_map(|topic| &topic.partition_result).map(|it| it.error_code);
            parts.chain([it.error_code]).collect()
        }),
        44 => codes!(IncrementalAlterConfigsResponse, |it| {
            it.responses.iter().map(|it| it.error_code).collect()
        }),
        45 => codes!(AlterPartitionReassignmentsResponse, |it| {
            let parts = it.responses.iter().flat_map(|topic| &topic.partitions).map(|it| it.error_code);
            parts.chain([it.error_code]).collect()
        }),
        46 => codes!(ListPartitionReassignmentsResponse, |it| vec![it.error_code]),
        // It is the leader of the quorum that answers this one, and says so in another way.
        55 => {
            let codes = codes!(DescribeQuorumResponse, |it| {
                let parts = it.topics.iter().flat_map(|topic| &topic.partitions).map(|it| it.error_code);
                parts.chain([it.error_code]).collect()
            });
            return Ok(codes.contains(&ErrorCode::NotLeaderOrFollower.code()));
        }
        57 => codes!(UpdateFeaturesResponse, |it| {
            it.results.iter().map(|it| it.error_code).chain([it.error_code]).collect()
        }),
        64 => codes!(UnregisterBrokerResponse, |it| vec![it.error_code]),
        67 => codes!(AllocateProducerIdsResponse, |it| vec![it.error_code]),
        80 => codes!(AddRaftVoterResponse, |it| vec![it.error_code]),
        81 => codes!(RemoveRaftVoterResponse, |it| vec![it.error_code]),
        94 => codes!(UnregisterControllerResponse, |it| vec![it.error_code]),
        _ => Vec::new(),
    };
    Ok(codes.contains(&ErrorCode::NotController.code()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::messages::create_topics_response::CreatableTopicResult;
    use crate::wire::messages::describe_quorum_response::{PartitionData, TopicData};
    use kafka_protocol::protocol::Encodable;

    /// An answer in its envelope.
    fn wrapped<R: Encodable + 'static>(key: i16, version: i16, response: &R) -> EnvelopeResponse {
        let api = ApiRow::of(key).unwrap();
        wrap(api, version, Reply::Send(frame::encode_response(api, version, 5, response).unwrap()))
    }

    fn is_not_controller(envelope: &EnvelopeResponse) -> bool {
        let is_said = envelope.error_code == ErrorCode::NotController.code();
        assert_eq!(envelope.response_data.is_none(), is_said, "either an error or an answer");
        is_said
    }

    #[test]
    fn an_answer_that_names_another_controller_is_the_envelopes_error() {
        let created = |codes: &[ErrorCode]| {
            let topic = |code: &ErrorCode| CreatableTopicResult::default().with_error_code(code.code());
            CreateTopicsResponse::default().with_topics(codes.iter().map(topic).collect())
        };
        let (fine, moved) = (ErrorCode::None, ErrorCode::NotController);
        for version in [4, 7] {
            assert!(is_not_controller(&wrapped(19, version, &created(&[fine, moved]))));
            assert!(!is_not_controller(&wrapped(19, version, &created(&[fine, ErrorCode::PolicyViolation]))));
        }
        let unregistered = UnregisterBrokerResponse::default().with_error_code(moved.code());
        assert!(is_not_controller(&wrapped(64, 0, &unregistered)));
    }

    #[test]
    fn of_the_quorum_it_is_not_leader() {
        let told = |code: ErrorCode| {
            let partition = PartitionData::default().with_error_code(code.code());
            let topic = TopicData::default().with_partitions(vec![partition]);
            DescribeQuorumResponse::default().with_topics(vec![topic])
        };
        assert!(is_not_controller(&wrapped(55, 1, &told(ErrorCode::NotLeaderOrFollower))));
        assert!(!is_not_controller(&wrapped(55, 1, &told(ErrorCode::None))));
    }

    #[test]
    fn every_api_that_is_forwarded_and_served_is_looked_into() {
        for key in FORWARDABLE {
            let Some(api) = ApiRow::of(key) else { continue };
            let looked = says_not_controller(api, api.max, Bytes::new());
            assert!(looked.is_err(), "{} is passed on unread", api.name);
        }
    }
}
