//! How many connections and requests the node takes on: `max.connections`, `max.connections.per.ip` (with overrides) and
//! `queued.max.requests`. A connection holds its place until its `ConnectionPermit` is dropped.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

/// The limits as configured; `usize::MAX` stands for none.
#[derive(Clone, Debug)]
pub struct LimitsConfig {
    pub max_connections: usize,
    pub max_connections_per_ip: usize,
    pub max_connections_per_ip_overrides: HashMap<IpAddr, usize>,
    pub queued_max_requests: usize,
}

/// Why a connection was turned away.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the broker has its {0} connections (max.connections)")]
    Total(usize),
    #[error("the address has its {0} connections (max.connections.per.ip)")]
    PerIp(usize),
}

/// Counts what is open on the whole node.
pub struct ConnectionLimits {
    config: LimitsConfig,
    open: Mutex<Open>,
    /// One permit a request in work; the requests beyond it wait unread in their sockets.
    pub requests: Arc<Semaphore>,
}

#[derive(Default)]
struct Open {
    total: usize,
    by_ip: HashMap<IpAddr, usize>,
}

/// The place of one connection.
pub struct ConnectionPermit {
    limits: Arc<ConnectionLimits>,
    ip: IpAddr,
}

impl ConnectionLimits {
    pub fn new(config: LimitsConfig) -> Arc<ConnectionLimits> {
        let requests = Arc::new(Semaphore::new(config.queued_max_requests.min(Semaphore::MAX_PERMITS)));
        Arc::new(ConnectionLimits { config, open: Mutex::default(), requests })
    }

    /// Takes a place for a connection from `ip`.
    pub fn admit(self: &Arc<Self>, ip: IpAddr) -> Result<ConnectionPermit, Refused> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.total >= self.config.max_connections {
            return Err(Refused::Total(self.config.max_connections));
        }
        let per_ip = *self
            .config
            .max_connections_per_ip_overrides
            .get(&ip)
            .unwrap_or(&self.config.max_connections_per_ip);
        let of_ip = open.by_ip.get(&ip).copied().unwrap_or(0);
        if of_ip >= per_ip {
            return Err(Refused::PerIp(per_ip));
        }
        open.by_ip.insert(ip, of_ip + 1);
        open.total += 1;
        Ok(ConnectionPermit { limits: Arc::clone(self), ip })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.limits.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.total -= 1;
        if let Some(of_ip) = open.by_ip.get_mut(&self.ip) {
            *of_ip -= 1;
            if *of_ip == 0 {
                open.by_ip.remove(&self.ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(total: usize, per_ip: usize) -> Arc<ConnectionLimits> {
        ConnectionLimits::new(LimitsConfig {
            max_connections: total,
            max_connections_per_ip: per_ip,
            max_connections_per_ip_overrides: HashMap::from([(IpAddr::from([127, 0, 0, 9]), 0)]),
            queued_max_requests: 1,
        })
    }

    #[test]
    fn places_are_counted_by_address_and_in_all_and_given_back() {
        let limits = limits(3, 2);
        let (a, b) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let first = limits.admit(a).ok();
        let _second = limits.admit(a).ok();
        assert_eq!(limits.admit(a).err(), Some(Refused::PerIp(2)));
        let _third = limits.admit(b).ok();
        assert_eq!(limits.admit(b).err(), Some(Refused::Total(3)));
        drop(first);
        assert!(limits.admit(a).is_ok());
        assert_eq!(limits.admit(IpAddr::from([127, 0, 0, 9])).err(), Some(Refused::PerIp(0)));
    }
}
