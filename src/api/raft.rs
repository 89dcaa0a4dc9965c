//! RaftVote, RaftAppend, RaftSnapshot, ObserverPoll, Propose, Confirm, RaftFounding: v0 of each, our own
//!
//! Behaviour: what the nodes of a cluster ask of a member of the metadata quorum (`controller::RaftService`). What may take
//! its time comes later, so that the leader's heartbeats on the same connection do not wait for it.
//!
//! Version notes: none yet.

use super::{Answer, Api, Call, Request};
use crate::wire::messages::{
    ConfirmRequest, ConfirmResponse, ObserverPollRequest, ObserverPollResponse, ProposeRequest,
    ProposeResponse, RaftAppendRequest, RaftAppendResponse, RaftFoundingRequest, RaftFoundingResponse,
    RaftSnapshotRequest, RaftSnapshotResponse, RaftVoteRequest, RaftVoteResponse,
};

fn later<R: Send + 'static>(answer: impl Future<Output = R> + Send + 'static) -> Answer<R> {
    Answer::Later(Box::pin(async move { Answer::Now(answer.await) }))
}

pub async fn vote(api: &Api, _: &Call, request: Request<RaftVoteRequest>) -> Answer<RaftVoteResponse> {
    let service = api.raft.clone();
    later(async move { service.vote(request.body).await })
}

pub async fn append(api: &Api, _: &Call, request: Request<RaftAppendRequest>) -> RaftAppendResponse {
    api.raft.append(request.body).await
}

pub async fn snapshot(api: &Api, _: &Call, request: Request<RaftSnapshotRequest>) -> RaftSnapshotResponse {
    api.raft.snapshot(request.body).await
}

pub async fn observer_poll(
    api: &Api,
    call: &Call,
    request: Request<ObserverPollRequest>,
) -> ObserverPollResponse {
    // A poll takes effect at once and then waits; whoever has gone is not waited for.
    call.only_waits();
    api.raft.observer_poll(request.body).await
}

pub async fn propose(api: &Api, _: &Call, request: Request<ProposeRequest>) -> Answer<ProposeResponse> {
    let service = api.raft.clone();
    later(async move { service.propose(request.body).await })
}

pub async fn confirm(api: &Api, _: &Call, request: Request<ConfirmRequest>) -> Answer<ConfirmResponse> {
    let service = api.raft.clone();
    later(async move { service.confirm(request.body).await })
}

pub async fn founding(api: &Api, _: &Call, request: Request<RaftFoundingRequest>) -> RaftFoundingResponse {
    api.raft.founding(&request.body)
}
