//! What the coordinator of groups is configured with. Only values, in the units of the properties that they come from
//! unless the name says otherwise; where they come from is not known here.

use std::ops::RangeInclusive;
use std::str::FromStr;

use super::Name;
use super::classic::ClassicConfig;
use super::consumer::ConsumerConfig;
use crate::metadata::configs::{ConfigResource, Configs, ResourceType};

/// The settings of one coordinator. They may change between two steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub classic: ClassicConfig,
    pub consumer: ConsumerSettings,
    pub offsets: OffsetsConfig,
}

/// The settings of committed offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetsConfig {
    /// `offsets.retention.minutes`, in milliseconds
    pub retention_ms: i64,
    /// `offsets.retention.check.interval.ms`
    pub retention_check_interval_ms: i64,
    /// `offset.metadata.max.bytes`
    pub metadata_max_bytes: usize,
}

impl Default for OffsetsConfig {
    fn default() -> OffsetsConfig {
        OffsetsConfig {
            retention_ms: 7 * 24 * 60 * 60 * 1_000,
            retention_check_interval_ms: 600_000,
            metadata_max_bytes: 4_096,
        }
    }
}

/// The settings of consumer groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerSettings {
    /// For groups that have none of their own.
    pub defaults: ConsumerConfig,
    /// `group.consumer.min.session.timeout.ms` and `.max.`: what a group may have of its own. Likewise the others.
    pub session_timeout_ms: RangeInclusive<i32>,
    pub heartbeat_interval_ms: RangeInclusive<i32>,
    pub assignment_interval_ms: RangeInclusive<i32>,
}

impl Default for ConsumerSettings {
    fn default() -> ConsumerSettings {
        ConsumerSettings {
            defaults: ConsumerConfig::default(),
            session_timeout_ms: 45_000..=60_000,
            heartbeat_interval_ms: 5_000..=15_000,
            assignment_interval_ms: 0..=15_000,
        }
    }
}

impl ConsumerSettings {
    /// What a group obeys, with what is set for it alone. That was within the bounds when it was set, and is brought into
    /// those that hold now.
    pub fn of_group(&self, configs: &Configs, group: &Name) -> ConsumerConfig {
        let mut config = self.defaults;
        let Some(own) = configs.get(&ConfigResource::new(ResourceType::Group, group.clone())) else {
            return config;
        };
        let within = |key: &str, bounds: &RangeInclusive<i32>| {
            let value = own.get(key).and_then(|text| i32::from_str(text).ok())?;
            Some(value.min(*bounds.end()).max(*bounds.start()))
        };
        if let Some(ms) = within("consumer.session.timeout.ms", &self.session_timeout_ms) {
            config.session_timeout_ms = ms;
        }
        if let Some(ms) = within("consumer.heartbeat.interval.ms", &self.heartbeat_interval_ms) {
            config.heartbeat_interval_ms = ms;
        }
        if let Some(ms) = within("consumer.assignment.interval.ms", &self.assignment_interval_ms) {
            config.assignment_interval_ms = ms;
        }
        config
    }
}
