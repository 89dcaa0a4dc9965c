//! What may be set while the cluster runs: validation of whole new configurations of topics, brokers, groups and
//! subscriptions. Pure; knows no requests. Invariant: what passes here can be laid into `Layers`.

use super::checks;
use super::def::{ConfigDef, Dynamic, Scope};
use super::layers::{Layers, Texts, streams_assignor};
use super::table::{BrokerKey, broker_key, table};
use super::topic::{RemoteStorage, TopicConfig};
use super::value::Value;

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct AlterError {
    pub kind: AlterErrorKind,
    pub key: String,
    pub reason: String,
}

/// Which of Kafka's two errors a refusal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlterErrorKind {
    /// INVALID_CONFIG
    InvalidConfig,
    /// INVALID_REQUEST
    InvalidRequest,
}

impl AlterErrorKind {
    fn refuse(self, key: &str, reason: impl Into<String>) -> AlterError {
        AlterError { kind: self, key: key.to_owned(), reason: reason.into() }
    }
}

use AlterErrorKind::{InvalidConfig, InvalidRequest};

/// The typed properties that a configuration sets.
fn parse_all<'a>(
    scope: Scope,
    texts: &'a Texts,
    unknown: AlterErrorKind,
) -> Result<Vec<(&'a str, Value)>, AlterError> {
    let parse = |(key, text): (&'a String, &'a String)| {
        let def = table(scope).get(key).ok_or_else(|| unknown.refuse(key, "is no known property"))?;
        let value = def.parse(text).map_err(|reason| refuse_value(InvalidConfig, def, text, &reason))?;
        Ok((key.as_str(), value))
    };
    texts.iter().map(parse).collect()
}

fn refuse_value(kind: AlterErrorKind, def: &ConfigDef, text: &str, reason: &str) -> AlterError {
    if def.is_sensitive() {
        kind.refuse(def.name, format!("the value is refused: {reason}"))
    } else {
        kind.refuse(def.name, format!("'{text}' is refused: {reason}"))
    }
}

impl Layers {
    /// Whether a topic may have the overrides `new` where it had `old`.
    pub fn validate_topic(&self, old: &Texts, new: &Texts) -> Result<(), AlterError> {
        parse_all(Scope::Topic, new, InvalidConfig)?;
        let served = self.value("remote.log.storage.system.enable") == Value::Boolean(true);
        let was_enabled =
            old.get("remote.storage.enable").is_some_and(|text| text.trim().eq_ignore_ascii_case("true"));
        let remote = if served { RemoteStorage::Served { was_enabled } } else { RemoteStorage::NotServed };
        let config: TopicConfig = self.topic_config(new);
        config.check(remote)
    }

    /// Whether this broker may have the dynamic properties `new` in place of those it has.
    pub fn validate_broker(&self, new: &Texts) -> Result<(), AlterError> {
        self.validate_dynamic(new, true)
    }

    /// Whether another broker than this may have `new` in place of the properties `old` that it has: what depends on its own settings,
    /// or on its disks, is for itself to say.
    pub fn validate_other_broker(old: &Texts, new: &Texts) -> Result<(), AlterError> {
        new.iter().try_for_each(|(key, text)| may_be_set(key, text, true))?;
        same_listeners(old, new)?;
        let entries = |texts: &Texts| -> Vec<String> {
            let text = texts.get(CORDONED_LOG_DIRS).map_or("", String::as_str);
            text.split(',').map(|entry| entry.trim().to_owned()).filter(|entry| !entry.is_empty()).collect()
        };
        let known = entries(old);
        match entries(new).into_iter().find(|entry| !known.contains(entry)) {
            Some(entry) => Err(InvalidConfig.refuse(
                CORDONED_LOG_DIRS,
                format!("only the broker itself can say whether it has {entry}: ask it"),
            )),
            None => Ok(()),
        }
    }

    /// Whether the cluster may have the defaults `new` in place of those it has, as far as this broker can tell.
    pub fn validate_cluster_default(&self, new: &Texts) -> Result<(), AlterError> {
        self.validate_dynamic(new, false)
    }

    fn validate_dynamic(&self, new: &Texts, per_broker: bool) -> Result<(), AlterError> {
        new.iter().try_for_each(|(key, text)| may_be_set(key, text, per_broker))?;
        let old = if per_broker { &self.broker } else { &self.cluster };
        same_listeners(old, new)?;
        let after = if per_broker {
            self.with_dynamic(&self.cluster, new)
        } else {
            self.with_dynamic(new, &self.broker)
        };
        for key in THREADS {
            check_threads(key, self, &after)?;
        }
        let problem = checks::dynamic_relations(&after).into_iter().next();
        problem.map_or(Ok(()), |(key, reason)| Err(InvalidRequest.refuse(&key, reason)))
    }

    /// Whether a group may have the properties `new`, within the bounds that this broker sets.
    pub fn validate_group(&self, new: &Texts) -> Result<(), AlterError> {
        let values = parse_all(Scope::Group, new, InvalidConfig)?;
        for (key, value) in &values {
            self.check_group_bounds(key, value)?;
        }
        let tags = "streams.rack.aware.assignment.tags";
        if new.get(tags).is_some_and(|text| checks::has_repeated_entry(text)) {
            return Err(InvalidConfig.refuse(tags, "has a tag twice"));
        }
        for kind in ["consumer", "share", "streams"] {
            self.check_group_session(kind, &values)?;
        }
        Ok(())
    }

