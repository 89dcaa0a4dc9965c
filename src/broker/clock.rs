//! The clock of the drivers: wall time for records, monotonic time for deadlines. Cores get both as arguments.

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

/// The wall clock.
pub fn wall() -> TimestampMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// The clock that never goes back; it starts at zero when it is first asked.
pub fn monotonic() -> MonotonicMs {
    static START: OnceLock<Instant> = OnceLock::new();
    MonotonicMs(i64::try_from(START.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(i64::MAX))
}
