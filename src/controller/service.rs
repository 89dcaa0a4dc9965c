//! What peers ask of this member: votes, the log, snapshots, and the decisions of nodes that do not lead.
//!
//! Knows messages and openraft, and no sockets. Invariants: whoever belongs to another cluster, or is not who the quorum
//! knows, changes nothing here; a vote is given only when this node, too, misses the leader; as long as it is open how the
//! quorum begins, this node has no part in it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft::ServerState;
use openraft::raft::{VoteRequest, VoteResponse};

use tokio::sync::watch;

use crate::controller::deciding::ProposeError;
use crate::controller::forward::{APPLIED, NOT_LEADER, QuorumLog, STALE, UNABLE};
use crate::controller::founding::{self, Founding};
use crate::controller::learners::Learners;
use crate::controller::observers::{MAX_WAIT, Observers, Outgoing, Poll};
use crate::controller::peers::Peers;
use crate::controller::pulse::Pulse;
use crate::controller::quorum::QuorumView;
use crate::controller::raft_store::LogStore;
use crate::controller::raft_types::{Applied, Batch, Raft, RaftNodeId, raft_id};
use crate::controller::receiving::{Progress, Receiving};
use crate::controller::rpc::{self, Refusal};
use crate::controller::voters::Voters;
use crate::types::NodeId;
use crate::wire::messages::raft::{Leader, Sender};
use crate::wire::messages::{
    ConfirmRequest, ConfirmResponse, ObserverPollRequest, ObserverPollResponse, ProposeRequest,
    ProposeResponse, RaftAppendRequest, RaftAppendResponse, RaftFoundingRequest, RaftFoundingResponse,
    RaftSnapshotRequest, RaftSnapshotResponse, RaftVoteRequest, RaftVoteResponse,
};

/// How long a decision of another node may take here before that node asks again.
const FORWARD_LIMIT: Duration = Duration::from_secs(5);

/// Answers the peers; cheap to clone.
#[derive(Clone)]
pub struct RaftService {
    inner: Arc<Inner>,
}

struct Inner {
    parts: ServiceParts,
    voters: Voters,
    receiving: Receiving,
}

/// What the service works with.
pub struct ServiceParts {
    pub raft: Raft,
    pub store: LogStore,
    pub log: QuorumLog,
    pub view: QuorumView,
    pub peers: Arc<Peers>,
    pub observers: Arc<Observers>,
    pub learners: Learners,
    pub pulse: Arc<Pulse>,
    pub founding: watch::Receiver<Founding>,
    /// While a leader was heard so recently, nobody else gets a vote.
    pub lease: Duration,
}

impl std::ops::Deref for Inner {
    type Target = ServiceParts;

    fn deref(&self) -> &ServiceParts {
        &self.parts
    }
}

impl RaftService {
    pub fn new(parts: ServiceParts) -> RaftService {
        let voters = Voters::new(&parts);
        RaftService { inner: Arc::new(Inner { parts, voters, receiving: Receiving::default() }) }
    }

    /// The way to change the voters.
    pub fn voters(&self) -> &Voters {
        &self.inner.voters
    }

    /// What the service works with, for tests of the parts.
    #[cfg(test)]
    pub(super) fn parts(&self) -> &ServiceParts {
        &self.inner.parts
    }

    /// How this node's quorum began.
    pub fn founding(&self, message: &RaftFoundingRequest) -> RaftFoundingResponse {
        let me = &self.inner.peers.me;
        match me.check(&message.sender) {
            Ok(_) => founding::response(&self.inner.founding.borrow(), me.directory),
            Err(refusal) => {
                self.inner.peers.tell_refusal(NodeId(message.sender.node_id), refusal, true);
                RaftFoundingResponse { refusal: refusal.code(), ..RaftFoundingResponse::default() }
            }
        }
    }

    pub async fn vote(&self, message: RaftVoteRequest) -> RaftVoteResponse {
        self.inner.vote(&message).await.unwrap_or_else(|refusal| RaftVoteResponse {
            refusal: refusal.code(),
            ..RaftVoteResponse::default()
        })
    }

    pub async fn append(&self, message: RaftAppendRequest) -> RaftAppendResponse {
        self.inner.append(&message).await.unwrap_or_else(|refusal| RaftAppendResponse {
            refusal: refusal.code(),
            ..RaftAppendResponse::default()
        })
    }

    pub async fn snapshot(&self, message: RaftSnapshotRequest) -> RaftSnapshotResponse {
        self.inner.snapshot(&message).await.unwrap_or_else(|refusal| RaftSnapshotResponse {
            refusal: refusal.code(),
            ..RaftSnapshotResponse::default()
        })
    }

