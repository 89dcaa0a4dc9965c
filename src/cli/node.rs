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

use super::Failure;
use super::bootstrap::{self, Bootstrap};
use super::directories::{self, Directories, Wanted};
use super::file_limit;
use super::voters::Voters;
use crate::api::{Api, ListenerInfo, ListenerRole, Node};
use crate::broker::controller_channel::ControllerChannel;
use crate::broker::duty_settings::duty_settings;
use crate::broker::dynamic_config::{DynamicConfig, Effective};
use crate::broker::loggers::Loggers;
use crate::broker::readiness::Readiness;
use crate::broker::start::{BrokerOptions, RunningBroker};
use crate::config::{BrokerConfig, Config, HostPort, Listener, ListenerName, NodeConfig};
use crate::controller::duties::ActiveController;
use crate::controller::{self, Controller, ControllerConfig, Member, MetadataHandle, SnapshotLimits, Timing};
use crate::metadata::Image;
use crate::metadata::brokers::Endpoint;
use crate::metadata::controllers;
use crate::metadata::features::supported_features;
use crate::peer::Address;
use crate::server::{BoundListener, ConnectionLimits, LimitsConfig, ListenerConfig, Listeners};
use crate::storage::disk::{Disk, RealDisk};
use crate::types::{DirectoryId, Uuid};

/// A node that runs. Whoever holds it stops it.
pub struct RunningNode {
    node: NodeConfig,
    addresses: Vec<(Arc<str>, SocketAddr)>,
    disk: Arc<dyn Disk>,
    dynamic: Arc<DynamicConfig>,
    metadata: MetadataHandle,
    api: Arc<Api>,
    readiness: Readiness,
    /// Ends only when it is told to.
    limits_task: JoinHandle<()>,
    /// Ends with the member of the quorum.
    duties: JoinHandle<()>,
    channel: ControllerChannel,
    controller_listeners: Listeners,
    broker_listeners: Listeners,
    broker: Option<RunningBroker>,
    /// What controllers and clients are told.
    endpoints: Vec<Endpoint>,
    controller_endpoints: Vec<Endpoint>,
    controller: Controller,
    directories: Directories,
}

impl RunningNode {
    /// Starts a node; it serves when this returns.
    pub async fn start(config: &Config, loggers: Arc<Loggers>) -> Result<RunningNode, Failure> {
        let mut node = RunningNode::begin(config, loggers).await?;
        match node.open().await {
            Ok(()) => Ok(node),
            Err(error) => {
                node.stop().await;
                Err(error)
            }
        }
    }

    /// Starts what needs no other node: the member of the metadata quorum, and the listeners. Through those of controllers others
    /// reach it; through those of the broker it only says what it waits for. [`RunningNode::open`] does the rest.
    pub async fn begin(config: &Config, loggers: Arc<Loggers>) -> Result<RunningNode, Failure> {
        for warning in &config.warnings {
            warn!("{warning}");
        }
        let node = config.node.clone();
        let broker_config = config.layers.broker_config();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let directories = take_directories(&disk, &node, config.cluster_id.as_deref())?;
        info!(
            "Node {} of cluster {}, data in {}",
            node.node_id,
            directories.cluster_id,
            node.log_dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ")
        );
        let bound = bind(&node, &broker_config)?;
        let (metadata, controller) =
            start_controller(&disk, &node, &directories, &bound, &broker_config).await?;
        let dynamic = Arc::new(DynamicConfig::new(node.node_id, config.layers.clone()));
        let settings = duty_settings(Arc::clone(&dynamic), node.inter_broker_listener.as_str().into());
        let local_broker = node.roles.broker.then_some(node.node_id);
        let (active, duties) =
            ActiveController::new(metadata.clone(), metadata.office(), local_broker, settings);
        let me = Node { id: node.node_id, cluster_id: Arc::from(directories.cluster_id.as_str()) };
        let channel = controller_channel(&me, &active, &metadata);
        let raft = controller.service();
        let (config, image, readiness) = (Arc::clone(&dynamic), metadata.clone(), Readiness::default());
        let api = Arc::new(Api::new(me, config, image, active, raft, loggers, readiness.clone()));
        let addresses: Vec<_> = bound
            .iter()
            .map(|listener| (Arc::clone(&listener.info().name), listener.address()))
            .inspect(|(name, address)| info!("Listener {name} on {address}"))
            .collect();
        let max_requests = count(broker_config.queued_max_requests);
        let max_bytes = usize::try_from(broker_config.queued_max_request_bytes).ok().filter(|max| *max > 0);
        let limits = || {
            let limits = limits_of(&dynamic.at(&metadata.image()));
            ConnectionLimits::new(limits, max_requests, max_bytes)
        };
        // As in Kafka, what clients do to a broker does not keep the quorum from its controller.
        let (limits, controller_limits) = (limits(), limits());
        let (endpoints, controller_endpoints) =
            (endpoints(&node, &bound), controller_endpoints(&node, &bound));
        let is_controllers = |listener: &BoundListener| listener.info().role == ListenerRole::Controller;
        let (controllers, brokers) = bound.into_iter().partition(is_controllers);
        Ok(RunningNode {
            controller_listeners: Listeners::serve(controllers, &api, &controller_limits),
            broker_listeners: Listeners::serve(brokers, &api, &limits),
            limits_task: tokio::spawn(follow_limits(
                [limits, controller_limits],
                Arc::clone(&dynamic),
                metadata.clone(),
            )),
            duties: tokio::spawn(duties),
            channel,
            node,
            addresses,
            disk,
            dynamic,
            metadata,
            api,
            readiness,
            broker: None,
            endpoints,
            controller_endpoints,
            controller,
            directories,
        })
    }

