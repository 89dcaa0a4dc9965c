//! The decisions on dynamic configuration: the incremental form (KIP-339), which changes single keys, and the old form,
//! which replaces all values of a resource. One wrong key refuses its whole resource, and only that.

use super::{ConfigResource, ConfigValues, ResourceType, config_record};
use crate::config::AlterError;
use crate::metadata::election::MIN_INSYNC_REPLICAS;
use crate::metadata::record::Record;
use crate::metadata::{Decision, Image};
use crate::types::NodeId;
use crate::wire::messages::StrBytes;
use crate::wire::messages::metadata::ClearElrRecord;
use std::collections::BTreeSet;
use std::sync::Arc;

const CORDONED_LOG_DIRS: &str = "cordoned.log.dirs";

/// The longest value that a record takes.
pub const MAX_VALUE_LENGTH: usize = i16::MAX as usize;

/// What the decisions ask the table of configuration keys.
pub struct ConfigRules<'a> {
    /// Whether a key holds a list, which can be appended to.
    pub is_list: &'a dyn Fn(ResourceType, &str) -> bool,
    /// What a key holds where nothing is set: what APPEND and SUBTRACT start from.
    pub default: &'a dyn Fn(ResourceType, &str) -> Option<String>,
    /// Judges all values that a resource would have.
    pub validate: &'a dyn Fn(&ConfigResource, &ConfigValues) -> Result<(), AlterError>,
}

/// What to do with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigOp {
    Set(Arc<str>),
    Delete,
    /// Adds the items of a comma-separated list that are not there yet.
    Append(Arc<str>),
    /// Takes away the items of a comma-separated list.
    Subtract(Arc<str>),
}

/// Why the values of a resource stay as they are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlterConfigError {
    #[error("the resource is named more than once")]
    DuplicateResource,
    #[error("topic '{0}' does not exist")]
    UnknownTopic(Arc<str>),
    #[error("'{0}' is not a broker's id")]
    InvalidBrokerName(Arc<str>),
    #[error("no node with id {0} is registered")]
    UnknownBroker(NodeId),
    #[error("the resource has no name")]
    NoName(ResourceType),
    #[error("key {0} does not hold a list, so nothing can be appended or subtracted")]
    NotAList(Arc<str>),
    #[error("key {0} is named more than once")]
    DuplicateKey(Arc<str>),
    #[error("the value of {0} would be longer than {MAX_VALUE_LENGTH} bytes")]
    TooLong(Arc<str>),
    #[error(
        "min.insync.replicas of a single broker cannot be altered while eligible leader replicas are enabled"
    )]
    BrokerMinIsr,
    #[error(
        "min.insync.replicas of the cluster cannot be removed while eligible leader replicas are enabled"
    )]
    ClusterMinIsr,
    #[error("cordoned.log.dirs needs metadata.version 4.3-IV0")]
    CordonedLogDirs,
    #[error(transparent)]
    Invalid(AlterError),
}

/// The outcome for each resource, in the order of the request; one that comes twice has one outcome.
pub type AlterConfigsReply = Vec<(ConfigResource, Result<(), AlterConfigError>)>;

/// A key and what to do with it.
pub type KeyOp = (Arc<str>, ConfigOp);

/// A key and its new value, or none to remove it.
pub type Change = (Arc<str>, Option<Arc<str>>);

/// Changes single keys.
pub fn incremental_alter_configs(
    image: &Image,
    resources: &[(ConfigResource, Vec<KeyOp>)],
    validate_only: bool,
    rules: &ConfigRules<'_>,
) -> Decision<AlterConfigsReply> {
    alter(image, resources, validate_only, rules, |current, resource, ops| {
        let mut keys = BTreeSet::new();
        ops.iter()
            .map(|(key, op)| {
                if !keys.insert(key) {
                    return Err(AlterConfigError::DuplicateKey(Arc::clone(key)));
                }
                Ok((Arc::clone(key), new_value(resource.kind, key, current.get(key), op, rules)?))
            })
            .collect()
    })
}

/// Replaces all values: keys that are not named go back to their default.
pub fn alter_configs(
    image: &Image,
    resources: &[(ConfigResource, Vec<Change>)],
    validate_only: bool,
    rules: &ConfigRules<'_>,
) -> Decision<AlterConfigsReply> {
    alter(image, resources, validate_only, rules, |current, _, values| {
        let mut changes: Vec<Change> = values.clone();
        let forgotten = current.keys().filter(|key| values.iter().all(|(named, _)| named != *key));
        changes.extend(forgotten.map(|key| (Arc::clone(key), None)));
        Ok(changes)
    })
}

fn alter<T>(
    image: &Image,
    resources: &[(ConfigResource, T)],
    validate_only: bool,
    rules: &ConfigRules<'_>,
    changes: impl Fn(&ConfigValues, &ConfigResource, &T) -> Result<Vec<Change>, AlterConfigError>,
) -> Decision<AlterConfigsReply> {
    let mut seen = BTreeSet::new();
    let duplicates: BTreeSet<_> =
        resources.iter().map(|(resource, _)| resource).filter(|resource| !seen.insert(*resource)).collect();
    let mut answered = BTreeSet::new();
    let mut records = Vec::new();
    let mut outcomes = Vec::new();
    for (resource, input) in resources.iter().filter(|(resource, _)| answered.insert(resource)) {
        let current = image.configs.get(resource).cloned().unwrap_or_default();
        let decided = if duplicates.contains(resource) {
            Err(AlterConfigError::DuplicateResource)
        } else {
            changes(&current, resource, input)
                .and_then(|changes| decide_resource(image, resource, &current, changes, rules))
        };
        outcomes.push((resource.clone(), decided.map(|decided| records.extend(decided))));
    }
    if validate_only {
        records.clear();
    }
    if image.features.elr_is_enabled() {
        records.extend(clear_elr_records(image, &records));
    }
    Decision::new(records, outcomes)
}