    fn check_group_bounds(&self, key: &str, value: &Value) -> Result<(), AlterError> {
        match (key, value) {
            ("streams.assignor.name", Value::Text(name)) => {
                let known = match self.value("group.streams.assignors") {
                    Value::List(known) => known.iter().map(|it| streams_assignor(it).to_owned()).collect(),
                    _ => Vec::new(),
                };
                if !known.contains(name) {
                    return Err(
                        InvalidConfig.refuse(key, format!("'{name}' is not one of {}", known.join(", ")))
                    );
                }
            }
            ("errors.deadletterqueue.topic.name", Value::Text(name)) if name.starts_with("__") => {
                return Err(
                    InvalidConfig.refuse(key, "must not begin with '__', which marks internal topics")
                );
            }
            (_, Value::Integer(number)) => {
                let Some((kind, rest)) = key.split_once('.') else { return Ok(()) };
                let least = format!("group.{kind}.min.{rest}");
                let most = format!("group.{kind}.max.{}", rest.strip_prefix("num.").unwrap_or(rest));
                if self.integer(&least).is_some_and(|least| *number < least) {
                    return Err(
                        InvalidConfig.refuse(key, format!("{number} is less than the broker's {least}"))
                    );
                }
                if self.integer(&most).is_some_and(|most| *number > most) {
                    return Err(
                        InvalidConfig.refuse(key, format!("{number} is more than the broker's {most}"))
                    );
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check_group_session(&self, kind: &str, values: &[(&str, Value)]) -> Result<(), AlterError> {
        let (session, heartbeat) =
            (format!("{kind}.session.timeout.ms"), format!("{kind}.heartbeat.interval.ms"));
        let set = |key: &str| {
            values.iter().find_map(|(set, value)| match value {
                Value::Integer(number) if *set == key => Some(*number),
                _ => None,
            })
        };
        if set(&session).is_none() && set(&heartbeat).is_none() {
            return Ok(());
        }
        let holds = |key: &str| set(key).or_else(|| self.integer(&format!("group.{key}")));
        if holds(&session) <= holds(&heartbeat) {
            return Err(InvalidConfig.refuse(&session, format!("must be more than {heartbeat}")));
        }
        Ok(())
    }
}

/// Whether a subscription to metrics of clients may have the properties `new`.
pub fn validate_client_metrics(new: &Texts) -> Result<(), AlterError> {
    match parse_all(Scope::ClientMetrics, new, InvalidRequest) {
        // Kafka checks the range of the interval on its own, and answers differently.
        Err(error) if error.key == "interval.ms" && new["interval.ms"].trim().parse::<i32>().is_ok() => {
            Err(AlterError { kind: InvalidRequest, ..error })
        }
        checked => checked.map(drop),
    }
}

/// Listeners could change while a broker runs; this version reads them once.
const FIXED_LISTENERS: &[&str] = &["listeners", "listener.security.protocol.map"];

fn same_listeners(old: &Texts, new: &Texts) -> Result<(), AlterError> {
    match FIXED_LISTENERS.iter().find(|key| new.get(**key) != old.get(**key)) {
        Some(key) => Err(InvalidRequest.refuse(key, "is changed by a restart in this version")),
        None => Ok(()),
    }
}

const CORDONED_LOG_DIRS: &str = "cordoned.log.dirs";

/// Numbers of threads, which change by a factor of two at most.
const THREADS: &[&str] = &[
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
];

fn check_threads(key: &str, before: &Layers, after: &Layers) -> Result<(), AlterError> {
    let (Some(old), Some(new)) = (before.integer(key), after.integer(key)) else { return Ok(()) };
    if new == old {
        Ok(())
    } else if new < 1 {
        Err(InvalidRequest.refuse(key, "must be at least 1"))
    } else if new < old / 2 || new > old * 2 {
        Err(InvalidRequest.refuse(key, format!("may be halved or doubled at most, from {old}")))
    } else {
        Ok(())
    }
}

/// Whether the broker property `key` may be set to `text` while the broker runs, for one broker or for the cluster.
pub(super) fn may_be_set(key: &str, text: &str, per_broker: bool) -> Result<(), AlterError> {
    let (def, for_listener) = match broker_key(key) {
        BrokerKey::Plain(def) => (def, false),
        BrokerKey::ForListener(def) => (def, true),
        // Kafka keeps what it does not know for plug-ins.
        BrokerKey::PlugIn(_) | BrokerKey::Unknown => return Ok(()),
    };
    if !for_listener && def.dynamic == Dynamic::ReadOnly {
        return Err(InvalidRequest.refuse(key, "cannot be changed while the broker runs"));
    }
    if !for_listener && is_security(def.name) {
        return Err(InvalidRequest
            .refuse(key, "is changed for one listener at a time: put listener.name.NAME. before it"));
    }
    def.parse(text).map_err(|reason| AlterError {
        key: key.to_owned(),
        ..refuse_value(InvalidRequest, def, text, &reason)
    })?;
    let needs_broker = if for_listener {
        !CLUSTER_WIDE_OF_LISTENERS.contains(&def.name)
    } else {
        def.dynamic == Dynamic::PerBroker
    };
    if needs_broker && !per_broker {
        return Err(InvalidRequest.refuse(key, "is changed for one broker at a time, not for the cluster"));
    }
    Ok(())
}

/// The properties of a listener that may be set for the whole cluster.
const CLUSTER_WIDE_OF_LISTENERS: &[&str] =
    &["max.connections", "max.connection.creation.rate", "num.network.threads"];

/// Whether a property holds this node's key, its certificates or those it trusts, which change per listener only.
fn is_security(name: &str) -> bool {
    name.starts_with("ssl.keystore.") || name.starts_with("ssl.truststore.") || name == "ssl.key.password"
}
