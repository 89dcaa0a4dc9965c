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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Image;
    use crate::wire::messages::StrBytes;
    use crate::wire::messages::metadata::ConfigRecord;

    #[test]
    fn what_a_group_sets_for_itself_holds_within_the_bounds() {
        let mut image = Image::default();
        let mut set = |group: &'static str, key: &'static str, value: &'static str| {
            let record = ConfigRecord {
                resource_type: ResourceType::Group.code(),
                resource_name: StrBytes::from_static_str(group),
                name: StrBytes::from_static_str(key),
                value: Some(StrBytes::from_static_str(value)),
                ..ConfigRecord::default()
            };
            image.apply(&record.into());
        };
        set("g", "consumer.session.timeout.ms", "50000");
        set("g", "consumer.heartbeat.interval.ms", "1");
        set("g", "consumer.assignment.interval.ms", "20000");
        set("h", "consumer.session.timeout.ms", "many");
        let settings = ConsumerSettings::default();
        let of_group = |group: &str| {
            let config = settings.of_group(&image.configs, &group.into());
            (config.session_timeout_ms, config.heartbeat_interval_ms, config.assignment_interval_ms)
        };
        assert_eq!(of_group("g"), (50_000, 5_000, 15_000));
        assert_eq!(of_group("h"), (45_000, 5_000, 1_000));
        assert_eq!(of_group("k"), of_group("h"));
    }
}
