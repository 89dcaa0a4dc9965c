//! What the layered configuration comes to for this broker and for each topic, as the shards need it.
//!
//! Must not know where configuration is kept. Invariant: topics without values of their own share one [`LogConfig`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::dynamic_config::{Effective, texts};
use super::messages::{FollowerSettings, ReplicaSettings};
use crate::config::{
    BrokerConfig, MessageTimestampType, Texts, TopicCompression, TopicConfig, topic_without_effect,
};
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

/// How many topics a warning names.
const NAMED_MAX: usize = 5;

/// What to tell the user of what these topics set without effect, as far as they did not set it so `before`.
pub fn topic_warnings<'a>(
    before: &Image,
    now: &'a Image,
    topics: impl Iterator<Item = &'a str>,
) -> Vec<String> {
    let mut setting: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for topic in topics {
        let old = before.configs.topic(topic);
        for (key, text) in now.configs.topic(topic).into_iter().flatten() {
            let is_new = old.and_then(|old| old.get(key)) != Some(text);
            if let Some(instead) = topic_without_effect(key, text).filter(|_| is_new) {
                setting.entry((key.as_ref(), instead)).or_default().push(topic);
            }
        }
    }
    let tell = |((key, instead), topics): ((&str, &str), Vec<&str>)| {
        let named = topics[..topics.len().min(NAMED_MAX)].join(", ");
        let more = match topics.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{key} has no effect on topics: {named}{more}: {instead}")
    };
    setting.into_iter().map(tell).collect()
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
    use std::ops::Range;

    use super::*;
    use crate::wire::messages::StrBytes;
    use crate::wire::messages::metadata::ConfigRecord;

    #[test]
    fn what_topics_set_without_effect_is_told_once_for_each_property() {
        let text = |text: &str| StrBytes::from_string(text.to_owned());
        let set = |image: &Image, topics: Range<i32>, value: &str| {
            let mut image = image.clone();
            for topic in topics {
                for (name, value) in [("preallocate", value), ("retention.ms", "5")] {
                    let record = ConfigRecord {
                        resource_type: 2,
                        resource_name: text(&format!("t{topic}")),
                        name: text(name),
                        value: Some(text(value)),
                        ..ConfigRecord::default()
                    };
                    image.apply(&record.into());
                }
            }
            image
        };
        let names: Vec<String> = (0..9).map(|topic| format!("t{topic}")).collect();
        let warnings =
            |before: &Image, now: &Image| topic_warnings(before, now, names.iter().map(String::as_str));
        let none = Image::default();
        let first = set(&none, 0..7, "true");
        let told = "preallocate has no effect on topics: t0, t1, t2, t3, t4 and 2 more: a segment grows as records are written";
        assert_eq!(warnings(&none, &first), [told]);
        let second = set(&first, 6..9, "true");
        let told = "preallocate has no effect on topics: t7, t8: a segment grows as records are written";
        assert_eq!(warnings(&first, &second), [told]);
        assert_eq!(warnings(&second, &set(&second, 0..9, "false")), [""; 0]);
    }

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
