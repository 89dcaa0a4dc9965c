//! FindCoordinator: v0-6
//!
//! Behaviour: the coordinators live on the partitions of Kafka's internal topics, which this version of Floodmark does not
//! host yet, so every key is answered with COORDINATOR_NOT_AVAILABLE, which clients retry. A key type that the version
//! does not have is INVALID_REQUEST.
//!
//! Version notes: 1 adds the key type (0 group, 1 transaction); 4 asks for several keys at once; 6 adds share groups (2).

use super::topic_view::text;
use super::{Api, Call, Request};
use crate::types::ErrorCode;
use crate::wire::messages::FindCoordinatorRequest;
use crate::wire::messages::find_coordinator_response::{Coordinator, FindCoordinatorResponse};

const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;
const NO_NODE: i32 = -1;

pub async fn handle(_: &Api, _: &Call, request: Request<FindCoordinatorRequest>) -> FindCoordinatorResponse {
    let (version, request) = (request.version, request.body);
    let (error, message) = match request.key_type {
        0..=TRANSACTION => (ErrorCode::CoordinatorNotAvailable, "coordinators are not served yet"),
        SHARE if version >= 6 => (ErrorCode::CoordinatorNotAvailable, "coordinators are not served yet"),
        _ => (ErrorCode::InvalidRequest, "there is no such type of key"),
    };
    if version < 4 {
        let response = FindCoordinatorResponse::default()
            .with_error_code(error.code())
            .with_node_id(NO_NODE.into())
            .with_port(NO_NODE);
        return if version >= 1 { response.with_error_message(Some(text(message))) } else { response };
    }
    let coordinators = request.coordinator_keys.into_iter().map(|key| {
        Coordinator::default()
            .with_key(key)
            .with_error_code(error.code())
            .with_error_message(Some(text(message)))
            .with_node_id(NO_NODE.into())
            .with_port(NO_NODE)
    });
    FindCoordinatorResponse::default().with_coordinators(coordinators.collect())
}
