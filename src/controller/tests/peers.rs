//! Who is not taken for a peer: nodes of another cluster, messages for another node, ids that are in use, directories that
//! have changed. Nothing changes here because of them.

use std::task::Poll;

use openraft::CommittedLeaderId;
use openraft::raft::VoteRequest;

use super::rig::{Cluster, Machine};
use crate::controller::raft_types::{LogId, SnapshotMeta, Vote};
use crate::controller::rpc::{self, Refusal};
use crate::types::{DirectoryId, NodeId};
use crate::wire::messages::raft::Sender;
use crate::wire::messages::{
    ConfirmRequest, ObserverPollRequest, ProposeRequest, RaftAppendRequest, RaftSnapshotRequest,
    RaftVoteRequest, StrBytes,
};

fn sender(cluster: &str, node: i32, directory: u128, to: i32) -> Sender {
    Sender {
        cluster_id: StrBytes::from_string(cluster.to_owned()),
        node_id: node,
        directory_id: DirectoryId::from_u128(directory),
        to,
        ..Sender::default()
    }
}

/// The refusals of every kind of message.
async fn refusals(service: &crate::controller::RaftService, sender: &Sender) -> Vec<i8> {
    let sender = || sender.clone();
    vec![
        service.vote(RaftVoteRequest { sender: sender(), ..Default::default() }).await.refusal,
        service.append(RaftAppendRequest { sender: sender(), ..Default::default() }).await.refusal,
        service.snapshot(RaftSnapshotRequest { sender: sender(), ..Default::default() }).await.refusal,
        service.observer_poll(ObserverPollRequest { sender: sender(), ..Default::default() }).await.refusal,
        service.propose(ProposeRequest { sender: sender(), ..Default::default() }).await.refusal,
        service.confirm(ConfirmRequest { sender: sender(), ..Default::default() }).await.refusal,
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_refused_and_change_nothing() {
    let cluster = Cluster::start(&[1]).await;
    let node = &cluster.nodes[&1];
    let service = node.controller.service();
    let before = (node.handle.image(), node.handle.quorum_status(crate::types::TimestampMs(0)));
    for (sender, refusal) in [
        (sender("other", 2, 5, 1), Refusal::OtherCluster),
        (sender("", 2, 5, 1), Refusal::OtherCluster),
        (sender("test", 2, 5, 3), Refusal::OtherNode),
        (sender("test", 1, 5, 1), Refusal::IdInUse),
        (sender("test", 1, 1_001, -1), Refusal::Itself),
        (sender("test", -2, 5, 1), Refusal::Malformed),
    ] {
        assert_eq!(refusals(&service, &sender).await, vec![refusal.code(); 6], "{refusal}");
    }
    let after = (node.handle.image(), node.handle.quorum_status(crate::types::TimestampMs(0)));
    assert_eq!(before, after);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_id_that_polls_is_not_given_to_another_process() {
    let mut cluster = Cluster::start(&[1]).await;
    cluster.add(&Machine::new(9).await).await;
    cluster.nodes[&9].controller.join().await.unwrap();
    let service = cluster.nodes[&1].controller.service();
    let poll = ObserverPollRequest { sender: sender("test", 9, 4_711, -1), ..Default::default() };
    assert_eq!(service.observer_poll(poll).await.refusal, Refusal::IdInUse.code());
    cluster.nodes[&9].add_topic(0).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_for_a_directory_that_was_lost_is_refused() {
    let cluster = Cluster::start(&[1]).await;
    let service = cluster.nodes[&1].controller.service();
    let to_lost = Sender { to_directory: DirectoryId::from_u128(9), ..sender("test", 2, 5, 1) };
    assert_eq!(refusals(&service, &to_lost).await, vec![Refusal::OtherDirectory.code(); 6]);
    let to_known = Sender { to_directory: DirectoryId::from_u128(1_001), ..to_lost };
    let vote = RaftVoteRequest { sender: to_known, ..Default::default() };
    assert_eq!(service.vote(vote).await.refusal, Refusal::Malformed.code(), "it is read at least");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_with_another_directory_is_refused() {
    // The only voter is known with its directory; it asks as if it had lost it.
    let cluster = Cluster::start(&[1]).await;
    let service = cluster.nodes[&1].controller.service();
    let known = cluster.nodes[&1].handle.quorum_status(crate::types::TimestampMs(0)).voters[0].directory_id;
    assert_eq!(known, DirectoryId::from_u128(1_001));
    assert_eq!(
        service
            .vote(RaftVoteRequest { sender: sender("test", 1, 9, -1), ..Default::default() })
            .await
            .refusal,
        Refusal::IdInUse.code()
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voters_id_is_not_given_to_another_process() {
    let cluster = Cluster::start(&[1, 2, 3]).await;
    let leader = cluster.any().leader_other_than(None).await;
    let before = cluster.nodes[&leader].handle.leadership().borrow().term;
    // The leader has spoken to both others; somebody says that he is the leader.
    let follower = cluster.nodes.keys().copied().find(|id| *id != leader).unwrap();
    let service = cluster.nodes[&follower].controller.service();
    let false_leader = sender("test", leader, 4_711, follower);
    assert_eq!(refusals(&service, &false_leader).await, vec![Refusal::IdInUse.code(); 6]);
    assert_eq!(cluster.nodes[&leader].handle.leadership().borrow().term, before);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_lacks_what_is_committed_gets_no_vote() {
    let cluster = Cluster::start(&[1, 2, 3]).await;
    cluster.any().add_topic(0).await;
    for (id, node) in &cluster.nodes {
        let candidate = id % 3 + 1;
        let term = node.handle.leadership().borrow().term;
        let request = VoteRequest { vote: Vote::new(term + 10, 3), last_log_id: None };
        for probe in [true, false] {
            let directory = u128::try_from(1_000 + candidate).unwrap();
            let message = rpc::vote_request(sender("test", candidate, directory, *id), probe, &request);
            let answer = node.controller.service().vote(message).await;
            assert_eq!((answer.refusal, answer.granted), (0, false));
        }
        assert_eq!(node.handle.leadership().borrow().term, term, "nothing has changed");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_make_no_sense_are_refused() {
    let cluster = Cluster::start(&[1]).await;
    let service = cluster.nodes[&1].controller.service();
    let sender = sender("test", 2, 5, 1);
    let malformed = Refusal::Malformed.code();
    assert_eq!(
        service.vote(RaftVoteRequest { sender: sender.clone(), ..Default::default() }).await.refusal,
        malformed
    );
    assert_eq!(
        service.append(RaftAppendRequest { sender: sender.clone(), ..Default::default() }).await.refusal,
        malformed
    );
    assert_eq!(
        service.snapshot(RaftSnapshotRequest { sender, ..Default::default() }).await.refusal,
        malformed
    );
    assert_eq!(cluster.nodes[&1].handle.leader(), Some(NodeId(1)));
    cluster.stop().await;
}

/// Runs until it has waited so many times, and drops it.
async fn polled(work: impl Future, times: u64) {
    let mut work = std::pin::pin!(work);
    let mut left = times;
    std::future::poll_fn(|context| {
        left -= 1;
        if work.as_mut().poll(context).is_ready() || left == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_piece_of_a_snapshot_whose_connection_breaks_does_not_block_the_next() {
    let cluster = Cluster::start(&[1]).await;
    let service = cluster.nodes[&1].controller.service();
    let last_log_id = Some(LogId::new(CommittedLeaderId::new(50, 2), 1_000_000));
    let meta = SnapshotMeta { last_log_id, snapshot_id: "s".to_owned(), ..SnapshotMeta::default() };
    let ask = |size| {
        let vote = Vote::new_committed(50, 2);
        service.snapshot(rpc::snapshot_request(sender("test", 2, 5, 1), vote, &meta, size))
    };
    for polls in 1..=4 {
        // Each is a snapshot of its own, so that each begins.
        polled(ask(polls), polls).await;
        let mut answer = ask(polls).await;
        for _ in 0..100_000 {
            if answer.refusal != Refusal::Unable.code() {
                break;
            }
            tokio::task::yield_now().await;
            answer = ask(polls).await;
        }
        assert_eq!((answer.refusal, answer.installed, answer.next_offset), (0, false, 0), "{polls} polls");
    }
    cluster.stop().await;
}

#[test]
fn refusals_keep_their_numbers() {
    for code in 1..=7 {
        assert_eq!(Refusal::of(code).unwrap_err().code(), code);
    }
    assert_eq!(Refusal::of(0), Ok(()));
    assert_eq!(Refusal::of(99), Err(Refusal::Unable), "one of a newer version");
}
