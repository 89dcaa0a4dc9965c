//! DescribeTransactions: v0 (KIP-664)
//!
//! Behaviour: the state of transactional ids whose coordinator is here. Of a transaction that is ending, those partitions are
//! shown whose markers are not known to be written.

use std::collections::BTreeMap;

use super::topic_view::{text, topic_name};
use super::{Api, Call, Request};
use crate::coordinator::transaction::state::Transaction;
use crate::coordinator::transaction::{Command, Reply};
use crate::types::ErrorCode;
use crate::wire::messages::describe_transactions_response::{
    DescribeTransactionsResponse, TopicData, TransactionState,
};
use crate::wire::messages::{DescribeTransactionsRequest, TransactionalId};

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<DescribeTransactionsRequest>,
) -> DescribeTransactionsResponse {
    let mut states = Vec::new();
    for id in &request.body.transactional_ids {
        states.push(match describe(api, id).await {
            Ok(transaction) => shown(id, &transaction),
            Err(error) => {
                TransactionState::default().with_transactional_id(id.clone()).with_error_code(error.code())
            }
        });
    }
    DescribeTransactionsResponse::default().with_transaction_states(states)
}

async fn describe(api: &Api, id: &TransactionalId) -> Result<Transaction, ErrorCode> {
    if id.is_empty() {
        return Err(ErrorCode::InvalidRequest);
    }
    match api.ask_transaction(id.as_str(), Command::Describe(id.to_string())).await? {
        Reply::Described(found) => found.map(|found| *found).ok_or(ErrorCode::TransactionalIdNotFound),
        _ => Err(ErrorCode::UnknownServerError),
    }
}

fn shown(id: &TransactionalId, transaction: &Transaction) -> TransactionState {
    let is_ending = transaction.state.ending().is_some();
    let partitions = if is_ending { &transaction.unmarked } else { &transaction.partitions };
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for partition in partitions {
        topics.entry(&partition.topic).or_default().push(partition.partition.0);
    }
    let topics = topics.into_iter().map(|(topic, partitions)| {
        TopicData::default().with_topic(topic_name(topic)).with_partitions(partitions)
    });
    TransactionState::default()
        .with_transactional_id(id.clone())
        .with_transaction_state(text(transaction.state.name()))
        .with_transaction_timeout_ms(transaction.timeout_ms)
        .with_transaction_start_time_ms(transaction.started.0)
        .with_producer_id(transaction.producer_id.0.into())
        .with_producer_epoch(transaction.epoch.0)
        .with_topics(topics.collect())
}
