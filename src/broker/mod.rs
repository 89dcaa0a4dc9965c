//! Layer 3: drivers around the pure cores: shards, flushers, waiters, the reconciler.

pub mod clock;
pub mod messages;
pub mod reply;
pub mod waiters;

pub mod directory;
pub mod flusher;
pub mod mailbox;
pub mod partitions;
pub mod shard;
pub mod checkpoints;
pub mod dynamic_config;
pub mod loggers;

mod hosted;
mod ledger;
mod owed;

#[cfg(test)]
mod rig;
#[cfg(test)]
mod shard_tests;
