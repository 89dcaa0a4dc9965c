//! A partition's copy in another log directory takes the place of its log: the last step of a move, in the order of the shard,
//! so that nothing is appended in between.
//!
//! Must not know who filled the copy. Invariant: at any moment one log of the partition takes appends; what the leader counted
//! as flushed stays flushed.

use std::sync::Arc;

use super::directory::Directory;
use super::hosted::{Desk, Hosted, HostedRole};
use super::messages::{Promote, Promoted};
use crate::storage::log::Log;
use crate::storage::log::succession::CopyError;

/// So much may be missing of a copy that takes over, to begin with.
pub(super) const MISSING_MAX: usize = 2 << 20;

impl Hosted {
    pub(super) fn promote(&mut self, promote: Promote, desk: &mut Desk) {
        let Promote { mut future, directory, path, missing_max, reply } = promote;
        let is_sound = self.log.failure().is_none() && self.partition.directory().is_online();
        let promoted = if !is_sound || !directory.is_online() {
            Promoted::Gone(future)
        } else {
            match future.catch_up_with(&self.log, missing_max, desk.now.wall) {
                Ok(false) => Promoted::Behind(future),
                Err(error) => Promoted::Failed(future, error),
                Ok(true) => match future.succeed(&self.log, &path) {
                    Ok(()) => Promoted::Done(self.continue_on(future, directory, desk)),
                    Err(error) => Promoted::Failed(future, CopyError::Copy(error)),
                },
            }
        };
        // Who waited ends with the process.
        let _ = reply.send(promoted);
    }

    /// Goes on with another log that holds the same, all of it on disk. Returns the one before.
    fn continue_on(&mut self, log: Log, directory: Arc<Directory>, desk: &mut Desk) -> Log {
        let before = std::mem::replace(&mut self.log, log);
        self.partition.move_to(directory);
        self.dirty_since = None;
        self.dirty_appends = 0;
        self.segments_flushed = self.log.view().segment_count();
        match &mut self.role {
            HostedRole::Leading(leader) => {
                leader.flushed(self.log.flushed(), desk.now.monotonic, &mut desk.effects);
                self.carry_out(desk);
            }
            HostedRole::Following(following) => following.core.flushed(self.log.flushed()),
            HostedRole::None => {}
        }
        before
    }
}
