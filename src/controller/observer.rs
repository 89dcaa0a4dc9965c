//! A node without a vote: it asks the leader for the log, as long as it is no voter. So does a voter that no leader speaks to:
//! it may have been taken out of the voters while it was away, and then nobody but the leader can tell.
//!
//! Knows messages and openraft, and no records. Invariant: one message is in work at a time, and its reply goes to the
//! leader that sent it.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::Encodable;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::controller::founding::Founding;
use crate::controller::observers::{Kind, MAX_WAIT};
use crate::controller::peers::{PeerError, Peers};
use crate::controller::pulse::Pulse;
use crate::controller::quorum::QuorumView;
use crate::controller::raft_types::raft_id;
use crate::controller::rpc::Refusal;
use crate::controller::service::RaftService;
use crate::peer::{Address, Connection};
use crate::types::NodeId;
use crate::wire::frame;
use crate::wire::messages::raft::Leader;
use crate::wire::messages::{ObserverPollRequest, ObserverPollResponse};

const DIAL_LIMIT: Duration = Duration::from_millis(700);
/// How long a poll may take beyond its waiting: a leader that hangs is left soon, and to dial again costs little.
const POLL_LIMIT: Duration = Duration::from_millis(700);
/// A voter to which no leader has spoken for so long asks, and goes on with that for so long.
const LOST_AFTER: Duration = Duration::from_secs(3);
const LOST_LIMIT: Duration = Duration::from_secs(30);
/// Between two nodes that did not help, and after one that refuses.
const NEXT_PAUSE: Duration = Duration::from_millis(50);
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
const VERSION: i16 = 0;

/// Follows the log of whoever leads.
#[derive(Clone)]
pub struct Observer {
    pub service: RaftService,
    pub pulse: Arc<Pulse>,
    pub view: QuorumView,
    pub peers: Arc<Peers>,
    /// Where to look for the quorum: `controller.quorum.bootstrap.servers`.
    pub servers: Vec<Address>,
}

/// How a conversation with a node ended.
enum End {
    /// It says that another node leads.
    Elsewhere(NodeId, Address),
    /// It does not know of a leader.
    Unknown,
    /// This node votes from now on.
    Votes,
}

impl Observer {
    /// Follows while this node is no voter, as long as the member runs.
    pub async fn run(self, mut founding: watch::Receiver<Founding>) {
        // One that is not sure of its part asks nobody for the log, for it might be taken for the one that it was.
        if founding.wait_for(Founding::is_over).await.is_err() {
            return;
        }
        let mut turn = 0;
        let mut leader = None;
        // What was last said of refusals, so that the log says it once.
        let mut told = None;
        while self.observes().await {
            let lost = self.view.is_voter(self.peers.me.node);
            let Some(address) = leader.take().or_else(|| self.candidate(&mut turn)) else {
                sleep(REFUSED_PAUSE).await;
                continue;
            };
            match self.converse(&address, lost.then(|| Instant::now() + LOST_LIMIT)).await {
                Ok(End::Elsewhere(node, address)) => {
                    self.peers.set_leader_hint(Some((node, address.clone())));
                    leader = Some(address);
                    // A node that has not heard yet that the leader has gone says the same again.
                    sleep(NEXT_PAUSE).await;
                }
                Ok(End::Votes) => {}
                Ok(End::Unknown) if lost => sleep(REFUSED_PAUSE).await,
                Ok(End::Unknown) => sleep(NEXT_PAUSE).await,
                Err(PeerError::Refused(_, Refusal::Itself)) => sleep(NEXT_PAUSE).await,
                Err(PeerError::Refused(_, refusal)) => {
                    if told != Some(refusal) && refusal != Refusal::Unable {
                        told = Some(refusal);
                        tracing::error!("The controller at {address} refuses this node: {}", refusal.of_us());
                    }
                    sleep(REFUSED_PAUSE).await;
                }
                Err(error) => {
                    tracing::debug!(%address, %error, "no metadata from there");
                    self.peers.set_leader_hint(None);
                    sleep(NEXT_PAUSE).await;
                }
            }
        }
    }

