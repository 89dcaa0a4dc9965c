//! Elections of a leader that may lack what was committed, where the topic allows it or somebody asks for it: which
//! partitions are due, which replicas are to be asked how far their logs reach, and who wins.
//!
//! Of the replicas that live the one with the highest leader epoch wins, and among those the one whose log is longest: it
//! loses the least. That takes asking, which is not done here: [`Leaderless`] says whom, the answers come as [`LogEnds`].
//! Where nobody has answered, the first replica wins. One that was given up for its damage is asked like the others, and leads
//! only if it has answered: it is better than none, and what is damaged is not served. Invariant: nobody leads who does not live.

use super::election::{ElectionDefaults, unclean_is_allowed};
use super::partition_change::{Election, PartitionChange};
use super::topics::{TopicImage, Topics};
use super::{Decision, Draft, Image};
use crate::types::{LeaderEpoch, NodeId, Offset, PartitionIndex, TopicIdPartition, TopicPartition};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How far a log reaches. The greater one is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogEnd {
    /// Of the last record; unknown for an empty log.
    pub epoch: LeaderEpoch,
    pub offset: Offset,
}

/// How far the logs of replicas reach, of those that have answered.
pub type LogEnds = BTreeMap<TopicIdPartition, BTreeMap<NodeId, LogEnd>>;

/// Replicas that may lead a partition which has no leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidates {
    pub partition: TopicIdPartition,
    pub replicas: Vec<NodeId>,
}

/// The partitions that have no leader, followed from image to image.
#[derive(Debug, Default)]
pub struct Leaderless {
    seen: Topics,
    partitions: BTreeSet<TopicIdPartition>,
}

impl Leaderless {
    /// Takes note of what has changed. Topics that have not cost nothing.
    pub fn follow(&mut self, image: &Image) {
        for (old, new) in image.topics.changed_since(&self.seen) {
            if let Some(old) = old {
                for partition in leaderless(old) {
                    self.partitions.remove(&partition);
                }
            }
            if let Some(new) = new {
                self.partitions.extend(leaderless(new));
            }
        }
        self.seen = image.topics.clone();
    }

    /// The partitions for which any replica may be elected, with the replicas that live.
    pub fn due(&self, image: &Image, defaults: ElectionDefaults) -> Vec<Candidates> {
        let allowed = |partition: &&TopicIdPartition| {
            let topic = image.topics.by_id(partition.topic_id);
            topic.is_some_and(|topic| unclean_is_allowed(&image.configs, topic, defaults))
        };
        self.partitions.iter().filter(allowed).filter_map(|at| candidates(image, *at, defaults)).collect()
    }
}

fn leaderless(topic: &Arc<TopicImage>) -> impl Iterator<Item = TopicIdPartition> {
    let without = topic.partitions().filter(|(_, partition)| !partition.has_leader());
    without.map(|(index, _)| TopicIdPartition { topic_id: topic.id, partition: index })
}

/// Whom to ask for partitions of which somebody wants any replica to lead; all that have no leader if none is named.
pub fn candidates_of(
    image: &Image,
    partitions: Option<&[TopicPartition]>,
    defaults: ElectionDefaults,
) -> Vec<Candidates> {
    let find = |name: &str, partition: PartitionIndex| {
        let topic_id = image.topics.by_name(name)?.id;
        candidates(image, TopicIdPartition { topic_id, partition }, defaults)
    };
    match partitions {
        Some(named) => named.iter().filter_map(|at| find(&at.topic, at.partition)).collect(),
        None => {
            let all = image.topics.iter().flat_map(leaderless);
            all.filter_map(|at| candidates(image, at, defaults)).collect()
        }
    }
}

/// The replicas of a partition without a leader that may lead it; `None` when there is none to ask.
fn candidates(image: &Image, at: TopicIdPartition, defaults: ElectionDefaults) -> Option<Candidates> {
    let topic = image.topics.by_id(at.topic_id)?;
    let partition = topic.partition(at.partition).filter(|partition| !partition.has_leader())?;
    let replicas = PartitionChange::new(image, topic, at.partition, partition, defaults).candidates();
    (!replicas.is_empty()).then_some(Candidates { partition: at, replicas })
}

/// Elects the best replica for each of these partitions that still has no leader and is in a topic that allows it.
pub fn elect_unclean_leaders(
    image: &Image,
    partitions: impl Iterator<Item = TopicIdPartition>,
    ends: &LogEnds,
    defaults: ElectionDefaults,
) -> Decision<()> {
    let mut draft = Draft::new(image);
    for at in partitions {
        let Some(topic) = image.topics.by_id(at.topic_id) else { continue };
        let Some(partition) = topic.partition(at.partition) else { continue };
        if partition.has_leader() || !unclean_is_allowed(&image.configs, topic, defaults) {
            continue;
        }
        let change = PartitionChange::new(image, topic, at.partition, partition, defaults);
        if let Some(record) = change.election(Election::Unclean).log_ends(ends.get(&at)).record() {
            draft.add(record);
        }
    }
    draft.decision(())
}
