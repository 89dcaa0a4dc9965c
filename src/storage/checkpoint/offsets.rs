//! The offset checkpoints of a log directory: one line `topic partition offset` per partition.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use super::lines;
use crate::storage::disk::Disk;
use crate::types::{Offset, TopicPartition};

/// Which offset of each partition a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetCheckpoint {
    /// What is below was flushed.
    RecoveryPoint,
    /// The high watermark.
    Replication,
    /// Where the log starts when that is not where its first segment does.
    LogStart,
    /// What is below was compacted.
    Cleaner,
}

impl OffsetCheckpoint {
    pub const ALL: [OffsetCheckpoint; 4] = [
        OffsetCheckpoint::RecoveryPoint,
        OffsetCheckpoint::Replication,
        OffsetCheckpoint::LogStart,
        OffsetCheckpoint::Cleaner,
    ];

    pub fn file_name(self) -> &'static str {
        match self {
            OffsetCheckpoint::RecoveryPoint => "recovery-point-offset-checkpoint",
            OffsetCheckpoint::Replication => "replication-offset-checkpoint",
            OffsetCheckpoint::LogStart => "log-start-offset-checkpoint",
            OffsetCheckpoint::Cleaner => "cleaner-offset-checkpoint",
        }
    }
}

/// Replaces a checkpoint of the log directory `dir`.
pub fn write_offsets<'a>(
    disk: &dyn Disk,
    dir: &Path,
    which: OffsetCheckpoint,
    offsets: impl ExactSizeIterator<Item = (&'a TopicPartition, Offset)>,
) -> io::Result<()> {
    let lines = offsets.map(|(of, offset)| format!("{} {} {offset}", of.topic, of.partition));
    lines::write(disk, &dir.join(which.file_name()), lines)
}

pub fn read_offsets(
    disk: &dyn Disk,
    dir: &Path,
    which: OffsetCheckpoint,
) -> io::Result<HashMap<TopicPartition, Offset>> {
    let entries = lines::read(disk, &dir.join(which.file_name()), |words| {
        let [topic, partition, offset] = words else { return None };
        Some((TopicPartition::new(*topic, partition.parse().ok()?), Offset(offset.parse().ok()?)))
    })?;
    Ok(entries.into_iter().collect())
}
