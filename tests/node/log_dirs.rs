//! Replicas that move between log directories: what is asked, what DescribeLogDirs shows meanwhile, and that nothing is lost
//! or doubled by it.

use std::path::{Path, PathBuf};

use floodmark::types::{ErrorCode, Uuid};
use floodmark::wire::batch::{Batches, PartialTail};
use floodmark::wire::messages::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic,
};
use floodmark::wire::messages::{AlterReplicaLogDirsRequest, DescribeLogDirsRequest};
use floodmark::wire::records::Records;

use super::admin::{delete_topic, incremental};
use super::client::Client;
use super::harness::TestNode;
use super::requests::{assert_code, create_topic, fetch, produce_ok, text, topic_name};

const BROKER: i8 = 4;
const LIMIT: &str = "replica.alter.log.dirs.io.max.bytes.per.second";

/// One log of a topic's partition 0, as DescribeLogDirs shows it.
#[derive(Clone, Debug, PartialEq)]
struct Shown {
    dir: PathBuf,
    is_future: bool,
    lag: i64,
    size: i64,
}

async fn shown(client: &mut Client, topic: &str) -> Vec<Shown> {
    let response = client.call(4, DescribeLogDirsRequest { topics: None, ..Default::default() }).await;
    let mut all = Vec::new();
    for result in response.results {
        let topics = result.topics.iter().filter(|shown| shown.name.as_str() == topic);
        for partition in topics.flat_map(|topic| &topic.partitions) {
            all.push(Shown {
                dir: result.log_dir.as_str().into(),
                is_future: partition.is_future_key,
                lag: partition.offset_lag,
                size: partition.partition_size,
            });
        }
    }
    all.sort_by_key(|shown| shown.is_future);
    all
}

/// What becomes of the wish to have a partition in a directory.
pub async fn alter(client: &mut Client, topic: &str, partition: i32, dir: &Path) -> i16 {
    let topic =
        AlterReplicaLogDirTopic::default().with_name(topic_name(topic)).with_partitions(vec![partition]);
    let dir = AlterReplicaLogDir::default().with_path(text(dir.to_str().unwrap())).with_topics(vec![topic]);
    let response = client.call(2, AlterReplicaLogDirsRequest::default().with_dirs(vec![dir])).await;
    response.results[0].partitions[0].error_code
}

async fn alter_ok(client: &mut Client, topic: &str, dir: &Path) {
    assert_code(alter(client, topic, 0, dir).await, ErrorCode::None, topic);
}

/// Waits until the partition lies in the directory alone.
async fn until_in(client: &mut Client, topic: &str, dir: &Path) {
    while !matches!(&shown(client, topic).await[..], [one] if one.dir == dir && !one.is_future) {}
}

async fn limit(client: &mut Client, rate: Option<&str>) {
    let operation = if rate.is_some() { 0 } else { 1 };
    let request = incremental(BROKER, "", &[(LIMIT, operation, rate)]);
    assert_code(client.call(1, request).await.responses[0].error_code, ErrorCode::None, LIMIT);
}

/// All values of partition 0, in order.
async fn values(client: &mut Client, topic: &str, end: i64) -> Vec<String> {
    let (mut all, mut from) = (Vec::new(), 0);
    while from < end {
        let bytes = fetch(client, topic, 0, from).await.records.unwrap().into_bytes();
        for batch in Batches::new(&bytes, PartialTail::Refuse).map(Result::unwrap) {
            batch.check_crc().unwrap();
            assert_eq!(batch.header.base_offset.0, from, "no gap and nothing twice");
            for record in Records::new(batch.body(), batch.header.record_count).map(Result::unwrap) {
                all.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
            }
            from = batch.header.next_offset().0;
        }
    }
    all
}

/// The names of the directories of a topic's partitions, without what makes them unique.
fn directories(dir: &Path, topic: &str) -> Vec<String> {
    let entries =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let of_topic = entries.filter(|name| name.starts_with(topic));
    let mut names: Vec<String> = of_topic
        .map(|name| name.split_once('.').map_or(name.clone(), |(of, rest)| format!("{of}{}", &rest[32..])))
        .collect();
    names.sort();
    names
}

