//! A node from its configuration to its end: directories, metadata quorum, broker and listeners are started in the order in
//! which they need each other, and stopped the other way round. Knows no signals, and prints nothing but log lines.
//!
//! Invariant: a started node serves all its listeners, and one that has stopped holds no lock, socket or open log.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use super::directories::{self, Directories, Wanted};
use super::file_limit;
use super::voters::Voters;
use super::{Failure, bootstrap};
use crate::api::{Api, ListenerInfo, ListenerRole, Node};
use crate::broker::duty_settings::duty_settings;
use crate::broker::dynamic_config::DynamicConfig;
use crate::broker::loggers::Loggers;
use crate::broker::start::{BrokerOptions, RunningBroker};
use crate::config::{BrokerConfig, Config, Listener, ListenerName, NodeConfig};
use crate::controller::duties::ActiveController;
use crate::controller::{self, Controller, ControllerConfig, Member, MetadataHandle, SnapshotLimits, Timing};
use crate::metadata::brokers::Endpoint;
use crate::metadata::controllers;
use crate::metadata::features::supported_features;
use crate::server::{BoundListener, ConnectionLimits, LimitsConfig, ListenerConfig, Listeners};
use crate::storage::disk::{Disk, RealDisk};
use crate::types::Uuid;

/// A node that serves. Whoever holds it stops it.
pub struct RunningNode {
    addresses: Vec<(Arc<str>, SocketAddr)>,
    listeners: Listeners,
    /// Ends only when it is told to.
    limits_task: JoinHandle<()>,
    /// Ends with the member of the quorum.
    duties: JoinHandle<()>,
    broker: RunningBroker,
    controller: Controller,
    directories: Directories,
}

impl RunningNode {
    /// Starts a node; it serves when this returns.
    pub async fn start(config: &Config, loggers: Arc<Loggers>) -> Result<RunningNode, Failure> {
        for warning in &config.warnings {
            warn!("{warning}");
        }
        let node = &config.node;
        let broker_config = config.layers.broker_config();
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
            start_controller(&disk, node, &directories, &bound, &broker_config).await?;
        register_controller(&metadata, node, &bound).await?;
        let dynamic = Arc::new(DynamicConfig::new(node.node_id, config.layers.clone()));
        let settings = duty_settings(Arc::clone(&dynamic), node.inter_broker_listener.as_str().into());
        let (active, duties) =
            ActiveController::new(metadata.clone(), metadata.office(), Some(node.node_id), settings);
        let duties = tokio::spawn(duties);
        let options = BrokerOptions {
            id: node.node_id,
            config: Arc::clone(&dynamic),
            disk: Arc::clone(&disk),
            log_dirs: std::mem::take(&mut directories.log_dirs),
            lost_dirs: std::mem::take(&mut directories.lost),
            open_files: file_limit::for_logs(file_limit::raise()),
            endpoints: endpoints(node, &bound),
            inter_broker_listener: node.inter_broker_listener.as_str().into(),
            rack: node.rack.as_deref().map(Arc::from),
        };
        let (handles, mut broker) = crate::broker::start::start(options, metadata.clone()).await?;
        let me = Node { id: node.node_id, cluster_id: Arc::from(directories.cluster_id.as_str()) };
        let api = Arc::new(Api::new(me, Arc::clone(&dynamic), metadata.clone(), active, loggers));
        api.open_broker(handles);
        broker.unfence().await?;
        let addresses: Vec<_> = bound
            .iter()
            .map(|listener| (Arc::clone(&listener.info().name), listener.address()))
            .inspect(|(name, address)| info!("Listener {name} on {address}"))
            .collect();
        let max_requests = count(broker_config.queued_max_requests);
        let max_bytes = usize::try_from(broker_config.queued_max_request_bytes).ok().filter(|max| *max > 0);
        let limits = limits_of(&dynamic.at(&metadata.image()).broker);
        let limits = ConnectionLimits::new(limits, max_requests, max_bytes);
        let listeners = Listeners::serve(bound, &api, &limits);
        let limits_task = tokio::spawn(follow_limits(limits, dynamic, metadata));
        Ok(RunningNode { addresses, listeners, limits_task, duties, broker, controller, directories })
    }

    /// The listeners by name, with the addresses that they really have.
    pub fn addresses(&self) -> &[(Arc<str>, SocketAddr)] {
        &self.addresses
    }

    /// Resolves, with the reason, when the node cannot go on.
    pub async fn failed(&self) -> String {
        self.controller.failed().await
    }

