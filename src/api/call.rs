//! One request on its way through the node: where it came from, and how its handling may end.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kafka_protocol::protocol::{Decodable, StrBytes};
use tokio::sync::OwnedSemaphorePermit;

use super::auto_topics::Awaited;
use crate::controller::duties::Presence;
use crate::types::Principal;
use crate::wire::api::Listeners;
use crate::wire::frame::{RequestFrame, decode};
use crate::wire::rope::Rope;

/// Which APIs a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerRole {
    Broker,
    Controller,
}

/// What a handler may know of the listener through which a request came.
#[derive(Clone, Debug)]
pub struct ListenerInfo {
    pub name: Arc<str>,
    pub role: ListenerRole,
}

/// What a request takes of the limits of the node.
pub type Slot = [Option<OwnedSemaphorePermit>; 2];

/// What is kept for a connection from one request to the next.
#[derive(Debug, Default)]
pub struct ConnectionState {
    /// Who is at the other end; none of a request that came in another's envelope.
    peer: Option<IpAddr>,
    /// That a broker speaks through it.
    presence: Mutex<Option<Presence>>,
    /// The topics that are created because it asked for them.
    pub(super) awaited: Awaited,
}

impl ConnectionState {
    pub fn with_peer(peer: IpAddr) -> ConnectionState {
        ConnectionState { peer: Some(peer), ..ConnectionState::default() }
    }

    /// Keeps what `next` makes of what is kept.
    pub fn keep_presence(&self, next: impl FnOnce(Option<Presence>) -> Option<Presence>) {
        let mut presence = self.presence.lock().unwrap_or_else(PoisonError::into_inner);
        *presence = next(presence.take());
    }
}

/// A request from the moment its frame is complete until the end of the handler's first phase.
#[derive(Debug)]
pub struct Call {
    pub listener: Arc<ListenerInfo>,
    /// Who asks.
    pub principal: Principal,
    pub connection: Arc<ConnectionState>,
    /// A place among `queued.max.requests`, and a share of `queued.max.request.bytes`.
    slot: Mutex<Slot>,
    only_waits: AtomicBool,
}

impl Call {
    /// A request of somebody who has not said who they are.
    pub fn new(listener: Arc<ListenerInfo>, connection: Arc<ConnectionState>) -> Call {
        Call::of(listener, connection, Principal::anonymous())
    }

    pub fn of(listener: Arc<ListenerInfo>, connection: Arc<ConnectionState>, principal: Principal) -> Call {
        let (slot, only_waits) = (Mutex::default(), AtomicBool::new(false));
        Call { listener, principal, connection, slot, only_waits }
    }

    /// The client's address as Java writes it, which is how groups show their members.
    pub fn client_host(&self) -> Arc<str> {
        match self.connection.peer {
            None => "".into(),
            Some(IpAddr::V4(address)) => format!("/{address}").into(),
            Some(IpAddr::V6(address)) => {
                let parts = address.segments().map(|segment| format!("{segment:x}"));
                format!("/{}", parts.join(":")).into()
            }
        }
    }

    /// Whether an API with these listeners is served where the call came in.
    pub fn serves(&self, listeners: Listeners) -> bool {
        match self.listener.role {
            ListenerRole::Broker => listeners.broker,
            ListenerRole::Controller => listeners.controller,
        }
    }

    pub fn hold_slot(&self, slot: Slot) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = slot;
    }

    /// Lets another request begin.
    pub fn release_slot(&self) {
        self.hold_slot(Slot::default());
    }

    /// The handler has done what had to take effect and from here on only waits for something to read: it no longer
    /// counts among the requests in work, and may be dropped when the client vanishes.
    pub fn only_waits(&self) {
        self.only_waits.store(true, Ordering::Relaxed);
        self.release_slot();
    }

    /// It has waited, and takes effect now.
    pub fn is_in_work(&self) {
        self.only_waits.store(false, Ordering::Relaxed);
    }

    pub fn may_be_dropped(&self) -> bool {
        self.only_waits.load(Ordering::Relaxed)
    }
}

/// A decoded request with what its header said.
#[derive(Debug)]
pub struct Request<T> {
    pub version: i16,
    pub client_id: Option<StrBytes>,
    pub body: T,
}

impl<T: Decodable> Request<T> {
    /// The request in `frame`, or why the connection is to be closed.
    pub(super) fn decode(frame: &RequestFrame) -> Result<Request<T>, Reply> {
        let (version, client_id) = (frame.version, frame.client_id.clone());
        match decode::<T>(frame.body.clone(), version) {
            Ok(body) => Ok(Request { version, client_id, body }),
            Err(error) => Err(Reply::Close(format!(
                "malformed {} request (version {version}): {error}",
                frame.api.name
            ))),
        }
    }
}

/// What goes back to the client.
#[derive(Debug)]
pub enum Reply {
    /// A whole response frame, its length prefix included.
    Send(Rope),
    /// Nothing, as for a produce with acks=0.
    Nothing,
    /// The connection is to be closed, for this reason.
    Close(String),
}

/// How the first phase of handling ended.
pub enum Handled {
    Done(Reply),
    Later(Pin<Box<dyn Future<Output = Reply> + Send>>),
}

/// What a handler gives back: a response, one that comes later, or none.
pub enum Answer<R> {
    Now(R),
    Later(Pin<Box<dyn Future<Output = Answer<R>> + Send>>),
    Nothing,
    Close(String),
}

impl<R> From<R> for Answer<R> {
    fn from(response: R) -> Answer<R> {
        Answer::Now(response)
    }
}
