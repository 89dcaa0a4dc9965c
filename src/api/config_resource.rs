//! What the APIs on configuration share: how resources are numbered (`org.apache.kafka.common.config.ConfigResource.Type`)
//! and which of a request's resources can be refused without asking the controller.

use std::collections::HashMap;

use super::Api;
use super::refusal::Refusal;
use crate::metadata::configs::ResourceType;
use crate::types::ErrorCode;

pub const TOPIC: i8 = 2;
pub const BROKER: i8 = 4;
pub const BROKER_LOGGER: i8 = 8;
pub const CLIENT_METRICS: i8 = 16;
pub const GROUP: i8 = 32;

/// Refuses the name of a broker that is not this one.
pub fn this_node(api: &Api, name: &str) -> Result<(), Refusal> {
    match name.parse::<i32>() {
        Err(_) => {
            let message = format!("the id of a broker is an integer, but it is: '{name}'");
            Err(Refusal::new(ErrorCode::InvalidRequest, message))
        }
        Ok(id) if id != api.node.id.0 => {
            let message = format!("this is broker {}, not {id}", api.node.id);
            Err(Refusal::new(ErrorCode::InvalidRequest, message))
        }
        Ok(_) => Ok(()),
    }
}

/// One resource of a request to alter configurations, as far as both forms of the request have it.
pub struct Altered<'a> {
    pub kind: i8,
    pub name: &'a str,
    pub keys: Vec<&'a str>,
    /// Keys that should have a value and have none.
    pub without_value: Vec<&'a str>,
}

/// What is refused of the resources of a request: `None` where the controller decides. `has_loggers` says whether this form
/// of the request may alter loggers.
pub fn refuse(api: &Api, resources: &[Altered<'_>], has_loggers: bool) -> Vec<Option<Refusal>> {
    let mut times: HashMap<(i8, &str), usize> = HashMap::new();
    for resource in resources {
        *times.entry((resource.kind, resource.name)).or_default() += 1;
    }
    resources
        .iter()
        .map(|resource| {
            if times[&(resource.kind, resource.name)] > 1 {
                return Some(Refusal::new(ErrorCode::InvalidRequest, "the resource is named more than once"));
            }
            refuse_one(api, resource, has_loggers).err()
        })
        .collect()
}

fn refuse_one(api: &Api, resource: &Altered<'_>, has_loggers: bool) -> Result<(), Refusal> {
    let invalid = |message: String| Err(Refusal::new(ErrorCode::InvalidRequest, message));
    let mut keys = resource.keys.clone();
    keys.sort_unstable();
    if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
        return invalid(format!("key {} is named more than once", twice[0]));
    }
    if !resource.without_value.is_empty() {
        return invalid(format!("a value is missing for: {}", resource.without_value.join(", ")));
    }
    match resource.kind {
        BROKER if resource.name.is_empty() => Ok(()),
        BROKER => this_node(api, resource.name),
        BROKER_LOGGER if has_loggers => this_node(api, resource.name),
        kind if ResourceType::from_code(kind).is_some() => Ok(()),
        kind => invalid(format!("resources of type {kind} cannot be altered")),
    }
}
