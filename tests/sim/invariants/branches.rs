//! Unclean elections give up history on purpose: from then on the log of the leader that was elected counts, and whoever still
//! has the old one is held to nothing but that it comes over.
//!
//! Invariant: a partition's history is cut once for each unclean election, to what the new leader had of it.

use std::collections::BTreeMap;

use super::Sight;
use crate::broker::partitions::Role;
use crate::metadata::Image;
use crate::sim::history::{History, entries};
use crate::types::{LeaderEpoch, TopicIdPartition};

/// How a sight relates to the history that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is held to the history.
    Current,
    /// The same, and with it the history has been cut.
    Cuts,
    /// It shows a history that was given up, or nobody knows yet what the new one is.
    Old,
}

#[derive(Debug, Default)]
pub struct Branches {
    /// The unclean elections whose outcome is known.
    known: BTreeMap<TopicIdPartition, LeaderEpoch>,
}

pub fn lossy_epoch(image: &Image, id: TopicIdPartition) -> LeaderEpoch {
    let partition = image.topics.partition(id.topic_id, id.partition);
    partition.map_or(LeaderEpoch::UNKNOWN, |partition| partition.lossy_epoch)
}

impl Branches {
    /// Whether what a leader of this epoch has is of the history that counts.
    pub fn is_current(&self, image: &Image, id: TopicIdPartition, epoch: LeaderEpoch) -> bool {
        let lossy = lossy_epoch(image, id);
        epoch >= lossy && self.epoch_of(id) == lossy
    }

    fn epoch_of(&self, id: TopicIdPartition) -> LeaderEpoch {
        self.known.get(&id).copied().unwrap_or(LeaderEpoch::UNKNOWN)
    }

    pub fn standing(&mut self, history: &mut History, image: &Image, sight: &Sight<'_>) -> Standing {
        let (id, epoch) = (sight.id, sight.leadership.leader_epoch);
        let lossy = lossy_epoch(image, id);
        if lossy == LeaderEpoch::UNKNOWN {
            return Standing::Current;
        }
        let leads = sight.leadership.role == Role::Leader;
        if lossy > self.epoch_of(id) {
            let Some(has) = (leads && epoch >= lossy)
                .then(|| entries(sight.view, sight.view.log_start, sight.view.log_end))
                .flatten()
            else {
                return Standing::Old;
            };
            let known = history.of(id);
            let first = known.from(sight.view.log_start);
            let same = first.iter().zip(&has).take_while(|(one, other)| one == other).count();
            let kept = known.committed.len() - first.len() + same;
            known.committed.truncate(kept);
            self.known.insert(id, lossy);
            return Standing::Cuts;
        }
        // Who follows has come over once it has something of the time since.
        let has_joined = sight.view.epochs().latest().is_some_and(|latest| latest.epoch >= lossy);
        if epoch >= lossy && (leads || has_joined) { Standing::Current } else { Standing::Old }
    }
}
