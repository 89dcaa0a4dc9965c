//! What the layered configuration comes to for this broker and for each topic, as the shards need it.
//!
//! Must not know where configuration is kept. Invariant: topics without values of their own share one [`LogConfig`].

use std::collections::BTreeSet;
use std::sync::Arc;

use super::dynamic_config::{Effective, texts};
use super::messages::{FollowerSettings, ReplicaSettings};
use crate::config::{BrokerConfig, MessageTimestampType, Texts, TopicCompression, TopicConfig};
use crate::metadata::Image;
use crate::replica::{FollowerConfig, ReplicaConfig};
use crate::storage::log::{CompressionPolicy, LogConfig};
use crate::types::{NodeId, PartitionIndex};
use crate::wire::batch::TimestampType;
use crate::wire::compression::Compression;

/// The settings of a topic's partitions.
#[derive(Clone, Debug)]
pub struct PartitionSettings {
    pub log: Arc<LogConfig>,
    /// Of a replica that is not throttled.
    replica: ReplicaSettings,
    leaders_throttled: Arc<ThrottledReplicas>,
    followers_throttled: Arc<ThrottledReplicas>,
}

impl PartitionSettings {
    /// The settings of the replica of a partition on the node `me`.
    pub fn replica(&self, partition: PartitionIndex, me: NodeId) -> ReplicaSettings {
        ReplicaSettings {
            leader: self.replica.leader,
            leader_throttled: self.leaders_throttled.lists(partition, me),
            follower: FollowerSettings {
                throttled: self.followers_throttled.lists(partition, me),
                ..self.replica.follower
            },
        }
    }
}

/// Which replicas of a topic are throttled.
#[derive(Debug, PartialEq, Eq)]
enum ThrottledReplicas {
    All,
    Listed(BTreeSet<(PartitionIndex, NodeId)>),
}

impl ThrottledReplicas {
    /// From the values of the property, whose rule has refused what does not parse.
    fn new(values: &[String]) -> ThrottledReplicas {
        if values.iter().any(|value| value == "*") {
            return ThrottledReplicas::All;
        }
        let listed = values.iter().filter_map(|value| {
            let (partition, node) = value.split_once(':')?;
            Some((PartitionIndex(partition.trim().parse().ok()?), NodeId(node.trim().parse().ok()?)))
        });
        ThrottledReplicas::Listed(listed.collect())
    }

    fn lists(&self, partition: PartitionIndex, node: NodeId) -> bool {
        match self {
            ThrottledReplicas::All => true,
            ThrottledReplicas::Listed(listed) => listed.contains(&(partition, node)),
        }
    }
}

/// The settings of this broker under one image.
#[derive(Clone, Debug)]
pub struct TopicSettings {
    effective: Arc<Effective>,
    default: PartitionSettings,
}

impl TopicSettings {
    pub fn new(effective: Arc<Effective>) -> TopicSettings {
        let topic = effective.layers.topic_config(&Texts::new());
        let default = partition_settings(&topic, &effective.broker);
        TopicSettings { effective, default }
    }

    pub fn broker(&self) -> &BrokerConfig {
        &self.effective.broker
    }

    /// The log's part of what goes for topics without values of their own.
    pub fn default_log(&self) -> &LogConfig {
        &self.default.log
    }

    /// What to tell the user of what was set since `before`, or at all.
    pub fn warnings_since(&self, before: Option<&TopicSettings>) -> Vec<String> {
        self.effective.layers.warnings_since(before.map(|before| &before.effective.layers))
    }

    /// The settings of a topic's partitions.
    pub fn of_topic(&self, image: &Image, topic: &str) -> PartitionSettings {
        match image.configs.topic(topic) {
            None => self.default.clone(),
            Some(values) => {
                partition_settings(&self.effective.layers.topic_config(&texts(values)), self.broker())
            }
        }
    }
}

