//! AlterPartition: v2-3 (KIP-497, KIP-704, KIP-841)
//!
//! Behaviour: the leader of partitions asks the active controller for other in-sync sets; each proposal is judged by itself
//! and answered with the partition's state or the reason why it is not carried out. STALE_BROKER_EPOCH for all under a
//! registration that is not the newest, NOT_CONTROLLER from a node that does not lead.
//!
//! Version notes: 2 lists brokers, 3 brokers with the epochs in which the leader saw them (KIP-903).

use super::refusal::Refusal;
use super::topic_view::broker_ids;
use super::{Api, Call, Request};
use crate::metadata::alter_partition::{AlterPartitionError, AlteredPartition, ProposedIsr};
use crate::metadata::topics::LeaderRecoveryState;
use crate::types::{
    BrokerEpoch, ErrorCode, LeaderEpoch, NodeId, PartitionEpoch, PartitionIndex, TopicId, TopicIdPartition,
};
use crate::wire::messages::alter_partition_request::PartitionData as Proposed;
use crate::wire::messages::alter_partition_response::{PartitionData, TopicData};
use crate::wire::messages::{AlterPartitionRequest, AlterPartitionResponse, BrokerId};

type Outcome = (TopicIdPartition, Result<AlteredPartition, AlterPartitionError>);

pub async fn handle(api: &Api, _: &Call, request: Request<AlterPartitionRequest>) -> AlterPartitionResponse {
    let (version, request) = (request.version, request.body);
    let (id, epoch) = (NodeId(request.broker_id.0), BrokerEpoch(request.broker_epoch));
    let topics = request.topics.iter();
    let proposals = topics.flat_map(|topic| {
        topic.partitions.iter().map(|proposed| proposal(version, topic.topic_id, proposed))
    });
    match api.active.alter_partitions(id, epoch, proposals.collect()).await {
        Ok(outcomes) => AlterPartitionResponse::default().with_topics(by_topic(&outcomes)),
        Err(error) => {
            let refusal = Refusal::from(error);
            tracing::info!("In-sync sets of broker {id} are not changed: {}", refusal.message);
            AlterPartitionResponse::default().with_error_code(refusal.code.code())
        }
    }
}

fn proposal(version: i16, topic_id: TopicId, proposed: &Proposed) -> ProposedIsr {
    let isr = if version >= 3 {
        let members = proposed.new_isr_with_epochs.iter();
        members.map(|member| (NodeId(member.broker_id.0), BrokerEpoch(member.broker_epoch))).collect()
    } else {
        proposed.new_isr.iter().map(|broker| (NodeId(broker.0), BrokerEpoch::UNKNOWN)).collect()
    };
    ProposedIsr {
        partition: TopicIdPartition { topic_id, partition: PartitionIndex(proposed.partition_index) },
        leader_epoch: LeaderEpoch(proposed.leader_epoch),
        partition_epoch: PartitionEpoch(proposed.partition_epoch),
        isr,
        recovery_state: LeaderRecoveryState::from_code(proposed.leader_recovery_state),
    }
}

/// Outcomes in the order of the request, those of one topic together.
fn by_topic(outcomes: &[Outcome]) -> Vec<TopicData> {
    let mut topics: Vec<TopicData> = Vec::new();
    for (partition, outcome) in outcomes {
        let shown = shown(partition.partition, outcome);
        match topics.last_mut() {
            Some(topic) if topic.topic_id == partition.topic_id => topic.partitions.push(shown),
            _ => topics
                .push(TopicData::default().with_topic_id(partition.topic_id).with_partitions(vec![shown])),
        }
    }
    topics
}

fn shown(index: PartitionIndex, outcome: &Result<AlteredPartition, AlterPartitionError>) -> PartitionData {
    let shown = PartitionData::default().with_partition_index(index.0);
    match outcome {
        Ok(altered) => shown
            .with_leader_id(BrokerId(altered.leader.0))
            .with_leader_epoch(altered.leader_epoch.0)
            .with_isr(broker_ids(&altered.isr))
            .with_leader_recovery_state(altered.recovery_state.code())
            .with_partition_epoch(altered.partition_epoch.0),
        Err(error) => {
            tracing::info!("An in-sync set is not changed: {error}");
            shown.with_error_code(code(error).code())
        }
    }
}

fn code(error: &AlterPartitionError) -> ErrorCode {
    match error {
        AlterPartitionError::UnknownTopic => ErrorCode::UnknownTopicId,
        AlterPartitionError::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
        AlterPartitionError::NewerEpoch { .. } => ErrorCode::NotController,
        AlterPartitionError::FencedLeaderEpoch(_) => ErrorCode::FencedLeaderEpoch,
        AlterPartitionError::StalePartitionEpoch(_) => ErrorCode::InvalidUpdateVersion,
        AlterPartitionError::NotLeader(_)
        | AlterPartitionError::InvalidMember(_)
        | AlterPartitionError::WithoutLeader
        | AlterPartitionError::RecoveringWithOthers
        | AlterPartitionError::RecoversAgain => ErrorCode::InvalidRequest,
        AlterPartitionError::IneligibleReplica { .. } => ErrorCode::IneligibleReplica,
        AlterPartitionError::NewLeaderElected => ErrorCode::NewLeaderElected,
    }
}
