//! Partitions on their way to other brokers: held up by a throttle, let go on, and deleted in the middle of it.

use std::path::Path;

use floodmark::types::ErrorCode;
use floodmark::wire::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use floodmark::wire::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use floodmark::wire::messages::list_partition_reassignments_response::OngoingPartitionReassignment;
use floodmark::wire::messages::{
    AlterPartitionReassignmentsRequest, BrokerId, IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
};

use super::harness::{Cluster, until};
use super::requests::{assert_code, list_offsets_request, text, topic_name};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const BATCHES: i64 = 100;

/// Small fetches, so that a throttled one is not already all there is.
const SETTINGS: [(&str, &str); 2] =
    [("replica.fetch.max.bytes", "10000"), ("log.segment.delete.delay.ms", "100")];

async fn alter(cluster: &Cluster, kind: i8, name: &str, key: &str, value: &str) {
    let change = AlterableConfig::default().with_name(text(key)).with_value(Some(text(value)));
    let resource = AlterConfigsResource::default().with_resource_type(kind).with_resource_name(text(name));
    let request =
        IncrementalAlterConfigsRequest::default().with_resources(vec![resource.with_configs(vec![change])]);
    // A broker takes only its own settings.
    let through = if kind == BROKER { name.parse().unwrap() } else { 1 };
    let response = cluster.connect(through).await.call(1, request).await;
    assert_code(response.responses[0].error_code, ErrorCode::None, key);
}

async fn reassign(cluster: &Cluster, topic: &str, replicas: &[i32]) {
    let partition = ReassignablePartition::default()
        .with_partition_index(0)
        .with_replicas(Some(replicas.iter().copied().map(BrokerId).collect()));
    let topic = ReassignableTopic::default().with_name(topic_name(topic)).with_partitions(vec![partition]);
    let request =
        AlterPartitionReassignmentsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000);
    let response = cluster.connect(1).await.call(0, request).await;
    assert_code(response.responses[0].partitions[0].error_code, ErrorCode::None, "reassignment");
}

/// The reassignments that go on, as every node tells them.
async fn ongoing(cluster: &Cluster, through: i32) -> Vec<OngoingPartitionReassignment> {
    let request = ListPartitionReassignmentsRequest::default().with_topics(None).with_timeout_ms(30_000);
    let response = cluster.connect(through).await.call(0, request).await;
    response.topics.into_iter().flat_map(|topic| topic.partitions).collect()
}

/// How far a replica's log reaches, if it is there.
async fn log_end(cluster: &Cluster, id: i32, topic: &str) -> i64 {
    let mut request = list_offsets_request(topic, 0, -1);
    // Somebody who looks at a replica, be it one that does not lead.
    request.replica_id = -2;
    cluster.connect(id).await.call(7, request).await.topics[0].partitions[0].offset
}

/// A topic with a single replica on node 1 that is on its way to node 2 and does not get far: one side of it may move a byte in a
/// second. Gives how far it has come.
async fn held_up(cluster: &Cluster, topic: &str, side: &str) -> i64 {
    cluster.create_topic_on(1, topic, &[1]).await;
    let beside = format!("beside-{topic}");
    cluster.create_topic_on(1, &beside, &[1, 2]).await;
    let large = "x".repeat(10_000);
    for offset in 0..BATCHES {
        assert_eq!(cluster.produce(topic, 0, &[&large]).await, offset);
    }
    let broker = if side == "leader" { "1" } else { "2" };
    let replicas = format!("{side}.replication.throttled.replicas");
    alter(cluster, TOPIC, topic, &replicas, &format!("0:{broker}")).await;
    alter(cluster, BROKER, broker, &format!("{side}.replication.throttled.rate"), "1").await;
    // A node that has this topic has the settings before it.
    cluster.create_topic_on(1, &format!("after-{topic}"), &[1, 2]).await;
    cluster.produce(&format!("after-{topic}"), 0, &["a"]).await;

    reassign(cluster, topic, &[2]).await;
    until(async || log_end(cluster, 2, topic).await > 0).await;
    let reached = log_end(cluster, 2, topic).await;
    // What is not listed goes on, by the same connections.
    for offset in 0..10 {
        assert_eq!(cluster.produce(&beside, 0, &["a"]).await, offset);
    }
    let going_on = &ongoing(cluster, 3).await[0];
    let adds = going_on.adding_replicas.iter().map(|id| id.0).collect::<Vec<_>>();
    let removes = going_on.removing_replicas.iter().map(|id| id.0).collect::<Vec<_>>();
    assert_eq!((adds, removes), (vec![2], vec![1]));
    log_end(cluster, 2, topic).await.max(reached)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_reassignment_goes_on_when_the_throttle_is_raised() {
    let cluster = Cluster::start(3, &SETTINGS).await;
    for side in ["leader", "follower"] {
        let topic = format!("moved-{side}");
        let reached = held_up(&cluster, &topic, side).await;
        // What was under way when the limit was reached, and no more.
        assert!(reached < 5, "{side}: {reached} of {BATCHES} batches have passed");
        cluster.until_partitions(&topic, |partition| partition.leader_id.0 == 1).await;

        let broker = if side == "leader" { "1" } else { "2" };
        alter(&cluster, BROKER, broker, &format!("{side}.replication.throttled.rate"), "1000000000").await;
        until(async || ongoing(&cluster, 3).await.is_empty()).await;
        cluster
            .until_partitions(&topic, |partition| {
                let replicas: Vec<i32> = partition.replica_nodes.iter().map(|id| id.0).collect();
                replicas == [2] && partition.leader_id.0 == 2
            })
            .await;
        assert_eq!(cluster.produce(&topic, 0, &["a"]).await, BATCHES);
        assert!(!cluster.read(&topic, 0, BATCHES + 1).await.is_empty());
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_deleted_on_its_way_is_gone_everywhere() {
    let cluster = Cluster::start(3, &SETTINGS).await;
    held_up(&cluster, "moved", "leader").await;
    cluster.delete_topic(3, "moved").await;
    for id in cluster.running() {
        until(async || ongoing(&cluster, id).await.is_empty()).await;
        let data = cluster.data_of(id);
        until(async || !has_files(&data, "moved-0")).await;
    }
    // The name is free, and nothing of what was on its way comes back.
    cluster.create_topic_on(2, "moved", &[2, 1]).await;
    assert_eq!(cluster.produce("moved", 0, &["new"]).await, 0);
    cluster.until_in_sync("moved").await;
    assert!(ongoing(&cluster, 1).await.is_empty());
    cluster.stop().await;
}

/// Whether a partition has a directory here, under whatever name it has when it is deleted.
fn has_files(data: &Path, partition: &str) -> bool {
    let mut names = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().file_name());
    names.any(|name| {
        let name = name.into_string().unwrap();
        name == partition || name.starts_with(&format!("{partition}."))
    })
}
