//! IncrementalAlterConfigs: v0-1 (KIP-339)
//!
//! Behaviour: sets, removes, appends to and subtracts from single properties; each resource succeeds or fails as a whole and
//! by itself. Levels of loggers (KIP-412) are this process's own and are changed here; all else is decided by the
//! controller.

use std::sync::Arc;

use super::alteration::{Altered, alter};
use super::refusal::Refusal;
use super::topic_view::text;
use super::{Api, Call, Request};
use crate::broker::loggers::{ROOT, parse_level};
use crate::metadata::configs::{ConfigOp, KeyOp, incremental_alter_configs};
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
    call: &Call,
    request: Request<IncrementalAlterConfigsRequest>,
) -> IncrementalAlterConfigsResponse {
    let request = request.body;
    let altered = request.resources.iter().map(altered).collect();
    let loggers = |index: usize| alter_loggers(api, &request.resources[index], request.validate_only);
    let decide = incremental_alter_configs;
    let outcomes = alter(api, call, altered, request.validate_only, decide, Some(&loggers)).await;
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
    IncrementalAlterConfigsResponse::default().with_responses(responses.collect())
}

fn altered(resource: &AlterConfigsResource) -> Altered<'_, KeyOp> {
    let lacks_value = |config: &&AlterableConfig| config.value.is_none() && config.config_operation != DELETE;
    let configs = || resource.configs.iter();
    Altered {
        kind: resource.resource_type,
        name: &resource.resource_name,
        keys: configs().map(|config| config.name.as_str()).collect(),
        without_value: configs().filter(lacks_value).map(|config| config.name.as_str()).collect(),
        changes: configs().map(operation).collect(),
    }
}

fn operation(config: &AlterableConfig) -> Result<KeyOp, Refusal> {
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