    /// Joins the cluster and serves; returns when all that this node has to serve is served. It waits for a quorum that
    /// works, and may be dropped while it does; then the node is to be stopped.
    pub async fn open(&mut self) -> Result<(), Failure> {
        self.controller.join().await?;
        self.register_controller().await?;
        if self.node.roles.broker {
            self.open_broker().await?;
        }
        Ok(())
    }

    /// Tells the cluster where this controller listens, if it does.
    async fn register_controller(&self) -> Result<(), Failure> {
        let registration = controllers::Registration {
            id: self.node.node_id,
            incarnation: Uuid::new_v4(),
            endpoints: self.controller_endpoints.clone(),
            features: supported_features()
                .into_iter()
                .map(|(name, min, max)| (name.into(), min, max))
                .collect(),
        };
        if !registration.endpoints.is_empty() {
            let decide = move |image: &Image| controllers::register(image, &registration);
            if let Err(too_old) = self.metadata.run(decide).await? {
                info!("This controller is not registered: {too_old}");
            }
        }
        Ok(())
    }

    async fn open_broker(&mut self) -> Result<(), Failure> {
        let options = BrokerOptions {
            id: self.node.node_id,
            config: Arc::clone(&self.dynamic),
            disk: Arc::clone(&self.disk),
            log_dirs: std::mem::take(&mut self.directories.log_dirs),
            lost_dirs: std::mem::take(&mut self.directories.lost),
            open_files: file_limit::for_logs(file_limit::raise()),
            endpoints: self.endpoints.clone(),
            inter_broker_listener: self.node.inter_broker_listener.as_str().into(),
            rack: self.node.rack.as_deref().map(Arc::from),
            controller: self.channel.clone(),
            is_alone: self.is_alone(),
            readiness: self.readiness.clone(),
        };
        let (handles, broker) = crate::broker::start::start(options, self.metadata.clone()).await?;
        self.api.open_broker(handles);
        self.broker.insert(broker).unfence().await?;
        self.api.serve_clients();
        Ok(())
    }

    /// Whether no other node can be part of its cluster.
    fn is_alone(&self) -> bool {
        self.node.stands_alone() && self.node.controller_listeners.is_empty()
    }

    /// The listeners by name, with the addresses that they really have.
    pub fn addresses(&self) -> &[(Arc<str>, SocketAddr)] {
        &self.addresses
    }

