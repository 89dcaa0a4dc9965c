//! The committed offsets of the groups of one partition, and beside them those that open transactions have brought.
//!
//! Knows no members: who may commit is for the groups to say. Invariants: state changes by `apply` and `end_transaction`
//! alone, so folding the log gives it; of two commits of an offset the one later in the log counts, also when a
//! transaction is in between.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Write;
use super::record::Record;
use super::{Name, Out, Producer};
use crate::types::{LeaderEpoch, Offset, PartitionIndex, ProducerId, TimestampMs, TopicId};
use crate::wire::messages::StrBytes;
use crate::wire::messages::groups::{OffsetCommitKey, OffsetCommitValue};

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
    pub metadata: Name,
    pub committed_at: TimestampMs,
    /// When it expires, if the client has said so; newer clients leave it to `offsets.retention.minutes`.
    pub expires_at: Option<TimestampMs>,
    /// Nil when the client named the topic alone.
    pub topic_id: TopicId,
    /// The place in the log, counted in records.
    order: u64,
}

/// One offset of a commit.
#[derive(Clone, Debug)]
pub struct Commit {
    pub topic: Name,
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
    pub metadata: Name,
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
    /// So long after this moment, when the group lost its last member; after the commit where it is not known.
    SinceEmpty(Option<TimestampMs>),
}

type ByTopic<T> = BTreeMap<Name, BTreeMap<PartitionIndex, T>>;
type ByGroup<T> = BTreeMap<Name, ByTopic<T>>;

#[derive(Debug, Default)]
pub struct Offsets {
    committed: ByGroup<Committed>,
    /// What each open transaction has brought.
    pending: BTreeMap<ProducerId, ByGroup<Committed>>,
    /// The open transactions that have brought something for an offset.
    open: ByGroup<BTreeSet<ProducerId>>,
    applied: u64,
}