/// A node with two log directories and a topic of one partition, in the first directory of the two that come back.
async fn with_two(topic: &str) -> (TestNode, Client, PathBuf, PathBuf) {
    let node = TestNode::with_log_dirs(&["a", "b"]).await;
    let mut client = node.connect().await;
    // The records are of 1970, and a slow machine must not see them go.
    let kept = ("file.delete.delay.ms", "3600000");
    let configs = [("internal.segment.bytes", "4000"), ("retention.ms", "-1"), kept];
    create_topic(&mut client, topic, 1, &configs).await;
    let here = shown(&mut client, topic).await.remove(0).dir;
    let there = [node.dir.path().join("a"), node.dir.path().join("b")].into_iter().find(|dir| *dir != here);
    (node, client, here, there.unwrap())
}

#[tokio::test]
async fn a_partition_moves_while_it_serves() {
    let (node, mut client, here, there) = with_two("t").await;
    let big = "v".repeat(300);
    let mut expected = Vec::new();
    let mut produce = async |client: &mut Client| {
        let values = [format!("{}-{big}", expected.len()), format!("{}-{big}", expected.len() + 1)];
        let at = produce_ok(client, "t", 0, &[values[0].as_str(), values[1].as_str()]).await;
        assert_eq!(at, i64::try_from(expected.len()).unwrap());
        expected.extend(values);
    };
    for _ in 0..30 {
        produce(&mut client).await;
    }
    let mut admin = node.connect().await;
    for (from, to) in [(&here, &there), (&there, &here), (&here, &there)] {
        alter_ok(&mut admin, "t", to).await;
        loop {
            produce(&mut client).await;
            if !directories(from, "t").contains(&"t-0".to_owned()) {
                break;
            }
        }
        until_in(&mut admin, "t", to).await;
        for _ in 0..3 {
            produce(&mut client).await;
        }
    }
    let end = i64::try_from(expected.len()).unwrap();
    assert_eq!(values(&mut client, "t", end).await, expected);
    assert_eq!(directories(&there, "t"), ["t-0", "t-0-delete"]);
    assert_eq!(directories(&here, "t"), ["t-0-delete", "t-0-delete"]);

    let node = node.restart().await;
    let mut client = node.connect().await;
    until_in(&mut client, "t", &there).await;
    assert_eq!(values(&mut client, "t", end).await, expected);
    assert_eq!(produce_ok(&mut client, "t", 0, &["after"]).await, end);
    node.stop().await;
}

#[tokio::test]
async fn a_move_under_way_is_shown_turns_round_and_goes_on_after_a_restart() {
    let (node, mut client, here, there) = with_two("t").await;
    let big = "v".repeat(3000);
    for _ in 0..30 {
        produce_ok(&mut client, "t", 0, &[big.as_str()]).await;
    }
    limit(&mut client, Some("1")).await;
    alter_ok(&mut client, "t", &there).await;
    let under_way = loop {
        let shown = shown(&mut client, "t").await;
        if shown.iter().any(|shown| shown.is_future && shown.size > 0) {
            break shown;
        }
    };
    let [log, copy] = &under_way[..] else { panic!("a log and a copy: {under_way:?}") };
    assert_eq!((&log.dir, log.is_future, log.lag), (&here, false, 0));
    assert_eq!((&copy.dir, copy.is_future), (&there, true));
    assert!(copy.lag > 0 && copy.lag < 30 && copy.size < log.size, "{under_way:?}");
    assert_eq!(directories(&there, "t"), ["t-0-future"]);
    // Again: it is on its way.
    alter_ok(&mut client, "t", &there).await;
    assert_eq!(shown(&mut client, "t").await.len(), 2);

    // Back to where it is: the copy goes.
    alter_ok(&mut client, "t", &here).await;
    assert_eq!(shown(&mut client, "t").await.len(), 1);
    assert_eq!(directories(&there, "t"), ["t-0-delete"]);

    alter_ok(&mut client, "t", &there).await;
    let node = node.restart().await;
    let mut client = node.connect().await;
    let again = shown(&mut client, "t").await;
    assert!(again.len() == 2 && again[1].is_future && again[1].dir == there, "{again:?}");
    assert_eq!(produce_ok(&mut client, "t", 0, &[big.as_str()]).await, 30);
    limit(&mut client, None).await;
    until_in(&mut client, "t", &there).await;
    assert_eq!(values(&mut client, "t", 31).await, vec![big; 31]);
    node.stop().await;
}

