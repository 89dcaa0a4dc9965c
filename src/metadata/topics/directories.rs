//! A broker with several log directories tells in which of them its replicas are (KIP-858).

use crate::metadata::brokers::{BrokerEpochError, check_epoch};
use crate::metadata::election::{BrokerChange, ElectionDefaults};
use crate::metadata::partition_change::PartitionChange;
use crate::metadata::record::Record;
use crate::metadata::topics::PartitionRegistration;
use crate::metadata::{Decision, Draft, Image};
use crate::types::{BrokerEpoch, DirectoryId, NodeId, TopicIdPartition, directory_id};
use crate::wire::messages::metadata::PartitionChangeRecord;

/// Why a replica's directory is not taken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignDirectoryError {
    #[error("no topic has this id")]
    UnknownTopic,
    #[error("the topic has no such partition")]
    UnknownPartition,
    #[error("the broker has no replica of the partition")]
    NotAReplica,
}

/// The outcome for each partition, in the order of the request.
pub type AssignDirectoriesReply =
    Result<Vec<(TopicIdPartition, Result<(), AssignDirectoryError>)>, BrokerEpochError>;

/// Takes down where replicas of `broker` are. One that is in a directory that the broker does not have online leaves the
/// ISR; a partition without a leader gets one if a replica that may lead turns out to be in a directory that is online: a move
/// to another directory was announced, and that one failed.
pub fn assign_directories(
    image: &Image,
    broker: NodeId,
    epoch: BrokerEpoch,
    assignments: &[(TopicIdPartition, DirectoryId)],
    defaults: ElectionDefaults,
) -> Decision<AssignDirectoriesReply> {
    let registration = match check_epoch(image, broker, epoch) {
        Ok(registration) => registration,
        Err(error) => return Decision::reply(Err(error)),
    };
    let mut draft = Draft::new(image);
    let mut outcomes = Vec::with_capacity(assignments.len());
    for &(partition, directory) in assignments {
        let outcome = assign_one(&draft.image, broker, partition, directory);
        outcomes.push((partition, outcome.map(|record| record.into_iter().for_each(|r| draft.add(r)))));
    }
    for &(partition, directory) in assignments {
        let change = if registration.has_online(directory) {
            finds_leader(&draft.image, partition, defaults)
        } else {
            leaves_isr(&draft.image, broker, partition, defaults)
        };
        change.into_iter().for_each(|record| draft.add(record));
    }
    draft.decision(Ok(outcomes))
}

/// Whether the cluster does without what `broker` has of the partition, until it has its records from another replica. One that is in
/// no directory and may still be needed has lost its directory, not its records.
pub fn is_given_up(partition: &PartitionRegistration, broker: NodeId) -> bool {
    partition.directory(broker) == Some(directory_id::LOST)
        && !partition.isr.contains(&broker)
        && !partition.elr.contains(&broker)
}

/// Whether the replica that `broker` has is given up for others that have its records, or may have them. Where nobody has, whatever
/// this one has is what there is.
pub fn is_kept_out(partition: &PartitionRegistration, broker: NodeId) -> bool {
    is_given_up(partition, broker) && !(partition.isr.is_empty() && partition.elr.is_empty())
}

/// Takes down where replicas of `broker` are, or are about to be, save those that are kept out: such a replica is in no directory
/// until it is whole again, wherever its log lies. Replies with those that were left out.
pub fn place_replicas(
    image: &Image,
    broker: NodeId,
    epoch: BrokerEpoch,
    placed: &[(TopicIdPartition, DirectoryId)],
    defaults: ElectionDefaults,
) -> Decision<Result<Vec<TopicIdPartition>, BrokerEpochError>> {
    let (kept_out, placed) = split(image, placed, |partition| is_kept_out(partition, broker));
    let left_out = kept_out.into_iter().map(|(at, _)| at).collect();
    assign_directories(image, broker, epoch, &placed, defaults).map(|reply| reply.map(|_| left_out))
}

/// Whether the replica that `broker` has is in no directory that the metadata knows: it was given up, or it leads since then, for
/// nobody else was left.
pub fn is_nowhere(partition: &PartitionRegistration, broker: NodeId) -> bool {
    matches!(partition.directory(broker), Some(directory_id::LOST | directory_id::UNASSIGNED))
}

/// Takes replicas of `broker` back that were given up and are whole again, in these directories. Of those that are not nowhere it is
/// known where they are, and that may be elsewhere by now.
pub fn take_back_replicas(
    image: &Image,
    broker: NodeId,
    epoch: BrokerEpoch,
    rebuilt: &[(TopicIdPartition, DirectoryId)],
    defaults: ElectionDefaults,
) -> Decision<Result<(), BrokerEpochError>> {
    let (nowhere, _) = split(image, rebuilt, |partition| is_nowhere(partition, broker));
    assign_directories(image, broker, epoch, &nowhere, defaults).map(|reply| reply.map(drop))
}

