//! The coordinators of groups: what they are configured with, and where their log is.

use std::sync::Arc;

use tokio::sync::watch;

use super::super::dynamic_config::DynamicConfig;
use super::{Coordinators, Kind};
use crate::config::BrokerConfig;
use crate::coordinator::group::assignor::Assignor;
use crate::coordinator::group::classic::ClassicConfig;
use crate::coordinator::group::consumer::{ConsumerConfig, MigrationPolicy};
use crate::coordinator::group::settings::{ConsumerSettings, OffsetsConfig};
use crate::coordinator::group::{Command, Groups, Settings};
use crate::metadata::Image;
use crate::metadata::topics::name::CONSUMER_OFFSETS;
use crate::wire::compression::{Codec, Compression};

const MS_PER_MINUTE: i64 = 60_000;

/// The coordinators of groups on a broker with this configuration.
pub fn kind(config: Arc<DynamicConfig>) -> Kind<Groups> {
    let broker = config.latest().broker.clone();
    Kind {
        topic: CONSUMER_OFFSETS,
        make: Box::new(move |_| Groups::new(settings(&config.latest().broker))),
        on_effect: Box::new(|_, effect| match effect {}),
        codec: codec(broker.offsets_topic_compression_codec),
        commit_timeout_ms: i64::from(broker.offsets_commit_timeout_ms),
        load_buffer_bytes: size(broker.offsets_load_buffer_size),
    }
}

/// Tells the coordinators when their settings change.
pub async fn configure(
    coordinators: Coordinators<Groups>,
    config: Arc<DynamicConfig>,
    mut images: watch::Receiver<Arc<Image>>,
) {
    let mut known = settings(&config.latest().broker);
    while images.changed().await.is_ok() {
        let image = images.borrow_and_update().clone();
        let latest = settings(&config.at(&image).broker);
        if latest == known {
            continue;
        }
        for partition in coordinators.partitions() {
            // One that has gone makes its successor with the latest settings.
            drop(coordinators.ask(partition, Command::Configure(latest.clone())).await);
        }
        known = latest;
    }
}

/// What the broker's properties say of groups.
pub(in crate::broker) fn settings(broker: &BrokerConfig) -> Settings {
    Settings {
        classic: ClassicConfig {
            max_size: size(broker.group_max_size),
            initial_rebalance_delay_ms: i64::from(broker.group_initial_rebalance_delay_ms),
            ..ClassicConfig::default()
        },
        consumer: consumer_settings(broker),
        offsets: OffsetsConfig {
            retention_ms: i64::from(broker.offsets_retention_minutes) * MS_PER_MINUTE,
            retention_check_interval_ms: broker.offsets_retention_check_interval_ms,
            metadata_max_bytes: size(broker.offset_metadata_max_bytes),
        },
    }
}

fn consumer_settings(broker: &BrokerConfig) -> ConsumerSettings {
    ConsumerSettings {
        defaults: ConsumerConfig {
            max_size: size(broker.group_consumer_max_size),
            heartbeat_interval_ms: broker.group_consumer_heartbeat_interval_ms,
            session_timeout_ms: broker.group_consumer_session_timeout_ms,
            assignment_interval_ms: broker.group_consumer_assignment_interval_ms,
            default_assignor: broker
                .group_consumer_assignors
                .first()
                .and_then(|name| assignor(name))
                .unwrap_or_default(),
            regex_refresh_interval_ms: i64::from(broker.group_consumer_regex_refresh_interval_ms),
            // The table has refused what is no policy.
            migration: MigrationPolicy::named(&broker.group_consumer_migration_policy).unwrap_or_default(),
            classic_max_size: size(broker.group_max_size),
        },
        session_timeout_ms: broker.group_consumer_min_session_timeout_ms
            ..=broker.group_consumer_max_session_timeout_ms,
        heartbeat_interval_ms: broker.group_consumer_min_heartbeat_interval_ms
            ..=broker.group_consumer_max_heartbeat_interval_ms,
        assignment_interval_ms: broker.group_consumer_min_assignment_interval_ms
            ..=broker.group_consumer_max_assignment_interval_ms,
    }
}

/// An assignor by its name, or by that of its class in Kafka. The table has refused others.
pub fn assignor(name: &str) -> Option<Assignor> {
    match name {
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor" => Some(Assignor::Uniform),
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor" => Some(Assignor::Range),
        name => Assignor::named(name),
    }
}

/// The table has refused what is no codec.
fn codec(number: i32) -> Codec {
    let compression = u8::try_from(number).ok().and_then(|number| Compression::from_id(number).ok());
    compression.unwrap_or(Compression::None).into()
}

/// The table has refused what is negative.
fn size(number: i32) -> usize {
    usize::try_from(number).unwrap_or(0)
}
