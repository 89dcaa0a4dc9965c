//! Connections: the order of answers, what ends a connection, and how many there may be.

use floodmark::types::ErrorCode;
use floodmark::wire::api::{API_TABLE, ApiRow};
use floodmark::wire::messages::*;
use tokio::io::AsyncWriteExt;

use super::client::{Client, decode_answer, raw_frame};
use super::harness::TestNode;
use super::random::Random;
use super::requests::{
    assert_code, batch, by_name, create_topic, fetch, fetch_request, list_offsets_request, only_partition,
    produce_ok, produce_request, text,
};
use super::versions::{golden_request, metadata_request};

#[tokio::test]
async fn requests_written_at_once_are_answered_in_their_order() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    let mut frames = Vec::new();
    for round in 0..50 {
        let value = format!("{round}");
        let produce = produce_request(12, by_name("t"), -1, &[(0, batch(&[&value]))]);
        frames.extend_from_slice(&client.frame(12, &produce));
        frames.extend_from_slice(&client.frame(5, &list_offsets_request("t", 0, -1)));
        frames.extend_from_slice(&client.frame(12, &fetch_request(12, by_name("t"), &[(0, 0)])));
    }
    // Nobody reads while all of it is sent.
    client.stream.write_all(&frames).await.unwrap();
    for round in 0..50 {
        let produced: ProduceResponse = client.receive().await;
        assert_eq!(produced.responses[0].partition_responses[0].base_offset, round);
        let _: ListOffsetsResponse = client.receive().await;
        let read: FetchResponse = client.receive().await;
        assert_code(read.error_code, ErrorCode::None, "fetch");
    }
    node.stop().await;
}

#[tokio::test]
async fn more_than_is_held_at_a_time_is_answered_as_the_client_reads() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    let value = "x".repeat(500_000);
    produce_ok(&mut client, "t", 0, &[&value]).await;
    let mut frames = Vec::new();
    for _ in 0..60 {
        frames.extend_from_slice(&client.frame(12, &fetch_request(12, by_name("t"), &[(0, 0)])));
    }
    client.stream.write_all(&frames).await.unwrap();
    // Requests that wait for their answers are held too, and give way.
    let produce = produce_request(12, by_name("t"), -1, &[(0, batch(&[&value]))]);
    for _ in 0..60 {
        let read: FetchResponse = client.receive().await;
        assert!(only_partition(read).records.unwrap().into_bytes().len() > 500_000);
    }
    let mut other = node.connect().await;
    for _ in 0..20 {
        other.send(12, &produce).await;
    }
    for offset in 1..=20 {
        let produced: ProduceResponse = other.receive().await;
        assert_eq!(produced.responses[0].partition_responses[0].base_offset, offset);
    }
    node.stop().await;
}

#[tokio::test]
async fn a_fetch_that_waits_delays_no_other_connection() {
    let (node, mut waiting) = TestNode::with_topic(&[("queued.max.requests", "1")], "t", 1).await;
    let request = fetch_request(12, by_name("t"), &[(0, 0)]).with_max_wait_ms(i32::MAX).with_min_bytes(1);
    waiting.send(12, &request).await;
    // Its own next request waits for its turn.
    waiting.send(12, &metadata_request(12, &["t"])).await;
    let mut other = node.connect().await;
    other.call(12, metadata_request(12, &["t"])).await;
    produce_ok(&mut other, "t", 0, &["a"]).await;
    let read = only_partition(waiting.receive().await);
    assert_eq!((read.error_code, read.high_watermark), (0, 1));
    let _: MetadataResponse = waiting.receive().await;
    node.stop().await;
}

