//! Transactions over several brokers: partitions and coordinators of different brokers find each other, and markers are written
//! wherever their partitions are led, also after the coordinator has changed.

use bytes::Bytes;
use floodmark::types::{ErrorCode, ProducerEpoch, ProducerId, TimestampMs};
use floodmark::wire::batch_builder::BatchBuilder;
use floodmark::wire::messages::*;

use super::client::Client;
use super::harness::{Cluster, until};
use super::requests::{by_name, fetch_request, only_partition, produce_request, text, topic_name};

const PARTITIONS: std::ops::Range<i32> = 0..3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Producer {
    id: i64,
    epoch: i16,
}

fn transactional_id() -> TransactionalId {
    TransactionalId(text("x"))
}

/// The broker that coordinates, as `asked` knows it.
async fn coordinator(cluster: &Cluster, asked: i32) -> i32 {
    let mut client = cluster.connect(asked).await;
    let request = FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec![text("x")]);
    loop {
        let found = client.call(6, request.clone()).await.coordinators.remove(0);
        if found.error_code == 0 {
            return found.node_id.0;
        }
    }
}

async fn init(client: &mut Client) -> Producer {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(transactional_id()))
        .with_transaction_timeout_ms(60_000);
    loop {
        let given = client.call(5, request.clone()).await;
        if given.error_code == 0 {
            return Producer { id: given.producer_id.0, epoch: given.producer_epoch };
        }
    }
}

fn records(producer: Producer, value: &str) -> Bytes {
    let (id, epoch) = (ProducerId(producer.id), ProducerEpoch(producer.epoch));
    let mut builder = BatchBuilder::new().producer(id, epoch, 0).transactional(true);
    builder.push(TimestampMs(1_000), None, Some(value.as_bytes()), &[]);
    builder.build().unwrap()
}

/// Writes one record to every partition, each at its leader.
async fn write(cluster: &Cluster, producer: Producer, value: &str) {
    for partition in PARTITIONS {
        let mut client = cluster.connect(cluster.leader("t", partition).await).await;
        let request = produce_request(12, by_name("t"), -1, &[(partition, records(producer, value))])
            .with_transactional_id(Some(transactional_id()));
        // The markers of the transaction before may be on their way.
        while client.call(12, request.clone()).await.responses[0].partition_responses[0].error_code != 0 {}
    }
}

async fn end(client: &mut Client, producer: Producer, commit: bool) -> Producer {
    let request = EndTxnRequest::default()
        .with_transactional_id(transactional_id())
        .with_producer_id(producer.id.into())
        .with_producer_epoch(producer.epoch)
        .with_committed(commit);
    loop {
        let ended = client.call(5, request.clone()).await;
        match ErrorCode::from_code(ended.error_code).unwrap() {
            ErrorCode::None => return Producer { id: ended.producer_id.0, epoch: ended.producer_epoch },
            ErrorCode::NotCoordinator | ErrorCode::CoordinatorLoadInProgress => {}
            ErrorCode::CoordinatorNotAvailable => {}
            error => panic!("{error}"),
        }
    }
}

/// Waits until readers of committed records come to the end of every partition; gives how many transactions they are told
/// to leave out.
async fn until_stable(cluster: &Cluster, end: i64) -> usize {
    let mut aborted = 0;
    for partition in PARTITIONS {
        until(async || {
            let mut client = cluster.connect(cluster.leader("t", partition).await).await;
            let request = fetch_request(12, by_name("t"), &[(partition, 0)]).with_isolation_level(1);
            let read = only_partition(client.call(12, request).await);
            aborted +=
                read.aborted_transactions.iter().flatten().filter(|_| read.last_stable_offset == end).count();
            read.last_stable_offset == end
        })
        .await;
    }
    aborted
}

/// Whether a broker, leader or not, remembers the producer in every partition, with nothing open.
async fn knows_producer(cluster: &Cluster, broker: i32, producer: Producer) -> bool {
    let topic = describe_producers_request::TopicRequest::default()
        .with_name(topic_name("t"))
        .with_partition_indexes(PARTITIONS.collect());
    let request = DescribeProducersRequest::default().with_topics(vec![topic]);
    let described = cluster.connect(broker).await.call(0, request).await;
    described.topics[0].partitions.iter().all(|partition| {
        assert_eq!(partition.error_code, 0);
        partition.active_producers.iter().any(|known| {
            let is_it =
                known.producer_id.0 == producer.id && known.producer_epoch == i32::from(producer.epoch);
            is_it && known.current_txn_start_offset == -1
        })
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn markers_reach_every_broker_and_outlive_their_coordinator() {
    let settings = [("transaction.state.log.num.partitions", "1"), ("min.insync.replicas", "1")];
    let mut cluster = Cluster::start(3, &settings).await;
    cluster.create_topic(1, "t", 3, &[]).await;
    cluster.until_in_sync("t").await;
    let first = coordinator(&cluster, 1).await;
    let mut client = cluster.connect(first).await;
    let producer = init(&mut client).await;
    write(&cluster, producer, "committed").await;
    let producer = end(&mut client, producer, true).await;
    assert_eq!(until_stable(&cluster, 2).await, 0);
    for id in cluster.running() {
        until(async || knows_producer(&cluster, id, producer).await).await;
    }

    // The coordinator goes while a transaction is open; another one ends it.
    write(&cluster, producer, "aborted").await;
    drop(client);
    cluster.until_in_sync("__transaction_state").await;
    cluster.stop_node(first).await;
    let other = cluster.running()[0];
    let mut second = first;
    while second == first {
        second = coordinator(&cluster, other).await;
    }
    let mut client = cluster.connect(second).await;
    end(&mut client, producer, false).await;
    assert_eq!(until_stable(&cluster, 4).await, 3);
    cluster.stop().await;
}
