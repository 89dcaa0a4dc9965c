//! AlterReplicaLogDirs: v1-2 (KIP-113)
//!
//! Behaviour: begins to move replicas of this broker to other log directories, and answers when the moves have begun. A
//! replica that is in the directory already, or on its way there, is left alone; one on its way to another turns round. Of a
//! partition that is not here, the directory is remembered for the case that it comes (REPLICA_NOT_AVAILABLE, or
//! UNKNOWN_TOPIC_OR_PARTITION). While a log directory is out of service no move begins.
//!
//! Version notes: 2 is flexible.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::topic_view::topic_name;
use super::{Api, Call, Request};
use crate::broker::log_dirs::Named;
use crate::broker::moves::MoveError;
use crate::broker::partitions::Role;
use crate::types::{ErrorCode, PartitionIndex, TopicIdPartition, TopicPartition};
use crate::wire::messages::AlterReplicaLogDirsRequest;
use crate::wire::messages::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult, AlterReplicaLogDirsResponse,
};

/// The longest name of a directory.
const NAME_MAX: usize = 255;

pub async fn handle(
    api: &Arc<Api>,
    _: &Call,
    request: Request<AlterReplicaLogDirsRequest>,
) -> AlterReplicaLogDirsResponse {
    // Of a partition that is named twice, the last word counts.
    let mut wanted: BTreeMap<(&str, i32), &str> = BTreeMap::new();
    for dir in &request.body.dirs {
        for topic in &dir.topics {
            let names = topic.partitions.iter().map(|partition| (topic.name.as_str(), *partition));
            wanted.extend(names.map(|name| (name, dir.path.as_str())));
        }
    }
    let mut results: Vec<AlterReplicaLogDirTopicResult> = Vec::new();
    for ((topic, partition), path) in wanted {
        let result = AlterReplicaLogDirPartitionResult::default()
            .with_partition_index(partition)
            .with_error_code(alter(api, topic, partition, Path::new(path)).await.code());
        match results.last_mut().filter(|last| last.topic_name.as_str() == topic) {
            Some(last) => last.partitions.push(result),
            None => results.push(
                AlterReplicaLogDirTopicResult::default()
                    .with_topic_name(topic_name(topic))
                    .with_partitions(vec![result]),
            ),
        }
    }
    AlterReplicaLogDirsResponse::default().with_results(results)
}

async fn alter(api: &Api, topic: &str, partition: i32, path: &Path) -> ErrorCode {
    let broker = api.broker();
    // The directory of a copy is named `<topic>-<partition>.<32 digits>-future`.
    if format!("{topic}-{partition}.-future").len() + 32 > NAME_MAX {
        return ErrorCode::InvalidTopicException;
    }
    let target = match broker.log_dirs.named(path) {
        Named::Online(target) => target,
        Named::Offline => return ErrorCode::KafkaStorageError,
        Named::Unknown => return ErrorCode::LogDirNotFound,
    };
    let image = api.metadata.image();
    if api.config.at(&image).broker.cordons(target.path()) {
        return ErrorCode::InvalidReplicaAssignment;
    }
    let index = PartitionIndex(partition);
    let found = image.topics.by_name(topic).filter(|topic| topic.partition(index).is_some());
    let id = found.map(|topic| TopicIdPartition { topic_id: topic.id, partition: index });
    let hosted = id.and_then(|id| broker.partitions.get(&id));
    if hosted.as_ref().is_some_and(|hosted| hosted.leadership().role == Role::Offline)
        || id.is_some_and(|id| broker.partitions.is_unserved(&id))
    {
        return ErrorCode::KafkaStorageError;
    }
    let Some(hosted) = hosted else {
        broker.log_dirs.prefer(TopicPartition::new(topic, partition), &target);
        return if id.is_some() {
            ErrorCode::ReplicaNotAvailable
        } else {
            ErrorCode::UnknownTopicOrPartition
        };
    };
    match broker.moves.begin(hosted.id, target).await {
        Ok(()) => ErrorCode::None,
        Err(error) => {
            tracing::warn!(partition = %hosted.name, "is not moved to {}: {error}", path.display());
            code(&error)
        }
    }
}

fn code(error: &MoveError) -> ErrorCode {
    match error {
        MoveError::NotHosted | MoveError::ShuttingDown => ErrorCode::ReplicaNotAvailable,
        MoveError::OutOfService | MoveError::Taken | MoveError::Open(_) => ErrorCode::KafkaStorageError,
    }
}
