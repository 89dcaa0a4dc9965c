//! What a process says is on disk is on disk: whatever happens to its machine next, the log reaches at least as far.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Broken, Sight};
use crate::storage::sim_disk::SimDisk;
use crate::types::{NodeId, Offset, TopicIdPartition};
use crate::wire::batch::{Batches, PartialTail};

#[derive(Debug, Default)]
pub struct OnDisk {
    /// Up to where a process's log has been looked at.
    seen: BTreeMap<(NodeId, TopicIdPartition), (u64, Offset)>,
}

impl OnDisk {
    /// `dir` is where the log is.
    pub fn check(&mut self, disk: &SimDisk, dir: &Path, sight: &Sight<'_>) -> Result<(), Broken> {
        let flushed = sight.view.flushed;
        let key = (sight.node, sight.id);
        let seen = self.seen.get(&key).filter(|(life, _)| *life == sight.life).map(|(_, seen)| *seen);
        let from = seen.unwrap_or(Offset::ZERO).max(sight.view.log_start);
        self.seen.insert(key, (sight.life, flushed));
        if flushed <= from {
            return Ok(());
        }
        let reaches = reaches(disk, dir, from);
        if reaches < flushed {
            let (node, id) = key;
            return Err(format!(
                "on disk: {node} says {id:?} is on disk up to {flushed}, from {from} on it is up to {reaches}"
            ));
        }
        Ok(())
    }
}

/// Up to where the log has no gap from here on, of what is on disk for good.
fn reaches(disk: &SimDisk, dir: &Path, from: Offset) -> Offset {
    let files = disk.durable_files(dir, ".log");
    let base = |name: &String| name.trim_end_matches(".log").parse::<i64>().ok();
    let mut segments: Vec<(i64, &Vec<u8>)> =
        files.iter().filter_map(|(name, bytes)| Some((base(name)?, bytes))).collect();
    segments.sort_unstable();
    // The last one that begins at or below, and all that follow.
    let first = segments.partition_point(|(base, _)| *base <= from.0).saturating_sub(1);
    let mut reached = from;
    for (_, bytes) in &segments[first..] {
        for batch in Batches::new(bytes, PartialTail::Ignore) {
            let Ok(batch) = batch else { break };
            let header = batch.header;
            if header.next_offset() <= reached {
                continue;
            }
            if header.base_offset > reached || batch.check_crc().is_err() {
                return reached;
            }
            reached = header.next_offset();
        }
    }
    reached
}
