//! AddPartitionsToTxn: v0-5
//!
//! Behaviour: makes partitions part of a producer's transaction, which begins with the first of them. All of a transaction's
//! partitions are added, or none: when one does not exist, the others are OPERATION_NOT_ATTEMPTED.
//!
//! Version notes: 0-3 come from clients, for one transaction; before 2, PRODUCER_FENCED is INVALID_PRODUCER_EPOCH. From 4 on
//! they come from brokers, for several transactions, which also ask whether partitions are part of one
//! (`verify_only`); a partition that is not is TRANSACTION_ABORTABLE.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::topic_view::topic_name;
use super::transaction_coordination::refused_code;
use super::{Answer, Api, Call, Request};
use crate::coordinator::Producer;
use crate::coordinator::transaction::state::TransactionVersion;
use crate::coordinator::transaction::{AddPartitions, Command, Reply, Verify};
use crate::types::{ErrorCode, ProducerEpoch, ProducerId, TopicPartition};
use crate::wire::messages::AddPartitionsToTxnRequest;
use crate::wire::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use crate::wire::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResponse, AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
};

/// The first version that brokers speak.
const OF_BROKERS: i16 = 4;
/// The first version whose clients know PRODUCER_FENCED.
const KNOWS_FENCED: i16 = 2;

pub(crate) type Codes = Vec<(TopicPartition, ErrorCode)>;

pub async fn handle(
    api: &Arc<Api>,
    _: &Call,
    request: Request<AddPartitionsToTxnRequest>,
) -> Answer<AddPartitionsToTxnResponse> {
    let (version, request) = (request.version, request.body);
    if version < OF_BROKERS {
        let transaction = AddPartitionsToTxnTransaction::default()
            .with_transactional_id(request.v3_and_below_transactional_id)
            .with_producer_id(request.v3_and_below_producer_id)
            .with_producer_epoch(request.v3_and_below_producer_epoch)
            .with_topics(request.v3_and_below_topics);
        let codes = add(api, version, &transaction).await;
        let response = AddPartitionsToTxnResponse::default();
        return Answer::Now(response.with_results_by_topic_v3_and_below(by_topic(codes)));
    }
    // A broker asks for many transactions over one connection, and their order does not matter.
    let api = Arc::clone(api);
    Answer::Later(Box::pin(async move {
        let each = request.transactions.iter().map(|transaction| async {
            AddPartitionsToTxnResult::default()
                .with_transactional_id(transaction.transactional_id.clone())
                .with_topic_results(by_topic(add(&api, version, transaction).await))
        });
        let results = futures_util::future::join_all(each).await;
        Answer::Now(AddPartitionsToTxnResponse::default().with_results_by_transaction(results))
    }))
}

/// The code of each partition.
async fn add(api: &Api, version: i16, transaction: &AddPartitionsToTxnTransaction) -> Codes {
    let partitions = partitions_of(&transaction.topics);
    let image = api.metadata.image();
    let exists = |partition: &TopicPartition| {
        let topic = image.topics.by_name(&partition.topic);
        topic.is_some_and(|topic| topic.partition(partition.partition).is_some())
    };
    if !partitions.iter().all(exists) {
        let code = |partition: &TopicPartition| match exists(partition) {
            true => ErrorCode::OperationNotAttempted,
            false => ErrorCode::UnknownTopicOrPartition,
        };
        return partitions.iter().map(|partition| (partition.clone(), code(partition))).collect();
    }
    let id = transaction.transactional_id.as_str();
    let missing = if id.is_empty() {
        Err(ErrorCode::InvalidRequest)
    } else {
        let reply = api.ask_transaction(id, command(version, transaction, partitions.clone())).await;
        reply.and_then(|reply| missing(version, reply))
    };
    codes(partitions, &missing)
}

/// What became of each partition.
pub(crate) fn codes(
    partitions: Vec<TopicPartition>,
    missing: &Result<Vec<TopicPartition>, ErrorCode>,
) -> Codes {
    let code = |partition: &TopicPartition| match missing {
        Err(error) => *error,
        Ok(missing) if missing.contains(partition) => ErrorCode::TransactionAbortable,
        Ok(_) => ErrorCode::None,
    };
    partitions.into_iter().map(|partition| (partition.clone(), code(&partition))).collect()
}

/// What the coordinator is asked.
pub(crate) fn command(
    version: i16,
    transaction: &AddPartitionsToTxnTransaction,
    partitions: Vec<TopicPartition>,
) -> Command {
    let transactional_id = transaction.transactional_id.to_string();
    let producer = Producer {
        id: ProducerId(transaction.producer_id.0),
        epoch: ProducerEpoch(transaction.producer_epoch),
    };
    if transaction.verify_only {
        Command::Verify(Verify { transactional_id, producer, partitions })
    } else {
        // Brokers add for clients of the second generation only.
        let client_version = TransactionVersion(if version >= OF_BROKERS { 2 } else { 0 });
        Command::AddPartitions(AddPartitions { transactional_id, producer, partitions, client_version })
    }
}

/// Those of the partitions that are not part of the transaction.
pub(crate) fn missing(version: i16, reply: Reply) -> Result<Vec<TopicPartition>, ErrorCode> {
    let refused = |refused| refused_code(refused, version >= KNOWS_FENCED);
    match reply {
        Reply::AddPartitions(added) => added.map(|()| Vec::new()).map_err(refused),
        Reply::Verify(missing) => missing.map_err(refused),
        _ => Err(ErrorCode::UnknownServerError),
    }
}

pub(crate) fn partitions_of(topics: &[AddPartitionsToTxnTopic]) -> Vec<TopicPartition> {
    let partitions = topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|&index| TopicPartition::new(topic.name.as_str(), index))
    });
    partitions.collect()
}

pub(crate) fn by_topic(codes: Codes) -> Vec<AddPartitionsToTxnTopicResult> {
    let mut topics: BTreeMap<_, Vec<AddPartitionsToTxnPartitionResult>> = BTreeMap::new();
    for (TopicPartition { topic, partition }, code) in codes {
        topics.entry(topic).or_default().push(
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(partition.0)
                .with_partition_error_code(code.code()),
        );
    }
    let results = topics.into_iter().map(|(topic, results)| {
        AddPartitionsToTxnTopicResult::default()
            .with_name(topic_name(&topic))
            .with_results_by_partition(results)
    });
    results.collect()
}
