//! From an address to a socket: resolve, connect, and tell what went wrong.
//!
//! Invariant: `Refused` means that somebody answered for the host and that no process took the connection, which is what a
//! crashed process looks like; silence never does.

use std::io;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::Address;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("{0} refuses connections")]
    Refused(Address),
    #[error("{0} does not answer")]
    Timeout(Address),
    #[error("cannot connect to {0}: {1}")]
    Other(Address, io::Error),
}

impl DialError {
    pub(super) fn of(to: &Address, error: io::Error) -> DialError {
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => {
                DialError::Refused(to.clone())
            }
            io::ErrorKind::TimedOut => DialError::Timeout(to.clone()),
            _ => DialError::Other(to.clone(), error),
        }
    }
}

/// A socket to the first address of `to` that takes a connection.
pub(super) async fn connect(to: &Address) -> io::Result<TcpStream> {
    let mut failed = None;
    for address in lookup_host((to.host.as_str(), to.port)).await? {
        match TcpStream::connect(address).await {
            // On one machine the system may choose the port that is dialled for this end, and join the socket with itself.
            Ok(stream) if stream.local_addr()? == address => {
                failed = Some(io::ErrorKind::ConnectionRefused.into());
            }
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address")))
}

/// Runs a step of a dial against its time limit.
pub(super) async fn within<T>(
    limit: Duration,
    to: &Address,
    step: impl Future<Output = io::Result<T>>,
) -> Result<T, DialError> {
    match timeout(limit, step).await {
        Ok(done) => done.map_err(|error| DialError::of(to, error)),
        Err(_) => Err(DialError::Timeout(to.clone())),
    }
}
