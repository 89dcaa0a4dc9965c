//! Floodmark: a broker that speaks Apache Kafka's protocol. The modules in reading order, from the words up; imports
//! point only upward in this list (`tests/tidy.rs` holds the table).

pub mod types;
mod fault;

pub mod config;
pub mod wire;

pub mod storage;
pub mod replica;
pub mod metadata;
pub mod coordinator;

pub mod peer;
pub mod broker;
pub mod controller;

pub mod api;
pub mod server;
pub mod cli;

#[cfg(test)]
#[path = "../tests/sim/mod.rs"]
mod sim;
