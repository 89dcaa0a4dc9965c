//! Layer 1: bytes to messages and back, without sockets.

pub mod batch;
pub mod compression;
pub mod messages;
