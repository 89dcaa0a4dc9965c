//! Transactions as a partition sees them: transactional batches, the markers that end them, and what readers of committed
//! records get. Coordinators are played by the test, which sends their markers.

use bytes::Bytes;
use floodmark::broker::clock;
use floodmark::types::{ErrorCode, ProducerEpoch, ProducerId};
use floodmark::wire::batch_builder::BatchBuilder;
use floodmark::wire::messages::describe_producers_request::TopicRequest;
use floodmark::wire::messages::fetch_response::PartitionData;
use floodmark::wire::messages::produce_response::PartitionProduceResponse;
use floodmark::wire::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use floodmark::wire::messages::{
    DescribeProducersRequest, TransactionalId, WriteTxnMarkersRequest, WriteTxnMarkersResponse,
};

use super::client::Client;
use super::harness::TestNode;
use super::requests::{
    assert_code, by_name, fetch_request, list_offsets_request, only_partition, produce_ok, produce_request,
    text, topic_name,
};

/// Nobody asks coordinators, so that producers write without one.
const UNASKED: &[(&str, &str)] = &[("transaction.partition.verification.enable", "false")];

#[derive(Clone, Copy)]
struct Producer {
    id: i64,
    epoch: i16,
}

const P: Producer = Producer { id: 4_000, epoch: 0 };
const Q: Producer = Producer { id: 4_001, epoch: 3 };

fn transactional(producer: Producer, sequence: i32, values: &[&str]) -> Bytes {
    let Producer { id, epoch } = producer;
    let builder = BatchBuilder::new().producer(ProducerId(id), ProducerEpoch(epoch), sequence);
    let mut builder = builder.transactional(true);
    for value in values {
        // Of now: a producer whose last record is old is forgotten when the node starts.
        builder.push(clock::wall(), None, Some(value.as_bytes()), &[]);
    }
    builder.build().unwrap()
}

async fn write(client: &mut Client, partition: i32, records: Bytes) -> PartitionProduceResponse {
    let request = produce_request(11, by_name("t"), -1, &[(partition, records)])
        .with_transactional_id(Some(TransactionalId(text("id"))));
    client.call(11, request).await.responses.remove(0).partition_responses.remove(0)
}

async fn write_ok(client: &mut Client, partition: i32, records: Bytes) -> i64 {
    let produced = write(client, partition, records).await;
    assert_code(produced.error_code, ErrorCode::None, "transactional");
    produced.base_offset
}

#[derive(Clone, Copy)]
struct Marker {
    producer: Producer,
    commit: bool,
    coordinator_epoch: i32,
    transaction_version: i8,
}

fn commit(producer: Producer) -> Marker {
    Marker { producer, commit: true, coordinator_epoch: 1, transaction_version: 0 }
}

fn abort(producer: Producer) -> Marker {
    Marker { commit: false, ..commit(producer) }
}

fn marker_request(marker: Marker, topics: &[(&str, &[i32])]) -> WriteTxnMarkersRequest {
    let topics = topics.iter().map(|(name, partitions)| WritableTxnMarkerTopic {
        name: text(name),
        partition_indexes: partitions.to_vec(),
        ..Default::default()
    });
    let marker = WritableTxnMarker {
        producer_id: marker.producer.id,
        producer_epoch: marker.producer.epoch,
        transaction_result: marker.commit,
        topics: topics.collect(),
        coordinator_epoch: marker.coordinator_epoch,
        transaction_version: marker.transaction_version,
        ..Default::default()
    };
    WriteTxnMarkersRequest { markers: vec![marker], ..Default::default() }
}

/// The code of each partition, in the order of the answer.
fn codes(response: &WriteTxnMarkersResponse) -> Vec<ErrorCode> {
    let topics = response.markers.iter().flat_map(|marker| &marker.topics);
    let partitions = topics.flat_map(|topic| &topic.partitions);
    partitions.map(|partition| ErrorCode::from_code(partition.error_code).unwrap()).collect()
}

async fn end(client: &mut Client, marker: Marker) -> ErrorCode {
    let version = if marker.transaction_version > 0 { 2 } else { 1 };
    let response = client.call(version, marker_request(marker, &[("t", &[0])])).await;
    assert_eq!(response.markers[0].producer_id, marker.producer.id);
    codes(&response)[0]
}

