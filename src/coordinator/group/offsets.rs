//! The committed offsets of the groups of one partition, and beside them those that open transactions have brought.
//!
//! Knows no members: who may commit is for the groups to say. Invariants: state changes by `apply` and `end_transaction`
//! alone, so folding the log gives it; of two commits of an offset the one later in the log counts, also when a
//! transaction is in between.
//!
//! A coordinator may hold millions of offsets, so each is a flat entry in the table of its group, and names of topics are
//! numbers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::command::CommitTopic;
use super::record::Record;
use super::topic_names::{TopicNames, TopicNumber};
use super::{Name, Out, Producer};
use crate::fault::{self, Fault};
use crate::types::{LeaderEpoch, Offset, PartitionIndex, ProducerId, TimestampMs, TopicId};
use crate::wire::messages::StrBytes;
use crate::wire::messages::groups::{
    LegacyOffsetCommitKey, LegacyOffsetCommitValue, OffsetCommitKey, OffsetCommitValue,
};

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
    pub metadata: Box<str>,
    pub committed_at: TimestampMs,
    /// When it expires, if the client has said so; newer clients leave it to `offsets.retention.minutes`.
    /// `TimestampMs::NONE` if not.
    pub expires_at: TimestampMs,
    /// Nil when the client named the topic alone.
    pub topic_id: TopicId,
    /// The place in the log, counted in records.
    order: u64,
}

/// What a group has committed for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetched<'a> {
    None,
    Offset(&'a Committed),
    /// A transaction is open that may change it.
    Unstable,
}

/// By what time a group's offsets expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    Never,
    /// So long after each was committed.
    SinceCommit,
    /// So long after this moment, when the group lost its last member.
    SinceEmpty(TimestampMs),
}

/// A partition, within a group.
type Place = (TopicNumber, PartitionIndex);

/// What is kept of one group.
#[derive(Debug, Default)]
struct OfGroup {
    committed: HashMap<Place, Committed>,
    /// The open transactions that have brought something.
    open: BTreeMap<Place, BTreeSet<ProducerId>>,
}

#[derive(Debug, Default)]
pub struct Offsets {
    /// Held once by each committed offset and by each that a transaction has brought.
    topics: TopicNames,
    /// Only groups that have something.
    groups: HashMap<Name, OfGroup>,
    /// What each open transaction has brought.
    pending: BTreeMap<ProducerId, BTreeMap<(Name, Place), Committed>>,
    applied: u64,
}

