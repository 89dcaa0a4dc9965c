//! How many bytes became readable: what was appended since, by where it ends.
//!
//! Must not know waiters. Invariant: the entries lie above the high watermark that was last settled.

use std::collections::VecDeque;

use super::waiters::Advance;
use crate::storage::log::LogView;
use crate::types::Offset;

#[derive(Debug)]
pub(super) struct Ledger {
    /// Appended bytes that the high watermark has not passed yet.
    uncommitted: VecDeque<(Offset, u64)>,
    appended: u64,
    high_watermark: Offset,
    last_stable: Offset,
}

impl Ledger {
    pub(super) fn new(view: &LogView) -> Ledger {
        Ledger {
            uncommitted: VecDeque::new(),
            appended: 0,
            high_watermark: view.high_watermark,
            last_stable: view.last_stable,
        }
    }

    /// So many bytes were appended; the log ends at `end` now.
    pub(super) fn appended(&mut self, end: Offset, bytes: usize) {
        self.appended += bytes as u64;
        self.uncommitted.push_back((end, bytes as u64));
    }

    /// What has become readable since the last time.
    pub(super) fn settle(&mut self, view: &LogView) -> Advance {
        let mut committed = 0;
        while let Some((_, bytes)) = self.uncommitted.pop_front_if(|(end, _)| *end <= view.high_watermark) {
            committed += bytes;
        }
        if committed == 0 && view.high_watermark > self.high_watermark {
            // Records from before this ledger began, or a part of an append: there is something.
            committed = 1;
        }
        let was_stable = self.last_stable == self.high_watermark;
        let is_stable = view.last_stable == view.high_watermark;
        let stable = match (view.last_stable > self.last_stable, was_stable && is_stable) {
            (false, _) => 0,
            (true, true) => committed,
            // A transaction ended, and how many bytes lay under it is not known: let everybody look.
            (true, false) => u64::MAX,
        };
        self.high_watermark = view.high_watermark;
        self.last_stable = view.last_stable;
        let log_end = std::mem::take(&mut self.appended);
        Advance { high_watermark: committed, last_stable: stable, log_end }
    }
}
