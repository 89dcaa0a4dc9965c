//! Progress: once nothing goes wrong any more the cluster is whole again in a while. All brokers live, every partition has a
//! leader and all its replicas in sync with the same log, producers go on, and consumers have read everything.

use crate::broker::partitions::Role;
use crate::metadata::topics::PartitionRegistration;
use crate::sim::history::PartitionHistory;
use crate::sim::plan::TopicKind;
use crate::sim::world::World;
use crate::types::{Offset, TopicIdPartition};

/// What is missing. `before`: how many batches each producer had acknowledged when the last fault ended.
pub fn missing(world: &World, before: &[u64]) -> Option<String> {
    let head = &world.quorum.log.head;
    for node in &world.nodes {
        // A process that was killed may be taken to be alive for a while, and the next one waits that long.
        let epoch = node.process.as_ref().and_then(|process| process.epoch);
        let registered = head.brokers.get(node.me).filter(|broker| broker.is_active());
        if epoch.is_none() || registered.map(|broker| broker.epoch) != epoch {
            return Some(format!("broker {} is not active", node.me));
        }
    }
    for topic in head.topics.iter() {
        for (index, partition) in topic.partitions() {
            let id = TopicIdPartition { topic_id: topic.id, partition: index };
            if let Some(missing) = missing_of(world, id, partition) {
                return Some(format!("of {}-{index} {missing}: {partition:?}", topic.name));
            }
        }
    }
    let (of_producers, of_clients) = before.split_at(world.producers.len());
    for (producer, before) in world.producers.iter().zip(of_producers) {
        if producer.acknowledged < before + 3 {
            return Some(format!("a producer does not go on: {producer}"));
        }
    }
    for (client, before) in world.transactional.iter().zip(of_clients) {
        if client.committed < before + 2 {
            return Some(format!("a transactional client does not go on: {client:?}"));
        }
    }
    let of_group = before.last().copied().unwrap_or_default();
    if !world.members.is_empty() && world.commits() < of_group + 3 {
        return Some(format!("the members of a group do not go on: {:?}", world.members));
    }
    None
}

/// What is known of the replicas that are not in sync.
fn out_of_sync(world: &World, id: TopicIdPartition, partition: &PartitionRegistration) -> String {
    let missing = partition.replicas.iter().filter(|node| !partition.isr.contains(node));
    let told = missing.map(|node| {
        let shown = world.shown_by(*node, id).map(|(leadership, view)| {
            let (high, flushed, end) = (view.high_watermark, view.flushed, view.log_end);
            format!("{leadership:?} {high} {flushed} {end}")
        });
        let process = world.nodes[(node.0 - 1) as usize].process.as_ref();
        let fetches = process.map(|process| process.replication.describe(partition.leader.0));
        format!("{node} shows {shown:?} and fetches {}; ", fetches.unwrap_or_default())
    });
    told.collect()
}

fn missing_of(world: &World, id: TopicIdPartition, partition: &PartitionRegistration) -> Option<String> {
    if !partition.has_leader() || partition.is_reassigning() {
        return Some("the leader or a reassignment is missing".to_owned());
    }
    if partition.isr.len() < partition.replicas.len() {
        return Some(format!("not all replicas are in sync, {}", out_of_sync(world, id, partition)));
    }
    let committed = world.history.partitions.get(&id).map_or(Offset::ZERO, PartitionHistory::end);
    for node in &partition.replicas {
        let Some((leadership, view)) = world.shown_by(*node, id) else {
            return Some(format!("the replica on {node} is not there"));
        };
        let leads = *node == partition.leader;
        if leads != (leadership.role == Role::Leader) || leadership.leader_epoch != partition.leader_epoch {
            return Some(format!("the replica on {node} is {leadership:?}"));
        }
        // Producers go on, so not everything that is there is committed everywhere yet.
        if view.high_watermark.plus(60) < committed {
            return Some(format!(
                "the high watermark on {node} stays at {} of {committed}",
                view.high_watermark
            ));
        }
    }
    if world.history.kind(id) != TopicKind::Plain {
        return None;
    }
    match world.consumed(id) {
        Some(consumed) if consumed.plus(60) >= committed => None,
        consumed => Some(format!("consumers are at {consumed:?} of {committed}")),
    }
}
