//! Promptness: when nothing goes wrong any more and all replicas are in sync, what is sent is acknowledged as soon as disks and
//! network allow. Nothing waits for the next time that somebody looks.

use super::Broken;
use crate::sim::context::Ms;
use crate::sim::world::World;

/// Longer than some syncs and some ways through the network; less than fetches wait for something to tell.
const LIMIT_MS: Ms = 400;

/// `since`: from when on everything was well.
pub fn check(world: &World, since: Ms) -> Result<(), Broken> {
    let now = world.context.now;
    let mut producers = world.producers.iter();
    match producers.find(|producer| producer.waits_since().is_some_and(|at| now - at.max(since) > LIMIT_MS)) {
        Some(producer) => Err(format!("prompt: a producer waits for more than {LIMIT_MS} ms: {producer}")),
        None => Ok(()),
    }
}

/// Whoever lives is not fenced.
pub fn check_lives(world: &World) -> Result<(), Broken> {
    let head = &world.quorum.log.head;
    match world.nodes.iter().find(|node| !head.brokers.is_active(node.me)) {
        Some(node) => Err(format!("prompt: broker {} is fenced although nothing goes wrong", node.me)),
        None => Ok(()),
    }
}
