//! The group as ConsumerGroupDescribe and ListGroups show it.

use super::super::Name;
use super::super::assignor::Assignment;
use super::member::{Member, partitions_of};
use super::{ConsumerConfig, ConsumerGroup};
use crate::metadata::image::Image;
use crate::types::{PartitionIndex, TopicId};

/// Where a group stands, in Kafka's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Empty,
    /// There is no target assignment for the group epoch yet.
    Assigning,
    /// Members are on their way to their targets.
    Reconciling,
    Stable,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::Assigning => "Assigning",
            State::Reconciling => "Reconciling",
            State::Stable => "Stable",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    pub state: State,
    pub epoch: i32,
    pub target_epoch: i32,
    pub assignor: Name,
    pub members: Vec<DescribedMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedMember {
    pub member_id: Name,
    pub member_epoch: i32,
    pub instance_id: Option<Name>,
    pub rack: Option<Name>,
    pub client_id: Name,
    pub client_host: Name,
    pub topics: Vec<Name>,
    pub regex: Option<Name>,
    /// What it answers for, also what it still has to give up.
    pub assigned: Vec<DescribedTopic>,
    pub target: Vec<DescribedTopic>,
    pub is_classic: bool,
}

/// Partitions of a topic that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedTopic {
    pub id: TopicId,
    pub name: Name,
    pub partitions: Vec<PartitionIndex>,
}

impl ConsumerGroup {
    pub fn state(&self) -> State {
        if self.members.is_empty() {
            State::Empty
        } else if self.epoch > self.target_epoch {
            State::Assigning
        } else if self.members.values().all(|member| member.is_reconciled_to(self.target_epoch)) {
            State::Stable
        } else {
            State::Reconciling
        }
    }

    pub fn describe(&self, config: &ConsumerConfig, image: &Image) -> Described {
        let assignor = self.preferred_assignor().cloned();
        Described {
            state: self.state(),
            epoch: self.epoch,
            target_epoch: self.target_epoch,
            assignor: assignor.unwrap_or_else(|| config.default_assignor.name().into()),
            members: self
                .members
                .iter()
                .map(|(id, member)| self.describe_member(id, member, image))
                .collect(),
        }
    }

    fn describe_member(&self, id: &Name, member: &Member, image: &Image) -> DescribedMember {
        let mut assigned = partitions_of(&member.assigned);
        for (topic, partitions) in partitions_of(&member.revoking) {
            assigned.entry(topic).or_default().extend(partitions);
        }
        let target = self.target.get(id).map(|target| describe_topics(target, image));
        DescribedMember {
            member_id: id.clone(),
            member_epoch: member.epoch,
            instance_id: member.instance_id.clone(),
            rack: member.rack.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            topics: member.topics.iter().cloned().collect(),
            regex: member.regex.clone(),
            assigned: describe_topics(&assigned, image),
            target: target.unwrap_or_default(),
            is_classic: member.is_classic(),
        }
    }
}

fn describe_topics(assignment: &Assignment, image: &Image) -> Vec<DescribedTopic> {
    let described = |(id, partitions): (&TopicId, &std::collections::BTreeSet<PartitionIndex>)| {
        let topic = image.topics.by_id(*id)?;
        let partitions = partitions.iter().copied().collect();
        Some(DescribedTopic { id: *id, name: topic.name.clone(), partitions })
    };
    assignment.iter().filter_map(described).collect()
}
