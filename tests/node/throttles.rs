//! Throttled replication (KIP-73): what a leader sends to a follower that is listed and not in sync, and to everybody else.

use floodmark::types::Uuid;
use floodmark::wire::batch::{Batches, PartialTail};
use floodmark::wire::messages::FetchRequest;

use super::admin::incremental;
use super::brokers::{Beats, Played, create_assigned};
use super::client::Client;
use super::harness::TestNode;
use super::replication::follower_fetch;
use super::requests::{batch, by_name, fetch, only_partition, produce_request};
use super::two_brokers::{described, ids};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const RATE: &str = "leader.replication.throttled.rate";
const SET: i8 = 0;
const DELETE: i8 = 1;

async fn alter(client: &mut Client, kind: i8, name: &str, key: &str, value: Option<&str>) {
    let operation = if value.is_some() { SET } else { DELETE };
    let altered = client.call(1, incremental(kind, name, &[(key, operation, value)])).await;
    assert_eq!(altered.responses[0].error_code, 0, "{key}");
}

/// A fetch of one batch of a partition by broker 2.
fn one_batch(topic: Uuid, epoch: i64, partition: i32, from: i64) -> FetchRequest {
    let mut request = follower_fetch(topic, epoch, from, Some(from));
    let asked = &mut request.topics[0].partitions[0];
    (asked.partition, asked.partition_max_bytes) = (partition, 1);
    request
}

/// How many batches a follower gets.
async fn got(follower: &mut Client, request: FetchRequest) -> usize {
    let read = only_partition(follower.call(18, request).await);
    assert_eq!(read.error_code, 0);
    let bytes = read.records.unwrap_or_default().into_bytes();
    Batches::new(&bytes, PartialTail::Refuse).count()
}

#[tokio::test]
async fn a_throttled_follower_gets_what_the_rate_allows_until_it_is_in_sync() {
    let node = TestNode::start(&[]).await;
    let played = Played::new(&node).await;
    let mut controller = node.connect_to_controller().await;
    let epoch = played.join(&mut controller, 1).await;
    let beats = Beats::begin(controller, epoch);
    let (mut client, mut follower) = (node.connect().await, node.connect().await);
    let topic = create_assigned(&mut client, &[&[1, 2], &[1, 2]]).await;
    let large = "x".repeat(10_000);
    let write = async |client: &mut Client, partition| {
        let request = produce_request(12, by_name("led"), 1, &[(partition, batch(&[&large]))]);
        assert_eq!(client.call(12, request).await.responses[0].partition_responses[0].error_code, 0);
    };
    for partition in [0, 1, 0, 1, 0, 1] {
        write(&mut client, partition).await;
    }
    let falls_out_of_sync = async |client: &mut Client| {
        beats.want_fence(true);
        while ids(&described(client).await.isr_nodes) != [1] {}
        beats.want_fence(false);
        while !ids(&described(client).await.offline_replicas).is_empty() {}
    };

    falls_out_of_sync(&mut client).await;
    alter(&mut client, BROKER, "1", RATE, Some("0")).await;
    alter(&mut client, TOPIC, "led", "leader.replication.throttled.replicas", Some("0:1")).await;
    while got(&mut follower, one_batch(topic, epoch, 0, 0)).await > 0 {}
    for from in 0..3 {
        assert_eq!(got(&mut follower, one_batch(topic, epoch, 0, from)).await, 0, "throttled");
        assert_eq!(got(&mut follower, one_batch(topic, epoch, 1, from)).await, 1, "another partition");
    }
    // Consumers are not held up.
    while fetch(&mut client, "led", 0, 0).await.records.is_none_or(|records| records.len() < 30_000) {}

    // A byte in a second: one batch passes, and that is the quota of hours.
    alter(&mut client, BROKER, "1", RATE, Some("1")).await;
    while got(&mut follower, one_batch(topic, epoch, 0, 0)).await == 0 {}
    for _ in 0..3 {
        assert_eq!(got(&mut follower, one_batch(topic, epoch, 0, 1)).await, 0, "beyond the quota");
    }

    // Producers wait for whoever is in sync: it gets everything, quota or not.
    while described(&mut client).await.isr_nodes.len() < 2 {
        follower.call(18, one_batch(topic, epoch, 0, 3)).await;
    }
    for _ in 0..3 {
        assert_eq!(got(&mut follower, one_batch(topic, epoch, 0, 1)).await, 1, "in sync");
    }

    // It lacks something now: else it would be taken in again as soon as it is unfenced.
    write(&mut client, 0).await;
    falls_out_of_sync(&mut client).await;
    assert_eq!(got(&mut follower, one_batch(topic, epoch, 0, 1)).await, 0, "out of sync again");
    alter(&mut client, BROKER, "1", RATE, None).await;
    while got(&mut follower, one_batch(topic, epoch, 0, 1)).await == 0 {}
    assert_eq!(got(&mut follower, one_batch(topic, epoch, 0, 2)).await, 1, "without a limit");
    drop(beats);
    node.stop().await;
}
