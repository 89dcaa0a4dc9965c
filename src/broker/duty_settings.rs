//! What this node's configuration says of the duties of an active controller. Knows nothing of how they are done.

use std::sync::Arc;
use std::time::Duration;

use super::dynamic_config::DynamicConfig;
use crate::controller::duties::{DutySettings, SettingsSource};

/// The settings as they are with each image; brokers are dialled at `listener`.
pub fn duty_settings(config: Arc<DynamicConfig>, listener: Arc<str>) -> SettingsSource {
    Arc::new(move |image| {
        let effective = config.at(image);
        let broker = &effective.broker;
        let seconds = broker.leader_imbalance_check_interval_seconds;
        DutySettings {
            defaults: effective.election_defaults(),
            session_ms: i64::from(broker.broker_session_timeout_ms),
            listener: Arc::clone(&listener),
            rebalance_interval: broker.auto_leader_rebalance_enable.then(|| duration(seconds, 1_000)),
            unclean_interval: duration(broker.unclean_leader_election_interval_ms, 1),
        }
    })
}

fn duration(count: i64, unit_ms: u64) -> Duration {
    Duration::from_millis(u64::try_from(count).unwrap_or(0).saturating_mul(unit_ms))
}
