//! What is damaged on disk is mended: when nothing goes wrong any more every replica has on disk, byte for byte, what is
//! committed.

use crate::sim::history::{Unread, read};
use crate::sim::world::World;

/// What is missing.
pub fn missing(world: &World) -> Option<String> {
    for node in &world.nodes {
        let Some(process) = &node.process else { return Some(format!("broker {} is not there", node.me)) };
        for (id, partition) in process.partitions.all() {
            let view = partition.view();
            let Some(known) = world.history.partitions.get(&id) else { continue };
            let upto = view.high_watermark.min(known.end());
            let found = match read(&view, view.log_start, upto, true) {
                Ok(found) => found,
                Err(Unread::Refused(why)) => return Some(format!("{} has of {id:?}: {why}", node.me)),
                Err(Unread::Wrong(why)) => return Some(format!("{} has of {id:?}: {why}", node.me)),
            };
            let mut both = found.iter().zip(known.from(view.log_start));
            if let Some((found, known)) = both.find(|(found, known)| found != known) {
                return Some(format!("{} has of {id:?} {found:?}, committed is {known:?}", node.me));
            }
        }
    }
    None
}
