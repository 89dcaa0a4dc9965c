//! The clock of the drivers: wall time for records, monotonic time for deadlines. Cores get both as arguments.
//!
//! A simulation sets the clock of its thread; then no time passes by itself.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

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

/// The clock that never goes back; it starts at zero when it is first asked.
pub fn monotonic() -> MonotonicMs {
    if let Some(now) = simulated() {
        return now.monotonic;
    }
    static START: OnceLock<Instant> = OnceLock::new();
    MonotonicMs(i64::try_from(START.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(i64::MAX))
}
