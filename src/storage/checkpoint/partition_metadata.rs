//! `partition.metadata` in a partition's directory: which topic the partition belongs to, by id.

use std::io;
use std::path::Path;

use super::malformed;
use crate::storage::disk::{Disk, read_file, write_file_atomically};
use crate::types::{TopicId, kafka_uuid};

pub const PARTITION_METADATA_FILE: &str = "partition.metadata";

/// Writes the file of the partition directory `dir`.
pub fn write_partition_metadata(disk: &dyn Disk, dir: &Path, topic_id: TopicId) -> io::Result<()> {
    let text = format!("version: 0\ntopic_id: {}", kafka_uuid::format(topic_id));
    write_file_atomically(disk, &dir.join(PARTITION_METADATA_FILE), text.as_bytes())
}

/// The topic of the partition directory `dir`; `None` when the file is missing.
pub fn read_partition_metadata(disk: &dyn Disk, dir: &Path) -> io::Result<Option<TopicId>> {
    let path = dir.join(PARTITION_METADATA_FILE);
    let bytes = match read_file(disk, &path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let parsed = std::str::from_utf8(&bytes).ok().and_then(parse);
    parsed.map(Some).ok_or_else(|| malformed(format!("{}: not the metadata of a partition", path.display())))
}

fn parse(text: &str) -> Option<TopicId> {
    let mut lines = text.lines();
    let version: u32 = lines.next()?.strip_prefix("version:")?.trim().parse().ok()?;
    let topic_id = kafka_uuid::parse(lines.next()?.strip_prefix("topic_id:")?.trim())?;
    // Later versions may only add lines.
    (version < u32::MAX && !topic_id.is_nil()).then_some(topic_id)
}
