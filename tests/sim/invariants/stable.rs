//! The last stable offset goes on: when nothing goes wrong any more and nobody begins a transaction, none is left open.

use crate::broker::partitions::Role;
use crate::sim::plan::TopicKind;
use crate::sim::world::World;
use crate::types::TopicIdPartition;

/// What is missing.
pub fn missing(world: &World) -> Option<String> {
    if let Some(client) = world.transactional.iter().find(|client| !client.is_at_rest()) {
        return Some(format!("a client has not ended its transaction: {client:?}"));
    }
    let head = &world.quorum.log.head;
    for plan in world.context.plan.topics.iter().filter(|plan| plan.kind != TopicKind::Plain) {
        let topic = head.topics.by_name(plan.name)?;
        for (partition, registration) in topic.partitions() {
            let id = TopicIdPartition { topic_id: topic.id, partition };
            for node in &registration.replicas {
                let Some((leadership, view)) = world.shown_by(*node, id) else {
                    return Some(format!("the replica of {}-{partition} on {node} is not there", plan.name));
                };
                let (stable, high, end) = (view.last_stable, view.high_watermark, view.log_end);
                if stable < end {
                    let name = plan.name;
                    let role = if leadership.role == Role::Leader { "leads" } else { "follows" };
                    return Some(format!("{node} {role} {name}-{partition} with {stable} {high} {end}"));
                }
            }
            let read = world.readers.iter().find_map(|reader| reader.at.filter(|(of, _)| *of == id));
            if plan.kind == TopicKind::Transactional
                && let Some((_, view)) = world.shown_by(registration.leader, id)
                && read.is_none_or(|(_, at)| at < view.last_stable)
                && view.last_stable.0 > 0
            {
                return Some(format!("a reader of {}-{partition} is at {read:?}", plan.name));
            }
        }
    }
    None
}
