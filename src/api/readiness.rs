//! Readiness: v0, our own
//!
//! Behaviour: whether this node serves: a broker once it is unfenced, a controller that is none once it knows the leader of the
//! quorum. If it does not, what it waits for, in words for people. Answered as soon as the node listens.
//!
//! Version notes: none yet.

use super::topic_view::text;
use super::{Api, Call, ListenerRole, Request};
use crate::wire::messages::{ReadinessRequest, ReadinessResponse};

pub async fn handle(api: &Api, call: &Call, _: Request<ReadinessRequest>) -> ReadinessResponse {
    let leader = api.metadata.leader();
    let not_ready = match call.listener.role {
        ListenerRole::Broker => {
            let not_ready = api.readiness.not_ready(api.node.id, &api.metadata).await;
            let is_soon = || (!api.serves.initialized()).then(|| "it is about to serve".to_owned());
            not_ready.map(|reason| reason.to_string()).or_else(is_soon)
        }
        ListenerRole::Controller => {
            leader.is_none().then(|| "the quorum has no leader that it knows".to_owned())
        }
    };
    ReadinessResponse {
        node_id: api.node.id.0,
        cluster_id: text(&api.node.cluster_id),
        leader: leader.map_or(-1, |id| id.0),
        not_ready: not_ready.as_deref().map(text),
        ..Default::default()
    }
}
