//! Runs a node: directories, metadata quorum, broker and listeners in the order in which they need each other, until a signal
//! ends it in an orderly way.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

use super::bootstrap;
use super::directories::{self, Directories, Wanted};
use crate::api::{Api, ListenerInfo, ListenerRole, Node};
use crate::broker::dynamic_config::DynamicConfig;
use crate::broker::loggers::Loggers;
use crate::broker::start::{BrokerOptions, RunningBroker};
use crate::config::{BrokerConfig, Config, Listener, NodeConfig};
use crate::controller::{self, Controller, ControllerConfig, Member, MetadataHandle, Timing};
use crate::metadata::brokers::Endpoint;
use crate::server::{BoundListener, ConnectionLimits, LimitsConfig, ListenerConfig, Listeners};
use crate::storage::disk::{Disk, RealDisk};

/// Blocking threads read logs from disk; more of them would only queue at the disk.
const MAX_BLOCKING_THREADS: usize = 32;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs the node until it is told to stop.
pub fn run(config: Config, loggers: Loggers, since: Instant) -> Result<(), Failure> {
    let broker = config.layers.broker_config();
    let threads = usize::try_from(broker.num_network_threads).unwrap_or(1).max(1);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .thread_name("net")
        .enable_all()
        .build()?;
    runtime.block_on(serve(config, broker, Arc::new(loggers), since))
}

async fn serve(
    config: Config,
    broker_config: BrokerConfig,
    loggers: Arc<Loggers>,
    since: Instant,
) -> Result<(), Failure> {
    let mut stop = Stop::new()?;
    for warning in &config.warnings {
        warn!("{warning}");
    }
    let node = &config.node;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let mut directories = take_directories(&disk, node)?;
    info!(
        "Node {} of cluster {}, data in {}",
        node.node_id,
        directories.cluster_id,
        node.log_dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ")
    );
    let bound = bind(node, &broker_config)?;
    let (metadata, controller) =
        start_controller(&disk, node, &directories, &bound, broker_config.min_insync_replicas).await?;
    let dynamic = Arc::new(DynamicConfig::new(node.node_id, config.layers.clone()));
    let options = BrokerOptions {
        id: node.node_id,
        config: Arc::clone(&dynamic),
        disk: Arc::clone(&disk),
        log_dirs: std::mem::take(&mut directories.log_dirs),
        endpoints: endpoints(node, &bound),
        rack: node.rack.as_deref().map(Arc::from),
    };
    let (handles, mut broker) = crate::broker::start::start(options, metadata.clone()).await?;
    let api = Arc::new(Api::new(
        Node { id: node.node_id, cluster_id: Arc::from(directories.cluster_id.as_str()) },
        dynamic,
        metadata,
        handles,
        loggers,
    ));
    broker.unfence().await?;
    for listener in &bound {
        info!("Listener {} on {}", listener.info().name, listener.address());
    }
    let limits = ConnectionLimits::new(limits(&broker_config));
    let listeners = Listeners::serve(bound, &api, &limits);
    info!("Started in {} ms", since.elapsed().as_millis());
    // The wording is Kafka's: clients' test rigs wait for it.
    info!("[KafkaRaftServer nodeId={}] Kafka Server started", node.node_id);

    let failed = tokio::select! {
        signal = stop.requested() => {
            info!("Stopping on {signal}");
            None
        }
        reason = controller.failed() => Some(reason),
    };
    let ended = tokio::select! {
        () = end(&listeners, broker, controller) => true,
        _ = stop.requested() => false,
    };
    drop(directories);
    match failed {
        Some(reason) => Err(format!("the metadata quorum has stopped: {reason}").into()),
        None if !ended => Err("stopped at once on a second signal".into()),
        None => {
            info!("Stopped");
            Ok(())
        }
    }
}

async fn end(listeners: &Listeners, broker: RunningBroker, controller: Controller) {
    listeners.stop();
    broker.stop().await;
    controller.shutdown().await;
}

fn take_directories(disk: &Arc<dyn Disk>, node: &NodeConfig) -> Result<Directories, Failure> {
    // As in Kafka's Docker image.
    let cluster_id = std::env::var("CLUSTER_ID").ok().filter(|id| !id.is_empty());
    let wanted = Wanted {
        node: node.node_id,
        log_dirs: &node.log_dirs,
        metadata_dir: &node.metadata_log_dir,
        format: node.stands_alone(),
        cluster_id: cluster_id.as_deref(),
    };
    Ok(directories::take(disk, &wanted)?)
}

