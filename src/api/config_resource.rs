//! What the APIs on configuration share: how resources are numbered (`org.apache.kafka.common.config.ConfigResource.Type`),
//! and that a broker speaks for itself.

use super::Api;
use super::refusal::Refusal;
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
