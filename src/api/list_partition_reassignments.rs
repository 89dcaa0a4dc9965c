//! ListPartitionReassignments: v0 (KIP-455)
//!
//! Behaviour: the reassignments under way, of the partitions asked for or of all. Whatever does not exist, or is not being
//! reassigned, is not told.

use std::sync::Arc;

use super::refusal::Refusal;
use super::topic_view::{broker_ids, text, topic_name};
use super::{Api, Call, Request};
use crate::metadata::reassign::{OngoingReassignment, ongoing_reassignments};
use crate::metadata::{Decision, Image};
use crate::types::PartitionIndex;
use crate::wire::messages::ListPartitionReassignmentsRequest;
use crate::wire::messages::list_partition_reassignments_response::{
    ListPartitionReassignmentsResponse, OngoingPartitionReassignment, OngoingTopicReassignment,
};

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<ListPartitionReassignmentsRequest>,
) -> ListPartitionReassignmentsResponse {
    let asked: Option<Vec<(Arc<str>, Vec<PartitionIndex>)>> = request.body.topics.map(|topics| {
        let topics = topics.into_iter();
        let named = topics.map(|topic| {
            let indexes = topic.partition_indexes.into_iter().map(PartitionIndex).collect();
            (Arc::from(topic.name.as_str()), indexes)
        });
        named.collect()
    });
    let decide = move |image: &Image| Decision::reply(ongoing_reassignments(image, asked.as_deref()));
    let response = ListPartitionReassignmentsResponse::default();
    match api.metadata.run(decide).await {
        Ok(ongoing) => response.with_error_message(None).with_topics(by_topic(ongoing)),
        Err(error) => {
            let refusal = Refusal::from(error);
            response.with_error_code(refusal.code.code()).with_error_message(Some(text(&refusal.message)))
        }
    }
}

/// They come topic by topic.
fn by_topic(ongoing: Vec<OngoingReassignment>) -> Vec<OngoingTopicReassignment> {
    let mut topics: Vec<OngoingTopicReassignment> = Vec::new();
    for reassignment in ongoing {
        let partition = OngoingPartitionReassignment::default()
            .with_partition_index(reassignment.partition.partition.0)
            .with_replicas(broker_ids(&reassignment.replicas))
            .with_adding_replicas(broker_ids(&reassignment.adding))
            .with_removing_replicas(broker_ids(&reassignment.removing));
        let topic = &reassignment.partition.topic;
        match topics.last_mut() {
            Some(last) if last.name.as_str() == &**topic => last.partitions.push(partition),
            _ => topics.push(
                OngoingTopicReassignment::default()
                    .with_name(topic_name(topic))
                    .with_partitions(vec![partition]),
            ),
        }
    }
    topics
}
