//! FindCoordinator: v0-6
//!
//! Behaviour: the broker that leads the partition of the internal topic that a key belongs to. An internal topic that is missing
//! is created, with the settings that the broker has for it, which is waited for a little; until it is there and has a leader that
//! the client can reach, the answer is COORDINATOR_NOT_AVAILABLE, and the client asks again. A key type that the version does not have is INVALID_REQUEST.
//!
//! Version notes: 1 adds the key type (0 group, 1 transaction); 4 asks for several keys at once; 6 adds share groups (2).
//!
//! Not served here: coordinators of share groups, which are INVALID_REQUEST, as from a Kafka that has none: no API of share groups is
//! announced, and nobody is to ask again and again.

use std::sync::Arc;

use super::auto_topics;
use super::topic_view::text;
use super::{Api, Call, Request};
use crate::broker::coordinators::partition_of;
use crate::metadata::brokers::Endpoint;
use crate::metadata::topics::name::{CONSUMER_OFFSETS, TRANSACTION_STATE};
use crate::types::{ErrorCode, NodeId};
use crate::wire::messages::find_coordinator_response::{Coordinator, FindCoordinatorResponse};
use crate::wire::messages::{FindCoordinatorRequest, StrBytes};

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

const KEY_TYPE: i16 = 1;
const SEVERAL_KEYS: i16 = 4;
const SHARE_GROUPS: i16 = 6;

/// Where a coordinator is; what stands in its place otherwise has a code.
type Found = Result<(NodeId, Endpoint), (ErrorCode, &'static str)>;

pub async fn handle(
    api: &Arc<Api>,
    call: &Call,
    request: Request<FindCoordinatorRequest>,
) -> FindCoordinatorResponse {
    let (version, request) = (request.version, request.body);
    let asks = version < SEVERAL_KEYS || !request.coordinator_keys.is_empty();
    if let Some(topic) = topic_of(request.key_type).filter(|_| asks) {
        let image = api.metadata.image();
        if image.topics.by_name(topic).is_none() {
            // Requests of others, the quorum's own among them, must not wait for this.
            call.only_waits();
            auto_topics::create_and_wait(api, topic).await;
        }
    }
    let find = |key: &StrBytes| find(api, &call.listener.name, version, request.key_type, key.as_str());
    if version < SEVERAL_KEYS {
        return of_one(version, find(&request.key));
    }
    let coordinators = request.coordinator_keys.iter().map(|key| {
        let shown = Coordinator::default().with_key(key.clone());
        match find(key) {
            Ok((node, endpoint)) => shown
                .with_node_id(node.0.into())
                .with_host(text(&endpoint.host))
                .with_port(i32::from(endpoint.port)),
            Err((error, message)) => shown
                .with_error_code(error.code())
                .with_error_message(Some(StrBytes::from_static_str(message)))
                .with_node_id(NodeId::NONE.0.into())
                .with_port(-1),
        }
    });
    FindCoordinatorResponse::default().with_coordinators(coordinators.collect())
}

fn of_one(version: i16, found: Found) -> FindCoordinatorResponse {
    match found {
        Ok((node, endpoint)) => FindCoordinatorResponse::default()
            .with_node_id(node.0.into())
            .with_host(text(&endpoint.host))
            .with_port(i32::from(endpoint.port)),
        Err((error, message)) => {
            let response = FindCoordinatorResponse::default()
                .with_error_code(error.code())
                .with_node_id(NodeId::NONE.0.into())
                .with_port(-1);
            if version >= KEY_TYPE {
                response.with_error_message(Some(StrBytes::from_static_str(message)))
            } else {
                response
            }
        }
    }
}

/// The internal topic for a type of keys that is served.
fn topic_of(key_type: i8) -> Option<&'static str> {
    match key_type {
        GROUP => Some(CONSUMER_OFFSETS),
        TRANSACTION => Some(TRANSACTION_STATE),
        _ => None,
    }
}

fn find(api: &Arc<Api>, listener: &str, version: i16, key_type: i8, key: &str) -> Found {
    let not_available = |reason| Err((ErrorCode::CoordinatorNotAvailable, reason));
    let Some(topic) = topic_of(key_type) else {
        return match key_type {
            SHARE if version < SHARE_GROUPS => {
                Err((ErrorCode::InvalidRequest, "the version has no share groups"))
            }
            SHARE => Err((ErrorCode::InvalidRequest, "share groups are not served yet")),
            _ => Err((ErrorCode::InvalidRequest, "there is no such type of key")),
        };
    };
    let image = api.metadata.image();
    let Some(found) = image.topics.by_name(topic) else {
        return not_available("the internal topic is being created");
    };
    let partition = found.partition(partition_of(key, found.partition_count()));
    let leader = partition.map_or(NodeId::NONE, |partition| partition.leader);
    let broker = image.brokers.get(leader).filter(|broker| !broker.fenced);
    match broker.and_then(|broker| broker.endpoint(listener)) {
        Some(endpoint) => Ok((leader, endpoint.clone())),
        None => not_available("the coordinator's partition has no leader that can be reached here"),
    }
}
