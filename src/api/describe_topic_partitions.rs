//! DescribeTopicPartitions: v0 (KIP-966)
//!
//! Behaviour: topics in the order of their names, from the cursor on, until `min(request, max.request.partition.size.limit)`
//! partitions are told; then a cursor says where the next request goes on. Without topics in the request, all topics.
//! A partition without a leader has leader -1 and no error. A cursor on a topic that is not asked for, or before partition 0, fails every topic with INVALID_REQUEST.

use std::collections::BTreeSet;

use super::topic_view::{Showing, broker_ids, is_internal, topic_name};
use super::{Api, Call, Request, authorized};
use crate::metadata::topics::{TopicImage, name as topic_names};
use crate::types::{ErrorCode, PartitionIndex, Uuid};
use crate::wire::messages::DescribeTopicPartitionsRequest;
use crate::wire::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponse, DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
};

pub async fn handle(
    api: &Api,
    call: &Call,
    request: Request<DescribeTopicPartitionsRequest>,
) -> DescribeTopicPartitionsResponse {
    let request = request.body;
    let image = api.metadata.image();
    let showing = Showing {
        image: &image,
        listener: &call.listener.name,
        error_on_unavailable: false,
        names_missing_listeners: true,
    };
    let first = request.cursor.as_ref().map_or("", |cursor| cursor.topic_name.as_str());
    let all = request.topics.is_empty();
    let names: BTreeSet<&str> = if all {
        image.topics.starting_at(first).map(|topic| &*topic.name).collect()
    } else {
        request.topics.iter().map(|topic| topic.name.as_str()).filter(|&name| name >= first).collect()
    };
    if let Some(cursor) = &request.cursor
        && (cursor.partition_index < 0 || !(all || names.contains(first)))
    {
        return refused(&request);
    }
    let limit =
        request.response_partition_limit.min(api.config.at(&image).broker.max_request_partition_size_limit);
    let mut room = usize::try_from(limit).unwrap_or(0).max(1);
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names {
        if room == 0 {
            response.next_cursor = Some(cursor(name, 0));
            break;
        }
        let from =
            request.cursor.as_ref().filter(|_| name == first).map_or(0, |cursor| cursor.partition_index);
        match image.topics.by_name(name) {
            Some(topic) => {
                let (shown, rest) = describe(&showing, topic, from, room);
                room -= shown.partitions.len();
                response.topics.push(shown);
                if let Some(rest) = rest {
                    response.next_cursor = Some(cursor(name, rest));
                    break;
                }
            }
            None if all => {}
            None => response.topics.push(absent(name)),
        }
    }
    response
}

/// The partitions of a topic from `from` on, at most `room`, and the first that did not fit.
fn describe(
    showing: &Showing<'_>,
    topic: &TopicImage,
    from: i32,
    room: usize,
) -> (DescribeTopicPartitionsResponseTopic, Option<i32>) {
    let mut partitions = topic.partitions().filter(|(index, _)| index.0 >= from);
    let mut shown = Vec::new();
    for (index, partition) in partitions.by_ref().take(room) {
        let state = showing.partition(partition);
        shown.push(
            DescribeTopicPartitionsResponsePartition::default()
                .with_partition_index(index.0)
                .with_leader_id(state.leader.0.into())
                .with_leader_epoch(partition.leader_epoch.0)
                .with_replica_nodes(broker_ids(&state.replicas))
                .with_isr_nodes(broker_ids(&state.isr))
                .with_eligible_leader_replicas(Some(broker_ids(&partition.elr)))
                .with_last_known_elr(Some(broker_ids(&partition.last_known_elr)))
                .with_offline_replicas(broker_ids(&state.offline)),
        );
    }
    let rest = partitions.next().map(|(PartitionIndex(index), _)| index);
    let topic = DescribeTopicPartitionsResponseTopic::default()
        .with_name(Some(topic_name(&topic.name)))
        .with_topic_id(topic.id)
        .with_is_internal(is_internal(&topic.name))
        .with_topic_authorized_operations(authorized::on_topic())
        .with_partitions(shown);
    (topic, rest)
}

fn absent(name: &str) -> DescribeTopicPartitionsResponseTopic {
    let error = match topic_names::validate(name) {
        Ok(()) => ErrorCode::UnknownTopicOrPartition,
        Err(_) => ErrorCode::InvalidTopicException,
    };
    failed(name, error).with_topic_authorized_operations(authorized::on_topic())
}

fn failed(name: &str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic::default()
        .with_error_code(error.code())
        .with_name(Some(topic_name(name)))
        .with_topic_id(Uuid::nil())
        .with_is_internal(is_internal(name))
}

fn refused(request: &DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse {
    let topics = request.topics.iter().map(|topic| failed(topic.name.as_str(), ErrorCode::InvalidRequest));
    DescribeTopicPartitionsResponse::default().with_topics(topics.collect())
}

fn cursor(topic: &str, partition: i32) -> Cursor {
    Cursor::default().with_topic_name(topic_name(topic)).with_partition_index(partition)
}
