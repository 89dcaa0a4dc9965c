//! The wire against Kafka: golden bytes that Kafka's own classes wrote (see compat-tests/golden), for every API of the
//! table in every version, decoded and encoded again; and the same bytes, broken in many ways, as input that must cost
//! neither a panic nor memory.

#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

#[path = "wire/allocator.rs"]
mod allocator;
#[path = "wire/broken.rs"]
mod broken;
#[path = "wire/files.rs"]
mod files;
#[path = "wire/golden.rs"]
mod golden;
#[path = "wire/private.rs"]
mod private;
#[path = "wire/random.rs"]
mod random;
