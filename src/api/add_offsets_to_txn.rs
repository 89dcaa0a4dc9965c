//! AddOffsetsToTxn: v0-4
//!
//! Behaviour: makes the offsets of a group part of a producer's transaction, that is the partition of `__consumer_offsets` in
//! which the group's offsets are. Clients of the second generation leave this to the broker (TxnOffsetCommit).
//!
//! Version notes: before 2, PRODUCER_FENCED is INVALID_PRODUCER_EPOCH.

use super::transaction_coordination::refused_code;
use super::{Api, Call, Request};
use crate::coordinator::Producer;
use crate::coordinator::transaction::state::TransactionVersion;
use crate::coordinator::transaction::{AddPartitions, Command, Reply};
use crate::types::{ErrorCode, ProducerEpoch, ProducerId};
use crate::wire::messages::AddOffsetsToTxnRequest;
use crate::wire::messages::add_offsets_to_txn_response::AddOffsetsToTxnResponse;

/// The first version whose clients know PRODUCER_FENCED.
const KNOWS_FENCED: i16 = 2;

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<AddOffsetsToTxnRequest>,
) -> AddOffsetsToTxnResponse {
    let (version, request) = (request.version, request.body);
    let error = add(api, version, &request).await.err().unwrap_or(ErrorCode::None);
    AddOffsetsToTxnResponse::default().with_error_code(error.code())
}

async fn add(api: &Api, version: i16, request: &AddOffsetsToTxnRequest) -> Result<(), ErrorCode> {
    let id = request.transactional_id.as_str();
    if id.is_empty() {
        return Err(ErrorCode::InvalidRequest);
    }
    let add = AddPartitions {
        transactional_id: id.to_owned(),
        producer: Producer {
            id: ProducerId(request.producer_id.0),
            epoch: ProducerEpoch(request.producer_epoch),
        },
        partitions: vec![api.offsets_of(request.group_id.as_str())],
        client_version: TransactionVersion(0),
    };
    match api.ask_transaction(id, Command::AddPartitions(add)).await? {
        Reply::AddPartitions(added) => {
            added.map_err(|refused| refused_code(refused, version >= KNOWS_FENCED))
        }
        _ => Err(ErrorCode::UnknownServerError),
    }
}
