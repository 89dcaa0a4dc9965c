//! Layer 3: drivers around the pure cores: the only place where cores meet threads and disk.
//!
//! In reading order: `messages` (what shards are asked), `shard` with `hosted` and `following` (a partition's log and core joined),
//! `owed`, `turned_away`, `ledger` and `outbox`; `mailbox` (its thread), `flusher` and `directory`; `partitions` (where handlers find a partition),
//! `read_replicas`, `serving` and `waiters`; `coordinators` with `transactions`, put together in `coordination`; then what follows the metadata: `settings`, `dynamic_config`, `log_dirs`, `reconciler`, `moves` (of replicas between log directories), `assignments`, `lifecycle`,
//! `producer_ids`; and `start`, which puts it together.

pub mod clock;
mod blocking;
pub mod reply;
pub mod waiters;
pub mod messages;

pub mod shard;
mod hosted;
pub mod hurries;
mod following;
mod damaged;
pub mod mending;
pub mod repairs;
mod upkeep;
mod turned_away;
mod promotion;
pub mod outbox;
mod owed;
mod ledger;
pub mod mailbox;
pub mod flusher;
pub mod directory;
mod room;
pub mod partitions;
pub mod read_replicas;
pub mod serving;
pub mod fetcher;
pub mod isr_changes;
pub mod coordination;
pub mod coordinators;
pub mod throttles;
pub mod transactions;
pub mod checkpoints;
pub mod retention;
pub mod cleaner;

pub mod settings;
pub mod dynamic_config;
pub mod loggers;
pub mod log_dirs;
pub mod assignments;
pub mod moves;
pub mod reconciler;
pub mod duty_settings;
pub mod controller_channel;
pub mod peer_silence;
pub mod departures;
pub mod lease;
pub mod lifecycle;
pub mod producer_ids;
pub mod stall;
pub mod readiness;
pub mod start;

#[cfg(test)]
mod rig;
#[cfg(test)]
mod room_tests;
#[cfg(test)]
mod shard_tests;
#[cfg(test)]
mod replication_tests;
#[cfg(test)]
mod damaged_tests;
#[cfg(test)]
mod sick_reads_tests;
#[cfg(test)]
mod dynamic_law_tests;
#[cfg(test)]
mod start_tests;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod log_dirs_tests;
#[cfg(test)]
mod promotion_tests;
