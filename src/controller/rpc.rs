//! Raft's messages in the form in which they travel between nodes, and who they are from.
//!
//! Knows openraft's types and the messages of `wire`, and no sockets. Invariant: what has been encoded here is decoded to
//! the same; what cannot be decoded is an error and nothing else.

use bytes::{Bytes, BytesMut};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};

use crate::controller::codec::{self, DecodeError};
use crate::controller::raft_types::{LogId, Quorum, RaftNodeId, SnapshotMeta, StoredMembership, Vote};
use crate::types::{DirectoryId, NodeId};
use crate::wire::messages::raft::{RaftEntry, Sender};
use crate::wire::messages::{
    RaftAppendRequest, RaftAppendResponse, RaftSnapshotRequest, RaftVoteRequest, RaftVoteResponse, StrBytes,
};

/// Who this node is, as it tells its peers.
#[derive(Clone, Debug)]
pub struct Identity {
    pub cluster_id: String,
    pub node: NodeId,
    pub directory: DirectoryId,
}

impl Identity {
    /// The sender of a message to a member as the quorum knows it: one that has lost its directory is not the same.
    pub fn sender_to(&self, to: NodeId, directory: DirectoryId) -> Sender {
        Sender { to_directory: directory, ..self.sender(Some(to)) }
    }

    /// The sender of a message to `to`, or to whoever takes it.
    pub fn sender(&self, to: Option<NodeId>) -> Sender {
        Sender {
            cluster_id: StrBytes::from_string(self.cluster_id.clone()),
            node_id: self.node.0,
            directory_id: self.directory,
            to: to.map_or(-1, |to| to.0),
            ..Sender::default()
        }
    }

    /// Whether a message of this sender may be for this node at all.
    pub fn check(&self, sender: &Sender) -> Result<NodeId, Refusal> {
        if sender.cluster_id.as_str() != self.cluster_id {
            return Err(Refusal::OtherCluster);
        }
        if sender.to != self.node.0 && sender.to != -1 {
            return Err(Refusal::OtherNode);
        }
        if !sender.to_directory.is_nil() && sender.to_directory != self.directory {
            return Err(Refusal::OtherDirectory);
        }
        if sender.node_id == self.node.0 {
            let is_me = sender.directory_id == self.directory;
            return Err(if is_me { Refusal::Itself } else { Refusal::IdInUse });
        }
        if sender.node_id < 0 {
            return Err(Refusal::Malformed);
        }
        Ok(NodeId(sender.node_id))
    }
}

/// Why a node does not take a message of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    #[error("another cluster")]
    OtherCluster,
    #[error("meant for another node")]
    OtherNode,
    #[error("node id in use")]
    IdInUse,
    #[error("another metadata directory")]
    OtherDirectory,
    #[error("malformed message")]
    Malformed,
    #[error("not now")]
    Unable,
    /// A node that looks for the quorum may find itself among the addresses.
    #[error("it asked itself")]
    Itself,
}

const REFUSALS: [Refusal; 7] = [
    Refusal::OtherCluster,
    Refusal::OtherNode,
    Refusal::IdInUse,
    Refusal::OtherDirectory,
    Refusal::Malformed,
    Refusal::Unable,
    Refusal::Itself,
];

impl Refusal {
    pub fn code(self) -> i8 {
        match self {
            Refusal::OtherCluster => 1,
            Refusal::OtherNode => 2,
            Refusal::IdInUse => 3,
            Refusal::OtherDirectory => 4,
            Refusal::Malformed => 5,
            Refusal::Unable => 6,
            Refusal::Itself => 7,
        }
    }

    /// What is wrong with a peer that this node refuses.
    pub fn of_peer(self) -> &'static str {
        match self {
            Refusal::OtherCluster => "it belongs to another cluster",
            Refusal::OtherNode => "it looked for another node at this address",
            Refusal::IdInUse => "another live process uses its node id",
            Refusal::OtherDirectory => {
                "a metadata directory is not the one that the quorum knows by its node id"
            }
            Refusal::Malformed => "its message cannot be read",
            Refusal::Unable => "its message cannot be taken now",
            Refusal::Itself => "it is this node",
        }
    }

    /// What is wrong with this node, when a peer refuses it.
    pub fn of_us(self) -> &'static str {
        match self {
            Refusal::OtherCluster => "this node belongs to another cluster",
            Refusal::OtherNode => "it is not the node that was looked for at its address",
            Refusal::IdInUse => "another live process uses this node's id",
            Refusal::OtherDirectory => {
                "a metadata directory is not the one that the quorum knows by its node id"
            }
            Refusal::Malformed => "it cannot read this node's messages",
            Refusal::Unable => "it cannot take this node's messages now",
            Refusal::Itself => "it is this node",
        }
    }

    /// The refusal in an answer, if it is one. A code of a newer version is as good as `Unable`.
    pub fn of(code: i8) -> Result<(), Refusal> {
        if code == 0 {
            return Ok(());
        }
        let known = REFUSALS.iter().find(|refusal| refusal.code() == code);
        Err(known.copied().unwrap_or(Refusal::Unable))
    }
}

impl From<DecodeError> for Refusal {
    fn from(_: DecodeError) -> Refusal {
        Refusal::Malformed
    }
}

pub fn vote_request(sender: Sender, probe: bool, request: &VoteRequest<RaftNodeId>) -> RaftVoteRequest {
    RaftVoteRequest {
        sender,
        probe,
        vote: vote_bytes(request.vote),
        last_log_id: log_id_bytes(request.last_log_id),
        ..RaftVoteRequest::default()
    }
}

