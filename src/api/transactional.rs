//! What a produce request with transactional batches must fulfil before its batches go to their logs (KIP-98, KIP-890).
//!
//! Where a transaction would begin in a partition, its coordinator is asked: whether the partition is part of it, or from
//! version 12 on to make it so. `transaction.partition.verification.enable` switches the former off. Invariant: a batch that
//! may begin a transaction has its coordinator's word, or nobody wants that.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{Api, produce_error};
use crate::broker::partitions::Partitions;
use crate::broker::transactions::{Inquiry, NotPart, TransactionInquiry};
use crate::coordinator::Producer;
use crate::storage::log::producer_state::{Coordinated, FirstBatch, Guard, Verified};
use crate::types::{ErrorCode, TopicIdPartition, TopicPartition};
use crate::wire::batch::BatchHeader;
use crate::wire::messages::ProduceRequest;

/// From this version on a partition becomes a part of the transaction by being written to.
const ADDS_PARTITIONS: i16 = 12;
/// The first version whose clients know TRANSACTION_ABORTABLE.
const KNOWS_ABORTABLE: i16 = 11;

/// The transaction of a request.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub transactional_id: String,
    pub producer: Producer,
}

/// A batch on its way to a partition.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub id: TopicIdPartition,
    pub name: TopicPartition,
    pub records: Bytes,
}

/// Why a batch does not go to its log.
#[derive(Clone, Debug)]
pub struct Refused {
    pub error: ErrorCode,
    pub message: String,
}

/// The one transaction of the request's transactional batches; `None` when there are no such batches.
pub fn of_request(request: &ProduceRequest) -> Result<Option<Transaction>, ErrorCode> {
    let mut producer = None;
    let partitions = request.topic_data.iter().flat_map(|topic| &topic.partition_data);
    for records in partitions.filter_map(|partition| partition.records.as_deref()) {
        let Some(header) = transactional_header(records) else { continue };
        let this = Producer { id: header.producer_id, epoch: header.producer_epoch };
        if *producer.get_or_insert(this) != this {
            return Err(ErrorCode::InvalidProducerIdMapping);
        }
    }
    let Some(producer) = producer else { return Ok(None) };
    let id = request.transactional_id.as_ref().ok_or(ErrorCode::TransactionalIdAuthorizationFailed)?;
    Ok(Some(Transaction { transactional_id: id.to_string(), producer }))
}

fn transactional_header(records: &[u8]) -> Option<BatchHeader> {
    BatchHeader::parse(records).ok().filter(BatchHeader::is_transactional)
}

/// What each batch has to show to its log, or why it does not go there, in their order.
pub async fn verify(
    api: &Api,
    version: i16,
    transaction: &Transaction,
    batches: &[Candidate],
) -> Vec<Result<Coordinated, Refused>> {
    let adds = version >= ADDS_PARTITIONS;
    let broker = &api.config.latest().broker;
    if !adds && !broker.transaction_partition_verification_enable {
        let waived = Coordinated { verified: Verified::Waived, ..Coordinated::default() };
        return batches.iter().map(|_| Ok(waived)).collect();
    }
    let millis = |ms: i32| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    let pause = millis(broker.add_partitions_to_txn_retry_backoff_ms);
    let most = millis(broker.add_partitions_to_txn_retry_backoff_max_ms.min(broker.request_timeout_ms));
    let limit = millis(broker.request_timeout_ms);
    let give_up = Instant::now() + most;
    loop {
        let parts = (&api.broker().partitions, &api.broker().inquiry);
        let results = verify_once(parts, version, transaction, batches, limit).await;
        let is_concurrent = |result: &Result<Coordinated, Refused>| matches!(result, Err(refused) if refused.error == ErrorCode::ConcurrentTransactions);
        // The markers of the transaction before are on their way: that is quicker than the client's next attempt.
        if !adds || Instant::now() >= give_up || !results.iter().any(is_concurrent) {
            return results;
        }
        tokio::time::sleep(pause).await;
    }
}

/// Asks once, by way of the partitions' leaders and of the inquiry.
pub(crate) async fn verify_once(
    (partitions, inquiries): (&Partitions, &TransactionInquiry),
    version: i16,
    transaction: &Transaction,
    batches: &[Candidate],
    limit: Duration,
) -> Vec<Result<Coordinated, Refused>> {
    let adds = version >= ADDS_PARTITIONS;
    let mut results: Vec<Result<Coordinated, Refused>> = vec![Ok(Coordinated::default()); batches.len()];
    let first_batches = batches.iter().enumerate().filter_map(|(at, batch)| {
        let header = transactional_header(&batch.records)?;
        let (producer_id, epoch) = (header.producer_id, header.producer_epoch);
        let first = FirstBatch { producer_id, epoch, sequence: header.base_sequence, raises_epoch: adds };
        Some((at, batch.id, first))
    });
    let first_batches: Vec<_> = first_batches.collect();
    let asked = first_batches.iter().map(|(_, id, first)| (*id, *first)).collect();
    let guards = partitions.begin_verifications(asked).await;
    let mut guarded: Vec<(usize, Guard)> = Vec::new();
    for ((at, ..), guard) in first_batches.iter().zip(guards) {
        match guard {
            Ok(Some(guard)) => guarded.push((*at, guard)),
            Ok(None) => {}
            Err(error) => {
                let message = error.to_string();
                results[*at] = Err(Refused { error: produce_error::classify(&error).0, message });
            }
        }
    }
    if guarded.is_empty() {
        return results;
    }
    let inquiry = Inquiry {
        transactional_id: transaction.transactional_id.clone(),
        producer: transaction.producer,
        partitions: guarded.iter().map(|(at, _)| batches[*at].name.clone()).collect(),
        adds,
    };
    let not_part = inquiries.ask(inquiry, limit).await;
    let mut not_part: HashMap<TopicPartition, NotPart> = not_part.into_iter().collect();
    for (at, guard) in guarded {
        results[at] = match not_part.remove(&batches[at].name) {
            None => Ok(Coordinated { verified: Verified::By(guard), ..Coordinated::default() }),
            Some(reason) => Err(Refused { error: code(version, reason), message: reason.to_string() }),
        };
    }
    results
}

/// The codes that producers expect. What may be over soon is NOT_ENOUGH_REPLICAS, on which they try again without looking
/// for another leader.
fn code(version: i16, reason: NotPart) -> ErrorCode {
    match reason {
        NotPart::NotAdded if version < KNOWS_ABORTABLE => ErrorCode::InvalidTxnState,
        NotPart::NotAdded => ErrorCode::TransactionAbortable,
        NotPart::Fenced => ErrorCode::InvalidProducerEpoch,
        NotPart::UnknownProducer => ErrorCode::InvalidProducerIdMapping,
        NotPart::Concurrent if version >= ADDS_PARTITIONS => ErrorCode::ConcurrentTransactions,
        NotPart::Concurrent | NotPart::Unanswered => ErrorCode::NotEnoughReplicas,
        NotPart::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
        NotPart::Refused => ErrorCode::InvalidTxnState,
    }
}
