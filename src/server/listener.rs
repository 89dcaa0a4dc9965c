//! Listening sockets: bound before the node registers, so that a port 0 is known when it is advertised, and accepting
//! from the moment the node is ready.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tracing::{info, warn};

use super::connection::{self, Settings};
use super::limits::ConnectionLimits;
use crate::api::{Api, ListenerInfo};

/// How long accepting rests after an error such as "too many open files", which would come back at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// One listener as configured.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    pub info: ListenerInfo,
    /// Empty for every interface.
    pub host: String,
    pub port: u16,
    /// `socket.listen.backlog.size`
    pub backlog: i32,
    /// `socket.send.buffer.bytes`, `socket.receive.buffer.bytes`; `None` leaves the system's.
    pub send_buffer: Option<usize>,
    pub receive_buffer: Option<usize>,
    /// `socket.request.max.bytes`
    pub max_frame: usize,
    /// `connections.max.idle.ms`
    pub max_idle: Duration,
}

/// Why a listener cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("listener {name}: cannot listen on {host}:{port}: {source}")]
pub struct BindError {
    pub name: String,
    pub host: String,
    pub port: u16,
    pub source: io::Error,
}

/// A bound socket that does not accept yet.
pub struct BoundListener {
    config: ListenerConfig,
    socket: TcpListener,
    address: SocketAddr,
}

impl BoundListener {
    /// Binds and listens; connections queue in the kernel until `Listeners::serve`.
    pub fn bind(config: ListenerConfig) -> Result<BoundListener, BindError> {
        let bound = open(&config).and_then(|socket| Ok((socket.local_addr()?, socket)));
        match bound {
            Ok((address, socket)) => Ok(BoundListener { config, socket, address }),
            Err(source) => Err(BindError {
                name: config.info.name.to_string(),
                host: config.host,
                port: config.port,
                source,
            }),
        }
    }

    pub fn info(&self) -> &ListenerInfo {
        &self.config.info
    }

    /// The address that the socket really has; its port is never 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn open(config: &ListenerConfig) -> io::Result<TcpListener> {
    let address = if config.host.is_empty() {
        SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 0], config.port))
    } else {
        (config.host.as_str(), config.port)
            .to_socket_addrs()?
            .next()
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host has no address"))?
    };
    let socket = match socket(config, address) {
        // A machine without IPv6 cannot open the any-address of both families.
        Err(_) if config.host.is_empty() => socket(config, SocketAddr::from(([0, 0, 0, 0], config.port)))?,
        other => other?,
    };
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}

fn socket(config: &ListenerConfig, address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() && config.host.is_empty() {
        socket.set_only_v6(false)?;
    }
    if let Some(size) = config.send_buffer {
        socket.set_send_buffer_size(size)?;
    }
    if let Some(size) = config.receive_buffer {
        socket.set_recv_buffer_size(size)?;
    }
    socket.bind(&address.into())?;
    socket.listen(config.backlog)?;
    Ok(socket)
}

/// The accepting listeners; they stop when `stop` is called. Every listener and connection holds a receiver.
pub struct Listeners {
    stop: watch::Sender<bool>,
}

impl Listeners {
    /// Starts to accept on all of `bound`.
    pub fn serve(bound: Vec<BoundListener>, api: &Arc<Api>, limits: &Arc<ConnectionLimits>) -> Listeners {
        let (stop, stopped) = watch::channel(false);
        for listener in bound {
            tokio::spawn(accept(listener, Arc::clone(api), Arc::clone(limits), stopped.clone()));
        }
        Listeners { stop }
    }

    /// Closes the listening sockets and every connection, and waits until they are gone.
    pub async fn stop(&self) {
        self.stop.send_replace(true);
        self.stop.closed().await;
    }
}

async fn accept(
    listener: BoundListener,
    api: Arc<Api>,
    limits: Arc<ConnectionLimits>,
    mut stopped: watch::Receiver<bool>,
) {
    let info = Arc::new(listener.config.info.clone());
    let settings =
        Arc::new(Settings { max_frame: listener.config.max_frame, max_idle: listener.config.max_idle });
    loop {
        let accepted = tokio::select! {
            _ = stopped.wait_for(|&stop| stop) => return,
            accepted = listener.socket.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(listener = %info.name, %error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let admitted = tokio::select! {
            _ = stopped.wait_for(|&stop| stop) => return,
            admitted = limits.admit(&info.name, peer.ip().to_canonical()) => admitted,
        };
        let permit = match admitted {
            Ok(permit) => permit,
            Err(reason) => {
                info!(%peer, %reason, "connection refused");
                continue;
            }
        };
        let (info, api, limits, settings) =
            (Arc::clone(&info), Arc::clone(&api), Arc::clone(&limits), Arc::clone(&settings));
        let mut stopped = stopped.clone();
        tokio::spawn(async move {
            let _permit = permit;
            prepare(&stream);
            tokio::select! {
                _ = stopped.wait_for(|&stop| stop) => {}
                () = connection::serve(stream, peer, info, api, limits, &settings) => {}
            }
        });
    }
}

fn prepare(stream: &TcpStream) {
    // Both only fail on a socket that is already gone, which the first read reports.
    let _ = stream.set_nodelay(true);
    let _ = socket2::SockRef::from(stream).set_keepalive(true);
}
