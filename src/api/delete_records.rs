//! DeleteRecords: v0-2 (KIP-107)
//!
//! Behaviour: moves the log start of each partition up to the offset asked for (-1: the high watermark) and answers with the
//! low watermark that all its replicas have reached; waits for them up to the request's time limit. Internal topics are
//! not for clients to delete from.

use super::topic_view::{is_internal, topic_name};
use super::{Api, Call, Request};
use crate::broker::messages::DeleteRecordsError;
use crate::replica::AckError;
use crate::types::{ErrorCode, LeaderEpoch, Offset};
use crate::wire::messages::DeleteRecordsRequest;
use crate::wire::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsResponse, DeleteRecordsTopicResult,
};

pub async fn handle(api: &Api, _: &Call, request: Request<DeleteRecordsRequest>) -> DeleteRecordsResponse {
    let request = request.body;
    let image = api.metadata.image();
    let (mut topics, mut deletes) = (Vec::new(), Vec::new());
    for topic in &request.topics {
        let mut partitions = Vec::new();
        for asked in &topic.partitions {
            let name = topic.name.as_str();
            let led = api.led_by_name(&image, name, asked.partition_index, LeaderEpoch::UNKNOWN);
            let refused = match led {
                Ok(_) if is_internal(name) => ErrorCode::InvalidTopicException,
                Ok(led) => {
                    let upto = (asked.offset != Offset::UNKNOWN.0).then_some(Offset(asked.offset));
                    deletes.push((led.partition.id, upto));
                    ErrorCode::None
                }
                Err(error) => error,
            };
            partitions.push(result(asked.partition_index, Offset::UNKNOWN, refused));
        }
        topics.push(
            DeleteRecordsTopicResult::default()
                .with_name(topic_name(topic.name.as_str()))
                .with_partitions(partitions),
        );
    }
    let results =
        api.broker().partitions.delete_records(i64::from(request.timeout_ms), deletes).await.all().await;
    let accepted = topics
        .iter_mut()
        .flat_map(|topic| &mut topic.partitions)
        .filter(|partition| partition.error_code == ErrorCode::None.code());
    for (slot, outcome) in accepted.zip(results) {
        *slot = match outcome {
            Ok(low_watermark) => result(slot.partition_index, low_watermark, ErrorCode::None),
            Err(error) => result(slot.partition_index, Offset::UNKNOWN, classify(&error)),
        };
    }
    DeleteRecordsResponse::default().with_topics(topics)
}

fn result(partition: i32, low_watermark: Offset, error: ErrorCode) -> DeleteRecordsPartitionResult {
    DeleteRecordsPartitionResult::default()
        .with_partition_index(partition)
        .with_low_watermark(low_watermark.0)
        .with_error_code(error.code())
}

fn classify(error: &DeleteRecordsError) -> ErrorCode {
    match error {
        DeleteRecordsError::NotHosted | DeleteRecordsError::NotLeader | DeleteRecordsError::ShuttingDown => {
            ErrorCode::NotLeaderOrFollower
        }
        DeleteRecordsError::Offline | DeleteRecordsError::Log(_) => ErrorCode::KafkaStorageError,
        DeleteRecordsError::CompactedTopic => ErrorCode::PolicyViolation,
        DeleteRecordsError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        DeleteRecordsError::Ack(AckError::TimedOut) => ErrorCode::RequestTimedOut,
        DeleteRecordsError::Ack(AckError::NotLeader) => ErrorCode::NotLeaderOrFollower,
        DeleteRecordsError::Ack(AckError::NotEnoughReplicasAfterAppend) => {
            ErrorCode::NotEnoughReplicasAfterAppend
        }
    }
}
