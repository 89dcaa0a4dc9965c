//! Creating topics. Each topic of a request succeeds or fails by itself; one of too many partitions refuses all.

use super::assignment::{AssignmentError, MAX_PARTITIONS_PER_OPERATION, ReplicationError, assigned, placed};
use super::name::{self, CLUSTER_METADATA, InvalidName};
use super::partition::PartitionRegistration;
use super::topic_record;
use crate::config::AlterError;
use crate::metadata::configs::{ConfigResource, ConfigRules, ConfigValues, config_record};
use crate::metadata::record::Record;
use crate::metadata::{Decision, Image};
use crate::types::{NodeId, PartitionIndex, TopicId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A topic to create.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewTopic {
    pub name: Arc<str>,
    /// The id that it gets: random, and so the caller's to choose.
    pub id: TopicId,
    /// None for the default.
    pub partitions: Option<i32>,
    /// None for the default.
    pub replication_factor: Option<i16>,
    /// The replicas of each partition, if the client chooses them.
    pub assignments: Vec<(PartitionIndex, Vec<NodeId>)>,
    pub configs: Vec<(Arc<str>, Option<Arc<str>>)>,
}

/// What holds for all topics of a request.
#[derive(Clone, Copy, Debug)]
pub struct CreateTopicsOptions {
    pub default_partitions: i32,
    pub default_replication_factor: i16,
    pub validate_only: bool,
    /// Where placement begins.
    pub seed: u64,
}

/// A topic that was, or would be, created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedTopic {
    pub id: TopicId,
    pub partitions: usize,
    pub replication_factor: usize,
}

/// Why a topic is not created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateTopicError {
    #[error("the topic is named more than once")]
    Duplicate,
    /// As `Exists`.
    #[error("Creation of internal topic {CLUSTER_METADATA} is prohibited.")]
    ClusterMetadata,
    #[error("the topic's name is invalid: {0}")]
    InvalidName(InvalidName),
    #[error("the name collides with that of topic {existing}, as dots and underscores are one in metrics")]
    Collides { existing: Arc<str> },
    /// In Kafka's words: clients' tests compare them.
    #[error("Topic '{0}' already exists.")]
    Exists(Arc<str>),
    #[error("topic configs without a value: {0}")]
    NullConfigs(String),
    #[error(transparent)]
    InvalidConfig(AlterError),
    #[error("partitions are assigned, so the replication factor must be left open")]
    AssignmentsAndReplicationFactor,
    #[error("partitions are assigned, so the number of partitions must be left open")]
    AssignmentsAndPartitions,
    #[error("partition {0} is assigned more than once")]
    DuplicateAssignment(PartitionIndex),
    #[error("the assigned partitions must be numbered consecutively from 0")]
    AssignmentsNotConsecutive,
    #[error(transparent)]
    Assignment(#[from] AssignmentError),
    #[error("a replication factor must be larger than 0, or -1 for the default")]
    InvalidReplicationFactor,
    #[error("a topic must have at least one partition, or -1 for the default")]
    InvalidPartitions,
    #[error(transparent)]
    Replication(#[from] ReplicationError),
}

/// The whole operation would be too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {MAX_PARTITIONS_PER_OPERATION} partitions in one operation")]
pub struct TooManyPartitions;

/// The outcome for each name, in the order of the request; a name that comes twice has one outcome.
pub type CreateTopicsReply =
    Result<Vec<(Arc<str>, Result<CreatedTopic, CreateTopicError>)>, TooManyPartitions>;

/// Creates topics.
pub fn create_topics(
    image: &Image,
    topics: &[NewTopic],
    options: CreateTopicsOptions,
    rules: &ConfigRules<'_>,
) -> Decision<CreateTopicsReply> {
    if total_partitions(topics, options) > MAX_PARTITIONS_PER_OPERATION {
        return Decision::reply(Err(TooManyPartitions));
    }
    let duplicates = duplicate_names(topics);
    let collisions = collision_forms(image, topics);
    let mut answered = BTreeSet::new();
    let mut records = Vec::new();
    let mut outcomes = Vec::new();
    for (position, topic) in topics.iter().enumerate() {
        if !answered.insert(&topic.name) {
            continue;
        }
        let outcome = if duplicates.contains(&topic.name) {
            Err(CreateTopicError::Duplicate)
        } else {
            // Each topic is placed by a seed of its own, or all would start on the same broker.
            let options = CreateTopicsOptions { seed: options.seed.wrapping_add(position as u64), ..options };
            create_one(image, topic, options, rules, &collisions, &mut records)
        };
        outcomes.push((Arc::clone(&topic.name), outcome));
    }
    if options.validate_only {
        records.clear();
    }
    Decision::new(records, Ok(outcomes))
}

fn total_partitions(topics: &[NewTopic], options: CreateTopicsOptions) -> usize {
    let partitions = |topic: &NewTopic| match topic.assignments.len() {
        0 => usize::try_from(topic.partitions.unwrap_or(options.default_partitions)).unwrap_or(0),
        assigned => assigned,
    };
    topics.iter().map(partitions).fold(0, usize::saturating_add)
}

fn duplicate_names(topics: &[NewTopic]) -> BTreeSet<Arc<str>> {
    let mut seen = BTreeSet::new();
    topics.iter().map(|topic| &topic.name).filter(|name| !seen.insert(*name)).cloned().collect()
}

/// The existing topics by collision form, if any new name can collide.
fn collision_forms(image: &Image, topics: &[NewTopic]) -> HashMap<String, Arc<str>> {
    if topics.iter().all(|topic| name::collision_form(&topic.name).is_none()) {
        return HashMap::new();
    }
    let existing = image.topics.iter();
    existing.filter_map(|topic| Some((name::collision_form(&topic.name)?, Arc::clone(&topic.name)))).collect()
}

fn create_one(
    image: &Image,
    topic: &NewTopic,
    options: CreateTopicsOptions,
    rules: &ConfigRules<'_>,
    collisions: &HashMap<String, Arc<str>>,
    records: &mut Vec<Record>,
) -> Result<CreatedTopic, CreateTopicError> {
    check_name(image, &topic.name, collisions)?;
    let configs = check_configs(topic, rules)?;
    let partitions =
        if topic.assignments.is_empty() { place(image, topic, options)? } else { assign(image, topic)? };
    let created = CreatedTopic {
        id: topic.id,
        partitions: partitions.len(),
        replication_factor: partitions.first().map_or(0, |partition| partition.replicas.len()),
    };
    records.push(topic_record(&topic.name, topic.id));
    let resource = ConfigResource::topic(Arc::clone(&topic.name));
    records.extend(configs.iter().map(|(key, value)| config_record(&resource, key, Some(value))));
    let version = image.metadata_version();
    records.extend(
        (0..).zip(&partitions).map(|(index, p)| p.to_record(topic.id, PartitionIndex(index), version)),
    );
    Ok(created)
}

fn check_name(
    image: &Image,
    name: &Arc<str>,
    collisions: &HashMap<String, Arc<str>>,
) -> Result<(), CreateTopicError> {
    if **name == *CLUSTER_METADATA {
        return Err(CreateTopicError::ClusterMetadata);
    }
    if image.topics.by_name(name).is_some() {
        return Err(CreateTopicError::Exists(Arc::clone(name)));
    }
    if let Some(existing) = name::collision_form(name).and_then(|form| collisions.get(&form)) {
        return Err(CreateTopicError::Collides { existing: Arc::clone(existing) });
    }
    name::validate(name).map_err(CreateTopicError::InvalidName)
}

fn check_configs(topic: &NewTopic, rules: &ConfigRules<'_>) -> Result<ConfigValues, CreateTopicError> {
    let without_value: Vec<&str> =
        topic.configs.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| &**key).collect();
    if !without_value.is_empty() {
        return Err(CreateTopicError::NullConfigs(without_value.join(",")));
    }
    let configs: ConfigValues =
        topic.configs.iter().filter_map(|(key, value)| Some((Arc::clone(key), value.clone()?))).collect();
    if !configs.is_empty() {
        let resource = ConfigResource::topic(Arc::clone(&topic.name));
        (rules.validate)(&resource, &configs).map_err(CreateTopicError::InvalidConfig)?;
    }
    Ok(configs)
}

