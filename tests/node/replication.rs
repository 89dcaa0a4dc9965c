//! The node as leader and as follower of a partition whose other replica the test plays, over sockets.

use bytes::Bytes;
use floodmark::types::{ErrorCode, Offset, Uuid};
use floodmark::wire::frame::{decode, encode_response, parse_request};
use floodmark::wire::messages::api_versions_response::ApiVersion;
use floodmark::wire::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use floodmark::wire::messages::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::brokers::{Played, create_led_by};
use super::client::Client;
use super::harness::TestNode;
use super::requests::{
    Named, assert_code, batch, by_name, fetch, fetch_request, only_partition, produce_request,
};

/// A fetch of broker 2 as a follower.
fn follower_fetch(topic: Uuid, epoch: i64, offset: i64, flushed: Option<i64>) -> FetchRequest {
    let mut request = fetch_request(18, Named { name: "led", id: topic }, &[(0, offset)]);
    let state = fetch_request::ReplicaState::default();
    request.replica_state = state.with_replica_id(BrokerId(2)).with_replica_epoch(epoch);
    let partition = &mut request.topics[0].partitions[0];
    partition.log_start_offset = 0;
    if let Some(flushed) = flushed {
        follower_fetch::tell_flushed(partition, Offset(flushed));
    }
    request
}

#[tokio::test]
async fn a_leader_acknowledges_what_its_follower_has_on_disk() {
    let node = TestNode::start(&[]).await;
    let played = Played::new(&node).await;
    let mut controller = node.connect_to_controller().await;
    let epoch = played.join(&mut controller, 1).await;
    let (mut producer, mut follower) = (node.connect().await, node.connect().await);
    let topic = create_led_by(&mut producer, &[1, 2]).await;

    producer.send(12, &produce_request(12, by_name("led"), -1, &[(0, batch(&["a"]))])).await;
    let records = loop {
        let read = only_partition(follower.call(18, follower_fetch(topic, epoch, 0, Some(0))).await);
        assert_code(read.error_code, ErrorCode::None, "a follower's fetch");
        let records = read.records.unwrap_or_default();
        if !records.is_empty() {
            break records.into_bytes();
        }
    };
    assert!(records.len() > 60, "a follower reads what is not committed");
    // What it has not on disk is not committed, however often it says so; a fetch of no bytes brings none.
    for _ in 0..3 {
        let report = follower_fetch(topic, epoch, 1, Some(0)).with_max_bytes(0);
        let told = only_partition(follower.call(18, report).await);
        assert_eq!((told.error_code, told.high_watermark), (0, 0));
        let nothing = follower_fetch(topic, epoch, 0, Some(0)).with_max_bytes(0);
        assert!(only_partition(follower.call(18, nothing).await).records.unwrap_or_default().is_empty());
    }
    // The fetch of an earlier registration does not count, nor does that of who is no replica.
    for (broker, of_epoch) in [(2, epoch - 1), (7, epoch)] {
        let mut request = follower_fetch(topic, of_epoch, 1, Some(1));
        request.replica_state.replica_id = BrokerId(broker);
        let refused = only_partition(follower.call(18, request).await);
        assert_code(refused.error_code, ErrorCode::NotLeaderOrFollower, "a stranger");
    }
    assert_eq!(fetch(&mut follower, "led", 0, 0).await.high_watermark, 0);

    follower.call(18, follower_fetch(topic, epoch, 1, Some(1)).with_max_bytes(0)).await;
    let produced: ProduceResponse = producer.receive().await;
    assert_code(produced.responses[0].partition_responses[0].error_code, ErrorCode::None, "acks=all");
    let told = only_partition(follower.call(18, follower_fetch(topic, epoch, 1, Some(1))).await);
    assert_eq!(told.high_watermark, 1);

    // A follower of Kafka's does not tell what it has on disk: what it has counts.
    producer.send(12, &produce_request(12, by_name("led"), -1, &[(0, batch(&["b"]))])).await;
    while only_partition(follower.call(18, follower_fetch(topic, epoch, 1, None)).await)
        .records
        .is_none_or(|records| records.is_empty())
    {}
    follower.call(18, follower_fetch(topic, epoch, 2, None)).await;
    let produced: ProduceResponse = producer.receive().await;
    assert_code(produced.responses[0].partition_responses[0].error_code, ErrorCode::None, "acks=all");
    node.stop().await;
}

/// Serves one connection as a leader that has one batch, all of it committed, and says what the follower tells to be flushed.
/// A fetch that would bring nothing new waits for ever.
async fn lead(mut stream: TcpStream, topic: Uuid, records: Bytes, flushed: mpsc::UnboundedSender<Offset>) {
    loop {
        let Ok(len) = stream.read_u32().await else { return };
        let mut frame = vec![0; len as usize];
        stream.read_exact(&mut frame).await.unwrap();
        let request = parse_request(Bytes::from(frame)).unwrap();
        let answer = if request.api.name == "ApiVersions" {
            let served = [(1, 4, 18), (2, 1, 11), (18, 0, 4)];
            let versions = served.map(|(api_key, min_version, max_version)| ApiVersion {
                api_key,
                min_version,
                max_version,
                ..Default::default()
            });
            let response = ApiVersionsResponse { api_keys: versions.to_vec(), ..Default::default() };
            encode_response(request.api, request.version, request.correlation_id, &response)
        } else {
            let asked: FetchRequest = decode(request.body, request.version).unwrap();
            let Some(partition) = asked.topics.first().map(|topic| &topic.partitions[0]) else { return };
            let _ = flushed.send(follower_fetch::told_flushed(partition).unwrap());
            let is_new = partition.fetch_offset == 0 || partition.high_watermark < 1;
            if asked.max_bytes > 0 && !is_new {
                std::future::pending::<()>().await;
            }
            let has_records = asked.max_bytes > 0 && partition.fetch_offset == 0;
            let data = PartitionData {
                high_watermark: 1,
                log_start_offset: 0,
                records: Some(if has_records { records.clone() } else { Bytes::new() }.into()),
                ..Default::default()
            };
            let topic =
                FetchableTopicResponse { topic_id: topic, partitions: vec![data], ..Default::default() };
            let response = FetchResponse { responses: vec![topic], ..Default::default() };
            encode_response(request.api, request.version, request.correlation_id, &response)
        };
        stream.write_all(&answer.unwrap().into_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn a_follower_copies_its_leader_and_tells_what_is_on_disk() {
    let node = TestNode::start(&[]).await;
    let played = Played::new(&node).await;
    let mut controller = node.connect_to_controller().await;
    played.join(&mut controller, 1).await;
    let mut client: Client = node.connect().await;
    let topic = create_led_by(&mut client, &[2, 1]).await;
    let (told, mut flushed) = mpsc::unbounded_channel();
    let records = batch(&["a"]);
    let serving = tokio::spawn(async move {
        // The first connection breaks; the follower dials again.
        drop(played.accept().await);
        loop {
            let stream = played.accept().await;
            tokio::spawn(lead(stream, topic, records.clone(), told.clone()));
        }
    });
    while flushed.recv().await.unwrap() < Offset(1) {}
    // Consumers may read it here, up to what the leader says is committed.
    loop {
        let read = fetch(&mut client, "led", 0, 0).await;
        assert_code(read.error_code, ErrorCode::None, "a read from the follower");
        if read.high_watermark == 1 {
            assert!(read.records.is_some_and(|records| !records.is_empty()));
            break;
        }
    }
    serving.abort();
    node.stop().await;
}
