//! The one table of every property of Kafka 4.4 and of our own few, by scope and theme. Everything else that knows
//! properties reads it here: files, descriptions, alterations, documentation. Knows no rule that joins properties.
//! Invariant: within a scope a name appears once, and every default passes its own validator.

mod client_metrics;
mod group;
mod groups;
mod log;
mod metrics;
mod network;
mod quorum;
mod quota;
mod remote;
mod replication;
mod rules;
mod sasl;
mod security;
mod server;
mod share;
mod ssl;
mod streams;
mod topic;
mod transaction;

use std::sync::LazyLock;

use super::def::{ConfigDef, Scope};

pub(super) use rules::parse_ip_overrides;

// What happens instead of a property that is accepted without effect.
const NO_ACL: &str = "nothing is authorised yet: every client may do everything";
const NO_AUTH: &str = "clients are not authenticated yet";
const NO_CLASSES: &str = "there is no Java virtual machine to load the class; what is built in is used";
const NO_GROUPS: &str = "coordinators of groups run on the network threads, assign as they go, and write as soon as they have decided";
const NO_JMX: &str = "metrics are not reported yet";
const NO_PROVIDERS: &str = "references such as ${file:...} in other values are taken literally";
const NO_PURGATORY: &str = "requests that waited are cleared away as they finish";
const NO_QUOTA: &str = "quotas are not enforced yet";
const NO_PREALLOCATION: &str = "a segment grows as records are written";
const NO_RATE: &str = "connections are limited in number, not yet in rate";
const NO_SASL: &str = "SASL is not served yet: only PLAINTEXT listeners start";
const NO_SHARE: &str = "share groups are not served yet";
const NO_STREAMS: &str = "streams groups are not served yet";
const NO_TELEMETRY: &str = "metrics of clients are not collected yet";
const NO_TIERED: &str = "tiered storage is not served: all data stays on local disks";
const NO_TLS: &str = "TLS is not served yet: only PLAINTEXT listeners start";
const NO_TOKENS: &str = "delegation tokens are not served yet";
const NO_TXN: &str = "two-phase commit is not served";
const BUFFERS: &str = "the system sizes the buffers of connections to other nodes";
const DIRECTORIES: &str = "a broker that cannot tell the controller of a failed directory goes on";
const EARLY: &str = "every listener opens when the broker is ready";
const LINGER: &str = "what waits while the metadata log is synced is written together";
const METADATA: &str = "the metadata log follows a fixed schedule of its own";
const QUORUM_PACE: &str =
    "the quorum beats every 100 ms, misses a silent leader after 600 to 1000 ms, and a crashed one at once";
const QUORUM_PIECES: &str = "entries travel in pieces of about 1 MiB, snapshots in pieces of 512 KiB";
const PATIENCE: &str = "connections to other nodes have time limits of their own";
const POOLS: &str = "num.network.threads and num.shard.threads size the pools";
const STEADY: &str = "throttled replication keeps to its rate from second to second";
const START: &str = "starting has no time limit";
const UNSTABLE: &str = "only finished versions are offered";

const COMPRESSIONS: &[&str] = &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];

// Assignors may be named by the classes that Kafka has for them; there are no others.
const CONSUMER_ASSIGNORS: &[&str] = &[
    "uniform",
    "range",
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
];
const SHARE_ASSIGNORS: &[&str] = &["simple", "org.apache.kafka.coordinator.group.assignor.SimpleAssignor"];
const STREAMS_ASSIGNORS: &[&str] =
    &["sticky", "org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor"];

/// Properties that Kafka leaves to a plug-in, so that they have no type: their name (or its beginning, with a dot at
/// the end) and what happens instead.
const PLUG_INS: &[(&str, &str)] = &[
    ("super.users", NO_ACL),
    ("allow.everyone.if.no.acl.found", NO_ACL),
    ("config.providers.", NO_PROVIDERS),
    ("rlmm.config.", NO_TIERED),
    ("rsm.config.", NO_TIERED),
    ("metrics.jmx.", NO_JMX),
];

/// The properties of one theme, for documentation.
pub struct Theme {
    pub title: &'static str,
    pub defs: &'static [ConfigDef],
}

/// The themes of the broker's properties in the order of the documentation.
pub const BROKER_THEMES: &[Theme] = &[
    Theme { title: "Node", defs: server::DEFS },
    Theme { title: "Listeners and connections", defs: network::DEFS },
    Theme { title: "Logs", defs: log::DEFS },
    Theme { title: "Replication", defs: replication::DEFS },
    Theme { title: "Controllers and metadata", defs: quorum::DEFS },
    Theme { title: "Quotas", defs: quota::DEFS },
    Theme { title: "Metrics", defs: metrics::DEFS },
    Theme { title: "Transactions", defs: transaction::DEFS },
    Theme { title: "Classic and consumer groups", defs: group::DEFS },
    Theme { title: "Share groups", defs: share::DEFS },
    Theme { title: "Streams groups", defs: streams::DEFS },
    Theme { title: "Tiered storage", defs: remote::DEFS },
    Theme { title: "Principals and tokens", defs: security::DEFS },
    Theme { title: "TLS", defs: ssl::DEFS },
    Theme { title: "SASL", defs: sasl::DEFS },
];

/// The properties of one scope, sorted by name.
pub struct Table {
    defs: Vec<&'static ConfigDef>,
}

