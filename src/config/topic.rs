//! The properties of a topic, typed, and what several of them mean together. Knows no sources and no layers.
//! Invariant: the values have passed their validators; `check` alone judges how they go together.

use super::alter::{AlterError, AlterErrorKind};
use super::typed::typed_config;
use super::value::{FromValue, Value};

typed_config! {
    /// A topic's properties as they hold at one moment.
    pub struct TopicConfig of Topic {
        cleanup_policy: CleanupPolicy = "cleanup.policy",
        compression_type: CompressionType = "compression.type",
        compression_gzip_level: i32 = "compression.gzip.level",
        compression_lz4_level: i32 = "compression.lz4.level",
        compression_zstd_level: i32 = "compression.zstd.level",
        delete_retention_ms: i64 = "delete.retention.ms",
        errors_deadletterqueue_group_enable: bool = "errors.deadletterqueue.group.enable",
        file_delete_delay_ms: i64 = "file.delete.delay.ms",
        flush_before_ack: bool = "flush.before.ack",
        flush_messages: i64 = "flush.messages",
        flush_ms: i64 = "flush.ms",
        follower_replication_throttled_replicas: Vec<String> = "follower.replication.throttled.replicas",
        index_interval_bytes: i32 = "index.interval.bytes",
        internal_segment_bytes: Option<i32> = "internal.segment.bytes",
        leader_replication_throttled_replicas: Vec<String> = "leader.replication.throttled.replicas",
        /// -2 stands for `retention.bytes`.
        local_retention_bytes: i64 = "local.retention.bytes",
        /// -2 stands for `retention.ms`.
        local_retention_ms: i64 = "local.retention.ms",
        max_compaction_lag_ms: i64 = "max.compaction.lag.ms",
        max_decompressed_message_bytes: i32 = "max.decompressed.message.bytes",
        max_message_bytes: i32 = "max.message.bytes",
        message_timestamp_after_max_ms: i64 = "message.timestamp.after.max.ms",
        message_timestamp_before_max_ms: i64 = "message.timestamp.before.max.ms",
        message_timestamp_type: MessageTimestampType = "message.timestamp.type",
        min_cleanable_dirty_ratio: f64 = "min.cleanable.dirty.ratio",
        min_compaction_lag_ms: i64 = "min.compaction.lag.ms",
        min_insync_replicas: i32 = "min.insync.replicas",
        preallocate: bool = "preallocate",
        remote_copy_lag_bytes: i64 = "remote.copy.lag.bytes",
        remote_copy_lag_ms: i64 = "remote.copy.lag.ms",
        remote_log_copy_disable: bool = "remote.log.copy.disable",
        remote_log_delete_on_disable: bool = "remote.log.delete.on.disable",
        remote_storage_enable: bool = "remote.storage.enable",
        /// Negative means no limit.
        retention_bytes: i64 = "retention.bytes",
        /// -1 means no limit.
        retention_ms: i64 = "retention.ms",
        /// See [`TopicConfig::segment_bytes`] for the size that holds.
        segment_bytes_set: i32 = "segment.bytes",
        segment_index_bytes: i32 = "segment.index.bytes",
        segment_jitter_ms: i64 = "segment.jitter.ms",
        segment_ms: i64 = "segment.ms",
        unclean_leader_election_enable: bool = "unclean.leader.election.enable",
    }
}

/// What becomes of old segments. Neither means that they stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanupPolicy {
    pub compact: bool,
    pub delete: bool,
}

/// The names of `compression.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressionType {
    /// As the producer chose.
    Producer,
    Uncompressed,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// How a topic's batches are stored, with the level that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicCompression {
    /// As the producer chose.
    Producer,
    Uncompressed,
    /// -1 stands for gzip's own default.
    Gzip(i32),
    Snappy,
    Lz4(i32),
    Zstd(i32),
}

/// Whose clock gives a record its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageTimestampType {
    CreateTime,
    LogAppendTime,
}

impl FromValue for CleanupPolicy {
    fn from_value(value: &Value) -> Option<Self> {
        let Value::List(entries) = value else { return None };
        let has = |policy: &str| entries.iter().any(|entry| entry == policy);
        Some(CleanupPolicy { compact: has("compact"), delete: has("delete") })
    }
}

impl FromValue for CompressionType {
    fn from_value(value: &Value) -> Option<Self> {
        let Value::Text(name) = value else { return None };
        Some(match name.as_str() {
            "producer" => CompressionType::Producer,
            "uncompressed" => CompressionType::Uncompressed,
            "gzip" => CompressionType::Gzip,
            "snappy" => CompressionType::Snappy,
            "lz4" => CompressionType::Lz4,
            "zstd" => CompressionType::Zstd,
            _ => return None,
        })
    }
}

impl FromValue for MessageTimestampType {
    fn from_value(value: &Value) -> Option<Self> {
        let Value::Text(name) = value else { return None };
        match name.as_str() {
            "CreateTime" => Some(MessageTimestampType::CreateTime),
            "LogAppendTime" => Some(MessageTimestampType::LogAppendTime),
            _ => None,
        }
    }
}

