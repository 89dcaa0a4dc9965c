//! InitProducerId: v0-5
//!
//! Behaviour: an id that no producer ever had, with epoch 0, for a producer without a transactional id. One with a
//! transactional id needs its coordinator, which this version of Floodmark does not have yet: COORDINATOR_NOT_AVAILABLE.
//!
//! Version notes: from 3 on a producer may name the id and epoch that it has, both or neither; without a transactional id it
//! gets a new one all the same.

use super::{Api, Call, Request};
use crate::types::ErrorCode;
use crate::wire::messages::InitProducerIdRequest;
use crate::wire::messages::init_producer_id_response::InitProducerIdResponse;

const NO_ID: i64 = -1;
const NO_EPOCH: i16 = -1;

pub async fn handle(api: &Api, _: &Call, request: Request<InitProducerIdRequest>) -> InitProducerIdResponse {
    let request = request.body;
    let has_both = (request.producer_id.0 == NO_ID) == (request.producer_epoch == NO_EPOCH);
    let given = match &request.transactional_id {
        _ if !has_both => Err(ErrorCode::InvalidRequest),
        Some(id) if id.is_empty() => Err(ErrorCode::InvalidRequest),
        Some(_) => Err(ErrorCode::CoordinatorNotAvailable),
        None => api.broker().producer_ids.next().await.map_err(|error| {
            tracing::warn!(%error, "no producer id could be had");
            // Clients try again.
            ErrorCode::CoordinatorLoadInProgress
        }),
    };
    match given {
        Ok(id) => InitProducerIdResponse::default().with_producer_id(id.0.into()).with_producer_epoch(0),
        Err(error) => InitProducerIdResponse::default()
            .with_error_code(error.code())
            .with_producer_id(NO_ID.into())
            .with_producer_epoch(NO_EPOCH),
    }
}
