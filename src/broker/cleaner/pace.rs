//! How fast compaction may read and write, all threads together (`log.cleaner.io.max.bytes.per.second`). Only the arithmetic:
//! somebody else sleeps.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So much may be spent at once before anybody has to wait, as time at the rate that is allowed.
const BURST: Duration = Duration::from_millis(300);

#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When what was spent so far would have been spent, at the rate.
    paid_at: Mutex<Option<Instant>>,
}

impl Pace {
    /// So many bytes were read or written at `now`. Returns how long to wait before more are.
    pub(super) fn spend(&self, bytes: usize, per_second: f64, now: Instant) -> Duration {
        let mut paid_at = self.paid_at.lock().unwrap_or_else(PoisonError::into_inner);
        let cost = bytes as f64 / per_second.max(1.0);
        // A rate so high that nothing can exceed it costs no time, and one so low that it would never end is waited for in pieces.
        let cost = Duration::try_from_secs_f64(cost.min(60.0)).unwrap_or_default();
        let paid = paid_at.map_or(now, |paid| paid.max(now)) + cost;
        *paid_at = Some(paid);
        paid.saturating_duration_since(now).saturating_sub(BURST)
    }

    /// Nothing is owed any more.
    pub(super) fn forgive(&self) {
        *self.paid_at.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_takes_its_time() {
        let (pace, start) = (Pace::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        // 1000 bytes a second, and a little at once.
        assert_eq!(pace.spend(200, 1000.0, start), Duration::ZERO);
        assert_eq!(pace.spend(300, 1000.0, start), Duration::from_millis(200));
        assert_eq!(pace.spend(100, 1000.0, at(200)), Duration::from_millis(100));
        // What was not spent is not saved up.
        assert_eq!(pace.spend(1300, 1000.0, at(60_000)), Duration::from_millis(1000));
        // The rate may change any time.
        assert_eq!(pace.spend(1000, 1e6, at(61_300)), Duration::ZERO);
    }

    #[test]
    fn no_rate_is_too_high_or_too_low() {
        let (pace, start) = (Pace::default(), Instant::now());
        for _ in 0..100 {
            assert_eq!(pace.spend(usize::MAX >> 20, f64::MAX, start), Duration::ZERO);
        }
        for rate in [0.0, -1.0, f64::NAN, f64::MIN_POSITIVE] {
            let waits = Pace::default().spend(usize::MAX, rate, start);
            assert!(waits > Duration::from_secs(50) && waits <= Duration::from_secs(60), "{rate}: {waits:?}");
        }
    }
}
