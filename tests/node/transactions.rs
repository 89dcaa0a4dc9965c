//! Transactions of both generations over sockets: from the coordinator to what readers of committed records see, what bad
//! input is told, and what is left after a restart.

use bytes::Bytes;
use floodmark::broker::clock;
use floodmark::types::{self, ErrorCode};
use floodmark::wire::batch_builder::BatchBuilder;
use floodmark::wire::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use floodmark::wire::messages::describe_transactions_response::TransactionState;
use floodmark::wire::messages::fetch_response::PartitionData;
use floodmark::wire::messages::list_transactions_response::ListTransactionsResponse;
use floodmark::wire::messages::offset_fetch::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use floodmark::wire::messages::produce_response::PartitionProduceResponse;
use floodmark::wire::messages::txn_offset_commit::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use floodmark::wire::messages::*;

use super::client::Client;
use super::harness::TestNode;
use super::requests::{
    assert_code, by_name, create_topic, fetch_request, only_partition, produce_request, text, topic_name,
};

const SETTINGS: &[(&str, &str)] = &[
    ("transaction.state.log.num.partitions", "2"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    ("offsets.topic.num.partitions", "2"),
    ("offsets.topic.replication.factor", "1"),
];

/// A producer with a transactional id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Producer {
    id: i64,
    epoch: i16,
}

fn transactional_id(id: &str) -> TransactionalId {
    TransactionalId(text(id))
}

async fn node_with_transactions(settings: &[(&str, &str)]) -> (TestNode, Client) {
    let node = TestNode::start(&[SETTINGS, settings].concat()).await;
    let mut client = node.connect().await;
    create_topic(&mut client, "t", 2, &[]).await;
    serving(&mut client).await;
    (node, client)
}

/// Waits until there are coordinators of transactions, and they have read their logs.
async fn serving(client: &mut Client) {
    for id in ["x", "y"] {
        let request =
            FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec![text(id)]);
        while client.call(6, request.clone()).await.coordinators[0].error_code != 0 {}
        while describe(client, id).await.error_code != ErrorCode::TransactionalIdNotFound.code() {}
    }
}

async fn describe(client: &mut Client, id: &str) -> TransactionState {
    let request = DescribeTransactionsRequest::default().with_transactional_ids(vec![transactional_id(id)]);
    client.call(0, request).await.transaction_states.remove(0)
}

fn init_request(id: &str) -> InitProducerIdRequest {
    InitProducerIdRequest::default()
        .with_transactional_id(Some(transactional_id(id)))
        .with_transaction_timeout_ms(60_000)
}

/// Begins with a transactional id, once what was open is aborted.
async fn init(client: &mut Client, id: &str) -> Producer {
    loop {
        let given = client.call(5, init_request(id)).await;
        if given.error_code == 0 {
            return Producer { id: given.producer_id.0, epoch: given.producer_epoch };
        }
        assert_code(given.error_code, ErrorCode::ConcurrentTransactions, id);
    }
}

async fn add(client: &mut Client, id: &str, producer: Producer, partitions: &[i32]) -> ErrorCode {
    let topic =
        AddPartitionsToTxnTopic::default().with_name(topic_name("t")).with_partitions(partitions.to_vec());
    let request = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(transactional_id(id))
        .with_v3_and_below_producer_id(producer.id.into())
        .with_v3_and_below_producer_epoch(producer.epoch)
        .with_v3_and_below_topics(vec![topic]);
    let added = client.call(3, request).await;
    let code = added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code;
    ErrorCode::from_code(code).unwrap()
}

fn records(producer: Producer, sequence: i32, values: &[&str]) -> Bytes {
    let (id, epoch) = (types::ProducerId(producer.id), types::ProducerEpoch(producer.epoch));
    let mut builder = BatchBuilder::new().producer(id, epoch, sequence).transactional(true);
    for value in values {
        builder.push(clock::wall(), None, Some(value.as_bytes()), &[]);
    }
    builder.build().unwrap()
}

/// Writes to the first partition of `t`, in the first generation by version 11, in the second by 12.
async fn write(client: &mut Client, version: i16, id: &str, records: Bytes) -> PartitionProduceResponse {
    let request = produce_request(version, by_name("t"), -1, &[(0, records)])
        .with_transactional_id(Some(transactional_id(id)));
    client.call(version, request).await.responses.remove(0).partition_responses.remove(0)
}

