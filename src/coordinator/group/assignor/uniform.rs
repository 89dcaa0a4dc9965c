//! `uniform` where all members are subscribed to the same topics: everybody keeps what it has up to its share, and the rest
//! goes to those who have less. Balance comes before stickiness.

use std::collections::BTreeSet;

use super::{Assignment, Group, partitions};
use crate::types::{PartitionIndex, TopicId};

type Free = Vec<(TopicId, PartitionIndex)>;

pub(super) fn assign(group: &Group) -> Vec<Assignment> {
    let Some(first) = group.members.first() else { return Vec::new() };
    let topics = first.topics.as_ref();
    let count = |topic: &TopicId| group.topics.get(topic).copied().unwrap_or(0);
    let total: usize = topics.iter().map(count).sum();

    let taken: BTreeSet<(TopicId, PartitionIndex)> = group
        .members
        .iter()
        .flat_map(|member| &member.target)
        .flat_map(|(topic, indexes)| indexes.iter().map(|index| (*topic, *index)))
        .collect();
    let all = topics.iter().flat_map(|topic| partitions(count(topic)).map(|index| (*topic, index)));
    let mut free: Free = all.filter(|partition| !taken.contains(partition)).collect();

    let mut shares = Shares { least: total / group.members.len(), larger: total % group.members.len() };
    let mut assignments = Vec::with_capacity(group.members.len());
    let mut lacking = Vec::new();
    for (index, member) in group.members.iter().enumerate() {
        let room = shares.most();
        let kept = keep(&member.target, topics, room, &mut free);
        let unused = room - kept.values().map(BTreeSet::len).sum::<usize>();
        lacking.push(shares.take(unused, group.members.len() - index));
        assignments.push(kept);
    }
    let mut free = free.into_iter();
    for (assignment, lacking) in assignments.iter_mut().zip(lacking) {
        for (topic, index) in free.by_ref().take(lacking) {
            assignment.entry(topic).or_default().insert(index);
        }
    }
    assignments
}

/// How many partitions each member has: `least`, and `larger` of those who come still have one more.
struct Shares {
    least: usize,
    larger: usize,
}

impl Shares {
    /// As many as the next member may have.
    fn most(&self) -> usize {
        self.least + usize::from(self.larger > 0)
    }

    /// The next member leaves so much of the most it may have unused. What it is to be given; `left` counts the members
    /// from it on. It has the larger share if it fills it by itself, or if no more members come than larger shares.
    fn take(&mut self, unused: usize, left: usize) -> usize {
        if self.larger == 0 {
            return unused;
        }
        if unused > 0 && left > self.larger {
            return unused - 1;
        }
        self.larger -= 1;
        unused
    }
}

/// What a member keeps of what it has, up to `room` partitions. What it gives up becomes free, unless nobody wants it.
fn keep(target: &Assignment, topics: &BTreeSet<TopicId>, room: usize, free: &mut Free) -> Assignment {
    let mut kept = Assignment::new();
    let mut room = room;
    for (topic, indexes) in target.iter().filter(|(topic, _)| topics.contains(*topic)) {
        for index in indexes {
            if room > 0 {
                room -= 1;
                kept.entry(*topic).or_default().insert(*index);
            } else {
                free.push((*topic, *index));
            }
        }
    }
    kept
}
