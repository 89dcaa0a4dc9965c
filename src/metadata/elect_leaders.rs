//! ElectLeaders: somebody asks for new leaders, of some partitions or of all. It owns when an election is not needed and
//! what it means that none came of it.

use super::election::ElectionDefaults;
use super::partition_change::{Election, PartitionChange};
use super::topics::{MAX_PARTITIONS_PER_OPERATION, TooManyPartitions};
use super::unclean::LogEnds;
use super::{Decision, Draft, Image, Record};
use crate::types::{TopicIdPartition, TopicPartition};

/// Whom to elect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionType {
    /// The first replica, if it is in sync.
    Preferred,
    /// Any replica, for a partition that has no leader, whatever its topic says of that.
    Unclean,
}

/// Why a partition gets no new leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElectLeaderError {
    #[error("no topic has this name")]
    UnknownTopic,
    #[error("the topic has no such partition")]
    UnknownPartition,
    #[error("the partition has the leader that is asked for")]
    NotNeeded,
    #[error("the preferred leader is not in sync, or not available")]
    PreferredNotAvailable,
    #[error("no replica is available")]
    EligibleNotAvailable,
}

/// The outcome for each partition in the order of the request; of all, those where an election was needed.
pub type ElectLeadersReply = Result<Vec<(TopicPartition, Result<(), ElectLeaderError>)>, TooManyPartitions>;

/// Elects leaders for `partitions`, or for all there are. `ends`: what replicas say of their logs, for unclean elections.
pub fn elect_leaders(
    image: &Image,
    election: ElectionType,
    partitions: Option<&[TopicPartition]>,
    ends: &LogEnds,
    defaults: ElectionDefaults,
) -> Decision<ElectLeadersReply> {
    let all;
    let named = match partitions {
        Some(partitions) => partitions,
        None => {
            let by_topic = image.topics.iter().map(|topic| (&topic.name, topic.partitions()));
            all = by_topic
                .flat_map(|(name, indexes)| {
                    indexes.map(|(index, _)| TopicPartition { topic: name.clone(), partition: index })
                })
                .collect::<Vec<_>>();
            &all
        }
    };
    let mut draft = Draft::new(image);
    let mut outcomes = Vec::new();
    for partition in named {
        let elected = elect(&draft.image, election, partition, ends, defaults);
        let outcome = elected.map(|record| draft.add(record));
        if partitions.is_some() || outcome != Err(ElectLeaderError::NotNeeded) {
            outcomes.push((partition.clone(), outcome));
        }
        if draft.records.len() > MAX_PARTITIONS_PER_OPERATION {
            return Decision::reply(Err(TooManyPartitions));
        }
    }
    draft.decision(Ok(outcomes))
}

fn elect(
    image: &Image,
    election: ElectionType,
    at: &TopicPartition,
    ends: &LogEnds,
    defaults: ElectionDefaults,
) -> Result<Record, ElectLeaderError> {
    let topic = image.topics.by_name(&at.topic).ok_or(ElectLeaderError::UnknownTopic)?;
    let partition = topic.partition(at.partition).ok_or(ElectLeaderError::UnknownPartition)?;
    let (needed, how, none) = match election {
        ElectionType::Preferred => (
            partition.leader != partition.preferred_leader(),
            Election::Preferred,
            ElectLeaderError::PreferredNotAvailable,
        ),
        ElectionType::Unclean => {
            (!partition.has_leader(), Election::Unclean, ElectLeaderError::EligibleNotAvailable)
        }
    };
    if !needed {
        return Err(ElectLeaderError::NotNeeded);
    }
    let change = PartitionChange::new(image, topic, at.partition, partition, defaults);
    let ends = ends.get(&TopicIdPartition { topic_id: topic.id, partition: at.partition });
    change.election(how).log_ends(ends).record().ok_or(none)
}