    /// Waits until there is something to say.
    pub async fn observer_poll(&self, message: ObserverPollRequest) -> ObserverPollResponse {
        self.inner.observer_poll(message).await.unwrap_or_else(|refusal| ObserverPollResponse {
            refusal: refusal.code(),
            ..ObserverPollResponse::default()
        })
    }

    pub async fn propose(&self, message: ProposeRequest) -> ProposeResponse {
        let inner = &self.inner;
        if let Err(refusal) = inner.check(&message.sender) {
            return ProposeResponse { refusal: refusal.code(), ..ProposeResponse::default() };
        }
        let batch = Batch {
            base: message.base.cast_unsigned(),
            tag: message.tag.cast_unsigned(),
            term: None,
            records: message.records,
        };
        let (outcome, version) = match inner.here(inner.log.propose_here(batch)).await {
            Ok(Applied::Records { version }) => (APPLIED, version),
            Ok(Applied::Stale { version }) => (STALE, version),
            Ok(Applied::Nothing) => (APPLIED, 0),
            Err(outcome) => (outcome, 0),
        };
        let leader = inner.leader();
        ProposeResponse { leader, outcome, version: version.cast_signed(), ..ProposeResponse::default() }
    }

    pub async fn confirm(&self, message: ConfirmRequest) -> ConfirmResponse {
        let inner = &self.inner;
        if let Err(refusal) = inner.check(&message.sender) {
            return ConfirmResponse { refusal: refusal.code(), ..ConfirmResponse::default() };
        }
        let (outcome, version) = match inner.here(inner.log.confirm_here()).await {
            Ok(version) => (APPLIED, version),
            Err(outcome) => (outcome, 0),
        };
        let leader = inner.leader();
        ConfirmResponse { leader, outcome, version: version.cast_signed(), ..ConfirmResponse::default() }
    }
}

impl Inner {
    /// Whether a message may be taken: it is of this cluster, and of whom the quorum knows under that id.
    fn check(&self, sender: &Sender) -> Result<NodeId, Refusal> {
        if !self.founding.borrow().is_over() {
            return Err(Refusal::Unable);
        }
        let known_as = |node: &NodeId| self.view.member(*node).map(|member| member.directory_id);
        let checked = self.peers.me.check(sender).and_then(|node| match known_as(&node) {
            Some(directory) if self.view.is_voter(node) && !directory.is_nil() => {
                if directory == sender.directory_id { Ok(node) } else { Err(Refusal::OtherDirectory) }
            }
            // Configuration does not tell the directories of voters, so whoever speaks first is the one.
            _ if self.peers.speaks(node, sender.directory_id) => Ok(node),
            _ => Err(Refusal::IdInUse),
        });
        let peer = NodeId(sender.node_id);
        match checked {
            Ok(_) => self.peers.tell_accord(peer),
            Err(refusal) => self.peers.tell_refusal(peer, refusal, true),
        }
        checked
    }

    fn leader(&self) -> Leader {
        let leader = self.view.leader();
        let address = leader.and_then(|leader| self.view.address(leader));
        let (Some(leader), Some(address)) = (leader, address) else { return Leader::default() };
        Leader {
            node_id: leader.0,
            host: crate::wire::messages::StrBytes::from_string(address.host),
            port: address.port,
            ..Leader::default()
        }
    }

