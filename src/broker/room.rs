//! Whether there is room for records in a log directory. Some of its file system is kept in reserve for what must go on when
//! it is full: the metadata log, checkpoints, the topics of coordinators, deletion.
//!
//! Must not know partitions or the disk: it is told how much is free. Invariants: while the reserve is touched, nothing is
//! admitted; an episode is told once when it begins and once when it ends.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::storage::disk::Space;
use crate::types::MonotonicMs;

/// Of a small file system no more than one part of so many is kept.
const RESERVE_PART_MAX: u64 = 10;
/// An episode ends when so much of the reserve is free beyond it, so that it does not end and begin all the time,
const MARGIN_PART: u64 = 10;
/// and so many times what found no room.
const MARGIN_TIMES: u64 = 2;
/// After a write that found no room although there should be some (a quota), nothing is tried for so long,
const HIT_PAUSE_MS: i64 = 2_000;
/// nor while less is free than this, or one part of so many of the file system,
const HIT_LEAST: u64 = 1 << 20;
const HIT_LEAST_PART: u64 = 100;
/// and for so long nothing must fail before the episode is over.
const TRIAL_MS: i64 = 5_000;

/// The room of one log directory.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// What is to be kept. 0 keeps nothing, and admits all.
    wanted: AtomicU64,
    /// What may be appended before the file system is asked again.
    credit: AtomicI64,
    is_short: AtomicBool,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Enough,
    /// Nothing is admitted: so many bytes found no room.
    Short { needed: u64 },
    /// Nothing is admitted, since a write has failed.
    Hit { at: MonotonicMs },
    /// A write has failed, and it is tried since when another would.
    Trial { since: MonotonicMs },
}

/// What an append may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Granted,
    Refused,
    /// How much is free must be measured first.
    Unknown,
}

/// An episode begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Short { free: u64, reserve: u64 },
    Enough { free: u64, reserve: u64 },
}

impl Room {
    /// Sets what is to be kept, in bytes.
    pub fn keep(&self, bytes: u64) {
        if self.wanted.swap(bytes, Ordering::Relaxed) != bytes {
            self.credit.store(0, Ordering::Relaxed);
        }
    }

    pub fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// Whether so many bytes may be written.
    pub fn admit(&self, bytes: usize) -> Admission {
        if self.wanted.load(Ordering::Relaxed) == 0 {
            return Admission::Granted;
        }
        if self.is_short() {
            return Admission::Refused;
        }
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        if self.credit.fetch_sub(bytes, Ordering::Relaxed) >= bytes {
            Admission::Granted
        } else {
            Admission::Unknown
        }
    }

    /// Takes in how much is free, with `needed` bytes to be written now.
    pub fn measured(&self, space: Space, needed: usize, now: MonotonicMs) -> Option<Turn> {
        let reserve = self.reserve(space);
        let free = space.free;
        let mut state = self.lock();
        let needed = needed as u64;
        let has_room = free >= reserve.saturating_add(needed);
        let is_worth_it = free >= HIT_LEAST.min(space.total / HIT_LEAST_PART);
        let before = *state;
        *state = match before {
            State::Enough | State::Trial { .. } if !has_room && reserve > 0 => State::Short { needed },
            State::Short { needed } if free >= reserve.saturating_add(margin(reserve, needed)) => {
                State::Enough
            }
            State::Hit { at } if has_room && is_worth_it && now.since(at) >= HIT_PAUSE_MS => {
                State::Trial { since: now }
            }
            State::Trial { since } if now.since(since) >= TRIAL_MS => State::Enough,
            same => same,
        };
        let credit = i64::try_from(free.saturating_sub(reserve)).unwrap_or(i64::MAX);
        self.credit.store(credit, Ordering::Relaxed);
        self.turn(before, *state, (free, reserve))
    }

    /// A write found no room.
    pub fn failed(&self, space: Space, now: MonotonicMs) -> Option<Turn> {
        let mut state = self.lock();
        let before = std::mem::replace(&mut *state, State::Hit { at: now });
        self.turn(before, *state, (space.free, self.reserve(space)))
    }

    /// Whether so many bytes fit at once. Changes nothing: who asks may need much more than records of clients do.
    pub fn fits(&self, space: Space, bytes: u64, may_use_reserve: bool) -> bool {
        let kept = if may_use_reserve { 0 } else { self.reserve(space) };
        space.free >= kept.saturating_add(bytes)
    }

    fn turn(&self, before: State, after: State, (free, reserve): (u64, u64)) -> Option<Turn> {
        let is_short = matches!(after, State::Short { .. } | State::Hit { .. });
        self.is_short.store(is_short, Ordering::Relaxed);
        match (before == State::Enough, after == State::Enough) {
            (true, false) => Some(Turn::Short { free, reserve }),
            (false, true) => Some(Turn::Enough { free, reserve }),
            _ => None,
        }
    }

