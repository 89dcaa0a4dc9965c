//! Acknowledged records survive while one in-sync replica does: what was acknowledged with acks=all is committed where it was
//! said to be, and whoever comes to lead a partition has all that is committed.

use std::collections::BTreeMap;

use super::{Broken, Sight};
use crate::broker::partitions::Role;
use crate::sim::history::{History, entries};
use crate::types::{LeaderEpoch, NodeId, Offset, TopicIdPartition};

#[derive(Debug, Default)]
pub struct Acknowledged {
    /// The terms of office that have been looked at.
    seen: BTreeMap<(NodeId, TopicIdPartition), (u64, LeaderEpoch)>,
}

impl Acknowledged {
    pub fn on_acknowledged(
        &mut self,
        history: &mut History,
        id: TopicIdPartition,
        base: Offset,
        crc: u32,
    ) -> Result<(), Broken> {
        history.acknowledgements += 1;
        let known = history.of(id);
        known.acknowledged.push((base, crc));
        let there = known.from(base).first();
        match there {
            _ if base < known.deleted => Ok(()),
            Some(entry) if entry.base == base && entry.crc == crc => Ok(()),
            _ => Err(format!("acknowledged: {id:?} has at {base} not batch {crc:08x} but {there:?}")),
        }
    }

    /// A leader that is new in office has everything.
    pub fn on_sight(&mut self, history: &History, sight: &Sight<'_>) -> Result<(), Broken> {
        let term = (sight.life, sight.leadership.leader_epoch);
        if sight.leadership.role != Role::Leader || self.seen.get(&(sight.node, sight.id)) == Some(&term) {
            return Ok(());
        }
        self.seen.insert((sight.node, sight.id), term);
        let Some(known) = history.partitions.get(&sight.id) else { return Ok(()) };
        let (node, id, end) = (sight.node, sight.id, known.end());
        if sight.view.log_end < end {
            let has = sight.view.log_end;
            return Err(format!(
                "acknowledged: {node} leads {id:?} with a log up to {has}, committed is {end}"
            ));
        }
        let from = sight.view.log_start.max(known.deleted);
        let Some(found) = entries(sight.view, from, end) else { return Ok(()) };
        let expected = known.from(from);
        match found.iter().zip(expected).find(|(found, expected)| found != expected) {
            None => Ok(()),
            Some((found, expected)) => {
                Err(format!("acknowledged: {node} leads {id:?} with {found:?}, committed is {expected:?}"))
            }
        }
    }
}
