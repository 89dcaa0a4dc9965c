//! What the APIs that change the voters of the metadata quorum have in common: where a change goes, and the codes of refusals.

use std::time::Duration;

use kafka_protocol::protocol::Request as KafkaRequest;

use super::refusal::Refusal;
use super::{Api, ListenerRole};
use crate::controller::{ChangeRefused, ChangeVotersError, VoterChange};
use crate::types::ErrorCode;
use crate::wire::messages::StrBytes;

/// The longest time that a request waits for a change, whatever it asks for.
const MAX_LIMIT: Duration = Duration::from_secs(30);
/// How long a broker looks for a leader that answers.
pub const FORWARD_LIMIT: Duration = Duration::from_secs(5);
/// How long it rests between two questions.
const AGAIN_PAUSE: Duration = Duration::from_millis(50);

/// The time that a request gives.
pub fn limit(timeout_ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0)).min(MAX_LIMIT)
}

/// The time for a request that gives none.
pub fn default_limit() -> Duration {
    MAX_LIMIT
}

/// Whether the request may be for this cluster.
pub fn check_cluster(api: &Api, cluster_id: Option<&StrBytes>) -> Result<(), Refusal> {
    match cluster_id {
        Some(id) if id.as_str() != &*api.node.cluster_id => {
            let message = format!("this is cluster {}, not {}", api.node.cluster_id, id.as_str());
            Err(Refusal::new(ErrorCode::InconsistentClusterId, message))
        }
        _ => Ok(()),
    }
}

/// Makes a change, on the node that leads.
pub async fn change(
    api: &Api,
    change: VoterChange,
    limit: Duration,
    until_committed: bool,
) -> Result<(), Refusal> {
    let changed = api.raft.voters().change(change, limit, until_committed).await;
    changed.map_err(|error| {
        tracing::info!("The voters stay as they are: {error}");
        refusal(&error)
    })
}

fn refusal(error: &ChangeVotersError) -> Refusal {
    let code = match error {
        ChangeVotersError::NotLeader { .. } => ErrorCode::NotLeaderOrFollower,
        ChangeVotersError::Refused(refused) => match refused {
            ChangeRefused::NoVoter | ChangeRefused::NoListener(_) => ErrorCode::InvalidRequest,
            ChangeRefused::Static => ErrorCode::UnsupportedVersion,
            ChangeRefused::Duplicate(_) => ErrorCode::DuplicateVoter,
            ChangeRefused::NotFound { .. } | ChangeRefused::LastVoter(_) => ErrorCode::VoterNotFound,
            // Kafka would begin such a change, and not be able to commit it.
            ChangeRefused::Pending | ChangeRefused::LosesQuorum { .. } | ChangeRefused::NoMajority { .. } => {
                ErrorCode::RequestTimedOut
            }
        },
        ChangeVotersError::Behind(_)
        | ChangeVotersError::NotReached { .. }
        | ChangeVotersError::Timeout
        | ChangeVotersError::Unavailable(_) => ErrorCode::RequestTimedOut,
    };
    Refusal::new(code, error.to_string())
}

/// What the leader answers to a request that came to a broker which does not lead; `None` when this node is to answer.
pub async fn ask_leader<R: KafkaRequest + 'static>(
    api: &Api,
    role: ListenerRole,
    version: i16,
    request: &R,
    limit: Duration,
    error_code: impl Fn(&R::Response) -> i16,
) -> Option<R::Response> {
    if role != ListenerRole::Broker {
        return None;
    }
    let asked = async {
        loop {
            if api.metadata.is_leader() {
                return None;
            }
            if let Some(answer) = api.raft.voters().ask_leader(request, version, limit).await
                && error_code(&answer) != ErrorCode::NotLeaderOrFollower.code()
            {
                return Some(answer);
            }
            tokio::time::sleep(AGAIN_PAUSE).await;
        }
    };
    tokio::time::timeout(limit, asked).await.unwrap_or(None)
}
