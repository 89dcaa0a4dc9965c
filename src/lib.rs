//! Floodmark: a broker that speaks Apache Kafka's protocol. The modules in reading order, from the words up; imports
//! point only upward in this list (`tests/tidy.rs` holds the table).

pub mod types;
