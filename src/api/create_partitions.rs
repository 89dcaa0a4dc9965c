//! CreatePartitions: v0-3
//!
//! Behaviour: raises the number of partitions of each topic; the new ones are placed, or assigned by hand.

use std::sync::Arc;
use std::time::Duration;

use super::refusal::Refusal;
use super::topic_view::{text, topic_name};
use super::{Api, Call, Request};
use crate::metadata::Image;
use crate::metadata::topics::{MorePartitions, create_partitions};
use crate::types::NodeId;
use crate::wire::messages::CreatePartitionsRequest;
use crate::wire::messages::create_partitions_request::CreatePartitionsTopic;
use crate::wire::messages::create_partitions_response::{
    CreatePartitionsResponse, CreatePartitionsTopicResult,
};

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<CreatePartitionsRequest>,
) -> CreatePartitionsResponse {
    let request = request.body;
    let topics: Arc<[MorePartitions]> = request.topics.iter().map(more_partitions).collect();
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let (validate_only, seed, asked) = (request.validate_only, rand::random(), Arc::clone(&topics));
    let decide = move |image: &Image| create_partitions(image, &asked, validate_only, seed);
    let decided = api.metadata.run_within(timeout, decide).await.map_err(Refusal::from);
    let outcomes: Vec<(Arc<str>, Result<(), Refusal>)> = match decided
        .and_then(|outcomes| outcomes.map_err(Refusal::from))
    {
        Ok(outcomes) => {
            let outcomes = outcomes.into_iter();
            outcomes.map(|(topic, outcome)| (topic, outcome.map_err(Refusal::from))).collect()
        }
        Err(refused) => topics.iter().map(|topic| (Arc::clone(&topic.topic), Err(refused.clone()))).collect(),
    };
    if !validate_only {
        api.served_image(timeout).await;
    }
    let results = outcomes.into_iter().map(|(topic, outcome)| {
        let shown = CreatePartitionsTopicResult::default().with_name(topic_name(&topic));
        match outcome {
            Ok(()) => shown,
            Err(refusal) => {
                shown.with_error_code(refusal.code.code()).with_error_message(Some(text(&refusal.message)))
            }
        }
    });
    CreatePartitionsResponse::default().with_results(results.collect())
}

fn more_partitions(topic: &CreatePartitionsTopic) -> MorePartitions {
    MorePartitions {
        topic: topic.name.as_str().into(),
        count: topic.count,
        assignments: topic.assignments.as_ref().map(|assignments| {
            let replicas = assignments.iter().map(|assignment| &assignment.broker_ids);
            replicas.map(|ids| ids.iter().map(|id| NodeId(id.0)).collect()).collect()
        }),
    }
}
