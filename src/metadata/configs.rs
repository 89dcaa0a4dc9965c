//! Dynamic configuration: the values that have been set per resource. Which keys exist and what they may hold is the
//! `config` module's to know.

mod alter;

pub use alter::{
    AlterConfigError, AlterConfigsReply, Change, ConfigOp, ConfigRules, KeyOp, MAX_VALUE_LENGTH,
    alter_configs, check_resource, incremental_alter_configs,
};

use super::record::Record;
use crate::wire::messages::StrBytes;
use crate::wire::messages::metadata::ConfigRecord;
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use std::sync::Arc;

/// The kinds of things that have dynamic configuration, with Kafka's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i8)]
pub enum ResourceType {
    Topic = 2,
    /// A broker; with an empty name, the default for all brokers.
    Broker = 4,
    ClientMetrics = 16,
    Group = 32,
}

impl ResourceType {
    pub fn from_code(code: i8) -> Option<ResourceType> {
        [ResourceType::Topic, ResourceType::Broker, ResourceType::ClientMetrics, ResourceType::Group]
            .into_iter()
            .find(|kind| *kind as i8 == code)
    }

    pub fn code(self) -> i8 {
        self as i8
    }
}

/// A thing that has dynamic configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConfigResource {
    pub kind: ResourceType,
    pub name: Arc<str>,
}

impl ConfigResource {
    pub fn new(kind: ResourceType, name: impl Into<Arc<str>>) -> ConfigResource {
        ConfigResource { kind, name: name.into() }
    }

    pub fn topic(name: impl Into<Arc<str>>) -> ConfigResource {
        ConfigResource::new(ResourceType::Topic, name)
    }

    /// The default for all brokers.
    pub fn cluster() -> ConfigResource {
        ConfigResource::new(ResourceType::Broker, "")
    }
}

/// The values of one resource by key.
pub type ConfigValues = OrdMap<Arc<str>, Arc<str>>;

/// Values by resource; a resource without values is not there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configs {
    by_resource: OrdMap<ConfigResource, ConfigValues>,
}

impl Configs {
    /// What is set on a resource; none when nothing is.
    pub fn get(&self, resource: &ConfigResource) -> Option<&ConfigValues> {
        self.by_resource.get(resource)
    }

    pub fn value(&self, resource: &ConfigResource, key: &str) -> Option<&Arc<str>> {
        self.by_resource.get(resource)?.get(key)
    }

    /// What is set on a topic.
    pub fn topic(&self, name: &str) -> Option<&ConfigValues> {
        self.get(&ConfigResource::topic(name))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ConfigResource, &ConfigValues)> {
        self.by_resource.iter()
    }

    /// The resources whose values differ from those of `older`.
    pub(super) fn changed_since<'a>(
        &'a self,
        older: &'a Configs,
    ) -> impl Iterator<Item = &'a ConfigResource> {
        older.by_resource.diff(&self.by_resource).map(|difference| match difference {
            DiffItem::Add(resource, _) | DiffItem::Remove(resource, _) => resource,
            DiffItem::Update { new: (resource, _), .. } => resource,
        })
    }

    pub(super) fn apply(&mut self, record: &ConfigRecord) {
        // A kind of resource that we do not know has no meaning here, as for Kafka.
        let Some(kind) = ResourceType::from_code(record.resource_type) else { return };
        let resource = ConfigResource::new(kind, &*record.resource_name);
        let mut values = self.by_resource.get(&resource).cloned().unwrap_or_default();
        match &record.value {
            Some(value) => values.insert(Arc::from(&*record.name), Arc::from(&**value)),
            None => values.remove(&*record.name),
        };
        if values.is_empty() {
            self.by_resource.remove(&resource);
        } else {
            self.by_resource.insert(resource, values);
        }
    }

    /// The configuration of a topic goes with it.
    pub(super) fn forget_topic(&mut self, name: &str) {
        self.by_resource.remove(&ConfigResource::topic(name));
    }

    pub(super) fn to_records(&self, records: &mut Vec<Record>) {
        for (resource, values) in &self.by_resource {
            records.extend(values.iter().map(|(key, value)| config_record(resource, key, Some(value))));
        }
    }
}

/// The record that sets a key, or removes it.
pub(super) fn config_record(resource: &ConfigResource, key: &str, value: Option<&str>) -> Record {
    ConfigRecord {
        resource_type: resource.kind.code(),
        resource_name: StrBytes::from_string(resource.name.to_string()),
        name: StrBytes::from_string(key.to_owned()),
        value: value.map(|value| StrBytes::from_string(value.to_owned())),
        ..ConfigRecord::default()
    }
    .into()
}
