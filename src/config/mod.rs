//! Layer 1: every setting under Kafka's property name, typed. `table` is the one list of properties; `source` reads files,
//! environment and command line; `layers` lays the dynamic configuration over them; `node`, `broker` and `topic` are
//! what the code reads; `alter` judges changes, `describe` answers DescribeConfigs, `docs` writes the reference page.
//! Must not know the wire, storage or metadata. Invariant: a `Config` that exists has passed every check of Kafka's.

mod alter;
mod broker;
mod checks;
mod def;
mod describe;
#[cfg(test)]
mod docs;
mod endpoint;
mod layers;
mod node;
mod origin;
mod source;
mod table;
mod topic;
mod typed;
mod value;

pub use alter::{AlterError, AlterErrorKind, validate_client_metrics};
pub use broker::BrokerConfig;
pub use def::{
    ConfigDef, ConfigType, DefaultValue, Dynamic, Importance, Scope, Support, Synonym, Unit, Validator,
};
pub use describe::{ConfigSource, Entry, EntrySynonym, describe_client_metrics};
pub use endpoint::{HostPort, Listener, ListenerName, SecurityProtocol, Voter};
pub use layers::{Layers, Texts};
pub use node::{NodeConfig, Quorum, Roles};
pub use origin::{ConfigErrors, Origin, Problem, Setting};
pub use source::{Settings, Sources};
pub use table::{BROKER_THEMES, BrokerKey, Table, Theme, broker_key, table};
pub use topic::{CleanupPolicy, CompressionType, MessageTimestampType, TopicCompression, TopicConfig};
pub use value::{Secret, Value};

/// A node's configuration as its sources make it.
#[derive(Clone, Debug)]
pub struct Config {
    pub node: NodeConfig,
    /// The broker's properties, with no dynamic layers yet.
    pub layers: Layers,
    /// `CLUSTER_ID` of the environment: the cluster for which directories are formatted that are empty.
    pub cluster_id: Option<String>,
    /// What the user should know: properties without effect, unknown ones.
    pub warnings: Vec<String>,
}

/// Reads, merges and checks the sources. Every problem is found before any is returned.
pub fn load(sources: &Sources) -> Result<Config, ConfigErrors> {
    let settings =
        source::gather(sources).map_err(|problems| ConfigErrors { problems, warnings: Vec::new() })?;
    let cluster_id = sources.variable("CLUSTER_ID").map(str::to_owned);
    check(settings, sources.file.is_none(), cluster_id)
}

fn check(
    mut settings: Settings,
    alone_by_default: bool,
    cluster_id: Option<String>,
) -> Result<Config, ConfigErrors> {
    let mut problems = Vec::new();
    let mut warnings = Vec::new();
    for (key, setting) in &settings {
        warnings.extend(warning(key, setting));
        problems.extend(problem_of_value(key, setting));
    }
    same_node_and_broker_id(&mut settings);
    for def in table(Scope::Broker).iter().filter(|def| def.default == DefaultValue::Required) {
        if !settings.contains_key(def.name) {
            let reason = "must be set: it has no default".to_owned();
            problems.push(Problem { origin: None, key: Some(def.name.to_owned()), value: None, reason });
        }
    }
    if !problems.is_empty() {
        // Relations between values would only repeat what is wrong with the values.
        return Err(ConfigErrors { problems, warnings });
    }
    let layers = Layers::of_settings(settings);
    let (node, findings) = node::read(&layers, alone_by_default);
    warnings.extend(findings.warnings);
    warnings.extend(slow_heartbeat(&layers));
    let found = checks::relations(&layers).into_iter().chain(findings.problems);
    let problems: Vec<Problem> =
        found.map(|(key, reason)| problem_of_relation(&layers, &key, reason)).collect();
    match node {
        Some(node) if problems.is_empty() => Ok(Config { node, layers, cluster_id, warnings }),
        _ => Err(ConfigErrors { problems, warnings }),
    }
}

/// `broker.id` and `node.id` are two names of one property.
fn same_node_and_broker_id(settings: &mut Settings) {
    for (from, to) in [("node.id", "broker.id"), ("broker.id", "node.id")] {
        if let (Some(setting), false) = (settings.get(from).cloned(), settings.contains_key(to)) {
            settings.insert(to.to_owned(), setting);
        }
    }
}

/// What the user should know about a setting: that it has no effect.
fn warning(key: &str, setting: &Setting) -> Option<String> {
    let origin = &setting.origin;
    if *origin == Origin::Builtin {
        return None;
    }
    without_effect(key, false).map(|what| format!("{origin}: {what}"))
}

/// That a property has no effect, if it has none, with what happens instead. `of_sources`: it would have one in the node's
/// own sources.
fn without_effect(key: &str, of_sources: bool) -> Option<String> {
    let instead = match broker_key(key) {
        BrokerKey::Plain(def) => match def.support {
            Support::Accepted(instead) => instead,
            Support::Honoured if of_sources => "it is taken from the configuration that the node starts with",
            Support::Honoured => return None,
        },
        BrokerKey::ForListener(def) => match def.support {
            Support::Accepted(instead) => instead,
            Support::Honoured if layers::OF_LISTENERS.contains(&def.name) => return None,
            Support::Honoured => {
                return Some(format!("{key} has no effect: {} holds for all listeners", def.name));
            }
        },
        BrokerKey::PlugIn(instead) => instead,
        BrokerKey::Unknown => return Some(format!("{key} is not a known property; it is ignored")),
    };
    Some(format!("{key} has no effect: {instead}"))
}

/// What happens instead when a topic sets this property so, if it has no effect. To set what holds anyway needs no telling.
pub fn topic_without_effect(key: &str, text: &str) -> Option<&'static str> {
    let def = table(Scope::Topic).get(key)?;
    match def.support {
        Support::Accepted(instead) if def.parse(text).ok()? != def.default_value() => Some(instead),
        _ => None,
    }
}

fn problem_of_value(key: &str, setting: &Setting) -> Option<Problem> {
    let (BrokerKey::Plain(def) | BrokerKey::ForListener(def)) = broker_key(key) else { return None };
    let reason = def.parse(&setting.text).err()?;
    let value = (!def.is_sensitive()).then(|| setting.text.clone());
    Some(Problem { origin: Some(setting.origin.clone()), key: Some(key.to_owned()), value, reason })
}

/// A problem between properties, shown at the one that was set.
fn problem_of_relation(layers: &Layers, key: &str, reason: String) -> Problem {
    let strongest =
        layers::synonyms(key, false).into_iter().find_map(|name| Some((name, layers.fixed.get(name)?)));
    match strongest {
        Some((name, setting)) => Problem {
            origin: Some(setting.origin.clone()),
            key: Some(name.to_owned()),
            value: Some(setting.text.clone()),
            reason,
        },
        None => Problem { origin: None, key: Some(key.to_owned()), value: layers.value(key).text(), reason },
    }
}

fn slow_heartbeat(layers: &Layers) -> Option<String> {
    let heartbeat = layers.integer("broker.heartbeat.interval.ms")?;
    let session = layers.integer("broker.session.timeout.ms")?;
    (heartbeat.saturating_mul(2) > session).then(|| {
        format!(
            "broker.heartbeat.interval.ms ({heartbeat}) should be at most half of broker.session.timeout.ms ({session}), \
             or one lost heartbeat fences the broker"
        )
    })
}

#[cfg(test)]
mod tests;
