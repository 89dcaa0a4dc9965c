//! Who leads, who controls, and that clients go on when it is somebody else.

use super::harness::Cluster;

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
