//! How the quorum's members reach each other. Until brokers form clusters there is only a quorum of one, so every call
//! to a peer fails, saying so; nothing here pretends to have sent anything.

use std::future::Future;

use openraft::error::{Fatal, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, Snapshot};

use crate::controller::raft_types::{Member, Quorum, RaftNodeId, Vote};

/// A quorum without peers.
#[derive(Clone, Copy, Debug)]
pub struct NoPeers;

/// A node that cannot be called.
#[derive(Clone, Copy, Debug)]
pub struct NoPeer {
    target: RaftNodeId,
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("node {0} cannot be called: this version runs a metadata quorum of one node only")]
struct NoTransport(RaftNodeId);

impl NoPeer {
    fn unreachable(self) -> Unreachable {
        Unreachable::new(&NoTransport(self.target))
    }
}

impl RaftNetworkFactory<Quorum> for NoPeers {
    type Network = NoPeer;

    async fn new_client(&mut self, target: RaftNodeId, _: &Member) -> NoPeer {
        NoPeer { target }
    }
}

type CallError = RPCError<RaftNodeId, Member, RaftError<RaftNodeId>>;

impl RaftNetwork<Quorum> for NoPeer {
    async fn append_entries(
        &mut self,
        _: AppendEntriesRequest<Quorum>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<RaftNodeId>, CallError> {
        Err(self.unreachable().into())
    }

    async fn vote(
        &mut self,
        _: VoteRequest<RaftNodeId>,
        _: RPCOption,
    ) -> Result<VoteResponse<RaftNodeId>, CallError> {
        Err(self.unreachable().into())
    }

    async fn full_snapshot(
        &mut self,
        _: Vote,
        _: Snapshot<Quorum>,
        _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<RaftNodeId>, StreamingError<Quorum, Fatal<RaftNodeId>>> {
        Err(self.unreachable().into())
    }
}
