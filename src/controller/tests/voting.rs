//! Voters that change while the quorum runs: added, taken out, lost and replaced. Each test waits for what happens.

use std::collections::BTreeMap;
use std::time::Duration;

use super::rig::{Cluster, Machine, Node};
use crate::controller::{ChangeRefused, ChangeVotersError, VoterChange};
use crate::metadata::{Decision, Image};
use crate::types::{NodeId, TimestampMs};
use crate::wire::messages::metadata::RegisterControllerRecord;

const LONG: Duration = Duration::from_secs(60);

/// Nodes of a dynamic quorum, by id.
struct Quorum {
    nodes: BTreeMap<i32, Node>,
}

impl Quorum {
    /// A quorum that was formatted with these voters.
    async fn formatted(ids: &[i32]) -> (Quorum, Vec<Machine>) {
        let mut machines = Vec::new();
        for id in ids {
            machines.push(Machine::new(*id).await);
        }
        let all: Vec<&Machine> = machines.iter().collect();
        let mut nodes = BTreeMap::new();
        for (id, machine) in ids.iter().zip(&machines) {
            nodes.insert(*id, machine.start_formatted(&all, &[]).await);
        }
        let quorum = Quorum { nodes };
        for node in quorum.nodes.values() {
            node.controller.join().await.unwrap();
        }
        (quorum, machines)
    }

