//! The other members of the quorum: where each is reached, the connections to them, and when each was heard.
//!
//! Knows no openraft but the types of members. Invariant: a connection that has broken is dialled again by whoever next
//! needs it, at an address that is resolved then.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::controller::raft_types::Member;
use crate::controller::rpc::{Identity, Refusal};
use crate::peer::{Address, CallError, Connection, DialError};
use crate::types::{DirectoryId, NodeId, TimestampMs};

/// A process that has been silent for so long is gone, and another may speak under its node id.
pub const GONE_AFTER: Duration = Duration::from_secs(4);

/// What a connection is for. A large snapshot must not hold up heartbeats, nor a proposal the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    Raft,
    Snapshot,
    Forward,
}

/// Why a peer could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("its address is not known")]
    NoAddress,
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("node {0} refuses: {1}")]
    Refused(NodeId, Refusal),
    #[error("its answer cannot be read")]
    Malformed,
}

/// The peers of a node.
#[derive(Debug)]
pub struct Peers {
    pub me: Identity,
    /// How this node is called on the connections that it opens.
    client_id: String,
    /// Where the configuration says that voters are; it goes before what the quorum remembers.
    configured: BTreeMap<NodeId, Address>,
    /// The listener of controllers, if this node knows its name.
    listener: Option<String>,
    connections: Mutex<HashMap<(NodeId, Lane), Connection>>,
    contacts: Mutex<HashMap<NodeId, Contact>>,
    /// Who was last said to lead, for a node that does not follow the log yet.
    hint: Mutex<Option<(NodeId, Address)>>,
    /// With which metadata directory each has spoken last, and when.
    spoken: Mutex<HashMap<NodeId, (DirectoryId, Instant)>>,
    /// What was last told of each peer, so that the log says it once.
    told: Mutex<HashMap<NodeId, Refusal>>,
}

/// When a peer was heard.
#[derive(Clone, Copy, Debug)]
pub struct Contact {
    pub last_heard: TimestampMs,
    /// When it last had all that there was.
    pub last_caught_up: Option<TimestampMs>,
    /// Whether it has not been reached since.
    pub missed: bool,
}

impl Peers {
    pub fn new(me: Identity, configured: BTreeMap<NodeId, Address>, listener: Option<String>) -> Peers {
        Peers {
            client_id: format!("floodmark-node-{}", me.node),
            me,
            configured,
            listener,
            connections: Mutex::default(),
            contacts: Mutex::default(),
            hint: Mutex::default(),
            spoken: Mutex::default(),
            told: Mutex::default(),
        }
    }

    /// Where a member listens for controllers.
    pub fn address(&self, node: NodeId, member: Option<&Member>) -> Option<Address> {
        if let Some(address) = self.configured.get(&node) {
            return Some(address.clone());
        }
        let endpoints = &member?.endpoints;
        let by_name = endpoints.iter().find(|endpoint| Some(&endpoint.listener) == self.listener.as_ref());
        let endpoint = by_name.or(endpoints.first())?;
        Some(Address { host: endpoint.host.clone(), port: endpoint.port })
    }

    /// Where the configuration says that voters are.
    pub fn configured(&self) -> impl Iterator<Item = &Address> {
        self.configured.values()
    }

    /// The connection to a node, which is dialled if there is none.
    pub async fn connect(
        &self,
        node: NodeId,
        address: &Address,
        lane: Lane,
        limit: Duration,
    ) -> Result<Connection, DialError> {
        if let Some(connection) = self.connected(node, lane) {
            return Ok(connection);
        }
        let connection = self.dial(address, limit).await?;
        lock(&self.connections).insert((node, lane), connection.clone());
        Ok(connection)
    }

    /// The connection to a node, if there is one.
    pub fn connected(&self, node: NodeId, lane: Lane) -> Option<Connection> {
        let mut connections = lock(&self.connections);
        let connection = connections.get(&(node, lane))?;
        if connection.is_closed() {
            connections.remove(&(node, lane));
            return None;
        }
        Some(connection.clone())
    }

    /// A connection that nobody else uses.
    pub async fn dial(&self, address: &Address, limit: Duration) -> Result<Connection, DialError> {
        Connection::open(address, &self.client_id, limit).await
    }

    pub fn leader_hint(&self) -> Option<(NodeId, Address)> {
        lock(&self.hint).clone()
    }

    pub fn set_leader_hint(&self, leader: Option<(NodeId, Address)>) {
        *lock(&self.hint) = leader;
    }

    /// Closes all connections of which nobody holds a clone.
    pub fn disconnect(&self) {
        lock(&self.connections).clear();
    }

    /// Notes that a peer has answered, and whether it has all there is.
    pub fn heard(&self, node: NodeId, caught_up: bool) {
        let now = wall();
        let mut contacts = lock(&self.contacts);
        let contact =
            contacts.entry(node).or_insert(Contact { last_heard: now, last_caught_up: None, missed: false });
        contact.last_heard = now;
        contact.missed = false;
        if caught_up {
            contact.last_caught_up = Some(now);
        }
    }

    /// Notes that a peer could not be reached.
    pub fn missed(&self, node: NodeId) {
        if let Some(contact) = lock(&self.contacts).get_mut(&node) {
            contact.missed = true;
        }
    }

    /// Whether a peer was heard so lately, and has not been missed since.
    pub fn reaches(&self, node: NodeId, limit: Duration) -> bool {
        let limit = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
        self.contact(node).is_some_and(|contact| !contact.missed && wall().0 - contact.last_heard.0 <= limit)
    }

    /// The listener of controllers, if this node knows its name.
    pub fn listener(&self) -> Option<&str> {
        self.listener.as_deref()
    }

    pub fn contact(&self, node: NodeId) -> Option<Contact> {
        lock(&self.contacts).get(&node).copied()
    }

    /// Notes that a process speaks for a node; false when another has done so just now.
    pub fn speaks(&self, node: NodeId, directory: DirectoryId) -> bool {
        let now = Instant::now();
        let mut spoken = lock(&self.spoken);
        match spoken.get(&node) {
            Some((known, at)) if *known != directory && now < *at + GONE_AFTER => false,
            _ => {
                spoken.insert(node, (directory, now));
                true
            }
        }
    }

    /// Says once that a peer has refused this node, or this node a peer.
    pub fn tell_refusal(&self, peer: NodeId, refusal: Refusal, by_us: bool) {
        let passes = matches!(refusal, Refusal::Unable | Refusal::Itself);
        if passes || lock(&self.told).insert(peer, refusal) == Some(refusal) {
            return;
        }
        if by_us {
            tracing::warn!("Node {peer} is refused by this controller: {}", refusal.of_peer());
        } else {
            tracing::error!("Controller {peer} refuses this node: {}", refusal.of_us());
        }
    }

    /// The peer takes and is taken again.
    pub fn tell_accord(&self, peer: NodeId) {
        lock(&self.told).remove(&peer);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wall() -> TimestampMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
