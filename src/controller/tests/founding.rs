//! Quorums whose voters formatted themselves: one that begins, one that is there already, and disks that are lost.

use std::collections::BTreeMap;
use std::io;

use super::rig::{Cluster, Machine};
use crate::controller::StartError;
use crate::storage::sim_disk::FaultOn;
use crate::types::NodeId;
use crate::wire::messages::raft::Sender;
use crate::wire::messages::{RaftVoteRequest, StrBytes};

async fn machines() -> (Cluster, Vec<Machine>) {
    let mut machines = Vec::new();
    for id in 1..=3 {
        machines.push(Machine::new(id).await.formats_itself());
    }
    let voters: BTreeMap<_, _> =
        machines.iter().map(|machine| (machine.id(), machine.address().clone())).collect();
    (Cluster::of(voters), machines)
}

async fn begun() -> Cluster {
    let (mut cluster, machines) = machines().await;
    for machine in &machines {
        cluster.add(machine).await;
    }
    for node in cluster.nodes.values() {
        node.controller.join().await.unwrap();
    }
    cluster
}

#[tokio::test]
async fn a_quorum_begins_when_all_its_voters_are_there() {
    let mut cluster = begun().await;
    cluster.any().add_topic(1).await;
    // Each remembers that it has decided.
    for id in 1..=3 {
        let machine = cluster.kill(id).await;
        cluster.add(&machine).await;
        cluster.nodes[&id].controller.join().await.unwrap();
        cluster.nodes[&id].has_topics(1).await;
    }
    cluster.stop().await;
}

#[tokio::test]
async fn nobody_votes_before_all_are_there() {
    let (mut cluster, machines) = machines().await;
    for machine in &machines[..2] {
        cluster.add(machine).await;
    }
    let sender = Sender {
        cluster_id: StrBytes::from_static_str("test"),
        node_id: 3,
        directory_id: machines[2].directory,
        to: 1,
        ..Sender::default()
    };
    let service = cluster.nodes[&1].controller.service();
    for probe in [true, false] {
        let request = RaftVoteRequest { sender: sender.clone(), probe, ..RaftVoteRequest::default() };
        let answer = service.vote(request).await;
        assert!(answer.refusal != 0 && !answer.granted);
    }
    // A start may be cut short.
    let machine = cluster.kill(1).await;
    for machine in [&machine, &machines[2]] {
        cluster.add(machine).await;
    }
    for node in cluster.nodes.values() {
        node.controller.join().await.unwrap();
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_voter_that_has_lost_its_disk_does_not_come_back_by_itself() {
    let mut cluster = begun().await;
    cluster.nodes[&1].add_topic(1).await;
    let lost = cluster.kill(2).await.formats_itself();
    cluster.add(&lost).await;
    let refused = cluster.nodes[&2].controller.join().await.unwrap_err();
    assert!(matches!(refused, StartError::LostDisk(by, _) if by != NodeId(2)), "{refused}");
    cluster.kill(2).await;
    // The others do without it, and one that was only stopped is taken back.
    cluster.nodes[&3].add_topic(2).await;
    let machine = cluster.kill(1).await;
    cluster.add(&machine).await;
    cluster.nodes[&1].controller.join().await.unwrap();
    cluster.nodes[&1].has_topics(2).await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_voter_that_cannot_write_down_the_beginning_says_so_and_may_come_back() {
    let (mut cluster, machines) = machines().await;
    machines[0].disk.fail(FaultOn::Sync, "quorum-founding", 0, io::ErrorKind::StorageFull, None);
    for machine in &machines {
        cluster.add(machine).await;
    }
    let refused = cluster.nodes[&1].controller.join().await.unwrap_err();
    assert!(matches!(refused, StartError::NotBegun(_)), "{refused}");
    let machine = cluster.kill(1).await;
    machine.disk.heal();
    cluster.add(&machine).await;
    for node in cluster.nodes.values() {
        node.controller.join().await.unwrap();
    }
    cluster.stop().await;
}
