//! What becomes of what a new topic does not say: how many partitions and replicas it is to have, and what the answer tells of
//! its configuration. The settings of the active controller count, not those of the broker that was asked. So it makes no
//! difference which one that is.
//!
//! Must not know who creates topics. Invariant: without an answer of the active controller nothing is made up.

use std::time::Duration;

use super::Api;
use super::config_resource::BROKER;
use super::refusal::Refusal;
use super::topic_view::text;
use crate::config::{ConfigSource, EntrySynonym, Layers};
use crate::metadata::topics::NewTopic;
use crate::types::{ErrorCode, NodeId};
use crate::wire::messages::describe_configs_request::DescribeConfigsResource;
use crate::wire::messages::{DescribeConfigsRequest, DescribeConfigsResponse};

pub const NUM_PARTITIONS: &str = "num.partitions";
pub const DEFAULT_REPLICATION_FACTOR: &str = "default.replication.factor";

/// How long the answer to one question may take: another controller is there in about a second when this one hangs.
const QUESTION_LIMIT: Duration = Duration::from_millis(500);
/// How long a broker rests between two questions.
const AGAIN_PAUSE: Duration = Duration::from_millis(50);
const DESCRIBE_CONFIGS_VERSION: i16 = 4;

/// What a topic has that does not say.
#[derive(Clone, Debug)]
pub struct CreationDefaults {
    pub partitions: i32,
    pub replication_factor: i16,
    /// With the properties that stand in for those of topics.
    pub layers: Layers,
}

/// Whether topics leave it to the settings how many partitions and replicas they have.
pub(super) fn are_open(topics: &[NewTopic]) -> bool {
    let is_open = |topic: &NewTopic| {
        topic.assignments.is_empty() && (topic.partitions.is_none() || topic.replication_factor.is_none())
    };
    topics.iter().any(is_open)
}

/// What the active controller's settings are.
pub(super) async fn of_controller(api: &Api, limit: Duration) -> Result<CreationDefaults, Refusal> {
    let ask = |question_limit| async move {
        if api.metadata.is_leader() {
            return Some(of_this_node(api));
        }
        let voters = api.raft.voters();
        let question = question(api.metadata.leader()?);
        read(&voters.ask_leader(&question, DESCRIBE_CONFIGS_VERSION, question_limit).await?)
    };
    // Who does not wait at all for the outcome gets this far all the same.
    until_answered(limit.max(QUESTION_LIMIT), ask).await
}

/// Asks again and again. Each answer may take as long as is said; the one asked may hang, and another be the controller next.
async fn until_answered<F: Future<Output = Option<CreationDefaults>>>(
    limit: Duration,
    ask: impl Fn(Duration) -> F,
) -> Result<CreationDefaults, Refusal> {
    let asked = async {
        loop {
            if let Some(defaults) = ask(QUESTION_LIMIT).await {
                return defaults;
            }
            tokio::time::sleep(AGAIN_PAUSE).await;
        }
    };
    tokio::time::timeout(limit, asked).await.map_err(|_| {
        let message = "the active controller does not say what a topic has that does not say";
        Refusal::new(ErrorCode::RequestTimedOut, message)
    })
}

pub(super) fn of_this_node(api: &Api) -> CreationDefaults {
    let effective = api.config.at(&api.metadata.image());
    let broker = &effective.broker;
    CreationDefaults {
        partitions: broker.num_partitions,
        replication_factor: i16::try_from(broker.default_replication_factor).unwrap_or(i16::MAX),
        layers: effective.layers.clone(),
    }
}

fn question(leader: NodeId) -> DescribeConfigsRequest {
    let keys = [NUM_PARTITIONS, DEFAULT_REPLICATION_FACTOR].into_iter().chain(Layers::stand_ins_for_topics());
    let resource = DescribeConfigsResource::default()
        .with_resource_type(BROKER)
        .with_resource_name(text(&leader.to_string()))
        .with_configuration_keys(Some(keys.map(text).collect()));
    DescribeConfigsRequest::default().with_resources(vec![resource]).with_include_synonyms(true)
}

