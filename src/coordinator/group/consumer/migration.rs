//! A group goes from one protocol to the other while it has members: up when a member of the consumer protocol joins a
//! classic group, down when the last one leaves.
//!
//! Knows no classic group, only what has to be told to make one, or what one tells of itself. Invariant: who owned a
//! partition before owns it after.

use bytes::Bytes;

use super::super::assignor::Assignment;
use super::super::{Name, Out};
use super::embedded::{
    MalformedEmbedded, Named, assignment, encode_assignment, identified, named, subscription,
};
use super::member::{Classic, Member, Owned};
use super::timers::Timers;
use super::{ConsumerConfig, ConsumerGroup, TopicWatch};
use crate::coordinator::{Context, Encode as _};
use crate::metadata::Image;
use crate::types::{PartitionIndex, TimestampMs};

/// What the record of a classic group has beside texts and assignments, for the group, for a member and for a topic of its
/// assignment, at most.
const GROUP_SIZE: usize = 256;
const MEMBER_SIZE: usize = 64;
const TOPIC_SIZE: usize = 8;

/// A member of the classic protocol on its way from one kind of group to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassicMember<A> {
    pub id: Name,
    pub instance_id: Option<Name>,
    pub client_id: Name,
    pub client_host: Name,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    /// Names and metadata, the preferred one first.
    pub protocols: Vec<(Name, Bytes)>,
    pub assignment: A,
}

/// What a classic group, stable or not, is when it becomes a consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    pub generation: i32,
    /// The protocol that the group has chosen.
    pub protocol: Name,
    /// With their assignments as they were given by the leader; empty for who never asked.
    pub members: Vec<ClassicMember<Bytes>>,
}

/// Why a classic group cannot become a consumer group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeRefused {
    #[error("group.consumer.migration.policy does not allow it")]
    Policy,
    #[error("the group has more members than a consumer group may have")]
    TooLarge,
    #[error("what its members carry in the classic protocol cannot be read")]
    Malformed,
    #[error("its assignor has added data of its own to the assignments, which would be lost")]
    CustomAssignor,
}

impl From<MalformedEmbedded> for UpgradeRefused {
    fn from(_: MalformedEmbedded) -> UpgradeRefused {
        UpgradeRefused::Malformed
    }
}

/// What the classic group is to be that takes the place of a consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Downgrade {
    pub generation: i32,
    pub members: Vec<ClassicMember<NamedAssignment>>,
    /// It has to rebalance at once, for a member is gone or the assignment is out of date.
    pub rebalance: bool,
}

/// What a member is to have, by names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedAssignment(Named);

impl NamedAssignment {
    /// The bytes for a member with this metadata under the group's protocol.
    pub fn encode(&self, metadata: &Bytes) -> Bytes {
        encode_assignment(&self.0, metadata)
    }
}

impl ConsumerGroup {
    /// A classic group of consumers becomes a consumer group of classic members, all of them stable in what they have. The
    /// caller has made the classic group's tombstone, and sends those away who wait for a rebalance.
    pub fn upgrade(
        id: Name,
        context: &Context<'_>,
        watch: &mut TopicWatch,
        config: &ConsumerConfig,
        upgrade: &Upgrade,
        out: &mut Out,
    ) -> Result<ConsumerGroup, UpgradeRefused> {
        if !config.migration.allows_upgrade() {
            return Err(UpgradeRefused::Policy);
        }
        if upgrade.members.len() > config.max_size {
            return Err(UpgradeRefused::TooLarge);
        }
        let read = upgrade.members.iter().map(|member| upgraded(context, upgrade, member));
        let members: Vec<(Name, Member, Assignment)> = read.collect::<Result<_, _>>()?;
        watch.observe(context.image);
        let mut group = ConsumerGroup::new(id);
        if members.iter().any(|(id, it, _)| group.member_record(id, it).exceeds(context.record_max)) {
            return Err(UpgradeRefused::TooLarge);
        }
        for (id, member, _) in &members {
            group.write(group.member_record(id, member), out);
        }
        let hash = watch.hash_of_group(context.image, group.demand.keys());
        group.write(group.epoch_record(upgrade.generation, hash), out);
        for (id, _, target) in &members {
            group.write(group.target_record(id, target), out);
        }
        group.write(group.target_epoch_record(upgrade.generation, TimestampMs(0)), out);
        for (id, member, _) in &members {
            group.write(group.current_record(id, member), out);
        }
        for member in &upgrade.members {
            let session = context.now.monotonic.plus(member.session_timeout_ms.into());
            group.timers.set_session(&member.id, session);
        }
        Ok(group)
    }

