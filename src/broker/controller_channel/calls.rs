//! What a broker asks of the active controller, in the words of the metadata: over the network or in this process, with the
//! same outcomes. One of the few places below `api` that reads error codes: those of answers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{ChannelError, ControllerChannel};
use crate::controller::ProposeError;
use crate::controller::duties::DutyError;
use crate::metadata::alter_partition::{AlterPartitionError, AlteredPartition, ProposedIsr};
use crate::metadata::brokers::{Heartbeat, HeartbeatReply, RegisterBrokerError, Registration};
use crate::replica::AlterOutcome;
use crate::types::{
    BrokerEpoch, ErrorCode, LeaderEpoch, NodeId, PartitionEpoch, PartitionIndex, TopicIdPartition,
};
use crate::wire::messages::alter_partition_request::{BrokerState, PartitionData, TopicData};
use crate::wire::messages::alter_partition_response::PartitionData as Altered;
use crate::wire::messages::broker_registration_request::{Feature, Listener};
use crate::wire::messages::{
    AlterPartitionRequest, AlterPartitionResponse, BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerId,
    BrokerRegistrationRequest, BrokerRegistrationResponse, StrBytes,
};

/// Why this broker is not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterCallError {
    /// It may be later.
    #[error("{0}")]
    Unavailable(String),
    /// Another process has the id, and lives or died too recently to tell.
    #[error("another process is registered under the id of this broker and still alive")]
    Duplicate,
    #[error("{0}")]
    Refused(String),
}

/// Why a heartbeat has had no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeartbeatCallError {
    #[error("{0}")]
    Unavailable(String),
    #[error("the registration of this process is not the newest one of the broker, or there is none")]
    Stale,
}

/// Why no proposal has been judged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlterCallError {
    /// Whether they were carried out is not known.
    #[error("{0}")]
    Unavailable(String),
    #[error("the registration of this process is not the newest one of the broker")]
    Stale,
}

/// What the active controller answers, and others, who say that it is not they.
pub trait Answer {
    fn code(&self) -> i16;

    fn is_of_another(&self) -> bool {
        code(self.code()) == ErrorCode::NotController
    }
}

impl Answer for BrokerRegistrationResponse {
    fn code(&self) -> i16 {
        self.error_code
    }
}

impl Answer for BrokerHeartbeatResponse {
    fn code(&self) -> i16 {
        self.error_code
    }
}

impl Answer for AlterPartitionResponse {
    fn code(&self) -> i16 {
        self.error_code
    }
}

impl ControllerChannel {
    /// Registers this broker's process.
    pub async fn register(
        &self,
        registration: &Registration,
        limit: Duration,
    ) -> Result<BrokerEpoch, RegisterCallError> {
        if let Some(active) = self.here() {
            let registered = self.within(limit, active.register_broker(registration.clone())).await;
            return match registered {
                Ok(epoch) => Ok(epoch),
                Err(DutyError::Refused(RegisterBrokerError::DuplicateRegistration(_))) => {
                    Err(RegisterCallError::Duplicate)
                }
                Err(DutyError::Refused(error)) => Err(RegisterCallError::Refused(error.to_string())),
                Err(error) => Err(RegisterCallError::Unavailable(error.to_string())),
            };
        }
        let request = self.registration_request(registration);
        let response = self.call(&request, limit).await;
        let response = response.map_err(|error| RegisterCallError::Unavailable(error.to_string()))?;
        match code(response.error_code) {
            ErrorCode::None => Ok(BrokerEpoch(response.broker_epoch)),
            ErrorCode::DuplicateBrokerRegistration => Err(RegisterCallError::Duplicate),
            refused @ (ErrorCode::InvalidRegistration
            | ErrorCode::InconsistentClusterId
            | ErrorCode::UnsupportedVersion
            | ErrorCode::BrokerIdNotRegistered
            | ErrorCode::ClusterAuthorizationFailed
            | ErrorCode::InvalidRequest) => Err(RegisterCallError::Refused(refusal(refused))),
            other => Err(RegisterCallError::Unavailable(refusal(other))),
        }
    }