pub fn read_vote_request(message: &RaftVoteRequest) -> Result<VoteRequest<RaftNodeId>, DecodeError> {
    Ok(VoteRequest { vote: read_vote(&message.vote)?, last_log_id: read_log_id(&message.last_log_id)? })
}

pub fn vote_response(response: &VoteResponse<RaftNodeId>) -> RaftVoteResponse {
    RaftVoteResponse {
        granted: response.vote_granted,
        vote: vote_bytes(response.vote),
        last_log_id: log_id_bytes(response.last_log_id),
        ..RaftVoteResponse::default()
    }
}

pub fn read_vote_response(message: &RaftVoteResponse) -> Result<VoteResponse<RaftNodeId>, DecodeError> {
    Ok(VoteResponse {
        vote: read_vote(&message.vote)?,
        vote_granted: message.granted,
        last_log_id: read_log_id(&message.last_log_id)?,
    })
}

pub fn append_request(sender: Sender, request: &AppendEntriesRequest<Quorum>) -> RaftAppendRequest {
    let entries = request.entries.iter().map(|entry| {
        let mut bytes = BytesMut::new();
        codec::put_entry(&mut bytes, entry);
        RaftEntry { index: entry.log_id.index.cast_signed(), entry: bytes.freeze(), ..RaftEntry::default() }
    });
    RaftAppendRequest {
        sender,
        vote: vote_bytes(request.vote),
        previous: log_id_bytes(request.prev_log_id),
        committed: log_id_bytes(request.leader_commit),
        entries: entries.collect(),
        ..RaftAppendRequest::default()
    }
}

pub fn read_append_request(message: &RaftAppendRequest) -> Result<AppendEntriesRequest<Quorum>, DecodeError> {
    let entries = message.entries.iter();
    let entries = entries.map(|entry| codec::get_entry(entry.index.cast_unsigned(), entry.entry.clone()));
    Ok(AppendEntriesRequest {
        vote: read_vote(&message.vote)?,
        prev_log_id: read_log_id(&message.previous)?,
        leader_commit: read_log_id(&message.committed)?,
        entries: entries.collect::<Result<_, _>>()?,
    })
}

const ALL: i8 = 0;
const PART: i8 = 1;
const CONFLICT: i8 = 2;
const HIGHER_VOTE: i8 = 3;

pub fn append_response(response: &AppendEntriesResponse<RaftNodeId>) -> RaftAppendResponse {
    let (outcome, log_id, vote) = match response {
        AppendEntriesResponse::Success => (ALL, None, None),
        AppendEntriesResponse::PartialSuccess(log_id) => (PART, *log_id, None),
        AppendEntriesResponse::Conflict => (CONFLICT, None, None),
        AppendEntriesResponse::HigherVote(vote) => (HIGHER_VOTE, None, Some(*vote)),
    };
    RaftAppendResponse {
        outcome,
        log_id: log_id_bytes(log_id),
        vote: vote_bytes(vote.unwrap_or_default()),
        ..RaftAppendResponse::default()
    }
}

pub fn read_append_response(
    message: &RaftAppendResponse,
) -> Result<AppendEntriesResponse<RaftNodeId>, DecodeError> {
    Ok(match message.outcome {
        ALL => AppendEntriesResponse::Success,
        PART => AppendEntriesResponse::PartialSuccess(read_log_id(&message.log_id)?),
        CONFLICT => AppendEntriesResponse::Conflict,
        HIGHER_VOTE => AppendEntriesResponse::HigherVote(read_vote(&message.vote)?),
        other => return Err(DecodeError::UnknownKind(other.cast_unsigned())),
    })
}

/// A question for how much of a snapshot is there; pieces are made from it.
pub fn snapshot_request(sender: Sender, vote: Vote, meta: &SnapshotMeta, size: u64) -> RaftSnapshotRequest {
    let mut membership = BytesMut::new();
    codec::put_stored_membership(&mut membership, &meta.last_membership);
    RaftSnapshotRequest {
        sender,
        vote: vote_bytes(vote),
        snapshot_id: StrBytes::from_string(meta.snapshot_id.clone()),
        last_log_id: log_id_bytes(meta.last_log_id),
        membership: membership.freeze(),
        size: size.cast_signed(),
        ..RaftSnapshotRequest::default()
    }
}

pub fn read_snapshot_meta(message: &RaftSnapshotRequest) -> Result<SnapshotMeta, DecodeError> {
    let mut membership = message.membership.clone();
    let last_membership: StoredMembership = codec::get_stored_membership(&mut membership)?;
    Ok(SnapshotMeta {
        last_log_id: read_log_id(&message.last_log_id)?,
        last_membership: codec::finish(last_membership, &membership)?,
        snapshot_id: message.snapshot_id.to_string(),
    })
}

pub fn vote_bytes(vote: Vote) -> Bytes {
    let mut bytes = BytesMut::new();
    codec::put_optional_vote(&mut bytes, Some(vote));
    bytes.freeze()
}

pub fn read_vote(bytes: &Bytes) -> Result<Vote, DecodeError> {
    let mut bytes = bytes.clone();
    let vote = codec::get_optional_vote(&mut bytes)?;
    codec::finish(vote.unwrap_or_default(), &bytes)
}

fn log_id_bytes(id: Option<LogId>) -> Bytes {
    let mut bytes = BytesMut::new();
    codec::put_optional_log_id(&mut bytes, id);
    bytes.freeze()
}

fn read_log_id(bytes: &Bytes) -> Result<Option<LogId>, DecodeError> {
    let mut bytes = bytes.clone();
    let id = codec::get_optional_log_id(&mut bytes)?;
    codec::finish(id, &bytes)
}