#[tokio::test]
async fn acks_0_is_not_answered_and_its_errors_close_the_connection() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    client.send(12, &produce_request(12, by_name("t"), 0, &[(0, batch(&["a"]))])).await;
    client.expect_no_answer();
    assert_eq!(produce_ok(&mut client, "t", 0, &["b"]).await, 1);

    // What was asked before is answered, what comes after is not.
    client.send(12, &metadata_request(12, &["t"])).await;
    client.send(12, &produce_request(12, by_name("missing"), 0, &[(0, batch(&["c"]))])).await;
    client.send(12, &metadata_request(12, &["t"])).await;
    let _: MetadataResponse = client.receive().await;
    client.expect_closed().await;
    node.stop().await;
}

#[tokio::test]
async fn whoever_closes_his_side_still_gets_the_answers() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    for value in ["a", "b"] {
        client.send(12, &produce_request(12, by_name("t"), -1, &[(0, batch(&[value]))])).await;
    }
    client.stream.shutdown().await.unwrap();
    for offset in 0..2 {
        let produced: ProduceResponse = client.receive().await;
        assert_eq!(produced.responses[0].partition_responses[0].base_offset, offset);
    }
    client.expect_closed().await;

    // A fetch with nothing to read waits for nobody.
    let mut client = node.connect().await;
    let request = fetch_request(12, by_name("t"), &[(0, 2)]).with_max_wait_ms(i32::MAX).with_min_bytes(1);
    client.send(12, &request).await;
    client.stream.shutdown().await.unwrap();
    client.expect_closed().await;
    node.stop().await;
}

#[tokio::test]
async fn a_frame_may_come_in_any_pieces() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    let request = produce_request(12, by_name("t"), -1, &[(0, batch(&["a"]))]);
    let length = client.frame(12, &request).len();
    client.expect_no_answer();
    for split in 1..length {
        let frame = client.frame(12, &request);
        client.stream.write_all(&frame[..split]).await.unwrap();
        tokio::task::yield_now().await;
        client.stream.write_all(&frame[split..]).await.unwrap();
        let produced: ProduceResponse = client.receive().await;
        assert_code(produced.responses[0].partition_responses[0].error_code, ErrorCode::None, "split");
    }
    let frame = client.frame(12, &request);
    for byte in frame.iter() {
        client.stream.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let _: ProduceResponse = client.receive().await;
    node.stop().await;
}

#[tokio::test]
async fn what_is_no_request_closes_the_connection() {
    let node = TestNode::start(&[("socket.request.max.bytes", "1000")]).await;
    let header = [0, 0, 0];
    let frames: Vec<(&str, Vec<u8>)> = vec![
        ("a negative length", (-1i32).to_be_bytes().to_vec()),
        ("a length beyond the limit", 1_001i32.to_be_bytes().to_vec()),
        ("an empty frame", 0i32.to_be_bytes().to_vec()),
        ("half a header", [4i32.to_be_bytes(), [0, 3, 0, 12]].concat()),
        ("an unknown key", raw_frame(999, 0, 1, &header)),
        ("an API that is not served", raw_frame(11, 0, 1, &header)),
        ("a version that is too new", raw_frame(3, 99, 1, &header)),
        ("a version that is too old", raw_frame(0, 2, 1, &header)),
        ("a negative version", raw_frame(3, -1, 1, &header)),
        ("a body that is cut short", raw_frame(3, 12, 1, &[255, 255, 0, 5])),
        ("an array of two billion", raw_frame(3, 1, 1, &[255, 255, 127, 255, 255, 255])),
    ];
    for (what, frame) in frames {
        let mut client = node.connect().await;
        client.send(12, &metadata_request(12, &[])).await;
        client.stream.write_all(&frame).await.unwrap();
        // What came before is answered.
        let _: MetadataResponse = client.receive().await;
        client.expect_closed().await;
        // Others do not notice.
        node.connect().await.call(12, metadata_request(12, &[])).await;
        println!("{what}");
    }
    // The longest frame is still one.
    let mut client = node.connect().await;
    let overhead = client.frame(12, &metadata_request(12, &[&"x".repeat(200)])).len() - 200;
    client.expect_no_answer();
    let name = "x".repeat(4 + 1_000 - overhead);
    let mut request = client.frame(12, &metadata_request(12, &[&name]));
    assert_eq!(request.len(), 4 + 1_000);
    client.stream.write_all_buf(&mut request).await.unwrap();
    let _: MetadataResponse = client.receive().await;
    node.stop().await;
}

