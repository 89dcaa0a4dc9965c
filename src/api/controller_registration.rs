//! ControllerRegistration: v0 (KIP-919)
//!
//! Behaviour: a controller tells the active one where it listens and what it supports; NOT_CONTROLLER from a node that does
//! not lead. UNSUPPORTED_VERSION below the metadata version that knows of controllers.

use std::sync::Arc;

use super::refusal::Refusal;
use super::topic_view::text;
use super::{Api, Call, Request};
use crate::metadata::brokers::Endpoint;
use crate::metadata::controllers::{RegisterControllerError, Registration};
use crate::types::{ErrorCode, NodeId};
use crate::wire::messages::{ControllerRegistrationRequest, ControllerRegistrationResponse};

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<ControllerRegistrationRequest>,
) -> ControllerRegistrationResponse {
    let request = request.body;
    let id = request.controller_id;
    let refused = if id < 0 {
        Some(Refusal::new(ErrorCode::InvalidRegistration, "the id is negative"))
    } else {
        match api.active.register_controller(registration(&request)).await {
            Ok(()) => None,
            Err(error) => Some(Refusal::from(error)),
        }
    };
    match refused {
        None => ControllerRegistrationResponse::default().with_error_message(None),
        Some(refusal) => {
            tracing::warn!("Controller {id} is not registered: {}", refusal.message);
            ControllerRegistrationResponse::default()
                .with_error_code(refusal.code.code())
                .with_error_message(Some(text(&refusal.message)))
        }
    }
}

impl From<RegisterControllerError> for Refusal {
    fn from(error: RegisterControllerError) -> Refusal {
        Refusal::new(ErrorCode::UnsupportedVersion, error.to_string())
    }
}

fn registration(request: &ControllerRegistrationRequest) -> Registration {
    let endpoints = request.listeners.iter().map(|listener| Endpoint {
        listener: Arc::from(listener.name.as_str()),
        host: Arc::from(listener.host.as_str()),
        port: listener.port,
        security_protocol: listener.security_protocol,
    });
    let features = request.features.iter().map(|feature| {
        let levels = (feature.min_supported_version, feature.max_supported_version);
        (Arc::from(feature.name.as_str()), levels.0, levels.1)
    });
    Registration {
        id: NodeId(request.controller_id),
        incarnation: request.incarnation_id,
        endpoints: endpoints.collect(),
        features: features.collect(),
    }
}
