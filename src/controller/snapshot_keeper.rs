//! When snapshots are taken: after so many bytes of log, and when the last one has reached an age and lacks changes.
//!
//! Knows nothing of what is in them. Invariant: of what has changed, nothing is missing in the newest snapshot for longer
//! than the interval, as long as snapshots succeed; and none is taken of what has not changed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::controller::raft_store::LogStore;
use crate::controller::raft_types::Raft;
use crate::controller::state_machine::Published;

/// What leads to a snapshot, whichever comes first.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotLimits {
    /// `metadata.log.max.record.bytes.between.snapshots`.
    pub bytes: u64,
    /// `metadata.log.max.snapshot.interval.ms`; `None` for no limit.
    pub interval: Option<Duration>,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        SnapshotLimits { bytes: 20 << 20, interval: Some(Duration::from_secs(3600)) }
    }
}

/// What has happened since the last snapshot. A start counts as one: it has read all there is.
struct Schedule {
    limits: SnapshotLimits,
    last_at: Instant,
    last_bytes: u64,
    changed: bool,
}

impl Schedule {
    /// When a snapshot is due because of its age, if nothing else happens.
    fn due_at(&self) -> Option<Instant> {
        // An age beyond what the clock can tell is never reached.
        self.limits.interval.filter(|_| self.changed).and_then(|interval| self.last_at.checked_add(interval))
    }

    /// Whether a snapshot is to be taken; if so, it counts as taken. `bytes` is how far the log has grown.
    fn take(&mut self, now: Instant, bytes: u64) -> bool {
        let full = self.changed && bytes.saturating_sub(self.last_bytes) >= self.limits.bytes;
        let old = self.due_at().is_some_and(|due| due <= now);
        if full || old {
            *self = Schedule { limits: self.limits, last_at: now, last_bytes: bytes, changed: false };
        }
        full || old
    }
}

/// Takes snapshots until the node stops.
pub async fn keep_snapshots(raft: Raft, store: LogStore, published: Arc<Published>, limits: SnapshotLimits) {
    let mut images = published.subscribe();
    drop(published);
    let mut schedule = Schedule { limits, last_at: Instant::now(), last_bytes: 0, changed: false };
    loop {
        let wait = async {
            match schedule.due_at() {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = images.changed() => match changed {
                Ok(()) => schedule.changed = true,
                Err(_) => return,
            },
            () = wait => {}
        }
        if schedule.take(Instant::now(), store.log_bytes()) && raft.trigger().snapshot().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_and_age_lead_to_snapshots_of_what_has_changed() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let limits = SnapshotLimits { bytes: 100, interval: Some(Duration::from_secs(60)) };
        let mut schedule = Schedule { limits, last_at: start, last_bytes: 0, changed: false };
        assert_eq!((schedule.due_at(), schedule.take(at(600), 0)), (None, false), "nothing has changed");
        schedule.changed = true;
        assert!(!schedule.take(at(59), 99));
        assert_eq!(schedule.due_at(), Some(at(60)));
        assert!(schedule.take(at(60), 99), "the age is reached");
        assert!(!schedule.take(at(600), 99), "once");
        schedule.changed = true;
        assert!(schedule.take(at(601), 199), "the last one is old already");
        schedule.changed = true;
        assert!(!schedule.take(at(602), 298));
        assert!(schedule.take(at(602), 299), "the log has grown");
        schedule.limits.interval = None;
        schedule.changed = true;
        assert_eq!((schedule.due_at(), schedule.take(at(9999), 299)), (None, false), "no limit of age");
        schedule.limits.interval = Some(Duration::MAX);
        assert_eq!((schedule.due_at(), schedule.take(at(9999), 299)), (None, false));
    }
}
