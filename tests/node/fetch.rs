//! Fetch: what wakes a fetch that waits, the limits on an answer, sessions, epochs and the ends of the log.

use std::future::Future;
use std::time::Duration;

use floodmark::types::{ErrorCode, Uuid};
use floodmark::wire::batch::{Batches, PartialTail};
use floodmark::wire::messages::fetch_request::{FetchTopic, ForgottenTopic};
use floodmark::wire::messages::fetch_response::{FetchResponse, PartitionData};
use floodmark::wire::messages::{BrokerId, FetchRequest, StrBytes};

use super::admin::{delete_records_request, delete_topic};
use super::client::Client;
use super::harness::TestNode;
use super::requests::{
    Named, assert_code, batch, by_name, create_topic, fetch, fetch_request, only_partition, produce_ok,
    topic_name,
};
use super::versions::metadata_request;

/// A fetch that would wait for ever.
fn waiting(partitions: &[(i32, i64)], min_bytes: i32) -> FetchRequest {
    fetch_request(12, by_name("t"), partitions).with_max_wait_ms(i32::MAX).with_min_bytes(min_bytes)
}

/// The answer to a fetch that was sent, and that is still waiting when this begins: another connection's request has been
/// answered in the meantime.
async fn still_waits(client: &Client, other: &mut Client) {
    for _ in 0..3 {
        other.call(12, metadata_request(12, &[])).await;
    }
    assert!(client.stream.try_read(&mut [0]).is_err(), "nothing is there to read");
}

/// Fails a test that would hang.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), work).await.unwrap()
}

fn records_in(data: &PartitionData) -> i32 {
    let bytes = data.records.clone().unwrap().into_bytes();
    Batches::new(&bytes, PartialTail::Refuse).map(|batch| batch.unwrap().header.record_count).sum()
}

#[tokio::test]
async fn a_fetch_waits_for_its_bytes_over_all_its_partitions() {
    let (node, mut producer) = TestNode::with_topic(&[], "t", 2).await;
    let mut consumer = node.connect().await;
    let size = i32::try_from(batch(&["a"]).len()).unwrap();
    consumer.send(12, &waiting(&[(0, 0), (1, 0)], 2 * size)).await;
    produce_ok(&mut producer, "t", 0, &["a"]).await;
    still_waits(&consumer, &mut producer).await;
    produce_ok(&mut producer, "t", 1, &["b"]).await;
    let read: FetchResponse = soon(consumer.receive()).await;
    let counts: Vec<_> = read.responses[0].partitions.iter().map(records_in).collect();
    assert_eq!(counts, [1, 1]);

    // What is there when the fetch comes counts too, also for a reader of committed records.
    consumer.send(12, &waiting(&[(0, 0), (1, 1)], 2 * size).with_isolation_level(1)).await;
    still_waits(&consumer, &mut producer).await;
    produce_ok(&mut producer, "t", 1, &["c"]).await;
    soon(consumer.receive::<FetchResponse>()).await;
    node.stop().await;
}

#[tokio::test]
async fn a_fetch_that_waits_ends_with_its_time_and_with_the_topic() {
    let (node, mut other) = TestNode::with_topic(&[], "t", 1).await;
    let mut consumer = node.connect().await;
    let brief = waiting(&[(0, 0)], 1).with_max_wait_ms(20);
    let read = only_partition(soon(consumer.call(12, brief)).await);
    assert_eq!((read.error_code, records_in(&read)), (0, 0));

    consumer.send(12, &waiting(&[(0, 0)], 1)).await;
    still_waits(&consumer, &mut other).await;
    delete_topic(&mut other, "t").await;
    let read = only_partition(soon(consumer.receive()).await);
    assert_code(read.error_code, ErrorCode::UnknownTopicOrPartition, "deleted while waiting");

    // A fetch of nothing has nothing to wait for.
    let mut nothing = waiting(&[], 1);
    nothing.topics.clear();
    soon(consumer.call(12, nothing)).await;
    node.stop().await;
}

#[tokio::test]
async fn records_that_were_deleted_are_out_of_range() {
    let (node, mut other) = TestNode::with_topic(&[], "t", 1).await;
    produce_ok(&mut other, "t", 0, &["a", "b"]).await;
    let read = other.call(2, delete_records_request("t", -1)).await;
    assert_eq!(read.topics[0].partitions[0].low_watermark, 2);
    let read = fetch(&mut other, "t", 0, 1).await;
    assert_code(read.error_code, ErrorCode::OffsetOutOfRange, "below the log start");
    let read = fetch(&mut other, "t", 0, 2).await;
    assert_eq!((read.error_code, read.log_start_offset, read.high_watermark), (0, 2, 2));
    // An epoch that the reader remembers does not hide that its records are gone.
    let mut request = fetch_request(12, by_name("t"), &[(0, 1)]);
    request.topics[0].partitions[0].last_fetched_epoch = 0;
    let read = only_partition(other.call(12, request).await);
    assert_code(read.error_code, ErrorCode::OffsetOutOfRange, "below the log start");
    node.stop().await;
}

