//! The metadata log as every node has it: the leader writes to its own, all others send what they have decided to the
//! leader.
//!
//! Knows nothing of what the records mean. Invariants: `NotLeader` says that the batch may be offered again, for its base
//! makes sure that it is taken once at most; every other error is final. What was decided for a term in which this node leads
//! is sent to nobody.

use std::sync::Arc;
use std::time::Duration;

use openraft::error::{CheckIsLeaderError, ClientWriteError, Fatal, ForwardToLeader, RaftError};

use crate::controller::deciding::ProposeError;
use crate::controller::peers::{Lane, PeerError, Peers};
use crate::controller::proposer::MetadataLog;
use crate::controller::quorum::QuorumView;
use crate::controller::raft_types::{Applied, Batch, Member, Raft, RaftNodeId, node_id};
use crate::controller::rpc::Refusal;
use crate::controller::state_machine::Published;
use crate::peer::{Address, Connection};
use crate::types::NodeId;
use crate::wire::messages::{ConfirmRequest, ProposeRequest};

/// How a decision of another node ended, in `ProposeResponse` and `ConfirmResponse`.
pub const APPLIED: i8 = 0;
pub const STALE: i8 = 1;
pub const NOT_LEADER: i8 = 2;
pub const UNABLE: i8 = 3;

const DIAL_LIMIT: Duration = Duration::from_millis(1_000);
/// How long the leader may take; then it is looked for again.
const CALL_LIMIT: Duration = Duration::from_secs(6);
/// When no new leader is heard of, the old one is tried again after this time.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The log, seen from one node.
#[derive(Clone)]
pub struct QuorumLog {
    raft: Raft,
    view: QuorumView,
    peers: Arc<Peers>,
    published: Arc<Published>,
}

impl QuorumLog {
    pub fn new(raft: Raft, view: QuorumView, peers: Arc<Peers>, published: Arc<Published>) -> QuorumLog {
        QuorumLog { raft, view, peers, published }
    }

    /// Writes a batch to this node's own log, if it leads.
    pub async fn propose_here(&self, batch: Batch) -> Result<Applied, ProposeError> {
        match self.raft.client_write(batch).await {
            Ok(response) => Ok(response.data),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => Err(not_leader(&forward)),
            Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(error))) => {
                Err(ProposeError::Unavailable(error.to_string()))
            }
            Err(RaftError::Fatal(error)) => Err(fatal(&error)),
        }
    }

    /// The version of this node's image, if it leads and no other can have written a newer one.
    pub async fn confirm_here(&self) -> Result<u64, ProposeError> {
        match self.raft.ensure_linearizable().await {
            Ok(_) => Ok(self.published.image().version.0),
            Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(forward))) => {
                Err(not_leader(&forward))
            }
            // Its followers may have another leader by now, or be back soon.
            Err(RaftError::APIError(CheckIsLeaderError::QuorumNotEnough(_))) => {
                Err(ProposeError::NotLeader { leader: None })
            }
            Err(RaftError::Fatal(error)) => Err(fatal(&error)),
        }
    }

    async fn propose_there(
        &self,
        leader: NodeId,
        address: &Address,
        batch: Batch,
    ) -> Result<Applied, Missed> {
        let request = ProposeRequest {
            sender: self.peers.me.sender(Some(leader)),
            base: batch.base.cast_signed(),
            tag: batch.tag.cast_signed(),
            records: batch.records,
            ..ProposeRequest::default()
        };
        let answer = self.connect(leader, address).await?.call(&request, CALL_LIMIT).await?;
        self.accepted(leader, answer.refusal)?;
        let version = answer.version.cast_unsigned();
        match answer.outcome {
            APPLIED => Ok(Applied::Records { version }),
            STALE => Ok(Applied::Stale { version }),
            _ => Err(Missed::NotLeader),
        }
    }

    async fn confirm_there(&self, leader: NodeId, address: &Address) -> Result<u64, Missed> {
        let sender = self.peers.me.sender(Some(leader));
        let request = ConfirmRequest { sender, ..ConfirmRequest::default() };
        let answer = self.connect(leader, address).await?.call(&request, CALL_LIMIT).await?;
        self.accepted(leader, answer.refusal)?;
        if answer.outcome == APPLIED { Ok(answer.version.cast_unsigned()) } else { Err(Missed::NotLeader) }
    }

    async fn connect(&self, leader: NodeId, address: &Address) -> Result<Connection, PeerError> {
        Ok(self.peers.connect(leader, address, Lane::Forward, DIAL_LIMIT).await?)
    }

    fn accepted(&self, leader: NodeId, refusal: i8) -> Result<(), PeerError> {
        Refusal::of(refusal).map_err(|refusal| {
            self.peers.tell_refusal(leader, refusal, false);
            PeerError::Refused(leader, refusal)
        })
    }

    /// The leader, if it is another node whose address is known.
    fn leader_elsewhere(&self) -> Option<(NodeId, Address)> {
        let me = self.peers.me.node;
        match self.view.leader() {
            Some(leader) if leader != me => Some((leader, self.view.address(leader)?)),
            Some(_) => None,
            None => self.peers.leader_hint().filter(|(leader, _)| *leader != me),
        }
    }

    /// Waits for the leader's answer for as long as no other leader is known: one that hangs does not answer.
    async fn while_leading<T>(
        &self,
        leader: NodeId,
        asked: impl Future<Output = Result<T, Missed>>,
    ) -> Result<T, ProposeError> {
        let mut leadership = self.view.leadership();
        let replaced = async {
            let other = leadership.wait_for(|now| now.leader.is_some_and(|now| now != leader));
            if other.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            answer = asked => answer.map_err(|error| self.missed(&error)),
            () = replaced => Err(self.missed(&Missed::NotLeader)),
        }
    }

    fn missed(&self, error: &Missed) -> ProposeError {
        tracing::debug!(%error, "the leader was not reached");
        ProposeError::NotLeader { leader: self.view.leader() }
    }
}