    /// Whether only members of the classic protocol are left without these, and the group may become a classic one.
    pub(super) fn becomes_classic_without(
        &self,
        leaving: &[Name],
        config: &ConsumerConfig,
        context: &Context<'_>,
    ) -> bool {
        let stays = |id: &Name| !leaving.contains(id);
        let left = self.members.keys().filter(|id| stays(id)).count();
        left > 0
            && self.members.iter().all(|(id, member)| member.is_classic() || !stays(id))
            && config.migration.allows_downgrade()
            && left <= config.classic_max_size
            && self.classic_size_without(leaving, context.image) <= context.record_max
    }

    /// How large a classic group's record would be, which has all members in it, at most.
    pub(super) fn classic_size_without(&self, leaving: &[Name], image: &Image) -> usize {
        let nothing = Assignment::new();
        let staying = self.members.iter().filter(|(id, _)| !leaving.contains(id));
        let sizes = staying.map(|(id, member)| {
            let named = named(self.target.get(id).unwrap_or(&nothing), image);
            let assigned =
                named.iter().map(|(topic, partitions)| TOPIC_SIZE + topic.len() + 4 * partitions.len());
            let names =
                [Some(id), member.instance_id.as_ref(), Some(&member.client_id), Some(&member.client_host)];
            let names = names.into_iter().flatten().map(|name| name.len()).sum::<usize>();
            let classic = member.classic.iter().flat_map(|classic| &classic.protocols);
            let metadata = classic.map(|(_, metadata)| metadata.len()).max().unwrap_or(0);
            MEMBER_SIZE + names + metadata + assigned.sum::<usize>()
        });
        GROUP_SIZE + self.id.len() + sizes.sum::<usize>()
    }

    /// The group is no more, and what is to take its place.
    pub(super) fn downgrade(
        &mut self,
        context: &Context<'_>,
        leaving: &[Name],
        rebalance: bool,
        out: &mut Out,
    ) -> Downgrade {
        let nothing = Assignment::new();
        let members =
            self.members.iter().filter(|(id, _)| !leaving.contains(id)).filter_map(|(id, member)| {
                let classic = member.classic.as_ref()?;
                let target = self.target.get(id).unwrap_or(&nothing);
                Some(ClassicMember {
                    id: id.clone(),
                    instance_id: member.instance_id.clone(),
                    client_id: member.client_id.clone(),
                    client_host: member.client_host.clone(),
                    rebalance_timeout_ms: member.rebalance_timeout_ms,
                    session_timeout_ms: classic.session_timeout_ms,
                    protocols: classic.protocols.clone(),
                    assignment: NamedAssignment(named(target, context.image)),
                })
            });
        let downgrade = Downgrade { generation: self.epoch, members: members.collect(), rebalance };
        for tombstone in self.tombstones() {
            self.write(tombstone, out);
        }
        self.timers = Timers::default();
        downgrade
    }
}

fn upgraded(
    context: &Context<'_>,
    group: &Upgrade,
    classic: &ClassicMember<Bytes>,
) -> Result<(Name, Member, Assignment), UpgradeRefused> {
    let assigned = if classic.assignment.is_empty() {
        Vec::new()
    } else {
        let (assigned, has_user_data) = assignment(&classic.assignment)?;
        if has_user_data {
            return Err(UpgradeRefused::CustomAssignor);
        }
        identified(&assigned, context.image)
    };
    let mut target = Assignment::new();
    for (topic, partitions) in assigned.into_iter().filter(|(_, partitions)| !partitions.is_empty()) {
        target.entry(topic).or_default().extend(partitions);
    }
    let chosen = classic.protocols.iter().find(|(name, _)| *name == group.protocol);
    let (_, metadata) = chosen.ok_or(UpgradeRefused::Malformed)?;
    let subscribes = subscription(metadata)?;
    let owned = |(topic, partitions): (&_, &std::collections::BTreeSet<PartitionIndex>)| {
        (*topic, partitions.iter().map(|partition| (*partition, group.generation)).collect())
    };
    let member = Member {
        epoch: group.generation,
        previous_epoch: group.generation,
        instance_id: classic.instance_id.clone(),
        rack: subscribes.rack,
        client_id: classic.client_id.clone(),
        client_host: classic.client_host.clone(),
        rebalance_timeout_ms: classic.rebalance_timeout_ms,
        topics: subscribes.topics.into_iter().collect(),
        assigned: target.iter().map(owned).collect::<Owned>(),
        classic: Some(Classic {
            session_timeout_ms: classic.session_timeout_ms,
            protocols: classic.protocols.clone(),
        }),
        ..Member::new()
    };
    Ok((classic.id.clone(), member, target))
}