    /// Waits until this node has no vote, or no leader speaks to it; false when the member has ended.
    async fn observes(&self) -> bool {
        let me = raft_id(self.peers.me.node);
        let mut metrics = self.view.metrics();
        let mut since = Instant::now();
        loop {
            let leads = {
                let now = metrics.borrow_and_update();
                if now.running_state.is_err() {
                    return false;
                }
                if !now.membership_config.voter_ids().any(|id| id == me) {
                    return true;
                }
                now.state.is_leader()
            };
            let now = Instant::now();
            if leads {
                since = now;
            }
            let heard = self.pulse.last_heard().map_or(since, |at| since.max(Instant::from_std(at)));
            let lost_at = heard + LOST_AFTER;
            if !leads && lost_at <= now {
                return true;
            }
            tokio::select! {
                changed = metrics.changed() => {
                    if changed.is_err() {
                        return false;
                    }
                }
                () = sleep_until(lost_at), if !leads => {}
            }
        }
    }

    /// The next node to ask: voters as configured, then those that the log names, then the bootstrap servers.
    fn candidate(&self, turn: &mut usize) -> Option<Address> {
        let mut all: Vec<Address> = self.peers.configured().cloned().collect();
        let voters = self.view.voters();
        all.extend(voters.iter().filter_map(|(node, member)| self.peers.address(*node, Some(member))));
        all.extend(self.servers.iter().cloned());
        *turn += 1;
        let count = all.len();
        (count > 0).then(|| all.swap_remove(*turn % count))
    }

    /// Polls one node until it has nothing more to say. A voter that was lost goes on until `lost_until`, for it learns what it
    /// has missed on the way.
    async fn converse(&self, address: &Address, lost_until: Option<Instant>) -> Result<End, PeerError> {
        let connection = self.peers.dial(address, DIAL_LIMIT).await?;
        let mut reply = None;
        loop {
            let votes = self.view.is_voter(self.peers.me.node);
            if votes && lost_until.is_none_or(|until| until <= Instant::now()) {
                // What was said last is answered, and then the leader dials.
                self.poll(&connection, reply, true).await?;
                return Ok(End::Votes);
            }
            let answer = self.poll(&connection, reply.take(), false).await?;
            Refusal::of(answer.refusal)
                .map_err(|refusal| PeerError::Refused(NodeId(answer.leader.node_id), refusal))?;
            if !answer.leads {
                return Ok(named(&answer.leader).map_or(End::Unknown, |(node, at)| End::Elsewhere(node, at)));
            }
            self.peers.set_leader_hint(Some((NodeId(answer.leader.node_id), address.clone())));
            if answer.message_id != 0 {
                reply = Some((answer.message_id, self.take(&answer).await?));
            }
        }
    }

    async fn poll(
        &self,
        connection: &Connection,
        reply: Option<(i64, Bytes)>,
        ends: bool,
    ) -> Result<ObserverPollResponse, PeerError> {
        let (answered, answer) = reply.unwrap_or_default();
        let request = ObserverPollRequest {
            sender: self.peers.me.sender(None),
            answered,
            answer,
            max_wait_ms: i32::try_from(MAX_WAIT.as_millis()).unwrap_or(i32::MAX),
            ends,
            ..ObserverPollRequest::default()
        };
        Ok(connection.call(&request, MAX_WAIT + POLL_LIMIT).await?)
    }

    /// Takes a message as if the leader had called, and gives the body of the answer.
    async fn take(&self, answer: &ObserverPollResponse) -> Result<Bytes, PeerError> {
        let message = answer.message.clone();
        match Kind::of(answer.kind).ok_or(PeerError::Malformed)? {
            Kind::Append => {
                let request = frame::decode(message, VERSION).map_err(|_| PeerError::Malformed)?;
                body(&self.service.append(request).await)
            }
            Kind::Snapshot => {
                let request = frame::decode(message, VERSION).map_err(|_| PeerError::Malformed)?;
                body(&self.service.snapshot(request).await)
            }
        }
    }
}

fn body(message: &impl Encodable) -> Result<Bytes, PeerError> {
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes, VERSION).map_err(|_| PeerError::Malformed)?;
    Ok(bytes.freeze())
}

fn named(leader: &Leader) -> Option<(NodeId, Address)> {
    (leader.node_id >= 0)
        .then(|| (NodeId(leader.node_id), Address { host: leader.host.to_string(), port: leader.port }))
}
