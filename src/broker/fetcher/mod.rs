//! Replication from the follower's side: for each broker that leads partitions which this one follows, what to ask and what its
//! answers mean ([`core`], [`requests`], [`answers`]), and the connections that carry it ([`driver`]).
//!
//! Must not know logs: the shards decide what a follower wants and what an answer does to it. Invariant: a partition is asked
//! for by one request at a time, and never before its shard has dealt with the answer before.

mod answers;
pub mod core;
pub mod driver;
mod requests;
#[cfg(test)]
mod core_tests;
