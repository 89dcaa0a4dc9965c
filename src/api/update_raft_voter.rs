//! UpdateRaftVoter: v0 (KIP-853)
//!
//! Behaviour: a voter tells the leader where it listens. Voters that the configuration names may tell, and it changes
//! nothing. Whoever is asked says who leads.

use super::raft_voters::{change, check_cluster, default_limit};
use super::refusal::Refusal;
use super::topic_view::text;
use super::{Api, Call, Request};
use crate::controller::{Endpoint, Member, VoterChange};
use crate::metadata::features::KRAFT_VERSION;
use crate::types::{ErrorCode, NodeId};
use crate::wire::messages::update_raft_voter_request::{Listener, UpdateRaftVoterRequest};
use crate::wire::messages::update_raft_voter_response::{CurrentLeader, UpdateRaftVoterResponse};

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<UpdateRaftVoterRequest>,
) -> UpdateRaftVoterResponse {
    let code = match update(api, &request.body).await {
        Ok(()) => ErrorCode::None,
        Err(refused) => refused.code,
    };
    UpdateRaftVoterResponse::default().with_error_code(code.code()).with_current_leader(leader(api))
}

async fn update(api: &Api, request: &UpdateRaftVoterRequest) -> Result<(), Refusal> {
    check_cluster(api, request.cluster_id.as_ref())?;
    let epoch = epoch(api);
    if request.current_leader_epoch != epoch {
        let is_old = request.current_leader_epoch < epoch;
        let code = if is_old { ErrorCode::FencedLeaderEpoch } else { ErrorCode::UnknownLeaderEpoch };
        return Err(Refusal::new(code, format!("the leader's epoch is {epoch}")));
    }
    let supported = &request.k_raft_version_feature;
    let (min, max) = (supported.min_supported_version, supported.max_supported_version);
    let level = api.metadata.kraft_version();
    if min < 0 || max < min || !(min..=max).contains(&level) {
        let message = format!("{KRAFT_VERSION} is {level}, and the voter supports levels {min} to {max}");
        return Err(Refusal::new(ErrorCode::InvalidRequest, message));
    }
    let endpoint = |listener: &Listener| Endpoint {
        listener: listener.name.to_string(),
        host: listener.host.to_string(),
        port: listener.port,
    };
    let endpoints = request.listeners.iter().map(endpoint).collect();
    let member = Member { directory_id: request.voter_directory_id, endpoints };
    let updated = VoterChange::Update { node: NodeId(request.voter_id), member };
    change(api, updated, default_limit(), true).await
}

fn epoch(api: &Api) -> i32 {
    i32::try_from(api.metadata.leadership().borrow().term).unwrap_or(i32::MAX)
}

fn leader(api: &Api) -> CurrentLeader {
    let shown = CurrentLeader::default().with_leader_epoch(epoch(api));
    let leader = api.metadata.leader();
    match leader.and_then(|leader| Some((leader, api.metadata.controller_address(leader)?))) {
        Some((leader, address)) => shown
            .with_leader_id(leader.0.into())
            .with_host(text(&address.host))
            .with_port(i32::from(address.port)),
        None => shown.with_leader_id((-1).into()),
    }
}