type Placed = Vec<(TopicIdPartition, DirectoryId)>;

/// Those of which something is so, and the others.
fn split(
    image: &Image,
    placed: &[(TopicIdPartition, DirectoryId)],
    is_so: impl Fn(&PartitionRegistration) -> bool,
) -> (Placed, Placed) {
    let partition = |at: &TopicIdPartition| image.topics.partition(at.topic_id, at.partition);
    placed.iter().copied().partition(|(at, _)| partition(at).is_some_and(&is_so))
}

/// So many others must have everything before a replica is cut for its damage: one of them may have died a moment ago, or be
/// damaged where this one is whole.
const SPARE_REPLICAS: usize = 2;

/// Whether other replicas that are in sync have what this broker has of the partition, so that it can be done without.
pub fn can_do_without(image: &Image, broker: NodeId, partition: &PartitionRegistration) -> bool {
    let serves = |replica: &&NodeId| {
        let directory = partition.directory(**replica).unwrap_or(directory_id::LOST);
        let registered = image.brokers.get(**replica);
        **replica != broker
            && registered.is_some_and(|registered| registered.is_active() && registered.has_online(directory))
    };
    image.metadata_version().has_directories()
        && partition.isr.iter().filter(serves).count() >= SPARE_REPLICAS
}

/// Gives up replicas of `broker` that are damaged, where others are in sync. Such a replica is in no directory until it is whole
/// again, and a new term of the leader begins, for it will not have what it has told in this one. Replies with those that were
/// given up.
pub fn give_up_replicas(
    image: &Image,
    broker: NodeId,
    epoch: BrokerEpoch,
    damaged: &[TopicIdPartition],
    defaults: ElectionDefaults,
) -> Decision<Result<Vec<TopicIdPartition>, BrokerEpochError>> {
    if let Err(error) = check_epoch(image, broker, epoch) {
        return Decision::reply(Err(error));
    }
    let mut draft = Draft::new(image);
    let mut given_up = Vec::with_capacity(damaged.len());
    for &at in damaged {
        let partition = draft.image.topics.partition(at.topic_id, at.partition);
        if !partition.is_some_and(|partition| can_do_without(&draft.image, broker, partition)) {
            continue;
        }
        // Otherwise it is given up already.
        if let Ok(Some(lost)) = assign_one(&draft.image, broker, at, directory_id::LOST) {
            draft.add(lost);
            let left = begins_anew(&draft.image, broker, at, defaults);
            left.into_iter().for_each(|record| draft.add(record));
            given_up.push(at);
        }
    }
    draft.decision(Ok(given_up))
}

/// What a partition becomes when one replica has to begin anew.
fn begins_anew(
    image: &Image,
    broker: NodeId,
    at: TopicIdPartition,
    defaults: ElectionDefaults,
) -> Option<Record> {
    let topic = image.topics.by_id(at.topic_id)?;
    let partition = topic.partition(at.partition)?;
    let change = PartitionChange::new(image, topic, at.partition, partition, defaults);
    change.broker(BrokerChange::LosesData(broker)).new_term().record()
}

/// What the loss of one replica makes of a partition.
fn leaves_isr(
    image: &Image,
    broker: NodeId,
    at: TopicIdPartition,
    defaults: ElectionDefaults,
) -> Option<Record> {
    let topic = image.topics.by_id(at.topic_id)?;
    let partition = topic.partition(at.partition).filter(|partition| partition.isr.contains(&broker))?;
    let change = PartitionChange::new(image, topic, at.partition, partition, defaults);
    change.unclean_if_allowed().broker(BrokerChange::Leaves(broker)).record()
}

fn finds_leader(image: &Image, at: TopicIdPartition, defaults: ElectionDefaults) -> Option<Record> {
    let topic = image.topics.by_id(at.topic_id)?;
    let partition = topic.partition(at.partition).filter(|partition| partition.leader == NodeId::NONE)?;
    PartitionChange::new(image, topic, at.partition, partition, defaults).record()
}

fn assign_one(
    image: &Image,
    broker: NodeId,
    at: TopicIdPartition,
    directory: DirectoryId,
) -> Result<Option<Record>, AssignDirectoryError> {
    let topic = image.topics.by_id(at.topic_id).ok_or(AssignDirectoryError::UnknownTopic)?;
    let partition = topic.partition(at.partition).ok_or(AssignDirectoryError::UnknownPartition)?;
    let position = partition.replicas.iter().position(|replica| *replica == broker);
    let position = position.ok_or(AssignDirectoryError::NotAReplica)?;
    if partition.directories[position] == directory || !image.metadata_version().has_directories() {
        return Ok(None);
    }
    let mut directories = partition.directories.clone();
    directories[position] = directory;
    let record = PartitionChangeRecord {
        partition_id: at.partition.0,
        topic_id: at.topic_id,
        directories: Some(directories),
        ..PartitionChangeRecord::default()
    };
    Ok(Some(record.into()))
}
