//! No sequence is duplicated and order is kept: the batches of an idempotent producer are committed at most once, and in the
//! order in which it sent them.

use std::collections::BTreeMap;

use super::Broken;
use crate::sim::history::{Entry, History};
use crate::types::TopicIdPartition;

#[derive(Debug, Default)]
pub struct Sequences {
    /// The last batch of each idempotent producer.
    last: BTreeMap<(TopicIdPartition, usize), u64>,
}

impl Sequences {
    pub fn check(&mut self, history: &History, id: TopicIdPartition, new: &[Entry]) -> Result<(), Broken> {
        for entry in new {
            let Some(sent) = history.sent.get(&entry.crc) else {
                return Err(format!("sequences: nobody sent {entry:?} of {id:?}"));
            };
            if !sent.is_idempotent {
                continue;
            }
            let last = self.last.insert((id, sent.producer), sent.number);
            if last.is_some_and(|last| last >= sent.number) {
                return Err(format!("sequences: {id:?} has {sent:?} in {entry:?} after number {last:?}"));
            }
        }
        Ok(())
    }
}
