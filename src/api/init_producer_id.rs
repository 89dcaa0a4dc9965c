//! InitProducerId: v0-5
//!
//! Behaviour: without a transactional id, an id that no producer ever had, with epoch 0. With one, the coordinator gives the
//! producer id of the transactional id with its next epoch, which fences whoever had it before; a transaction that was left
//! open is aborted first, and meanwhile the answer is CONCURRENT_TRANSACTIONS.
//!
//! Version notes: from 3 on a producer may name the id and epoch that it has, both or neither, to go on after an error
//! (KIP-360); without a transactional id it gets a new one all the same. Before 4, PRODUCER_FENCED is
//! INVALID_PRODUCER_EPOCH.

use super::transaction_coordination::refused_code;
use super::{Api, Call, Request};
use crate::coordinator::Producer;
use crate::coordinator::transaction::{Command, InitProducerId, Reply};
use crate::types::{ErrorCode, ProducerEpoch, ProducerId};
use crate::wire::messages::InitProducerIdRequest;
use crate::wire::messages::init_producer_id_response::InitProducerIdResponse;

/// The first version whose clients know PRODUCER_FENCED.
const KNOWS_FENCED: i16 = 4;

pub async fn handle(api: &Api, _: &Call, request: Request<InitProducerIdRequest>) -> InitProducerIdResponse {
    let (version, request) = (request.version, request.body);
    let given = match (expected(&request), &request.transactional_id) {
        (Err(error), _) => Err(error),
        (Ok(expected), Some(id)) => of_transaction(api, version, id.as_str(), &request, expected).await,
        (Ok(_), None) => {
            let id = api.fresh_producer_id().await;
            id.map(|id| Producer { id, epoch: ProducerEpoch(0) })
        }
    };
    let (error, producer) = match given {
        Ok(producer) => (ErrorCode::None, producer),
        Err(error) => (error, Producer { id: ProducerId::NONE, epoch: ProducerEpoch::NONE }),
    };
    InitProducerIdResponse::default()
        .with_error_code(error.code())
        .with_producer_id(producer.id.0.into())
        .with_producer_epoch(producer.epoch.0)
}

/// The producer that the client says to be; a half of one is none.
fn expected(request: &InitProducerIdRequest) -> Result<Option<Producer>, ErrorCode> {
    let (id, epoch) = (ProducerId(request.producer_id.0), ProducerEpoch(request.producer_epoch));
    match (id, epoch) {
        (ProducerId::NONE, ProducerEpoch::NONE) => Ok(None),
        (ProducerId::NONE, _) | (_, ProducerEpoch::NONE) => Err(ErrorCode::InvalidRequest),
        _ => Ok(Some(Producer { id, epoch })),
    }
}

async fn of_transaction(
    api: &Api,
    version: i16,
    id: &str,
    request: &InitProducerIdRequest,
    expected: Option<Producer>,
) -> Result<Producer, ErrorCode> {
    if id.is_empty() {
        return Err(ErrorCode::InvalidRequest);
    }
    let timeout_ms = request.transaction_timeout_ms;
    let longest = api.config.latest().broker.transaction_max_timeout_ms;
    if timeout_ms <= 0 || timeout_ms > longest {
        return Err(ErrorCode::InvalidTransactionTimeout);
    }
    let init = InitProducerId { transactional_id: id.to_owned(), timeout_ms, expected, fresh: None };
    match api.ask_transaction(id, Command::InitProducerId(init)).await? {
        Reply::InitProducerId(given) => {
            given.map_err(|refused| refused_code(refused, version >= KNOWS_FENCED))
        }
        _ => Err(ErrorCode::UnknownServerError),
    }
}
