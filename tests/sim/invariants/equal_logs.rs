//! Logs are equal below the high watermark: what any node shows as committed is what every other shows there, then and later.
//! What is new is added to the history.

use std::collections::BTreeMap;

use super::{Broken, Sight};
use crate::sim::history::{Entry, History, entries};
use crate::types::{NodeId, Offset, TopicIdPartition};

#[derive(Debug, Default)]
pub struct EqualLogs {
    /// Up to where a process's log has been compared.
    compared: BTreeMap<(NodeId, TopicIdPartition), (u64, Offset)>,
}

impl EqualLogs {
    /// Returns what has been committed anew.
    pub fn check(&mut self, history: &mut History, sight: &Sight<'_>) -> Result<Vec<Entry>, Broken> {
        let fresh = (sight.life, Offset::ZERO);
        let compared = self.compared.entry((sight.node, sight.id)).or_insert(fresh);
        if compared.0 != sight.life {
            *compared = fresh;
        }
        let upto = sight.view.high_watermark;
        if upto <= compared.1 {
            return Ok(Vec::new());
        }
        let known = history.of(sight.id);
        let found = entries(sight.view, compared.1, upto);
        // Where some of it is damaged only what is new is looked at, and the rest once it is mended.
        let is_whole = found.is_some();
        let Some(found) = found.or_else(|| entries(sight.view, known.end(), upto)) else {
            return Ok(Vec::new());
        };
        let mut new = Vec::new();
        for entry in found {
            let end = known.end();
            if entry.base >= end {
                if entry.base != end && known.deleted < entry.base {
                    return Err(format!("equal logs: {:?} skips from {end} to {entry:?}", sight.id));
                }
                known.committed.push(entry);
                new.push(entry);
            } else if known.from(entry.base).first() != Some(&entry) {
                let (node, id) = (sight.node, sight.id);
                let other = known.from(entry.base).first();
                return Err(format!("equal logs: {id:?} has {entry:?} on {node}, committed is {other:?}"));
            }
        }
        if is_whole {
            compared.1 = upto;
        }
        Ok(new)
    }

    pub fn forget(&mut self, which: impl Fn((NodeId, TopicIdPartition)) -> bool) {
        self.compared.retain(|key, _| !which(*key));
    }
}
