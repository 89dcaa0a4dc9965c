//! ListConfigResources: v0-1 (KIP-1142)
//!
//! Behaviour: the names of everything that may have a configuration, of the types asked for or of all. A type that the
//! version does not have fails the request with UNSUPPORTED_VERSION.
//!
//! Version notes: 0 lists subscriptions to client metrics only; 1 has types.

use std::collections::BTreeSet;

use super::config_resource::{BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC};
use super::topic_view::text;
use super::{Api, Call, Request};
use crate::metadata::Image;
use crate::metadata::configs::ResourceType;
use crate::types::ErrorCode;
use crate::wire::messages::ListConfigResourcesRequest;
use crate::wire::messages::list_config_resources_response::{ConfigResource, ListConfigResourcesResponse};

pub async fn handle(
    api: &Api,
    call: &Call,
    request: Request<ListConfigResourcesRequest>,
) -> ListConfigResourcesResponse {
    let known: &[i8] = match request.version {
        0 => &[CLIENT_METRICS],
        _ => &[GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC],
    };
    let asked: BTreeSet<i8> = request.body.resource_types.into_iter().collect();
    if !asked.iter().all(|kind| known.contains(kind)) {
        return ListConfigResourcesResponse::default().with_error_code(ErrorCode::UnsupportedVersion.code());
    }
    let image = api.metadata.image();
    let mut resources = Vec::new();
    for &kind in known.iter().filter(|kind| asked.is_empty() || asked.contains(kind)) {
        for name in names(&image, kind, &call.listener.name) {
            let resource = ConfigResource::default().with_resource_name(text(&name));
            resources.push(if request.version >= 1 { resource.with_resource_type(kind) } else { resource });
        }
    }
    ListConfigResourcesResponse::default().with_config_resources(resources)
}

fn names(image: &Image, kind: i8, listener: &str) -> Vec<String> {
    let configured = |kind: ResourceType| {
        let resources = image.configs.iter().filter(move |(resource, _)| resource.kind == kind);
        resources.map(|(resource, _)| resource.name.to_string()).collect()
    };
    match kind {
        GROUP => configured(ResourceType::Group),
        CLIENT_METRICS => configured(ResourceType::ClientMetrics),
        TOPIC => image.topics.iter().map(|topic| topic.name.to_string()).collect(),
        _ => {
            let here = image.brokers.iter().filter(|broker| broker.endpoint(listener).is_some());
            here.map(|broker| broker.id.to_string()).collect()
        }
    }
}
