//! ListTransactions: v0-2 (KIP-664)
//!
//! Behaviour: the transactional ids whose coordinators are here, by state, producer id, how long the transaction has been
//! running and a pattern that the whole id must match. States that do not exist are told and match nothing. While a
//! coordinator reads its log, the answer is COORDINATOR_LOAD_IN_PROGRESS.
//!
//! Version notes: 1 filters by duration (KIP-994); 2 by pattern (KIP-1152). Patterns are of the kind that needs no backtracking.

use regex::Regex;

use super::coordination::code_of;
use super::topic_view::text;
use super::{Api, Call, Request};
use crate::coordinator::transaction::state::State;
use crate::coordinator::transaction::{Command, Filter, Listed, Reply};
use crate::types::{ErrorCode, ProducerId};
use crate::wire::messages::list_transactions_response::{ListTransactionsResponse, TransactionState};
use crate::wire::messages::{ListTransactionsRequest, StrBytes, TransactionalId};

/// Names of states that Kafka has and a coordinator here never shows.
const UNSEEN: [&str; 2] = ["Dead", "PrepareEpochFence"];

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<ListTransactionsRequest>,
) -> ListTransactionsResponse {
    let request = request.body;
    let named = |name: &str| State::ALL.into_iter().find(|state| state.name() == name);
    let unknown: Vec<StrBytes> = request
        .state_filters
        .iter()
        .filter(|name| named(name.as_str()).is_none() && !UNSEEN.contains(&name.as_str()))
        .cloned()
        .collect();
    let states = request.state_filters.iter().filter_map(|name| named(name.as_str()));
    let filter = Filter {
        producer_ids: request.producer_id_filters.iter().map(|id| ProducerId(id.0)).collect(),
        states: (!request.state_filters.is_empty()).then(|| states.collect()),
        longer_than_ms: Some(request.duration_filter).filter(|ms| *ms >= 0),
    };
    match list(api, &filter, request.transactional_id_pattern.as_ref()).await {
        Ok(listed) => ListTransactionsResponse::default()
            .with_unknown_state_filters(unknown)
            .with_transaction_states(listed.iter().map(shown).collect()),
        Err(error) => ListTransactionsResponse::default().with_error_code(error.code()),
    }
}

async fn list(api: &Api, filter: &Filter, pattern: Option<&StrBytes>) -> Result<Vec<Listed>, ErrorCode> {
    let pattern = pattern.filter(|pattern| !pattern.is_empty());
    let pattern = pattern.map(|pattern| Regex::new(&format!("^(?:{})$", pattern.as_str()))).transpose();
    let pattern = pattern.map_err(|_| ErrorCode::InvalidRegularExpression)?;
    let transactions = &api.broker().transactions;
    let mut all = Vec::new();
    for partition in transactions.partitions() {
        let pending = transactions.ask(partition, Command::List(filter.clone())).await;
        match pending.answer().await.map_err(code_of) {
            Ok(Reply::Listed(listed)) => all.extend(listed),
            // It has gone elsewhere, and is asked there.
            Err(ErrorCode::NotCoordinator) => {}
            Ok(_) => return Err(ErrorCode::UnknownServerError),
            Err(error) => return Err(error),
        }
    }
    if let Some(pattern) = pattern {
        all.retain(|listed| pattern.is_match(&listed.transactional_id));
    }
    Ok(all)
}

fn shown(listed: &Listed) -> TransactionState {
    TransactionState::default()
        .with_transactional_id(TransactionalId(text(&listed.transactional_id)))
        .with_producer_id(listed.producer_id.0.into())
        .with_transaction_state(text(listed.state.name()))
}