#[tokio::test]
async fn limits_hold_but_the_first_batch_comes_whole() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 2).await;
    let large = "x".repeat(1_000);
    for partition in 0..2 {
        for _ in 0..3 {
            produce_ok(&mut client, "t", partition, &[&large]).await;
        }
    }
    let size = i32::try_from(batch(&[&large]).len()).unwrap();
    let counts = async |client: &mut Client, max_bytes, partition_max_bytes| {
        let mut request = fetch_request(12, by_name("t"), &[(0, 0), (1, 0)]).with_max_bytes(max_bytes);
        for partition in &mut request.topics[0].partitions {
            partition.partition_max_bytes = partition_max_bytes;
        }
        let response = client.call(12, request).await;
        response.responses[0].partitions.iter().map(records_in).collect::<Vec<_>>()
    };
    assert_eq!(counts(&mut client, 1, 1).await, [1, 0], "the first batch, whatever the limits");
    assert_eq!(counts(&mut client, 0, 0).await, [1, 0]);
    assert_eq!(counts(&mut client, size * 4, size * 2).await, [2, 2]);
    assert_eq!(counts(&mut client, size * 4, i32::MAX).await, [3, 1]);
    assert_eq!(counts(&mut client, i32::MAX, size * 2 - 1).await, [1, 1]);
    node.stop().await;

    // The broker's own limit is below the client's.
    let (node, mut client) = TestNode::with_topic(&[("fetch.max.bytes", "1024")], "t", 2).await;
    for partition in 0..2 {
        produce_ok(&mut client, "t", partition, &[&large]).await;
    }
    assert_eq!(counts(&mut client, i32::MAX, i32::MAX).await, [1, 0]);
    node.stop().await;
}

#[tokio::test]
async fn records_are_read_back_from_disk_after_a_restart() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    for value in ["a", "b", "c"] {
        produce_ok(&mut client, "t", 0, &[value, value]).await;
    }
    drop(client);
    let node = node.restart().await;
    let mut client = node.connect().await;
    let read = fetch(&mut client, "t", 0, 3).await;
    assert_eq!((read.high_watermark, records_in(&read)), (6, 4), "from the batch that has the offset");
    node.stop().await;
}

#[tokio::test]
async fn leader_epochs_are_compared() {
    let (node, client) = TestNode::with_topic(&[], "t", 1).await;
    drop(client);
    // Each start of the node begins a new epoch.
    let node = node.restart().await;
    let mut client = node.connect().await;
    produce_ok(&mut client, "t", 0, &["a"]).await;
    let metadata = client.call(12, metadata_request(12, &["t"])).await;
    let epoch = metadata.topics[0].partitions[0].leader_epoch;
    for (current, expected) in [
        (epoch, ErrorCode::None),
        (-1, ErrorCode::None),
        (epoch - 1, if epoch > 0 { ErrorCode::FencedLeaderEpoch } else { ErrorCode::None }),
        (epoch + 1, ErrorCode::UnknownLeaderEpoch),
    ] {
        let mut request = fetch_request(12, by_name("t"), &[(0, 0)]);
        request.topics[0].partitions[0].current_leader_epoch = current;
        let read = only_partition(client.call(12, request).await);
        assert_code(read.error_code, expected, "current leader epoch");
    }
    // A reader whose last epoch is newer than any here has gone another way.
    let mut request = fetch_request(12, by_name("t"), &[(0, 1)]);
    request.topics[0].partitions[0].last_fetched_epoch = epoch + 5;
    let read = only_partition(client.call(12, request).await);
    assert_code(read.error_code, ErrorCode::OffsetOutOfRange, "an epoch of the future");
    let mut request = fetch_request(12, by_name("t"), &[(0, 9)]);
    request.topics[0].partitions[0].last_fetched_epoch = epoch;
    let read = only_partition(client.call(12, request).await);
    assert_eq!((read.diverging_epoch.epoch, read.diverging_epoch.end_offset), (epoch, 1));
    node.stop().await;
}

/// The next request of a session.
fn of_session(id: i32, epoch: i32) -> FetchRequest {
    let mut request = fetch_request(12, by_name("t"), &[]).with_session_id(id).with_session_epoch(epoch);
    request.topics.clear();
    request
}

fn told(response: &FetchResponse) -> Vec<i32> {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|partition| partition.partition_index).collect()
}