/// The same, once the markers of the transaction before are written.
async fn write_ok(client: &mut Client, version: i16, id: &str, records: Bytes) -> i64 {
    loop {
        let written = write(client, version, id, records.clone()).await;
        if written.error_code == 0 {
            return written.base_offset;
        }
        assert_code(written.error_code, ErrorCode::ConcurrentTransactions, id);
    }
}

fn end_request(id: &str, producer: Producer, commit: bool) -> EndTxnRequest {
    EndTxnRequest::default()
        .with_transactional_id(transactional_id(id))
        .with_producer_id(producer.id.into())
        .with_producer_epoch(producer.epoch)
        .with_committed(commit)
}

/// Ends a transaction of the second generation; gives the producer that comes next.
async fn end(client: &mut Client, id: &str, producer: Producer, commit: bool) -> Result<Producer, ErrorCode> {
    let ended = client.call(5, end_request(id, producer, commit)).await;
    match ErrorCode::from_code(ended.error_code).unwrap() {
        ErrorCode::None => Ok(Producer { id: ended.producer_id.0, epoch: ended.producer_epoch }),
        error => Err(error),
    }
}

/// Waits until nothing is open or ending.
async fn at_rest(client: &mut Client, id: &str) -> TransactionState {
    loop {
        let state = describe(client, id).await;
        assert_eq!(state.error_code, 0);
        if state.transaction_state.starts_with("Complete") {
            return state;
        }
    }
}

async fn committed(client: &mut Client) -> PartitionData {
    let request = fetch_request(12, by_name("t"), &[(0, 0)]).with_isolation_level(1);
    only_partition(client.call(12, request).await)
}

fn aborted(data: &PartitionData) -> Vec<(i64, i64)> {
    let list = data.aborted_transactions.iter().flatten();
    list.map(|txn| (txn.producer_id, txn.first_offset)).collect()
}

#[tokio::test]
async fn a_producer_of_the_first_generation_commits_and_aborts() {
    let (node, mut client) = node_with_transactions(&[]).await;
    let producer = init(&mut client, "x").await;
    // Before the partition is added, nothing is written to it.
    let early = write(&mut client, 11, "x", records(producer, 0, &["early"])).await;
    assert_code(early.error_code, ErrorCode::TransactionAbortable, "not added");
    assert_eq!(add(&mut client, "x", producer, &[0, 1]).await, ErrorCode::None);
    assert_eq!(write_ok(&mut client, 11, "x", records(producer, 0, &["a"])).await, 0);
    assert_eq!(write_ok(&mut client, 11, "x", records(producer, 1, &["b"])).await, 1);
    let open = describe(&mut client, "x").await;
    assert_eq!((open.transaction_state.as_str(), open.transaction_timeout_ms), ("Ongoing", 60_000));
    assert_eq!(open.topics[0].partitions, [0, 1]);
    assert_eq!(committed(&mut client).await.last_stable_offset, 0);

    assert_eq!(client.call(4, end_request("x", producer, true)).await.error_code, 0);
    assert_eq!(at_rest(&mut client, "x").await.transaction_state.as_str(), "CompleteCommit");
    assert_eq!(committed(&mut client).await.last_stable_offset, 3);
    // Again means the same transaction, and it cannot have been aborted.
    assert_eq!(client.call(4, end_request("x", producer, true)).await.error_code, 0);
    let other = client.call(4, end_request("x", producer, false)).await;
    assert_code(other.error_code, ErrorCode::InvalidTxnState, "it was committed");

    assert_eq!(add(&mut client, "x", producer, &[0]).await, ErrorCode::None);
    assert_eq!(write_ok(&mut client, 11, "x", records(producer, 2, &["c"])).await, 3);
    assert_eq!(client.call(4, end_request("x", producer, false)).await.error_code, 0);
    assert_eq!(at_rest(&mut client, "x").await.transaction_state.as_str(), "CompleteAbort");
    let read = committed(&mut client).await;
    assert_eq!((read.last_stable_offset, aborted(&read)), (5, vec![(producer.id, 3)]));
    node.stop().await;
}

