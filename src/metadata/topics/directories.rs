//! A broker with several log directories tells in which of them its replicas are (KIP-858).

use crate::metadata::brokers::{BrokerEpochError, check_epoch};
use crate::metadata::record::Record;
use crate::metadata::{Decision, Image};
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

/// Takes down where replicas of `broker` are.
pub fn assign_directories(
    image: &Image,
    broker: NodeId,
    epoch: BrokerEpoch,
    assignments: &[(TopicIdPartition, DirectoryId)],
) -> Decision<AssignDirectoriesReply> {
    if let Err(error) = check_epoch(image, broker, epoch) {
        return Decision::reply(Err(error));
    }
    let mut records = Vec::new();
    let outcomes = assignments
        .iter()
        .map(|&(partition, directory)| {
            let record = assign_one(image, broker, partition, directory);
            (partition, record.map(|record| records.extend(record)))
        })
        .collect();
    Decision::new(records, Ok(outcomes))
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