impl TopicConfig {
    /// The size at which a segment ends.
    pub fn segment_bytes(&self) -> i32 {
        self.internal_segment_bytes.unwrap_or(self.segment_bytes_set)
    }

    /// How batches are stored.
    pub fn compression(&self) -> TopicCompression {
        match self.compression_type {
            CompressionType::Producer => TopicCompression::Producer,
            CompressionType::Uncompressed => TopicCompression::Uncompressed,
            CompressionType::Gzip => TopicCompression::Gzip(self.compression_gzip_level),
            CompressionType::Snappy => TopicCompression::Snappy,
            CompressionType::Lz4 => TopicCompression::Lz4(self.compression_lz4_level),
            CompressionType::Zstd => TopicCompression::Zstd(self.compression_zstd_level),
        }
    }

    /// The age at which a segment ends: on a compacted topic no later than compaction is due.
    pub fn max_segment_ms(&self) -> i64 {
        if self.cleanup_policy.compact {
            self.segment_ms.min(self.max_compaction_lag_ms)
        } else {
            self.segment_ms
        }
    }

    /// Whether these values go together.
    pub(super) fn check(&self, remote: RemoteStorage) -> Result<(), AlterError> {
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms {
            return refuse(
                "min.compaction.lag.ms",
                format!(
                    "{} is more than max.compaction.lag.ms, {}",
                    self.min_compaction_lag_ms, self.max_compaction_lag_ms
                ),
            );
        }
        match (self.remote_storage_enable, remote) {
            (true, RemoteStorage::Served { .. }) => self.check_remote(),
            (true, RemoteStorage::NotServed) => {
                refuse("remote.storage.enable", "tiered storage is not enabled on this cluster")
            }
            (false, RemoteStorage::Served { was_enabled: true }) if !self.remote_log_delete_on_disable => {
                refuse(
                    "remote.storage.enable",
                    "a topic may leave remote storage only when remote.log.delete.on.disable=true says that its remote \
                 data goes; to keep the data but copy no more, set remote.log.copy.disable=true",
                )
            }
            (false, _) => Ok(()),
        }
    }

    fn check_remote(&self) -> Result<(), AlterError> {
        if self.cleanup_policy.compact {
            return refuse("cleanup.policy", "a topic in remote storage cannot be compacted");
        }
        let (retention, local) = (self.retention_bytes, self.local_retention_bytes);
        check_local_retention(["retention.bytes", "local.retention.bytes"], retention, local)?;
        check_copy_lag(
            ["remote.copy.lag.bytes", "local.retention.bytes"],
            self.remote_copy_lag_bytes,
            local,
            retention,
        )?;
        self.check_copy_disabled(["retention.bytes", "local.retention.bytes"], retention, local)?;
        let (retention, local) = (self.retention_ms, self.local_retention_ms);
        check_local_retention(["retention.ms", "local.retention.ms"], retention, local)?;
        check_copy_lag(
            ["remote.copy.lag.ms", "local.retention.ms"],
            self.remote_copy_lag_ms,
            local,
            retention,
        )?;
        self.check_copy_disabled(["retention.ms", "local.retention.ms"], retention, local)
    }

    fn check_copy_disabled(
        &self,
        keys: [&'static str; 2],
        retention: i64,
        local: i64,
    ) -> Result<(), AlterError> {
        if self.remote_log_copy_disable && local != LOCAL_AS_RETENTION && local != retention {
            let [retention_key, local_key] = keys;
            return refuse(
                local_key,
                format!("must equal {retention_key} while remote.log.copy.disable is true"),
            );
        }
        Ok(())
    }
}

/// Whether tiered storage is served, and whether the topic used it before the change that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RemoteStorage {
    NotServed,
    Served { was_enabled: bool },
}

/// The mark for "local retention is the topic's retention".
const LOCAL_AS_RETENTION: i64 = -2;

fn refuse(key: &str, reason: impl Into<String>) -> Result<(), AlterError> {
    Err(AlterError { kind: AlterErrorKind::InvalidConfig, key: key.to_owned(), reason: reason.into() })
}

fn check_local_retention(keys: [&'static str; 2], retention: i64, local: i64) -> Result<(), AlterError> {
    let [retention_key, local_key] = keys;
    if retention < 0 || local == LOCAL_AS_RETENTION {
        Ok(())
    } else if local == -1 {
        refuse(local_key, format!("cannot be unlimited while {retention_key} is {retention}"))
    } else if local > retention {
        refuse(local_key, format!("{local} is more than {retention_key}, {retention}"))
    } else {
        Ok(())
    }
}

fn check_copy_lag(keys: [&'static str; 2], lag: i64, local: i64, retention: i64) -> Result<(), AlterError> {
    let local = if local == LOCAL_AS_RETENTION { retention } else { local };
    if lag > 0 && local >= 0 && lag > local {
        return refuse(keys[0], format!("{lag} is more than {}, which is {local}", keys[1]));
    }
    Ok(())
}
