//! Nodes without a vote that have gone are let go: when they have been away for long, and not before.

use std::time::{Duration, Instant};

use super::rig::{Cluster, Node};
use crate::metadata::{Decision, Record};
use crate::types::{DirectoryId, NodeId, TimestampMs};
use crate::wire::messages::metadata::RegisterBrokerRecord;
use crate::wire::messages::raft::Sender;
use crate::wire::messages::{ObserverPollRequest, StrBytes};

/// How long nodes that are not registered are kept, and those that are.
const OTHERS: Duration = Duration::from_secs(10);
const REGISTERED: Duration = Duration::from_secs(300);
const MOMENT: Duration = Duration::from_millis(1);

/// A node asks for what there is, for the last time.
async fn poll(node: &Node, id: i32) {
    let sender = Sender {
        cluster_id: StrBytes::from_static_str("test"),
        node_id: id,
        directory_id: DirectoryId::from_u128(4_711),
        to: -1,
        ..Sender::default()
    };
    let service = node.controller.service();
    let answer = service.observer_poll(ObserverPollRequest { sender, ..Default::default() }).await;
    assert_eq!(answer.refusal, 0);
}

fn learners(node: &Node) -> Vec<i32> {
    node.handle.quorum_status(TimestampMs(0)).observers.iter().map(|observer| observer.node.0).collect()
}

async fn until_learners(node: &Node, expected: &[i32]) {
    while learners(node) != expected {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn learners_are_let_go_when_they_have_been_away_for_long() {
    let cluster = Cluster::start(&[1]).await;
    let node = &cluster.nodes[&1];
    let service = node.controller.service();
    let quorum = &service.parts().learners;
    let registered = RegisterBrokerRecord { broker_id: 8, ..RegisterBrokerRecord::default() };
    node.handle.run(move |_| Decision::new(vec![Record::from(registered.clone())], ())).await.unwrap();

    let before = Instant::now();
    poll(node, 8).await;
    poll(node, 9).await;
    until_learners(node, &[8, 9]).await;
    let after = Instant::now();
    quorum.remove_gone(before, before + OTHERS).await;
    assert_eq!(learners(node), [8, 9]);
    quorum.remove_gone(before, after + OTHERS + MOMENT).await;
    until_learners(node, &[8]).await;
    // It has come back after all.
    poll(node, 9).await;
    until_learners(node, &[8, 9]).await;
    let again = Instant::now();
    quorum.remove_gone(before, again + OTHERS + MOMENT).await;
    until_learners(node, &[8]).await;
    quorum.remove_gone(before, before + REGISTERED).await;
    assert_eq!(learners(node), [8]);
    quorum.remove_gone(before, after + REGISTERED + MOMENT).await;
    until_learners(node, &[]).await;
    node.add_topic(0).await;
    cluster.stop().await;
}

/// Whom a new leader has not heard of yet may be about to come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_gives_those_their_time_that_it_has_not_heard() {
    let cluster = Cluster::start(&[1]).await;
    let node = &cluster.nodes[&1];
    let service = node.controller.service();
    let parts = service.parts();
    poll(node, 9).await;
    until_learners(node, &[9]).await;
    // As when it leads anew.
    parts.observers.clear();
    assert_eq!(parts.observers.last_poll(NodeId(9)), None);
    let since = Instant::now();
    parts.learners.remove_gone(since, since + OTHERS).await;
    assert_eq!(learners(node), [9]);
    parts.learners.remove_gone(since, since + OTHERS + MOMENT).await;
    until_learners(node, &[]).await;
    cluster.stop().await;
}
