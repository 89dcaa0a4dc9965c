//! What is acknowledged is on every in-sync replica, and the replicas are equal.

use std::path::Path;

use floodmark::types::ErrorCode;
use floodmark::wire::messages::RecordBytes;

use super::harness::{Cluster, segments, until};
use super::requests::{batch, fetch};

#[tokio::test(flavor = "multi_thread")]
async fn every_replica_has_the_same_log() {
    let settings = [("min.insync.replicas", "2"), ("log.segment.bytes", "1048576")];
    let cluster = Cluster::start(3, &settings).await;
    // Any node takes requests about metadata.
    cluster.create_topic(3, "t", 3, &[]).await;
    cluster.until_in_sync("t").await;
    let large = "x".repeat(100_000);
    for round in 0..20 {
        for partition in 0..3 {
            assert_eq!(cluster.produce("t", partition, &["a", &large]).await, 2 * round);
        }
    }
    for partition in 0..3 {
        assert!(!cluster.read("t", partition, 40).await.is_empty());
    }
    cluster.until_in_sync("t").await;
    let data: Vec<_> = cluster.running().into_iter().map(|id| cluster.data_of(id)).collect();
    let _dir = cluster.stop().await;
    for partition in ["t-0", "t-1", "t-2"] {
        let logs: Vec<_> = data.iter().map(|data| segments(data, partition)).collect();
        assert!(logs[0].len() > 1, "{partition} has several segments");
        assert!(logs.iter().all(|log| *log == logs[0]), "{partition} differs");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_replicas_take_no_records_and_take_them_again() {
    let mut cluster = Cluster::start(3, &[]).await;
    cluster.create_topic(1, "t", 1, &[("min.insync.replicas", "3")]).await;
    assert_eq!(cluster.produce("t", 0, &["a"]).await, 0);
    let leader = cluster.leader("t", 0).await;
    let away = cluster.running().into_iter().find(|id| *id != leader).unwrap();
    cluster.stop_node(away).await;
    cluster.until_partitions("t", |partition| partition.isr_nodes.len() == 2).await;
    let refused = cluster.produce_once("t", 0, batch(&["b"])).await;
    assert_eq!(refused, Err(ErrorCode::NotEnoughReplicas));

    cluster.start_nodes(&[away]).await;
    cluster.until_in_sync("t").await;
    assert_eq!(cluster.produce("t", 0, &["b"]).await, 1);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_away_catches_up_with_records_and_with_topics() {
    let settings = [("min.insync.replicas", "2"), ("log.segment.delete.delay.ms", "100")];
    let mut cluster = Cluster::start(3, &settings).await;
    for topic in ["kept", "deleted", "replaced"] {
        cluster.create_topic(1, topic, 1, &[]).await;
        cluster.produce(topic, 0, &["a", "b"]).await;
        cluster.until_in_sync(topic).await;
    }
    cluster.stop_node(3).await;
    assert_eq!(cluster.produce("kept", 0, &["c"]).await, 2);
    for topic in ["deleted", "replaced"] {
        cluster.delete_topic(2, topic).await;
    }
    cluster.create_topic(1, "replaced", 1, &[]).await;
    cluster.produce("replaced", 0, &["new"]).await;

    cluster.start_nodes(&[3]).await;
    cluster.until_in_sync("kept").await;
    cluster.until_in_sync("replaced").await;
    let data: Vec<_> = cluster.running().into_iter().map(|id| cluster.data_of(id)).collect();
    let of_deleted = |name: &str| name.starts_with("deleted-0") || name.starts_with("replaced-0.");
    until(async || !names_in(&data[2]).iter().any(|name| of_deleted(name))).await;
    let _dir = cluster.stop().await;
    for partition in ["kept-0", "replaced-0"] {
        assert_eq!(segments(&data[2], partition), segments(&data[0], partition), "{partition}");
    }
}

/// A bit is flipped on each of two disks, in files that nobody writes to any more.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_damaged_on_disk_is_put_right_with_what_the_other_replica_has() {
    let mut cluster = Cluster::start(2, &[("log.segment.bytes", "1048576")]).await;
    cluster.create_topic(1, "t", 1, &[]).await;
    cluster.until_in_sync("t").await;
    let large = "x".repeat(100_000);
    for _ in 0..20 {
        cluster.produce("t", 0, &["a", &large]).await;
    }
    cluster.until_in_sync("t").await;
    let data = [1, 2].map(|id| cluster.data_of(id));
    cluster.stop_all().await;
    let before = segments(&data[0], "t-0");
    assert!(before.len() > 1 && before == segments(&data[1], "t-0"));
    let (first, bytes) = before.first_key_value().unwrap();
    for (data, at) in data.iter().zip([350_000, 650_000]) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 4;
        std::fs::write(data.join("t-0").join(first), bytes).unwrap();
    }

    cluster.start_nodes(&[1, 2]).await;
    cluster.until_in_sync("t").await;
    for id in [1, 2] {
        for offset in 0..40 {
            until(async || {
                let fetched = fetch(&mut cluster.connect(id).await, "t", 0, offset).await;
                let records = fetched.records.map(RecordBytes::into_bytes).unwrap_or_default();
                fetched.error_code == 0 && !records.is_empty()
            })
            .await;
        }
    }
    cluster.stop_all().await;
    for data in &data {
        assert!(segments(data, "t-0") == before, "{}", data.display());
    }
}

fn names_in(dir: &Path) -> Vec<String> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}
