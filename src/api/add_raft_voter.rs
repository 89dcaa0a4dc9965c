//! AddRaftVoter: v0-1 (KIP-853)
//!
//! Behaviour: makes a controller that follows the metadata log a voter, once it has all of the log and is reached where the
//! request says. A broker asks the leader; a controller that does not lead answers NOT_LEADER_OR_FOLLOWER.
//!
//! Version notes: 1 lets the answer leave before the new voters are committed (KIP-1186).

use std::sync::Arc;

use super::raft_voters::{ask_leader, change, check_cluster, limit};
use super::refusal::Refusal;
use super::topic_view::text;
use super::{Answer, Api, Call, Request};
use crate::controller::{Endpoint, Member, VoterChange};
use crate::types::NodeId;
use crate::wire::messages::AddRaftVoterRequest;
use crate::wire::messages::add_raft_voter_response::AddRaftVoterResponse;

pub async fn handle(
    api: &Arc<Api>,
    call: &Call,
    request: Request<AddRaftVoterRequest>,
) -> Answer<AddRaftVoterResponse> {
    let (api, role) = (Arc::clone(api), call.listener.role);
    Answer::Later(Box::pin(async move {
        let Request { version, body, .. } = request;
        let limit = limit(body.timeout_ms);
        match ask_leader(&api, role, version, &body, limit, |answer| answer.error_code).await {
            Some(answer) => Answer::Now(answer),
            None => Answer::Now(match add(&api, version, &body).await {
                Ok(()) => AddRaftVoterResponse::default(),
                Err(refused) => AddRaftVoterResponse {
                    error_code: refused.code.code(),
                    error_message: Some(text(&refused.message)),
                    ..AddRaftVoterResponse::default()
                },
            }),
        }
    }))
}

async fn add(api: &Api, version: i16, request: &AddRaftVoterRequest) -> Result<(), Refusal> {
    check_cluster(api, request.cluster_id.as_ref())?;
    let endpoint = |listener: &crate::wire::messages::add_raft_voter_request::AddedVoterListener| Endpoint {
        listener: listener.name.to_string(),
        host: listener.host.to_string(),
        port: listener.port,
    };
    let endpoints = request.listeners.iter().map(endpoint).collect();
    let member = Member { directory_id: request.voter_directory_id, endpoints };
    let added = VoterChange::Add { node: NodeId(request.voter_id), member };
    let until_committed = version < 1 || request.ack_when_committed;
    change(api, added, limit(request.timeout_ms), until_committed).await
}
