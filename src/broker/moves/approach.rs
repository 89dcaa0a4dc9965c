//! Whether a copy comes close enough to its log to take its place: how much its shard is asked to hand over, and when somebody should
//! hear that a move does not come to an end. Pure.
//!
//! Invariant: whatever is appended between two looks, up to what a shard may hand over at all, the move ends.

use super::super::promotion::MISSING_MAX;
use crate::types::MonotonicMs;

/// What a copy may lack of a log to which much is appended, when nothing less was ever missing. Its shard waits while so much is
/// copied and synced, and must not be taken for one that hangs.
const MISSING_SOON: usize = 2 << 20;
/// The same when that has not been enough so often.
pub(super) const MISSING_AT_LAST: usize = 32 << 20;
const PATIENCE: u32 = 8;
/// How long a copy may come no closer until that is told; each time twice as long, up to a limit.
const NO_CLOSER_MS: i64 = 60_000;
const NO_CLOSER_MAX_MS: i64 = 3_600_000;

#[derive(Debug)]
pub(super) struct Approach {
    missing_max: usize,
    /// How often the shard has found it too far behind since that grew last.
    refused: u32,
    /// When it was last looked how many records are missing, and how many those were.
    looked: Option<(MonotonicMs, i64)>,
    tells_after_ms: i64,
}

impl Approach {
    pub fn new() -> Approach {
        Approach { missing_max: MISSING_MAX, refused: 0, looked: None, tells_after_ms: NO_CLOSER_MS }
    }

    /// So much may be missing of the copy when it takes over.
    pub fn missing_max(&self) -> usize {
        self.missing_max
    }

    /// The shard has found more missing. `true` when that should be told: it is going to keep its shard longer than others.
    pub fn refused(&mut self) -> bool {
        self.refused += 1;
        if self.missing_max >= MISSING_SOON && self.refused < PATIENCE {
            return false;
        }
        let before = self.missing_max;
        (self.missing_max, self.refused) = ((before * 2).min(MISSING_AT_LAST), 0);
        before == MISSING_SOON || before == MISSING_AT_LAST
    }

    /// So many records are missing now. `true` when that should be told, for it were no more long ago.
    pub fn lacks(&mut self, records: i64, now: MonotonicMs) -> bool {
        let Some((then, before)) = self.looked else {
            self.looked = Some((now, records));
            return false;
        };
        if now.since(then) < self.tells_after_ms {
            return false;
        }
        self.looked = Some((now, records));
        let is_closer = records == 0 || records < before;
        let longer = (self.tells_after_ms * 2).min(NO_CLOSER_MAX_MS);
        self.tells_after_ms = if is_closer { NO_CLOSER_MS } else { longer };
        !is_closer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whenever the shard looks, as much was appended since the copy was last brought up to the log.
    #[test]
    fn a_move_ends_however_much_comes_between_two_looks() {
        for appended in (0..=MISSING_AT_LAST).step_by(100_000).chain([MISSING_AT_LAST]) {
            let mut approach = Approach::new();
            let looks = (1..100).find(|_| {
                approach.missing_max() >= appended || {
                    approach.refused();
                    false
                }
            });
            assert!(looks.is_some(), "{appended}");
            // Nobody waits for more than is needed, but where looks are few.
            assert!(appended > MISSING_SOON || approach.missing_max() < (2 * appended).max(MISSING_MAX + 1));
        }
    }

    #[test]
    fn it_is_told_when_a_shard_is_going_to_be_kept_long_and_when_even_that_is_too_little() {
        let mut approach = Approach::new();
        let mut told = Vec::new();
        for _ in 0..200 {
            if approach.refused() {
                told.push(approach.missing_max());
            }
        }
        assert_eq!(told[0], 2 * MISSING_SOON);
        // Now and then, so that it is not forgotten.
        assert!(told.len() > 2 && told.len() < 30, "{}", told.len());
        assert!(approach.missing_max() == MISSING_AT_LAST);
    }

    #[test]
    fn a_copy_that_comes_no_closer_is_told_of_more_and_more_seldom() {
        let mut approach = Approach::new();
        let minutes = |minutes: i64| MonotonicMs(minutes * 60_000);
        let told: Vec<i64> = (0..32).filter(|at| approach.lacks(1000 + at, minutes(*at))).collect();
        assert_eq!(told, [1, 3, 7, 15, 31]);
        assert!(!approach.lacks(10, minutes(63)), "it has come closer");
        assert!(approach.lacks(10, minutes(64)));
        assert!(!approach.lacks(0, minutes(66)), "nothing is missing");
        assert!(!approach.lacks(0, minutes(67)));
    }
}