/// Why the leader did not take what it was sent, as far as is known.
#[derive(Debug, thiserror::Error)]
enum Missed {
    #[error("it does not lead any more")]
    NotLeader,
    #[error(transparent)]
    Peer(#[from] PeerError),
}

impl From<crate::peer::CallError> for Missed {
    fn from(error: crate::peer::CallError) -> Missed {
        Missed::Peer(error.into())
    }
}

impl MetadataLog for QuorumLog {
    async fn propose(&self, batch: Batch) -> Result<Applied, ProposeError> {
        if self.view.is_leader() {
            return self.propose_here(batch).await;
        }
        if batch.term.is_some() {
            // Once this node has what the next leader has, it is known whether it had been taken before.
            return self.confirm().await.map(|version| Applied::Stale { version });
        }
        match self.leader_elsewhere() {
            Some((leader, address)) => {
                self.while_leading(leader, self.propose_there(leader, &address, batch)).await
            }
            None => self.stopped().and(Err(ProposeError::NotLeader { leader: None })),
        }
    }

    async fn confirm(&self) -> Result<u64, ProposeError> {
        if self.view.is_leader() {
            return self.confirm_here().await;
        }
        match self.leader_elsewhere() {
            Some((leader, address)) => self.while_leading(leader, self.confirm_there(leader, &address)).await,
            None => self.stopped().and(Err(ProposeError::NotLeader { leader: None })),
        }
    }

    async fn changes(&self) {
        let mut leadership = self.view.leadership();
        leadership.mark_unchanged();
        let _ = tokio::time::timeout(RETRY_PAUSE, leadership.changed()).await;
    }
}

impl QuorumLog {
    /// An error when this member has stopped, so that nobody waits for a leader that it will not hear of.
    fn stopped(&self) -> Result<(), ProposeError> {
        self.view.failure().map_or(Ok(()), |error| Err(fatal(&error)))
    }
}

fn not_leader(forward: &ForwardToLeader<RaftNodeId, Member>) -> ProposeError {
    ProposeError::NotLeader { leader: forward.leader_id.map(node_id) }
}

pub fn fatal(error: &Fatal<RaftNodeId>) -> ProposeError {
    match error {
        Fatal::Stopped => ProposeError::ShuttingDown,
        Fatal::StorageError(_) | Fatal::Panicked => ProposeError::Unavailable(error.to_string()),
    }
}
