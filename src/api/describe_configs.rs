//! DescribeConfigs: v1-4
//!
//! Behaviour: the properties of topics, of this broker, of the cluster's defaults (a broker without a name), of this broker's
//! loggers, of groups and of subscriptions to client metrics; all of them, or those that are named. What is asked of
//! another broker is refused: clients ask each broker itself.
//!
//! Version notes: 1 adds the source and the synonyms; 3 the type and the documentation.

use super::config_resource::{BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC, this_node};
use super::refusal::Refusal;
use super::topic_view::text;
use super::{Api, Call, Request};
use crate::broker::dynamic_config::overrides;
use crate::config::{ConfigSource, ConfigType, Entry, describe_client_metrics};
use crate::metadata::Image;
use crate::metadata::configs::{ConfigResource, ResourceType};
use crate::metadata::topics::name as topic_names;
use crate::types::ErrorCode;
use crate::wire::messages::DescribeConfigsRequest;
use crate::wire::messages::describe_configs_request::DescribeConfigsResource;
use crate::wire::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResponse, DescribeConfigsResult, DescribeConfigsSynonym,
};

/// The first version with types and documentation.
const TYPES: i16 = 3;

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<DescribeConfigsRequest>,
) -> DescribeConfigsResponse {
    let (version, request) = (request.version, request.body);
    let shown = Shown {
        version,
        synonyms: request.include_synonyms,
        documentation: version >= TYPES && request.include_documentation,
    };
    let image = api.metadata.image();
    let results = request.resources.iter().map(|resource| {
        let result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        match describe(api, &image, resource) {
            Ok(entries) => result.with_configs(entries.iter().map(|entry| shown.entry(entry)).collect()),
            Err(refusal) => {
                result.with_error_code(refusal.code.code()).with_error_message(Some(text(&refusal.message)))
            }
        }
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn describe(api: &Api, image: &Image, asked: &DescribeConfigsResource) -> Result<Vec<Entry>, Refusal> {
    let name = asked.resource_name.as_str();
    let keys: Option<Vec<String>> =
        asked.configuration_keys.as_ref().map(|keys| keys.iter().map(ToString::to_string).collect());
    let wanted = keys.as_deref();
    let effective = api.config.at(image);
    let layers = &effective.layers;
    match asked.resource_type {
        TOPIC => {
            topic_names::validate(name)
                .map_err(|error| Refusal::new(ErrorCode::InvalidTopicException, error.to_string()))?;
            if image.topics.by_name(name).is_none() {
                let message = format!("topic {name} does not exist");
                return Err(Refusal::new(ErrorCode::UnknownTopicOrPartition, message));
            }
            Ok(layers.describe_topic(&overrides(image, &ConfigResource::topic(name)), wanted))
        }
        BROKER if name.is_empty() => Ok(layers.describe_cluster_default(wanted)),
        BROKER => {
            this_node(api, name)?;
            Ok(layers.describe_broker(wanted))
        }
        BROKER_LOGGER => {
            this_node(api, name)?;
            Ok(loggers(api, wanted))
        }
        CLIENT_METRICS | GROUP if name.is_empty() => {
            Err(Refusal::new(ErrorCode::InvalidRequest, "the resource has no name"))
        }
        CLIENT_METRICS => {
            let resource = ConfigResource::new(ResourceType::ClientMetrics, name);
            Ok(describe_client_metrics(&overrides(image, &resource), wanted))
        }
        GROUP => {
            let resource = ConfigResource::new(ResourceType::Group, name);
            Ok(layers.describe_group(&overrides(image, &resource), wanted))
        }
        kind => {
            Err(Refusal::new(ErrorCode::InvalidRequest, format!("resources of type {kind} are not known")))
        }
    }
}

fn loggers(api: &Api, wanted: Option<&[String]>) -> Vec<Entry> {
    let is_wanted = |name: &String| wanted.is_none_or(|keys| keys.is_empty() || keys.contains(name));
    let listed = api.loggers.list().into_iter().filter(|(name, _)| is_wanted(name));
    listed
        .map(|(name, level)| Entry {
            name,
            value: Some(level.to_owned()),
            source: ConfigSource::DynamicBrokerLogger,
            read_only: false,
            sensitive: false,
            synonyms: Vec::new(),
            kind: None,
            documentation: None,
        })
        .collect()
}

/// What of an entry the request and its version let through.
struct Shown {
    version: i16,
    synonyms: bool,
    documentation: bool,
}

impl Shown {
    fn entry(&self, entry: &Entry) -> DescribeConfigsResourceResult {
        let mut shown = DescribeConfigsResourceResult::default()
            .with_name(text(&entry.name))
            .with_value(entry.value.as_deref().map(text))
            .with_read_only(entry.read_only)
            .with_config_source(entry.source.id())
            .with_is_sensitive(entry.sensitive);
        if self.synonyms {
            let synonyms = entry.synonyms.iter().map(|synonym| {
                DescribeConfigsSynonym::default()
                    .with_name(text(&synonym.name))
                    .with_value(synonym.value.as_deref().map(text))
                    .with_source(synonym.source.id())
            });
            shown.synonyms = synonyms.collect();
        }
        if self.version >= TYPES {
            shown.config_type = entry.kind.map_or(0, ConfigType::id);
            shown.documentation = entry.documentation.filter(|_| self.documentation).map(text);
        }
        shown
    }
}
