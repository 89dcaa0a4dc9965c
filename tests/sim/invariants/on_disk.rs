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
    seen: BTreeMap<(NodeId, TopicIdPartition), Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    life: u64,
    flushed: Offset,
    reached: Reached,
}

/// Up to where a log has no gap, and where that is: behind so many bytes of the segment with this base.
#[derive(Clone, Copy, Debug)]
struct Reached {
    offset: Offset,
    segment: i64,
    position: usize,
}

impl OnDisk {
    /// `dir` is where the log is.
    pub fn check(&mut self, disk: &SimDisk, dir: &Path, sight: &Sight<'_>) -> Result<(), Broken> {
        let (flushed, key) = (sight.view.flushed, (sight.node, sight.id));
        let start = sight.view.log_start;
        let seen = self.seen.get(&key).filter(|seen| seen.life == sight.life).copied();
        if let Some(seen) = seen
            && seen.flushed.max(start) >= flushed
        {
            // What was cut is not counted on.
            if flushed < seen.flushed {
                self.seen.remove(&key);
            }
            return Ok(());
        }
        let from = seen.map_or(start, |seen| seen.flushed.max(start));
        if from >= flushed {
            return Ok(());
        }
        let known = seen.map(|seen| seen.reached).filter(|reached| reached.offset == from);
        let mut reached = reaches(disk, dir, from, known);
        if reached.offset < flushed && known.is_some() {
            // It may have been cut and written anew meanwhile.
            reached = reaches(disk, dir, from, None);
        }
        self.seen.insert(key, Seen { life: sight.life, flushed, reached });
        if reached.offset < flushed {
            let (node, id) = key;
            return Err(format!(
                "on disk: {node} says {id:?} is on disk up to {flushed}, from {from} on it is up to {}",
                reached.offset
            ));
        }
        Ok(())
    }
}

/// Up to where the log has no gap from here on, of what is on disk for good.
fn reaches(disk: &SimDisk, dir: &Path, from: Offset, known: Option<Reached>) -> Reached {
    let names = disk.durable_names(dir, ".log");
    let base = |name: &String| Some((name.trim_end_matches(".log").parse::<i64>().ok()?, name.clone()));
    let mut segments: Vec<(i64, String)> = names.iter().filter_map(base).collect();
    segments.sort_unstable();
    let mut reached = known.unwrap_or_else(|| {
        // The last one that begins at or below, and all that follow.
        let last = segments.iter().rev().find(|(base, _)| *base <= from.0).or(segments.first());
        Reached { offset: from, segment: last.map_or(0, |(base, _)| *base), position: 0 }
    });
    let first = segments.partition_point(|(base, _)| *base < reached.segment);
    for (base, name) in &segments[first..] {
        if *base > reached.segment {
            (reached.segment, reached.position) = (*base, 0);
        }
        let bytes = disk.durable(&dir.join(name), reached.position).unwrap_or_default();
        for batch in Batches::new(&bytes, PartialTail::Ignore) {
            let Ok(batch) = batch else { break };
            let header = batch.header;
            if header.next_offset() > reached.offset {
                if header.base_offset > reached.offset || batch.check_crc().is_err() {
                    return reached;
                }
                reached.offset = header.next_offset();
            }
            reached.position += batch.bytes.len();
        }
    }
    reached
}
