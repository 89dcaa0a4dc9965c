//! Only caught-up replicas are in sync: whoever the metadata names as in sync has on disk all that is committed.

use super::{Broken, Sight};
use crate::broker::partitions::Role;
use crate::metadata::Image;
use crate::sim::history::History;

pub fn check(history: &History, image: &Image, sight: &Sight<'_>) -> Result<(), Broken> {
    if sight.leadership.role == Role::Offline {
        return Ok(());
    }
    let partition = image.topics.partition(sight.id.topic_id, sight.id.partition);
    let is_in_sync = partition.is_some_and(|partition| partition.isr.contains(&sight.node));
    let Some(known) = history.partitions.get(&sight.id).filter(|_| is_in_sync) else { return Ok(()) };
    if sight.view.flushed < known.end() {
        let (node, id, flushed, end) = (sight.node, sight.id, sight.view.flushed, known.end());
        return Err(format!("in sync: {node} is, with {id:?} on disk up to {flushed}; committed is {end}"));
    }
    Ok(())
}
