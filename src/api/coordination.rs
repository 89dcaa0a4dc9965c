//! How requests find the coordinator of a group, and the codes for a coordinator that does not answer.

use std::collections::BTreeMap;

use super::Api;
use crate::broker::coordinators::{CoordinatorError, Pending, partition_of};
use crate::coordinator::group::classic::MemberError;
use crate::coordinator::group::{Command, Name, Reply};
use crate::types::{ErrorCode, PartitionIndex, TopicPartition};
use crate::wire::messages::StrBytes;

/// Waits for a reply of one kind. A coordinator that replies with another has a defect.
macro_rules! reply {
    ($pending:expr, $kind:ident) => {
        match $pending.answer().await {
            Ok($crate::coordinator::group::Reply::$kind(reply)) => Ok(reply),
            Ok(_) => Err($crate::types::ErrorCode::UnknownServerError),
            Err(error) => Err($crate::api::coordination::code_of(error)),
        }
    };
}

pub(super) use reply;

impl Api {
    /// The partition of the topic of offsets that a group belongs to.
    pub(super) fn group_partition(&self, group: &str) -> PartitionIndex {
        let image = self.metadata.image();
        let topic = image.topics.by_name(self.broker().groups.topic());
        // Without the topic there is no coordinator to ask, whatever the number.
        partition_of(group, topic.map_or(1, |topic| topic.partition_count()))
    }

    /// The partition whose log has a group's offsets, also while the topic does not exist yet.
    pub(super) fn offsets_of(&self, group: &str) -> TopicPartition {
        let name = self.broker().groups.topic();
        let image = self.metadata.image();
        let configured =
            || usize::try_from(self.config.at(&image).broker.offsets_topic_num_partitions).unwrap_or(1);
        let count = image.topics.by_name(name).map_or_else(configured, |topic| topic.partition_count());
        TopicPartition { topic: name.into(), partition: partition_of(group, count) }
    }

    /// Asks the coordinator of a group; resolves when the coordinator has the command.
    pub(super) async fn ask_group(&self, group: &str, command: Command) -> Pending<Reply> {
        self.broker().groups.ask(self.group_partition(group), command).await
    }

    /// Groups by the partitions that they belong to, each once.
    pub(super) fn by_partition<'a>(
        &self,
        groups: impl Iterator<Item = &'a str>,
    ) -> BTreeMap<PartitionIndex, Vec<Name>> {
        let mut sorted: BTreeMap<PartitionIndex, Vec<Name>> = BTreeMap::new();
        for group in groups {
            let others = sorted.entry(self.group_partition(group)).or_default();
            if !others.iter().any(|other| **other == *group) {
                others.push(group.into());
            }
        }
        sorted
    }
}

/// The code for a coordinator that does not answer. What replicas have not acknowledged, or may not take, is for the client
/// to try again; what is too large is not.
pub(crate) fn code_of(error: CoordinatorError) -> ErrorCode {
    match error {
        CoordinatorError::NotHere => ErrorCode::NotCoordinator,
        CoordinatorError::Loading => ErrorCode::CoordinatorLoadInProgress,
        CoordinatorError::NotEnoughReplicas | CoordinatorError::TimedOut => {
            ErrorCode::CoordinatorNotAvailable
        }
        CoordinatorError::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        CoordinatorError::MarkerFenced => ErrorCode::TransactionCoordinatorFenced,
        CoordinatorError::TooLarge | CoordinatorError::Failed => ErrorCode::UnknownServerError,
    }
}

pub(super) fn member_code(error: MemberError) -> ErrorCode {
    match error {
        MemberError::Unknown => ErrorCode::UnknownMemberId,
        MemberError::FencedInstance => ErrorCode::FencedInstanceId,
    }
}

/// Group ids must not be empty, save where offsets are committed and looked up, and where groups are described and deleted.
pub(super) fn check_group_id(group: &str) -> Result<(), ErrorCode> {
    if group.is_empty() { Err(ErrorCode::InvalidGroupId) } else { Ok(()) }
}

/// Whether groups of the consumer protocol are served: the broker's settings and the cluster's features say so.
pub(super) fn check_consumer_protocol(api: &Api) -> Result<(), ErrorCode> {
    let image = api.metadata.image();
    let settings = api.config.latest();
    let is_set = settings.broker.group_coordinator_rebalance_protocols.iter().any(|name| name == "consumer");
    if is_set && image.features.level("group.version") >= 1 {
        Ok(())
    } else {
        Err(ErrorCode::UnsupportedVersion)
    }
}

pub(super) fn name(text: &StrBytes) -> Name {
    text.as_str().into()
}

pub(super) fn optional_name(text: Option<&StrBytes>) -> Option<Name> {
    text.map(name)
}

pub(super) fn optional_text(name: Option<&Name>) -> Option<StrBytes> {
    name.map(|name| super::topic_view::text(name))
}