fn decide_resource(
    image: &Image,
    resource: &ConfigResource,
    current: &ConfigValues,
    changes: Vec<Change>,
    rules: &ConfigRules<'_>,
) -> Result<Vec<Record>, AlterConfigError> {
    if resource.name.is_empty() && resource.kind != ResourceType::Broker {
        return Err(AlterConfigError::NoName(resource.kind));
    }
    let mut values = current.clone();
    let mut records = Vec::new();
    for (key, value) in changes {
        // A broker rereads files that a value names (KIP-226), so there a record is written even if nothing changes.
        if resource.kind != ResourceType::Broker && current.get(&key) == value.as_ref() {
            continue;
        }
        check_change(image, resource, &key, value.as_ref())?;
        records.push(config_record(resource, &key, value.as_deref()));
        match value {
            Some(value) => values.insert(key, value),
            None => values.remove(&key),
        };
    }
    (rules.validate)(resource, &values).map_err(AlterConfigError::Invalid)?;
    check_resource(image, resource)?;
    Ok(records)
}

/// Checks that a resource with a name exists, where that can be said.
pub fn check_resource(image: &Image, resource: &ConfigResource) -> Result<(), AlterConfigError> {
    let name = &resource.name;
    match resource.kind {
        ResourceType::Topic if image.topics.by_name(name).is_some() => Ok(()),
        ResourceType::Topic => Err(AlterConfigError::UnknownTopic(Arc::clone(name))),
        ResourceType::Broker if name.is_empty() => Ok(()),
        ResourceType::Broker => match name.parse().map(NodeId) {
            Err(_) => Err(AlterConfigError::InvalidBrokerName(Arc::clone(name))),
            Ok(id) if image.brokers.get(id).is_some() || image.controllers.get(id).is_some() => Ok(()),
            Ok(id) => Err(AlterConfigError::UnknownBroker(id)),
        },
        ResourceType::ClientMetrics | ResourceType::Group => Ok(()),
    }
}

fn check_change(
    image: &Image,
    resource: &ConfigResource,
    key: &Arc<str>,
    value: Option<&Arc<str>>,
) -> Result<(), AlterConfigError> {
    let of_broker = resource.kind == ResourceType::Broker;
    if of_broker && **key == *MIN_INSYNC_REPLICAS && image.features.elr_is_enabled() {
        if !resource.name.is_empty() {
            return Err(AlterConfigError::BrokerMinIsr);
        }
        if value.is_none() {
            return Err(AlterConfigError::ClusterMinIsr);
        }
    }
    if of_broker && **key == *CORDONED_LOG_DIRS && !image.metadata_version().has_cordoned_directories() {
        return Err(AlterConfigError::CordonedLogDirs);
    }
    if value.is_some_and(|value| value.len() > MAX_VALUE_LENGTH) {
        return Err(AlterConfigError::TooLong(Arc::clone(key)));
    }
    Ok(())
}

fn new_value(
    kind: ResourceType,
    key: &Arc<str>,
    current: Option<&Arc<str>>,
    op: &ConfigOp,
    rules: &ConfigRules<'_>,
) -> Result<Option<Arc<str>>, AlterConfigError> {
    let items = || {
        if !(rules.is_list)(kind, key) {
            return Err(AlterConfigError::NotAList(Arc::clone(key)));
        }
        let start =
            current.map(ToString::to_string).or_else(|| (rules.default)(kind, key)).unwrap_or_default();
        Ok(start.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect::<Vec<_>>())
    };
    Ok(match op {
        ConfigOp::Set(value) => Some(Arc::clone(value)),
        ConfigOp::Delete => None,
        ConfigOp::Append(added) => {
            let mut items = items()?;
            for item in added.split(',') {
                if !items.iter().any(|present| present == item) {
                    items.push(item.to_owned());
                }
            }
            Some(items.join(",").into())
        }
        ConfigOp::Subtract(removed) => {
            let mut items = items()?;
            for item in removed.split(',') {
                if let Some(position) = items.iter().position(|present| present == item) {
                    items.remove(position);
                }
            }
            Some(items.join(",").into())
        }
    })
}

/// Who is eligible to lead depends on min.insync.replicas, so when that changes nobody is until it is known anew. Kafka
/// forgets who is eligible also when the default for all brokers is set to what it is.
fn clear_elr_records(image: &Image, records: &[Record]) -> Vec<Record> {
    let changed = records.iter().filter_map(|record| match record {
        Record::Config(record) if &*record.name == MIN_INSYNC_REPLICAS => Some(record),
        _ => None,
    });
    let changed = changed.filter(|record| {
        let kind = ResourceType::from_code(record.resource_type);
        let resource = kind.map(|kind| ConfigResource::new(kind, &*record.resource_name));
        let before =
            resource.and_then(|resource| image.configs.value(&resource, MIN_INSYNC_REPLICAS).cloned());
        before.as_deref() != record.value.as_deref()
    });
    changed
        .map(|record| {
            let of_topic = record.resource_type == ResourceType::Topic.code();
            let topic_name = if of_topic { record.resource_name.clone() } else { StrBytes::new() };
            ClearElrRecord { topic_name, ..ClearElrRecord::default() }.into()
        })
        .collect()
}
