//! Layer 3: a client of Kafka's protocol for the nodes of our own cluster. Both the quorum and the brokers call their peers
//! through it.
//!
//! No policy and no retries: whoever calls decides what a broken connection means, and dials again. Must not know what is
//! asked, nor who. What will protect connections between nodes goes in here, in one place.
//!
//! Invariant: an address is resolved anew at every dial, so a peer that comes back under another one is found.

mod connection;
mod dial;
#[cfg(test)]
mod tests;

pub use connection::{CallError, Connection};
pub use dial::DialError;

use std::fmt;

/// Where a node listens, by name: it is resolved at every dial.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}
