//! What becomes of old records while a node runs: retention and compaction, by settings that change under way.

use std::collections::BTreeMap;

use floodmark::types::{ErrorCode, TimestampMs};
use floodmark::wire::batch::{Batches, PartialTail};
use floodmark::wire::batch_builder::BatchBuilder;
use floodmark::wire::records::Records;

use super::admin::incremental;
use super::client::Client;
use super::harness::TestNode;
use super::requests::{assert_code, create_topic, fetch, list_offsets_request, produce};

const EARLIEST: i64 = -2;
const TOPIC: i8 = 2;

async fn append(client: &mut Client, key: &str, value: Option<&str>) -> i64 {
    let mut builder = BatchBuilder::new();
    builder.push(TimestampMs(1000), Some(key.as_bytes()), value.map(str::as_bytes), &[]);
    let produced = produce(client, "t", 0, builder.build().unwrap()).await;
    assert_code(produced.error_code, ErrorCode::None, key);
    produced.base_offset
}

async fn earliest(client: &mut Client) -> i64 {
    let mut response = client.call(10, list_offsets_request("t", 0, EARLIEST)).await;
    response.topics.remove(0).partitions.remove(0).offset
}

async fn set(client: &mut Client, key: &str, value: &str) {
    let request = incremental(TOPIC, "t", &[(key, 0, Some(value))]);
    assert_code(client.call(1, request).await.responses[0].error_code, ErrorCode::None, key);
}

/// Everything in the partition: keys and values by offset.
async fn contents(client: &mut Client, end: i64) -> BTreeMap<i64, (String, Option<String>)> {
    let (mut all, mut from) = (BTreeMap::new(), earliest(client).await);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    while from < end {
        let bytes = fetch(client, "t", 0, from).await.records.unwrap().into_bytes();
        for batch in Batches::new(&bytes, PartialTail::Refuse).map(Result::unwrap) {
            batch.check_crc().unwrap();
            for record in Records::new(batch.body(), batch.header.record_count).map(Result::unwrap) {
                let offset = batch.header.base_offset.0 + i64::from(record.offset_delta);
                all.insert(offset, (text(record.key.unwrap()), record.value.map(text)));
            }
            from = batch.header.next_offset().0;
        }
    }
    all
}

#[tokio::test]
async fn retention_deletes_what_the_topic_keeps_no_longer() {
    let node =
        TestNode::start(&[("log.initial.task.delay.ms", "0"), ("log.retention.check.interval.ms", "20")])
            .await;
    let mut client = node.connect().await;
    let configs = [("retention.ms", "-1"), ("internal.segment.bytes", "200")];
    create_topic(&mut client, "t", 1, &configs).await;
    for _ in 0..20 {
        append(&mut client, "key", Some("a value of some size")).await;
    }
    assert_eq!(earliest(&mut client).await, 0);
    set(&mut client, "retention.bytes", "1000").await;
    while earliest(&mut client).await == 0 {}
    assert!(!contents(&mut client, 20).await.is_empty());
    // The records are from long ago: all of them go, also those in the active segment.
    set(&mut client, "retention.ms", "3600000").await;
    while earliest(&mut client).await < 20 {}
    assert_eq!(append(&mut client, "key", Some("later")).await, 20);
    let node = node.restart().await;
    let mut client = node.connect().await;
    assert!(earliest(&mut client).await >= 20);
    node.stop().await;
}

#[tokio::test]
async fn a_compacted_topic_keeps_the_last_value_of_each_key() {
    let node = TestNode::start(&[("log.cleaner.backoff.ms", "20")]).await;
    let mut client = node.connect().await;
    let configs = [
        ("internal.segment.bytes", "500"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("delete.retention.ms", "0"),
        ("retention.ms", "-1"),
    ];
    create_topic(&mut client, "t", 1, &configs).await;
    let mut last = BTreeMap::new();
    for index in 0..60i64 {
        let (key, value) = (format!("key{}", index % 3), format!("value {index}"));
        assert_eq!(append(&mut client, &key, Some(&value)).await, index);
        last.insert(key, Some(value));
    }
    append(&mut client, "key0", None).await;
    last.insert("key0".to_owned(), None);
    assert_eq!(contents(&mut client, 61).await.len(), 61);
    // Compaction begins with the policy.
    set(&mut client, "cleanup.policy", "compact").await;
    let compacted = loop {
        let all = contents(&mut client, 61).await;
        if all.len() <= 12 {
            break all;
        }
    };
    let values = |all: &BTreeMap<i64, (String, Option<String>)>| {
        let mut values: BTreeMap<String, Option<String>> =
            last.keys().map(|key| (key.clone(), None)).collect();
        values.extend(all.values().cloned());
        values
    };
    assert_eq!(values(&compacted), last);
    for (offset, (_, value)) in &compacted {
        assert!(value.as_ref().is_none_or(|value| *value == format!("value {offset}")));
    }
    // The tombstone goes as well, once more has been written and it is not in the active segment any more.
    let mut end = 61;
    let kept = loop {
        append(&mut client, "key1", Some(&format!("value {end}"))).await;
        last.insert("key1".to_owned(), Some(format!("value {end}")));
        end += 1;
        let all = contents(&mut client, end).await;
        if !all.contains_key(&60) {
            break all;
        }
    };
    assert!(kept.values().all(|(key, _)| key != "key0"));
    let node = node
        .restart_after(|dir| {
            let said = std::fs::read_to_string(dir.join("cleaner-offset-checkpoint")).unwrap();
            assert!(said.lines().nth(2).is_some_and(|line| line.starts_with("t 0 ")), "{said}");
        })
        .await;
    let mut client = node.connect().await;
    let mut values: BTreeMap<String, Option<String>> = [("key0".to_owned(), None)].into();
    values.extend(contents(&mut client, end).await.into_values());
    assert_eq!(values, last);
    node.stop().await;
}