#[tokio::test]
async fn a_producer_of_the_second_generation_has_an_epoch_for_each_transaction() {
    let (node, mut client) = node_with_transactions(&[]).await;
    let first = init(&mut client, "x").await;
    assert_eq!(write_ok(&mut client, 12, "x", records(first, 0, &["a", "b"])).await, 0);
    let second = end(&mut client, "x", first, true).await.unwrap();
    assert_eq!(second, Producer { epoch: first.epoch + 1, ..first });
    assert_eq!(write_ok(&mut client, 12, "x", records(second, 0, &["c"])).await, 3);
    // What was sent in the transaction before comes too late.
    let late = write(&mut client, 12, "x", records(first, 2, &["late"])).await;
    assert_code(late.error_code, ErrorCode::InvalidProducerEpoch, "late");
    // So does its end, which is not taken for that of the next.
    assert_eq!(end(&mut client, "x", first, true).await, Err(ErrorCode::ProducerFenced));
    let third = end(&mut client, "x", second, false).await.unwrap();
    at_rest(&mut client, "x").await;
    assert_eq!(end(&mut client, "x", second, false).await, Ok(third), "the same request again");
    assert_eq!(end(&mut client, "x", third, true).await, Err(ErrorCode::InvalidTxnState), "nothing is open");
    let read = committed(&mut client).await;
    assert_eq!((read.last_stable_offset, aborted(&read)), (5, vec![(first.id, 3)]));
    node.stop().await;
}

#[tokio::test]
async fn whoever_begins_fences_who_was_there_before() {
    let (node, mut client) = node_with_transactions(&[]).await;
    let old = init(&mut client, "x").await;
    write_ok(&mut client, 12, "x", records(old, 0, &["a"])).await;
    let new = init(&mut client, "x").await;
    assert_eq!((new.id, new.epoch > old.epoch), (old.id, true));
    assert_eq!(end(&mut client, "x", old, true).await, Err(ErrorCode::ProducerFenced));
    for version in [11, 12] {
        let fenced = write(&mut client, version, "x", records(old, 1, &["b"])).await;
        assert_code(fenced.error_code, ErrorCode::InvalidProducerEpoch, "fenced");
    }
    let read = committed(&mut client).await;
    assert_eq!((read.last_stable_offset, aborted(&read)), (2, vec![(old.id, 0)]));
    // What an old client does not know is told in words that it knows.
    let stale = init_request("x").with_producer_id(old.id.into()).with_producer_epoch(old.epoch);
    let refused = client.call(3, stale.clone()).await;
    assert_code(refused.error_code, ErrorCode::InvalidProducerEpoch, "version 3");
    assert_code(client.call(4, stale).await.error_code, ErrorCode::ProducerFenced, "version 4");
    node.stop().await;
}

#[tokio::test]
async fn transactions_outlive_a_restart() {
    let (node, mut client) = node_with_transactions(&[]).await;
    let x = init(&mut client, "x").await;
    write_ok(&mut client, 12, "x", records(x, 0, &["a"])).await;
    drop(client);
    let node = node.restart().await;
    let mut client = node.connect().await;
    while describe(&mut client, "x").await.transaction_state.as_str() != "Ongoing" {}
    write_ok(&mut client, 12, "x", records(x, 1, &["b"])).await;
    end(&mut client, "x", x, true).await.unwrap();
    at_rest(&mut client, "x").await;
    assert_eq!(committed(&mut client).await.last_stable_offset, 3);
    node.stop().await;
}

#[tokio::test]
async fn a_transaction_that_takes_too_long_is_aborted() {
    let quick = [("transaction.abort.timed.out.transaction.cleanup.interval.ms", "20")];
    let (node, mut client) = node_with_transactions(&quick).await;
    let given = client.call(5, init_request("x").with_transaction_timeout_ms(1)).await;
    let producer = Producer { id: given.producer_id.0, epoch: given.producer_epoch };
    write_ok(&mut client, 12, "x", records(producer, 0, &["a"])).await;
    let state = at_rest(&mut client, "x").await;
    assert_eq!(
        (state.transaction_state.as_str(), state.producer_epoch),
        ("CompleteAbort", producer.epoch + 1)
    );
    let read = committed(&mut client).await;
    assert_eq!((read.last_stable_offset, aborted(&read)), (2, vec![(producer.id, 0)]));
    assert_eq!(end(&mut client, "x", producer, true).await, Err(ErrorCode::InvalidTxnState));
    node.stop().await;
}

