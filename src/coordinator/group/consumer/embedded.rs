//! What members of the classic protocol carry inside of it: subscriptions and assignments, in the format that consumers
//! share. A version that is newer than ours is read as ours: what is new comes at the end.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::super::Name;
use super::super::assignor::Assignment;
use super::TopicPartitions;
use super::stored::{name, text};
use crate::metadata::image::Image;
use crate::types::PartitionIndex;
use crate::wire::messages::codec::{self, Schema};
use crate::wire::messages::consumer_protocol::{
    ConsumerProtocolAssignment, ConsumerProtocolPartitions, ConsumerProtocolSubscription,
};

const LATEST_VERSION: i16 = 3;

/// Partitions by the names of their topics.
pub(super) type Named = Vec<(Name, Vec<PartitionIndex>)>;

/// Bytes that no consumer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what a member carries in the classic protocol cannot be read")]
pub struct MalformedEmbedded;

/// A member's subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) topics: Vec<Name>,
    /// What it has.
    pub(super) owned: Named,
    pub(super) rack: Option<Name>,
}

pub(super) fn subscription(metadata: &Bytes) -> Result<Subscription, MalformedEmbedded> {
    let decoded: ConsumerProtocolSubscription = decode(metadata)?;
    Ok(Subscription {
        topics: decoded.topics.iter().map(name).collect(),
        owned: decoded.owned_partitions.iter().map(by_name).collect(),
        rack: decoded.rack_id.as_ref().map(name).filter(|rack| !rack.is_empty()),
    })
}

/// An assignment by names, and whether there is something in it that only its maker understands.
pub(super) fn assignment(bytes: &Bytes) -> Result<(Named, bool), MalformedEmbedded> {
    let decoded: ConsumerProtocolAssignment = decode(bytes)?;
    let has_user_data = decoded.user_data.is_some_and(|data| !data.is_empty());
    Ok((decoded.assigned_partitions.iter().map(by_name).collect(), has_user_data))
}

/// An assignment for a member with this subscription, in the version that the member speaks.
pub(super) fn encode_assignment(assigned: &[(Name, Vec<PartitionIndex>)], metadata: &Bytes) -> Bytes {
    let version = version(&mut metadata.clone()).unwrap_or(0);
    let partitions = assigned.iter().map(|(topic, partitions)| ConsumerProtocolPartitions {
        topic: text(topic),
        partitions: partitions.iter().map(|partition| partition.0).collect(),
        ..Default::default()
    });
    let message =
        ConsumerProtocolAssignment { assigned_partitions: partitions.collect(), ..Default::default() };
    let mut bytes = BytesMut::new();
    bytes.put_i16(version);
    let encoded = codec::encode_message(&message, &mut bytes, version);
    assert!(encoded.is_ok(), "an assignment has no field that a version lacks");
    bytes.freeze()
}

/// By names, without topics that are no more.
pub(super) fn named(assignment: &Assignment, image: &Image) -> Named {
    let named = assignment.iter().filter_map(|(id, partitions)| {
        let topic = image.topics.by_id(*id)?;
        Some((topic.name.clone(), partitions.iter().copied().collect()))
    });
    named.collect()
}

/// By ids, without topics that are no more.
pub(super) fn identified(named: &[(Name, Vec<PartitionIndex>)], image: &Image) -> TopicPartitions {
    let identified = named.iter().filter_map(|(name, partitions)| {
        let topic = image.topics.by_name(name)?;
        Some((topic.id, partitions.clone()))
    });
    identified.collect()
}

fn by_name(partitions: &ConsumerProtocolPartitions) -> (Name, Vec<PartitionIndex>) {
    (name(&partitions.topic), partitions.partitions.iter().copied().map(PartitionIndex).collect())
}

fn version(bytes: &mut Bytes) -> Result<i16, MalformedEmbedded> {
    match bytes.try_get_i16() {
        Ok(version) if version >= 0 => Ok(version.min(LATEST_VERSION)),
        _ => Err(MalformedEmbedded),
    }
}

fn decode<M: Schema>(bytes: &Bytes) -> Result<M, MalformedEmbedded> {
    let mut bytes = bytes.clone();
    let version = version(&mut bytes)?;
    codec::decode_message(&mut bytes, version).map_err(|_| MalformedEmbedded)
}