    fn registration_request(&self, registration: &Registration) -> BrokerRegistrationRequest {
        let listeners = registration.endpoints.iter().map(|endpoint| {
            Listener::default()
                .with_name(text(&endpoint.listener))
                .with_host(text(&endpoint.host))
                .with_port(endpoint.port)
                .with_security_protocol(endpoint.security_protocol)
        });
        let features = registration.features.iter().map(|(name, (min, max))| {
            Feature::default()
                .with_name(text(name))
                .with_min_supported_version(*min)
                .with_max_supported_version(*max)
        });
        BrokerRegistrationRequest::default()
            .with_broker_id(BrokerId(registration.id.0))
            .with_cluster_id(text(&self.shared.cluster_id))
            .with_incarnation_id(registration.incarnation)
            .with_listeners(listeners.collect())
            .with_features(features.collect())
            .with_rack(registration.rack.as_deref().map(text))
            .with_log_dirs(registration.directories.clone())
            .with_previous_broker_epoch(registration.previous_epoch.0)
    }

    /// Shows that this broker lives; `silent` are those for which it waits in vain, and for how many milliseconds.
    pub async fn heartbeat(
        &self,
        heartbeat: &Heartbeat,
        silent: &[(NodeId, i64)],
        limit: Duration,
    ) -> Result<HeartbeatReply, HeartbeatCallError> {
        if let Some(active) = self.here() {
            let heard = self.within(limit, active.heartbeat(heartbeat.clone(), silent.to_vec())).await;
            return match heard {
                Ok(reply) => Ok(reply),
                Err(DutyError::Refused(_)) => Err(HeartbeatCallError::Stale),
                Err(error) => Err(HeartbeatCallError::Unavailable(error.to_string())),
            };
        }
        let mut request = BrokerHeartbeatRequest {
            broker_id: heartbeat.id.0,
            broker_epoch: heartbeat.epoch.0,
            current_metadata_offset: heartbeat.metadata_offset.0,
            want_fence: heartbeat.want_fence,
            want_shut_down: heartbeat.want_shutdown,
            offline_log_dirs: heartbeat.offline_directories.clone(),
            cordoned_log_dirs: heartbeat.cordoned_directories.clone(),
            ..BrokerHeartbeatRequest::default()
        };
        request.set_silent_brokers(silent);
        let response = self.call(&request, limit).await;
        let response = response.map_err(|error| HeartbeatCallError::Unavailable(error.to_string()))?;
        match code(response.error_code) {
            ErrorCode::None => Ok(HeartbeatReply {
                caught_up: response.is_caught_up,
                fenced: response.is_fenced,
                // Not told over the network, and not needed: it is in the metadata.
                should_shut_down: response.should_shut_down,
            }),
            ErrorCode::StaleBrokerEpoch | ErrorCode::BrokerIdNotRegistered => Err(HeartbeatCallError::Stale),
            other => Err(HeartbeatCallError::Unavailable(refusal(other))),
        }
    }

    /// Asks for other in-sync sets of partitions that the broker `leader` leads. What became of a proposal that the answer
    /// does not name is unknown.
    pub async fn alter_partitions(
        &self,
        leader: NodeId,
        epoch: BrokerEpoch,
        proposals: &[ProposedIsr],
        limit: Duration,
    ) -> Result<Vec<(TopicIdPartition, AlterOutcome)>, AlterCallError> {
        if let Some(active) = self.here() {
            let judged = active.alter_partitions(leader, epoch, proposals.to_vec());
            return match self.within(limit, judged).await {
                Ok(outcomes) => {
                    Ok(outcomes.into_iter().map(|(id, outcome)| (id, judged_here(outcome))).collect())
                }
                Err(DutyError::Refused(_)) => Err(AlterCallError::Stale),
                Err(error) => Err(AlterCallError::Unavailable(error.to_string())),
            };
        }
        let request = AlterPartitionRequest::default()
            .with_broker_id(BrokerId(leader.0))
            .with_broker_epoch(epoch.0)
            .with_topics(by_topic(proposals));
        let response = self.call(&request, limit).await;
        let response =
            response.map_err(|error: ChannelError| AlterCallError::Unavailable(error.to_string()))?;
        match code(response.error_code) {
            ErrorCode::None => Ok(outcomes(&response)),
            ErrorCode::StaleBrokerEpoch => Err(AlterCallError::Stale),
            other => Err(AlterCallError::Unavailable(refusal(other))),
        }
    }

