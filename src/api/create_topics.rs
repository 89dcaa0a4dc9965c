//! CreateTopics: v2-7
//!
//! Behaviour: every topic succeeds or fails by itself; all that succeed are created at once. -1 stands for the number of
//! partitions and replicas that the active controller's settings say, and must stand where replicas are assigned by hand.
//!
//! Version notes: 5 tells the new topic's partitions, replicas and configuration, as the active controller's settings have it;
//! 7 its id.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::creation_defaults::CreationDefaults;
use super::refusal::Refusal;
use super::topic_view::{text, topic_name};
use super::{Api, Call, Request, config_rules, creation_defaults};
use crate::broker::dynamic_config::overrides;
use crate::config::Layers;
use crate::metadata::Image;
use crate::metadata::configs::ConfigResource;
use crate::metadata::topics::{CreateTopicsOptions, CreatedTopic, NewTopic, create_topics};
use crate::types::{NodeId, PartitionIndex, Uuid};
use crate::wire::messages::CreateTopicsRequest;
use crate::wire::messages::create_topics_request::CreatableTopic;
use crate::wire::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult, CreateTopicsResponse,
};

/// The first version that tells what was created.
const DETAILS: i16 = 5;
const TOPIC_IDS: i16 = 7;

pub async fn handle(api: &Api, _: &Call, request: Request<CreateTopicsRequest>) -> CreateTopicsResponse {
    let (version, request) = (request.version, request.body);
    let topics: Arc<[NewTopic]> = request.topics.iter().map(new_topic).collect();
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let began = Instant::now();
    let defaults = defaults(api, &topics, version >= DETAILS, timeout).await;
    let left = timeout.saturating_sub(began.elapsed());
    let (defaults, results) = match defaults {
        Ok(defaults) => {
            let decided = decide(api, Arc::clone(&topics), &defaults, request.validate_only, left).await;
            (Some(defaults), decided)
        }
        Err(error) => (None, all_refused(&topics, &error)),
    };
    let image = if request.validate_only { api.metadata.image() } else { api.served_image(timeout).await };
    let results = results.into_iter().map(|(name, result)| {
        let shown = CreatableTopicResult::default().with_name(topic_name(&name));
        match result {
            Err(refusal) => {
                shown.with_error_code(refusal.code.code()).with_error_message(Some(text(&refusal.message)))
            }
            Ok(created) => {
                let shown = shown.with_error_message(None);
                let shown = if version >= TOPIC_IDS { shown.with_topic_id(created.id) } else { shown };
                let asked = topics.iter().find(|topic| topic.name == name);
                match &defaults {
                    Some(defaults) if version >= DETAILS => {
                        describe(&defaults.layers, &image, shown, &created, asked)
                    }
                    _ => shown,
                }
            }
        }
    });
    CreateTopicsResponse::default().with_topics(results.collect())
}

/// Creates topics and waits until that is decided; the outcome of each name, in the order of the request.
pub(super) async fn create(api: &Api, topics: Arc<[NewTopic]>, timeout: Duration) -> Vec<Outcome> {
    let began = Instant::now();
    match defaults(api, &topics, false, timeout).await {
        Ok(defaults) => decide(api, topics, &defaults, false, timeout.saturating_sub(began.elapsed())).await,
        Err(error) => all_refused(&topics, &error),
    }
}

/// What became of the topic of a name.
type Outcome = (Arc<str>, Result<CreatedTopic, Refusal>);

fn all_refused(topics: &[NewTopic], refusal: &Refusal) -> Vec<Outcome> {
    topics.iter().map(|topic| (Arc::clone(&topic.name), Err(refusal.clone()))).collect()
}

/// What counts for these topics; the active controller is asked only where its settings matter.
async fn defaults(
    api: &Api,
    topics: &[NewTopic],
    are_described: bool,
    timeout: Duration,
) -> Result<CreationDefaults, Refusal> {
    if are_described || creation_defaults::are_open(topics) {
        creation_defaults::of_controller(api, timeout).await
    } else {
        Ok(creation_defaults::of_this_node(api))
    }
}

async fn decide(
    api: &Api,
    topics: Arc<[NewTopic]>,
    defaults: &CreationDefaults,
    validate_only: bool,
    timeout: Duration,
) -> Vec<Outcome> {
    let options = CreateTopicsOptions {
        default_partitions: defaults.partitions,
        default_replication_factor: defaults.replication_factor,
        validate_only,
        seed: rand::random(),
    };
    let effective = api.config.at(&api.metadata.image());
    let asked = Arc::clone(&topics);
    let decided = api.metadata.run_within(timeout, move |image: &Image| {
        let rules = config_rules::Rules::new(&effective.layers, image);
        create_topics(image, &asked, options, &rules.rules())
    });
    let decided = decided.await.map_err(Refusal::from);
    match decided.and_then(|outcomes| outcomes.map_err(Refusal::from)) {
        Ok(outcomes) => {
            let outcomes = outcomes.into_iter();
            outcomes.map(|(name, outcome)| (name, outcome.map_err(Refusal::from))).collect()
        }
        Err(error) => all_refused(&topics, &error),
    }
}

fn new_topic(topic: &CreatableTopic) -> NewTopic {
    NewTopic {
        name: topic.name.as_str().into(),
        id: Uuid::new_v4(),
        partitions: (topic.num_partitions != -1).then_some(topic.num_partitions),
        replication_factor: (topic.replication_factor != -1).then_some(topic.replication_factor),
        assignments: topic
            .assignments
            .iter()
            .map(|assignment| {
                let replicas = assignment.broker_ids.iter().map(|id| NodeId(id.0)).collect();
                (PartitionIndex(assignment.partition_index), replicas)
            })
            .collect(),
        configs: topic
            .configs
            .iter()
            .map(|config| {
                (config.name.as_str().into(), config.value.as_ref().map(|value| value.as_str().into()))
            })
            .collect(),
    }
}

/// Adds what is told of a topic that was, or would be, created.
fn describe(
    layers: &Layers,
    image: &Image,
    shown: CreatableTopicResult,
    created: &CreatedTopic,
    asked: Option<&NewTopic>,
) -> CreatableTopicResult {
    let mut own = overrides(image, &ConfigResource::topic(shown.name.as_str()));
    // Nothing is stored of a topic that was only validated.
    for (key, value) in asked.into_iter().flat_map(|topic| &topic.configs) {
        if let Some(value) = value {
            own.insert(key.to_string(), value.to_string());
        }
    }
    let configs = layers.describe_topic(&own, None).into_iter().map(|entry| {
        CreatableTopicConfigs::default()
            .with_name(text(&entry.name))
            .with_value(entry.value.as_deref().map(text))
            .with_read_only(entry.read_only)
            .with_config_source(entry.source.id())
            .with_is_sensitive(entry.sensitive)
    });
    shown
        .with_num_partitions(i32::try_from(created.partitions).unwrap_or(i32::MAX))
        .with_replication_factor(i16::try_from(created.replication_factor).unwrap_or(i16::MAX))
        .with_configs(Some(configs.collect()))
}
