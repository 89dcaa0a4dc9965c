//! AlterPartitionReassignments: v0-1 (KIP-455)
//!
//! Behaviour: begins a reassignment of each partition, or cancels the one under way where the replicas are null. An answer
//! without errors says that it has begun, not that it is complete.
//!
//! Version notes: 1 may forbid changes of the replication factor (KIP-860).

use std::time::Duration;

use super::refusal::Refusal;
use super::topic_view::text;
use super::{Api, Call, Request};
use crate::metadata::Image;
use crate::metadata::reassign::{Reassignment, reassign};
use crate::types::{NodeId, PartitionIndex, TopicPartition};
use crate::wire::messages::AlterPartitionReassignmentsRequest;
use crate::wire::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use crate::wire::messages::alter_partition_reassignments_response::{
    AlterPartitionReassignmentsResponse, ReassignablePartitionResponse, ReassignableTopicResponse,
};

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<AlterPartitionReassignmentsRequest>,
) -> AlterPartitionReassignmentsResponse {
    let request = request.body;
    let reassignments: Vec<Reassignment> = request.topics.iter().flat_map(reassignments_of).collect();
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let defaults = api.config.at(&api.metadata.image()).election_defaults();
    let may_change_factor = request.allow_replication_factor_change;
    let decide = move |image: &Image| reassign(image, &reassignments, may_change_factor, defaults);
    let decided = api.metadata.run_within(timeout, decide).await.map_err(Refusal::from);
    let response = AlterPartitionReassignmentsResponse::default()
        .with_allow_replication_factor_change(may_change_factor);
    match decided.and_then(|outcomes| outcomes.map_err(Refusal::from)) {
        Ok(outcomes) => {
            let mut outcomes = outcomes.into_iter().map(|(_, outcome)| outcome.map_err(Refusal::from).err());
            // There is an outcome for each partition, in their order.
            let responses = answer(&request.topics, || outcomes.next().flatten());
            response.with_error_message(None).with_responses(responses)
        }
        Err(refusal) => response
            .with_error_code(refusal.code.code())
            .with_error_message(Some(text(&refusal.message)))
            .with_responses(answer(&request.topics, || Some(refusal.clone()))),
    }
}

fn reassignments_of(topic: &ReassignableTopic) -> impl Iterator<Item = Reassignment> {
    topic.partitions.iter().map(|partition| Reassignment {
        partition: TopicPartition {
            topic: topic.name.as_str().into(),
            partition: PartitionIndex(partition.partition_index),
        },
        replicas: partition
            .replicas
            .as_ref()
            .map(|replicas| replicas.iter().map(|replica| NodeId(replica.0)).collect()),
    })
}

fn answer(
    topics: &[ReassignableTopic],
    mut refusal: impl FnMut() -> Option<Refusal>,
) -> Vec<ReassignableTopicResponse> {
    let mut of_partition = |partition: &ReassignablePartition| {
        let answered =
            ReassignablePartitionResponse::default().with_partition_index(partition.partition_index);
        match refusal() {
            None => answered.with_error_message(None),
            Some(refusal) => {
                answered.with_error_code(refusal.code.code()).with_error_message(Some(text(&refusal.message)))
            }
        }
    };
    let of_topic = topics.iter().map(|topic| {
        ReassignableTopicResponse::default()
            .with_name(topic.name.clone())
            .with_partitions(topic.partitions.iter().map(&mut of_partition).collect())
    });
    of_topic.collect()
}
