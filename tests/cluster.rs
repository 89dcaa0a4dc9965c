//! Several nodes in this process that are one cluster, asked over sockets: replication, elections, restarts, and what becomes
//! of a node that was away or cut off. Crashes, and clients on cut networks, are in compat-tests/cluster, where each node is a
//! process.

#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

#[path = "node/client.rs"]
#[allow(dead_code, reason = "shared with the tests of one node")]
mod client;
#[path = "cluster/cut_off.rs"]
mod cut_off;
#[path = "cluster/harness.rs"]
mod harness;
#[path = "cluster/leadership.rs"]
mod leadership;
#[path = "cluster/link.rs"]
mod link;
#[path = "cluster/quorum.rs"]
mod quorum;
#[path = "cluster/reassignment.rs"]
mod reassignment;
#[path = "cluster/replication.rs"]
mod replication;
#[path = "cluster/transactions.rs"]
mod transactions;
#[path = "node/requests.rs"]
#[allow(dead_code, reason = "shared with the tests of one node")]
mod requests;
