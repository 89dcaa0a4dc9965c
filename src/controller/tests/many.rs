//! Quorums of several members over sockets: elections, decisions on every node, members that go and come, and nodes
//! without a vote. Each waits for what happens; none for a time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::rig::{Cluster, Collected, Gate, Machine};
use super::topic;
use crate::controller::observers::Kind;
use crate::metadata::{Decision, Image, ImageVersion, Record};
use crate::types::{NodeId, TimestampMs};
use crate::wire::frame;
use crate::wire::messages::metadata::TopicRecord;
use crate::wire::messages::{ObserverPollResponse, RaftSnapshotRequest, StrBytes};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_voters_have_one_leader_and_one_beginning() {
    let cluster = Cluster::start(&[1, 2, 3]).await;
    let leader = cluster.any().leader_other_than(None).await;
    for node in cluster.nodes.values() {
        let now = node.handle.leadership();
        let now = now.clone().wait_for(|now| now.leader == Some(NodeId(leader))).await.map(|now| *now);
        assert_eq!(now.unwrap().leader, Some(NodeId(leader)));
        assert_eq!(node.handle.image().version, ImageVersion(1), "the first records are there once");
    }
    let leaders = cluster.nodes.values().filter(|node| node.handle.is_leader()).count();
    assert_eq!(leaders, 1);
    for (id, node) in &cluster.nodes {
        let address = cluster.any().handle.controller_address(NodeId(*id));
        assert_eq!(address.as_ref(), Some(node.machine.address()));
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_decides() {
    let cluster = Cluster::start(&[1, 2, 3]).await;
    for (nth, node) in (0..).zip(cluster.nodes.values()) {
        node.add_topic(nth).await;
        let name = format!("t{nth}");
        assert!(node.handle.image().topics.by_name(&name).is_some(), "in the node's own image at the answer");
    }
    for node in cluster.nodes.values() {
        node.has_topics(3).await;
        let seen = node.handle.run(|image| Decision::reply(image.topics.len())).await;
        assert_eq!(seen, Ok(3));
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_that_meet_are_made_again_and_none_is_lost() {
    let cluster = Cluster::start(&[1, 2, 3]).await;
    let handles: Vec<_> = cluster.nodes.values().map(|node| node.handle.clone()).collect();
    let tasks = (0..60).map(|nth: usize| {
        let handle = handles[nth % 3].clone();
        // Each makes the topic with the next number: whoever decides on an old image makes one that exists.
        tokio::spawn(async move {
            let decide = |image: &crate::metadata::Image| {
                let next = u64::try_from(image.topics.len()).unwrap();
                Decision::new(vec![topic(next)], next)
            };
            handle.run(decide).await.unwrap()
        })
    });
    let mut made = BTreeSet::new();
    for task in tasks.collect::<Vec<_>>() {
        assert!(made.insert(task.await.unwrap()), "two made the same topic");
    }
    assert_eq!(made.len(), 60);
    for node in cluster.nodes.values() {
        node.has_topics(60).await;
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_for_one_term_takes_effect_in_no_other_and_nowhere_else() {
    let cluster = Cluster::start(&[1, 2, 3]).await;
    // Makes a topic the first time, and then sees that its term is over.
    let decide = |nth: u64| {
        let mut times = 0;
        move |_: &Image| {
            times += 1;
            Decision::new(if times == 1 { vec![topic(nth)] } else { Vec::new() }, times == 1)
        }
    };
    let mut made = 0;
    for (nth, (id, node)) in (0..).zip(&cluster.nodes) {
        assert_eq!(node.handle.run_in_term(1_000_000, decide(100 + nth)).await, Ok(false));
        // In one term two may lead, one after the other: another node's term is not this one's. There may be an election
        // meanwhile.
        let leader = node.leader_other_than(None).await;
        let term = node.handle.leadership().borrow().term;
        let has_made = node.handle.run_in_term(term, decide(nth)).await.unwrap();
        assert!(!has_made || leader == *id, "node {id} has made a topic in the term of {leader}");
        made += usize::from(has_made);
    }
    while made == 0 {
        let leader = cluster.any().leader_other_than(None).await;
        let node = &cluster.nodes[&leader];
        let term = node.handle.leadership().borrow().term;
        made += usize::from(node.handle.run_in_term(term, decide(9)).await.unwrap());
    }
    for node in cluster.nodes.values() {
        // What was not taken does not hold up the next.
        let seen = node.handle.run(|image| Decision::reply(image.topics.len())).await;
        assert_eq!(seen, Ok(made));
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_replaced_and_catches_up_when_it_is_back() {
    let mut cluster = Cluster::start(&[1, 2, 3]).await;
    cluster.any().add_topic(0).await;
    let mut topics = 1;
    for _ in 0..3 {
        let old = cluster.any().leader_other_than(None).await;
        let machine = cluster.kill(old).await;
        for node in cluster.nodes.values() {
            // Asked at once: it waits for the new leader.
            node.add_topic(topics).await;
            topics += 1;
        }
        let new = cluster.any().leader_other_than(Some(old)).await;
        assert_ne!(new, old);
        cluster.add(&machine).await;
        cluster.nodes[&old].controller.join().await.unwrap();
        cluster.nodes[&old].has_topics(usize::try_from(topics).unwrap()).await;
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_speaks_and_cannot_be_called_is_replaced() {
    let cluster = Cluster::start(&[1, 2, 3]).await;
    let deaf = cluster.any().leader_other_than(None).await;
    cluster.nodes[&deaf].deafen();
    let mut others = cluster.nodes.iter().filter(|(id, _)| **id != deaf).map(|(_, node)| node);
    let (first, second) = (others.next().unwrap(), others.next().unwrap());
    first.leader_other_than(Some(deaf)).await;
    second.leader_other_than(Some(deaf)).await;
    first.add_topic(0).await;
    second.has_topics(1).await;
    // It hears of it in the answers to what it says itself.
    let mut seen = cluster.nodes[&deaf].handle.leadership();
    seen.wait_for(|now| now.leader != Some(NodeId(deaf))).await.unwrap();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_comes_back_with_all_that_was_acknowledged() {
    let mut cluster = Cluster::start(&[1, 2, 3]).await;
    cluster.any().add_topic(0).await;
    let mut machines = Vec::new();
    for id in [1, 2, 3] {
        machines.push(cluster.kill(id).await);
    }
    for machine in &machines {
        cluster.add(machine).await;
    }
    for node in cluster.nodes.values() {
        node.controller.join().await.unwrap();
        node.has_topics(1).await;
    }
    cluster.nodes[&2].add_topic(1).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_without_a_quorum_waits_and_can_be_stopped() {
    let mut cluster = Cluster::start(&[1, 2, 3]).await;
    for id in [1, 2] {
        cluster.kill(id).await;
    }
    let alone = &cluster.nodes[&3];
    let limit = std::time::Duration::from_millis(50);
    let asked = alone.handle.run_within(limit, |_| Decision::new(vec![topic(0)], ()));
    assert!(asked.await.is_err());
    let machine = cluster.kill(3).await;
    // The same from the start, where nobody has been heard at all.
    cluster.add(&machine).await;
    let waiting = tokio::time::timeout(limit, cluster.nodes[&3].controller.join());
    assert!(waiting.await.is_err(), "nobody else is there");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_vote_follows_the_log_and_decides() {
    let mut cluster = Cluster::start(&[1, 2, 3]).await;
    cluster.any().add_topic(0).await;
    cluster.add(&Machine::new(9).await).await;
    let observer = &cluster.nodes[&9];
    observer.controller.join().await.unwrap();
    observer.has_topics(1).await;
    observer.add_topic(1).await;
    cluster.any().has_topics(2).await;
    assert!(!observer.handle.is_leader());

    // It is a learner of the leader, which knows how far it is.
    let leader = observer.leader_other_than(None).await;
    let handle = &cluster.nodes[&leader].handle;
    let caught_up = |status: &crate::controller::QuorumStatus| {
        let observers: Vec<_> = status.observers.iter().map(|it| (it.node, it.directory_id)).collect();
        let is_known = observers == [(NodeId(9), cluster.nodes[&9].machine.directory)];
        is_known && status.observers[0].log_end == status.voters[0].log_end
    };
    while !caught_up(&handle.quorum_status(TimestampMs(0))) {
        tokio::task::yield_now().await;
    }

    // The leader goes; the observer finds the next one.
    cluster.kill(leader).await;
    let observer = &cluster.nodes[&9];
    observer.add_topic(2).await;
    observer.leader_other_than(Some(leader)).await;
    cluster.any().add_topic(3).await;
    cluster.nodes[&9].has_topics(4).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_that_was_away_catches_up() {
    let mut cluster = Cluster::start(&[1]).await;
    cluster.add(&Machine::new(9).await).await;
    cluster.any().add_topic(0).await;
    cluster.nodes[&9].has_topics(1).await;
    let machine = cluster.kill(9).await;
    cluster.any().add_topic(1).await;
    cluster.add(&machine).await;
    cluster.nodes[&9].controller.join().await.unwrap();
    cluster.nodes[&9].has_topics(2).await;

    // One that has lost its disk begins anew, under another directory id.
    let lost = cluster.kill(9).await;
    let mut anew = Machine::new(9).await;
    anew.directory = crate::types::DirectoryId::from_u128(77);
    assert_ne!(anew.directory, lost.directory);
    cluster.add(&anew).await;
    cluster.nodes[&9].controller.join().await.unwrap();
    cluster.nodes[&9].has_topics(2).await;
    cluster.stop().await;
}

/// A record large enough for a few of them to make a snapshot of several pieces.
fn large_topic(nth: u64) -> Record {
    let Record::Topic(small) = topic(nth) else { unreachable!() };
    let name = format!("t{nth}-{}", "x".repeat(240));
    Record::Topic(TopicRecord { name: StrBytes::from_string(name), ..small })
}

/// Where the pieces of snapshots begin that a listener lets through, and whether it lets the next one.
fn cutting(offsets: &Collected<i64>, at: usize) -> Gate {
    let offsets = Arc::clone(offsets);
    let passed = Mutex::new(0);
    Arc::new(move |response: &ObserverPollResponse| {
        if Kind::of(response.kind) != Some(Kind::Snapshot) {
            return true;
        }
        let piece: RaftSnapshotRequest = frame::decode(response.message.clone(), 0).unwrap();
        let mut passed = passed.lock().unwrap();
        *passed += 1;
        let passes = *passed != at;
        if passes && !piece.chunk.is_empty() {
            offsets.lock().unwrap().push(piece.offset);
        }
        passes
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_comes_in_pieces_and_goes_on_after_a_cut() {
    let machine = Machine::new(1).await;
    let voters = [(NodeId(1), machine.address().clone())].into();
    let offsets = Collected::default();
    let mut cluster = Cluster::of(voters);
    // The third message of the snapshot is lost with its connection: the question, a piece, and then this one.
    cluster.add_behind(&machine, Some(cutting(&offsets, 3))).await;
    let node = &cluster.nodes[&1];
    let all = (0..4_000).map(large_topic).collect::<Vec<_>>();
    node.handle.run(move |_| Decision::new(all.clone(), ())).await.unwrap();
    // More entries than are kept beside a snapshot, so that the first ones are gone.
    for nth in 0..1_100 {
        node.add_topic(10_000 + nth).await;
    }
    node.controller.snapshot_taken().await.unwrap();
    node.add_topic(20_000).await;

    cluster.add(&Machine::new(9).await).await;
    cluster.nodes[&9].controller.join().await.unwrap();
    cluster.nodes[&9].has_topics(5_101).await;
    assert_eq!(cluster.nodes[&9].handle.image(), cluster.nodes[&1].handle.image());
    let offsets = offsets.lock().unwrap().clone();
    assert!(offsets.len() >= 3, "{offsets:?}");
    assert_eq!(offsets[0], 0);
    assert!(offsets.windows(2).all(|pair| pair[0] < pair[1]), "no piece was sent twice: {offsets:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_far_behind_catches_up_by_a_snapshot() {
    let mut cluster = Cluster::start(&[1, 2, 3]).await;
    cluster.any().add_topic(0).await;
    let leader = cluster.any().leader_other_than(None).await;
    let behind = cluster.nodes.keys().copied().find(|id| *id != leader).unwrap();
    let machine = cluster.kill(behind).await;
    for nth in 1..1_101 {
        cluster.nodes[&leader].add_topic(nth).await;
    }
    // Whichever of them leads then has let the first entries go.
    for node in cluster.nodes.values() {
        node.has_topics(1_101).await;
        node.controller.snapshot_taken().await.unwrap();
    }
    cluster.nodes[&leader].add_topic(1_101).await;
    cluster.add(&machine).await;
    cluster.nodes[&behind].controller.join().await.unwrap();
    cluster.nodes[&behind].has_topics(1_102).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_that_lost_its_disk_is_filled_again() {
    let mut cluster = Cluster::start(&[1, 2, 3]).await;
    for nth in 0..5 {
        cluster.any().add_topic(nth).await;
    }
    let leader = cluster.any().leader_other_than(None).await;
    let lost = cluster.nodes.keys().copied().find(|id| *id != leader).unwrap();
    let machine = cluster.kill(lost).await.with_empty_disk();
    cluster.add(&machine).await;
    cluster.nodes[&lost].controller.join().await.unwrap();
    cluster.nodes[&lost].has_topics(5).await;
    // The leader has borne it.
    cluster.nodes[&leader].add_topic(5).await;
    cluster.nodes[&lost].has_topics(6).await;
    cluster.stop().await;
}
