//! What a node is: its identity, roles, listeners, quorum and directories, read from its properties, with Kafka's checks
//! across them. Knows no sources and opens nothing. Invariant: a `NodeConfig` that exists can be started.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::checks::Finding;
use super::endpoint::{HostPort, Listener, ListenerName, SecurityProtocol, Voter, parse_listener};
use super::layers::Layers;
use super::value::Value;
use crate::types::NodeId;

/// What a process does for the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    pub broker: bool,
    pub controller: bool,
}

/// How the controllers of the cluster are found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quorum {
    pub voters: Vec<Voter>,
    pub bootstrap_servers: Vec<HostPort>,
    /// Whether a controller makes itself a voter.
    pub auto_join: bool,
}

/// A node as its properties make it. They are read once, at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    pub node_id: NodeId,
    pub roles: Roles,
    /// Where clients and brokers connect.
    pub listeners: Vec<Listener>,
    /// Where controllers connect; may be empty on a node that stands alone.
    pub controller_listeners: Vec<Listener>,
    /// What clients and brokers are told: see [`NodeConfig::advertised`] for addresses once ports are bound.
    pub advertised_listeners: Vec<Listener>,
    /// What those who look for controllers are told, for each listener of `controller_listeners`.
    pub advertised_controller_listeners: Vec<Listener>,
    pub inter_broker_listener: ListenerName,
    pub controller_listener_names: Vec<ListenerName>,
    pub quorum: Quorum,
    pub log_dirs: Vec<PathBuf>,
    pub metadata_log_dir: PathBuf,
    pub rack: Option<String>,
}

impl NodeConfig {
    /// Whether this node is the only controller that it knows of and a broker as well.
    pub fn stands_alone(&self) -> bool {
        let alone = |voter: &Voter| voter.id == self.node_id;
        self.roles.broker
            && self.roles.controller
            && self.quorum.voters.iter().all(alone)
            && self.bootstraps_itself()
    }

    /// Whether no other controller is to be asked: each bootstrap server is a controller listener of this node.
    fn bootstraps_itself(&self) -> bool {
        let is_own = |server: &HostPort| {
            self.controller_listeners.iter().any(|listener| {
                let host = listener.host.as_deref();
                listener.port == server.port
                    && (host.is_none_or(is_local) && is_local(&server.host) || host == Some(&server.host))
            })
        };
        self.quorum.bootstrap_servers.iter().all(is_own)
    }

    /// What clients and brokers are told, with the ports that were really bound. `bound` knows each listener's port;
    /// `host` stands for a listener on every interface that has no address of its own.
    pub fn advertised(&self, bound: &dyn Fn(&ListenerName) -> Option<u16>, host: &str) -> Vec<Listener> {
        resolve(&self.advertised_listeners, bound, host)
    }

    /// The same for those who look for controllers.
    pub fn advertised_controllers(
        &self,
        bound: &dyn Fn(&ListenerName) -> Option<u16>,
        host: &str,
    ) -> Vec<Listener> {
        resolve(&self.advertised_controller_listeners, bound, host)
    }
}

fn resolve(
    listeners: &[Listener],
    bound: &dyn Fn(&ListenerName) -> Option<u16>,
    host: &str,
) -> Vec<Listener> {
    let resolve = |listener: &Listener| {
        let mut listener = listener.clone();
        // A broker is not told to clients by these, but a controller may be bound to them.
        listener.host = listener.host.filter(|host| !matches!(host.as_str(), "0.0.0.0" | "::"));
        listener.host.get_or_insert_with(|| host.to_owned());
        if listener.port == 0 {
            listener.port = bound(&listener.name).unwrap_or(0);
        }
        listener
    };
    listeners.iter().map(resolve).collect()
}

fn is_local(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "::1" | "0.0.0.0" | "::")
}

/// What was found while a node was read.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub problems: Vec<Finding>,
    pub warnings: Vec<String>,
}

impl Findings {
    fn add(&mut self, key: &str, reason: impl Into<String>) {
        self.problems.push((key.to_owned(), reason.into()));
    }

    fn require(&mut self, holds: bool, key: &str, reason: impl Into<String>) {
        if !holds {
            self.add(key, reason);
        }
    }
}

/// Reads the node. `alone_by_default` is true without a file: then a node that names no quorum is one by itself.
/// The node is `None` when something is wrong with it.
pub(super) fn read(layers: &Layers, alone_by_default: bool) -> (Option<NodeConfig>, Findings) {
    let mut findings = Findings::default();
    let node = Reader { layers, findings: &mut findings }.read(alone_by_default);
    let node = if findings.problems.is_empty() { node } else { None };
    (node, findings)
}

