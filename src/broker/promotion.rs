//! A partition's copy in another log directory takes the place of its log: the last step of a move, in the order of the shard,
//! so that nothing is appended in between.
//!
//! Must not know who filled the copy. Invariant: at any moment one log of the partition takes appends; what the leader counted
//! as flushed stays flushed.

use std::sync::Arc;

use super::damaged::Rebuild;
use super::directory::Directory;
use super::hosted::{Desk, Hosted};
use super::messages::{Names, Promote, Promoted};
use super::repairs::Repair;
use crate::storage::log::succession::{CopyError, SuccessionError};
use crate::storage::log::{Log, LogError};

/// So much may be missing of a copy that takes over, to begin with: the other partitions of the shard wait while it is copied
/// and synced.
pub(super) const MISSING_MAX: usize = 256 << 10;

impl Hosted {
    pub(super) fn promote(&mut self, promote: Promote, desk: &mut Desk) {
        let Promote { partition, future, directory, names, rebuilds, missing_max, reply } = promote;
        // The partition may have been let go of, and be here again with another log.
        let is_its_log = Arc::ptr_eq(&partition, &self.partition) && self.log.failure().is_none();
        // Where a damaged replica lies is for its repair to tell.
        let is_its_log = is_its_log && self.rebuild == Rebuild::None && rebuilds == partition.rebuilds();
        let are_online = self.partition.directory().is_online() && directory.is_online();
        let promoted = if is_its_log && are_online {
            self.succeed(future, directory, &names, missing_max, desk)
        } else {
            Promoted::Gone(future)
        };
        // Who waited ends with the process.
        let _ = reply.send(promoted);
    }

    fn succeed(
        &mut self,
        mut future: Log,
        directory: Arc<Directory>,
        names: &Names,
        missing_max: usize,
        desk: &mut Desk,
    ) -> Promoted {
        let now = desk.now;
        let caught_up = future.missing_of(&self.log.view(), now.wall).and_then(|missing| {
            if missing > missing_max {
                return Ok(Some(missing));
            }
            if missing > 0 && !directory.admits(missing, now.monotonic) {
                return Err(LogError::DiskFull.into());
            }
            Ok((!future.catch_up_with(&self.log, now.wall)?).then_some(missing))
        });
        if let Some(doomed) = future.take_doomed() {
            // Nobody reads a copy.
            directory.doom(doomed, now.monotonic);
        }
        match caught_up {
            Ok(None) => {}
            Ok(Some(missing)) => return Promoted::Behind(future, missing),
            Err(error) => return Promoted::Failed(future, error),
        }
        match future.succeed(&self.log, &names.log, &names.aside) {
            Ok(()) => Promoted::Done(self.continue_on(future, directory, desk)),
            Err(SuccessionError::Copy(error)) => Promoted::Failed(future, CopyError::Copy(error)),
            Err(SuccessionError::NoRoom(error)) => Promoted::Failed(future, CopyError::Source(error)),
            Err(SuccessionError::Source(error)) => {
                self.partition.directory().fail(&format!("set {} aside", self.partition.name), &error);
                Promoted::Failed(future, CopyError::Source(error))
            }
            Err(SuccessionError::Between(error)) => {
                // All that there is of it may lie there, and does so for the cluster. It fails together with that directory.
                self.partition.directory().flush.drop_waiting(&self.partition.id);
                self.log.poison("it has given up its name");
                self.partition.move_to(directory.clone());
                directory.fail(&format!("take over {}", self.partition.name), &error);
                Promoted::Failed(future, CopyError::Copy(error))
            }
        }
    }

    /// Goes on with another log that holds the same, all of it on disk. Returns the one before.
    fn continue_on(&mut self, log: Log, directory: Arc<Directory>, desk: &mut Desk) -> Log {
        let before = std::mem::replace(&mut self.log, log);
        // What waits there would sync the other one, and what comes for a later log of the partition must not be taken for its.
        self.partition.directory().flush.drop_waiting(&self.partition.id);
        self.partition.move_to(directory);
        if before.is_damaged() {
            // All that was copied was checked.
            desk.outbox.repair(Repair::Moved(self.partition.id));
        }
        self.dirty_since = None;
        self.dirty_appends = 0;
        self.segments_flushed = self.log.view().segment_count();
        self.tell_flushed(desk);
        before
    }
}
