//! Only caught-up replicas are in sync: whoever the metadata names as in sync has on disk all that is committed.

use super::{Broken, Sight};
use crate::broker::partitions::Role;
use crate::metadata::Image;
use crate::sim::history::History;

/// `counts_written`: where nothing loses what was written, that is as good as on disk.
pub fn check(
    history: &History,
    image: &Image,
    sight: &Sight<'_>,
    counts_written: bool,
) -> Result<(), Broken> {
    if sight.leadership.role == Role::Offline {
        return Ok(());
    }
    let partition = image.topics.partition(sight.id.topic_id, sight.id.partition);
    let is_in_sync = partition.is_some_and(|partition| partition.isr.contains(&sight.node));
    let Some(known) = history.partitions.get(&sight.id).filter(|_| is_in_sync) else { return Ok(()) };
    let flushed = if counts_written { sight.view.log_end } else { sight.view.flushed };
    if flushed < known.end() {
        let (node, id, end) = (sight.node, sight.id, known.end());
        return Err(format!("in sync: {node} is, with {id:?} on disk up to {flushed}; committed is {end}"));
    }
    Ok(())
}
