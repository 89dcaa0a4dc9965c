//! AssignReplicasToDirs: v0 (KIP-858)
//!
//! Behaviour: takes down in which of its log directories a broker has its replicas. A replica in a directory that the
//! broker does not have online leaves the in-sync set. Only for other brokers than ours, which decide on the metadata by
//! themselves.

use super::refusal::Refusal;
use super::{Api, Call, Request};
use crate::metadata::Image;
use crate::metadata::topics::{AssignDirectoryError, assign_directories};
use crate::types::{BrokerEpoch, DirectoryId, ErrorCode, NodeId, PartitionIndex, TopicIdPartition};
use crate::wire::messages::AssignReplicasToDirsRequest;
use crate::wire::messages::assign_replicas_to_dirs_request::DirectoryData;
use crate::wire::messages::assign_replicas_to_dirs_response as response;

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<AssignReplicasToDirsRequest>,
) -> response::AssignReplicasToDirsResponse {
    let request = request.body;
    let refused =
        |code: ErrorCode| response::AssignReplicasToDirsResponse::default().with_error_code(code.code());
    if !api.metadata.image().metadata_version().has_directories() {
        return refused(ErrorCode::UnsupportedVersion);
    }
    let (broker, epoch) = (NodeId(request.broker_id.0), BrokerEpoch(request.broker_epoch));
    let assignments: Vec<_> = request.directories.iter().flat_map(assignments_of).collect();
    let defaults = api.config.at(&api.metadata.image()).election_defaults();
    let decide = move |image: &Image| assign_directories(image, broker, epoch, &assignments, defaults);
    match api.metadata.run(decide).await.map_err(Refusal::from).and_then(|r| r.map_err(Refusal::from)) {
        Ok(outcomes) => {
            let mut outcomes = outcomes.into_iter().map(|(_, outcome)| outcome);
            let directories = request.directories.iter();
            let told = directories.map(|directory| answer(directory, &mut outcomes)).collect();
            response::AssignReplicasToDirsResponse::default().with_directories(told)
        }
        Err(refusal) => {
            tracing::info!(%broker, reason = refusal.message, "no directories are assigned");
            refused(refusal.code)
        }
    }
}

fn assignments_of(directory: &DirectoryData) -> impl Iterator<Item = (TopicIdPartition, DirectoryId)> {
    directory.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| {
            let partition = PartitionIndex(partition.partition_index);
            (TopicIdPartition { topic_id: topic.topic_id, partition }, directory.id)
        })
    })
}

/// The outcomes come in the order of the request.
fn answer(
    directory: &DirectoryData,
    outcomes: &mut impl Iterator<Item = Result<(), AssignDirectoryError>>,
) -> response::DirectoryData {
    let topics = directory.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().zip(&mut *outcomes).map(|(partition, outcome)| {
            let error = match outcome {
                Ok(()) => ErrorCode::None,
                Err(AssignDirectoryError::UnknownTopic) => ErrorCode::UnknownTopicId,
                Err(AssignDirectoryError::UnknownPartition) => ErrorCode::UnknownTopicOrPartition,
                Err(AssignDirectoryError::NotAReplica) => ErrorCode::NotLeaderOrFollower,
            };
            response::PartitionData::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(error.code())
        });
        response::TopicData::default().with_topic_id(topic.topic_id).with_partitions(partitions.collect())
    });
    response::DirectoryData::default().with_id(directory.id).with_topics(topics.collect())
}
