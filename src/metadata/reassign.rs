//! AlterPartitionReassignments and ListPartitionReassignments: other replicas for a partition, step by step. While a
//! reassignment is under way the partition has the old and the new replicas; it is complete when a leader reports the
//! new ones in sync (`alter_partition`), at once if they are. It owns what to add and to remove, and what a cancelled
//! reassignment goes back to. Invariant: with one exception, which needs a topic that allows unclean leaders, no
//! replica in sync is given up before another is there.
//!
//! A reassignment that replaces one under way is judged by the replicas from before both: what was being added and is
//! wanted again is still waited for, and what was being removed and is wanted again stays. Kafka keeps the old lists
//! where the new ones would be empty.

use super::election::{ElectionDefaults, unclean_is_allowed};
use super::partition_change::PartitionChange;
use super::topics::{
    AssignmentError, MAX_PARTITIONS_PER_OPERATION, PartitionRegistration, TooManyPartitions, TopicImage,
    check_assigned,
};
use super::{Decision, Draft, Image, Record};
use crate::types::{NodeId, PartitionIndex, TopicPartition};
use std::sync::Arc;

/// Which replicas a partition is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reassignment {
    pub partition: TopicPartition,
    /// None: what is under way is cancelled.
    pub replicas: Option<Vec<NodeId>>,
}

/// Why a partition is not reassigned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReassignError {
    #[error("no topic has this name")]
    UnknownTopic,
    #[error("the topic has no such partition")]
    UnknownPartition,
    #[error("no reassignment is under way")]
    NoneInProgress,
    #[error(transparent)]
    Assignment(#[from] AssignmentError),
    #[error("the replication factor would change from {from} to {to}")]
    ReplicationFactor { from: usize, to: usize },
    #[error("all replicas in sync are being added, so going back would need an unclean leader election")]
    UncleanRevert,
}

/// The outcome for each partition, in the order of the request.
pub type ReassignReply = Result<Vec<(TopicPartition, Result<(), ReassignError>)>, TooManyPartitions>;

/// Begins, replaces and cancels reassignments.
pub fn reassign(
    image: &Image,
    reassignments: &[Reassignment],
    allow_replication_factor_change: bool,
    defaults: ElectionDefaults,
) -> Decision<ReassignReply> {
    let mut draft = Draft::new(image);
    let mut outcomes = Vec::with_capacity(reassignments.len());
    for Reassignment { partition: at, replicas } in reassignments {
        let record = find(&draft.image, at).and_then(|(topic, partition)| {
            let change = PartitionChange::new(&draft.image, topic, at.partition, partition, defaults);
            match replicas {
                Some(target) => {
                    check_assigned(&draft.image, at.partition, target)?;
                    if !allow_replication_factor_change {
                        check_replication_factor(partition, target)?;
                    }
                    Ok(change_to(change, partition, target))
                }
                None => {
                    let unclean = unclean_is_allowed(&draft.image.configs, topic, defaults);
                    cancel(change, partition, unclean)
                }
            }
        });
        let outcome = record.map(|record| record.into_iter().for_each(|record| draft.add(record)));
        outcomes.push((at.clone(), outcome));
        if draft.records.len() > MAX_PARTITIONS_PER_OPERATION {
            return Decision::reply(Err(TooManyPartitions));
        }
    }
    draft.decision(Ok(outcomes))
}

fn find<'a>(
    image: &'a Image,
    at: &TopicPartition,
) -> Result<(&'a TopicImage, &'a PartitionRegistration), ReassignError> {
    let topic = image.topics.by_name(&at.topic).ok_or(ReassignError::UnknownTopic)?;
    let partition = topic.partition(at.partition).ok_or(ReassignError::UnknownPartition)?;
    Ok((topic, partition))
}

/// The replicas that are in `these` and not in `those`.
fn without(these: &[NodeId], those: &[NodeId]) -> Vec<NodeId> {
    these.iter().copied().filter(|id| !those.contains(id)).collect()
}

/// What is compared with the target is what the partition has when no reassignment is under way, and else what it will
/// have when that is complete.
fn check_replication_factor(
    partition: &PartitionRegistration,
    target: &[NodeId],
) -> Result<(), ReassignError> {
    let (from, to) = (without(&partition.replicas, &partition.removing).len(), target.len());
    if from == to { Ok(()) } else { Err(ReassignError::ReplicationFactor { from, to }) }
}

fn change_to(
    change: PartitionChange<'_>,
    partition: &PartitionRegistration,
    target: &[NodeId],
) -> Option<Record> {
    let original = without(&partition.replicas, &partition.adding);
    let mut adding = without(target, &original);
    let mut removing = without(&partition.replicas, target);
    adding.sort_unstable();
    removing.sort_unstable();
    // The new replicas come first, so that the preferred leader is the one of afterwards.
    let replicas = target.iter().chain(&removing).copied().collect();
    change.replicas(replicas, adding, removing).record()
}

fn cancel(
    change: PartitionChange<'_>,
    partition: &PartitionRegistration,
    unclean_allowed: bool,
) -> Result<Option<Record>, ReassignError> {
    if !partition.is_reassigning() {
        return Err(ReassignError::NoneInProgress);
    }
    let replicas = without(&partition.replicas, &partition.adding);
    let mut isr = without(&partition.isr, &partition.adding);
    if isr.is_empty() {
        if !unclean_allowed {
            return Err(ReassignError::UncleanRevert);
        }
        isr.extend(replicas.first());
    }
    Ok(change.unclean_if_allowed().isr(isr).replicas(replicas, Vec::new(), Vec::new()).record())
}

/// A reassignment under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OngoingReassignment {
    pub partition: TopicPartition,
    /// The old replicas and the new ones.
    pub replicas: Vec<NodeId>,
    pub adding: Vec<NodeId>,
    pub removing: Vec<NodeId>,
}

/// The reassignments under way, of all partitions or of some; whatever does not exist has none.
pub fn ongoing_reassignments(
    image: &Image,
    of: Option<&[(Arc<str>, Vec<PartitionIndex>)]>,
) -> Vec<OngoingReassignment> {
    let mut found = Vec::new();
    match of {
        None => {
            for topic in image.topics.iter() {
                found.extend(topic.partitions().filter_map(|(index, _)| ongoing(topic, index)));
            }
        }
        Some(of) => {
            for (name, indexes) in of {
                let topic = image.topics.by_name(name).into_iter();
                found.extend(topic.flat_map(|topic| indexes.iter().filter_map(|i| ongoing(topic, *i))));
            }
        }
    }
    found
}

fn ongoing(topic: &TopicImage, index: PartitionIndex) -> Option<OngoingReassignment> {
    let partition = topic.partition(index).filter(|partition| partition.is_reassigning())?;
    Some(OngoingReassignment {
        partition: TopicPartition { topic: topic.name.clone(), partition: index },
        replicas: partition.replicas.clone(),
        adding: partition.adding.clone(),
        removing: partition.removing.clone(),
    })
}