    /// A decision of this node's own, with the time limit that a call to another node has.
    async fn within<R, E>(
        &self,
        limit: Duration,
        decided: impl Future<Output = Result<R, DutyError<E>>>,
    ) -> Result<R, DutyError<E>> {
        tokio::time::timeout(limit, decided).await.unwrap_or_else(|_| {
            self.shared.doubted.store(true, Ordering::Relaxed);
            Err(DutyError::Metadata(ProposeError::Timeout))
        })
    }
}

fn by_topic(proposals: &[ProposedIsr]) -> Vec<TopicData> {
    let mut topics: Vec<TopicData> = Vec::new();
    for proposal in proposals {
        let TopicIdPartition { topic_id, partition } = proposal.partition;
        let members = proposal.isr.iter();
        let members = members.map(|(id, epoch)| {
            BrokerState::default().with_broker_id(BrokerId(id.0)).with_broker_epoch(epoch.0)
        });
        let proposed = PartitionData::default()
            .with_partition_index(partition.0)
            .with_leader_epoch(proposal.leader_epoch.0)
            .with_new_isr_with_epochs(members.collect())
            .with_leader_recovery_state(proposal.recovery_state.code())
            .with_partition_epoch(proposal.partition_epoch.0);
        match topics.iter_mut().find(|topic| topic.topic_id == topic_id) {
            Some(topic) => topic.partitions.push(proposed),
            None => {
                topics.push(TopicData::default().with_topic_id(topic_id).with_partitions(vec![proposed]));
            }
        }
    }
    topics
}

fn outcomes(response: &AlterPartitionResponse) -> Vec<(TopicIdPartition, AlterOutcome)> {
    let partitions = response.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|altered| {
            let partition = PartitionIndex(altered.partition_index);
            (TopicIdPartition { topic_id: topic.topic_id, partition }, judged_there(altered))
        })
    });
    partitions.collect()
}

fn judged_here(outcome: Result<AlteredPartition, AlterPartitionError>) -> AlterOutcome {
    match outcome {
        Ok(AlteredPartition { leader_epoch, partition_epoch, isr, .. }) => {
            AlterOutcome::Applied { leader_epoch, partition_epoch, isr }
        }
        Err(
            AlterPartitionError::UnknownTopic
            | AlterPartitionError::UnknownPartition
            | AlterPartitionError::FencedLeaderEpoch(_)
            | AlterPartitionError::StalePartitionEpoch(_)
            | AlterPartitionError::NewLeaderElected,
        ) => AlterOutcome::Superseded,
        Err(
            AlterPartitionError::NotLeader(_)
            | AlterPartitionError::InvalidMember(_)
            | AlterPartitionError::WithoutLeader
            | AlterPartitionError::RecoveringWithOthers
            | AlterPartitionError::RecoversAgain
            | AlterPartitionError::IneligibleReplica { .. },
        ) => AlterOutcome::Refused,
        // The controller is behind: another one leads, or will.
        Err(AlterPartitionError::NewerEpoch { .. }) => AlterOutcome::Unknown,
    }
}

fn judged_there(altered: &Altered) -> AlterOutcome {
    match code(altered.error_code) {
        ErrorCode::None => AlterOutcome::Applied {
            leader_epoch: LeaderEpoch(altered.leader_epoch),
            partition_epoch: PartitionEpoch(altered.partition_epoch),
            isr: altered.isr.iter().map(|id| NodeId(id.0)).collect(),
        },
        ErrorCode::UnknownTopicId
        | ErrorCode::UnknownTopicOrPartition
        | ErrorCode::FencedLeaderEpoch
        | ErrorCode::InvalidUpdateVersion
        | ErrorCode::NewLeaderElected => AlterOutcome::Superseded,
        ErrorCode::InvalidRequest | ErrorCode::IneligibleReplica | ErrorCode::OperationNotAttempted => {
            AlterOutcome::Refused
        }
        _ => AlterOutcome::Unknown,
    }
}

fn code(code: i16) -> ErrorCode {
    ErrorCode::from_code(code).unwrap_or(ErrorCode::UnknownServerError)
}

fn refusal(code: ErrorCode) -> String {
    format!("the active controller answers {}", code.name())
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}