    /// Resolves, with the reason, when the node cannot go on.
    pub async fn failed(&self) -> String {
        let broker = async {
            match &self.broker {
                Some(broker) => broker.failed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            why = self.controller.failed() => why,
            why = broker => why,
        }
    }

    /// Ends the node in an orderly way: others take over what it leads, while clients are still served and told of them; then
    /// the connections of clients end, then the logs, then the metadata log.
    pub async fn stop(self) {
        self.limits_task.abort();
        let has_others = !self.is_alone();
        if let Some(broker) = self.broker.as_ref().filter(|_| has_others) {
            broker.leave().await;
        }
        self.broker_listeners.stop().await;
        let locks = match self.broker {
            Some(broker) => broker.stop().await,
            None => Vec::new(),
        };
        self.duties.abort();
        self.controller_listeners.stop().await;
        self.controller.shutdown().await;
        drop((locks, self.directories));
    }
}

/// The way of this node's broker to the active controller, which may be this node.
fn controller_channel(me: &Node, active: &ActiveController, metadata: &MetadataHandle) -> ControllerChannel {
    let metadata = metadata.clone();
    let find = Arc::new(move || metadata.controller_candidates());
    let client_id = format!("broker-{}", me.id);
    ControllerChannel::new(Some(active.clone()), find, Arc::clone(&me.cluster_id), &client_id)
}

fn take_directories(
    disk: &Arc<dyn Disk>,
    node: &NodeConfig,
    cluster_id: Option<&str>,
) -> Result<Directories, Failure> {
    let voters = &node.quorum.voters;
    // Who has peers must be told of which cluster it is, or it would begin one of its own; and a controller of a dynamic quorum
    // with what that begins.
    let is_told = cluster_id.is_some() && (!node.roles.controller || !voters.is_empty());
    let wanted = Wanted {
        node: node.node_id,
        log_dirs: &node.log_dirs,
        metadata_dir: &node.metadata_log_dir,
        format: node.stands_alone() || is_told,
        is_one_of_several: voters.len() > 1 && voters.iter().any(|voter| voter.id == node.node_id),
        cluster_id,
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
    let voters = first_voters(node, &me, &bootstrap);
    let is_voter = voters.contains_key(&node.node_id);
    let address = |at: &HostPort| Address { host: at.host.clone(), port: at.port };
    let config = ControllerConfig {
        node_id: node.node_id,
        cluster_id: directories.cluster_id.clone(),
        dir,
        disk: Arc::clone(disk),
        me,
        voters,
        addresses: node.quorum.voters.iter().map(|voter| (voter.id, address(&voter.address))).collect(),
        servers: node.quorum.bootstrap_servers.iter().map(address).collect(),
        listener: node.controller_listener_names.first().map(|name| name.as_str().to_owned()),
        joins_voters: node.quorum.auto_join,
        segment_bytes: bootstrap::METADATA_SEGMENT_BYTES,
        snapshots: snapshot_limits(broker_config),
        timing: Timing::default(),
        // A cluster is begun by its voters.
        bootstrap_records: if is_voter { bootstrap.records } else { Vec::new() },
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

/// The voters with which the quorum begins, as far as this node knows them: those of its configuration, or those it was
/// formatted with. A node that finds the quorum by bootstrap servers alone knows none.
fn first_voters(node: &NodeConfig, me: &Member, formatted: &Bootstrap) -> Voters {
    let named: Voters = node
        .quorum
        .voters
        .iter()
        .map(|voter| {
            let endpoint = controller::Endpoint {
                listener: node.controller_listener_names.first().map_or("", |it| it.as_str()).to_owned(),
                host: voter.address.host.clone(),
                port: voter.address.port,
            };
            // Configuration does not tell the directories of others, and all must begin with the same voters.
            (voter.id, Member { endpoints: vec![endpoint], ..Member::default() })
        })
        .collect();
    if named.keys().eq([&node.node_id]) {
        let me = Member { directory_id: DirectoryId::nil(), ..me.clone() };
        return [(node.node_id, me)].into();
    }
    let mut voters = if named.is_empty() { formatted.voters.clone().unwrap_or_default() } else { named };
    // One that was formatted without voters is to find its quorum.
    let begins = voters.is_empty() && node.stands_alone() && formatted.kraft_version == 0;
    if voters.keys().eq([&node.node_id]) || begins {
        return [(node.node_id, me.clone())].into();
    }
    // With another directory than the quorum knows, this node is not the voter of its id, and finds the quorum like any other.
    let is_me = |voter: &Member| voter.directory_id.is_nil() || voter.directory_id == me.directory_id;
    voters.retain(|id, voter| *id != node.node_id || is_me(voter));
    voters
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
async fn follow_limits(
    limits: [Arc<ConnectionLimits>; 2],
    config: Arc<DynamicConfig>,
    metadata: MetadataHandle,
) {
    let configure =
        |effective: &Effective| limits.iter().for_each(|limits| limits.configure(limits_of(effective)));
    let mut images = metadata.subscribe();
    let mut seen = config.latest();
    configure(&seen);
    while images.changed().await.is_ok() {
        let now = config.at(&metadata.image());
        if !Arc::ptr_eq(&now, &seen) {
            configure(&now);
            seen = now;
        }
    }
}

/// The limits on connections that the configuration sets.
fn limits_of(effective: &Effective) -> LimitsConfig {
    let (config, mut overrides) = (&effective.broker, HashMap::new());
    for (host, limit) in config.connections_per_ip_overrides() {
        for address in addresses(&host) {
            overrides.insert(address, count(limit));
        }
    }
    LimitsConfig {
        max_connections: count(config.max_connections),
        max_connections_of_listeners: effective
            .layers
            .max_connections_of_listeners()
            .map(|(listener, max)| (listener.to_owned(), count(max)))
            .collect(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;
    use crate::types::NodeId;

    fn controller(quorum: &str) -> NodeConfig {
        let settings = [
            "process.roles=controller",
            "node.id=1",
            "listeners=CONTROLLER://localhost:9093",
            "controller.listener.names=CONTROLLER",
            "log.dirs=/data",
            quorum,
        ];
        let pair = |line: &str| line.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        let overrides = settings.into_iter().filter_map(pair).collect();
        crate::config::load(&Sources { overrides, ..Sources::default() }).unwrap().node
    }

    #[test]
    fn the_limits_on_connections_are_those_of_the_configuration() {
        let limits = |set: &[(&str, &str)]| {
            let overrides = set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let layers = crate::config::load(&Sources { overrides, ..Sources::default() }).unwrap().layers;
            limits_of(&DynamicConfig::new(NodeId(1), layers).latest())
        };
        let of = |key, value| limits(&[(key, value)]);
        let default = limits(&[]);
        assert_eq!(of("max.connections", "7"), LimitsConfig { max_connections: 7, ..default.clone() });
        assert_eq!(
            of("max.connections.per.ip", "7"),
            LimitsConfig { max_connections_per_ip: 7, ..default.clone() }
        );
        let address = "127.0.0.9".parse().unwrap();
        assert_eq!(
            of("max.connections.per.ip.overrides", "127.0.0.9:7"),
            LimitsConfig { max_connections_per_ip_overrides: [(address, 7)].into(), ..default.clone() }
        );
        assert_eq!(
            of("listener.name.plaintext.max.connections", "7"),
            LimitsConfig { max_connections_of_listeners: [("plaintext".to_owned(), 7)].into(), ..default }
        );
    }

    fn member(directory: u128) -> Member {
        Member { directory_id: DirectoryId::from_u128(directory), ..Member::default() }
    }

    #[test]
    fn a_voter_is_known_by_its_directory() {
        let node = controller("controller.quorum.bootstrap.servers=localhost:9093");
        let first = |formatted: &[(i32, u128)]| {
            let voters = formatted.iter().map(|(id, directory)| (NodeId(*id), member(*directory))).collect();
            let formatted = Bootstrap { kraft_version: 1, voters: Some(voters), ..Bootstrap::default() };
            let voters = first_voters(&node, &member(1000), &formatted);
            voters.into_iter().map(|(id, voter)| (id.0, voter.directory_id.as_u128())).collect::<Vec<_>>()
        };
        assert_eq!(first(&[(1, 1000), (2, 2000)]), [(1, 1000), (2, 2000)]);
        assert_eq!(first(&[(1, 7), (2, 2000)]), [(2, 2000)], "whoever had the directory before has the vote");
        assert_eq!(first(&[(2, 2000)]), [(2, 2000)]);
        assert_eq!(first(&[(1, 7)]), [(1, 1000)], "there is nobody else whom it could ask");
        assert_eq!(first(&[]), []);

        let node = controller("controller.quorum.voters=1@localhost:9093,2@localhost:9094");
        let voters = first_voters(&node, &member(1000), &Bootstrap::default());
        assert!(voters.keys().eq([&NodeId(1), &NodeId(2)]), "configuration does not name directories");
    }
}
