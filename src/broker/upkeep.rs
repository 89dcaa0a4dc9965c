//! Old segments of one partition go, by retention, by DeleteRecords, and because compacted ones take their place.
//!
//! Must not know who looks for them, or when. Invariant: a step takes the time of a few renames at most; the files are removed
//! elsewhere, and later.

use super::hosted::{Desk, Hosted, HostedRole};
use super::messages::Compact;
use crate::storage::log::compaction::{Cleaned, SwapError};
use crate::storage::log::{Doomed, LogError, Retained};
use crate::types::Offset;

/// So many segments are deleted in one step at most: each costs some renames, for which appends wait.
const SEGMENTS_AT_A_TIME: usize = 8;

impl Hosted {
    /// Drops what lies before `at` from the log.
    pub(super) fn start_log_at(&mut self, at: Offset, desk: &Desk) -> Result<(), LogError> {
        let advanced = self.log.advance_log_start(at);
        // What is left is found by retention.
        let deleted = advanced.and_then(|()| self.log.delete_before_start(SEGMENTS_AT_A_TIME));
        let doomed = deleted.inspect_err(|error| self.note_failure(error, desk.now.monotonic))?;
        self.doom(doomed, desk);
        Ok(())
    }

    /// Has the files of segments removed after a while.
    fn doom(&mut self, doomed: Option<Doomed>, desk: &Desk) {
        let Some(doomed) = doomed else { return };
        self.segments_flushed = self.segments_flushed.saturating_sub(doomed.count());
        let delay_ms = self.log.config().file_delete_delay_ms;
        self.partition.directory().doom(doomed, desk.now.monotonic.plus(delay_ms));
    }

    /// Deletes some of the segments that have outlived the topic's settings. True when there are more.
    pub(super) fn retain(&mut self, desk: &mut Desk) -> bool {
        if matches!(self.role, HostedRole::None) {
            return false;
        }
        let before = self.log.log_start();
        let retained = self.log.retain(desk.now.wall, SEGMENTS_AT_A_TIME);
        let Retained { doomed, more } = match retained {
            Ok(retained) => retained,
            Err(error) => {
                self.note_failure(&error, desk.now.monotonic);
                // Of a full disk the directory has told.
                if !matches!(error, LogError::DiskFull) {
                    tracing::warn!(partition = %self.partition.name, "retention: {error}");
                }
                return false;
            }
        };
        let Some(doomed) = doomed else { return false };
        let (count, start) = (doomed.count(), self.log.log_start());
        self.doom(Some(doomed), desk);
        // The epochs have changed, and there may be a new segment.
        self.dirty_since.get_or_insert(desk.now.monotonic);
        if start > before {
            let name = &self.partition.name;
            tracing::info!(partition = %name, "deleted {count} old segments, the log starts at {start} now");
            self.tell_log_start(start, desk);
        }
        more
    }

    fn tell_log_start(&mut self, start: Offset, desk: &mut Desk) {
        match &mut self.role {
            HostedRole::Leading(leader) => {
                leader.log_start_moved(start, &mut desk.effects);
                self.carry_out(desk);
            }
            HostedRole::Following(following) => following.core.log_start_moved(start),
            HostedRole::None => {}
        }
    }

    /// Does its part in a compaction.
    pub(super) fn compact(&mut self, compact: Compact, desk: &mut Desk) {
        // Nobody listens when the compaction was stopped.
        match compact {
            Compact::Begin(reply) => {
                let _ = reply.send(self.log.compaction_basis());
            }
            Compact::Swap(cleaned, reply) => {
                let _ = reply.send(self.swap(&cleaned, desk));
            }
            Compact::End { basis, upto, reply } => {
                if self.log.is_uncut_since(&basis) {
                    self.partition.set_cleaned(Some(upto));
                }
                let _ = reply.send(());
            }
        }
    }

    fn swap(&mut self, cleaned: &Cleaned, desk: &Desk) -> Result<(), SwapError> {
        if self.partition.future().is_some() {
            // The copy was made of what is there now.
            return Err(SwapError::Outdated);
        }
        let doomed = self.log.swap_in(cleaned).inspect_err(|error| {
            if let SwapError::Log(error) = error {
                self.note_failure(error, desk.now.monotonic);
            }
        })?;
        self.doom(Some(doomed), desk);
        // One came for those that went.
        self.segments_flushed += 1;
        self.dirty_since.get_or_insert(desk.now.monotonic);
        Ok(())
    }
}