    async fn here<T>(&self, work: impl Future<Output = Result<T, ProposeError>>) -> Result<T, i8> {
        match tokio::time::timeout(FORWARD_LIMIT, work).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(ProposeError::NotLeader { .. })) => Err(NOT_LEADER),
            Ok(Err(_)) | Err(_) => Err(UNABLE),
        }
    }

    async fn vote(&self, message: &RaftVoteRequest) -> Result<RaftVoteResponse, Refusal> {
        let candidate = self.check(&message.sender)?;
        let request = rpc::read_vote_request(message)?;
        let vote = self.raft.with_raft_state(|state| *state.vote_ref()).await;
        let (vote, last_log_id) = (vote.map_err(|_| Refusal::Unable)?, self.store.last_log_id());
        let id = raft_id(candidate);
        // One election is enough; a candidate that has begun is not held up, as the higher of two votes wins.
        let has_other = message.probe && self.pulse.elects_other_than(id);
        let would = request.last_log_id >= last_log_id && !has_other && self.misses_leader(id).await;
        if message.probe || !would {
            let answer = VoteResponse { vote, vote_granted: would, last_log_id };
            return Ok(rpc::vote_response(&answer));
        }
        self.give_vote(id, request, vote.committed).await
    }

    /// openraft gives no vote while a leader's lease lasts, however dead that leader is known to be. A candidate has no
    /// leader, so this node becomes one first.
    async fn give_vote(
        &self,
        candidate: RaftNodeId,
        request: VoteRequest<RaftNodeId>,
        has_leader: bool,
    ) -> Result<RaftVoteResponse, Refusal> {
        let recent = self.pulse.last_heard().is_some_and(|at| at.elapsed() < self.lease);
        if has_leader && recent {
            self.pulse.stands(raft_id(self.peers.me.node));
            self.raft.trigger().elect().await.map_err(|_| Refusal::Unable)?;
        }
        let answer = self.raft.vote(request).await.map_err(|_| Refusal::Unable)?;
        if answer.vote_granted {
            self.pulse.stands(candidate);
        }
        Ok(rpc::vote_response(&answer))
    }

    /// Whether this node sees no leader at work, as `candidate` says that it does not.
    async fn misses_leader(&self, candidate: RaftNodeId) -> bool {
        let seen = self.view.leadership_seen();
        if seen.state == ServerState::Leader {
            let acknowledged = seen.since_quorum_ack.map(Duration::from_millis);
            return acknowledged.is_some_and(|since| since > 2 * self.lease);
        }
        let Some(leader) = seen.leader else { return true };
        let recent = self.pulse.last_heard().is_some_and(|at: Instant| at.elapsed() < self.lease);
        leader == candidate || !recent || self.pulse.is_against(leader).await
    }

    async fn append(&self, message: &RaftAppendRequest) -> Result<RaftAppendResponse, Refusal> {
        self.check(&message.sender)?;
        let request = rpc::read_append_request(message)?;
        let answer = self.raft.append_entries(request).await.map_err(|_| Refusal::Unable)?;
        if !matches!(answer, openraft::raft::AppendEntriesResponse::HigherVote(_)) {
            self.pulse.heard();
        }
        Ok(rpc::append_response(&answer))
    }

    async fn snapshot(&self, message: &RaftSnapshotRequest) -> Result<RaftSnapshotResponse, Refusal> {
        self.check(&message.sender)?;
        let (vote, meta) = (rpc::read_vote(&message.vote)?, rpc::read_snapshot_meta(message)?);
        let state = self.raft.with_raft_state(|state| (*state.vote_ref(), state.committed));
        let (ours, committed) = state.await.map_err(|_| Refusal::Unable)?;
        let done = |vote| RaftSnapshotResponse {
            installed: true,
            vote: rpc::vote_bytes(vote),
            ..RaftSnapshotResponse::default()
        };
        // A leader of the past learns so; and what is committed here needs no snapshot.
        if vote < ours {
            return Ok(done(ours));
        }
        if committed >= meta.last_log_id && meta.last_log_id.is_some() {
            return Ok(done(vote));
        }
        self.pulse.heard();
        match self.receiving.take(&self.raft, vote, meta, message).await? {
            Progress::Done(vote) => Ok(done(vote)),
            Progress::Next(next) => Ok(RaftSnapshotResponse {
                next_offset: next.cast_signed(),
                vote: rpc::vote_bytes(vote),
                ..RaftSnapshotResponse::default()
            }),
        }
    }

    async fn observer_poll(&self, message: ObserverPollRequest) -> Result<ObserverPollResponse, Refusal> {
        let node = self.check(&message.sender)?;
        let directory = message.sender.directory_id;
        let wait = Duration::from_millis(u64::try_from(message.max_wait_ms).unwrap_or(0)).min(MAX_WAIT);
        if !self.view.is_leader() {
            // Whoever asks comes back at once, so it waits here for a leader to be known.
            self.view.led_by_other_than(node, wait).await;
            return Ok(self.answer(None));
        }
        let begun = self.observers.begin(node, directory, message.answered, message.answer);
        let poll = begun.inspect_err(|refusal| self.peers.tell_refusal(node, *refusal, true))?;
        if message.ends {
            self.observers.end(node, directory);
            return Ok(self.answer(None));
        }
        if !self.view.is_voter(node) {
            self.learners.admit(node, directory);
        }
        self.give_message(&poll, wait).await
    }

    async fn give_message(&self, poll: &Poll, wait: Duration) -> Result<ObserverPollResponse, Refusal> {
        let message = tokio::select! {
            message = self.observers.next(poll, wait) => message,
            () = self.view.lost_leadership() => None,
        };
        Ok(self.answer(message))
    }

    fn answer(&self, message: Option<Outgoing>) -> ObserverPollResponse {
        // The message is the leader's, if it leads no more by now.
        let leads = message.is_some() || self.view.is_leader();
        let answer = ObserverPollResponse { leads, leader: self.leader(), ..ObserverPollResponse::default() };
        match message {
            Some(Outgoing { id, kind, body }) => {
                ObserverPollResponse { message_id: id, kind: kind.code(), message: body, ..answer }
            }
            None => answer,
        }
    }
}