/// What a reader of committed records gets from an offset on.
async fn committed(client: &mut Client, from: i64) -> PartitionData {
    let request = fetch_request(12, by_name("t"), &[(0, from)]).with_isolation_level(1);
    only_partition(client.call(12, request).await)
}

fn aborted(data: &PartitionData) -> Vec<(i64, i64)> {
    let list = data.aborted_transactions.iter().flatten();
    list.map(|txn| (txn.producer_id, txn.first_offset)).collect()
}

fn length(data: PartitionData) -> usize {
    data.records.map_or(0, |records| records.into_bytes().len())
}

async fn latest(client: &mut Client, isolation_level: i8) -> i64 {
    let mut request = list_offsets_request("t", 0, -1);
    request.isolation_level = isolation_level;
    client.call(7, request).await.topics[0].partitions[0].offset
}

/// Each producer with the start of its open transaction.
async fn open_transactions(client: &mut Client) -> Vec<(i64, i64)> {
    let topic = TopicRequest::default().with_name(topic_name("t")).with_partition_indexes(vec![0]);
    let described = client.call(0, DescribeProducersRequest::default().with_topics(vec![topic])).await;
    let producers = described.topics[0].partitions[0].active_producers.iter();
    producers.map(|producer| (producer.producer_id.0, producer.current_txn_start_offset)).collect()
}

#[tokio::test]
async fn readers_of_committed_records_stop_before_what_is_open_and_are_told_what_was_aborted() {
    let (node, mut client) = TestNode::with_topic(UNASKED, "t", 1).await;
    produce_ok(&mut client, "t", 0, &["before"]).await;
    assert_eq!(write_ok(&mut client, 0, transactional(P, 0, &["a", "b"])).await, 1);
    assert_eq!(write_ok(&mut client, 0, transactional(Q, 0, &["c"])).await, 3);
    produce_ok(&mut client, "t", 0, &["after"]).await;
    let read = committed(&mut client, 0).await;
    assert_eq!((read.last_stable_offset, read.high_watermark), (1, 5));
    assert_eq!((latest(&mut client, 1).await, latest(&mut client, 0).await), (1, 5));
    assert_eq!(open_transactions(&mut client).await, [(P.id, 1), (Q.id, 3)]);
    assert!(length(committed(&mut client, 1).await) == 0);

    assert_eq!(end(&mut client, abort(P)).await, ErrorCode::None);
    let read = committed(&mut client, 0).await;
    assert_eq!((read.last_stable_offset, aborted(&read)), (3, vec![(P.id, 1)]));
    assert_eq!(open_transactions(&mut client).await, [(P.id, -1), (Q.id, 3)]);
    assert_eq!(end(&mut client, commit(Q)).await, ErrorCode::None);

    // The same after a restart, whose producers come from a snapshot, and of a part of the log.
    drop(client);
    let node = node.restart().await;
    let mut client = node.connect().await;
    let read = committed(&mut client, 1).await;
    assert_eq!((read.last_stable_offset, aborted(&read)), (7, vec![(P.id, 1)]));
    assert_eq!(aborted(&committed(&mut client, 6).await), []);
    assert_eq!(aborted(&committed(&mut client, 5).await), [(P.id, 1)]);
    assert_eq!(write_ok(&mut client, 0, transactional(P, 2, &["goes on"])).await, 7);
    node.stop().await;
}

#[tokio::test]
async fn an_open_transaction_outlives_a_restart() {
    let (node, mut client) = TestNode::with_topic(UNASKED, "t", 1).await;
    write_ok(&mut client, 0, transactional(P, 0, &["a"])).await;
    drop(client);
    let node = node.restart().await;
    let mut client = node.connect().await;
    assert_eq!((latest(&mut client, 1).await, latest(&mut client, 0).await), (0, 1));
    assert_eq!(end(&mut client, commit(P)).await, ErrorCode::None);
    assert_eq!((latest(&mut client, 1).await, latest(&mut client, 0).await), (2, 2));
    node.stop().await;
}

#[tokio::test]
async fn a_reader_of_committed_records_wakes_when_the_transaction_ends() {
    let (node, mut producer) = TestNode::with_topic(UNASKED, "t", 1).await;
    let mut consumer = node.connect().await;
    write_ok(&mut producer, 0, transactional(P, 0, &["a"])).await;
    let waits = fetch_request(12, by_name("t"), &[(0, 0)])
        .with_isolation_level(1)
        .with_max_wait_ms(i32::MAX)
        .with_min_bytes(1);
    consumer.send(12, &waits).await;
    write_ok(&mut producer, 0, transactional(P, 1, &["b"])).await;
    assert_eq!(end(&mut producer, commit(P)).await, ErrorCode::None);
    let read = only_partition(consumer.receive().await);
    assert_eq!((read.last_stable_offset, aborted(&read)), (3, vec![]));
    assert!(length(read) > 0);
    node.stop().await;
}

