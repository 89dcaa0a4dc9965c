//! What a produce request with transactional batches must fulfil before its batches go to their logs (KIP-98, KIP-890).
//!
//! Invariant: a batch that may begin a transaction has its coordinator's word, or nobody wants that.

use super::Api;
use crate::storage::log::producer_state::Verified;
use crate::types::ErrorCode;
use crate::wire::batch::BatchHeader;
use crate::wire::messages::ProduceRequest;

/// From this version on a partition becomes a part of the transaction by being written to.
const ADDS_PARTITIONS: i16 = 12;

/// What the log is to take for the coordinator's word, or why the request is refused.
pub fn admit(api: &Api, version: i16, request: &ProduceRequest) -> Result<Verified, ErrorCode> {
    if the_producer(request)?.is_none() {
        return Ok(Verified::No);
    }
    if request.transactional_id.is_none() {
        return Err(ErrorCode::TransactionalIdAuthorizationFailed);
    }
    if version < ADDS_PARTITIONS && !api.config.latest().broker.transaction_partition_verification_enable {
        return Ok(Verified::Waived);
    }
    Err(ErrorCode::InvalidTxnState)
}

/// The same for offsets that a transaction commits; `is_added`: the producer has added the group to its transaction before.
pub fn admit_offsets(api: &Api, is_added: bool) -> Result<(), ErrorCode> {
    if is_added && !api.config.latest().broker.transaction_partition_verification_enable {
        Ok(())
    } else {
        Err(ErrorCode::InvalidTxnState)
    }
}

/// The one producer of the request's transactional batches; `None` when there are no such batches.
fn the_producer(request: &ProduceRequest) -> Result<Option<i64>, ErrorCode> {
    let mut producer = None;
    let partitions = request.topic_data.iter().flat_map(|topic| &topic.partition_data);
    for records in partitions.filter_map(|partition| partition.records.as_deref()) {
        let Ok(header) = BatchHeader::parse(records) else { continue };
        if !header.is_transactional() {
            continue;
        }
        let this = (header.producer_id.0, header.producer_epoch.0);
        if *producer.get_or_insert(this) != this {
            return Err(ErrorCode::InvalidProducerIdMapping);
        }
    }
    Ok(producer.map(|(producer_id, _)| producer_id))
}
