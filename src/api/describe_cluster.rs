//! DescribeCluster: v0-2 (KIP-700)
//!
//! Behaviour: the nodes behind the kind of listener that was asked: brokers (endpoint type 1) or controllers (2).
//!
//! Version notes: 1 adds the endpoint type and its errors, which version 0 tells as INVALID_REQUEST; 2 lists fenced
//! brokers on request.

use super::topic_view::text;
use super::{Api, Call, ListenerRole, Request, authorized};
use crate::types::ErrorCode;
use crate::wire::messages::DescribeClusterRequest;
use crate::wire::messages::describe_cluster_response::{DescribeClusterBroker, DescribeClusterResponse};
use crate::wire::messages::metadata::ControllerEndpoint;

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub async fn handle(
    api: &Api,
    call: &Call,
    request: Request<DescribeClusterRequest>,
) -> DescribeClusterResponse {
    let (version, request) = (request.version, request.body);
    let (ours, other) = match call.listener.role {
        ListenerRole::Broker => (BROKERS, CONTROLLERS),
        ListenerRole::Controller => (CONTROLLERS, BROKERS),
    };
    if request.endpoint_type != ours {
        let (error, message) = if request.endpoint_type == other {
            (ErrorCode::MismatchedEndpointType, mismatch(ours, other))
        } else {
            let message = format!("there is no endpoint type {}", request.endpoint_type);
            (ErrorCode::UnsupportedEndpointType, message)
        };
        let error = if version == 0 { ErrorCode::InvalidRequest } else { error };
        return DescribeClusterResponse::default()
            .with_error_code(error.code())
            .with_error_message(Some(text(&message)));
    }
    let image = api.metadata.image();
    if ours == CONTROLLERS && !image.metadata_version().has_controller_registrations() {
        // Nobody knows where the others are. Who got no node would ask again and again.
        return DescribeClusterResponse::default()
            .with_error_code(ErrorCode::UnsupportedVersion.code())
            .with_error_message(Some(text("the metadata.version has no controllers that register")));
    }
    let nodes = match call.listener.role {
        ListenerRole::Broker => brokers(api, call, &request, version),
        ListenerRole::Controller => controllers(api, call),
    };
    let controller = match call.listener.role {
        ListenerRole::Broker => Some(api.admin_node(&image)),
        ListenerRole::Controller => api.metadata.leader(),
    };
    let controller = controller.filter(|id| nodes.iter().any(|node| node.broker_id.0 == id.0));
    let operations = if request.include_cluster_authorized_operations {
        authorized::on_cluster()
    } else {
        authorized::NOT_ASKED
    };
    DescribeClusterResponse::default()
        .with_endpoint_type(ours)
        .with_cluster_id(text(&api.node.cluster_id))
        .with_controller_id(controller.map_or(-1, |id| id.0).into())
        .with_brokers(nodes)
        .with_cluster_authorized_operations(operations)
}

/// In Kafka's words: clients' tests compare them.
fn mismatch(ours: i8, wanted: i8) -> String {
    let name = |endpoint_type| if endpoint_type == BROKERS { "BROKER" } else { "CONTROLLER" };
    let (ours, wanted) = (name(ours), name(wanted));
    format!("The request was sent to an endpoint of type {ours}, but we wanted an endpoint of type {wanted}")
}

fn brokers(
    api: &Api,
    call: &Call,
    request: &DescribeClusterRequest,
    version: i16,
) -> Vec<DescribeClusterBroker> {
    let image = api.metadata.image();
    let listed = image.brokers.iter().filter(|broker| !broker.fenced || request.include_fenced_brokers);
    listed
        .filter_map(|broker| {
            let endpoint = broker.endpoint(&call.listener.name)?;
            let shown = DescribeClusterBroker::default()
                .with_broker_id(broker.id.0.into())
                .with_host(text(&endpoint.host))
                .with_port(i32::from(endpoint.port))
                .with_rack(broker.rack.as_deref().map(text));
            Some(if version >= 2 { shown.with_is_fenced(broker.fenced) } else { shown })
        })
        .collect()
}

fn controllers(api: &Api, call: &Call) -> Vec<DescribeClusterBroker> {
    let image = api.metadata.image();
    let registered = image.controllers.iter();
    registered
        .filter_map(|(id, controller)| {
            let here = |endpoint: &&ControllerEndpoint| endpoint.name.as_str() == &*call.listener.name;
            let endpoint = controller.end_points.iter().find(here)?;
            Some(
                DescribeClusterBroker::default()
                    .with_broker_id(id.0.into())
                    .with_host(endpoint.host.clone())
                    .with_port(i32::from(endpoint.port)),
            )
        })
        .collect()
}
