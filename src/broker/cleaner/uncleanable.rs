//! What cannot be compacted at the moment, by log directory, in the terms of Kafka's metrics; and when it is told.
//!
//! Must not know why it cannot. Invariant: a log counts from the first failure to the next success.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use crate::types::MonotonicMs;

/// How often it is told, while there is any.
const TELL_EVERY_MS: i64 = 300_000;

/// Of one log directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uncleanable {
    /// `uncleanable-partitions-count`
    pub partitions: usize,
    /// `uncleanable-bytes`: what waits for compaction in them.
    pub bytes: u64,
}

/// The same of every log directory that has such logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UncleanableByDir(pub BTreeMap<PathBuf, Uncleanable>);

impl UncleanableByDir {
    pub(super) fn add(&mut self, dir: PathBuf, bytes: u64) {
        let of_dir = self.0.entry(dir).or_default();
        of_dir.partitions += 1;
        of_dir.bytes += bytes;
    }
}

impl fmt::Display for UncleanableByDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (dir, Uncleanable { partitions, bytes })) in self.0.iter().enumerate() {
            let gap = if at > 0 { "; " } else { "" };
            write!(f, "{gap}{dir}: {partitions} partitions, {bytes} bytes", dir = dir.display())?;
        }
        Ok(())
    }
}

/// When it is told next. Whoever fails has told of it, so not at once.
#[derive(Debug, Default)]
pub(super) struct Telling {
    next: Option<MonotonicMs>,
}

impl Telling {
    pub(super) fn is_due(&mut self, has_any: bool, now: MonotonicMs) -> bool {
        let is_due = has_any && self.next.is_some_and(|next| next <= now);
        if !has_any {
            self.next = None;
        } else if is_due || self.next.is_none() {
            self.next = Some(now.plus(TELL_EVERY_MS));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_now_and_then_while_there_is_any() {
        let mut telling = Telling::default();
        let mut is_due = |has_any, at| telling.is_due(has_any, MonotonicMs(at));
        assert!(!is_due(false, 0) && !is_due(true, 10), "the failure itself was told");
        assert!(!is_due(true, TELL_EVERY_MS + 9) && is_due(true, TELL_EVERY_MS + 10));
        assert!(!is_due(true, TELL_EVERY_MS + 11) && is_due(true, 2 * TELL_EVERY_MS + 10));
        assert!(!is_due(false, 3 * TELL_EVERY_MS) && !is_due(true, 9 * TELL_EVERY_MS), "they are others");
        assert!(is_due(true, 10 * TELL_EVERY_MS));
    }

    #[test]
    fn each_directory_has_its_own() {
        let mut all = UncleanableByDir::default();
        for (dir, bytes) in [("/b", 7), ("/a", 1), ("/b", 3)] {
            all.add(dir.into(), bytes);
        }
        assert_eq!(all.0[&PathBuf::from("/b")], Uncleanable { partitions: 2, bytes: 10 });
        assert_eq!(all.to_string(), "/a: 1 partitions, 1 bytes; /b: 2 partitions, 10 bytes");
    }
}
