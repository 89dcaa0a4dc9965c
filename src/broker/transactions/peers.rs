//! Connections to other brokers, one each, dialled when they are needed and again after they have broken.
//!
//! Must not know what is asked; does not ask again by itself. Invariant: a connection that has failed a call is not used for
//! another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kafka_protocol::protocol::Request;

use crate::controller::MetadataHandle;
use crate::peer::{Address, CallError, Connection, DialError};
use crate::types::NodeId;

/// How long a dial may take.
const DIAL_LIMIT: Duration = Duration::from_secs(5);

/// Why a broker has not answered.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("broker {0} has no listener {1} that is known here")]
    NoEndpoint(NodeId, Arc<str>),
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// The connections of one purpose. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Peers {
    way: Way,
}

#[derive(Clone, Debug)]
enum Way {
    Sockets(Arc<Inner>),
    #[cfg(test)]
    Simulation(tokio::sync::mpsc::UnboundedSender<Carried>),
}

/// A call that a simulation carries.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Carried {
    pub(crate) broker: NodeId,
    pub(crate) request: Box<dyn std::any::Any + Send>,
    /// For the response; dropped when the connection breaks.
    pub(crate) answer: tokio::sync::oneshot::Sender<Box<dyn std::any::Any + Send>>,
}

#[derive(Debug)]
struct Inner {
    client_id: String,
    /// The name of the listener through which brokers reach each other.
    listener: Arc<str>,
    metadata: MetadataHandle,
    connections: Mutex<HashMap<NodeId, Connection>>,
}

impl Peers {
    pub fn new(client_id: String, listener: Arc<str>, metadata: MetadataHandle) -> Peers {
        let inner = Inner { client_id, listener, metadata, connections: Mutex::default() };
        Peers { way: Way::Sockets(Arc::new(inner)) }
    }

    /// Brokers are reached by whoever takes what is to be carried.
    #[cfg(test)]
    pub(crate) fn simulated(carrier: tokio::sync::mpsc::UnboundedSender<Carried>) -> Peers {
        Peers { way: Way::Simulation(carrier) }
    }

    /// Has the next call to this broker dial anew.
    pub fn disconnect(&self, broker: NodeId) {
        match &self.way {
            Way::Sockets(inner) => drop(inner.connections().remove(&broker)),
            #[cfg(test)]
            Way::Simulation(_) => {}
        }
    }

    /// Asks a broker, once.
    pub async fn call<R>(&self, broker: NodeId, request: R, limit: Duration) -> Result<R::Response, PeerError>
    where
        R: Request + Send + Sync + 'static,
        R::Response: Send + 'static,
    {
        let answer = self.call_with(broker, || Some(request), limit).await?;
        Ok(answer.ok_or(CallError::Disconnected)?)
    }

    /// Asks a broker what `make` says when there is a connection to it; nothing if it says nothing.
    pub async fn call_with<R>(
        &self,
        broker: NodeId,
        make: impl FnOnce() -> Option<R>,
        limit: Duration,
    ) -> Result<Option<R::Response>, PeerError>
    where
        R: Request + Send + Sync + 'static,
        R::Response: Send + 'static,
    {
        match &self.way {
            Way::Sockets(inner) => inner.call(broker, make, limit).await,
            #[cfg(test)]
            Way::Simulation(carrier) => {
                if carrier.is_closed() {
                    return Err(PeerError::NoEndpoint(broker, "nowhere".into()));
                }
                let Some(request) = make() else { return Ok(None) };
                let (answer, answered) = tokio::sync::oneshot::channel();
                let _ = carrier.send(Carried { broker, request: Box::new(request), answer });
                let answer = answered.await.map_err(|_| CallError::Disconnected)?;
                Ok(Some(*answer.downcast().expect("the response to this request")))
            }
        }
    }
}

impl Inner {
    async fn call<R: Request + 'static>(
        &self,
        broker: NodeId,
        make: impl FnOnce() -> Option<R>,
        limit: Duration,
    ) -> Result<Option<R::Response>, PeerError> {
        let connection = self.connection(broker).await?;
        let Some(request) = make() else { return Ok(None) };
        let answer = connection.call(&request, limit).await;
        if matches!(answer, Err(CallError::Disconnected | CallError::Timeout)) {
            self.connections().remove(&broker);
        }
        Ok(Some(answer?))
    }

    async fn connection(&self, broker: NodeId) -> Result<Connection, PeerError> {
        if let Some(known) = self.connections().get(&broker) {
            return Ok(known.clone());
        }
        let Inner { client_id, listener, metadata, .. } = self;
        let image = metadata.image();
        let endpoint = image.brokers.get(broker).and_then(|broker| broker.endpoint(listener));
        let endpoint = endpoint.ok_or_else(|| PeerError::NoEndpoint(broker, Arc::clone(listener)))?;
        let address = Address { host: endpoint.host.to_string(), port: endpoint.port };
        let dialled = Connection::open(&address, client_id, DIAL_LIMIT).await?;
        // Two that dial at the same time both succeed; the later one is kept.
        self.connections().insert(broker, dialled.clone());
        Ok(dialled)
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<NodeId, Connection>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
