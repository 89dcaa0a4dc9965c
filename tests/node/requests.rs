//! Requests as the tests need them, and the short way to what matters of their answers.

use bytes::Bytes;
use floodmark::types::{ErrorCode, TimestampMs, Uuid};
use floodmark::wire::batch_builder::BatchBuilder;
use floodmark::wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use floodmark::wire::messages::fetch_request::{FetchPartition, FetchTopic};
use floodmark::wire::messages::fetch_response::PartitionData;
use floodmark::wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use floodmark::wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use floodmark::wire::messages::produce_response::PartitionProduceResponse;
use floodmark::wire::messages::{
    BrokerId, CreateTopicsRequest, FetchRequest, FetchResponse, ListOffsetsRequest, ProduceRequest, StrBytes,
    TopicName,
};

use super::client::Client;

pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

#[track_caller]
pub fn assert_code(code: i16, expected: ErrorCode, what: &str) {
    assert_eq!(ErrorCode::from_code(code), Some(expected), "{what}");
}

pub fn new_topic(name: &str, partitions: i32, configs: &[(&str, &str)]) -> CreatableTopic {
    let configs = configs.iter().map(|(name, value)| {
        CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
    });
    CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(partitions)
        .with_replication_factor(1)
        .with_configs(configs.collect())
}

/// Creates a topic and gives its id.
pub async fn create_topic(
    client: &mut Client,
    name: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> Uuid {
    let request = CreateTopicsRequest::default()
        .with_topics(vec![new_topic(name, partitions, configs)])
        .with_timeout_ms(30_000);
    let response = client.call(7, request).await;
    assert_code(response.topics[0].error_code, ErrorCode::None, name);
    response.topics[0].topic_id
}

/// A batch of these values without keys.
pub fn batch(values: &[&str]) -> Bytes {
    build(BatchBuilder::new(), values)
}

pub fn build(mut builder: BatchBuilder, values: &[&str]) -> Bytes {
    for (at, value) in (0..).zip(values) {
        builder.push(TimestampMs(1_000 + at), None, Some(value.as_bytes()), &[]);
    }
    builder.build().unwrap()
}

/// How a topic is named: by name before the version that has ids, by id from then on.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    pub name: &'a str,
    pub id: Uuid,
}

pub fn by_name(name: &str) -> Named<'_> {
    Named { name, id: Uuid::nil() }
}

pub fn produce_request(
    version: i16,
    topic: Named<'_>,
    acks: i16,
    batches: &[(i32, Bytes)],
) -> ProduceRequest {
    let partitions = batches.iter().map(|(index, records)| {
        PartitionProduceData::default().with_index(*index).with_records(Some(records.clone()))
    });
    let data = TopicProduceData::default().with_partition_data(partitions.collect());
    let data =
        if version >= 13 { data.with_topic_id(topic.id) } else { data.with_name(topic_name(topic.name)) };
    ProduceRequest::default().with_acks(acks).with_timeout_ms(30_000).with_topic_data(vec![data])
}

/// Produces one batch with acks=all.
pub async fn produce(
    client: &mut Client,
    topic: &str,
    partition: i32,
    records: Bytes,
) -> PartitionProduceResponse {
    let request = produce_request(12, by_name(topic), -1, &[(partition, records)]);
    let mut response = client.call(12, request).await;
    response.responses.remove(0).partition_responses.remove(0)
}

/// Produces and expects that it succeeds; gives the base offset.
pub async fn produce_ok(client: &mut Client, topic: &str, partition: i32, values: &[&str]) -> i64 {
    let produced = produce(client, topic, partition, batch(values)).await;
    assert_code(produced.error_code, ErrorCode::None, topic);
    produced.base_offset
}

/// A fetch without session, of partitions from offsets, that does not wait.
pub fn fetch_request(version: i16, topic: Named<'_>, partitions: &[(i32, i64)]) -> FetchRequest {
    let partitions = partitions.iter().map(|(index, offset)| {
        FetchPartition::default()
            .with_partition(*index)
            .with_fetch_offset(*offset)
            .with_partition_max_bytes(1 << 20)
    });
    let fetched = FetchTopic::default().with_partitions(partitions.collect());
    let fetched = if version >= 13 {
        fetched.with_topic_id(topic.id)
    } else {
        fetched.with_topic(topic_name(topic.name))
    };
    let request = FetchRequest::default()
        .with_max_bytes(50 << 20)
        .with_topics(vec![fetched])
        .with_session_epoch(-1)
        .with_max_wait_ms(0);
    if version <= 14 { request.with_replica_id(BrokerId(-1)) } else { request }
}

pub async fn fetch(client: &mut Client, topic: &str, partition: i32, offset: i64) -> PartitionData {
    let response = client.call(12, fetch_request(12, by_name(topic), &[(partition, offset)])).await;
    only_partition(response)
}

pub fn only_partition(mut response: FetchResponse) -> PartitionData {
    assert_code(response.error_code, ErrorCode::None, "fetch");
    response.responses.remove(0).partitions.remove(0)
}

pub fn list_offsets_request(topic: &str, partition: i32, timestamp: i64) -> ListOffsetsRequest {
    let partition =
        ListOffsetsPartition { partition_index: partition, timestamp, ..ListOffsetsPartition::default() };
    let topic =
        ListOffsetsTopic { name: text(topic), partitions: vec![partition], ..ListOffsetsTopic::default() };
    ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..ListOffsetsRequest::default() }
}