#[tokio::test]
async fn markers_are_idempotent_and_stale_ones_are_refused() {
    let (node, mut client) = TestNode::with_topic(UNASKED, "t", 1).await;
    write_ok(&mut client, 0, transactional(Q, 0, &["a"])).await;
    let older = Marker { producer: Producer { epoch: 2, ..Q }, ..commit(Q) };
    assert_eq!(end(&mut client, older).await, ErrorCode::InvalidProducerEpoch);
    // Version 2 of transactions raises the epoch with each one, so the same epoch is that of the next.
    let second = Marker { transaction_version: 2, ..commit(Q) };
    assert_eq!(end(&mut client, second).await, ErrorCode::InvalidProducerEpoch);
    let raised = Marker { producer: Producer { epoch: 4, ..Q }, coordinator_epoch: 5, ..second };
    for _ in 0..2 {
        assert_eq!(end(&mut client, raised).await, ErrorCode::None);
    }
    let fenced = Marker { coordinator_epoch: 4, ..raised };
    assert_eq!(end(&mut client, fenced).await, ErrorCode::TransactionCoordinatorFenced);
    assert_eq!((latest(&mut client, 1).await, latest(&mut client, 0).await), (3, 3));
    // The producer of before is fenced by the marker.
    let late = write(&mut client, 0, transactional(Q, 1, &["late"])).await;
    assert_code(late.error_code, ErrorCode::InvalidProducerEpoch, "late");
    node.stop().await;
}

#[tokio::test]
async fn each_partition_of_a_marker_has_its_own_answer() {
    let (node, mut client) = TestNode::with_topic(UNASKED, "t", 2).await;
    let mut request = marker_request(commit(P), &[("t", &[0, 9, 1]), ("unknown", &[0])]);
    let other = marker_request(abort(Q), &[("t", &[1])]).markers.remove(0);
    let again = marker_request(commit(P), &[("t", &[1])]).markers.remove(0);
    request.markers.extend([other, again]);
    let response = client.call(2, request).await;
    let producers: Vec<i64> = response.markers.iter().map(|marker| marker.producer_id).collect();
    assert_eq!(producers, [P.id, Q.id], "one result for each producer");
    let (none, unknown) = (ErrorCode::None, ErrorCode::UnknownTopicOrPartition);
    assert_eq!(codes(&response), [none, unknown, none, none, unknown, none]);
    assert!(client.call(2, WriteTxnMarkersRequest::default()).await.markers.is_empty());
    node.stop().await;
}

#[tokio::test]
async fn a_marker_fits_where_records_no_longer_do() {
    let node = TestNode::start(UNASKED).await;
    let mut client = node.connect().await;
    let configs = [("max.message.bytes", "10"), ("cleanup.policy", "compact"), ("compression.type", "zstd")];
    super::requests::create_topic(&mut client, "t", 1, &configs).await;
    assert_eq!(end(&mut client, abort(P)).await, ErrorCode::None);
    node.stop().await;
}

#[tokio::test]
async fn one_request_holds_the_transaction_of_one_producer() {
    let (node, mut client) = TestNode::with_topic(UNASKED, "t", 2).await;
    let records = [(0, transactional(P, 0, &["a"])), (1, transactional(Q, 0, &["b"]))];
    let request = produce_request(11, by_name("t"), -1, &records)
        .with_transactional_id(Some(TransactionalId(text("id"))));
    for partition in &client.call(11, request).await.responses[0].partition_responses {
        assert_code(partition.error_code, ErrorCode::InvalidProducerIdMapping, "two producers");
    }
    // Once a transaction is open, its producer writes nothing outside of it.
    write_ok(&mut client, 0, transactional(P, 0, &["a"])).await;
    let builder = BatchBuilder::new().producer(ProducerId(P.id), ProducerEpoch(P.epoch), 1);
    let outside = write(&mut client, 0, super::requests::build(builder, &["b"])).await;
    assert_code(outside.error_code, ErrorCode::InvalidTxnState, "outside");
    node.stop().await;
}
