//! Layer 1: bytes to messages and back, without sockets.
//!
//! - [`api`]: the one table of served APIs
//! - [`frame`]: request headers, and the frames of answers
//! - [`guard`]: decoding of input that nobody has vouched for
//! - [`messages`]: the message types of all served APIs, and the form in which our own are declared
//! - [`rope`], `payload`: encoding that keeps record bytes by reference
//! - [`buffer`]: memory for frames and answers that is used again
//! - [`batch`], [`records`], [`compression`], [`control`]: what a log is made of, read; [`batch_builder`]: written
//! - [`legacy`]: what logs were made of before

pub mod api;
pub mod batch;
pub mod batch_builder;
pub mod buffer;
pub mod compression;
pub mod control;
pub mod frame;
pub mod guard;
pub mod legacy;
pub mod messages;
mod payload;
pub mod records;
pub mod rope;
pub mod varint;

#[cfg(test)]
mod docs;
#[cfg(test)]
mod golden_batches;
