//! No sequence is duplicated and order is kept: the batches of an idempotent producer are committed at most once, and in the
//! order in which it sent them.

use std::collections::BTreeMap;

use super::Broken;
use crate::sim::history::{Entry, History};
use crate::types::{Offset, TopicIdPartition};

#[derive(Debug, Default)]
pub struct Sequences {
    /// The last batch of each idempotent producer, and where it lies.
    last: BTreeMap<(TopicIdPartition, usize), (u64, Offset)>,
}

impl Sequences {
    pub fn forget(&mut self, which: TopicIdPartition) {
        self.last.retain(|(id, _), _| *id != which);
    }

    pub fn check(&mut self, history: &History, id: TopicIdPartition, new: &[Entry]) -> Result<(), Broken> {
        for entry in new {
            let Some(sent) = history.sent.get(&entry.crc) else {
                return Err(format!("sequences: nobody sent {entry:?} of {id:?}"));
            };
            if !sent.is_idempotent {
                continue;
            }
            let last = self.last.insert((id, sent.producer), (sent.number, entry.base));
            // Who starts over after records were deleted knows their producers no more.
            let deleted = history.partitions.get(&id).map_or(Offset::ZERO, |known| known.deleted);
            if last.is_some_and(|(last, at)| last >= sent.number && at >= deleted) {
                return Err(format!("sequences: {id:?} has {sent:?} in {entry:?} after number {last:?}"));
            }
        }
        Ok(())
    }
}