#[tokio::test]
async fn bad_requests_are_told_and_change_nothing() {
    let (node, mut client) = node_with_transactions(&[]).await;
    let refused = |error: i16, expected| assert_code(error, expected, "refused");
    let producer = init(&mut client, "x").await;
    refused(client.call(5, init_request("")).await.error_code, ErrorCode::InvalidRequest);
    for timeout in [0, -1, 900_001] {
        let request = init_request("y").with_transaction_timeout_ms(timeout);
        refused(client.call(5, request).await.error_code, ErrorCode::InvalidTransactionTimeout);
    }
    assert_eq!(add(&mut client, "y", producer, &[0]).await, ErrorCode::InvalidProducerIdMapping);
    let other = Producer { id: producer.id + 1, ..producer };
    assert_eq!(add(&mut client, "x", other, &[0]).await, ErrorCode::InvalidProducerIdMapping);
    let newer = Producer { epoch: producer.epoch + 1, ..producer };
    assert_eq!(add(&mut client, "x", newer, &[0]).await, ErrorCode::ProducerFenced);
    assert_eq!(add(&mut client, "x", producer, &[9, 0]).await, ErrorCode::UnknownTopicOrPartition);
    assert_eq!(add(&mut client, "x", producer, &[0, 9]).await, ErrorCode::OperationNotAttempted);
    assert_eq!(add(&mut client, "", producer, &[0]).await, ErrorCode::InvalidRequest);
    assert_eq!(end(&mut client, "", producer, true).await, Err(ErrorCode::InvalidRequest));
    assert_eq!(end(&mut client, "x", newer, true).await, Err(ErrorCode::ProducerFenced));
    assert_eq!(end(&mut client, "x", producer, true).await, Err(ErrorCode::InvalidTxnState));
    let empty = client.call(4, end_request("x", producer, false)).await;
    refused(empty.error_code, ErrorCode::InvalidTxnState);
    let unknown = write(&mut client, 12, "y", records(producer, 0, &["a"])).await;
    refused(unknown.error_code, ErrorCode::InvalidProducerIdMapping);
    refused(describe(&mut client, "").await.error_code, ErrorCode::InvalidRequest);
    assert_eq!(describe(&mut client, "x").await.transaction_state.as_str(), "Empty");
    assert_eq!(committed(&mut client).await.high_watermark, 0);
    node.stop().await;
}

