//! The settings of a log: a topic's configuration as storage sees it. Values only; where they come from and whether they
//! are sensible is decided elsewhere.

use crate::types::TimestampMs;
use crate::wire::batch::TimestampType;
use crate::wire::compression::Compression;

/// What codec a leader writes batches with (`compression.type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompressionPolicy {
    /// The codec that the producer chose.
    #[default]
    Producer,
    /// This codec at this level; `None` is the codec's own default.
    Codec(Compression, Option<i32>),
}

/// The configuration of one log. Fields are named after Kafka's topic properties.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    pub segment_bytes: u32,
    pub segment_ms: i64,
    pub segment_jitter_ms: i64,
    pub index_interval_bytes: u32,
    /// `segment.index.bytes`
    pub segment_index_bytes: u32,
    pub max_message_bytes: u32,
    /// The largest record of a compressed batch.
    pub max_decompressed_message_bytes: u32,
    pub message_timestamp_type: TimestampType,
    pub message_timestamp_before_max_ms: i64,
    pub message_timestamp_after_max_ms: i64,
    pub compression: CompressionPolicy,
    /// `cleanup.policy` has `compact`.
    pub compact: bool,
    /// `cleanup.policy` has `delete`.
    pub delete: bool,
    /// -1: no limit.
    pub retention_ms: i64,
    /// -1: no limit.
    pub retention_bytes: i64,
    pub file_delete_delay_ms: i64,
    pub min_cleanable_dirty_ratio: f64,
    pub min_compaction_lag_ms: i64,
    pub max_compaction_lag_ms: i64,
    pub delete_retention_ms: i64,
    pub flush_messages: i64,
    pub flush_ms: i64,
    /// `flush.before.ack`: what is not flushed is not acknowledged and not shown to consumers.
    pub flush_before_ack: bool,
    pub producer_id_expiration_ms: i64,
    /// How often to look for producers that have expired.
    pub producer_check_interval_ms: i64,
    /// How many producers are remembered, those with an open transaction not counted.
    pub producer_states_max: usize,
}

impl Default for LogConfig {
    /// Kafka's defaults.
    fn default() -> LogConfig {
        LogConfig {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600_000,
            segment_jitter_ms: 0,
            index_interval_bytes: 4096,
            segment_index_bytes: 10 << 20,
            max_message_bytes: 1_048_588,
            max_decompressed_message_bytes: i32::MAX as u32 - 8,
            message_timestamp_type: TimestampType::CreateTime,
            message_timestamp_before_max_ms: i64::MAX,
            message_timestamp_after_max_ms: 3_600_000,
            compression: CompressionPolicy::Producer,
            compact: false,
            delete: true,
            retention_ms: 7 * 24 * 3_600_000,
            retention_bytes: -1,
            file_delete_delay_ms: 60_000,
            min_cleanable_dirty_ratio: 0.5,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            delete_retention_ms: 24 * 3_600_000,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            flush_before_ack: true,
            producer_id_expiration_ms: 24 * 3_600_000,
            producer_check_interval_ms: 600_000,
            producer_states_max: 100_000,
        }
    }
}

impl LogConfig {
    /// How long a segment that starts with `seed` takes appends: `segment.ms` less a jitter, so that the segments of
    /// many partitions do not all roll at once. The same seed always gives the same jitter.
    pub fn roll_after_ms(&self, seed: u64) -> i64 {
        let range = self.segment_jitter_ms.min(self.segment_ms);
        if range <= 0 {
            return self.segment_ms;
        }
        // The finaliser of splitmix64: neighbouring seeds give unrelated values.
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        self.segment_ms - (mixed % range as u64) as i64
    }

    /// The age of a producer's last batch at `now` from which the producer is forgotten.
    pub fn producer_expires_before(&self, now: TimestampMs) -> TimestampMs {
        TimestampMs(now.0.saturating_sub(self.producer_id_expiration_ms))
    }
}