#[tokio::test]
async fn an_unknown_version_of_api_versions_is_answered_in_version_0() {
    let node = TestNode::start(&[]).await;
    let mut client = node.connect().await;
    for version in [6, 99, -1] {
        client.stream.write_all(&raw_frame(18, version, 7, &[0, 0, 0])).await.unwrap();
        let frame = client.read_frame().await.unwrap();
        let row = ApiRow::of(18).unwrap();
        let answer: ApiVersionsResponse = decode_answer(row, 0, 7, frame);
        assert_code(answer.error_code, ErrorCode::UnsupportedVersion, "version");
        let [own] = &answer.api_keys[..] else { panic!("ApiVersions alone") };
        assert_eq!((own.api_key, own.min_version, own.max_version), (18, row.min, row.max));
    }
    // The connection goes on.
    let request = ApiVersionsRequest {
        client_software_name: text("test"),
        client_software_version: text("1"),
        ..Default::default()
    };
    client.call(3, request).await;
    node.stop().await;
}

#[tokio::test]
async fn each_listener_serves_its_own() {
    let node = TestNode::start(&[]).await;
    let mut client = node.connect_to_controller().await;
    let request = DescribeClusterRequest::default().with_endpoint_type(2);
    let response = client.call(1, request).await;
    assert_code(response.error_code, ErrorCode::None, "controllers");
    let [controller] = &response.brokers[..] else { panic!("{response:?}") };
    assert_eq!((controller.broker_id, response.controller_id), (1.into(), 1.into()));
    let address = node.controller_address();
    assert_eq!((controller.host.as_str(), controller.port), ("127.0.0.1", i32::from(address.port())));
    let response = client.call(1, DescribeClusterRequest::default()).await;
    assert_code(response.error_code, ErrorCode::MismatchedEndpointType, "brokers");
    // Admin requests may go to either; what they change is one.
    create_topic(&mut client, "t", 1, &[]).await;
    client.send(12, &metadata_request(12, &[])).await;
    client.expect_closed().await;
    assert_eq!(produce_ok(&mut node.connect().await, "t", 0, &["a"]).await, 0);
    node.stop().await;
}

#[tokio::test]
async fn clients_are_told_the_addresses_of_the_listener_that_they_ask() {
    let settings = [
        ("listeners", "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0"),
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"),
    ];
    let node = TestNode::start(&settings).await;
    for listener in ["PLAINTEXT", "INSIDE"] {
        let mut client = node.connect_to(listener).await;
        let told = client.call(12, metadata_request(12, &[])).await;
        let port = i32::from(node.address(listener).port());
        assert_eq!((told.brokers[0].host.as_str(), told.brokers[0].port), ("127.0.0.1", port));
    }
    node.stop().await;
}

#[tokio::test]
async fn an_address_has_no_more_connections_than_it_may_have() {
    let node = TestNode::start(&[("max.connections.per.ip", "2")]).await;
    let mut first = node.connect().await;
    first.call(12, metadata_request(12, &[])).await;
    let mut second = node.connect().await;
    second.call(12, metadata_request(12, &[])).await;
    node.connect().await.expect_closed().await;
    // A place is given back before the node closes its own side.
    drop(first);
    second.call(12, metadata_request(12, &[])).await;
    let mut third = served(&node).await;
    third.call(12, metadata_request(12, &[])).await;
    node.stop().await;
}

/// A connection that is served: asks until the place of a closed one is free.
async fn served(node: &TestNode) -> Client {
    loop {
        let mut client = node.connect().await;
        client.send(12, &metadata_request(12, &[])).await;
        if client.read_frame().await.is_some() {
            client.expect_no_answer();
            return client;
        }
    }
}