/// What an answer says; `None` where it is of another node, which leads no more, or not whole.
fn read(answer: &DescribeConfigsResponse) -> Option<CreationDefaults> {
    let result = answer.results.first().filter(|result| result.error_code == ErrorCode::None.code())?;
    let number = |key: &str| {
        let entry = result.configs.iter().find(|entry| entry.name.as_str() == key)?;
        entry.value.as_ref()?.as_str().parse::<i32>().ok()
    };
    let replication_factor = i16::try_from(number(DEFAULT_REPLICATION_FACTOR)?).unwrap_or(i16::MAX);
    // Each place that sets a property is listed under the property's own name; those of its synonyms under theirs.
    let places = result.configs.iter().flat_map(|entry| {
        let own = entry.synonyms.iter().filter(|place| place.name == entry.name);
        own.filter_map(|place| {
            Some(EntrySynonym {
                name: place.name.to_string(),
                value: place.value.as_ref().map(ToString::to_string),
                source: ConfigSource::layer_of_id(place.source)?,
            })
        })
    });
    let layers = Layers::of_told(places);
    Some(CreationDefaults { partitions: number(NUM_PARTITIONS)?, replication_factor, layers })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Texts;
    use crate::wire::messages::describe_configs_response::{
        DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
    };

    fn answer(code: ErrorCode, entries: &[(&str, Option<&str>)]) -> DescribeConfigsResponse {
        let entry = |(name, value): &(&str, Option<&str>)| {
            DescribeConfigsResourceResult::default().with_name(text(name)).with_value(value.map(text))
        };
        let result = DescribeConfigsResult::default()
            .with_error_code(code.code())
            .with_configs(entries.iter().map(entry).collect());
        DescribeConfigsResponse::default().with_results(vec![result])
    }

    #[test]
    fn an_answer_counts_when_it_is_whole() {
        let both = [(DEFAULT_REPLICATION_FACTOR, Some("2")), (NUM_PARTITIONS, Some("5"))];
        let read = |told: &DescribeConfigsResponse| {
            read(told).map(|defaults| (defaults.partitions, defaults.replication_factor))
        };
        assert_eq!(read(&answer(ErrorCode::None, &both)), Some((5, 2)));
        assert_eq!(read(&answer(ErrorCode::InvalidRequest, &both)), None, "it was another node");
        for part in [&both[..1], &both[1..], &[(NUM_PARTITIONS, None), both[0]]] {
            assert_eq!(read(&answer(ErrorCode::None, part)), None, "{part:?}");
        }
        assert_eq!(read(&DescribeConfigsResponse::default()), None);
    }

    #[test]
    fn a_topic_inherits_from_the_node_that_answers() {
        let mut told =
            answer(ErrorCode::None, &[(DEFAULT_REPLICATION_FACTOR, Some("2")), (NUM_PARTITIONS, Some("5"))]);
        let place = |name: &str, value: &str, source: ConfigSource| {
            DescribeConfigsSynonym::default()
                .with_name(text(name))
                .with_value(Some(text(value)))
                .with_source(source.id())
        };
        let entry = |name: &str, places: Vec<DescribeConfigsSynonym>| {
            DescribeConfigsResourceResult::default().with_name(text(name)).with_synonyms(places)
        };
        told.results[0].configs.extend([
            entry("log.retention.ms", vec![place("log.retention.hours", "1", ConfigSource::StaticBroker)]),
            entry("log.retention.hours", vec![place("log.retention.hours", "1", ConfigSource::StaticBroker)]),
            entry(
                "log.segment.bytes",
                vec![
                    place("log.segment.bytes", "2097152", ConfigSource::DynamicDefaultBroker),
                    place("log.segment.bytes", "1048576", ConfigSource::StaticBroker),
                    place("log.segment.bytes", "1073741824", ConfigSource::Default),
                ],
            ),
        ]);
        let entries = read(&told).unwrap().layers.describe_topic(&Texts::new(), None);
        let shown = |name: &str| {
            let entry = entries.iter().find(|entry| entry.name == name).unwrap();
            (entry.value.clone().unwrap_or_default(), entry.source)
        };
        assert_eq!(shown("segment.bytes"), ("2097152".to_owned(), ConfigSource::DynamicDefaultBroker));
        assert_eq!(shown("retention.ms").0, "3600000");
        assert_eq!(shown("cleanup.policy"), ("delete".to_owned(), ConfigSource::Default));
    }

    /// A controller that hangs keeps nobody for as long as the client would wait.
    #[tokio::test]
    async fn no_question_takes_the_time_that_the_next_one_needs() {
        let both = [(DEFAULT_REPLICATION_FACTOR, Some("2")), (NUM_PARTITIONS, Some("5"))];
        let told = read(&answer(ErrorCode::None, &both)).unwrap();
        let asked = std::cell::RefCell::new(Vec::new());
        let ask = |limit: Duration| {
            asked.borrow_mut().push(limit);
            // As if nobody had answered in time.
            std::future::ready((asked.borrow().len() == 3).then(|| told.clone()))
        };
        let found = until_answered(Duration::from_secs(3600), ask).await;
        assert_eq!(found.ok().map(|found| found.partitions), Some(5));
        assert_eq!(asked.take(), [Duration::from_millis(500); 3]);
        // Who has less time than that does not wait longer, and hears that there was no answer.
        let refused = until_answered(Duration::from_millis(20), |limit| {
            asked.borrow_mut().push(limit);
            std::future::pending()
        });
        assert!(refused.await.is_err());
        assert_eq!(asked.take().len(), 1);
    }
}
