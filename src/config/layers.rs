//! A broker's properties in layers: its own settings, the cluster's defaults, and what was set for it while it ran.
//! Pure: the dynamic layers are handed in, and a change makes new layers. Knows no cross-key rule.
//! Invariant: every value here has passed its validator; what the dynamic layers may not set is left out of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::alter;
use super::broker::BrokerConfig;
use super::def::{ConfigDef, Scope, Synonym, Unit};
use super::describe::{ConfigSource, EntrySynonym};
use super::origin::{Origin, Setting};
use super::source::Settings;
use super::table::{BrokerKey, broker_key, table, without_listener};
use super::topic::TopicConfig;
use super::value::Value;

/// Properties and their values as text, as metadata records carry them.
pub type Texts = BTreeMap<String, String>;

/// The layers of one broker's properties.
#[derive(Clone, Debug)]
pub struct Layers {
    pub(super) fixed: Arc<Settings>,
    /// The cluster's defaults.
    pub(super) cluster: Arc<Texts>,
    /// What is set for this broker.
    pub(super) broker: Arc<Texts>,
    /// The layers laid over each other.
    merged: Arc<BTreeMap<String, Value>>,
}

impl Layers {
    /// The layers of a broker before it knows any dynamic ones.
    pub fn of_settings(settings: Settings) -> Layers {
        let (cluster, broker) = (Arc::default(), Arc::default());
        let fixed = Arc::new(settings);
        let merged = Arc::new(merge(&fixed, &cluster, &broker));
        Layers { fixed, cluster, broker, merged }
    }

    /// The layers of another node, as far as it tells which of them set what.
    pub fn of_told(told: impl IntoIterator<Item = EntrySynonym>) -> Layers {
        let (mut fixed, mut cluster, mut broker) = (Settings::new(), Texts::new(), Texts::new());
        for EntrySynonym { name, value, source } in told {
            let Some(text) = value else { continue };
            match source {
                ConfigSource::StaticBroker => {
                    fixed.insert(name, Setting { text, origin: Origin::OtherNode });
                }
                ConfigSource::DynamicDefaultBroker => drop(cluster.insert(name, text)),
                ConfigSource::DynamicBroker => drop(broker.insert(name, text)),
                _ => {}
            }
        }
        Layers::of_settings(fixed).with_dynamic(&cluster, &broker)
    }

    /// The same broker under other dynamic layers. What they hold beyond what may be set in them is ignored, as it may
    /// come from another version.
    #[must_use]
    pub fn with_dynamic(&self, cluster: &Texts, broker: &Texts) -> Layers {
        let keep = |texts: &Texts, per_broker| {
            let kept = texts.iter().filter(|(key, text)| alter::may_be_set(key, text, per_broker).is_ok());
            Arc::new(kept.map(|(key, text)| (key.clone(), text.clone())).collect::<Texts>())
        };
        let (cluster, broker) = (keep(cluster, false), keep(broker, true));
        let merged = Arc::new(merge(&self.fixed, &cluster, &broker));
        Layers { fixed: Arc::clone(&self.fixed), cluster, broker, merged }
    }

    /// What the user should know of the dynamic layers, as far as they are not as they were `before`: where they have no
    /// effect.
    pub fn warnings_since(&self, before: Option<&Layers>) -> Vec<String> {
        let old = before.map(|before| [&before.cluster, &before.broker]);
        let changed = [&self.cluster, &self.broker].into_iter().enumerate().flat_map(|(at, now)| {
            let is_new = move |key: &str, text| old.is_none_or(|old| old[at].get(key) != Some(text));
            now.iter().filter(move |(key, text)| is_new(key, text)).map(|(key, _)| key.as_str())
        });
        let keys: BTreeSet<&str> = changed.collect();
        keys.into_iter().filter_map(|key| super::without_effect(key, OF_SOURCES.contains(&key))).collect()
    }

    /// The properties that the code reads.
    pub fn broker_config(&self) -> BrokerConfig {
        BrokerConfig::read(|key| self.value(key))
    }

    /// The properties of a topic with these overrides. An override that is not valid is passed over: alterations refuse
    /// it, so it can only come from another version.
    pub fn topic_config(&self, overrides: &Texts) -> TopicConfig {
        TopicConfig::read(|key| match table(Scope::Topic).get(key) {
            Some(def) => {
                overrides.get(key).and_then(|text| def.parse(text).ok()).unwrap_or_else(|| self.stand_in(def))
            }
            None => Value::Null,
        })
    }

    /// The value of the broker property `key`; `Null` for one that is unset or unknown.
    pub fn value(&self, key: &str) -> Value {
        match (self.merged.get(key), table(Scope::Broker).get(key)) {
            (Some(value), _) => value.clone(),
            (None, Some(def)) => def.default_value(),
            (None, None) => Value::Null,
        }
    }

    /// The value of the broker property `key` where it is a whole number.
    pub(super) fn integer(&self, key: &str) -> Option<i64> {
        match self.value(key) {
            Value::Integer(number) => Some(number),
            _ => None,
        }
    }

