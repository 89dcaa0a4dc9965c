//! What this node's configuration says of the duties of an active controller. Knows nothing of how they are done.

use std::sync::Arc;

use super::dynamic_config::DynamicConfig;
use crate::controller::duties::{DutySettings, SettingsSource};

/// The settings as they are with each image; brokers are dialled at `listener`.
pub fn duty_settings(config: Arc<DynamicConfig>, listener: Arc<str>) -> SettingsSource {
    Arc::new(move |image| {
        let effective = config.at(image);
        DutySettings {
            defaults: effective.election_defaults(),
            session_ms: i64::from(effective.broker.broker_session_timeout_ms),
            listener: Arc::clone(&listener),
        }
    })
}
