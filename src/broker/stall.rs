//! How long the disk has kept this broker waiting. A thread that calls the disk says when it begins and when it is done; whoever
//! beats looks at the longest call that has not returned, and judges whether the disk has stalled.
//!
//! A disk that fails says so, and its directory goes out of service. One that stalls says nothing: heartbeats go on, and the
//! broker would lead partitions that take no records. Must not know what is called. Invariant: a broker that has stalled is
//! well again only when the disk has answered swiftly for a while, so that leadership does not come and go. That is longer
//! each time that it stalls again soon, unless partitions take no records without this broker.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::clock;
use crate::types::MonotonicMs;

/// What a slot says while its thread waits for nothing.
const IDLE: i64 = i64::MAX;

/// All threads that call the disk. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct DiskWaits {
    slots: Arc<Mutex<Vec<Weak<AtomicI64>>>>,
}

/// A thread's place among them.
#[derive(Debug)]
pub struct Slot(Arc<AtomicI64>);

/// A call that has not returned.
#[derive(Debug)]
#[must_use]
pub struct Waiting(Arc<AtomicI64>);

impl DiskWaits {
    /// For one thread, as long as it lives.
    pub fn slot(&self) -> Slot {
        let slot = Arc::new(AtomicI64::new(IDLE));
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|slot| slot.strong_count() > 0);
        slots.push(Arc::downgrade(&slot));
        Slot(slot)
    }

    /// For how many milliseconds the oldest call has not returned, 0 if there is none.
    pub fn longest(&self, now: MonotonicMs) -> i64 {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = slots.iter().filter_map(Weak::upgrade).map(|slot| slot.load(Ordering::Relaxed));
        begun.min().filter(|begun| *begun != IDLE).map_or(0, |begun| now.since(MonotonicMs(begun)).max(0))
    }
}

impl Slot {
    /// One that nobody looks at.
    pub fn unwatched() -> Slot {
        Slot(Arc::new(AtomicI64::new(IDLE)))
    }

    /// A call begins, which ends when what comes back is dropped.
    pub fn begin(&self) -> Waiting {
        self.begin_at(clock::monotonic())
    }

    pub fn begin_at(&self, now: MonotonicMs) -> Waiting {
        self.0.store(now.0, Ordering::Relaxed);
        Waiting(Arc::clone(&self.0))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(IDLE, Ordering::Relaxed);
    }
}

/// When the disk counts as stalled, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallLimits {
    /// A call takes so long.
    pub stalled_ms: i64,
    /// No call takes so long any more,
    pub calm_ms: i64,
    /// for all of this time.
    pub calm_for_ms: i64,
    /// When so much time is between two looks, it was this process that stood still, and the disk is not blamed for it.
    pub standstill_ms: i64,
}

impl Default for StallLimits {
    /// A broker that hangs is fenced after as long a time. Disks that are merely busy stay below it.
    fn default() -> StallLimits {
        StallLimits { stalled_ms: 2_500, calm_ms: 500, calm_for_ms: 5_000, standstill_ms: 1_500 }
    }
}

/// A disk that stalls again before it was well for so many times as long as it had to be calm must be calm for twice as long.
const RELAPSE_FACTOR: i64 = 12;
/// The longest that is asked of it, as a multiple of `calm_for_ms`.
const CALM_FACTOR_MAX: i64 = 8;

/// Judges from look to look.
#[derive(Debug)]
pub struct StallJudge {
    waits: DiskWaits,
    limits: StallLimits,
    has_stalled: bool,
    /// For how long the disk must be calm after this stall.
    calm_for_ms: i64,
    well_since: Option<MonotonicMs>,
    calm_since: Option<MonotonicMs>,
    last_look: Option<MonotonicMs>,
    /// Time before this does not count.
    excused_until: MonotonicMs,
}

impl StallJudge {
    pub fn new(waits: DiskWaits, limits: StallLimits) -> StallJudge {
        let excused_until = MonotonicMs(i64::MIN / 2);
        let calm_for_ms = limits.calm_for_ms;
        StallJudge {
            waits,
            limits,
            has_stalled: false,
            calm_for_ms,
            well_since: None,
            calm_since: None,
            last_look: None,
            excused_until,
        }
    }

    /// Whether the disk has stalled, as of now. `is_missed`: partitions take no records because this broker leads and follows
    /// nothing.
    pub fn look(&mut self, now: MonotonicMs, is_missed: impl FnOnce() -> bool) -> bool {
        let gap = self.last_look.replace(now).map_or(0, |last| now.since(last));
        if gap >= self.limits.standstill_ms {
            self.excused_until = now;
        }
        let longest = self.waits.longest(now).min(now.since(self.excused_until));
        if longest >= self.limits.stalled_ms {
            if !self.has_stalled {
                tracing::error!(
                    "The disk has not answered for {longest} ms: this broker asks that others lead until it does"
                );
                self.calm_for_ms = self.calm_to_show(now);
            }
            (self.has_stalled, self.calm_since) = (true, None);
        } else if self.has_stalled && longest >= self.limits.calm_ms {
            self.calm_since = None;
        } else if self.has_stalled {
            let calm_ms = now.since(*self.calm_since.get_or_insert(now));
            let is_well = calm_ms >= self.calm_for_ms;
            if is_well || calm_ms >= self.limits.calm_for_ms && is_missed() {
                tracing::info!("The disk answers again, so that this broker may lead");
                self.has_stalled = false;
                self.well_since = Some(now);
            }
        }
        self.has_stalled
    }

