//! The error code of an append that failed, and which of its records are to blame.

use crate::broker::messages::ProduceError;
use crate::replica::AckError;
use crate::storage::log::AppendError;
use crate::storage::log::producer_state::ProducerError;
use crate::storage::log::validate::{InvalidBatch, Rejected, ValidationError};
use crate::types::ErrorCode;

/// The code, and the records that were refused by their index in the batch.
pub fn classify(error: &ProduceError) -> (ErrorCode, Vec<(i32, Option<String>)>) {
    let code = match error {
        ProduceError::NotHosted | ProduceError::NotLeader | ProduceError::ShuttingDown => {
            ErrorCode::NotLeaderOrFollower
        }
        ProduceError::Offline => ErrorCode::KafkaStorageError,
        // Only coordinators meet it.
        ProduceError::Moved => ErrorCode::UnknownServerError,
        ProduceError::NotEnoughReplicas(_) => ErrorCode::NotEnoughReplicas,
        ProduceError::Append(error) => return append(error),
        ProduceError::Ack(AckError::NotEnoughReplicasAfterAppend, _) => {
            ErrorCode::NotEnoughReplicasAfterAppend
        }
        ProduceError::Ack(AckError::NotLeader, _) => ErrorCode::NotLeaderOrFollower,
        ProduceError::Ack(AckError::TimedOut, _) => ErrorCode::RequestTimedOut,
    };
    (code, Vec::new())
}

/// Whether the answer tells where the log starts although nothing was appended: as Kafka, for what it finds where it appends and
/// does not foresee there.
pub fn tells_log_start(error: &ProduceError) -> bool {
    use InvalidBatch::{LegacyFormat, Missing, MoreThanOne};
    match error {
        ProduceError::NotEnoughReplicas(_) => true,
        ProduceError::Append(AppendError::Validation(error)) => match error {
            ValidationError::Invalid(invalid) => !matches!(invalid, Missing | MoreThanOne | LegacyFormat(_)),
            ValidationError::Corrupt(_) | ValidationError::TooLarge { .. } => false,
            _ => true,
        },
        ProduceError::Append(AppendError::Producer(_)) => true,
        _ => false,
    }
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
        ProducerError::OutOfOrderSequence { .. } | ProducerError::PastLowestSequence { .. } => {
            ErrorCode::OutOfOrderSequenceNumber
        }
        ProducerError::NotTransactional { .. } | ProducerError::Unverified { .. } => {
            ErrorCode::InvalidTxnState
        }
        ProducerError::CoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
        ProducerError::Marker(_) => ErrorCode::InvalidRecord,
    }
}
