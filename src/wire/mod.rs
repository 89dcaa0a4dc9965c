//! Layer 1: bytes to messages and back, without sockets.
//!
//! - [`api`]: the one table of served APIs
//! - [`frame`]: request headers, and the frames of answers
//! - [`guard`]: decoding of input that nobody has vouched for
//! - [`messages`]: the message types of all served APIs, and the form in which our own are declared
//! - [`rope`], `payload`: encoding that keeps record bytes by reference
//! - [`batch`], [`compression`]: what a log is made of

pub mod api;
pub mod batch;
pub mod batch_builder;
pub mod compression;
pub mod control;
pub mod frame;
pub mod guard;
pub mod messages;
pub mod records;
pub mod rope;
pub mod varint;
mod payload;
