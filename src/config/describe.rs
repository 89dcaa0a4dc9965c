//! The answers of DescribeConfigs: each property with its value, where it comes from, and the other places that set it.
//! Pure; knows no requests. Invariant: a sensitive property has no value anywhere in its entry.

use super::def::{ConfigDef, ConfigType, Dynamic, Scope};
use super::layers::{Layers, Texts, synonyms};
use super::table::{BrokerKey, broker_key, table};
use super::value::Value;

/// Where a value comes from, with Kafka's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    Topic = 1,
    DynamicBroker = 2,
    DynamicDefaultBroker = 3,
    StaticBroker = 4,
    Default = 5,
    DynamicBrokerLogger = 6,
    ClientMetrics = 7,
    Group = 8,
}

impl ConfigSource {
    /// The number that DescribeConfigs carries.
    pub fn id(self) -> i8 {
        self as i8
    }

    /// The layer of a broker's properties with this number.
    pub fn layer_of_id(id: i8) -> Option<ConfigSource> {
        [ConfigSource::DynamicBroker, ConfigSource::DynamicDefaultBroker, ConfigSource::StaticBroker]
            .into_iter()
            .find(|source| source.id() == id)
    }
}

/// One property of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    /// `None` for an unset property and for a sensitive one.
    pub value: Option<String>,
    pub source: ConfigSource,
    pub read_only: bool,
    pub sensitive: bool,
    /// Every place that sets the property, the strongest first.
    pub synonyms: Vec<EntrySynonym>,
    /// `None` for a property that no table knows.
    pub kind: Option<ConfigType>,
    pub documentation: Option<&'static str>,
}

/// One place that sets a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntrySynonym {
    pub name: String,
    pub value: Option<String>,
    pub source: ConfigSource,
}

impl Entry {
    /// An entry of a property that can change, whose source is that of its strongest synonym.
    fn of(def: &'static ConfigDef, value: &Value, synonyms: Vec<EntrySynonym>) -> Entry {
        Entry {
            name: def.name.to_owned(),
            value: value.text(),
            source: source_of(&synonyms),
            read_only: false,
            sensitive: def.is_sensitive(),
            synonyms,
            kind: Some(def.kind),
            documentation: Some(def.doc),
        }
    }
}

fn source_of(synonyms: &[EntrySynonym]) -> ConfigSource {
    synonyms.first().map_or(ConfigSource::Default, |strongest| strongest.source)
}

/// The names that a request asks for; none means all.
type Wanted<'a> = Option<&'a [String]>;

fn is_wanted(wanted: Wanted<'_>, name: &str) -> bool {
    wanted.is_none_or(|names| names.is_empty() || names.iter().any(|wanted| wanted == name))
}

/// Kafka's tools list what they get, so what Kafka does not have is shown to those who set it or ask for it by name.
fn is_shown(def: &ConfigDef, is_set: bool, wanted: Wanted<'_>) -> bool {
    let asked_for = wanted.is_some_and(|names| !names.is_empty());
    is_set || !(def.internal || def.ours && !asked_for)
}

impl Layers {
    /// The properties of a topic with these overrides.
    pub fn describe_topic(&self, overrides: &Texts, wanted: Wanted<'_>) -> Vec<Entry> {
        self.describe_overridden(Scope::Topic, ConfigSource::Topic, overrides, wanted)
    }

    /// The properties of a group with these overrides.
    pub fn describe_group(&self, overrides: &Texts, wanted: Wanted<'_>) -> Vec<Entry> {
        self.describe_overridden(Scope::Group, ConfigSource::Group, overrides, wanted)
    }

