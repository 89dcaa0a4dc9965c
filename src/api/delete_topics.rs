//! DeleteTopics: v1-6
//!
//! Behaviour: deletes topics by name or, from version 6, by id. The data is removed in the background.
//! `delete.topic.enable=false` refuses all.
//!
//! Version notes: before 6 topics are named by a plain list; 6 has names or ids; 3 knows TOPIC_DELETION_DISABLED, which older
//! versions get as INVALID_REQUEST; 5 has messages.

use std::sync::Arc;
use std::time::Duration;

use super::refusal::Refusal;
use super::topic_view::{text, topic_name};
use super::{Api, Call, Request};
use crate::metadata::Image;
use crate::metadata::topics::{DeletedTopic, TopicRef, delete_topics};
use crate::types::{ErrorCode, Uuid};
use crate::wire::messages::DeleteTopicsRequest;
use crate::wire::messages::delete_topics_response::{DeletableTopicResult, DeleteTopicsResponse};

const TOPIC_IDS: i16 = 6;
const MESSAGES: i16 = 5;
const KNOWS_DISABLED: i16 = 3;

pub async fn handle(api: &Api, _: &Call, request: Request<DeleteTopicsRequest>) -> DeleteTopicsResponse {
    let (version, request) = (request.version, request.body);
    let (topics, malformed) = named(version, &request);
    let outcomes = if topics.is_empty() {
        Vec::new()
    } else if api.config.at(&api.metadata.image()).broker.delete_topic_enable {
        let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
        delete(api, topics, timeout).await
    } else {
        let code = if version < KNOWS_DISABLED {
            ErrorCode::InvalidRequest
        } else {
            ErrorCode::TopicDeletionDisabled
        };
        let refused = Refusal::new(code, "delete.topic.enable is false");
        topics.into_iter().map(|topic| (topic, Err(refused.clone()))).collect()
    };
    let responses = outcomes.into_iter().map(|(topic, outcome)| response(version, &topic, outcome));
    DeleteTopicsResponse::default().with_responses(responses.chain(malformed).collect())
}

async fn delete(
    api: &Api,
    topics: Vec<TopicRef>,
    timeout: Duration,
) -> Vec<(TopicRef, Result<DeletedTopic, Refusal>)> {
    let asked = topics.clone();
    match api.metadata.run_within(timeout, move |image: &Image| delete_topics(image, &asked)).await {
        Ok(outcomes) => {
            let outcomes = outcomes.into_iter();
            outcomes.map(|(topic, outcome)| (topic, outcome.map_err(Refusal::from))).collect()
        }
        Err(error) => {
            let refused = Refusal::from(error);
            topics.into_iter().map(|topic| (topic, Err(refused.clone()))).collect()
        }
    }
}

/// The topics that the request names, and answers for entries that name none, or two.
fn named(version: i16, request: &DeleteTopicsRequest) -> (Vec<TopicRef>, Vec<DeletableTopicResult>) {
    if version < TOPIC_IDS {
        let names = request.topic_names.iter();
        return (names.map(|name| TopicRef::Name(Arc::from(name.as_str()))).collect(), Vec::new());
    }
    let (mut topics, mut malformed) = (Vec::new(), Vec::new());
    for topic in &request.topics {
        match &topic.name {
            Some(name) if topic.topic_id.is_nil() => topics.push(TopicRef::Name(Arc::from(name.as_str()))),
            None if !topic.topic_id.is_nil() => topics.push(TopicRef::Id(topic.topic_id)),
            name => {
                let refused = Refusal::new(ErrorCode::InvalidRequest, "a topic has either a name or an id");
                malformed.push(result(version, topic.topic_id, Some(&refused)).with_name(name.clone()));
            }
        }
    }
    (topics, malformed)
}

fn response(version: i16, topic: &TopicRef, outcome: Result<DeletedTopic, Refusal>) -> DeletableTopicResult {
    match outcome {
        Ok(deleted) => result(version, deleted.id, None).with_name(Some(topic_name(&deleted.name))),
        Err(refusal) => match topic {
            TopicRef::Name(name) => {
                result(version, Uuid::nil(), Some(&refusal)).with_name(Some(topic_name(name)))
            }
            TopicRef::Id(id) => result(version, *id, Some(&refusal)).with_name(None),
        },
    }
}

fn result(version: i16, id: Uuid, refusal: Option<&Refusal>) -> DeletableTopicResult {
    let mut shown = DeletableTopicResult::default();
    if version >= TOPIC_IDS {
        shown.topic_id = id;
    }
    if let Some(refusal) = refusal {
        shown.error_code = refusal.code.code();
        if version >= MESSAGES {
            shown.error_message = Some(text(&refusal.message));
        }
    }
    shown
}
