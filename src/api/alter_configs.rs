//! AlterConfigs: v0-2
//!
//! Behaviour: replaces all properties of each resource by those of the request; IncrementalAlterConfigs is the better form,
//! which does not lose what another client has set. Loggers are not altered by this form.

use std::sync::Arc;

use super::config_resource::{Altered, refuse};
use super::refusal::Refusal;
use super::topic_view::text;
use super::{Api, Call, Request, config_rules};
use crate::metadata::Image;
use crate::metadata::configs::{Change, ConfigResource, ResourceType, alter_configs};
use crate::wire::messages::AlterConfigsRequest;
use crate::wire::messages::alter_configs_request::{AlterConfigsResource, AlterableConfig};
use crate::wire::messages::alter_configs_response::{AlterConfigsResourceResponse, AlterConfigsResponse};

pub async fn handle(api: &Api, _: &Call, request: Request<AlterConfigsRequest>) -> AlterConfigsResponse {
    let request = request.body;
    let altered: Vec<Altered<'_>> = request.resources.iter().map(altered).collect();
    let refused = refuse(api, &altered, false);
    let accepted = request.resources.iter().zip(&refused).filter(|(_, refused)| refused.is_none());
    let decided: Vec<_> = accepted.filter_map(|(resource, _)| replacement(resource)).collect();
    let outcomes = decide(api, decided, request.validate_only).await;
    let responses = request.resources.iter().zip(refused).map(|(resource, refused)| {
        let of_controller = || {
            let same = |decided: &&(ConfigResource, Result<(), Refusal>)| {
                decided.0.kind.code() == resource.resource_type && *decided.0.name == *resource.resource_name
            };
            outcomes.iter().find(same).and_then(|(_, outcome)| outcome.clone().err())
        };
        let shown = AlterConfigsResourceResponse::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        match refused.or_else(of_controller) {
            None => shown.with_error_message(None),
            Some(refusal) => {
                shown.with_error_code(refusal.code.code()).with_error_message(Some(text(&refusal.message)))
            }
        }
    });
    AlterConfigsResponse::default().with_responses(responses.collect())
}

fn altered(resource: &AlterConfigsResource) -> Altered<'_> {
    let without_value = |config: &&AlterableConfig| config.value.is_none();
    Altered {
        kind: resource.resource_type,
        name: &resource.resource_name,
        keys: resource.configs.iter().map(|config| config.name.as_str()).collect(),
        without_value: resource
            .configs
            .iter()
            .filter(without_value)
            .map(|config| config.name.as_str())
            .collect(),
    }
}

fn replacement(resource: &AlterConfigsResource) -> Option<(ConfigResource, Vec<Change>)> {
    let kind = ResourceType::from_code(resource.resource_type)?;
    let values = resource.configs.iter().map(|config| {
        (Arc::from(config.name.as_str()), config.value.as_ref().map(|value| Arc::from(value.as_str())))
    });
    Some((ConfigResource::new(kind, resource.resource_name.as_str()), values.collect()))
}

async fn decide(
    api: &Api,
    resources: Vec<(ConfigResource, Vec<Change>)>,
    validate_only: bool,
) -> Vec<(ConfigResource, Result<(), Refusal>)> {
    if resources.is_empty() {
        return Vec::new();
    }
    let effective = api.config.at(&api.metadata.image());
    let asked = resources.clone();
    let decided = api.metadata.run(move |image: &Image| {
        let rules = config_rules::Rules::new(&effective.layers, image);
        alter_configs(image, &asked, validate_only, &rules.rules())
    });
    match decided.await {
        Ok(outcomes) => {
            let outcomes = outcomes.into_iter();
            outcomes.map(|(resource, outcome)| (resource, outcome.map_err(Refusal::from))).collect()
        }
        Err(error) => {
            let refused = Refusal::from(error);
            resources.into_iter().map(|(resource, _)| (resource, Err(refused.clone()))).collect()
        }
    }
}