    fn describe_overridden(
        &self,
        scope: Scope,
        source: ConfigSource,
        overrides: &Texts,
        wanted: Wanted<'_>,
    ) -> Vec<Entry> {
        let describe = |def: &'static ConfigDef| {
            let set = overrides.get(def.name).and_then(|text| def.parse(text).ok());
            let is_set =
                set.is_some() || scope == Scope::Group && def.synonyms.iter().any(|it| self.is_set(it.name));
            if !is_wanted(wanted, def.name) || !is_shown(def, is_set, wanted) {
                return None;
            }
            let own = set.as_ref().map(|value| EntrySynonym {
                name: def.name.to_owned(),
                value: value.text(),
                source,
            });
            let of_broker = match def.synonyms.first() {
                Some(synonym) => self.synonyms_of(synonym.name, def.is_sensitive()),
                None if scope == Scope::Group => default_synonym(def).into_iter().collect(),
                None => Vec::new(),
            };
            let value = set.unwrap_or_else(|| self.stand_in(def));
            Some(Entry::of(def, &value, own.into_iter().chain(of_broker).collect()))
        };
        table(scope).iter().filter_map(describe).collect()
    }

    /// The properties of this broker.
    pub fn describe_broker(&self, wanted: Wanted<'_>) -> Vec<Entry> {
        let known = table(Scope::Broker).iter();
        let known =
            known.filter(|def| is_shown(def, self.is_set(def.name) || def.ours, wanted)).map(|def| def.name);
        // What is set beyond the table, such as the properties of plug-ins and of single listeners.
        let layers =
            self.fixed.keys().chain(self.cluster.keys()).chain(self.broker.keys()).map(String::as_str);
        let beyond = layers.filter(|name| table(Scope::Broker).get(name).is_none());
        let names: std::collections::BTreeSet<&str> = known.chain(beyond).collect();
        let names = names.into_iter().filter(|name| is_wanted(wanted, name));
        names.map(|name| self.broker_entry(name, &self.value(name), true)).collect()
    }

    /// The cluster's defaults for brokers.
    pub fn describe_cluster_default(&self, wanted: Wanted<'_>) -> Vec<Entry> {
        let set = self.cluster.iter().filter(|(name, _)| is_wanted(wanted, name));
        set.map(|(name, text)| self.broker_entry(name, &Value::Text(text.clone()), false)).collect()
    }

    fn broker_entry(&self, name: &str, value: &Value, of_broker: bool) -> Entry {
        let def = match broker_key(name) {
            BrokerKey::Plain(def) | BrokerKey::ForListener(def) => Some(def),
            BrokerKey::PlugIn(_) | BrokerKey::Unknown => None,
        };
        // A value whose meaning is unknown may be a password.
        let sensitive = def.is_none_or(ConfigDef::is_sensitive);
        let mut synonyms = self.synonyms_of(name, sensitive);
        if !of_broker {
            synonyms.retain(|synonym| synonym.source == ConfigSource::DynamicDefaultBroker);
        }
        let can_change = table(Scope::Broker).get(name).is_some_and(|def| def.dynamic != Dynamic::ReadOnly);
        Entry {
            name: name.to_owned(),
            value: if sensitive { None } else { value.text() },
            source: source_of(&synonyms),
            read_only: !can_change,
            sensitive,
            synonyms,
            kind: def.map(|def| def.kind),
            documentation: table(Scope::Broker).get(name).map(|def| def.doc),
        }
    }

    /// Every place that sets the broker property `name`: layer by layer, in each by the strength of its names, from the
    /// first on that has the name itself.
    fn synonyms_of(&self, name: &str, sensitive: bool) -> Vec<EntrySynonym> {
        let names = synonyms(name, true);
        let mut found = Vec::new();
        for source in [
            ConfigSource::DynamicBroker,
            ConfigSource::DynamicDefaultBroker,
            ConfigSource::StaticBroker,
            ConfigSource::Default,
        ] {
            for name in &names {
                if let Some(text) = self.text_of(name, source) {
                    let value = (!sensitive).then(|| text.to_owned());
                    found.push(EntrySynonym { name: (*name).to_owned(), value, source });
                }
            }
        }
        found.into_iter().skip_while(|synonym| synonym.name != name).collect()
    }

    /// The text that one layer sets the broker property `name` to.
    fn text_of(&self, name: &str, source: ConfigSource) -> Option<&str> {
        match source {
            ConfigSource::DynamicBroker => self.broker.get(name).map(String::as_str),
            ConfigSource::DynamicDefaultBroker => self.cluster.get(name).map(String::as_str),
            ConfigSource::StaticBroker => self.fixed.get(name).map(|setting| setting.text.as_str()),
            _ => table(Scope::Broker).get(name)?.default_text(),
        }
    }
}

fn default_synonym(def: &ConfigDef) -> Option<EntrySynonym> {
    let value = def.default_text()?.to_owned();
    Some(EntrySynonym { name: def.name.to_owned(), value: Some(value), source: ConfigSource::Default })
}

/// The properties of a subscription to metrics of clients with these settings.
pub fn describe_client_metrics(settings: &Texts, wanted: Wanted<'_>) -> Vec<Entry> {
    let describe = |def: &'static ConfigDef| {
        let set = settings.get(def.name).and_then(|text| def.parse(text).ok());
        let own = set.as_ref().map(|value| EntrySynonym {
            name: def.name.to_owned(),
            value: value.text(),
            source: ConfigSource::ClientMetrics,
        });
        Entry::of(def, &set.unwrap_or_else(|| def.default_value()), own.into_iter().collect())
    };
    table(Scope::ClientMetrics).iter().filter(|def| is_wanted(wanted, def.name)).map(describe).collect()
}
