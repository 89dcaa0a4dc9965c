//! Who leads, who controls, and that clients go on when it is somebody else.

use floodmark::types::ErrorCode;
use floodmark::wire::messages::elect_leaders_request::TopicPartitions;
use floodmark::wire::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use floodmark::wire::messages::{ElectLeadersRequest, IncrementalAlterConfigsRequest};

use super::harness::Cluster;
use super::requests::{assert_code, text, topic_name};

const TOPIC: i8 = 2;
const UNCLEAN: i8 = 1;

#[tokio::test(flavor = "multi_thread")]
async fn each_node_can_leave_and_come_back() {
    let mut cluster = Cluster::start(3, &[("min.insync.replicas", "2")]).await;
    cluster.create_topic(2, "t", 3, &[]).await;
    let mut end = 0;
    for id in 1..=3 {
        cluster.until_in_sync("t").await;
        // One of them is the active controller.
        cluster.stop_node(id).await;
        cluster
            .until_partitions("t", |partition| partition.leader_id.0 > 0 && partition.leader_id.0 != id)
            .await;
        for partition in 0..3 {
            assert_eq!(cluster.produce("t", partition, &["a"]).await, end);
        }
        end += 1;
        let other = cluster.running()[0];
        cluster.create_topic(other, &format!("made-without-{id}"), 1, &[]).await;
        cluster.start_nodes(&[id]).await;
    }
    cluster.until_in_sync("t").await;
    for partition in 0..3 {
        cluster.read("t", partition, end).await;
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_was_stopped_starts_with_all_it_had() {
    let mut cluster = Cluster::start(3, &[("min.insync.replicas", "2")]).await;
    cluster.create_topic(1, "t", 2, &[]).await;
    for partition in 0..2 {
        cluster.produce("t", partition, &["a", "b", "c"]).await;
    }
    let before = cluster.read("t", 0, 3).await;
    cluster.stop_all().await;
    cluster.start_nodes(&[1, 2, 3]).await;
    cluster.until_in_sync("t").await;
    assert_eq!(cluster.read("t", 0, 3).await, before);
    assert_eq!(cluster.produce("t", 1, &["d"]).await, 3);
    cluster.stop().await;
}

/// Five nodes, and a topic with replicas on three of them, of which the leader has three records and is away, the second has
/// one and the third has two. Gives the second and the third.
async fn without_leader() -> (Cluster, i32, i32) {
    let mut cluster = Cluster::start(5, &[("default.replication.factor", "3")]).await;
    cluster.create_topic(1, "t", 1, &[]).await;
    cluster.until_in_sync("t").await;
    let partition = cluster.topic_at(1, "t").await.partitions.remove(0);
    let [first, second, third] = partition.replica_nodes[..] else { panic!("{partition:?}") };
    let (first, second, third) = (first.0, second.0, third.0);
    for (end, away) in (0..).zip([second, third, first]) {
        assert_eq!(cluster.produce("t", 0, &["x"]).await, end);
        cluster.stop_node(away).await;
    }
    cluster.start_nodes(&[second, third]).await;
    cluster.until_partitions("t", |partition| partition.leader_id.0 == -1).await;
    (cluster, second, third)
}

async fn is_led_by_the_best(cluster: Cluster, best: i32) {
    cluster.until_partitions("t", |partition| partition.leader_id.0 == best).await;
    cluster.until_partitions("t", |partition| partition.isr_nodes.len() == 2).await;
    cluster.read("t", 0, 2).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_asks_for_an_unclean_leader_gets_the_best_one() {
    let (cluster, second, third) = without_leader().await;
    let named = TopicPartitions::default().with_topic(topic_name("t")).with_partitions(vec![0]);
    let request = ElectLeadersRequest::default()
        .with_election_type(UNCLEAN)
        .with_topic_partitions(Some(vec![named]))
        .with_timeout_ms(30_000);
    let response = cluster.connect(second).await.call(2, request).await;
    assert_code(response.replica_election_results[0].partition_result[0].error_code, ErrorCode::None, "t");
    is_led_by_the_best(cluster, third).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_unclean_leaders_are_allowed_the_best_one_is_elected() {
    let (cluster, second, third) = without_leader().await;
    let allow = AlterableConfig::default()
        .with_name(text("unclean.leader.election.enable"))
        .with_value(Some(text("true")));
    let topic = AlterConfigsResource::default().with_resource_type(TOPIC).with_resource_name(text("t"));
    let request =
        IncrementalAlterConfigsRequest::default().with_resources(vec![topic.with_configs(vec![allow])]);
    let response = cluster.connect(second).await.call(1, request).await;
    assert_code(response.responses[0].error_code, ErrorCode::None, "t");
    is_led_by_the_best(cluster, third).await;
}
