//! What becomes of a topic that does not say how many partitions and replicas it is to have: the settings of the active
//! controller count, not those of the broker that was asked. So it makes no difference which one that is.
//!
//! Must not know who creates topics. Invariant: without an answer of the active controller nothing is made up.

use std::time::Duration;

use super::Api;
use super::config_resource::BROKER;
use super::refusal::Refusal;
use super::topic_view::text;
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

/// How many partitions and replicas a topic has that does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreationDefaults {
    pub partitions: i32,
    pub replication_factor: i16,
}

/// What the active controller's settings are, if these topics leave something to them.
pub(super) async fn of_controller(
    api: &Api,
    topics: &[NewTopic],
    limit: Duration,
) -> Result<CreationDefaults, Refusal> {
    let is_open = |topic: &NewTopic| {
        topic.assignments.is_empty() && (topic.partitions.is_none() || topic.replication_factor.is_none())
    };
    if !topics.iter().any(is_open) {
        return Ok(of_this_node(api));
    }
    let asked = async {
        loop {
            if api.metadata.is_leader() {
                return of_this_node(api);
            }
            if let Some(leader) = api.metadata.leader()
                && let Some(answer) = api
                    .raft
                    .voters()
                    .ask_leader(&question(leader), DESCRIBE_CONFIGS_VERSION, limit.min(QUESTION_LIMIT))
                    .await
                && let Some(defaults) = read(&answer)
            {
                return defaults;
            }
            tokio::time::sleep(AGAIN_PAUSE).await;
        }
    };
    tokio::time::timeout(limit, asked).await.map_err(|_| {
        let message = "the active controller does not say how many partitions and replicas a topic has";
        Refusal::new(ErrorCode::RequestTimedOut, message)
    })
}

fn of_this_node(api: &Api) -> CreationDefaults {
    let broker = &api.config.at(&api.metadata.image()).broker;
    CreationDefaults {
        partitions: broker.num_partitions,
        replication_factor: i16::try_from(broker.default_replication_factor).unwrap_or(i16::MAX),
    }
}

fn question(leader: NodeId) -> DescribeConfigsRequest {
    let keys = [NUM_PARTITIONS, DEFAULT_REPLICATION_FACTOR];
    let resource = DescribeConfigsResource::default()
        .with_resource_type(BROKER)
        .with_resource_name(text(&leader.to_string()))
        .with_configuration_keys(Some(keys.into_iter().map(text).collect()));
    DescribeConfigsRequest::default().with_resources(vec![resource])
}

/// What an answer says; `None` where it is of another node, which leads no more, or not whole.
fn read(answer: &DescribeConfigsResponse) -> Option<CreationDefaults> {
    let result = answer.results.first().filter(|result| result.error_code == ErrorCode::None.code())?;
    let number = |key: &str| {
        let entry = result.configs.iter().find(|entry| entry.name.as_str() == key)?;
        entry.value.as_ref()?.as_str().parse::<i32>().ok()
    };
    let replication_factor = i16::try_from(number(DEFAULT_REPLICATION_FACTOR)?).unwrap_or(i16::MAX);
    Some(CreationDefaults { partitions: number(NUM_PARTITIONS)?, replication_factor })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::messages::describe_configs_response::{
        DescribeConfigsResourceResult, DescribeConfigsResult,
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
        let expected = CreationDefaults { partitions: 5, replication_factor: 2 };
        assert_eq!(read(&answer(ErrorCode::None, &both)), Some(expected));
        assert_eq!(read(&answer(ErrorCode::InvalidRequest, &both)), None, "it was another node");
        for part in [&both[..1], &both[1..], &[(NUM_PARTITIONS, None), both[0]]] {
            assert_eq!(read(&answer(ErrorCode::None, part)), None, "{part:?}");
        }
        assert_eq!(read(&DescribeConfigsResponse::default()), None);
    }
}
