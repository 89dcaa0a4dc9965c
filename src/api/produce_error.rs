//! The error code of an append that failed, and which of its records are to blame.

use crate::broker::messages::ProduceError;
use crate::replica::AckError;
use crate::storage::log::AppendError;
use crate::storage::log::producer_state::ProducerError;
use crate::storage::log::validate::{Rejected, ValidationError};
use crate::types::ErrorCode;

/// The code, and the records that were refused by their index in the batch.
pub fn classify(error: &ProduceError) -> (ErrorCode, Vec<(i32, Option<String>)>) {
    let code = match error {
        ProduceError::NotHosted | ProduceError::NotLeader | ProduceError::ShuttingDown => {
            ErrorCode::NotLeaderOrFollower
        }
        ProduceError::Offline => ErrorCode::KafkaStorageError,
        ProduceError::NotEnoughReplicas(_) => ErrorCode::NotEnoughReplicas,
        ProduceError::Append(error) => return append(error),
        ProduceError::Ack(AckError::NotEnoughReplicasAfterAppend) => ErrorCode::NotEnoughReplicasAfterAppend,
        ProduceError::Ack(AckError::NotLeader) => ErrorCode::NotLeaderOrFollower,
        ProduceError::Ack(AckError::TimedOut) => ErrorCode::RequestTimedOut,
    };
    (code, Vec::new())
}

fn append(error: &AppendError) -> (ErrorCode, Vec<(i32, Option<String>)>) {
    let code = match error {
        AppendError::Log(_) => ErrorCode::KafkaStorageError,
        AppendError::Validation(error) => return validation(error),
        AppendError::Producer(error) => producer(error),
        AppendError::LargerThanSegment { .. } => ErrorCode::RecordListTooLarge,
        // What only a follower can meet.
        AppendError::Batch(_) | AppendError::Empty | AppendError::OutOfOrder { .. } => {
            ErrorCode::UnknownServerError
        }
    };
    (code, Vec::new())
}

fn validation(error: &ValidationError) -> (ErrorCode, Vec<(i32, Option<String>)>) {
    let records = |rejected: &Rejected| {
        rejected.errors.iter().map(|record| (record.index, Some(record.message.clone()))).collect()
    };
    match error {
        ValidationError::Corrupt(_) => (ErrorCode::CorruptMessage, Vec::new()),
        ValidationError::Invalid(_) => (ErrorCode::InvalidRecord, Vec::new()),
        ValidationError::Records(rejected) => (ErrorCode::InvalidRecord, records(rejected)),
        ValidationError::Timestamps(rejected) => (ErrorCode::InvalidTimestamp, records(rejected)),
        ValidationError::TooLarge { .. } => (ErrorCode::MessageTooLarge, Vec::new()),
        ValidationError::UnknownCompression(_) => (ErrorCode::UnsupportedCompressionType, Vec::new()),
        ValidationError::Recompress(_) => (ErrorCode::UnknownServerError, Vec::new()),
    }
}

fn producer(error: &ProducerError) -> ErrorCode {
    match error {
        ProducerError::Fenced { .. } => ErrorCode::InvalidProducerEpoch,
        ProducerError::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
        ProducerError::NotTransactional { .. } | ProducerError::Unverified { .. } => {
            ErrorCode::InvalidTxnState
        }
        ProducerError::CoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
        ProducerError::Marker(_) => ErrorCode::InvalidRecord,
    }
}
