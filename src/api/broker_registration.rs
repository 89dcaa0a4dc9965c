//! BrokerRegistration: v0-4 (KIP-631)
//!
//! Behaviour: the active controller registers the process that asks, fenced, and gives it its epoch; NOT_CONTROLLER from any
//! other node. A second process with the id of one that lives is refused (DUPLICATE_BROKER_REGISTRATION), and so is one of
//! another cluster, with one log line.
//!
//! Version notes: 1 can say that a broker migrates from ZooKeeper, which is refused; 2 adds log directories, 3 the epoch
//! before a clean shutdown; before 4 features with the lowest level 0 are not named.

use std::sync::Arc;

use super::refusal::Refusal;
use super::{Api, Call, Request};
use crate::metadata::brokers::{Endpoint, RegisterBrokerError, Registration};
use crate::types::{BrokerEpoch, ErrorCode, NodeId};
use crate::wire::messages::{BrokerRegistrationRequest, BrokerRegistrationResponse};

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<BrokerRegistrationRequest>,
) -> BrokerRegistrationResponse {
    let id = NodeId(request.body.broker_id.0);
    let registered = match check(api, &request.body) {
        Ok(()) => {
            let registered = api.active.register_broker(registration(request.body)).await;
            registered.map_err(Refusal::from)
        }
        Err(refused) => Err(refused),
    };
    match registered {
        Ok(epoch) => BrokerRegistrationResponse::default().with_broker_epoch(epoch.0),
        Err(refusal) => {
            tracing::warn!("Broker {id} is not registered: {}", refusal.message);
            let code = refusal.code.code();
            BrokerRegistrationResponse::default().with_error_code(code).with_broker_epoch(-1)
        }
    }
}

fn check(api: &Api, request: &BrokerRegistrationRequest) -> Result<(), Refusal> {
    if *api.node.cluster_id != *request.cluster_id.as_str() {
        let reason = format!("it belongs to cluster {}", request.cluster_id.as_str());
        return Err(Refusal::new(ErrorCode::InconsistentClusterId, reason));
    }
    if request.broker_id.0 < 0 {
        return Err(Refusal::new(ErrorCode::InvalidRegistration, "the id is negative"));
    }
    if request.is_migrating_zk_broker {
        let reason = "it migrates from ZooKeeper, which no controller supports any more";
        return Err(Refusal::new(ErrorCode::BrokerIdNotRegistered, reason));
    }
    Ok(())
}

fn registration(request: BrokerRegistrationRequest) -> Registration {
    let endpoints = request.listeners.iter().map(|listener| Endpoint {
        listener: Arc::from(listener.name.as_str()),
        host: Arc::from(listener.host.as_str()),
        port: listener.port,
        security_protocol: listener.security_protocol,
    });
    let features = request.features.iter().map(|feature| {
        let levels = (feature.min_supported_version, feature.max_supported_version);
        (Arc::from(feature.name.as_str()), levels)
    });
    Registration {
        id: NodeId(request.broker_id.0),
        incarnation: request.incarnation_id,
        endpoints: endpoints.collect(),
        features: features.collect(),
        rack: request.rack.as_ref().map(|rack| Arc::from(rack.as_str())),
        directories: request.log_dirs,
        previous_epoch: BrokerEpoch(request.previous_broker_epoch),
    }
}

impl From<RegisterBrokerError> for Refusal {
    fn from(error: RegisterBrokerError) -> Refusal {
        let code = match &error {
            RegisterBrokerError::DuplicateRegistration(_) => ErrorCode::DuplicateBrokerRegistration,
            RegisterBrokerError::NoDirectories
            | RegisterBrokerError::ReservedDirectory(_)
            | RegisterBrokerError::DuplicateDirectory(_)
            | RegisterBrokerError::DirectoryOfAnotherBroker { .. }
            | RegisterBrokerError::NoMetadataVersion => ErrorCode::InvalidRegistration,
            RegisterBrokerError::UnsupportedFeature { .. } => ErrorCode::UnsupportedVersion,
        };
        Refusal::new(code, error.to_string())
    }
}