    /// Ends the node in an orderly way: connections first, then the logs, then the metadata log.
    pub async fn stop(self) {
        let RunningNode { listeners, limits_task, duties, broker, controller, directories, .. } = self;
        limits_task.abort();
        listeners.stop().await;
        let locks = broker.stop().await;
        duties.abort();
        controller.shutdown().await;
        drop((locks, directories));
    }
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
    broker_config: &BrokerConfig,
) -> Result<(MetadataHandle, Controller), Failure> {
    let (dir, directory_id) = directories.metadata_dir.clone();
    let endpoints = controller_endpoints(node, bound).into_iter().map(|endpoint| controller::Endpoint {
        listener: endpoint.listener.to_string(),
        host: endpoint.host.to_string(),
        port: endpoint.port,
    });
    let me = Member { directory_id, endpoints: endpoints.collect() };
    let bootstrap = bootstrap::read(disk.as_ref(), &dir, broker_config.min_insync_replicas)?;
    let alone = |voters: &Voters| voters.keys().eq([&node.node_id]);
    if bootstrap.voters.as_ref().is_some_and(|voters| !alone(voters)) {
        return Err("the node is formatted for a quorum of several; this version runs a quorum of one".into());
    }
    let bootstrap_records = bootstrap.records;
    let config = ControllerConfig {
        node_id: node.node_id,
        cluster_id: directories.cluster_id.clone(),
        dir,
        disk: Arc::clone(disk),
        voters: [(node.node_id, me)].into(),
        segment_bytes: bootstrap::METADATA_SEGMENT_BYTES,
        snapshots: snapshot_limits(broker_config),
        timing: Timing::default(),
        bootstrap_records,
    };
    Ok(controller::start(config).await?)
}

fn snapshot_limits(config: &BrokerConfig) -> SnapshotLimits {
    SnapshotLimits {
        bytes: u64::try_from(config.metadata_log_max_record_bytes_between_snapshots).unwrap_or(u64::MAX),
        // 0 is for no limit.
        interval: u64::try_from(config.metadata_log_max_snapshot_interval_ms)
            .ok()
            .filter(|ms| *ms > 0)
            .map(Duration::from_millis),
    }
}

/// Tells the cluster where this controller listens, if it does.
async fn register_controller(
    metadata: &MetadataHandle,
    node: &NodeConfig,
    bound: &[BoundListener],
) -> Result<(), Failure> {
    let registration = controllers::Registration {
        id: node.node_id,
        incarnation: Uuid::new_v4(),
        endpoints: controller_endpoints(node, bound),
        features: supported_features().into_iter().map(|(name, min, max)| (name.into(), min, max)).collect(),
    };
    if !registration.endpoints.is_empty() {
        let registered = metadata.run(move |image| controllers::register(image, &registration)).await?;
        if let Err(too_old) = registered {
            info!("This controller is not registered: {too_old}");
        }
    }
    Ok(())
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
    as_endpoints(node.advertised(&|name| port(bound, name), &host()))
}

/// The same for its controller listeners.
fn controller_endpoints(node: &NodeConfig, bound: &[BoundListener]) -> Vec<Endpoint> {
    as_endpoints(node.advertised_controllers(&|name| port(bound, name), &host()))
}

fn port(bound: &[BoundListener], name: &ListenerName) -> Option<u16> {
    let listener = bound.iter().find(|listener| *listener.info().name == *name.as_str())?;
    Some(listener.address().port())
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn as_endpoints(advertised: Vec<Listener>) -> Vec<Endpoint> {
    advertised
        .into_iter()
        .map(|listener| Endpoint {
            listener: listener.name.as_str().into(),
            host: listener.host.unwrap_or_default().into(),
            port: listener.port,
            security_protocol: listener.protocol.id(),
        })
        .collect()
}

/// Follows the limits on connections, which can be changed while the node runs.
async fn follow_limits(limits: Arc<ConnectionLimits>, config: Arc<DynamicConfig>, metadata: MetadataHandle) {
    let mut images = metadata.subscribe();
    let mut seen = config.latest();
    limits.configure(limits_of(&seen.broker));
    while images.changed().await.is_ok() {
        let now = config.at(&metadata.image());
        if !Arc::ptr_eq(&now, &seen) {
            limits.configure(limits_of(&now.broker));
            seen = now;
        }
    }
}

fn limits_of(config: &BrokerConfig) -> LimitsConfig {
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
    }
}

fn count(limit: i32) -> usize {
    usize::try_from(limit).unwrap_or(0)
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
