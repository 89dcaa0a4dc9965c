//! How openraft reaches the other members: voters are dialled, observers are answered when they poll.
//!
//! Knows no policy: openraft says when to send what, and sends again. Invariant: an answer is one to the request that was
//! sent; whatever else happens is an error that says the peer was not reached.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::Request;
use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, Snapshot};

use crate::controller::observers::{Kind, Observers};
use crate::controller::peers::{Lane, PeerError, Peers};
use crate::controller::raft_types::{Member, Quorum, RaftNodeId, Vote, node_id};
use crate::controller::rpc::{self, Refusal};
use crate::controller::snapshot::SnapshotFile;
use crate::types::NodeId;
use crate::wire::frame;
use crate::wire::messages::{RaftSnapshotRequest, RaftSnapshotResponse};

/// The version of our own messages.
const VERSION: i16 = 0;
/// A peer that cannot be reached is tried again so soon: it may be starting.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Snapshots travel in pieces of this size.
const CHUNK_BYTES: usize = 512 * 1024;
/// How long one piece may take; with the last one the snapshot is read through and synced.
const CHUNK_LIMIT: Duration = Duration::from_secs(60);

/// Makes a client for each member.
#[derive(Clone, Debug)]
pub struct Network {
    pub peers: Arc<Peers>,
    pub observers: Arc<Observers>,
}

/// The way to one member.
#[derive(Debug)]
pub struct Client {
    network: Network,
    target: NodeId,
    member: Member,
}

impl RaftNetworkFactory<Quorum> for Network {
    type Network = Client;

    async fn new_client(&mut self, target: RaftNodeId, member: &Member) -> Client {
        Client { network: self.clone(), target: node_id(target), member: member.clone() }
    }
}

type RpcError = RPCError<RaftNodeId, Member, RaftError<RaftNodeId>>;

impl Client {
    /// Whether this member is waited for and not dialled.
    fn polls(&self) -> bool {
        self.network.observers.polls(self.target) || self.address().is_none()
    }

    fn address(&self) -> Option<crate::peer::Address> {
        self.network.peers.address(self.target, Some(&self.member))
    }