fn partition_settings(topic: &TopicConfig, broker: &BrokerConfig) -> PartitionSettings {
    let leader = ReplicaConfig {
        min_insync_replicas: usize::try_from(topic.min_insync_replicas).unwrap_or(1),
        durable_acks: topic.flush_before_ack,
        lag_time_max_ms: broker.replica_lag_time_max_ms,
        unclean_election: topic.unclean_leader_election_enable,
    };
    let follower = FollowerSettings {
        core: FollowerConfig { backoff_max_ms: i64::from(broker.replica_fetch_backoff_ms) },
        may_lack_committed: topic.unclean_leader_election_enable || !topic.flush_before_ack,
        throttled: false,
    };
    let replica = ReplicaSettings { leader, leader_throttled: false, follower };
    let throttled = |values: &[String]| Arc::new(ThrottledReplicas::new(values));
    PartitionSettings {
        log: Arc::new(log_config(topic, broker)),
        replica,
        leaders_throttled: throttled(&topic.leader_replication_throttled_replicas),
        followers_throttled: throttled(&topic.follower_replication_throttled_replicas),
    }
}

fn log_config(topic: &TopicConfig, broker: &BrokerConfig) -> LogConfig {
    LogConfig {
        segment_bytes: size(topic.segment_bytes()),
        segment_ms: topic.max_segment_ms(),
        segment_jitter_ms: topic.segment_jitter_ms,
        index_interval_bytes: size(topic.index_interval_bytes),
        segment_index_bytes: size(topic.segment_index_bytes),
        max_message_bytes: size(topic.max_message_bytes),
        max_decompressed_message_bytes: size(topic.max_decompressed_message_bytes),
        message_timestamp_type: match topic.message_timestamp_type {
            MessageTimestampType::CreateTime => TimestampType::CreateTime,
            MessageTimestampType::LogAppendTime => TimestampType::LogAppendTime,
        },
        message_timestamp_before_max_ms: topic.message_timestamp_before_max_ms,
        message_timestamp_after_max_ms: topic.message_timestamp_after_max_ms,
        compression: compression(topic.compression()),
        compact: topic.cleanup_policy.compact,
        delete: topic.cleanup_policy.delete,
        retention_ms: topic.retention_ms,
        retention_bytes: topic.retention_bytes,
        file_delete_delay_ms: topic.file_delete_delay_ms,
        min_cleanable_dirty_ratio: topic.min_cleanable_dirty_ratio,
        min_compaction_lag_ms: topic.min_compaction_lag_ms,
        max_compaction_lag_ms: topic.max_compaction_lag_ms,
        delete_retention_ms: topic.delete_retention_ms,
        flush_messages: topic.flush_messages,
        flush_ms: topic.flush_ms,
        flush_before_ack: topic.flush_before_ack,
        producer_id_expiration_ms: i64::from(broker.producer_id_expiration_ms),
        producer_check_interval_ms: i64::from(broker.producer_id_expiration_check_interval_ms),
        producer_states_max: usize::try_from(broker.producer_state_max_per_partition).unwrap_or(1),
    }
}

fn compression(policy: TopicCompression) -> CompressionPolicy {
    let (codec, level) = match policy {
        TopicCompression::Producer => return CompressionPolicy::Producer,
        TopicCompression::Uncompressed => (Compression::None, None),
        TopicCompression::Gzip(level) => (Compression::Gzip, Some(level).filter(|level| *level != -1)),
        TopicCompression::Snappy => (Compression::Snappy, None),
        TopicCompression::Lz4(level) => (Compression::Lz4, Some(level)),
        TopicCompression::Zstd(level) => (Compression::Zstd, Some(level)),
    };
    CompressionPolicy::Codec(codec, level)
}

/// The validators of the table have refused what is negative.
fn size(bytes: i32) -> u32 {
    u32::try_from(bytes).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttled_replicas_are_listed_or_all() {
        let listed = |values: &[&str], partition, node| {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            ThrottledReplicas::new(&values).lists(PartitionIndex(partition), NodeId(node))
        };
        assert!(listed(&["0:1", "2:3"], 2, 3) && !listed(&["0:1", "2:3"], 2, 1));
        assert!(listed(&["*"], 7, 7) && !listed(&[], 0, 1) && !listed(&["none"], 0, 1));
    }
}
