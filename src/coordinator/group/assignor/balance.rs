//! `uniform` where members are subscribed to different topics: everybody keeps what it is still subscribed to, free
//! partitions go to the subscriber that has the least, and then partitions move, topic by topic, from the subscriber with
//! the most to the one with the least, until no move makes it more even.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{Assignment, Group, in_order_of_kafka, partitions};
use crate::types::{PartitionIndex, TopicId};

/// How often all topics are gone through. Where subscriptions overlap without being equal, evening out one topic may
/// disturb another; each round about halves what is uneven.
const MAX_ROUNDS: usize = 16;

pub(super) fn assign(group: &Group) -> Vec<Assignment> {
    let mut plan = Plan::new(group);
    plan.give_free();
    plan.even_out();
    plan.assignments
}

struct Topic {
    id: TopicId,
    /// By place in the group.
    subscribers: Vec<usize>,
    /// Who has each partition.
    owners: Vec<Option<usize>>,
}

struct Plan {
    /// In the order in which they are dealt with.
    topics: Vec<Topic>,
    assignments: Vec<Assignment>,
    sizes: Vec<usize>,
}

impl Plan {
    fn new(group: &Group) -> Plan {
        let mut subscribers: BTreeMap<TopicId, Vec<usize>> = BTreeMap::new();
        for (index, member) in group.members.iter().enumerate() {
            for topic in member.topics.iter() {
                subscribers.entry(*topic).or_default().push(index);
            }
        }
        let mut topics: Vec<Topic> = subscribers
            .into_iter()
            .map(|(id, subscribers)| {
                let count = group.topics.get(&id).copied().unwrap_or(0);
                Topic { id, subscribers, owners: vec![None; count] }
            })
            .collect();
        topics.sort_by(|a, b| {
            // Those with the most partitions for each subscriber first; then those with the fewest choices.
            let (a_share, b_share) =
                (a.owners.len() * b.subscribers.len(), b.owners.len() * a.subscribers.len());
            let choices = a.subscribers.len().cmp(&b.subscribers.len());
            let ids = in_order_of_kafka(a.id).cmp(&in_order_of_kafka(b.id));
            b_share.cmp(&a_share).then(choices).then(ids)
        });
        let mut plan = Plan {
            topics,
            assignments: vec![Assignment::new(); group.members.len()],
            sizes: vec![0; group.members.len()],
        };
        plan.keep(group);
        plan
    }

    fn keep(&mut self, group: &Group) {
        let places: BTreeMap<TopicId, usize> =
            self.topics.iter().enumerate().map(|(place, topic)| (topic.id, place)).collect();
        for (member, subscriber) in group.members.iter().enumerate() {
            for (topic, indexes) in &subscriber.target {
                let Some(place) = places.get(topic).filter(|_| subscriber.topics.contains(topic)) else {
                    continue;
                };
                for index in indexes {
                    self.give(*place, *index, member);
                }
            }
        }
    }

    fn give_free(&mut self) {
        for place in 0..self.topics.len() {
            let mut ranks = self.ranks(place);
            for index in partitions(self.topics[place].owners.len()) {
                if self.topics[place].owners[index.0 as usize].is_some() {
                    continue;
                }
                let Some((size, rank, member)) = ranks.pop_first() else { break };
                self.give(place, index, member);
                ranks.insert((size + 1, rank, member));
            }
        }
    }

    fn even_out(&mut self) {
        let movable: Vec<usize> =
            (0..self.topics.len()).filter(|place| self.topics[*place].subscribers.len() > 1).collect();
        let mut unchanged = 0;
        for place in movable.iter().copied().cycle().take(movable.len() * MAX_ROUNDS) {
            unchanged = if self.even_out_topic(place) { 0 } else { unchanged + 1 };
            if unchanged == movable.len() {
                break;
            }
        }
    }

    /// Whether partitions have moved.
    fn even_out_topic(&mut self, place: usize) -> bool {
        let ranks = self.ranks(place);
        let mut receivers = ranks.clone();
        let mut donors: BTreeSet<_> =
            ranks.into_iter().map(|(size, rank, member)| (Reverse(size), Reverse(rank), member)).collect();
        let mut given: BTreeMap<usize, Vec<PartitionIndex>> = BTreeMap::new();
        for (index, owner) in self.topics[place].owners.iter().enumerate() {
            if let Some(owner) = owner {
                given.entry(*owner).or_default().push(PartitionIndex(index as i32));
            }
        }
        let mut has_moved = false;
        // Who has the most, and something of this topic to give; and who has the least.
        while let Some((Reverse(most), Reverse(rank), donor)) = donors.pop_first() {
            let Some(index) = given.get_mut(&donor).and_then(Vec::pop) else { continue };
            let Some((least, receiver_rank, receiver)) = receivers.first().copied() else { break };
            if most <= least + 1 {
                break;
            }
            self.give(place, index, receiver);
            donors.insert((Reverse(most - 1), Reverse(rank), donor));
            receivers.remove(&(most, rank, donor));
            receivers.insert((most - 1, rank, donor));
            receivers.remove(&(least, receiver_rank, receiver));
            receivers.insert((least + 1, receiver_rank, receiver));
            has_moved = true;
        }
        has_moved
    }

    /// The subscribers of a topic by how much they have, with their rank in that order.
    fn ranks(&self, place: usize) -> BTreeSet<(usize, usize, usize)> {
        let mut members = self.topics[place].subscribers.clone();
        members.sort_by_key(|member| (self.sizes[*member], *member));
        members.into_iter().enumerate().map(|(rank, member)| (self.sizes[member], rank, member)).collect()
    }

    /// Gives a partition to a member, and takes it from whoever has it.
    fn give(&mut self, place: usize, index: PartitionIndex, member: usize) {
        let Topic { id, owners, .. } = &mut self.topics[place];
        let Some(owner) = usize::try_from(index.0).ok().and_then(|index| owners.get_mut(index)) else {
            return;
        };
        if let Some(former) = owner.replace(member) {
            self.sizes[former] -= 1;
            if let Some(indexes) = self.assignments[former].get_mut(id) {
                indexes.remove(&index);
                if indexes.is_empty() {
                    self.assignments[former].remove(id);
                }
            }
        }
        self.sizes[member] += 1;
        self.assignments[member].entry(*id).or_default().insert(index);
    }
}