    /// Whether these are the layers of the broker with this name.
    pub fn are_of(&self, broker: &str) -> bool {
        broker.parse().is_ok_and(|id| self.integer("node.id") == Some(id))
    }

    /// The limits on connections of the listeners that have one of their own, by the listeners' names in lower case.
    pub fn max_connections_of_listeners(&self) -> impl Iterator<Item = (&str, i32)> {
        self.merged.iter().filter_map(|(key, value)| {
            let listener = key.strip_prefix("listener.name.")?.strip_suffix(".max.connections")?;
            match value {
                Value::Integer(max) => Some((listener, i32::try_from(*max).ok()?)),
                _ => None,
            }
        })
    }

    /// The properties of brokers that stand in for those of topics.
    pub fn stand_ins_for_topics() -> impl Iterator<Item = &'static str> {
        table(Scope::Topic).iter().flat_map(|def| def.synonyms.iter().map(|synonym| synonym.name))
    }

    /// Whether some layer sets the broker property `key`.
    pub fn is_set(&self, key: &str) -> bool {
        self.merged.contains_key(key)
    }

    /// The value of a topic's or a group's property that is not set itself.
    pub(super) fn stand_in(&self, def: &ConfigDef) -> Value {
        let from_broker = def.synonyms.iter().map(|synonym| (synonym, self.value(synonym.name)));
        match from_broker.into_iter().find(|(_, value)| *value != Value::Null) {
            Some((synonym, value)) => convert(def, synonym, value),
            None => def.default_value(),
        }
    }
}

/// A broker property's value as that of the property it stands in for.
fn convert(def: &ConfigDef, synonym: &Synonym, value: Value) -> Value {
    let millis = |number: i64, unit| number.saturating_mul(unit);
    match (value, synonym.unit) {
        // A broker's retention may be any negative number; a topic's is -1 then.
        (Value::Integer(number), _) if number < 0 && def.name == "retention.ms" => Value::Integer(-1),
        (Value::Integer(number), Unit::Minutes) => Value::Integer(millis(number, 60_000)),
        (Value::Integer(number), Unit::Hours) => Value::Integer(millis(number, 3_600_000)),
        // A broker may offer several assignors; a group that chooses none gets the first.
        (Value::List(entries), _) if def.name == "streams.assignor.name" => {
            entries.first().map_or(Value::Null, |first| Value::Text(streams_assignor(first).to_owned()))
        }
        (value, _) => value,
    }
}

/// The name of an assignor of tasks that may be given by its class.
pub(super) fn streams_assignor(entry: &str) -> &str {
    if entry.ends_with(".StickyTaskAssignor") { "sticky" } else { entry }
}

/// Lays the layers over each other. A property in a higher layer also hides the synonyms of lower ones, so that
/// `log.retention.hours` set while the broker runs wins over `log.retention.ms` of its file.
fn merge(fixed: &Settings, cluster: &Texts, broker: &Texts) -> BTreeMap<String, Value> {
    let mut texts: BTreeMap<&str, &str> =
        fixed.iter().map(|(key, setting)| (key.as_str(), setting.text.as_str())).collect();
    for (key, text) in cluster.iter().chain(broker) {
        for synonym in synonyms(key, false) {
            texts.remove(synonym);
        }
        texts.insert(key, text);
    }
    texts.into_iter().filter_map(|(key, text)| Some((key.to_owned(), parse_broker(key, text)?))).collect()
}

/// The value of a broker property; that of an unknown one is its text.
fn parse_broker(key: &str, text: &str) -> Option<Value> {
    match broker_key(key) {
        BrokerKey::Plain(def) | BrokerKey::ForListener(def) => def.parse(text).ok(),
        BrokerKey::PlugIn(_) | BrokerKey::Unknown => Some(Value::Text(text.to_owned())),
    }
}

/// What one listener may have otherwise than the others (`listener.name.NAME.` before it).
pub(super) const OF_LISTENERS: &[&str] = &["max.connections"];

/// What Kafka changes while a broker runs, and we take from the node's own sources alone.
pub(super) const OF_SOURCES: &[&str] =
    &["listeners", "listener.security.protocol.map", "num.network.threads"];

const ROLL: &[&str] = &["log.roll.ms", "log.roll.hours"];
const ROLL_JITTER: &[&str] = &["log.roll.jitter.ms", "log.roll.jitter.hours"];
const RETENTION: &[&str] = &["log.retention.ms", "log.retention.minutes", "log.retention.hours"];
const FLUSH: &[&str] = &["log.flush.interval.ms", "log.flush.scheduler.interval.ms"];

/// The broker properties that mean the same as `key`, the strongest first; for a listener's property, with
/// `and_base`, also the one without the listener.
pub(super) fn synonyms(key: &str, and_base: bool) -> Vec<&str> {
    for family in [ROLL, ROLL_JITTER, RETENTION] {
        if family.contains(&key) {
            return family.to_vec();
        }
    }
    if key == FLUSH[0] {
        return FLUSH.to_vec();
    }
    let base = if and_base { without_listener(key) } else { None };
    std::iter::once(key).chain(base).collect()
}