/// A follower would read beyond what consumers may see.
#[tokio::test]
async fn only_replicas_fetch_as_followers() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    for replica in [1, 5] {
        let mut request = fetch_request(12, by_name("t"), &[(0, 0)]).with_replica_id(BrokerId(replica));
        let read = only_partition(client.call(12, request.clone()).await);
        assert_code(read.error_code, ErrorCode::NotLeaderOrFollower, "no epoch");
        request.topics[0].partitions[0].current_leader_epoch = 0;
        let read = only_partition(client.call(12, request).await);
        assert_code(read.error_code, ErrorCode::UnknownLeaderEpoch, "the current epoch");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_session_remembers_what_was_asked_and_told() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 3).await;
    let opening = fetch_request(12, by_name("t"), &[(0, 0), (1, 0), (2, 0)]).with_session_epoch(0);
    let first = client.call(12, opening).await;
    let id = first.session_id;
    assert!(id > 0);
    assert_eq!(told(&first), [0, 1, 2]);
    assert_eq!(told(&client.call(12, of_session(id, 1)).await), [0; 0], "nothing is new");

    produce_ok(&mut client, "t", 1, &["a"]).await;
    assert_eq!(told(&client.call(12, of_session(id, 2)).await), [1]);
    // It is told again until the client moves on.
    let mut moved = fetch_request(12, by_name("t"), &[(1, 1)]);
    moved.session_id = id;
    moved.session_epoch = 3;
    assert_eq!(told(&client.call(12, moved).await), [0; 0]);

    // A wait within a session wakes too.
    let mut consumer = node.connect().await;
    consumer.send(12, &of_session(id, 4).with_max_wait_ms(i32::MAX).with_min_bytes(1)).await;
    still_waits(&consumer, &mut client).await;
    produce_ok(&mut client, "t", 2, &["b"]).await;
    assert_eq!(told(&soon(consumer.receive()).await), [2]);

    // Errors of a session are errors of the whole answer.
    for (session, epoch, expected) in [
        (id, 9, ErrorCode::InvalidFetchSessionEpoch),
        (id.wrapping_add(1).max(1), 1, ErrorCode::FetchSessionIdNotFound),
    ] {
        let refused = client.call(12, of_session(session, epoch)).await;
        assert_code(refused.error_code, expected, "session");
        assert!(refused.responses.is_empty());
    }
    let mut by_id = of_session(id, 5);
    by_id.topics = vec![FetchTopic::default().with_topic_id(Uuid::from_u128(7))];
    assert_code(client.call(13, by_id).await.error_code, ErrorCode::FetchSessionTopicIdError, "ids");

    let forget = ForgottenTopic::default().with_topic(topic_name("t")).with_partitions(vec![0, 2]);
    let forgetful = of_session(id, 5).with_forgotten_topics_data(vec![forget]);
    assert_eq!(told(&client.call(12, forgetful).await), [0; 0]);
    let closed = client.call(12, of_session(id, -1)).await;
    assert_eq!((closed.error_code, closed.session_id), (0, 0));
    let gone = client.call(12, of_session(id, 6)).await;
    assert_code(gone.error_code, ErrorCode::FetchSessionIdNotFound, "closed");
    node.stop().await;
}

#[tokio::test]
async fn a_session_by_ids_survives_the_end_of_a_topic_and_is_not_taken_to_its_namesake() {
    let node = TestNode::start(&[]).await;
    let mut client = node.connect().await;
    let id = create_topic(&mut client, "t", 1, &[]).await;
    let kept = create_topic(&mut client, "kept", 1, &[]).await;
    let mut opening = fetch_request(13, Named { name: "t", id }, &[(0, 0)]).with_session_epoch(0);
    opening.topics.push(fetch_request(13, Named { name: "kept", id: kept }, &[(0, 0)]).topics.remove(0));
    let session = client.call(13, opening).await.session_id;
    delete_topic(&mut client, "t").await;
    for (epoch, expected) in [(1, ErrorCode::UnknownTopicOrPartition), (2, ErrorCode::InconsistentTopicId)] {
        let after = client.call(13, of_session(session, epoch)).await;
        let codes: Vec<_> =
            after.responses.iter().map(|topic| (topic.topic_id, topic.partitions[0].error_code)).collect();
        assert_eq!(codes, [(id, expected.code())]);
        assert_eq!(after.responses[0].topic, StrBytes::default());
        // Without a session nothing is known of what an id once was.
        let unbound = fetch_request(13, Named { name: "t", id }, &[(0, 0)]);
        let refused = only_partition(client.call(13, unbound).await);
        assert_code(refused.error_code, ErrorCode::UnknownTopicId, "no session");
        if epoch == 1 {
            create_topic(&mut client, "t", 1, &[]).await;
        }
    }
    node.stop().await;
}
