//! Produce: what is appended, what is refused and with which code, and what idempotent producers are told.

use bytes::Bytes;
use floodmark::broker::clock;
use floodmark::types::{ErrorCode, ProducerEpoch, ProducerId, TimestampMs};
use floodmark::wire::batch::{BatchHeader, Batches, PartialTail, TimestampType};
use floodmark::wire::batch_builder::BatchBuilder;
use floodmark::wire::compression::Compression;
use floodmark::wire::messages::produce_response::PartitionProduceResponse;

use super::client::Client;
use super::harness::TestNode;
use super::requests::{
    assert_code, batch, build, by_name, create_topic, fetch, produce, produce_ok, produce_request,
};

const PRODUCER: ProducerId = ProducerId(4_000);

fn sequenced(epoch: i16, sequence: i32, values: &[&str]) -> Bytes {
    sequenced_by(PRODUCER, epoch, sequence, values)
}

/// Of now: a producer whose last record is old is forgotten when the node starts.
fn sequenced_by(producer: ProducerId, epoch: i16, sequence: i32, values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new().producer(producer, ProducerEpoch(epoch), sequence);
    for value in values {
        builder.push(clock::wall(), None, Some(value.as_bytes()), &[]);
    }
    builder.build().unwrap()
}

async fn expect(
    client: &mut Client,
    topic: &str,
    records: Bytes,
    error: ErrorCode,
) -> PartitionProduceResponse {
    let produced = produce(client, topic, 0, records).await;
    assert_code(produced.error_code, error, topic);
    if error.is_error() {
        assert_eq!((produced.base_offset, produced.log_append_time_ms), (-1, -1));
        assert!(produced.error_message.as_ref().is_some_and(|message| !message.is_empty()));
    }
    produced
}

/// The headers of all batches in the partition.
async fn batches(client: &mut Client, topic: &str) -> Vec<BatchHeader> {
    let bytes = fetch(client, topic, 0, 0).await.records.unwrap().into_bytes();
    Batches::new(&bytes, PartialTail::Refuse).map(|batch| batch.unwrap().header).collect()
}

#[tokio::test]
async fn an_idempotent_producer_is_told_of_duplicates_and_gaps() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    produce_ok(&mut client, "t", 0, &["x"]).await;
    let first = expect(&mut client, "t", sequenced(0, 0, &["a", "b"]), ErrorCode::None).await;
    assert_eq!(first.base_offset, 1);
    for sequence in (2..6).step_by(2) {
        expect(&mut client, "t", sequenced(0, sequence, &["a", "b"]), ErrorCode::None).await;
    }
    // Any of the last five batches is a duplicate, and answered with the offset that it has.
    let again = expect(&mut client, "t", sequenced(0, 0, &["a", "b"]), ErrorCode::None).await;
    assert_eq!(again.base_offset, 1);
    expect(&mut client, "t", sequenced(0, 7, &["gap"]), ErrorCode::OutOfOrderSequenceNumber).await;
    // A new epoch begins at sequence 0, and the old one is fenced.
    expect(&mut client, "t", sequenced(1, 1, &["c"]), ErrorCode::OutOfOrderSequenceNumber).await;
    expect(&mut client, "t", sequenced(1, 0, &["c"]), ErrorCode::None).await;
    expect(&mut client, "t", sequenced(0, 6, &["d"]), ErrorCode::InvalidProducerEpoch).await;
    let last = produce_ok(&mut client, "t", 0, &["y"]).await;
    assert_eq!(last, 8, "nothing that was refused is in the log");

    // What the producer did is remembered over a restart.
    drop(client);
    let node = node.restart().await;
    let mut client = node.connect().await;
    let again = expect(&mut client, "t", sequenced(1, 0, &["c"]), ErrorCode::None).await;
    assert_eq!(again.base_offset, 7);
    expect(&mut client, "t", sequenced(1, 2, &["gap"]), ErrorCode::OutOfOrderSequenceNumber).await;
    node.stop().await;
}

#[tokio::test]
async fn producers_of_which_there_are_too_many_are_forgotten_and_may_come_back() {
    let few = [("producer.state.max.per.partition", "32")];
    let (node, mut client) = TestNode::with_topic(&few, "t", 1).await;
    let by = |id, sequence| sequenced_by(ProducerId(id), 0, sequence, &["a"]);
    for id in 1..=200 {
        expect(&mut client, "t", by(id, 0), ErrorCode::None).await;
    }
    // Those that wrote lately are known as ever, also after a restart; the others may begin where they like.
    let again = expect(&mut client, "t", by(200, 0), ErrorCode::None).await;
    assert_eq!(again.base_offset, 199);
    expect(&mut client, "t", by(199, 2), ErrorCode::OutOfOrderSequenceNumber).await;
    let back = expect(&mut client, "t", by(1, 7), ErrorCode::None).await;
    assert_eq!(back.base_offset, 200);
    drop(client);
    let node = node.restart().await;
    let mut client = node.connect().await;
    let again = expect(&mut client, "t", by(1, 7), ErrorCode::None).await;
    assert_eq!(again.base_offset, 200);
    expect(&mut client, "t", by(199, 2), ErrorCode::OutOfOrderSequenceNumber).await;
    expect(&mut client, "t", by(2, 3), ErrorCode::None).await;
    node.stop().await;
}

