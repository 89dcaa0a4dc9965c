//! `range`: the members in a row, and of each topic everybody has the next range. Topics with the same number of partitions
//! and the same subscribers are cut alike, so their records can be joined. Static members come first, by their instance
//! ids, so that a restart, which brings a new member id, moves nothing.

use std::collections::BTreeMap;

use super::{Assignment, Group, Subscriber};
use crate::types::{PartitionIndex, TopicId};

/// How a topic is cut.
struct Cut {
    partitions: usize,
    subscribers: usize,
    /// How many subscribers have had their range, and where the next one begins.
    served: usize,
    next: usize,
}

impl Cut {
    /// The next range; the first ones are longer by one where the division leaves a rest.
    fn next_range(&mut self) -> std::ops::Range<usize> {
        let rest = self.partitions % self.subscribers;
        let len = self.partitions / self.subscribers + usize::from(self.served < rest);
        let start = self.next;
        self.served += 1;
        self.next += len;
        start..self.next
    }
}

pub(super) fn assign(group: &Group) -> Vec<Assignment> {
    let mut cuts: BTreeMap<TopicId, Cut> = BTreeMap::new();
    for topic in group.members.iter().flat_map(|member| member.topics.iter()) {
        let partitions = group.topics.get(topic).copied().unwrap_or(0);
        let cut = cuts.entry(*topic).or_insert(Cut { partitions, subscribers: 0, served: 0, next: 0 });
        cut.subscribers += 1;
    }
    let mut order: Vec<usize> = (0..group.members.len()).collect();
    order.sort_by_key(|member| place(&group.members[*member]));
    let mut assignments = vec![Assignment::new(); group.members.len()];
    for member in order {
        for topic in group.members[member].topics.iter() {
            let Some(cut) = cuts.get_mut(topic) else { continue };
            let range = cut.next_range();
            if !range.is_empty() {
                assignments[member].insert(*topic, range.map(|index| PartitionIndex(index as i32)).collect());
            }
        }
    }
    assignments
}

fn place(member: &Subscriber) -> (bool, &str) {
    match &member.instance_id {
        Some(instance) => (false, instance),
        None => (true, &member.id),
    }
}
