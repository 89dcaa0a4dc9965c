//! Deleting topics, by name or by id.

use crate::metadata::record::Record;
use crate::metadata::{Decision, Image};
use crate::types::TopicId;
use crate::wire::messages::metadata::RemoveTopicRecord;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How a topic is named in a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TopicRef {
    Name(Arc<str>),
    Id(TopicId),
}

/// A topic that was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedTopic {
    pub name: Arc<str>,
    pub id: TopicId,
}

/// Why a topic is not deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeleteTopicError {
    #[error("no topic has this name")]
    UnknownName,
    #[error("no topic has this id")]
    UnknownId,
    #[error("the topic is named more than once")]
    Duplicate,
    #[error("the topic of this name is also named by its id")]
    DuplicateOfId,
}

/// The outcome for each reference, in the order of the request; one that comes twice has one outcome.
pub type DeleteTopicsReply = Vec<(TopicRef, Result<DeletedTopic, DeleteTopicError>)>;

/// Deletes topics.
pub fn delete_topics(image: &Image, topics: &[TopicRef]) -> Decision<DeleteTopicsReply> {
    let mut seen = BTreeSet::new();
    let duplicates: BTreeSet<&TopicRef> = topics.iter().filter(|topic| !seen.insert(*topic)).collect();
    let mut answered = BTreeSet::new();
    let mut records = Vec::new();
    let mut outcomes = Vec::new();
    for topic in topics.iter().filter(|topic| answered.insert(*topic)) {
        let outcome = if duplicates.contains(topic) {
            Err(DeleteTopicError::Duplicate)
        } else {
            delete_one(image, topic, &seen)
        };
        if let Ok(deleted) = &outcome {
            records.push(remove_record(deleted.id));
        }
        outcomes.push((topic.clone(), outcome));
    }
    Decision::new(records, outcomes)
}

fn delete_one(
    image: &Image,
    topic: &TopicRef,
    all: &BTreeSet<&TopicRef>,
) -> Result<DeletedTopic, DeleteTopicError> {
    let found = match topic {
        TopicRef::Name(name) => image.topics.by_name(name).ok_or(DeleteTopicError::UnknownName)?,
        TopicRef::Id(id) => image.topics.by_id(*id).ok_or(DeleteTopicError::UnknownId)?,
    };
    if matches!(topic, TopicRef::Name(_)) && all.contains(&TopicRef::Id(found.id)) {
        return Err(DeleteTopicError::DuplicateOfId);
    }
    Ok(DeletedTopic { name: Arc::clone(&found.name), id: found.id })
}

fn remove_record(id: TopicId) -> Record {
    RemoveTopicRecord { topic_id: id, ..RemoveTopicRecord::default() }.into()
}