#[tokio::test]
async fn brokers_add_and_verify_for_several_transactions_at_once() {
    let (node, mut client) = node_with_transactions(&[]).await;
    let (x, y) = (init(&mut client, "x").await, init(&mut client, "y").await);
    let part = |id: &str, producer: Producer, verify: bool, partitions: &[i32]| {
        let topic = AddPartitionsToTxnTopic::default()
            .with_name(topic_name("t"))
            .with_partitions(partitions.to_vec());
        AddPartitionsToTxnTransaction::default()
            .with_transactional_id(transactional_id(id))
            .with_producer_id(producer.id.into())
            .with_producer_epoch(producer.epoch)
            .with_verify_only(verify)
            .with_topics(vec![topic])
    };
    let transactions = vec![part("x", x, false, &[0]), part("y", y, true, &[1])];
    let request = AddPartitionsToTxnRequest::default().with_transactions(transactions);
    let codes = async |client: &mut Client, request: AddPartitionsToTxnRequest| {
        let response = client.call(5, request).await;
        let results = response.results_by_transaction.iter().flat_map(|result| &result.topic_results);
        let parts = results.flat_map(|topic| &topic.results_by_partition);
        parts.map(|part| ErrorCode::from_code(part.partition_error_code).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(codes(&mut client, request).await, [ErrorCode::None, ErrorCode::TransactionAbortable]);
    let request = AddPartitionsToTxnRequest::default().with_transactions(vec![part("x", x, true, &[0, 1])]);
    assert_eq!(codes(&mut client, request).await, [ErrorCode::None, ErrorCode::TransactionAbortable]);
    node.stop().await;
}

async fn list(
    client: &mut Client,
    request: ListTransactionsRequest,
) -> (Vec<String>, ListTransactionsResponse) {
    let listed = client.call(2, request).await;
    let states = listed.transaction_states.iter();
    let mut ids: Vec<String> = states
        .map(|it| format!("{} {}", it.transactional_id.as_str(), it.transaction_state.as_str()))
        .collect();
    ids.sort();
    (ids, listed)
}

#[tokio::test]
async fn transactions_are_listed_by_what_is_asked_for() {
    let (node, mut client) = node_with_transactions(&[]).await;
    let x = init(&mut client, "x").await;
    init(&mut client, "yes").await;
    assert_eq!(add(&mut client, "x", x, &[0]).await, ErrorCode::None);
    let all = || ListTransactionsRequest::default();
    assert_eq!(list(&mut client, all()).await.0, ["x Ongoing", "yes Empty"]);
    let by_state = all().with_state_filters(vec![text("Ongoing"), text("Nonsense"), text("Dead")]);
    let (ids, listed) = list(&mut client, by_state).await;
    assert_eq!((ids, listed.unknown_state_filters), (vec!["x Ongoing".to_owned()], vec![text("Nonsense")]));
    let by_producer = all().with_producer_id_filters(vec![x.id.into()]);
    assert_eq!(list(&mut client, by_producer).await.0, ["x Ongoing"]);
    let long = all().with_duration_filter(3_600_000).with_state_filters(vec![text("Ongoing")]);
    assert!(list(&mut client, long).await.0.is_empty());
    for (pattern, found) in [("y.*", vec!["yes Empty"]), ("e", vec![]), ("", vec!["x Ongoing", "yes Empty"])]
    {
        let by_pattern = all().with_transactional_id_pattern(Some(text(pattern)));
        assert_eq!(list(&mut client, by_pattern).await.0, found, "{pattern}");
    }
    let malformed = all().with_transactional_id_pattern(Some(text("(")));
    assert_code(list(&mut client, malformed).await.1.error_code, ErrorCode::InvalidRegularExpression, "(");
    node.stop().await;
}

/// The group's offset of the first partition of `t`, and its code.
async fn offset(client: &mut Client, require_stable: bool) -> (i64, ErrorCode) {
    let topic =
        OffsetFetchRequestTopics { name: text("t"), partition_indexes: vec![0], ..Default::default() };
    let group =
        OffsetFetchRequestGroup { group_id: text("g"), topics: Some(vec![topic]), ..Default::default() };
    let request = OffsetFetchRequest { groups: vec![group], require_stable, ..Default::default() };
    let fetched = client.call(9, request).await.groups.remove(0).topics.remove(0).partitions.remove(0);
    (fetched.committed_offset, ErrorCode::from_code(fetched.error_code).unwrap())
}

async fn commit_offset(client: &mut Client, version: i16, producer: Producer, offset: i64) -> ErrorCode {
    let partition = TxnOffsetCommitRequestPartition {
        partition_index: 0,
        committed_offset: offset,
        ..Default::default()
    };
    let topic =
        TxnOffsetCommitRequestTopic { name: text("t"), partitions: vec![partition], ..Default::default() };
    let request = TxnOffsetCommitRequest {
        transactional_id: text("x"),
        group_id: text("g"),
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        topics: vec![topic],
        ..Default::default()
    };
    let committed = client.call(version, request).await.topics.remove(0).partitions.remove(0);
    ErrorCode::from_code(committed.error_code).unwrap()
}

#[tokio::test]
async fn offsets_of_a_transaction_count_when_it_is_committed() {
    let (node, mut client) = node_with_transactions(&[]).await;
    let request = FindCoordinatorRequest::default().with_coordinator_keys(vec![text("g")]);
    while client.call(6, request.clone()).await.coordinators[0].error_code != 0 {}
    let first = init(&mut client, "x").await;
    while commit_offset(&mut client, 5, first, 7).await != ErrorCode::None {}
    assert_eq!(offset(&mut client, false).await, (-1, ErrorCode::None));
    assert_eq!(offset(&mut client, true).await.1, ErrorCode::UnstableOffsetCommit);
    let second = end(&mut client, "x", first, true).await.unwrap();
    at_rest(&mut client, "x").await;
    assert_eq!(offset(&mut client, true).await, (7, ErrorCode::None));

    // The first generation says beforehand which group it is; without that nothing is stored.
    assert_eq!(commit_offset(&mut client, 4, second, 8).await, ErrorCode::TransactionAbortable);
    let group = AddOffsetsToTxnRequest::default()
        .with_transactional_id(transactional_id("x"))
        .with_producer_id(second.id.into())
        .with_producer_epoch(second.epoch)
        .with_group_id(GroupId(text("g")));
    assert_eq!(client.call(4, group).await.error_code, 0);
    assert_eq!(commit_offset(&mut client, 4, second, 8).await, ErrorCode::None);
    end(&mut client, "x", second, false).await.unwrap();
    at_rest(&mut client, "x").await;
    assert_eq!(offset(&mut client, true).await, (7, ErrorCode::None));
    assert_eq!(commit_offset(&mut client, 5, second, 9).await, ErrorCode::InvalidProducerEpoch);
    node.stop().await;
}
