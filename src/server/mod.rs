//! Layer 5: sockets. Listeners accept, each connection is one task that reads frames, hands them to `api` and writes the
//! answers in order. Knows nothing of what a request means.
//!
//! Invariant: answers leave a connection in the order of its requests, and what a connection may hold in memory is
//! bounded: two frames of `socket.request.max.bytes`, one answer, and `MAX_HELD` bytes of what is on its way.

mod connection;
mod frame_reader;
mod limits;
mod listener;

pub use limits::{ConnectionLimits, LimitsConfig};
pub use listener::{BindError, BoundListener, ListenerConfig, Listeners};
