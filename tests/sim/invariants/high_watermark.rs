//! The high watermark never falls while a process lives, be it in one epoch or over several: no leader here may lack what is
//! committed.

use std::collections::BTreeMap;

use super::{Broken, Sight};
use crate::types::{NodeId, Offset, TopicIdPartition};

#[derive(Debug, Default)]
pub struct HighWatermark {
    seen: BTreeMap<(NodeId, TopicIdPartition), (u64, Offset)>,
}

impl HighWatermark {
    pub fn check(&mut self, sight: &Sight<'_>) -> Result<(), Broken> {
        let now = sight.view.high_watermark;
        let seen = self.seen.entry((sight.node, sight.id)).or_insert((sight.life, now));
        if seen.0 == sight.life && now < seen.1 {
            let (node, id, before) = (sight.node, sight.id, seen.1);
            return Err(format!("high watermark: that of {id:?} on {node} falls from {before} to {now}"));
        }
        *seen = (sight.life, now);
        Ok(())
    }

    pub fn forget(&mut self, which: impl Fn((NodeId, TopicIdPartition)) -> bool) {
        self.seen.retain(|key, _| !which(*key));
    }
}
