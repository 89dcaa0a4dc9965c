//! Acknowledged records survive while one in-sync replica does: what was acknowledged with acks=all is committed where it was
//! said to be, and whoever comes to lead a partition has all that is committed.

use std::collections::BTreeMap;

use super::{Broken, Sight};
use crate::broker::partitions::Role;
use crate::metadata::Image;
use crate::sim::history::{History, PartitionHistory, entries};
use crate::types::{LeaderEpoch, NodeId, Offset, TopicIdPartition};

#[derive(Debug, Default)]
pub struct Acknowledged {
    /// The terms of office that have been looked at.
    seen: BTreeMap<(NodeId, TopicIdPartition), (u64, LeaderEpoch)>,
    /// What a leader acknowledged in its last moment, before anybody could see that it is committed.
    owed: Vec<(TopicIdPartition, Offset, u32)>,
}

impl Acknowledged {
    /// `leads`: whoever has acknowledged it still shows that it leads.
    pub fn on_acknowledged(
        &mut self,
        history: &mut History,
        id: TopicIdPartition,
        base: Offset,
        crc: u32,
        leads: bool,
    ) -> Result<(), Broken> {
        history.acknowledgements += 1;
        let known = history.of(id);
        known.acknowledged.push((base, crc));
        if !leads && base >= known.end() {
            self.owed.push((id, base, crc));
            return Ok(());
        }
        Self::check(known, id, base, crc)
    }

    fn check(known: &PartitionHistory, id: TopicIdPartition, base: Offset, crc: u32) -> Result<(), Broken> {
        match known.from(base).first() {
            _ if base < known.deleted => Ok(()),
            Some(entry) if entry.base == base && entry.crc == crc => Ok(()),
            there => Err(format!("acknowledged: {id:?} has at {base} not batch {crc:08x} but {there:?}")),
        }
    }

    /// More of a partition is committed.
    pub fn on_committed(&mut self, history: &History, id: TopicIdPartition) -> Result<(), Broken> {
        let Some(known) = history.partitions.get(&id) else { return Ok(()) };
        let mut due = self.owed.extract_if(.., |(of, base, _)| *of == id && *base < known.end());
        due.try_for_each(|(id, base, crc)| Self::check(known, id, base, crc))
    }

    /// History is given up.
    pub fn forget(&mut self, which: TopicIdPartition) {
        self.owed.retain(|(id, ..)| *id != which);
    }

    /// Nothing is written any more.
    pub fn at_rest(&self, image: &Image) -> Result<(), Broken> {
        let exists = |id: &TopicIdPartition| image.topics.partition(id.topic_id, id.partition).is_some();
        match self.owed.iter().find(|(id, ..)| exists(id)) {
            Some((id, base, crc)) => Err(format!("acknowledged: {id:?} has nothing at {base} for {crc:08x}")),
            None => Ok(()),
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