    fn reserve(&self, space: Space) -> u64 {
        self.wanted.load(Ordering::Relaxed).min(space.total / RESERVE_PART_MAX)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What must be free beyond the reserve for an episode to end: never more than the reserve again, for one that needs very much
/// must not hold up those who need little.
fn margin(reserve: u64, needed: u64) -> u64 {
    (reserve / MARGIN_PART).max(needed.saturating_mul(MARGIN_TIMES).min(reserve))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: MonotonicMs = MonotonicMs(1_000);

    fn free(free: u64) -> Space {
        Space { total: 10_000, free }
    }

    fn room(keep: u64) -> Room {
        let room = Room::default();
        room.keep(keep);
        room
    }

    #[test]
    fn the_reserve_is_not_touched_and_an_episode_is_told_once() {
        let room = room(500);
        assert_eq!(room.admit(1), Admission::Unknown, "nothing was measured yet");
        assert_eq!(room.measured(free(700), 1, NOW), None);
        assert_eq!((room.admit(180), room.admit(21)), (Admission::Granted, Admission::Unknown));
        assert_eq!(room.measured(free(520), 21, NOW), Some(Turn::Short { free: 520, reserve: 500 }));
        assert_eq!((room.admit(1), room.is_short()), (Admission::Refused, true));
        // Not before there is a little more than the reserve.
        for not_enough in [0, 499, 549] {
            assert_eq!(room.measured(free(not_enough), 0, NOW), None);
            assert_eq!(room.admit(1), Admission::Refused);
        }
        assert_eq!(room.measured(free(550), 0, NOW), Some(Turn::Enough { free: 550, reserve: 500 }));
        assert_eq!((room.admit(50), room.admit(1)), (Admission::Granted, Admission::Unknown));
    }

    #[test]
    fn what_fits_at_once_is_told_without_an_episode() {
        let room = room(500);
        assert!(room.fits(free(700), 200, false) && !room.fits(free(700), 201, false));
        assert!(room.fits(free(700), 700, true) && !room.fits(free(700), 701, true));
        assert!(!room.is_short());
    }

    #[test]
    fn somebody_else_fills_the_disk_between_two_appends() {
        let room = room(500);
        assert_eq!(room.measured(free(9_000), 0, NOW), None);
        assert_eq!(room.measured(free(400), 0, NOW), Some(Turn::Short { free: 400, reserve: 500 }));
        assert_eq!(room.admit(1), Admission::Refused);
    }

    /// Otherwise what needs much would find none again and again, and each time be told.
    #[test]
    fn an_episode_ends_when_there_is_room_for_what_found_none() {
        let room = room(500);
        assert_eq!(room.measured(free(700), 1, NOW), None);
        assert_eq!(room.admit(201), Admission::Unknown);
        assert!(room.measured(free(700), 201, NOW).is_some());
        for not_enough in [600, 700, 901] {
            assert_eq!(room.measured(free(not_enough), 0, NOW), None);
            assert!(room.is_short());
        }
        assert_eq!(room.measured(free(902), 0, NOW), Some(Turn::Enough { free: 902, reserve: 500 }));
    }

    #[test]
    fn who_needs_very_much_does_not_hold_up_the_others() {
        let room = room(500);
        assert_eq!(room.measured(free(900), 1, NOW), None);
        assert!(room.measured(free(900), 5_000, NOW).is_some());
        assert_eq!(room.measured(free(999), 0, NOW), None);
        assert_eq!(room.measured(free(1_000), 0, NOW), Some(Turn::Enough { free: 1_000, reserve: 500 }));
    }

    #[test]
    fn a_small_file_system_keeps_a_tenth_at_most() {
        let room = room(1 << 30);
        assert_eq!(room.measured(free(1_001), 0, NOW), None);
        assert_eq!(room.measured(free(999), 0, NOW), Some(Turn::Short { free: 999, reserve: 1_000 }));
    }

    #[test]
    fn without_a_reserve_everything_is_tried() {
        let room = room(0);
        assert_eq!(room.admit(usize::MAX), Admission::Granted);
        assert_eq!(room.measured(free(0), 0, NOW), None);
        assert_eq!(room.failed(free(0), NOW), Some(Turn::Short { free: 0, reserve: 0 }));
        assert_eq!((room.failed(free(0), NOW), room.admit(1)), (None, Admission::Granted));
        // However long nobody tries, it is not over while nothing is free.
        let mut now = NOW;
        for _ in 0..5 {
            now = now.plus(HIT_PAUSE_MS + TRIAL_MS);
            assert_eq!(room.measured(free(99), 0, now), None);
        }
        assert_eq!(room.measured(free(100), 0, now), None);
        let over = room.measured(free(100), 0, now.plus(TRIAL_MS));
        assert_eq!(over, Some(Turn::Enough { free: 100, reserve: 0 }));
    }

    /// A quota says of nobody how much is left.
    #[test]
    fn writes_that_fail_although_there_is_room_are_tried_again_at_a_calm_pace() {
        let room = room(500);
        assert_eq!(room.measured(free(9_000), 0, NOW), None);
        let told = room.failed(free(9_000), NOW);
        assert_eq!(told, Some(Turn::Short { free: 9_000, reserve: 500 }));
        let mut now = NOW;
        for _ in 0..3 {
            assert_eq!(room.measured(free(9_000), 0, now), None);
            assert_eq!(room.admit(1), Admission::Refused);
            now = now.plus(HIT_PAUSE_MS);
            assert_eq!(room.measured(free(9_000), 0, now), None);
            assert_eq!(room.admit(1), Admission::Granted);
            assert_eq!(room.failed(free(9_000), now), None, "it is the same episode");
        }
        now = now.plus(HIT_PAUSE_MS);
        assert_eq!(room.measured(free(9_000), 0, now), None);
        let over = room.measured(free(9_000), 0, now.plus(TRIAL_MS));
        assert_eq!(over, Some(Turn::Enough { free: 9_000, reserve: 500 }));
    }

    #[test]
    fn what_is_kept_can_be_changed() {
        let room = room(500);
        assert_eq!(room.measured(free(600), 0, NOW), None);
        room.keep(700);
        assert_eq!(room.admit(1), Admission::Unknown);
        assert!(room.measured(free(600), 0, NOW).is_some());
        room.keep(100);
        assert_eq!(room.measured(free(600), 0, NOW), Some(Turn::Enough { free: 600, reserve: 100 }));
    }
}
