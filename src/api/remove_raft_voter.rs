//! RemoveRaftVoter: v0 (KIP-853)
//!
//! Behaviour: takes a controller out of the voters, unless the others would be no majority. It goes on following the log. A
//! broker asks the leader; a controller that does not lead answers NOT_LEADER_OR_FOLLOWER.

use std::sync::Arc;

use super::raft_voters::{ask_leader, change, check_cluster, default_limit};
use super::refusal::Refusal;
use super::topic_view::text;
use super::{Answer, Api, Call, Request};
use crate::controller::VoterChange;
use crate::types::NodeId;
use crate::wire::messages::RemoveRaftVoterRequest;
use crate::wire::messages::remove_raft_voter_response::RemoveRaftVoterResponse;

pub async fn handle(
    api: &Arc<Api>,
    call: &Call,
    request: Request<RemoveRaftVoterRequest>,
) -> Answer<RemoveRaftVoterResponse> {
    let (api, role) = (Arc::clone(api), call.listener.role);
    Answer::Later(Box::pin(async move {
        let Request { version, body, .. } = request;
        match ask_leader(&api, role, version, &body, default_limit(), |answer| answer.error_code).await {
            Some(answer) => Answer::Now(answer),
            None => Answer::Now(match remove(&api, &body).await {
                Ok(()) => RemoveRaftVoterResponse::default().with_error_message(None),
                Err(refused) => RemoveRaftVoterResponse::default()
                    .with_error_code(refused.code.code())
                    .with_error_message(Some(text(&refused.message))),
            }),
        }
    }))
}

async fn remove(api: &Api, request: &RemoveRaftVoterRequest) -> Result<(), Refusal> {
    check_cluster(api, request.cluster_id.as_ref())?;
    let (node, directory) = (NodeId(request.voter_id), request.voter_directory_id);
    change(api, VoterChange::Remove { node, directory }, default_limit(), true).await
}
