//! AllocateProducerIds: v0 (KIP-730)
//!
//! Behaviour: gives a broker, which has to name its epoch, the next block of producer ids. Only for other brokers than ours,
//! which decide on the metadata by themselves.

use super::refusal::Refusal;
use super::{Api, Call, Request};
use crate::metadata::Image;
use crate::metadata::producer_ids::allocate;
use crate::types::{BrokerEpoch, NodeId};
use crate::wire::messages::AllocateProducerIdsRequest;
use crate::wire::messages::allocate_producer_ids_response::AllocateProducerIdsResponse;

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<AllocateProducerIdsRequest>,
) -> AllocateProducerIdsResponse {
    let (broker, epoch) = (NodeId(request.body.broker_id.0), BrokerEpoch(request.body.broker_epoch));
    let decided = api.metadata.run(move |image: &Image| allocate(image, broker, epoch)).await;
    match decided.map_err(Refusal::from).and_then(|block| block.map_err(Refusal::from)) {
        Ok(block) => AllocateProducerIdsResponse::default()
            .with_producer_id_start(block.first.0.into())
            .with_producer_id_len(block.size),
        Err(refusal) => {
            tracing::info!(%broker, reason = refusal.message, "no producer ids are allocated");
            AllocateProducerIdsResponse::default().with_error_code(refusal.code.code())
        }
    }
}
