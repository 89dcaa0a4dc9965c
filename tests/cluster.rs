//! Several nodes in this process that are one cluster, asked over sockets: replication, elections, restarts, and what becomes
//! of a node that was away. Crashes and cut networks are in compat-tests/cluster, where each node is a process.

#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

#[path = "node/client.rs"]
#[allow(dead_code, reason = "shared with the tests of one node")]
mod client;
#[path = "cluster/harness.rs"]
mod harness;
#[path = "cluster/leadership.rs"]
mod leadership;
#[path = "cluster/quorum.rs"]
mod quorum;
#[path = "cluster/replication.rs"]
mod replication;
#[path = "cluster/transactions.rs"]
mod transactions;
#[path = "node/requests.rs"]
#[allow(dead_code, reason = "shared with the tests of one node")]
mod requests;
