//! Work that blocks on the disk, kept away from the tasks that must not.
//!
//! Invariant: in a simulation there is one thread, so the work is done at once.

use super::clock;

/// Runs what blocks on a thread that may.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    if clock::simulated().is_some() {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going away, and whoever waits here with it.
            Err(_) => std::future::pending().await,
        },
    }
}

/// How many threads may share some work.
pub(super) fn threads(wanted: usize) -> usize {
    if clock::simulated().is_some() { 1 } else { wanted }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::super::clock::{self, Now};
    use super::{blocking, threads};
    use crate::types::{MonotonicMs, TimestampMs};

    #[test]
    fn a_simulation_has_one_thread_and_its_own_time() {
        let now = Now { wall: TimestampMs(7), monotonic: MonotonicMs(5) };
        clock::simulate(Some(now));
        assert_eq!(Now::system(), now);
        assert_eq!(blocking(clock::wall).now_or_never(), Some(TimestampMs(7)));
        assert_eq!(threads(16), 1);
        clock::simulate(None);
        assert_ne!(clock::wall(), TimestampMs(7));
        assert_eq!(threads(16), 16);
    }
}
