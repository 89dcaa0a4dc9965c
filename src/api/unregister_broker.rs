//! UnregisterBroker: v0 (KIP-500)
//!
//! Behaviour: forgets a broker, which is then neither in sync nor eligible anywhere. Its replicas stay assigned to it.

use super::refusal::Refusal;
use super::topic_view::text;
use super::{Api, Call, Request};
use crate::metadata::Image;
use crate::metadata::brokers::{BrokerEpochError, unregister};
use crate::types::{ErrorCode, NodeId};
use crate::wire::messages::UnregisterBrokerRequest;
use crate::wire::messages::unregister_broker_response::UnregisterBrokerResponse;

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<UnregisterBrokerRequest>,
) -> UnregisterBrokerResponse {
    let broker = NodeId(request.body.broker_id.0);
    let defaults = api.config.at(&api.metadata.image()).election_defaults();
    let decided = api.metadata.run(move |image: &Image| unregister(image, broker, defaults)).await;
    let refused = match decided {
        Ok(Ok(())) => return UnregisterBrokerResponse::default().with_error_message(None),
        Ok(Err(error @ BrokerEpochError::NotRegistered(_))) => {
            Refusal::new(ErrorCode::BrokerIdNotRegistered, error.to_string())
        }
        Ok(Err(error @ BrokerEpochError::Stale { .. })) => error.into(),
        Err(error) => error.into(),
    };
    UnregisterBrokerResponse::default()
        .with_error_code(refused.code.code())
        .with_error_message(Some(text(&refused.message)))
}
