//! EndTxn: v0-5
//!
//! Behaviour: commits or aborts a producer's transaction. The answer leaves when the decision is written down; the markers
//! follow, and until all are written, whatever comes next is CONCURRENT_TRANSACTIONS. The same request again is answered
//! like the first.
//!
//! Version notes: before 2, PRODUCER_FENCED is INVALID_PRODUCER_EPOCH; 5 is the second generation (KIP-890): the answer has the
//! producer id and epoch for the next transaction, and aborting what was never begun succeeds.

use super::transaction_coordination::refused_code;
use super::{Api, Call, Request};
use crate::coordinator::Producer;
use crate::coordinator::transaction::state::TransactionVersion;
use crate::coordinator::transaction::{Command, EndTxn, Reply};
use crate::types::{ErrorCode, ProducerEpoch, ProducerId};
use crate::wire::control::TxnResult;
use crate::wire::messages::EndTxnRequest;
use crate::wire::messages::end_txn_response::EndTxnResponse;

/// The first version whose clients know PRODUCER_FENCED.
const KNOWS_FENCED: i16 = 2;
/// The first version of the second generation.
const RAISES_EPOCH: i16 = 5;

pub async fn handle(api: &Api, _: &Call, request: Request<EndTxnRequest>) -> EndTxnResponse {
    let (version, request) = (request.version, request.body);
    match end(api, version, &request).await {
        Ok(None) => EndTxnResponse::default(),
        Ok(Some(Producer { id, epoch })) => {
            EndTxnResponse::default().with_producer_id(id.0.into()).with_producer_epoch(epoch.0)
        }
        Err(error) => EndTxnResponse::default().with_error_code(error.code()),
    }
}

async fn end(api: &Api, version: i16, request: &EndTxnRequest) -> Result<Option<Producer>, ErrorCode> {
    let id = request.transactional_id.as_str();
    if id.is_empty() {
        return Err(ErrorCode::InvalidRequest);
    }
    let end = EndTxn {
        transactional_id: id.to_owned(),
        producer: Producer {
            id: ProducerId(request.producer_id.0),
            epoch: ProducerEpoch(request.producer_epoch),
        },
        result: if request.committed { TxnResult::Commit } else { TxnResult::Abort },
        client_version: TransactionVersion(if version >= RAISES_EPOCH { 2 } else { 0 }),
        fresh: None,
    };
    match api.ask_transaction(id, Command::EndTxn(end)).await? {
        Reply::EndTxn(ended) => ended.map_err(|refused| refused_code(refused, version >= KNOWS_FENCED)),
        _ => Err(ErrorCode::UnknownServerError),
    }
}
