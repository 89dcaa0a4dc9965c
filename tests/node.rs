//! A whole node in this process, asked over sockets: every API in every version that is served, connections and their
//! limits, and what produce, fetch and the admin requests answer.

#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

#[path = "node/admin.rs"]
mod admin;
#[path = "node/brokers.rs"]
mod brokers;
#[path = "node/client.rs"]
mod client;
#[path = "node/cluster_admin.rs"]
mod cluster_admin;
#[path = "node/connection.rs"]
mod connection;
#[path = "node/consumer_groups.rs"]
mod consumer_groups;
#[path = "node/fetch.rs"]
mod fetch;
#[path = "wire/files.rs"]
#[allow(dead_code, reason = "the snapshots are for the tests of the wire")]
mod files;
#[path = "node/follower_fetching.rs"]
mod follower_fetching;
#[path = "node/groups.rs"]
mod groups;
#[path = "node/harness.rs"]
mod harness;
#[path = "node/log_dirs.rs"]
mod log_dirs;
#[path = "node/markers.rs"]
mod markers;
#[path = "node/produce.rs"]
mod produce;
#[path = "wire/random.rs"]
mod random;
#[path = "node/readiness.rs"]
mod readiness;
#[path = "node/replication.rs"]
mod replication;
#[path = "node/requests.rs"]
mod requests;
#[path = "node/roles.rs"]
mod roles;
#[path = "node/throttles.rs"]
mod throttles;
#[path = "node/transactions.rs"]
mod transactions;
#[path = "node/two_brokers.rs"]
mod two_brokers;
#[path = "node/upkeep.rs"]
mod upkeep;
#[path = "node/versions.rs"]
mod versions;
#[path = "node/voters.rs"]
mod voters;
