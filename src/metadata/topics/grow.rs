//! Adding partitions to topics.

use super::TopicImage;
use super::assignment::{AssignmentError, MAX_PARTITIONS_PER_OPERATION, ReplicationError, assigned, placed};
use super::create::TooManyPartitions;
use super::partition::PartitionRegistration;
use crate::metadata::{Decision, Image};
use crate::types::{NodeId, PartitionIndex};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How many partitions a topic is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MorePartitions {
    pub topic: Arc<str>,
    /// All partitions, not only the new ones.
    pub count: i32,
    /// The replicas of each new partition, if the client chooses them.
    pub assignments: Option<Vec<Vec<NodeId>>>,
}

/// Why a topic gets no more partitions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreatePartitionsError {
    #[error("the topic is named more than once")]
    Duplicate,
    #[error("no topic has this name")]
    UnknownTopic,
    #[error("topic already has {0} partition(s)")]
    SameCount(usize),
    #[error("topic {topic} has {current} partition(s); {wanted} would not be an increase")]
    FewerPartitions { topic: Arc<str>, current: usize, wanted: i32 },
    #[error("{added} partition(s) are to be added, but {assigned} are assigned")]
    WrongNumberOfAssignments { added: usize, assigned: usize },
    #[error(transparent)]
    Assignment(#[from] AssignmentError),
    #[error(transparent)]
    Replication(#[from] ReplicationError),
}

/// The outcome for each name, in the order of the request; a name that comes twice has one outcome.
pub type CreatePartitionsReply =
    Result<Vec<(Arc<str>, Result<(), CreatePartitionsError>)>, TooManyPartitions>;

/// Adds partitions.
pub fn create_partitions(
    image: &Image,
    topics: &[MorePartitions],
    validate_only: bool,
    seed: u64,
) -> Decision<CreatePartitionsReply> {
    let mut seen = BTreeSet::new();
    let duplicates: BTreeSet<&Arc<str>> =
        topics.iter().map(|topic| &topic.topic).filter(|name| !seen.insert(*name)).collect();
    let mut answered = BTreeSet::new();
    let mut records = Vec::new();
    let mut outcomes = Vec::new();
    for (position, topic) in (0u64..).zip(topics).filter(|(_, topic)| answered.insert(&topic.topic)) {
        let added = if duplicates.contains(&topic.topic) {
            Err(CreatePartitionsError::Duplicate)
        } else {
            let room = MAX_PARTITIONS_PER_OPERATION - records.len();
            match new_partitions(image, topic, room, seed.wrapping_add(position)) {
                Some(added) => added,
                None => return Decision::reply(Err(TooManyPartitions)),
            }
        };
        let outcome =
            added.map(|(existing, partitions)| {
                let (first, version) = (existing.partition_count() as i32, image.metadata_version());
                records.extend((first..).zip(&partitions).map(|(index, partition)| {
                    partition.to_record(existing.id, PartitionIndex(index), version)
                }));
            });
        outcomes.push((Arc::clone(&topic.topic), outcome));
    }
    if validate_only {
        records.clear();
    }
    Decision::new(records, Ok(outcomes))
}

type Added<'a> = (&'a TopicImage, Vec<PartitionRegistration>);

/// The new partitions of one topic; none when they are more than there is room for.
fn new_partitions<'a>(
    image: &'a Image,
    topic: &MorePartitions,
    room: usize,
    seed: u64,
) -> Option<Result<Added<'a>, CreatePartitionsError>> {
    let (existing, added) = match check(image, topic) {
        Ok((_, added)) if added > room => return None,
        Ok(checked) => checked,
        Err(error) => return Some(Err(error)),
    };
    let replication_factor =
        existing.partitions().next().map_or(0, |(_, partition)| partition.replicas.len());
    let partitions = match &topic.assignments {
        Some(assignments) => (existing.partition_count() as i32..)
            .zip(assignments)
            .map(|(index, replicas)| {
                assigned(image, PartitionIndex(index), replicas, Some(replication_factor))
            })
            .collect::<Result<Vec<_>, _>>()
            .map_err(CreatePartitionsError::from),
        None => placed(image, added, replication_factor as i16, seed).map_err(CreatePartitionsError::from),
    };
    Some(partitions.map(|partitions| (existing, partitions)))
}

/// The topic, and how many partitions it is to get.
fn check<'a>(
    image: &'a Image,
    topic: &MorePartitions,
) -> Result<(&'a TopicImage, usize), CreatePartitionsError> {
    let existing = image.topics.by_name(&topic.topic).ok_or(CreatePartitionsError::UnknownTopic)?;
    let current = existing.partition_count();
    let added = match usize::try_from(topic.count) {
        Ok(count) if count > current => count - current,
        Ok(count) if count == current => return Err(CreatePartitionsError::SameCount(current)),
        _ => {
            let (topic, wanted) = (Arc::clone(&topic.topic), topic.count);
            return Err(CreatePartitionsError::FewerPartitions { topic, current, wanted });
        }
    };
    match &topic.assignments {
        Some(assignments) if assignments.len() != added => {
            Err(CreatePartitionsError::WrongNumberOfAssignments { added, assigned: assignments.len() })
        }
        _ => Ok((existing, added)),
    }
}