impl Table {
    fn new(themes: &[&'static [ConfigDef]]) -> Table {
        let mut defs: Vec<&'static ConfigDef> = themes.iter().copied().flatten().collect();
        defs.sort_unstable_by_key(|def| def.name);
        Table { defs }
    }

    /// The property of this name.
    pub fn get(&self, name: &str) -> Option<&'static ConfigDef> {
        let index = self.defs.binary_search_by_key(&name, |def| def.name).ok()?;
        Some(self.defs[index])
    }

    /// Every property, by name.
    pub fn iter(&self) -> impl Iterator<Item = &'static ConfigDef> + '_ {
        self.defs.iter().copied()
    }
}

static BROKER: LazyLock<Table> =
    LazyLock::new(|| Table::new(&BROKER_THEMES.iter().map(|theme| theme.defs).collect::<Vec<_>>()));
static TOPIC: LazyLock<Table> = LazyLock::new(|| Table::new(&[topic::DEFS]));
static GROUP: LazyLock<Table> = LazyLock::new(|| Table::new(&[groups::DEFS]));
static CLIENT_METRICS: LazyLock<Table> = LazyLock::new(|| Table::new(&[client_metrics::DEFS]));

/// The properties of `scope`.
pub fn table(scope: Scope) -> &'static Table {
    match scope {
        Scope::Broker => &BROKER,
        Scope::Topic => &TOPIC,
        Scope::Group => &GROUP,
        Scope::ClientMetrics => &CLIENT_METRICS,
    }
}

/// What a broker property's name refers to.
#[derive(Clone, Copy, Debug)]
pub enum BrokerKey {
    Plain(&'static ConfigDef),
    /// `listener.name.NAME.` and (for some SASL properties `MECHANISM.` and) the name of a plain one.
    ForListener(&'static ConfigDef),
    /// Of a plug-in; the words say what happens instead.
    PlugIn(&'static str),
    Unknown,
}

/// The properties that may stand behind a SASL mechanism's name in a listener's property.
const PER_MECHANISM: &[&str] = &[
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
];

/// The name that a listener's property has when the listener is left out, if `name` is one.
pub fn without_listener(name: &str) -> Option<&str> {
    let (_, base) = name.strip_prefix("listener.name.")?.split_once('.')?;
    let per_mechanism = PER_MECHANISM.iter().copied().find(|known| base.ends_with(known));
    Some(per_mechanism.unwrap_or(base))
}

/// What the broker property `name` refers to.
pub fn broker_key(name: &str) -> BrokerKey {
    if let Some(def) = BROKER.get(name) {
        return BrokerKey::Plain(def);
    }
    if let Some(def) = without_listener(name).and_then(|base| BROKER.get(base)) {
        return BrokerKey::ForListener(def);
    }
    let plug_in = PLUG_INS.iter().find(|(known, _)| match known.strip_suffix('.') {
        Some(_) => name.starts_with(known),
        None => name == *known,
    });
    match plug_in {
        Some((_, instead)) => BrokerKey::PlugIn(instead),
        None => BrokerKey::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::super::def::{DefaultValue, Scope, Support};
    use super::super::value::Value;
    use super::{BrokerKey, broker_key, table};

    const SCOPES: [Scope; 4] = [Scope::Broker, Scope::Topic, Scope::Group, Scope::ClientMetrics];

    #[test]
    fn names_appear_once() {
        for scope in SCOPES {
            let names: Vec<_> = table(scope).iter().map(|def| def.name).collect();
            assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{scope:?}");
        }
    }

    #[test]
    fn the_table_has_every_property_of_kafka() {
        let count = |scope| table(scope).iter().filter(|def| !def.ours).count();
        // 379 of Kafka 4.4's definition, and three rates that can only be set while a broker runs.
        assert_eq!(count(Scope::Broker), 379 + 3);
        assert_eq!(count(Scope::Topic), 38);
        assert_eq!(count(Scope::Group), 27);
        assert_eq!(count(Scope::ClientMetrics), 3);
    }

    #[test]
    fn defaults_pass_their_own_validators_and_keep_their_text() {
        for def in SCOPES.into_iter().flat_map(|scope| table(scope).iter()) {
            let DefaultValue::Text(text) = def.default else { continue };
            // Kafka allows these to be empty only as long as nobody sets them.
            let value = def.parse(text).unwrap_or_else(|reason| panic!("{}={text}: {reason}", def.name));
            assert_eq!(value.text().as_deref(), Some(text), "{}", def.name);
            assert_ne!(value, Value::Null);
        }
    }

    #[test]
    fn synonyms_exist_and_every_property_is_explained() {
        for def in SCOPES.into_iter().flat_map(|scope| table(scope).iter()) {
            for synonym in def.synonyms {
                assert!(table(Scope::Broker).get(synonym.name).is_some(), "{}", synonym.name);
            }
            assert!(def.doc.ends_with('.') && def.doc.len() > 10, "{}", def.name);
            if let Support::Accepted(instead) = def.support {
                assert!(!instead.is_empty());
            }
        }
    }

    #[test]
    fn a_listener_has_properties_of_its_own() {
        let base = |name| match broker_key(name) {
            BrokerKey::ForListener(def) => def.name,
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(base("listener.name.internal.ssl.keystore.location"), "ssl.keystore.location");
        assert_eq!(base("listener.name.x.scram-sha-256.sasl.jaas.config"), "sasl.jaas.config");
        assert!(matches!(broker_key("listener.name.x.nonsense"), BrokerKey::Unknown));
        assert!(matches!(broker_key("super.users"), BrokerKey::PlugIn(_)));
        assert!(matches!(broker_key("rsm.config.chunk.size"), BrokerKey::PlugIn(_)));
    }
}
