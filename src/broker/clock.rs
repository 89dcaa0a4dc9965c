//! The clock of the drivers: wall time for records, monotonic time for deadlines. Cores get both as arguments.
//!
//! A simulation sets the clock of its thread; then no time passes by itself.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::types::{MonotonicMs, TimestampMs};

/// One moment on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    pub wall: TimestampMs,
    pub monotonic: MonotonicMs,
}

impl Now {
    /// What the operating system's clocks show.
    pub fn system() -> Now {
        Now { wall: wall(), monotonic: monotonic() }
    }
}

#[cfg(test)]
thread_local! {
    static SIMULATED: std::cell::Cell<Option<Now>> = const { std::cell::Cell::new(None) };
}

/// The time that a simulation has set on this thread.
#[cfg(test)]
pub(crate) fn simulated() -> Option<Now> {
    SIMULATED.get()
}

#[cfg(not(test))]
pub(crate) const fn simulated() -> Option<Now> {
    None
}

/// Sets the clock of this thread, or gives it back to the operating system.
#[cfg(test)]
pub(crate) fn simulate(now: Option<Now>) {
    SIMULATED.set(now);
}

/// The wall clock.
pub fn wall() -> TimestampMs {
    if let Some(now) = simulated() {
        return now.wall;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// The clock that never goes back; it starts at zero when it is first asked. It goes on while the machine sleeps: others do not
/// wait for a broker whose host was suspended, and it must not take itself for the leader that it was.
pub fn monotonic() -> MonotonicMs {
    if let Some(now) = simulated() {
        return now.monotonic;
    }
    static START: OnceLock<i64> = OnceLock::new();
    let now = since_boot_ms();
    MonotonicMs(now.saturating_sub(*START.get_or_init(|| now)).max(0))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_boot_ms() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec / 1_000_000)
}

/// Elsewhere the clock may stand while the machine sleeps.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn since_boot_ms() -> i64 {
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    i64::try_from(START.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(i64::MAX)
}

/// Waits. A simulation is told until when, and asks again by then.
pub async fn sleep(time: Duration) {
    #[cfg(test)]
    if simulated().is_some() {
        return simulation::pass(time).await;
    }
    tokio::time::sleep(time).await;
}

/// Waiting by the clock of a simulation.
#[cfg(test)]
pub(crate) mod simulation {
    use std::cell::RefCell;
    use std::task::Poll;
    use std::time::Duration;

    use super::{MonotonicMs, monotonic};

    thread_local! {
        static WAITED_FOR: RefCell<Vec<MonotonicMs>> = const { RefCell::new(Vec::new()) };
    }

    /// The moments that have been waited for in vain since this was last asked.
    pub(crate) fn take_waited_for() -> Vec<MonotonicMs> {
        WAITED_FOR.take()
    }

    pub(super) async fn pass(time: Duration) {
        let until = monotonic().plus(i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
        std::future::poll_fn(|_| {
            if until <= monotonic() {
                return Poll::Ready(());
            }
            WAITED_FOR.with_borrow_mut(|waited_for| waited_for.push(until));
            Poll::Pending
        })
        .await;
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// `/proc/uptime` counts the time in which the machine slept.
    #[test]
    fn it_counts_the_time_since_the_machine_was_started() {
        let uptime_ms = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            let (seconds, hundredths) = text.split(' ').next().unwrap().split_once('.').unwrap();
            seconds.parse::<i64>().unwrap() * 1000 + hundredths.parse::<i64>().unwrap() * 10
        };
        let (before, now, after) = (uptime_ms(), since_boot_ms(), uptime_ms());
        assert!(before <= now && now < after + 10, "{before} {now} {after}");
        let earlier = monotonic();
        assert!(earlier <= monotonic());
    }
}