impl Offsets {
    /// Offsets are committed, by a producer's transaction or for good.
    pub fn commit<'a>(
        &mut self,
        group: &Name,
        producer: Option<Producer>,
        topics: impl IntoIterator<Item = &'a CommitTopic>,
        expires_at: TimestampMs,
        now: TimestampMs,
        out: &mut Out,
    ) {
        let group_text = text(group);
        for topic in topics {
            let topic_text = text(&topic.name);
            for partition in &topic.partitions {
                let value = OffsetCommitValue {
                    offset: partition.offset.0,
                    leader_epoch: partition.leader_epoch.0,
                    metadata: text(&partition.metadata),
                    commit_timestamp: now.0,
                    expire_timestamp: expires_at.0,
                    topic_id: topic.id,
                    ..OffsetCommitValue::default()
                };
                let key = OffsetCommitKey {
                    group: group_text.clone(),
                    topic: topic_text.clone(),
                    partition: partition.index.0,
                    ..OffsetCommitKey::default()
                };
                self.apply(&key, Some(&value), producer.map(|producer| producer.id));
                let record = Record::OffsetCommit(key, Some(value));
                match producer {
                    Some(producer) => out.record_of(producer, record),
                    None => out.record(record),
                }
            }
        }
    }

    /// Takes in a record of the log, of a producer's transaction if there is one.
    pub fn apply(
        &mut self,
        key: &OffsetCommitKey,
        value: Option<&OffsetCommitValue>,
        producer: Option<ProducerId>,
    ) {
        self.applied += 1;
        let producer = producer.filter(|_| !fault::is_active(Fault::CommitsPendingOffsets));
        let partition = PartitionIndex(key.partition);
        let Some(value) = value else {
            if let Some(topic) = self.topics.number(&key.topic) {
                self.forget(&key.group, (topic, partition));
            }
            return;
        };
        let committed = Committed {
            offset: Offset(value.offset),
            leader_epoch: LeaderEpoch(value.leader_epoch),
            metadata: value.metadata.as_str().into(),
            committed_at: TimestampMs(value.commit_timestamp),
            expires_at: TimestampMs(value.expire_timestamp),
            topic_id: value.topic_id,
            order: self.applied,
        };
        let place = (self.topics.acquire(&key.topic), partition);
        let replaced = match (producer, self.groups.get_mut(&*key.group)) {
            (None, Some(of_group)) => of_group.committed.insert(place, committed),
            (None, None) => {
                let of_group = self.groups.entry(key.group.as_str().into()).or_default();
                of_group.committed.insert(place, committed)
            }
            (Some(producer), _) => self.bring(&key.group, place, producer, committed),
        };
        if replaced.is_some() {
            self.topics.release(place.0);
        }
    }

    /// Takes in a record of a version of Kafka that is long gone.
    pub fn apply_legacy(&mut self, key: &LegacyOffsetCommitKey, value: Option<&LegacyOffsetCommitValue>) {
        let key = OffsetCommitKey {
            group: key.group.clone(),
            topic: key.topic.clone(),
            partition: key.partition,
            ..OffsetCommitKey::default()
        };
        let value = value.map(|value| OffsetCommitValue {
            offset: value.offset,
            metadata: value.metadata.clone(),
            commit_timestamp: value.commit_timestamp,
            ..OffsetCommitValue::default()
        });
        self.apply(&key, value.as_ref(), None);
    }

    /// A transaction brings an offset; returns what it has brought before for the same partition.
    fn bring(
        &mut self,
        group: &str,
        place: Place,
        producer: ProducerId,
        committed: Committed,
    ) -> Option<Committed> {
        let known = self.groups.get_key_value(group);
        let name = known.map_or_else(|| group.into(), |(name, _)| name.clone());
        let of_group = self.groups.entry(name.clone()).or_default();
        of_group.open.entry(place).or_default().insert(producer);
        self.pending.entry(producer).or_default().insert((name, place), committed)
    }

    /// Takes out what is committed or pending for a partition, and the group if it has nothing else.
    fn forget(&mut self, group: &str, place: Place) {
        let Some((name, _)) = self.groups.get_key_value(group) else { return };
        let name = name.clone();
        let Some(of_group) = self.groups.get_mut(group) else { return };
        let mut released = usize::from(of_group.committed.remove(&place).is_some());
        for producer in of_group.open.remove(&place).unwrap_or_default() {
            let Some(pending) = self.pending.get_mut(&producer) else { continue };
            released += usize::from(pending.remove(&(name.clone(), place)).is_some());
            if pending.is_empty() {
                self.pending.remove(&producer);
            }
        }
        for _ in 0..released {
            self.topics.release(place.0);
        }
        self.drop_if_empty(group);
    }

    /// A producer's transaction has ended: what it has brought counts from now on, or is forgotten.
    pub fn end_transaction(&mut self, producer: ProducerId, is_commit: bool) {
        for ((group, place), brought) in self.pending.remove(&producer).unwrap_or_default() {
            let Some(of_group) = self.groups.get_mut(&group) else { continue };
            if let Some(open) = of_group.open.get_mut(&place) {
                open.remove(&producer);
                if open.is_empty() {
                    of_group.open.remove(&place);
                }
            }
            let known = of_group.committed.get(&place);
            let counts = is_commit && known.is_none_or(|known| known.order < brought.order);
            if !counts || of_group.committed.insert(place, brought).is_some() {
                self.topics.release(place.0);
            }
            self.drop_if_empty(&group);
        }
    }

    fn drop_if_empty(&mut self, group: &str) {
        if self.groups.get(group).is_some_and(|group| group.committed.is_empty() && group.open.is_empty()) {
            self.groups.remove(group);
        }
    }

    /// What a group has committed. An offset of another topic of the same name is none.
    pub fn fetch(
        &self,
        group: &str,
        topic: &str,
        topic_id: TopicId,
        partition: PartitionIndex,
        require_stable: bool,
    ) -> Fetched<'_> {
        let (Some(of_group), Some(topic)) = (self.groups.get(group), self.topics.number(topic)) else {
            return Fetched::None;
        };
        let place = (topic, partition);
        if require_stable && of_group.open.contains_key(&place) {
            return Fetched::Unstable;
        }
        let is_other = |known: TopicId| !known.is_nil() && !topic_id.is_nil() && known != topic_id;
        match of_group.committed.get(&place) {
            Some(committed) if !is_other(committed.topic_id) => Fetched::Offset(committed),
            _ => Fetched::None,
        }
    }

    /// All that a group has committed, by name of the topic and partition. What is only pending is not there.
    pub fn fetch_all(
        &self,
        group: &str,
        require_stable: bool,
    ) -> Vec<(&Name, Vec<(PartitionIndex, Fetched<'_>)>)> {
        let Some(of_group) = self.groups.get(group) else { return Vec::new() };
        let mut topics: BTreeMap<&Name, Vec<(PartitionIndex, Fetched<'_>)>> = BTreeMap::new();
        for (place, committed) in &of_group.committed {
            let is_unstable = require_stable && of_group.open.contains_key(place);
            let fetched = if is_unstable { Fetched::Unstable } else { Fetched::Offset(committed) };
            topics.entry(self.topics.name(place.0)).or_default().push((place.1, fetched));
        }
        for partitions in topics.values_mut() {
            partitions.sort_unstable_by_key(|(partition, _)| *partition);
        }
        topics.into_iter().collect()
    }

    /// Whether a group has nothing here, committed or open.
    pub fn is_empty(&self, group: &str) -> bool {
        !self.groups.contains_key(group)
    }

    /// Forgets one offset; false when there is none.
    pub fn delete(&mut self, group: &str, topic: &str, partition: PartitionIndex, out: &mut Out) -> bool {
        let exists = match (self.groups.get(group), self.topics.number(topic)) {
            (Some(of_group), Some(topic)) => {
                let place = (topic, partition);
                of_group.committed.contains_key(&place) || of_group.open.contains_key(&place)
            }
            _ => false,
        };
        if exists {
            let (group, topic) = (text(group), text(topic));
            let key = OffsetCommitKey { group, topic, partition: partition.0, ..OffsetCommitKey::default() };
            self.apply(&key, None, None);
            out.record(Record::OffsetCommit(key, None));
        }
        exists
    }

    /// Forgets all that a group has.
    pub fn delete_group(&mut self, group: &str, out: &mut Out) {
        let Some(of_group) = self.groups.get(group) else { return };
        let places = of_group.committed.keys().chain(of_group.open.keys()).copied().collect();
        self.delete_places(group, places, out);
    }

    /// Forgets what was committed for a topic that is gone. One that was committed without a topic id goes by the name.
    pub fn topic_deleted(&mut self, topic: &str, topic_id: TopicId, out: &mut Out) {
        let Some(number) = self.topics.number(topic) else { return };
        let is_gone = |committed: &Committed| committed.topic_id.is_nil() || committed.topic_id == topic_id;
        let mut doomed: BTreeSet<(Name, PartitionIndex)> = BTreeSet::new();
        for (group, of_group) in &self.groups {
            for (place, committed) in &of_group.committed {
                if place.0 == number && is_gone(committed) {
                    doomed.insert((group.clone(), place.1));
                }
            }
        }
        for ((group, place), brought) in self.pending.values().flatten() {
            if place.0 == number && is_gone(brought) {
                doomed.insert((group.clone(), place.1));
            }
        }
        for (group, partition) in doomed {
            self.delete(&group, topic, partition, out);
        }
    }

    /// Forgets the offsets of a group that have expired, save those of topics to which it is subscribed. True when the
    /// group has none left.
    pub fn expire(
        &mut self,
        group: &str,
        expiry: Expiry,
        is_subscribed: impl Fn(&str) -> bool,
        retention_ms: i64,
        now: TimestampMs,
        out: &mut Out,
    ) -> bool {
        let Some(of_group) = self.groups.get(group) else { return true };
        let has_expired = |committed: &Committed| {
            let since = match expiry {
                Expiry::Never => return false,
                _ if committed.expires_at != TimestampMs::NONE => return committed.expires_at <= now,
                Expiry::SinceCommit => committed.committed_at,
                Expiry::SinceEmpty(at) => at,
            };
            since <= now.minus(retention_ms)
        };
        let doomed = of_group.committed.iter().filter(|(place, committed)| {
            has_expired(committed)
                && !of_group.open.contains_key(place)
                && !is_subscribed(self.topics.name(place.0))
        });
        let doomed = doomed.map(|(place, _)| *place).collect();
        self.delete_places(group, doomed, out);
        self.is_empty(group)
    }

    fn delete_places(&mut self, group: &str, places: BTreeSet<Place>, out: &mut Out) {
        // Names, as a number may be let go of on the way; and in their order, which is the same wherever this runs.
        let named: BTreeSet<(Name, PartitionIndex)> = places
            .into_iter()
            .map(|(topic, partition)| (self.topics.name(topic).clone(), partition))
            .collect();
        for (topic, partition) in named {
            self.delete(group, &topic, partition, out);
        }
    }
}

fn text(name: &str) -> StrBytes {
    StrBytes::from_string(name.to_owned())
}

#[cfg(test)]
impl Offsets {
    /// How many topics have offsets.
    pub(super) fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// Everything, in an order of its own; of the places in the log only what matters, whether a pending offset would
    /// count.
    pub(super) fn snapshot(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut uses = BTreeMap::new();
        let mut line = |what: &str, group: &Name, place: &Place, committed: &Committed, counts: bool| {
            *uses.entry(place.0).or_insert(0) += 1;
            let committed = Committed { order: u64::from(counts), ..committed.clone() };
            lines.push(format!("{what} {group} {} {} {committed:?}", self.topics.name(place.0), place.1));
        };
        for (group, of_group) in &self.groups {
            assert!(!of_group.committed.is_empty() || !of_group.open.is_empty(), "{group} has nothing");
            for (place, committed) in &of_group.committed {
                line("committed", group, place, committed, true);
            }
            for (place, producers) in &of_group.open {
                for producer in producers {
                    assert!(self.pending[producer].contains_key(&(group.clone(), *place)));
                }
            }
        }
        for (producer, pending) in &self.pending {
            assert!(!pending.is_empty(), "{producer} has brought nothing");
            for ((group, place), committed) in pending {
                let of_group = &self.groups[group];
                assert!(of_group.open[place].contains(producer));
                let known = of_group.committed.get(place);
                let counts = known.is_none_or(|known| known.order < committed.order);
                line(&format!("of {producer}"), group, place, committed, counts);
            }
        }
        for (number, count) in uses {
            assert_eq!(self.topics.uses(number), count);
        }
        lines.sort();
        lines
    }
}