    async fn leader(&self) -> i32 {
        loop {
            for (id, node) in &self.nodes {
                if node.handle.is_leader() {
                    return *id;
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// One that does not lead.
    async fn follower(&self) -> i32 {
        let leader = self.leader().await;
        *self.nodes.keys().find(|id| **id != leader).unwrap()
    }

    async fn change_within(&self, change: VoterChange, limit: Duration) -> Result<(), ChangeVotersError> {
        loop {
            let node = &self.nodes[&self.leader().await];
            match node.controller.service().voters().change(change.clone(), limit, true).await {
                Err(ChangeVotersError::NotLeader { .. }) => tokio::task::yield_now().await,
                changed => return changed,
            }
        }
    }

    async fn change(&self, change: VoterChange) -> Result<(), ChangeVotersError> {
        self.change_within(change, LONG).await
    }

    async fn voters(&self) -> Vec<i32> {
        let status = self.nodes[&self.leader().await].handle.quorum_status(TimestampMs(1));
        let mut voters: Vec<i32> = status.voters.iter().map(|voter| voter.node.0).collect();
        voters.sort_unstable();
        voters
    }

    /// Registers all as controllers, as a process does when it starts; from then on they stay members although they are silent.
    async fn register(&self) {
        for id in self.nodes.keys() {
            let record =
                RegisterControllerRecord { controller_id: *id, ..RegisterControllerRecord::default() };
            let register = move |_: &Image| Decision::new(vec![record.clone().into()], ());
            self.nodes[id].handle.run(register).await.unwrap();
        }
    }

    async fn stop(self) {
        for node in self.nodes.into_values() {
            node.kill().await;
        }
    }
}

fn add(machine: &Machine) -> VoterChange {
    VoterChange::Add { node: machine.id(), member: machine.voter() }
}

fn remove(machine: &Machine) -> VoterChange {
    VoterChange::Remove { node: machine.id(), directory: machine.directory }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_of_one_grows_and_survives_its_first_voter() {
    let (mut quorum, machines) = Quorum::formatted(&[1]).await;
    quorum.nodes[&1].add_topic(0).await;
    for id in [2, 3] {
        let machine = Machine::new(id).await;
        let node = machine.start_formatted(&[], &[&machines[0]]).await;
        // It need not have followed for long: the leader waits for it.
        quorum.nodes.insert(id, node);
        assert_eq!(quorum.change(add(&machine)).await, Ok(()));
        quorum.nodes[&id].controller.join().await.unwrap();
        quorum.nodes[&id].has_topics(1).await;
    }
    assert_eq!(quorum.voters().await, [1, 2, 3]);
    let first = quorum.nodes.remove(&1).unwrap().kill().await;
    quorum.nodes[&2].add_topic(1).await;
    assert_ne!(quorum.leader().await, 1);
    // What it was formatted with counts no more: the log knows who votes.
    quorum.nodes.insert(1, first.start_formatted(&[&first], &[]).await);
    quorum.nodes[&1].has_topics(2).await;
    assert_eq!(quorum.voters().await, [1, 2, 3]);
    quorum.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_takes_itself_out_and_follows() {
    let (quorum, machines) = Quorum::formatted(&[1, 2, 3]).await;
    quorum.register().await;
    // It may be wanted again at once, while it is on its way out.
    let first = quorum.leader().await;
    let machine = machines.iter().find(|machine| machine.id() == NodeId(first)).unwrap();
    assert_eq!(quorum.change(remove(machine)).await, Ok(()));
    assert_eq!(quorum.change(add(machine)).await, Ok(()));
    assert_eq!(quorum.voters().await, [1, 2, 3]);

    let old = quorum.leader().await;
    let machine = machines.iter().find(|machine| machine.id() == NodeId(old)).unwrap();
    assert_eq!(quorum.change(remove(machine)).await, Ok(()));
    let other = *quorum.nodes.keys().find(|id| **id != old).unwrap();
    quorum.nodes[&other].add_topic(0).await;
    quorum.nodes[&old].has_topics(1).await;
    // It leads for a moment longer, so that the others hear that its going is committed.
    quorum.nodes[&other].leader_other_than(Some(old)).await;
    let left: Vec<i32> = [1, 2, 3].into_iter().filter(|id| *id != old).collect();
    assert_eq!(quorum.voters().await, left);
    // And it comes back.
    assert_eq!(quorum.change(add(machine)).await, Ok(()));
    assert_eq!(quorum.voters().await, [1, 2, 3]);
    quorum.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_taken_out_while_it_was_away_learns_so() {
    let (mut quorum, _) = Quorum::formatted(&[1, 2, 3]).await;
    let gone = quorum.follower().await;
    let machine = quorum.nodes.remove(&gone).unwrap().kill().await;
    assert_eq!(quorum.change(remove(&machine)).await, Ok(()));
    let leader = quorum.leader().await;
    quorum.nodes[&leader].add_topic(0).await;
    // The leader forgets it, so nobody will call it.
    while !quorum.nodes[&leader].handle.quorum_status(TimestampMs(1)).observers.is_empty() {
        tokio::task::yield_now().await;
    }
    let servers: Vec<&Machine> = quorum.nodes.values().map(|node| &node.machine).collect();
    let node = machine.start_formatted(&[&machine], &servers).await;
    node.has_topics(1).await;
    quorum.nodes.insert(gone, node);
    assert!(!quorum.voters().await.contains(&gone));
    quorum.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_that_lost_its_disk_is_refused_until_it_is_replaced() {
    let (mut quorum, machines) = Quorum::formatted(&[1, 2, 3]).await;
    let lost = quorum.follower().await;
    quorum.nodes[&lost].add_topic(0).await;
    let old = quorum.nodes.remove(&lost).unwrap().kill().await;
    let new = old.clone().without_disk();
    let servers: Vec<&Machine> = machines.iter().filter(|machine| machine.id() != old.id()).collect();
    quorum.nodes.insert(lost, new.start_formatted(&[], &servers).await);
    // It has promised things that it has forgotten, so it does not count, whatever it asks.
    let refused = quorum.change_within(add(&new), Duration::ZERO).await;
    assert_eq!(refused, Err(ChangeRefused::Duplicate(new.id()).into()));
    let (node, directory) = (new.id(), new.directory);
    let refused = quorum.change(remove(&new)).await;
    assert_eq!(refused, Err(ChangeRefused::NotFound { node, directory }.into()));
    assert_eq!(quorum.change(remove(&old)).await, Ok(()));
    quorum.nodes[&lost].has_topics(1).await;
    assert_eq!(quorum.change(add(&new)).await, Ok(()));
    assert_eq!(quorum.voters().await, [1, 2, 3]);
    quorum.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_of_the_configuration_that_lost_its_disk_gets_the_log_again() {
    let mut cluster = Cluster::start(&[1, 2, 3]).await;
    cluster.any().add_topic(0).await;
    let leader = cluster.any().leader_other_than(None).await;
    let lost = if leader == 1 { 2 } else { 1 };
    let machine = cluster.kill(lost).await.without_disk();
    cluster.nodes[&leader].add_topic(1).await;
    cluster.add(&machine).await;
    cluster.nodes[&lost].has_topics(2).await;
    cluster.nodes[&lost].add_topic(2).await;
    cluster.nodes[&leader].has_topics(3).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_end_the_quorum_is_refused() {
    let (mut quorum, machines) = Quorum::formatted(&[1, 2, 3]).await;
    let here = |id: i32| machines.iter().find(|machine| machine.id() == NodeId(id)).unwrap();
    // Nobody is there, or somebody else is.
    let absent = Machine::new(4).await;
    let refused = quorum.change_within(add(&absent), Duration::ZERO).await;
    assert_eq!(refused, Err(ChangeVotersError::Behind(NodeId(4))));
    let present = absent.start_formatted(&[], &[&machines[0], &machines[1], &machines[2]]).await;
    let elsewhere = VoterChange::Add {
        node: NodeId(4),
        member: crate::controller::Member { endpoints: machines[0].voter().endpoints, ..absent.voter() },
    };
    let refused = quorum.change(elsewhere).await;
    assert!(
        matches!(&refused, Err(ChangeVotersError::NotReached { node: NodeId(4), .. })),
        "another node's address: {refused:?}"
    );
    quorum.nodes.insert(4, present);

    let gone = *quorum.nodes.keys().find(|id| **id != 4 && !quorum.nodes[id].handle.is_leader()).unwrap();
    let gone = quorum.nodes.remove(&gone).unwrap().kill().await;
    // The leader notices that it does not answer.
    let leader = quorum.leader().await;
    let other = *quorum.nodes.keys().find(|id| **id != 4 && **id != leader).unwrap();
    while quorum.nodes[&leader].controller.service().voters().seen().reached.len() > 2 {
        tokio::task::yield_now().await;
    }
    let refused = quorum.change(remove(here(other))).await;
    let loses = ChangeRefused::LosesQuorum { node: NodeId(other), reached: 1, voters: 2 };
    assert_eq!(refused, Err(loses.into()));
    assert_eq!(quorum.change(remove(&gone)).await, Ok(()));
    assert_eq!(quorum.change(add(&absent)).await, Ok(()));
    assert_eq!(quorum.change(remove(here(other))).await, Ok(()));
    assert_eq!(quorum.voters().await, [leader, 4]);
    quorum.stop().await;

    let cluster = Cluster::start(&[1, 2, 3]).await;
    let leader = cluster.any().leader_other_than(None).await;
    let node = &cluster.nodes[&leader];
    let changed = node.controller.service().voters().change(remove(&node.machine), LONG, true).await;
    assert_eq!(changed, Err(ChangeRefused::Static.into()));
    cluster.stop().await;
}