    async fn call<R: Request + 'static>(
        &self,
        lane: Lane,
        request: &R,
        limit: Duration,
    ) -> Result<R::Response, PeerError> {
        let address = self.address().ok_or(PeerError::NoAddress)?;
        let connection = self.network.peers.connect(self.target, &address, lane, limit).await?;
        Ok(connection.call_at(VERSION, request, limit).await?)
    }

    /// Gives an observer a message with its next poll, and waits for the poll after that.
    async fn hand_over<R: Request>(&self, kind: Kind, request: &R) -> Result<R::Response, PeerError> {
        let mut body = BytesMut::new();
        request.encode(&mut body, VERSION).map_err(|_| PeerError::Malformed)?;
        let answer = self.network.observers.ask(self.target, kind, body.freeze()).await;
        let answer = answer.ok_or(PeerError::Call(crate::peer::CallError::Disconnected))?;
        frame::decode(answer, VERSION).map_err(|_| PeerError::Malformed)
    }

    /// Whether the peer takes this node's messages.
    fn accepted(&self, refusal: i8) -> Result<(), PeerError> {
        let peers = &self.network.peers;
        Refusal::of(refusal).map_err(|refusal| {
            peers.tell_refusal(self.target, refusal, false);
            PeerError::Refused(self.target, refusal)
        })?;
        peers.tell_accord(self.target);
        Ok(())
    }

    async fn send_append(
        &self,
        request: &AppendEntriesRequest<Quorum>,
        limit: Duration,
    ) -> Result<AppendEntriesResponse<RaftNodeId>, PeerError> {
        let peers = &self.network.peers;
        let message = rpc::append_request(peers.me.sender_to(self.target, self.member.directory_id), request);
        let answer = if self.polls() {
            self.hand_over(Kind::Append, &message).await?
        } else {
            self.call(Lane::Raft, &message, limit).await?
        };
        self.accepted(answer.refusal)?;
        let answer = rpc::read_append_response(&answer).map_err(|_| PeerError::Malformed)?;
        // The leader sends all that it has, so who has all of that has caught up.
        peers.heard(self.target, answer.is_success());
        Ok(answer)
    }

    async fn send_vote(
        &self,
        request: &VoteRequest<RaftNodeId>,
        limit: Duration,
    ) -> Result<VoteResponse<RaftNodeId>, PeerError> {
        let message = rpc::vote_request(
            self.network.peers.me.sender_to(self.target, self.member.directory_id),
            false,
            request,
        );
        let answer = self.call(Lane::Raft, &message, limit).await?;
        self.accepted(answer.refusal)?;
        rpc::read_vote_response(&answer).map_err(|_| PeerError::Malformed)
    }

    async fn send_piece(&self, message: &RaftSnapshotRequest) -> Result<RaftSnapshotResponse, PeerError> {
        let answer = if self.polls() {
            let handed = self.hand_over(Kind::Snapshot, message);
            tokio::time::timeout(CHUNK_LIMIT, handed)
                .await
                .map_err(|_| PeerError::Call(crate::peer::CallError::Timeout))??
        } else {
            self.call(Lane::Snapshot, message, CHUNK_LIMIT).await?
        };
        self.accepted(answer.refusal)?;
        self.network.peers.heard(self.target, false);
        Ok(answer)
    }

    /// Sends what the peer lacks of the snapshot, and gives the vote with which it answers in the end.
    async fn send_snapshot(&self, vote: Vote, snapshot: Snapshot<Quorum>) -> Result<Vote, SendError> {
        let Snapshot { meta, snapshot } = snapshot;
        let file: SnapshotFile = *snapshot;
        let size = file.len()?;
        let sender = self.network.peers.me.sender_to(self.target, self.member.directory_id);
        // The first message asks what is there, after a broken connection or from nothing.
        let mut message = rpc::snapshot_request(sender, vote, &meta, size);
        loop {
            let answer = self.send_piece(&message).await?;
            let theirs = rpc::read_vote(&answer.vote).map_err(|_| PeerError::Malformed)?;
            if answer.installed || theirs > vote {
                return Ok(theirs);
            }
            let offset = u64::try_from(answer.next_offset).ok().filter(|&offset| offset < size);
            let offset = offset.ok_or(PeerError::Malformed)?;
            message.offset = offset.cast_signed();
            message.chunk = read_piece(&file, offset).await?;
            tracing::debug!(node = %self.target, offset, size, "sending a snapshot");
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("the snapshot cannot be read: {0}")]
    Read(#[from] std::io::Error),
}

async fn read_piece(file: &SnapshotFile, offset: u64) -> std::io::Result<Bytes> {
    let file = file.clone();
    let read = tokio::task::spawn_blocking(move || file.read_chunk(offset, CHUNK_BYTES));
    read.await.map_err(std::io::Error::other)?
}

/// A peer that was not reached gets a short rest; an answer that is none is a fault of the network.
fn failed(error: &PeerError) -> RpcError {
    tracing::debug!(%error, "a peer was not reached");
    match error {
        PeerError::Malformed => NetworkError::new(error).into(),
        _ => Unreachable::new(error).into(),
    }
}

impl RaftNetwork<Quorum> for Client {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Quorum>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<RaftNodeId>, RpcError> {
        let sent = self.send_append(&request, option.hard_ttl()).await;
        sent.inspect_err(|_| self.network.peers.missed(self.target)).map_err(|error| failed(&error))
    }

    async fn vote(
        &mut self,
        request: VoteRequest<RaftNodeId>,
        option: RPCOption,
    ) -> Result<VoteResponse<RaftNodeId>, RpcError> {
        self.send_vote(&request, option.hard_ttl()).await.map_err(|error| failed(&error))
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<Quorum>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<RaftNodeId>, StreamingError<Quorum, Fatal<RaftNodeId>>> {
        tokio::select! {
            sent = self.send_snapshot(vote, snapshot) => match sent {
                Ok(vote) => Ok(SnapshotResponse { vote }),
                Err(error) => Err(StreamingError::Unreachable(Unreachable::new(&error))),
            },
            closed = cancel => Err(StreamingError::Closed(closed)),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(RETRY_PAUSE))
    }
}
