//! DescribeProducers: v0 (KIP-664)
//!
//! Behaviour: the idempotent and transactional producers that this replica of a partition remembers, be it one that does not
//! lead, with their last sequence and, where a transaction is open, where it began.

use super::topic_view::{text, topic_name};
use super::{Api, Call, Request};
use crate::metadata::topics::name as topic_names;
use crate::storage::log::producer_state::ActiveProducer;
use crate::types::{ErrorCode, LeaderEpoch, Offset};
use crate::wire::messages::DescribeProducersRequest;
use crate::wire::messages::describe_producers_response::{
    DescribeProducersResponse, PartitionResponse, ProducerState, TopicResponse,
};

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<DescribeProducersRequest>,
) -> DescribeProducersResponse {
    let mut topics = Vec::new();
    for topic in &request.body.topics {
        let mut partitions = Vec::new();
        for &index in &topic.partition_indexes {
            let shown = PartitionResponse::default().with_partition_index(index);
            partitions.push(match producers(api, topic.name.as_str(), index).await {
                Ok(producers) => shown
                    .with_error_message(None)
                    .with_active_producers(producers.iter().map(state).collect()),
                Err(error) => {
                    shown.with_error_code(error.code()).with_error_message(Some(text(error.name())))
                }
            });
        }
        topics.push(
            TopicResponse::default().with_name(topic_name(topic.name.as_str())).with_partitions(partitions),
        );
    }
    DescribeProducersResponse::default().with_topics(topics)
}

async fn producers(api: &Api, topic: &str, partition: i32) -> Result<Vec<ActiveProducer>, ErrorCode> {
    topic_names::validate(topic).map_err(|_| ErrorCode::InvalidTopicException)?;
    let image = api.metadata.image();
    let here = api.hosted_by_name(&image, topic, partition, LeaderEpoch::UNKNOWN)?;
    let asked = api.broker().partitions.active_producers(here.partition.id).await;
    asked.ok_or(ErrorCode::NotLeaderOrFollower)
}

fn state(producer: &ActiveProducer) -> ProducerState {
    ProducerState::default()
        .with_producer_id(producer.producer_id.0.into())
        .with_producer_epoch(i32::from(producer.epoch.0))
        .with_last_sequence(producer.last_sequence)
        .with_last_timestamp(producer.last_timestamp.0)
        .with_coordinator_epoch(producer.coordinator_epoch)
        .with_current_txn_start_offset(producer.current_txn_first_offset.unwrap_or(Offset::UNKNOWN).0)
}