#[tokio::test]
async fn beyond_max_connections_a_client_waits_for_another_to_leave() {
    let node = TestNode::start(&[("max.connections", "1")]).await;
    let mut first = node.connect().await;
    first.call(12, metadata_request(12, &[])).await;
    let mut second = node.connect().await;
    second.send(12, &metadata_request(12, &[])).await;
    // Two turns of the one that is served give the other every chance to be served wrongly.
    for _ in 0..2 {
        first.call(12, metadata_request(12, &[])).await;
    }
    assert!(second.stream.try_read(&mut [0]).is_err(), "nothing is there to read");
    drop(first);
    let _: MetadataResponse = second.receive().await;

    // The limit follows the metadata.
    super::admin::set_broker_config(&mut second, "max.connections", "2").await;
    let mut third = node.connect().await;
    third.call(12, metadata_request(12, &[])).await;
    node.stop().await;
}

#[tokio::test]
async fn idle_connections_are_closed_and_those_that_only_wait_are_idle() {
    let settings = [("connections.max.idle.ms", "50"), ("connection.failed.authentication.delay.ms", "10")];
    let (node, client) = TestNode::with_topic(&settings, "t", 1).await;
    drop(client);
    node.connect().await.expect_closed().await;
    let mut half = node.connect().await;
    half.stream.write_all(&[0, 0]).await.unwrap();
    half.expect_closed().await;
    let mut waiting = node.connect().await;
    let request = fetch_request(12, by_name("t"), &[(0, 0)]).with_max_wait_ms(i32::MAX).with_min_bytes(1);
    waiting.send(12, &request).await;
    waiting.expect_closed().await;
    node.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answers_is_idle() {
    let settings = [
        ("connections.max.idle.ms", "1000"),
        ("connection.failed.authentication.delay.ms", "10"),
        ("max.connections", "1"),
    ];
    let (node, mut deaf) = TestNode::with_topic(&settings, "t", 1).await;
    produce_ok(&mut deaf, "t", 0, &[&"x".repeat(500_000)]).await;
    let frame = deaf.frame(12, &fetch_request(12, by_name("t"), &[(0, 0)]));
    deaf.stream.write_all(&frame.repeat(100)).await.unwrap();
    // Its place is the only one, so another is served when it has been closed.
    node.connect().await.call(12, metadata_request(12, &[])).await;
    node.stop().await;
}

/// A frame changed in some bytes after its length, one that ends early, and one whose length says so.
fn broken(frame: &[u8], random: &mut Random) -> [Vec<u8>; 3] {
    let mut changed = frame.to_vec();
    for _ in 0..=random.below(4) {
        let at = 4 + random.below(frame.len() - 4);
        changed[at] = random.below(256) as u8;
    }
    let cut = frame[..4 + random.below(frame.len() - 4)].to_vec();
    let mut short = cut.clone();
    short[..4].copy_from_slice(&u32::try_from(cut.len() - 4).unwrap().to_be_bytes());
    [changed, cut, short]
}

#[tokio::test]
async fn broken_requests_of_every_version_disturb_no_other_client() {
    let (node, mut good) = TestNode::with_topic(&[], "t", 1).await;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for row in API_TABLE.iter().filter(|row| row.listeners.broker) {
        for version in row.min..=row.max {
            let frame = golden_request(row, version, "");
            for broken in broken(&frame, &mut random) {
                let mut bad = node.connect().await;
                // The node may close before all is written.
                let _ = bad.stream.write_all(&broken).await;
                let _ = bad.stream.shutdown().await;
                // An answer or none; but the connection ends.
                while bad.read_frame().await.is_some() {}
            }
            let read = fetch(&mut good, "t", 0, 0).await;
            assert_code(read.error_code, ErrorCode::None, "the good client");
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn stopping_ends_connections_that_wait() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    let request = fetch_request(12, by_name("t"), &[(0, 0)]).with_max_wait_ms(i32::MAX).with_min_bytes(1);
    client.send(12, &request).await;
    node.stop().await;
    client.expect_closed().await;
}