    /// For how long the disk must be calm after a stall that begins now.
    fn calm_to_show(&self, now: MonotonicMs) -> i64 {
        let has_relapsed =
            self.well_since.is_some_and(|since| now.since(since) < self.calm_for_ms * RELAPSE_FACTOR);
        let doubled = (self.calm_for_ms * 2).min(self.limits.calm_for_ms.saturating_mul(CALM_FACTOR_MAX));
        if has_relapsed { doubled } else { self.limits.calm_for_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: StallLimits =
        StallLimits { stalled_ms: 2_500, calm_ms: 500, calm_for_ms: 5_000, standstill_ms: 1_500 };

    /// A judge, and the time of its last look.
    struct Bench(StallJudge, i64, bool);

    impl Bench {
        /// Looks every quarter of a second up to this time: what the last look found.
        fn look_until(&mut self, until: i64) -> bool {
            while self.1 + 250 < until {
                self.1 += 250;
                self.0.look(MonotonicMs(self.1), || self.2);
            }
            self.1 = until;
            self.0.look(MonotonicMs(until), || self.2)
        }
    }

    #[test]
    fn a_stall_is_over_when_the_disk_has_been_swift_for_a_while() {
        let waits = DiskWaits::default();
        let (a, b) = (waits.slot(), waits.slot());
        let mut bench = Bench(StallJudge::new(waits.clone(), LIMITS), 0, false);
        let sync = a.begin_at(MonotonicMs(1_000));
        {
            let _append = b.begin_at(MonotonicMs(2_000));
            assert_eq!(waits.longest(MonotonicMs(3_000)), 2_000);
        }
        assert!(!bench.look_until(3_499) && bench.look_until(3_500));
        drop(sync);
        assert_eq!(waits.longest(MonotonicMs(4_000)), 0);
        assert!(bench.look_until(4_000) && bench.look_until(8_400));
        // A call that takes long begins the time anew.
        {
            let _sync = a.begin_at(MonotonicMs(8_100));
            assert!(bench.look_until(9_000));
        }
        assert!(bench.look_until(9_100) && bench.look_until(14_099));
        assert!(!bench.look_until(14_100) && !bench.look_until(20_000));
    }

    #[test]
    fn a_disk_that_stalls_again_and_again_must_be_calm_for_longer() {
        let waits = DiskWaits::default();
        let slot = waits.slot();
        let mut bench = Bench(StallJudge::new(waits.clone(), LIMITS), 0, false);
        // One stall after the other: for how long this broker led nothing after each.
        let mut stall = |after_ms: i64| {
            assert!(!bench.look_until(bench.1 + after_ms));
            let call = slot.begin_at(MonotonicMs(bench.1));
            assert!(bench.look_until(bench.1 + 3_000));
            drop(call);
            let over = bench.1;
            while bench.look_until(bench.1 + 250) {}
            bench.1 - over - 250
        };
        assert_eq!(
            [stall(1_000), stall(1_000), stall(10_000), stall(100_000)],
            [5_000, 10_000, 20_000, 40_000]
        );
        assert_eq!(stall(600_000), 5_000, "it was well for long");
    }

    #[test]
    fn a_broker_that_is_missed_is_back_sooner() {
        let waits = DiskWaits::default();
        let slot = waits.slot();
        let mut bench = Bench(StallJudge::new(waits.clone(), LIMITS), 0, false);
        let mut stall = |is_missed: bool| {
            bench.2 = is_missed;
            assert!(!bench.look_until(bench.1 + 1_000));
            let call = slot.begin_at(MonotonicMs(bench.1));
            assert!(bench.look_until(bench.1 + 3_000));
            drop(call);
            let over = bench.1;
            while bench.look_until(bench.1 + 250) {}
            bench.1 - over - 250
        };
        assert_eq!([stall(true), stall(true), stall(false), stall(true)], [5_000, 5_000, 20_000, 5_000]);
    }

    #[test]
    fn a_process_that_stood_still_does_not_blame_the_disk() {
        let waits = DiskWaits::default();
        let slot = waits.slot();
        let mut bench = Bench(StallJudge::new(waits.clone(), LIMITS), 0, false);
        assert!(!bench.look_until(1_000));
        let _sync = slot.begin_at(MonotonicMs(1_100));
        bench.1 = 10_000;
        assert!(!bench.look_until(10_001));
        assert!(!bench.look_until(12_500) && bench.look_until(12_501), "but this is the disk");
    }
}