#[tokio::test]
async fn what_is_malformed_is_refused_and_leaves_nothing_behind() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    let good = batch(&["a"]);
    let two: Bytes = [good.clone(), good.clone()].concat().into();
    expect(&mut client, "t", two, ErrorCode::InvalidRecord).await;
    expect(&mut client, "t", Bytes::new(), ErrorCode::InvalidRecord).await;
    let mut corrupt = good.to_vec();
    *corrupt.last_mut().unwrap() ^= 1;
    expect(&mut client, "t", corrupt.into(), ErrorCode::CorruptMessage).await;
    let mut old = good.to_vec();
    old[16] = 1;
    expect(&mut client, "t", old.into(), ErrorCode::InvalidRecord).await;
    for length in [0, 11, 16, 60, good.len() - 1] {
        let produced = produce(&mut client, "t", 0, good.slice(..length)).await;
        assert!(ErrorCode::from_code(produced.error_code).unwrap().is_error(), "{length} bytes");
    }
    let control = build(BatchBuilder::new().control(true), &["a"]);
    expect(&mut client, "t", control, ErrorCode::InvalidRecord).await;
    assert_eq!(produce_ok(&mut client, "t", 0, &["b"]).await, 0);
    node.stop().await;
}

#[tokio::test]
async fn topics_have_rules_of_their_own() {
    let node = TestNode::start(&[]).await;
    let mut client = node.connect().await;
    create_topic(&mut client, "small", 1, &[("max.message.bytes", "200")]).await;
    let large = "x".repeat(300);
    expect(&mut client, "small", batch(&[&large]), ErrorCode::MessageTooLarge).await;
    expect(&mut client, "small", batch(&["x"]), ErrorCode::None).await;

    create_topic(&mut client, "compact", 1, &[("cleanup.policy", "compact")]).await;
    let mut mixed = BatchBuilder::new();
    mixed.push(TimestampMs(1), Some(b"key"), Some(b"value"), &[]);
    mixed.push(TimestampMs(2), None, Some(b"value"), &[]);
    let refused = expect(&mut client, "compact", mixed.build().unwrap(), ErrorCode::InvalidRecord).await;
    let [only] = &refused.record_errors[..] else { panic!("one record is wrong") };
    assert_eq!(only.batch_index, 1);

    create_topic(&mut client, "appended", 1, &[("message.timestamp.type", "LogAppendTime")]).await;
    let produced = expect(&mut client, "appended", batch(&["x"]), ErrorCode::None).await;
    assert!(produced.log_append_time_ms > 1_500_000_000_000);
    let header = batches(&mut client, "appended").await.remove(0);
    assert_eq!(header.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(header.max_timestamp.0, produced.log_append_time_ms);

    create_topic(&mut client, "packed", 1, &[("compression.type", "gzip")]).await;
    let values: Vec<&str> = std::iter::repeat_n(&*large, 3).collect();
    let sent = batch(&values);
    expect(&mut client, "packed", sent.clone(), ErrorCode::None).await;
    let header = batches(&mut client, "packed").await.remove(0);
    assert_eq!(header.compression(), Ok(Compression::Gzip));
    assert!(header.size_in_bytes() < sent.len());
    assert_eq!(header.record_count, 3);

    create_topic(&mut client, "late", 1, &[("message.timestamp.before.max.ms", "1000")]).await;
    expect(&mut client, "late", batch(&["x"]), ErrorCode::InvalidTimestamp).await;
    node.stop().await;
}

#[tokio::test]
async fn internal_topics_are_not_for_clients() {
    let (node, mut client) = TestNode::with_topic(&[], "__consumer_offsets", 1).await;
    expect(&mut client, "__consumer_offsets", batch(&["x"]), ErrorCode::InvalidTopicException).await;
    let response = client.call(2, super::admin::delete_records_request("__consumer_offsets", 0)).await;
    let refused = response.topics[0].partitions[0].error_code;
    assert_code(refused, ErrorCode::InvalidTopicException, "delete records");
    node.stop().await;
}

#[tokio::test]
async fn partitions_of_one_request_stand_for_themselves() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 3).await;
    let mut corrupt = batch(&["a"]).to_vec();
    *corrupt.last_mut().unwrap() ^= 1;
    let parts = [(0, batch(&["a"])), (1, corrupt.into()), (2, batch(&["b"])), (3, batch(&["c"]))];
    let response = client.call(12, produce_request(12, by_name("t"), -1, &parts)).await;
    let partitions = &response.responses[0].partition_responses;
    let codes: Vec<_> = partitions.iter().map(|partition| (partition.index, partition.error_code)).collect();
    let (corrupt, unknown) = (ErrorCode::CorruptMessage.code(), ErrorCode::UnknownTopicOrPartition.code());
    assert_eq!(codes, [(0, 0), (1, corrupt), (2, 0), (3, unknown)]);
    node.stop().await;
}

