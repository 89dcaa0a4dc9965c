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

use super::admin::{delete_topic, incremental};
use super::brokers::{Beats, Played, create_led_by};
use super::client::Client;
use super::harness::TestNode;
use super::requests::{
    Named, assert_code, batch, by_name, fetch, fetch_request, list_offsets_request, only_partition,
    produce_request,
};
use super::two_brokers::described;

/// A fetch of broker 2 as a follower.
pub fn follower_fetch(topic: Uuid, epoch: i64, offset: i64, flushed: Option<i64>) -> FetchRequest {
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

/// What a leader that a test plays has: one batch, and so much of it is committed.
#[derive(Clone)]
struct Leads {
    topic: Uuid,
    records: Bytes,
    high_watermark: i64,
}

/// Serves one connection as a leader, and says what the follower tells to be flushed. A fetch that would bring nothing new waits
/// for ever.
async fn lead(mut stream: TcpStream, leads: Leads, flushed: mpsc::UnboundedSender<Offset>) {
    let Leads { topic, records, high_watermark } = leads;
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
            let is_new = partition.fetch_offset == 0 || partition.high_watermark < high_watermark;
            if asked.max_bytes > 0 && !is_new {
                std::future::pending::<()>().await;
            }
            let has_records = asked.max_bytes > 0 && partition.fetch_offset == 0;
            let data = PartitionData {
                high_watermark,
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
    let leads = Leads { topic, records: batch(&["a"]), high_watermark: 1 };
    let serving = tokio::spawn(async move {
        // The first connection breaks; the follower dials again.
        drop(played.accept().await);
        loop {
            let stream = played.accept().await;
            tokio::spawn(lead(stream, leads.clone(), told.clone()));
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

/// Right after an election the new leader may know less to be committed than the last one told its consumers (KIP-207).
#[tokio::test]
async fn a_new_leader_tells_no_end_before_it_knows_what_is_committed() {
    let node = TestNode::start(&[]).await;
    let played = Played::new(&node).await;
    let mut controller = node.connect_to_controller().await;
    let epoch = played.join(&mut controller, 1).await;
    let beats = Beats::begin(controller, epoch);
    let mut client = node.connect().await;
    let topic = create_led_by(&mut client, &[2, 1]).await;
    // While only one is in sync nothing more becomes committed (KIP-966).
    let min_isr = |value| incremental(2, "led", &[("min.insync.replicas", 0, Some(value))]);
    assert_eq!(client.call(1, min_isr("2")).await.responses[0].error_code, 0);
    let (told, mut flushed) = mpsc::unbounded_channel();
    let leads = Leads { topic, records: batch(&["a"]), high_watermark: 0 };
    let serving = tokio::spawn(async move {
        loop {
            let stream = played.accept().await;
            tokio::spawn(lead(stream, leads.clone(), told.clone()));
        }
    });
    while flushed.recv().await.unwrap() < Offset(1) {}

    // The leader dies: nobody listens there any more, and its connection breaks.
    serving.abort();
    assert!(serving.await.is_err());
    drop(beats);
    while described(&mut client).await.leader_id.0 != 1 {}
    let mut listed = async |version: i16, replica_id: i32, timestamp: i64| {
        let request = ListOffsetsRequest { replica_id, ..list_offsets_request("led", 0, timestamp) };
        let partition = client.call(version, request).await.topics.remove(0).partitions.remove(0);
        (ErrorCode::from_code(partition.error_code).unwrap(), partition.offset)
    };
    let (latest, earliest, max_timestamp, consumer, debugger) = (-1, -2, -3, -1, -2);
    while listed(11, consumer, earliest).await != (ErrorCode::None, 0) {}
    assert_eq!(listed(11, debugger, latest).await, (ErrorCode::None, 1));
    for version in 1..=11 {
        let unknown = match version {
            ..=4 => ErrorCode::LeaderNotAvailable,
            _ => ErrorCode::OffsetNotAvailable,
        };
        // Nor does it tell whether a record of a later time is there.
        for timestamp in [latest, 1_000, 5_000] {
            assert_eq!(listed(version, consumer, timestamp).await, (unknown, -1), "version {version}");
        }
        if version >= 7 {
            assert_eq!(listed(version, consumer, max_timestamp).await, (unknown, -1), "version {version}");
        }
        assert_eq!(listed(version, consumer, earliest).await, (ErrorCode::None, 0), "version {version}");
    }
    let mut other = node.connect().await;
    let read = fetch(&mut other, "led", 0, 0).await;
    assert_eq!((read.error_code, read.high_watermark), (0, 0));
    assert!(read.records.is_none_or(|records| records.is_empty()));

    assert_eq!(other.call(1, min_isr("1")).await.responses[0].error_code, 0);
    while listed(11, consumer, latest).await != (ErrorCode::None, 1) {}
    assert_eq!(listed(1, consumer, 1_000).await, (ErrorCode::None, 0));
    node.stop().await;
}

/// A follower that has not heard yet that the topic is another one by now gets nothing of that, and counts for nothing there.
#[tokio::test]
async fn a_follower_of_a_topic_that_was_made_anew_is_told_so() {
    let node = TestNode::start(&[]).await;
    let played = Played::new(&node).await;
    let mut controller = node.connect_to_controller().await;
    let epoch = played.join(&mut controller, 1).await;
    let beats = Beats::begin(controller, epoch);
    let (mut client, mut follower) = (node.connect().await, node.connect().await);
    let old = create_led_by(&mut client, &[1, 2]).await;
    let never = Uuid::from_u128(7);
    let mut opening = follower_fetch(old, epoch, 0, Some(0)).with_session_epoch(0);
    opening.topics.extend(follower_fetch(never, epoch, 0, Some(0)).topics);
    let mut response = follower.call(18, opening).await;
    let session = response.session_id;
    let mut session_epoch = 0;
    // What the session is told of both topics when it says that it has a record of the old one.
    let mut told = async |follower: &mut Client| {
        session_epoch += 1;
        let request = follower_fetch(old, epoch, 1, Some(1));
        let request = request.with_session_id(session).with_session_epoch(session_epoch);
        let response = follower.call(18, request).await;
        let code = |id| code_of(&response, id);
        (code(old), code(never))
    };
    let unknown = Some(ErrorCode::UnknownTopicId);
    assert_eq!((code_of(&response, old), code_of(&response, never)), (Some(ErrorCode::None), unknown));

    delete_topic(&mut client, "led").await;
    assert_eq!(told(&mut follower).await, (Some(ErrorCode::UnknownTopicOrPartition), unknown));
    let new = create_led_by(&mut client, &[1, 2]).await;
    let produced = client.call(12, produce_request(12, by_name("led"), 1, &[(0, batch(&["a"]))])).await;
    assert_eq!(produced.responses[0].partition_responses[0].error_code, 0);
    assert_eq!(told(&mut follower).await, (Some(ErrorCode::InconsistentTopicId), unknown));
    response = follower.call(18, follower_fetch(old, epoch, 1, Some(1))).await;
    assert_eq!(code_of(&response, old), unknown, "outside the session nobody knows what it was");
    let read = fetch(&mut client, "led", 0, 0).await;
    assert_eq!((read.error_code, read.high_watermark), (0, 0), "it has nothing of the new topic");
    let described = described(&mut client).await;
    assert_eq!((described.leader_epoch, described.isr_nodes.len()), (0, 2));

    // By its new id it is another partition.
    let read = only_partition(follower.call(18, follower_fetch(new, epoch, 1, Some(1))).await);
    assert_code(read.error_code, ErrorCode::None, "the new topic");
    while fetch(&mut client, "led", 0, 0).await.high_watermark != 1 {}
    // Where the new topic is not at all, that is all there is to say.
    delete_topic(&mut client, "led").await;
    create_led_by(&mut client, &[2]).await;
    assert_eq!(told(&mut follower).await, (Some(ErrorCode::NotLeaderOrFollower), unknown));
    drop(beats);
    node.stop().await;
}

/// What an answer says of a topic's only partition, if it names it.
fn code_of(response: &FetchResponse, topic: Uuid) -> Option<ErrorCode> {
    assert_code(response.error_code, ErrorCode::None, "fetch");
    let topic = response.responses.iter().find(|told| told.topic_id == topic)?;
    ErrorCode::from_code(topic.partitions[0].error_code)
}
