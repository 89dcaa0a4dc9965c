//! How many connections and requests the node takes on: `max.connections` (of the node and of a listener),
//! `max.connections.per.ip` (with overrides), `queued.max.requests` and `queued.max.request.bytes`. A connection holds its place until its `ConnectionPermit` is dropped.
//!
//! As in Kafka, a connection beyond `max.connections` waits until another one ends, and one beyond what its address may have
//! is turned away.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};

/// The limits as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    pub max_connections: usize,
    /// Of listeners that have a limit of their own, by their names in lower case.
    pub max_connections_of_listeners: HashMap<String, usize>,
    pub max_connections_per_ip: usize,
    pub max_connections_per_ip_overrides: HashMap<IpAddr, usize>,
}

/// Why a connection was turned away.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the address has its {0} connections (max.connections.per.ip)")]
pub struct TooManyOfIp(usize);

/// Counts what is open on the whole node.
#[derive(Debug)]
pub struct ConnectionLimits {
    open: Mutex<Open>,
    /// There may be room where there was none.
    room: Notify,
    /// One permit a request in work; the requests beyond it wait unread in their sockets.
    pub requests: Arc<Semaphore>,
    /// One permit a byte of requests in memory, if they are bounded.
    pub request_bytes: Option<Arc<Semaphore>>,
}

#[derive(Debug)]
struct Open {
    config: LimitsConfig,
    total: usize,
    by_listener: HashMap<Arc<str>, usize>,
    by_ip: HashMap<IpAddr, usize>,
}

/// The place of one connection.
#[derive(Debug)]
pub struct ConnectionPermit {
    limits: Arc<ConnectionLimits>,
    listener: Arc<str>,
    ip: IpAddr,
}

impl ConnectionLimits {
    /// `max_requests` is `queued.max.requests`, `max_request_bytes` is `queued.max.request.bytes`.
    pub fn new(
        config: LimitsConfig,
        max_requests: usize,
        max_request_bytes: Option<usize>,
    ) -> Arc<ConnectionLimits> {
        let requests = Arc::new(Semaphore::new(max_requests.clamp(1, Semaphore::MAX_PERMITS)));
        let request_bytes =
            max_request_bytes.map(|max| Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))));
        let open = Mutex::new(Open { config, total: 0, by_listener: HashMap::new(), by_ip: HashMap::new() });
        Arc::new(ConnectionLimits { open, room: Notify::new(), requests, request_bytes })
    }

    /// The limits from now on; connections that are open stay.
    pub fn configure(&self, config: LimitsConfig) {
        self.lock().config = config;
        self.room.notify_waiters();
    }

    /// Takes a place for a connection from `ip`, when there is one.
    pub async fn admit(
        self: &Arc<Self>,
        listener: &Arc<str>,
        ip: IpAddr,
    ) -> Result<ConnectionPermit, TooManyOfIp> {
        loop {
            // Listening before looking, so that a place that is given back in between is not missed.
            let mut room = pin!(self.room.notified());
            room.as_mut().enable();
            if self.lock().take(listener, ip)? {
                return Ok(ConnectionPermit { limits: Arc::clone(self), listener: Arc::clone(listener), ip });
            }
            room.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Counts a connection; false when the node or the listener has as many as it may have.
    fn take(&mut self, listener: &Arc<str>, ip: IpAddr) -> Result<bool, TooManyOfIp> {
        let of_listener = self.by_listener.get(listener).copied().unwrap_or(0);
        let max_of_listener = self.config.max_connections_of_listeners.get(&listener.to_lowercase());
        let is_full = max_of_listener.is_some_and(|max| of_listener >= *max);
        if is_full || self.total >= self.config.max_connections {
            return Ok(false);
        }
        let overrides = &self.config.max_connections_per_ip_overrides;
        let per_ip = *overrides.get(&ip).unwrap_or(&self.config.max_connections_per_ip);
        let of_ip = self.by_ip.get(&ip).copied().unwrap_or(0);
        if of_ip >= per_ip {
            return Err(TooManyOfIp(per_ip));
        }
        self.by_ip.insert(ip, of_ip + 1);
        self.by_listener.insert(Arc::clone(listener), of_listener + 1);
        self.total += 1;
        Ok(true)
    }

    fn give_back(&mut self, listener: &Arc<str>, ip: IpAddr) {
        self.total -= 1;
        if let Some(of_listener) = self.by_listener.get_mut(listener) {
            *of_listener -= 1;
        }
        if let Some(of_ip) = self.by_ip.get_mut(&ip) {
            *of_ip -= 1;
            if *of_ip == 0 {
                self.by_ip.remove(&ip);
            }
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limits.lock().give_back(&self.listener, self.ip);
        self.limits.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use futures_util::FutureExt;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));
    const NOBODY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 9));

    fn config(total: usize, per_ip: usize) -> LimitsConfig {
        LimitsConfig {
            max_connections: total,
            max_connections_of_listeners: HashMap::new(),
            max_connections_per_ip: per_ip,
            max_connections_per_ip_overrides: HashMap::from([(NOBODY, 0)]),
        }
    }

    fn name(listener: &str) -> Arc<str> {
        listener.into()
    }

    #[test]
    fn an_address_has_no_more_than_its_places() {
        let limits = ConnectionLimits::new(config(9, 1), 1, None);
        let client = name("CLIENT");
        let admit = |ip| limits.admit(&client, ip).now_or_never().unwrap();
        let first = admit(A).unwrap();
        assert_eq!(admit(A).unwrap_err(), TooManyOfIp(1));
        assert_eq!(admit(NOBODY).unwrap_err(), TooManyOfIp(0));
        let _other = admit(B).unwrap();
        drop(first);
        assert!(admit(A).is_ok());
    }

    #[test]
    fn beyond_the_total_a_connection_waits_for_a_place() {
        let limits = ConnectionLimits::new(config(1, 9), 1, None);
        let client = name("CLIENT");
        let first = limits.admit(&client, A).now_or_never().unwrap().unwrap();
        let mut second = pin!(limits.admit(&client, B));
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        let second = second.now_or_never().unwrap().unwrap();
        let mut third = pin!(limits.admit(&client, A));
        assert!(third.as_mut().now_or_never().is_none());
        limits.configure(config(2, 9));
        assert!(third.now_or_never().unwrap().is_ok());
        drop(second);
        assert_eq!(limits.lock().by_ip.len(), 0);
    }

    #[test]
    fn a_listener_with_a_limit_of_its_own_holds_up_no_other() {
        let (internal, client) = (name("INTERNAL"), name("CLIENT"));
        let limit = |max| LimitsConfig {
            max_connections_of_listeners: HashMap::from([("client".to_owned(), max)]),
            ..config(9, 9)
        };
        let limits = ConnectionLimits::new(limit(1), 1, None);
        let first = limits.admit(&client, A).now_or_never().unwrap().unwrap();
        let mut second = pin!(limits.admit(&client, A));
        assert!(second.as_mut().now_or_never().is_none());
        let _others: Vec<_> =
            (0..3).map(|_| limits.admit(&internal, A).now_or_never().unwrap().unwrap()).collect();
        drop(first);
        let _second = second.now_or_never().unwrap().unwrap();
        let mut third = pin!(limits.admit(&client, B));
        assert!(third.as_mut().now_or_never().is_none());
        limits.configure(limit(2));
        assert!(third.now_or_never().unwrap().is_ok());
    }
}