#[tokio::test]
async fn a_topic_that_is_deleted_takes_its_move_along() {
    let (node, mut client, here, there) = with_two("t").await;
    produce_ok(&mut client, "t", 0, &["v".repeat(3000).as_str(), "w"]).await;
    limit(&mut client, Some("0")).await;
    alter_ok(&mut client, "t", &there).await;
    delete_topic(&mut client, "t").await;
    while directories(&here, "t") != ["t-0-delete"] || directories(&there, "t") != ["t-0-delete"] {
        shown(&mut client, "t").await;
    }
    create_topic(&mut client, "t", 1, &[]).await;
    assert_eq!(produce_ok(&mut client, "t", 0, &["new"]).await, 0);
    node.stop().await;
}

#[tokio::test]
async fn what_cannot_be_moved_is_refused() {
    let (node, mut client, here, there) = with_two("t").await;
    for (topic, partition, dir, expected) in [
        ("t", 0, Path::new("/no/such/dir"), ErrorCode::LogDirNotFound),
        ("t", 0, Path::new("relative"), ErrorCode::LogDirNotFound),
        ("t", 9, &there, ErrorCode::UnknownTopicOrPartition),
        ("unknown", 0, &there, ErrorCode::UnknownTopicOrPartition),
        (&"t".repeat(249), 0, Path::new("/no/such/dir"), ErrorCode::InvalidTopicException),
        ("t", 0, &here, ErrorCode::None),
    ] {
        assert_code(alter(&mut client, topic, partition, dir).await, expected, topic);
    }
    assert_eq!(shown(&mut client, "t").await.len(), 1);
    let cordon = incremental(BROKER, "1", &[("cordoned.log.dirs", 0, Some(there.to_str().unwrap()))]);
    assert_code(client.call(1, cordon).await.responses[0].error_code, ErrorCode::None, "cordon");
    let code = alter(&mut client, "t", 0, &there).await;
    assert_code(code, ErrorCode::InvalidReplicaAssignment, "cordoned");
    node.stop().await;
}

#[tokio::test]
async fn nothing_begins_to_move_while_a_directory_is_out_of_service() {
    let node = TestNode::with_log_dirs(&["a", "b", "c"]).await;
    let [a, b, c] = ["a", "b", "c"].map(|name| node.dir.path().join(name));
    let mut client = node.connect().await;
    for (topic, dir) in [("here", &a), ("gone", &b)] {
        let code = alter(&mut client, topic, 0, dir).await;
        assert_code(code, ErrorCode::UnknownTopicOrPartition, topic);
        create_topic(&mut client, topic, 1, &[]).await;
        assert_eq!(shown(&mut client, topic).await[0].dir, *dir);
    }
    let node =
        node.restart_after(|dir| std::fs::write(dir.join("b/meta.properties"), "version=9\n").unwrap());
    let node = node.await;
    let mut client = node.connect().await;
    for (topic, dir, expected) in [
        ("here", &b, ErrorCode::KafkaStorageError),
        ("here", &c, ErrorCode::KafkaStorageError),
        ("here", &a, ErrorCode::None),
        ("gone", &c, ErrorCode::KafkaStorageError),
        ("unknown", &b, ErrorCode::KafkaStorageError),
        ("unknown", &c, ErrorCode::UnknownTopicOrPartition),
    ] {
        let what = format!("{topic} to {}", dir.display());
        assert_code(alter(&mut client, topic, 0, dir).await, expected, &what);
    }
    let [here] = &shown(&mut client, "here").await[..] else { panic!("one log") };
    assert_eq!((&here.dir, here.is_future), (&a, false));
    assert_eq!(shown(&mut client, "gone").await, []);
    node.stop().await;
}

#[tokio::test]
async fn a_partition_that_comes_later_is_made_where_it_is_wanted() {
    let (node, mut client, _, there) = with_two("t").await;
    for topic in ["u", "v", "w"] {
        let code = alter(&mut client, topic, 0, &there).await;
        assert_code(code, ErrorCode::UnknownTopicOrPartition, topic);
        let id = create_topic(&mut client, topic, 1, &[]).await;
        assert_ne!(id, Uuid::nil());
        assert_eq!(shown(&mut client, topic).await[0].dir, there, "{topic}");
    }
    node.stop().await;
}
