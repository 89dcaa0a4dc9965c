//! Layer 3: drivers around the pure cores: shards, flushers, waiters, the reconciler.

pub mod clock;
pub mod reply;
pub mod waiters;