async fn start_controller(
    disk: &Arc<dyn Disk>,
    node: &NodeConfig,
    directories: &Directories,
    bound: &[BoundListener],
    min_insync_replicas: i32,
) -> Result<(MetadataHandle, Controller), Failure> {
    let (dir, directory_id) = directories.metadata_dir.clone();
    let of_controller = bound.iter().filter(|listener| listener.info().role == ListenerRole::Controller);
    let endpoints = of_controller.map(|listener| controller::Endpoint {
        listener: listener.info().name.to_string(),
        host: listener.address().ip().to_string(),
        port: listener.address().port(),
    });
    let me = Member { directory_id, endpoints: endpoints.collect() };
    let bootstrap_records = bootstrap::read(disk.as_ref(), &dir, min_insync_replicas)?;
    let config = ControllerConfig {
        node_id: node.node_id,
        cluster_id: directories.cluster_id.clone(),
        dir,
        disk: Arc::clone(disk),
        voters: [(node.node_id, me)].into(),
        segment_bytes: bootstrap::METADATA_SEGMENT_BYTES,
        snapshot_bytes: bootstrap::METADATA_SNAPSHOT_BYTES,
        timing: Timing::default(),
        bootstrap_records,
    };
    Ok(controller::start(config).await?)
}

fn bind(node: &NodeConfig, config: &BrokerConfig) -> Result<Vec<BoundListener>, Failure> {
    let brokers = node.listeners.iter().map(|listener| (listener, ListenerRole::Broker));
    let controllers = node.controller_listeners.iter().map(|listener| (listener, ListenerRole::Controller));
    let mut bound = Vec::new();
    for (listener, role) in brokers.chain(controllers) {
        bound.push(BoundListener::bind(listener_config(listener, role, config))?);
    }
    Ok(bound)
}

fn listener_config(listener: &Listener, role: ListenerRole, config: &BrokerConfig) -> ListenerConfig {
    let buffer = |bytes: i32| usize::try_from(bytes).ok();
    ListenerConfig {
        info: ListenerInfo { name: listener.name.as_str().into(), role },
        host: listener.host.clone().unwrap_or_default(),
        port: listener.port,
        backlog: config.socket_listen_backlog_size,
        send_buffer: buffer(config.socket_send_buffer_bytes),
        receive_buffer: buffer(config.socket_receive_buffer_bytes),
        max_frame: usize::try_from(config.socket_request_max_bytes).unwrap_or(0),
        max_idle: match u64::try_from(config.connections_max_idle_ms) {
            Ok(ms) => Duration::from_millis(ms),
            // Negative: never.
            Err(_) => Duration::from_secs(u64::from(u32::MAX)),
        },
    }
}

/// Where others are told that this broker listens.
fn endpoints(node: &NodeConfig, bound: &[BoundListener]) -> Vec<Endpoint> {
    let port = |name: &crate::config::ListenerName| {
        let listener = bound.iter().find(|listener| *listener.info().name == *name.as_str())?;
        Some(listener.address().port())
    };
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let advertised = node.advertised(&port, &host).into_iter();
    advertised
        .map(|listener| Endpoint {
            listener: listener.name.as_str().into(),
            host: listener.host.unwrap_or_default().into(),
            port: listener.port,
            security_protocol: listener.protocol.id(),
        })
        .collect()
}

fn limits(config: &BrokerConfig) -> LimitsConfig {
    let count = |limit: i32| usize::try_from(limit).unwrap_or(0);
    let mut overrides = HashMap::new();
    for (host, limit) in config.connections_per_ip_overrides() {
        for address in addresses(&host) {
            overrides.insert(address, count(limit));
        }
    }
    LimitsConfig {
        max_connections: count(config.max_connections),
        max_connections_per_ip: count(config.max_connections_per_ip),
        max_connections_per_ip_overrides: overrides,
        queued_max_requests: count(config.queued_max_requests),
    }
}

fn addresses(host: &str) -> Vec<IpAddr> {
    match (host, 0).to_socket_addrs() {
        Ok(addresses) => addresses.map(|address| address.ip().to_canonical()).collect(),
        Err(error) => {
            error!("max.connections.per.ip.overrides names {host}, which cannot be resolved: {error}");
            Vec::new()
        }
    }
}

/// The signals that end a node.
struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> Result<Stop, Failure> {
        Ok(Stop { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn requested(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
