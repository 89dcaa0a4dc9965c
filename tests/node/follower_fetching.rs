//! Consumers read from the replica in their rack (KIP-392): who is told of which replica, and which replicas are never chosen.

use std::time::Duration;

use floodmark::types::Uuid;
use floodmark::wire::messages::fetch_response::PartitionData;

use super::brokers::{Beats, Played, create_led_by};
use super::client::Client;
use super::harness::TestNode;
use super::replication::follower_fetch;
use super::requests::{Named, batch, by_name, fetch, fetch_request, only_partition, produce_request, text};
use super::two_brokers::{described, ids};

const RACK_AWARE: (&str, &str) =
    ("replica.selector.class", "org.apache.kafka.common.replica.RackAwareReplicaSelector");
const NOBODY: i32 = -1;

/// A node in rack a and broker 2 in rack b, which lives, with its epoch.
async fn two() -> (TestNode, Played, Beats, i64) {
    beside(TestNode::start(&[("broker.rack", "a"), RACK_AWARE]).await).await
}

async fn beside(node: TestNode) -> (TestNode, Played, Beats, i64) {
    let played = Played::new(&node).await;
    let mut controller = node.connect_to_controller().await;
    let epoch = played.join(&mut controller, 1).await;
    (node, played, Beats::begin(controller, epoch), epoch)
}

async fn write(client: &mut Client) {
    let taken = client.call(12, produce_request(12, by_name("led"), 1, &[(0, batch(&["a"]))])).await;
    assert_eq!(taken.responses[0].partition_responses[0].error_code, 0);
}

/// The follower fetches from offset 1; waits until its leader has taken note of that.
async fn follows_to_1(client: &mut Client, follower: &mut Client, topic: Uuid, epoch: i64) {
    follower.call(18, follower_fetch(topic, epoch, 1, Some(1))).await;
    while fetch(client, "led", 0, 0).await.high_watermark != 1 {}
    while preferred(client, topic, "b", 1).await != 2 {}
}

/// What a consumer in this rack is answered.
async fn read(client: &mut Client, version: i16, topic: Uuid, rack: &str, from: i64) -> PartitionData {
    let request = fetch_request(version, Named { name: "led", id: topic }, &[(0, from)]);
    // Where to read is told at once, however little there is.
    let request = request.with_rack_id(text(rack)).with_min_bytes(i32::from(!rack.is_empty()));
    let data = only_partition(client.call(version, request).await);
    assert_eq!(data.error_code, 0);
    data
}

async fn preferred(client: &mut Client, topic: Uuid, rack: &str, from: i64) -> i32 {
    read(client, 18, topic, rack, from).await.preferred_read_replica
}

#[tokio::test]
async fn a_consumer_is_told_of_the_replica_in_its_rack() {
    let (node, _played, beats, epoch) = two().await;
    let (mut client, mut follower) = (node.connect().await, node.connect().await);
    let topic = create_led_by(&mut client, &[1, 2]).await;
    write(&mut client).await;
    follows_to_1(&mut client, &mut follower, topic, epoch).await;

    for version in [11, 12, 13, 18] {
        let told = read(&mut client, version, topic, "b", 0).await;
        assert_eq!(told.preferred_read_replica, 2, "version {version}");
        assert!(told.records.is_none_or(|records| records.is_empty()), "nothing was read");
        assert_eq!((told.high_watermark, told.log_start_offset), (1, 0));
        // The leader is there, nobody is, and it does not say.
        for rack in ["a", "c", ""] {
            let told = read(&mut client, version, topic, rack, 0).await;
            assert_eq!(told.preferred_read_replica, NOBODY, "rack {rack}, version {version}");
            assert!(told.records.is_some_and(|records| !records.is_empty()));
        }
    }
    let old = read(&mut client, 10, topic, "", 0).await;
    assert_eq!(old.preferred_read_replica, NOBODY, "racks are told from version 11 on");
    let by_follower = follower_fetch(topic, epoch, 1, Some(1)).with_rack_id(text("b"));
    let told = only_partition(follower.call(18, by_follower).await);
    assert_eq!(told.preferred_read_replica, NOBODY, "followers read from the leader");

    // Advice does not wait for bytes.
    let waits = fetch_request(18, Named { name: "led", id: topic }, &[(0, 1)]);
    let waits = waits.with_rack_id(text("b")).with_min_bytes(1 << 20).with_max_wait_ms(i32::MAX);
    let told = tokio::time::timeout(Duration::from_secs(30), client.call(18, waits)).await.unwrap();
    assert_eq!(only_partition(told).preferred_read_replica, 2);
    drop(beats);
    node.stop().await;
}

#[tokio::test]
async fn a_replica_that_lacks_what_is_asked_for_or_is_not_in_sync_is_not_chosen() {
    let (node, _played, beats, epoch) = two().await;
    let (mut client, mut follower) = (node.connect().await, node.connect().await);
    let topic = create_led_by(&mut client, &[1, 2]).await;
    write(&mut client).await;
    write(&mut client).await;
    follows_to_1(&mut client, &mut follower, topic, epoch).await;
    for (from, expected) in [(0, 2), (1, 2), (2, NOBODY)] {
        assert_eq!(preferred(&mut client, topic, "b", from).await, expected, "from {from}");
    }

    // Fenced, it leaves the in-sync set; alive again, it has to come back into that first.
    beats.want_fence(true);
    while ids(&described(&mut client).await.isr_nodes) != [1] {}
    assert_eq!(preferred(&mut client, topic, "b", 0).await, NOBODY, "fenced");
    beats.want_fence(false);
    while !ids(&described(&mut client).await.offline_replicas).is_empty() {}
    while preferred(&mut client, topic, "b", 0).await != NOBODY {}
    follower.call(18, follower_fetch(topic, epoch, 1, Some(1))).await;
    assert_eq!(preferred(&mut client, topic, "b", 0).await, NOBODY, "it lags");
    while preferred(&mut client, topic, "b", 0).await == NOBODY {
        follower.call(18, follower_fetch(topic, epoch, 2, Some(2))).await;
    }
    assert_eq!(preferred(&mut client, topic, "b", 0).await, 2);
    assert_eq!(described(&mut client).await.isr_nodes.len(), 2);
    drop(beats);
    node.stop().await;
}

#[tokio::test]
async fn a_follower_and_a_leader_without_a_selector_send_nobody_on() {
    let (node, _played, beats, _) = two().await;
    let mut client = node.connect().await;
    let topic = create_led_by(&mut client, &[2, 1]).await;
    assert_eq!(preferred(&mut client, topic, "b", 0).await, NOBODY, "a follower");
    drop(beats);
    node.stop().await;

    let (node, _played, beats, epoch) = beside(TestNode::start(&[("broker.rack", "a")]).await).await;
    let mut client = node.connect().await;
    let topic = create_led_by(&mut client, &[1, 2]).await;
    write(&mut client).await;
    client.call(18, follower_fetch(topic, epoch, 1, Some(1))).await;
    while fetch(&mut client, "led", 0, 0).await.high_watermark != 1 {}
    assert_eq!(preferred(&mut client, topic, "b", 0).await, NOBODY, "no selector");
    drop(beats);
    node.stop().await;
}
