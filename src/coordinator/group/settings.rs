//! What the coordinator of groups is configured with. Only values, in the units of the properties that they come from
//! unless the name says otherwise; where they come from is not known here.

use super::classic::ClassicConfig;

/// The settings of one coordinator. They may change between two steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub classic: ClassicConfig,
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