struct Reader<'a> {
    layers: &'a Layers,
    findings: &'a mut Findings,
}

impl Reader<'_> {
    fn list(&self, key: &str) -> Vec<String> {
        match self.layers.value(key) {
            Value::List(entries) => entries,
            _ => Vec::new(),
        }
    }

    fn text(&self, key: &str) -> Option<String> {
        match self.layers.value(key) {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    fn read(&mut self, alone_by_default: bool) -> Option<NodeConfig> {
        let node_id = self.node_id()?;
        let roles = self.roles();
        let controller_listener_names: Vec<_> =
            self.list("controller.listener.names").iter().map(|name| ListenerName::new(name)).collect();
        let protocols = self.protocols(&controller_listener_names);
        let all = self.listeners("listeners", &protocols);
        self.check_ports(&all);
        let is_controllers = |listener: &Listener| controller_listener_names.contains(&listener.name);
        let (controller_listeners, listeners): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|it| is_controllers(it));
        let explicit = self.layers.is_set("advertised.listeners");
        let advertised =
            if explicit { self.listeners("advertised.listeners", &protocols) } else { listeners.clone() };
        let (of_controllers, advertised_listeners): (Vec<_>, Vec<_>) =
            advertised.into_iter().partition(|it| is_controllers(it));
        let told = |listener: &Listener| {
            of_controllers.iter().find(|told| told.name == listener.name).unwrap_or(listener).clone()
        };
        let advertised_controller_listeners = controller_listeners.iter().map(told).collect();
        let node = NodeConfig {
            node_id,
            roles,
            inter_broker_listener: self.inter_broker_listener(&protocols),
            quorum: self.quorum(),
            log_dirs: self.log_dirs(),
            metadata_log_dir: self.metadata_log_dir(),
            rack: self.text("broker.rack"),
            listeners,
            controller_listeners,
            advertised_listeners,
            advertised_controller_listeners,
            controller_listener_names,
        };
        self.check_quorum(&node, alone_by_default);
        self.check_controller_listeners(&node, &protocols, alone_by_default);
        self.check_advertised(&node);
        self.check_early_start(&node);
        self.check_served(&node, &protocols);
        Some(node)
    }

    fn node_id(&mut self) -> Option<NodeId> {
        let (node, broker) = (self.layers.integer("node.id")?, self.layers.integer("broker.id")?);
        self.findings.require(node == broker, "broker.id", format!("must equal node.id, which is {node}"));
        i32::try_from(node).ok().map(NodeId)
    }

    fn roles(&self) -> Roles {
        let roles = self.list("process.roles");
        let has = |name: &str| roles.iter().any(|role| role == name);
        Roles { broker: has("broker"), controller: has("controller") }
    }

    /// The protocol of each listener name.
    fn protocols(&mut self, controller_names: &[ListenerName]) -> BTreeMap<ListenerName, SecurityProtocol> {
        let key = "listener.security.protocol.map";
        let mut protocols = BTreeMap::new();
        for entry in
            self.text(key).unwrap_or_default().split(',').map(str::trim).filter(|entry| !entry.is_empty())
        {
            let parsed = entry
                .rsplit_once(':')
                .map(|(name, protocol)| (name, SecurityProtocol::parse(protocol.trim())));
            match parsed {
                Some((name, Some(protocol))) => {
                    protocols.insert(ListenerName::new(name), protocol);
                }
                Some((_, None)) => self.findings.add(key, format!("'{entry}' names no security protocol")),
                None => self.findings.add(key, format!("'{entry}' is not of the form NAME:PROTOCOL")),
            }
        }
        // Nobody set the map, and nobody asks for security by a listener's name: then controllers use PLAINTEXT too.
        let secure =
            |name: &str| SecurityProtocol::parse(name).is_some_and(|it| it != SecurityProtocol::Plaintext);
        let named_secure = controller_names.iter().any(|name| secure(name.as_str()))
            || self
                .list("listeners")
                .iter()
                .filter_map(|entry| entry.split_once(':'))
                .any(|(name, _)| secure(name));
        if !self.layers.is_set(key) && !named_secure {
            for name in controller_names {
                protocols.entry(name.clone()).or_insert(SecurityProtocol::Plaintext);
            }
        }
        protocols
    }

    fn listeners(
        &mut self,
        key: &str,
        protocols: &BTreeMap<ListenerName, SecurityProtocol>,
    ) -> Vec<Listener> {
        let mut listeners: Vec<Listener> = Vec::new();
        for entry in self.list(key) {
            let (name, host, port) = match parse_listener(&entry) {
                Ok(parsed) => parsed,
                Err(reason) => {
                    self.findings.add(key, reason);
                    continue;
                }
            };
            let Some(&protocol) = protocols.get(&name) else {
                let reason =
                    format!("listener.security.protocol.map gives listener {name} no security protocol");
                self.findings.add(key, reason);
                continue;
            };
            if listeners.iter().any(|listener| listener.name == name) {
                self.findings.add(key, format!("two listeners have the name {name}"));
                continue;
            }
            listeners.push(Listener { name, protocol, host, port });
        }
        listeners
    }

    /// A port may serve two listeners only when one is an IPv4 address and the other an IPv6 address.
    fn check_ports(&mut self, listeners: &[Listener]) {
        use std::net::IpAddr;
        let address =
            |listener: &Listener| listener.host.as_deref().and_then(|host| host.parse::<IpAddr>().ok());
        for (index, one) in listeners.iter().enumerate() {
            for other in listeners[index + 1..].iter().filter(|other| other.port == one.port && one.port != 0)
            {
                let both = address(one).zip(address(other));
                let differ = both.is_some_and(|(one, other)| one.is_ipv4() != other.is_ipv4());
                let reason = format!(
                    "{} and {} have the same port {}, which only an IPv4 and an IPv6 address can share",
                    one.name, other.name, one.port
                );
                self.findings.require(differ, "listeners", reason);
            }
        }
    }

    fn inter_broker_listener(
        &mut self,
        protocols: &BTreeMap<ListenerName, SecurityProtocol>,
    ) -> ListenerName {
        let key = "inter.broker.listener.name";
        let Some(name) = self.text(key) else {
            return ListenerName::new(&self.text("security.inter.broker.protocol").unwrap_or_default());
        };
        let only_one = !self.layers.is_set("security.inter.broker.protocol");
        self.findings.require(only_one, key, "cannot be set together with security.inter.broker.protocol");
        let name = ListenerName::new(&name);
        let known = protocols.contains_key(&name);
        self.findings.require(known, key, format!("{name} is not in listener.security.protocol.map"));
        name
    }

    fn quorum(&mut self) -> Quorum {
        // The rules of the table have refused what does not parse.
        let voters: Vec<_> = self
            .list("controller.quorum.voters")
            .iter()
            .filter_map(|entry| Voter::parse(entry).ok())
            .collect();
        for voter in voters.iter().filter(|voter| voter.address.host == "0.0.0.0") {
            let reason = format!("voter {} has the address 0.0.0.0, which nobody can connect to", voter.id);
            self.findings.add("controller.quorum.voters", reason);
        }
        let servers = self.list("controller.quorum.bootstrap.servers");
        let bootstrap_servers = servers.iter().filter_map(|entry| HostPort::parse(entry).ok()).collect();
        Quorum { voters, bootstrap_servers, auto_join: self.auto_join() }
    }

    fn auto_join(&self) -> bool {
        self.layers.value("controller.quorum.auto.join.enable") == Value::Boolean(true)
    }

    fn log_dirs(&self) -> Vec<PathBuf> {
        let mut dirs = self.list("log.dirs");
        if dirs.is_empty() {
            dirs = self.list("log.dir");
        }
        dirs.into_iter().map(PathBuf::from).collect()
    }

    fn metadata_log_dir(&self) -> PathBuf {
        let explicit = self.text("metadata.log.dir").map(PathBuf::from);
        explicit.or_else(|| self.log_dirs().into_iter().next()).unwrap_or_default()
    }

    fn check_quorum(&mut self, node: &NodeConfig, alone_by_default: bool) {
        let Quorum { voters, bootstrap_servers, auto_join } = &node.quorum;
        let is_voter = voters.iter().any(|voter| voter.id == node.node_id);
        let combined = node.roles.broker && node.roles.controller;
        if voters.is_empty() && bootstrap_servers.is_empty() && !(alone_by_default && combined) {
            let reason = "must name at least one controller (for a node that stands alone: its own controller \
                          listener), unless controller.quorum.voters does";
            self.findings.add("controller.quorum.bootstrap.servers", reason);
        }
        if node.roles.controller {
            let reason = format!("must include this controller, node.id {}", node.node_id);
            self.findings.require(voters.is_empty() || is_voter, "controller.quorum.voters", reason);
        } else {
            let reason = format!("cannot include node.id {}, which is no controller", node.node_id);
            self.findings.require(!is_voter, "controller.quorum.voters", reason);
            self.findings.require(
                !auto_join,
                "controller.quorum.auto.join.enable",
                "is for controllers only",
            );
        }
    }

    fn check_controller_listeners(
        &mut self,
        node: &NodeConfig,
        protocols: &BTreeMap<ListenerName, SecurityProtocol>,
        alone_by_default: bool,
    ) {
        let key = "controller.listener.names";
        let own: Vec<&ListenerName> =
            node.controller_listeners.iter().map(|listener| &listener.name).collect();
        if !node.roles.controller {
            self.findings.require(own.is_empty(), key, "a broker alone cannot listen as a controller");
            for name in node.controller_listener_names.iter().filter(|name| !protocols.contains_key(name)) {
                self.findings.add(key, format!("{name} is not in listener.security.protocol.map"));
            }
            if node.controller_listener_names.len() > 1 {
                self.findings.warnings.push(format!("{key}: a broker alone uses only the first name"));
            }
            return;
        }
        // Nobody has to reach the controller of a node that stands alone.
        let unreachable = alone_by_default && node.stands_alone();
        for name in node.controller_listener_names.iter().filter(|name| !own.contains(name)) {
            self.findings.require(unreachable, key, format!("{name} is not in listeners"));
        }
        if !node.roles.broker {
            for listener in &node.listeners {
                let reason = format!("{} is not in {key}, and this node is no broker", listener.name);
                self.findings.add("listeners", reason);
            }
            let explicit = self.layers.is_set("inter.broker.listener.name");
            let separate = !node.controller_listener_names.contains(&node.inter_broker_listener);
            self.findings.require(separate || !explicit, key, "cannot contain inter.broker.listener.name");
        }
    }

    fn check_advertised(&mut self, node: &NodeConfig) {
        let explicit = self.layers.is_set("advertised.listeners");
        let key = if explicit { "advertised.listeners" } else { "listeners" };
        for listener in node.advertised_listeners.iter().filter(|it| it.host.as_deref() == Some("0.0.0.0")) {
            let reason = format!(
                "{listener} cannot be told to clients, as nobody can connect to 0.0.0.0: set advertised.listeners to \
                 an address that can be reached"
            );
            self.findings.add(key, reason);
        }
        if !node.roles.broker {
            return;
        }
        let names: Vec<&str> =
            node.advertised_listeners.iter().map(|listener| listener.name.as_str()).collect();
        if names.is_empty() {
            self.findings.add(key, "a broker needs a listener that is not in controller.listener.names");
            return;
        }
        let inter_broker = node.inter_broker_listener.as_str();
        let reason = format!("{inter_broker} is not among the advertised listeners, {}", names.join(", "));
        self.findings.require(names.contains(&inter_broker), "inter.broker.listener.name", reason);
        for listener in &node.advertised_listeners {
            let bound = node.listeners.iter().any(|bound| bound.name == listener.name);
            self.findings.require(
                bound,
                "advertised.listeners",
                format!("{} is not in listeners", listener.name),
            );
        }
    }

    fn check_early_start(&mut self, node: &NodeConfig) {
        let key = "early.start.listeners";
        for name in self.list(key).iter().map(|name| ListenerName::new(name)) {
            let listeners =
                node.listeners.iter().chain(&node.controller_listeners).map(|listener| &listener.name);
            let known = listeners.chain(&node.controller_listener_names).any(|known| *known == name);
            self.findings.require(known, key, format!("{name} is not in listeners"));
        }
    }

    /// Only what is served may be opened or dialled.
    fn check_served(&mut self, node: &NodeConfig, protocols: &BTreeMap<ListenerName, SecurityProtocol>) {
        let opened = node.listeners.iter().chain(&node.controller_listeners);
        let opened = opened.map(|listener| ("listeners", &listener.name, listener.protocol));
        let dialled = node.controller_listener_names.iter().filter(|_| !node.roles.controller);
        let dialled =
            dialled.filter_map(|name| Some(("controller.listener.names", name, *protocols.get(name)?)));
        for (key, name, protocol) in opened.chain(dialled) {
            let reason = format!(
                "listener {name} uses {}, which is not served yet: this version speaks PLAINTEXT only",
                protocol.name()
            );
            self.findings.require(protocol == SecurityProtocol::Plaintext, key, reason);
        }
    }
}
