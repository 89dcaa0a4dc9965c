//! OffsetDelete: v0 (KIP-496)
//!
//! Behaviour: forgets what a group has committed for partitions that exist, unless members of the group read their topic.

use std::sync::Arc;

use super::coordination::{check_group_id, name, reply};
use super::topic_view::topic_name;
use super::{Answer, Api, Call, Request};
use crate::coordinator::group::reply::{DeleteOffsetsError, SubscribedToTopic};
use crate::coordinator::group::{Command, Name};
use crate::metadata::Image;
use crate::types::{ErrorCode, PartitionIndex};
use crate::wire::messages::offset_delete_request::OffsetDeleteRequestTopic;
use crate::wire::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use crate::wire::messages::{OffsetDeleteRequest, OffsetDeleteResponse};

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<OffsetDeleteRequest>,
) -> Answer<OffsetDeleteResponse> {
    let request = request.body;
    if let Err(error) = check_group_id(&request.group_id) {
        return Answer::Now(refused(error));
    }
    let (mut answered, topics) = sort(&api.metadata.image(), &request.topics);
    let group = name(&request.group_id.0);
    let pending = api.ask_group(&group, Command::DeleteOffsets { group: Arc::clone(&group), topics }).await;
    Answer::Later(Box::pin(async move {
        let deleted = match reply!(pending, DeleteOffsets) {
            Ok(Ok(deleted)) => deleted,
            Ok(Err(error)) => return Answer::Now(refused(code(error))),
            Err(error) => return Answer::Now(refused(error)),
        };
        for topic in deleted {
            let error = match topic.result {
                Ok(()) => ErrorCode::None,
                Err(SubscribedToTopic) => ErrorCode::GroupSubscribedToTopic,
            };
            for partition in topic.partitions {
                answered.add(&topic.topic, partition.0, error);
            }
        }
        Answer::Now(OffsetDeleteResponse::default().with_topics(answered.0))
    }))
}

/// The partitions that have their codes, by topic.
struct Answered(Vec<OffsetDeleteResponseTopic>);

impl Answered {
    fn add(&mut self, topic: &str, partition: i32, error: ErrorCode) {
        let told = OffsetDeleteResponsePartition::default()
            .with_partition_index(partition)
            .with_error_code(error.code());
        match self.0.iter_mut().find(|answered| answered.name.as_str() == topic) {
            Some(answered) => answered.partitions.push(told),
            None => self.0.push(
                OffsetDeleteResponseTopic::default().with_name(topic_name(topic)).with_partitions(vec![told]),
            ),
        }
    }
}

/// Sorts out the partitions that do not exist; the rest is for the coordinator.
fn sort(image: &Image, topics: &[OffsetDeleteRequestTopic]) -> (Answered, Vec<(Name, Vec<PartitionIndex>)>) {
    let (mut answered, mut known) = (Answered(Vec::new()), Vec::new());
    for topic in topics {
        let found = image.topics.by_name(topic.name.as_str());
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for index in topic.partitions.iter().map(|partition| PartitionIndex(partition.partition_index)) {
            if found.is_some_and(|found| found.partition(index).is_some()) {
                partitions.push(index);
            } else {
                answered.add(topic.name.as_str(), index.0, ErrorCode::UnknownTopicOrPartition);
            }
        }
        if !partitions.is_empty() {
            known.push((topic.name.as_str().into(), partitions));
        }
    }
    (answered, known)
}

fn refused(error: ErrorCode) -> OffsetDeleteResponse {
    OffsetDeleteResponse::default().with_error_code(error.code())
}

fn code(error: DeleteOffsetsError) -> ErrorCode {
    match error {
        DeleteOffsetsError::GroupNotFound => ErrorCode::GroupIdNotFound,
        DeleteOffsetsError::NonEmptyGroup => ErrorCode::NonEmptyGroup,
    }
}
