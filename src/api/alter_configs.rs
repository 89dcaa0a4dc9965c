//! AlterConfigs: v0-2
//!
//! Behaviour: replaces all properties of each resource by those of the request; IncrementalAlterConfigs is the better form,
//! which does not lose what another client has set. Loggers are not altered by this form.

use std::sync::Arc;

use super::alteration::{Altered, alter};
use super::topic_view::text;
use super::{Api, Call, Request};
use crate::metadata::configs::{Change, alter_configs};
use crate::wire::messages::AlterConfigsRequest;
use crate::wire::messages::alter_configs_request::{AlterConfigsResource, AlterableConfig};
use crate::wire::messages::alter_configs_response::{AlterConfigsResourceResponse, AlterConfigsResponse};

pub async fn handle(api: &Api, call: &Call, request: Request<AlterConfigsRequest>) -> AlterConfigsResponse {
    let request = request.body;
    let altered = request.resources.iter().map(altered).collect();
    let outcomes = alter(api, call, altered, request.validate_only, alter_configs, None).await;
    let responses = request.resources.iter().zip(outcomes).map(|(resource, outcome)| {
        let shown = AlterConfigsResourceResponse::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        match outcome {
            Ok(()) => shown.with_error_message(None),
            Err(refusal) => {
                shown.with_error_code(refusal.code.code()).with_error_message(Some(text(&refusal.message)))
            }
        }
    });
    AlterConfigsResponse::default().with_responses(responses.collect())
}

fn altered(resource: &AlterConfigsResource) -> Altered<'_, Change> {
    let configs = || resource.configs.iter();
    Altered {
        kind: resource.resource_type,
        name: &resource.resource_name,
        keys: configs().map(|config| config.name.as_str()).collect(),
        without_value: configs()
            .filter(|config| config.value.is_none())
            .map(|config| config.name.as_str())
            .collect(),
        changes: Ok(configs().map(change).collect()),
    }
}

fn change(config: &AlterableConfig) -> Change {
    (Arc::from(config.name.as_str()), config.value.as_ref().map(|value| Arc::from(value.as_str())))
}