impl Offsets {
    /// Offsets are committed, by a producer's transaction or for good.
    pub fn commit(
        &mut self,
        group: &Name,
        producer: Option<Producer>,
        commits: impl IntoIterator<Item = Commit>,
        expires_at: Option<TimestampMs>,
        now: TimestampMs,
        out: &mut Out,
    ) {
        for commit in commits {
            let value = OffsetCommitValue {
                offset: commit.offset.0,
                leader_epoch: commit.leader_epoch.0,
                metadata: text(&commit.metadata),
                commit_timestamp: now.0,
                expire_timestamp: expires_at.map_or(-1, |at| at.0),
                topic_id: commit.topic_id,
                ..Default::default()
            };
            let key = key(group, &commit.topic, commit.partition);
            self.apply(&key, Some(&value), producer.map(|producer| producer.id));
            out.records.push(Write { record: Record::OffsetCommit(key, Some(value)), producer });
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
        let (group, topic, partition) = (&*key.group, &*key.topic, PartitionIndex(key.partition));
        let Some(value) = value else {
            remove(&mut self.committed, group, topic, partition);
            for producer in remove(&mut self.open, group, topic, partition).unwrap_or_default() {
                if let Some(pending) = self.pending.get_mut(&producer) {
                    remove(pending, group, topic, partition);
                }
            }
            return;
        };
        let committed = Committed {
            offset: Offset(value.offset),
            leader_epoch: LeaderEpoch(value.leader_epoch),
            metadata: value.metadata.as_str().into(),
            committed_at: TimestampMs(value.commit_timestamp),
            expires_at: (value.expire_timestamp != -1).then_some(TimestampMs(value.expire_timestamp)),
            topic_id: value.topic_id,
            order: self.applied,
        };
        match producer {
            None => put(&mut self.committed, group, topic, partition, committed),
            Some(producer) => {
                let pending = self.pending.entry(producer).or_default();
                put(pending, group, topic, partition, committed);
                match get_mut(&mut self.open, group, topic, partition) {
                    Some(open) => _ = open.insert(producer),
                    None => put(&mut self.open, group, topic, partition, BTreeSet::from([producer])),
                }
            }
        }
    }

    /// A producer's transaction has ended: what it has brought counts from now on, or is forgotten.
    pub fn end_transaction(&mut self, producer: ProducerId, is_commit: bool) {
        let Some(pending) = self.pending.remove(&producer) else { return };
        for (group, topic, partition, brought) in flatten(&pending) {
            if let Some(open) = get_mut(&mut self.open, group, topic, partition) {
                open.remove(&producer);
                if open.is_empty() {
                    remove(&mut self.open, group, topic, partition);
                }
            }
            let known = get(&self.committed, group, topic, partition);
            if is_commit && known.is_none_or(|known| known.order < brought.order) {
                put(&mut self.committed, group, topic, partition, brought.clone());
            }
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
        if require_stable && get(&self.open, group, topic, partition).is_some() {
            return Fetched::Unstable;
        }
        let is_other = |known: TopicId| !known.is_nil() && !topic_id.is_nil() && known != topic_id;
        match get(&self.committed, group, topic, partition) {
            Some(committed) if !is_other(committed.topic_id) => Fetched::Offset(committed),
            _ => Fetched::None,
        }
    }

    /// The partitions for which a group has committed, by topic.
    pub fn partitions(&self, group: &str) -> impl Iterator<Item = (&Name, PartitionIndex)> {
        let topics = self.committed.get(group).into_iter().flatten();
        topics.flat_map(|(topic, partitions)| partitions.keys().map(move |partition| (topic, *partition)))
    }

    /// Whether a group has nothing here, committed or open.
    pub fn is_empty(&self, group: &str) -> bool {
        !self.committed.contains_key(group) && !self.open.contains_key(group)
    }

    /// Forgets one offset; false when there is none.
    pub fn delete(&mut self, group: &Name, topic: &Name, partition: PartitionIndex, out: &mut Out) -> bool {
        let exists = get(&self.committed, group, topic, partition).is_some()
            || get(&self.open, group, topic, partition).is_some();
        if exists {
            let key = key(group, topic, partition);
            self.apply(&key, None, None);
            out.record(Record::OffsetCommit(key, None));
        }
        exists
    }

    /// Forgets all that a group has.
    pub fn delete_group(&mut self, group: &Name, out: &mut Out) {
        let mut all = names(&self.committed, group);
        all.append(&mut names(&self.open, group));
        for (topic, partition) in all {
            self.delete(group, &topic, partition, out);
        }
    }

    /// Forgets what was committed for a topic that is gone. One that was committed without a topic id goes by the name.
    pub fn topic_deleted(&mut self, topic: &Name, topic_id: TopicId, out: &mut Out) {
        let stores = std::iter::once(&self.committed).chain(self.pending.values());
        let mut doomed = BTreeSet::new();
        for (group, named, partition, committed) in stores.flat_map(flatten) {
            if named == topic && (committed.topic_id.is_nil() || committed.topic_id == topic_id) {
                doomed.insert((group.clone(), partition));
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
        group: &Name,
        expiry: Expiry,
        is_subscribed: impl Fn(&str) -> bool,
        retention_ms: i64,
        now: TimestampMs,
        out: &mut Out,
    ) -> bool {
        let has_expired = |committed: &Committed| {
            let since = match (committed.expires_at, expiry) {
                (_, Expiry::Never) => return false,
                (Some(at), _) => return at <= now,
                (None, Expiry::SinceCommit | Expiry::SinceEmpty(None)) => committed.committed_at,
                (None, Expiry::SinceEmpty(Some(at))) => at,
            };
            since <= now.minus(retention_ms)
        };
        let mut doomed = Vec::new();
        for (topic, partitions) in self.committed.get(group).into_iter().flatten() {
            if is_subscribed(topic) {
                continue;
            }
            for (partition, committed) in partitions {
                let is_open = get(&self.open, group, topic, *partition).is_some();
                if has_expired(committed) && !is_open {
                    doomed.push((topic.clone(), *partition));
                }
            }
        }
        for (topic, partition) in doomed {
            self.delete(group, &topic, partition, out);
        }
        self.is_empty(group)
    }
}

fn key(group: &str, topic: &str, partition: PartitionIndex) -> OffsetCommitKey {
    OffsetCommitKey { group: text(group), topic: text(topic), partition: partition.0, ..Default::default() }
}

fn text(name: &str) -> StrBytes {
    StrBytes::from_string(name.to_owned())
}

fn names<T>(groups: &ByGroup<T>, group: &str) -> BTreeSet<(Name, PartitionIndex)> {
    let topics = groups.get(group).into_iter().flatten();
    topics
        .flat_map(|(topic, partitions)| partitions.keys().map(|partition| (topic.clone(), *partition)))
        .collect()
}

fn flatten<T>(groups: &ByGroup<T>) -> impl Iterator<Item = (&Name, &Name, PartitionIndex, &T)> {
    groups.iter().flat_map(|(group, topics)| {
        topics.iter().flat_map(move |(topic, partitions)| {
            partitions.iter().map(move |(partition, value)| (group, topic, *partition, value))
        })
    })
}

fn get<'a, T>(groups: &'a ByGroup<T>, group: &str, topic: &str, partition: PartitionIndex) -> Option<&'a T> {
    groups.get(group)?.get(topic)?.get(&partition)
}

fn get_mut<'a, T>(
    groups: &'a mut ByGroup<T>,
    group: &str,
    topic: &str,
    partition: PartitionIndex,
) -> Option<&'a mut T> {
    groups.get_mut(group)?.get_mut(topic)?.get_mut(&partition)
}

/// Sets what is known of an offset. Names that are there already are kept.
fn put<T>(groups: &mut ByGroup<T>, group: &str, topic: &str, partition: PartitionIndex, value: T) {
    let topics = match groups.get_mut(group) {
        Some(topics) => topics,
        None => groups.entry(group.into()).or_default(),
    };
    let partitions = match topics.get_mut(topic) {
        Some(partitions) => partitions,
        None => topics.entry(topic.into()).or_default(),
    };
    partitions.insert(partition, value);
}

/// Takes an offset out, and what is empty without it.
fn remove<T>(groups: &mut ByGroup<T>, group: &str, topic: &str, partition: PartitionIndex) -> Option<T> {
    let topics = groups.get_mut(group)?;
    let partitions = topics.get_mut(topic)?;
    let removed = partitions.remove(&partition);
    if partitions.is_empty() {
        topics.remove(topic);
        if topics.is_empty() {
            groups.remove(group);
        }
    }
    removed
}
