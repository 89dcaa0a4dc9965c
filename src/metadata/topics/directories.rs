//! A broker with several log directories tells in which of them its replicas are (KIP-858).

use crate::metadata::brokers::{BrokerEpochError, check_epoch};
use crate::metadata::election::{BrokerChange, ElectionDefaults};
use crate::metadata::partition_change::PartitionChange;
use crate::metadata::record::Record;
use crate::metadata::{Decision, Draft, Image};
use crate::types::{BrokerEpoch, DirectoryId, NodeId, TopicIdPartition};
use crate::wire::messages::metadata::PartitionChangeRecord;

/// Why a replica's directory is not taken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignDirectoryError {
    #[error("no topic has this id")]
    UnknownTopic,
    #[error("the topic has no such partition")]
    UnknownPartition,
    #[error("the broker has no replica of the partition")]
    NotAReplica,
}

/// The outcome for each partition, in the order of the request.
pub type AssignDirectoriesReply =
    Result<Vec<(TopicIdPartition, Result<(), AssignDirectoryError>)>, BrokerEpochError>;

/// Takes down where replicas of `broker` are. One that is in a directory that the broker does not have online leaves the
/// ISR.
pub fn assign_directories(
    image: &Image,
    broker: NodeId,
    epoch: BrokerEpoch,
    assignments: &[(TopicIdPartition, DirectoryId)],
    defaults: ElectionDefaults,
) -> Decision<AssignDirectoriesReply> {
    let registration = match check_epoch(image, broker, epoch) {
        Ok(registration) => registration,
        Err(error) => return Decision::reply(Err(error)),
    };
    let mut draft = Draft::new(image);
    let mut outcomes = Vec::with_capacity(assignments.len());
    for &(partition, directory) in assignments {
        let outcome = assign_one(&draft.image, broker, partition, directory);
        outcomes.push((partition, outcome.map(|record| record.into_iter().for_each(|r| draft.add(r)))));
    }
    for &(partition, directory) in assignments {
        if !registration.has_online(directory) {
            let left = leaves_isr(&draft.image, broker, partition, defaults);
            left.into_iter().for_each(|record| draft.add(record));
        }
    }
    draft.decision(Ok(outcomes))
}

/// What the loss of one replica makes of a partition.
fn leaves_isr(
    image: &Image,
    broker: NodeId,
    at: TopicIdPartition,
    defaults: ElectionDefaults,
) -> Option<Record> {
    let topic = image.topics.by_id(at.topic_id)?;
    let partition = topic.partition(at.partition).filter(|partition| partition.isr.contains(&broker))?;
    let change = PartitionChange::new(image, topic, at.partition, partition, defaults);
    change.unclean_if_allowed().broker(BrokerChange::Leaves(broker)).record()
}

fn assign_one(
    image: &Image,
    broker: NodeId,
    at: TopicIdPartition,
    directory: DirectoryId,
) -> Result<Option<Record>, AssignDirectoryError> {
    let topic = image.topics.by_id(at.topic_id).ok_or(AssignDirectoryError::UnknownTopic)?;
    let partition = topic.partition(at.partition).ok_or(AssignDirectoryError::UnknownPartition)?;
    let position = partition.replicas.iter().position(|replica| *replica == broker);
    let position = position.ok_or(AssignDirectoryError::NotAReplica)?;
    if partition.directories[position] == directory || !image.metadata_version().has_directories() {
        return Ok(None);
    }
    let mut directories = partition.directories.clone();
    directories[position] = directory;
    let record = PartitionChangeRecord {
        partition_id: at.partition.0,
        topic_id: at.topic_id,
        directories: Some(directories),
        ..PartitionChangeRecord::default()
    };
    Ok(Some(record.into()))
}
