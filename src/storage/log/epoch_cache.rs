//! Which leader epoch began at which offset: what followers truncate by and what clients validate by. Immutable, so that a
//! view can hold one; a change makes a new one. Knows no files (`checkpoint` writes the entries).
//!
//! Invariant: epochs and start offsets increase strictly.

use std::sync::Arc;

use crate::types::{LeaderEpoch, Offset};

/// The first offset that a leader epoch wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEntry {
    pub epoch: LeaderEpoch,
    pub start: Offset,
}

/// The epochs of a log, oldest first. Clones share the entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochCache {
    entries: Option<Arc<[EpochEntry]>>,
}

impl EpochCache {
    /// From entries of a file, which may contradict each other: later ones win.
    pub fn from_entries(entries: impl IntoIterator<Item = EpochEntry>) -> EpochCache {
        let mut cache = Vec::new();
        for entry in entries {
            assign(&mut cache, entry);
        }
        EpochCache::new(&cache)
    }

    fn new(entries: &[EpochEntry]) -> EpochCache {
        EpochCache { entries: (!entries.is_empty()).then(|| entries.into()) }
    }

    pub fn entries(&self) -> &[EpochEntry] {
        self.entries.as_deref().unwrap_or_default()
    }

    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries().last().copied()
    }

    /// Notes that `epoch` begins at `start`; entries that contradict it go. `true` when that changed anything.
    pub fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> bool {
        // The common case, once per append: the epoch is the latest.
        let known = self.latest().is_some_and(|last| last.epoch == epoch && last.start <= start);
        if known || epoch < LeaderEpoch::ZERO {
            return false;
        }
        let mut entries = self.entries().to_vec();
        assign(&mut entries, EpochEntry { epoch, start });
        *self = EpochCache::new(&entries);
        true
    }

    /// Drops what begins at or after `end`, the new end of the log. `true` when that changed anything.
    pub fn truncate_from_end(&mut self, end: Offset) -> bool {
        let keep = self.entries().partition_point(|entry| entry.start < end);
        if keep == self.entries().len() {
            return false;
        }
        *self = EpochCache::new(&self.entries()[..keep]);
        true
    }

    /// Drops the epochs that end at or before `start`, the new start of the log; the one that `start` lies in begins
    /// there now. `true` when that changed anything.
    pub fn truncate_from_start(&mut self, start: Offset) -> bool {
        let covered = self.entries().partition_point(|entry| entry.start <= start);
        if covered == 0 || (covered == 1 && self.entries()[0].start == start) {
            return false;
        }
        let mut entries = self.entries()[covered - 1..].to_vec();
        entries[0].start = start;
        *self = EpochCache::new(&entries);
        true
    }

    /// The epoch that wrote the record at `offset`.
    pub fn epoch_of(&self, offset: Offset) -> Option<LeaderEpoch> {
        let covered = self.entries().partition_point(|entry| entry.start <= offset);
        covered.checked_sub(1).map(|index| self.entries()[index].epoch)
    }

    /// The largest known epoch that is at most `epoch`, and the offset where it ends, in a log that ends at `log_end`.
    /// For an epoch before the first known one: that epoch, and where the first known one begins. `None` when the
    /// epoch lies beyond what is known.
    pub fn end_offset_for(&self, epoch: LeaderEpoch, log_end: Offset) -> Option<(LeaderEpoch, Offset)> {
        if epoch == LeaderEpoch::UNKNOWN {
            return None;
        }
        let entries = self.entries();
        let up_to = entries.partition_point(|entry| entry.epoch <= epoch);
        let found = up_to.checked_sub(1).map(|index| entries[index].epoch);
        match (found, entries.get(up_to)) {
            (Some(found), None) if found == epoch => Some((epoch, log_end)),
            (_, None) => None,
            (None, Some(next)) => Some((epoch, next.start)),
            (Some(found), Some(next)) => Some((found, next.start)),
        }
    }
}

fn assign(entries: &mut Vec<EpochEntry>, new: EpochEntry) {
    if entries.last().is_some_and(|last| last.epoch == new.epoch && last.start <= new.start) {
        return;
    }
    while entries.last().is_some_and(|last| last.epoch >= new.epoch || last.start >= new.start) {
        entries.pop();
    }
    entries.push(new);
}

#[cfg(test)]
mod tests {
    use super::{EpochCache, EpochEntry};
    use crate::types::{LeaderEpoch, Offset};

    fn cache(entries: &[(i32, i64)]) -> EpochCache {
        EpochCache::from_entries(
            entries
                .iter()
                .map(|&(epoch, start)| EpochEntry { epoch: LeaderEpoch(epoch), start: Offset(start) }),
        )
    }

    fn end(cache: &EpochCache, epoch: i32) -> Option<(i32, i64)> {
        cache.end_offset_for(LeaderEpoch(epoch), Offset(100)).map(|(epoch, end)| (epoch.0, end.0))
    }

    #[test]
    fn assigning_keeps_both_columns_increasing() {
        let mut epochs = cache(&[(0, 0), (2, 10), (4, 20)]);
        assert!(!epochs.assign(LeaderEpoch(4), Offset(25)));
        assert!(!epochs.assign(LeaderEpoch::UNKNOWN, Offset(25)));
        assert!(epochs.assign(LeaderEpoch(5), Offset(15)));
        assert_eq!(epochs, cache(&[(0, 0), (2, 10), (5, 15)]));
        assert!(epochs.assign(LeaderEpoch(2), Offset(30)));
        assert_eq!(epochs, cache(&[(0, 0), (2, 30)]));
    }

    #[test]
    fn an_epoch_ends_where_the_next_begins() {
        let epochs = cache(&[(1, 5), (3, 10), (6, 20)]);
        assert_eq!(end(&epochs, -1), None);
        assert_eq!(end(&epochs, 0), Some((0, 5)));
        assert_eq!(end(&epochs, 1), Some((1, 10)));
        assert_eq!(end(&epochs, 2), Some((1, 10)));
        assert_eq!(end(&epochs, 3), Some((3, 20)));
        assert_eq!(end(&epochs, 6), Some((6, 100)));
        assert_eq!(end(&epochs, 7), None);
        assert_eq!(end(&EpochCache::default(), 0), None);
    }

    #[test]
    fn truncation_from_both_sides() {
        let mut epochs = cache(&[(1, 5), (3, 10), (6, 20)]);
        assert!(!epochs.truncate_from_end(Offset(21)));
        assert!(epochs.truncate_from_end(Offset(20)));
        assert_eq!(epochs, cache(&[(1, 5), (3, 10)]));
        assert!(!epochs.truncate_from_start(Offset(5)));
        assert!(epochs.truncate_from_start(Offset(7)));
        assert_eq!(epochs, cache(&[(1, 7), (3, 10)]));
        assert!(epochs.truncate_from_start(Offset(12)));
        assert_eq!(epochs, cache(&[(3, 12)]));
        assert_eq!(epochs.epoch_of(Offset(11)), None);
        assert_eq!(epochs.epoch_of(Offset(12)), Some(LeaderEpoch(3)));
    }
}
