//! Floodmark: a broker that speaks Apache Kafka's protocol. The modules in reading order, from the words up; imports
//! point only upward in this list (`tests/tidy.rs` holds the table).

pub mod types;

pub mod api;
pub mod broker;
pub mod cli;
pub mod config;
pub mod controller;
pub mod metadata;
pub mod replica;
pub mod server;
pub mod storage;
pub mod wire;
