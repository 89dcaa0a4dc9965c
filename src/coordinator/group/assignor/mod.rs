//! The assignors of the consumer protocol (KIP-848): who is to have which partitions.
//!
//! Knows no epochs, no records and no members beyond what decides. Invariants: each partition of a subscribed topic goes
//! to exactly one of the topic's subscribers, and the same question has the same answer. Racks play no part: Kafka 4.4's
//! assignors are told of them and do not look.

mod balance;
mod range;
mod uniform;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Name;
use crate::types::{PartitionIndex, TopicId};

/// Partitions by topic. A topic that is there has partitions.
pub type Assignment = BTreeMap<TopicId, BTreeSet<PartitionIndex>>;

/// What a client names with `group.remote.assignor`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Assignor {
    /// Everybody has as many partitions as everybody else, or one more, and keeps what it has.
    #[default]
    Uniform,
    /// Of each topic, everybody has a range of partitions that follow each other.
    Range,
}

impl Assignor {
    pub fn name(self) -> &'static str {
        match self {
            Assignor::Uniform => "uniform",
            Assignor::Range => "range",
        }
    }

    pub fn named(name: &str) -> Option<Assignor> {
        [Assignor::Uniform, Assignor::Range].into_iter().find(|assignor| assignor.name() == name)
    }

    /// The assignment of each member, in the order of `group.members`.
    pub fn assign(self, group: &Group) -> Vec<Assignment> {
        match self {
            Assignor::Range => range::assign(group),
            Assignor::Uniform if group.is_homogeneous => uniform::assign(group),
            Assignor::Uniform => balance::assign(group),
        }
    }
}

/// The question.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// By their ids.
    pub members: Vec<Subscriber>,
    /// The topics that anybody is subscribed to, and how many partitions they have.
    pub topics: BTreeMap<TopicId, usize>,
    /// Whether all members are subscribed to the same topics.
    pub is_homogeneous: bool,
}

#[derive(Clone, Debug)]
pub struct Subscriber {
    pub id: Name,
    /// Of a static member.
    pub instance_id: Option<Name>,
    /// The topics that it is subscribed to; all of them are in [`Group::topics`].
    pub topics: Arc<BTreeSet<TopicId>>,
    /// What it was to have so far.
    pub target: Assignment,
}

/// The partitions of a topic with so many.
fn partitions(count: usize) -> impl Iterator<Item = PartitionIndex> {
    (0..count).map(|index| PartitionIndex(index as i32))
}

/// Kafka compares the halves of an id as signed numbers.
fn in_order_of_kafka(id: TopicId) -> (i64, i64) {
    let (high, low) = id.as_u64_pair();
    (high.cast_signed(), low.cast_signed())
}
