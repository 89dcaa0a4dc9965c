//! A limit on the bytes per second of throttled replication. Bytes are counted when they have moved, so one request may exceed
//! the limit; then nothing moves until the average is back under it.
//!
//! Knows no partitions and no clock. Invariant: over any time that is long against a second, no more than the rate passes.

use crate::types::MonotonicMs;

/// So much at the full rate may pass at once.
const BURST_MS: i64 = 1_000;

#[derive(Debug, Default)]
pub struct Throttle {
    /// Bytes per second; `None`: no limit.
    rate: Option<i64>,
    /// What passed and is not paid off at the rate, in bytes times a thousand.
    debt: i64,
    at: MonotonicMs,
}

impl Throttle {
    /// Takes the limit as it is now, and pays off what the time since has paid.
    pub fn update(&mut self, rate: Option<i64>, now: MonotonicMs) {
        let paid = self.rate.unwrap_or(0).saturating_mul(now.since(self.at).max(0));
        self.debt = self.debt.saturating_sub(paid).max(0);
        (self.rate, self.at) = (rate, now);
        if rate.is_none() {
            self.debt = 0;
        }
    }

    /// So many bytes have moved.
    pub fn record(&mut self, bytes: usize) {
        if self.rate.is_some() {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            self.debt = self.debt.saturating_add(bytes.saturating_mul(1_000));
        }
    }

    /// How long nothing may move, if it may not; as of the last update. A limit of 0 lets nothing pass at all.
    pub fn exceeded_for_ms(&self) -> Option<i64> {
        let rate = self.rate?;
        if rate == 0 {
            return Some(BURST_MS);
        }
        let over = self.debt.saturating_sub(rate.saturating_mul(BURST_MS));
        (over > 0).then(|| over / rate + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_passes_than_the_rate_allows() {
        let mut throttle = Throttle::default();
        throttle.record(1 << 40);
        throttle.update(None, MonotonicMs(10));
        assert_eq!(throttle.exceeded_for_ms(), None);
        let (mut passed, mut now) = (0, MonotonicMs(10));
        throttle.update(Some(1_000), now);
        while now.0 < 60_010 {
            throttle.update(Some(1_000), now);
            match throttle.exceeded_for_ms() {
                Some(pause) => now = now.plus(pause),
                None => {
                    throttle.record(700);
                    passed += 700;
                    now = now.plus(1);
                }
            }
        }
        assert!((60_000..62_000).contains(&passed), "{passed}");
        throttle.update(Some(0), now);
        assert!(throttle.exceeded_for_ms().is_some(), "nothing at all");
        throttle.update(None, now);
        assert_eq!(throttle.exceeded_for_ms(), None);
    }
}
