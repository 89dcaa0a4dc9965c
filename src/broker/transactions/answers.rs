//! What brokers answer to markers and to questions about transactions.

use super::inquiry::NotPart;
use crate::types::{ErrorCode, TopicPartition};
use crate::wire::messages::add_partitions_to_txn_response::AddPartitionsToTxnResponse;
use crate::wire::messages::write_txn_markers_response::WritableTxnMarkerResult;

/// What became of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Done,
    Later,
    /// The partition knows a producer or a coordinator of a later epoch.
    Fenced,
}

/// What became of the markers of one transaction, by partition.
pub(super) fn written(result: &WritableTxnMarkerResult) -> Vec<(TopicPartition, Written)> {
    let partitions = result.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| {
            let name = TopicPartition::new(topic.name.as_str(), partition.partition_index);
            let written = match ErrorCode::from_code(partition.error_code) {
                Some(ErrorCode::None) => Written::Done,
                Some(ErrorCode::InvalidProducerEpoch | ErrorCode::TransactionCoordinatorFenced) => {
                    Written::Fenced
                }
                _ => Written::Later,
            };
            (name, written)
        })
    });
    partitions.collect()
}

/// The partitions that are not part of the transaction, and why.
pub(super) fn not_part(
    response: &AddPartitionsToTxnResponse,
) -> Result<Vec<(TopicPartition, NotPart)>, NotPart> {
    if let Some(reason) = reason(response.error_code) {
        return Err(reason);
    }
    let topics = response.results_by_transaction.iter().flat_map(|result| &result.topic_results);
    let partitions = topics.flat_map(|topic| {
        topic.results_by_partition.iter().filter_map(|partition| {
            let name = TopicPartition::new(topic.name.as_str(), partition.partition_index);
            reason(partition.partition_error_code).map(|reason| (name, reason))
        })
    });
    Ok(partitions.collect())
}

fn reason(code: i16) -> Option<NotPart> {
    Some(match ErrorCode::from_code(code) {
        Some(ErrorCode::None) => return None,
        Some(ErrorCode::ProducerFenced | ErrorCode::InvalidProducerEpoch) => NotPart::Fenced,
        Some(ErrorCode::TransactionAbortable) => NotPart::NotAdded,
        Some(ErrorCode::InvalidProducerIdMapping) => NotPart::UnknownProducer,
        Some(ErrorCode::ConcurrentTransactions) => NotPart::Concurrent,
        Some(
            ErrorCode::NotCoordinator
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::CoordinatorLoadInProgress,
        ) => NotPart::Unanswered,
        Some(ErrorCode::UnknownTopicOrPartition | ErrorCode::OperationNotAttempted) => {
            NotPart::UnknownPartition
        }
        _ => NotPart::Refused,
    })
}
