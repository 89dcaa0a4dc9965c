//! BrokerHeartbeat: v0-2 (KIP-631)
//!
//! Behaviour: a registered broker shows that it lives, and is told where it stands: caught up, fenced, free to go. The
//! connection counts as a sign of life from then on, until it breaks. STALE_BROKER_EPOCH under a registration that is not
//! the newest, NOT_CONTROLLER from a node that does not lead. A broker of ours also says, in a tagged field, for whom it
//! waits in vain.
//!
//! Version notes: 1 adds failed log directories (KIP-858), 2 those that take no new partitions (KIP-1066).

use super::refusal::Refusal;
use super::{Api, Call, Request};
use crate::metadata::brokers::Heartbeat;
use crate::types::{BrokerEpoch, NodeId, Offset};
use crate::wire::messages::{BrokerHeartbeatRequest, BrokerHeartbeatResponse};

pub async fn handle(
    api: &Api,
    call: &Call,
    request: Request<BrokerHeartbeatRequest>,
) -> BrokerHeartbeatResponse {
    let request = request.body;
    let (id, epoch) = (NodeId(request.broker_id), BrokerEpoch(request.broker_epoch));
    let silent = request.silent_brokers();
    let heartbeat = Heartbeat {
        id,
        epoch,
        metadata_offset: Offset(request.current_metadata_offset),
        want_fence: request.want_fence,
        want_shutdown: request.want_shut_down,
        offline_directories: request.offline_log_dirs,
        cordoned_directories: request.cordoned_log_dirs,
    };
    match api.active.heartbeat(heartbeat, silent).await {
        Ok(reply) => {
            call.connection.keep_presence(|held| match held {
                Some(presence) if presence.is_of(id, epoch) => Some(presence),
                _ => api.active.presence(id, epoch),
            });
            BrokerHeartbeatResponse {
                is_caught_up: reply.caught_up,
                is_fenced: reply.fenced,
                should_shut_down: reply.should_shut_down,
                ..BrokerHeartbeatResponse::default()
            }
        }
        Err(error) => {
            let refusal = Refusal::from(error);
            tracing::debug!("A heartbeat of broker {id} is refused: {}", refusal.message);
            BrokerHeartbeatResponse { error_code: refusal.code.code(), ..BrokerHeartbeatResponse::default() }
        }
    }
}