#[tokio::test]
async fn unknown_topics_are_told_apart_by_their_ids() {
    let node = TestNode::start(&[]).await;
    let mut client = node.connect().await;
    let request = |id: u128| {
        let topic = super::requests::Named { name: "", id: floodmark::types::Uuid::from_u128(id) };
        produce_request(13, topic, -1, &[(0, batch(&["a"]))]).topic_data.remove(0)
    };
    let mut both = produce_request(13, by_name(""), -1, &[]);
    both.topic_data = vec![request(7), request(8)];
    let response = client.call(13, both).await;
    let ids: Vec<_> = response.responses.iter().map(|topic| topic.topic_id.as_u128()).collect();
    assert_eq!(ids, [7, 8]);
    node.stop().await;
}

#[tokio::test]
async fn transactions_without_a_coordinator_are_refused() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    let records =
        build(BatchBuilder::new().producer(PRODUCER, ProducerEpoch(0), 0).transactional(true), &["a"]);
    expect_refused(&mut client, &records, None, ErrorCode::TransactionalIdAuthorizationFailed).await;
    expect_refused(&mut client, &records, Some("id"), ErrorCode::NotEnoughReplicas).await;
    node.stop().await;
}

async fn expect_refused(client: &mut Client, records: &Bytes, id: Option<&str>, error: ErrorCode) {
    use floodmark::wire::messages::TransactionalId;
    let request = produce_request(12, by_name("t"), -1, &[(0, records.clone())])
        .with_transactional_id(id.map(|id| TransactionalId(super::requests::text(id))));
    let response = client.call(12, request).await;
    assert_code(response.responses[0].partition_responses[0].error_code, error, "transactional");
}

#[tokio::test]
async fn an_error_tells_where_the_log_starts_if_kafka_does() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    produce_ok(&mut client, "t", 0, &["a", "b"]).await;
    let deleted = client.call(2, super::admin::delete_records_request("t", 1)).await;
    assert_eq!(deleted.topics[0].partitions[0].low_watermark, 1);
    expect(&mut client, "t", sequenced(0, 0, &["c"]), ErrorCode::None).await;
    let gap = expect(&mut client, "t", sequenced(0, 7, &["gap"]), ErrorCode::OutOfOrderSequenceNumber).await;
    assert_eq!(gap.log_start_offset, 1);
    let two: Bytes = [batch(&["c"]), batch(&["c"])].concat().into();
    let two = expect(&mut client, "t", two, ErrorCode::InvalidRecord).await;
    assert_eq!(two.log_start_offset, -1);
    let control = build(BatchBuilder::new().control(true), &["a"]);
    let control = expect(&mut client, "t", control, ErrorCode::InvalidRecord).await;
    assert_eq!(control.log_start_offset, 1);
    let mut corrupt = batch(&["c"]).to_vec();
    *corrupt.last_mut().unwrap() ^= 1;
    let corrupt = expect(&mut client, "t", corrupt.into(), ErrorCode::CorruptMessage).await;
    assert_eq!(corrupt.log_start_offset, -1);
    let done = expect(&mut client, "t", batch(&["c"]), ErrorCode::None).await;
    assert_eq!((done.base_offset, done.log_start_offset), (3, 1));
    node.stop().await;
}

#[tokio::test]
async fn a_log_directory_that_is_lost_at_the_start_is_a_storage_error() {
    let node = TestNode::with_log_dirs(&["a", "b"]).await;
    let mut client = node.connect().await;
    create_topic(&mut client, "t", 2, &[]).await;
    for partition in 0..2 {
        produce_ok(&mut client, "t", partition, &["x"]).await;
    }
    drop(client);
    let lost = (0..2).find(|partition| node.dir.path().join(format!("b/t-{partition}")).exists());
    let lost = lost.expect("each directory has one partition");
    let damage = |dir: &std::path::Path| std::fs::write(dir.join("b/meta.properties"), "version=9").unwrap();
    let node = node.restart_after(damage).await;
    let mut client = node.connect().await;
    assert_eq!(produce_ok(&mut client, "t", 1 - lost, &["y"]).await, 1);
    let refused = produce(&mut client, "t", lost, batch(&["y"])).await;
    assert_code(refused.error_code, ErrorCode::KafkaStorageError, "produce");
    let fetched = fetch(&mut client, "t", lost, 0).await;
    assert_code(fetched.error_code, ErrorCode::KafkaStorageError, "fetch");
    drop(client);
    node.stop().await;
}
