//! IncrementalAlterConfigs: v0-1 (KIP-339)
//!
//! Behaviour: sets, removes, appends to and subtracts from single properties; each resource succeeds or fails as a whole and
//! by itself. Levels of loggers (KIP-412) are this process's own and are changed here; all else is decided by the
//! controller.

use std::sync::Arc;

use super::config_resource::{Altered, BROKER_LOGGER, refuse};
use super::refusal::Refusal;
use super::topic_view::text;
use super::{Api, Call, Request, config_rules};
use crate::broker::loggers::{ROOT, parse_level};
use crate::metadata::Image;
use crate::metadata::configs::{ConfigOp, ConfigResource, KeyOp, ResourceType, incremental_alter_configs};
use crate::types::ErrorCode;
use crate::wire::messages::IncrementalAlterConfigsRequest;
use crate::wire::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use crate::wire::messages::incremental_alter_configs_response::{
    AlterConfigsResourceResponse, IncrementalAlterConfigsResponse,
};

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<IncrementalAlterConfigsRequest>,
) -> IncrementalAlterConfigsResponse {
    let request = request.body;
    let altered: Vec<Altered<'_>> = request.resources.iter().map(altered).collect();
    let mut refused = refuse(api, &altered, true);
    let mut decided = Vec::new();
    for (resource, refused) in request.resources.iter().zip(&mut refused) {
        if refused.is_some() {
            continue;
        }
        if resource.resource_type == BROKER_LOGGER {
            *refused = alter_loggers(api, resource, request.validate_only).err();
            continue;
        }
        match operations(resource) {
            Ok(operations) => decided.push(operations),
            Err(refusal) => *refused = Some(refusal),
        }
    }
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
    IncrementalAlterConfigsResponse::default().with_responses(responses.collect())
}

fn altered(resource: &AlterConfigsResource) -> Altered<'_> {
    let without_value =
        |config: &&AlterableConfig| config.value.is_none() && config.config_operation != DELETE;
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

fn operations(resource: &AlterConfigsResource) -> Result<(ConfigResource, Vec<KeyOp>), Refusal> {
    let kind = ResourceType::from_code(resource.resource_type)
        .ok_or_else(|| Refusal::new(ErrorCode::InvalidRequest, "the type of the resource is not known"))?;
    let operations = resource.configs.iter().map(|config| {
        let value = || Arc::from(config.value.as_ref().map_or("", |value| value.as_str()));
        let operation = match config.config_operation {
            SET => ConfigOp::Set(value()),
            DELETE => ConfigOp::Delete,
            APPEND => ConfigOp::Append(value()),
            SUBTRACT => ConfigOp::Subtract(value()),
            other => {
                let message = format!("operation {other} is not known");
                return Err(Refusal::new(ErrorCode::InvalidRequest, message));
            }
        };
        Ok((Arc::from(config.name.as_str()), operation))
    });
    let resource = ConfigResource::new(kind, resource.resource_name.as_str());
    Ok((resource, operations.collect::<Result<_, _>>()?))
}

async fn decide(
    api: &Api,
    resources: Vec<(ConfigResource, Vec<KeyOp>)>,
    validate_only: bool,
) -> Vec<(ConfigResource, Result<(), Refusal>)> {
    if resources.is_empty() {
        return Vec::new();
    }
    let effective = api.config.at(&api.metadata.image());
    let asked = resources.clone();
    let decided = api.metadata.run(move |image: &Image| {
        let rules = config_rules::Rules::new(&effective.layers, image);
        incremental_alter_configs(image, &asked, validate_only, &rules.rules())
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

/// Checks every change before the first is made.
fn alter_loggers(api: &Api, resource: &AlterConfigsResource, validate_only: bool) -> Result<(), Refusal> {
    let mut changes = Vec::new();
    for config in &resource.configs {
        let name = config.name.as_str();
        if !matches!(config.config_operation, SET | DELETE) {
            let message = format!("operation {} does not go with loggers", config.config_operation);
            return Err(Refusal::new(ErrorCode::InvalidRequest, message));
        }
        if !api.loggers.exists(name) {
            return Err(Refusal::new(ErrorCode::InvalidConfig, format!("logger {name} does not exist")));
        }
        let level = match config.config_operation {
            SET => {
                let word = config.value.as_ref().map_or("", |value| value.as_str());
                let unknown = || {
                    let message = format!("'{word}' is no level: FATAL, ERROR, WARN, INFO, DEBUG or TRACE");
                    Refusal::new(ErrorCode::InvalidConfig, message)
                };
                Some(parse_level(word).ok_or_else(unknown)?)
            }
            _ if name == ROOT => {
                let message = "the level of the root logger cannot be removed";
                return Err(Refusal::new(ErrorCode::InvalidRequest, message));
            }
            _ => None,
        };
        changes.push((name, level));
    }
    if !validate_only {
        for (name, level) in changes {
            api.loggers.set(name, level);
        }
    }
    Ok(())
}