fn place(
    image: &Image,
    topic: &NewTopic,
    options: CreateTopicsOptions,
) -> Result<Vec<PartitionRegistration>, CreateTopicError> {
    if topic.replication_factor.is_some_and(|factor| factor <= 0) {
        return Err(CreateTopicError::InvalidReplicationFactor);
    }
    let count = topic.partitions.unwrap_or(options.default_partitions);
    let count = usize::try_from(count).ok().filter(|count| *count > 0);
    let count = count.ok_or(CreateTopicError::InvalidPartitions)?;
    let factor = topic.replication_factor.unwrap_or(options.default_replication_factor);
    Ok(placed(image, count, factor, options.seed)?)
}

fn assign(image: &Image, topic: &NewTopic) -> Result<Vec<PartitionRegistration>, CreateTopicError> {
    if topic.replication_factor.is_some() {
        return Err(CreateTopicError::AssignmentsAndReplicationFactor);
    }
    if topic.partitions.is_some() {
        return Err(CreateTopicError::AssignmentsAndPartitions);
    }
    let mut partitions = BTreeMap::new();
    let mut replication_factor = None;
    for (index, replicas) in &topic.assignments {
        if partitions.contains_key(index) {
            return Err(CreateTopicError::DuplicateAssignment(*index));
        }
        partitions.insert(*index, assigned(image, *index, replicas, replication_factor)?);
        replication_factor = Some(replicas.len());
    }
    if !partitions.keys().copied().eq((0..partitions.len() as i32).map(PartitionIndex)) {
        return Err(CreateTopicError::AssignmentsNotConsecutive);
    }
    Ok(partitions.into_values().collect())
}
