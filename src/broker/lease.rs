//! Until when this broker may take itself for unfenced. An answered heartbeat renews it; a process that was stopped for a
//! while, or is cut off from the active controller, finds that it has run out, before anybody tells it that others lead its
//! partitions now. The clock by which that is judged goes on while the host sleeps (`clock::monotonic`).
//!
//! Invariant: it reaches to [`LEASE_MS`] after the last answered heartbeat was *sent*, which is less than the controller
//! waits before it fences a silent broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::types::MonotonicMs;

/// How long one answered heartbeat holds.
pub use crate::metadata::liveness::LEASE_MS;

/// Cheap to clone; all clones are the same lease.
#[derive(Clone, Debug)]
pub struct Lease(Arc<AtomicI64>);

impl Lease {
    /// One that has run out.
    pub fn expired() -> Lease {
        Lease(Arc::new(AtomicI64::new(i64::MIN)))
    }

    /// One that never runs out, for a broker that nobody fences.
    pub fn forever() -> Lease {
        Lease(Arc::new(AtomicI64::new(i64::MAX)))
    }

    /// A heartbeat that was sent at this time has been answered: the broker is unfenced.
    pub fn renew(&self, sent: MonotonicMs) {
        self.0.fetch_max(sent.plus(LEASE_MS).0, Ordering::Relaxed);
    }

    /// The broker is fenced, as it has been told.
    pub fn revoke(&self) {
        self.0.store(i64::MIN, Ordering::Relaxed);
    }

    pub fn holds(&self, now: MonotonicMs) -> bool {
        now.0 < self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_from_when_the_heartbeat_was_sent() {
        let lease = Lease::expired();
        assert!(!lease.holds(MonotonicMs(0)));
        lease.renew(MonotonicMs(1_000));
        lease.renew(MonotonicMs(500));
        assert!(lease.holds(MonotonicMs(2_999)) && !lease.holds(MonotonicMs(3_000)));
        lease.revoke();
        assert!(!lease.holds(MonotonicMs(1_000)));
        assert!(Lease::forever().holds(MonotonicMs(i64::MAX - 1)));
    }
}
