//! All groups of one partition of `__consumer_offsets`, with what they have committed: the machine that the driver runs.
//!
//! It finds the group that a command means, and keeps the timers of all. What happens within a group is for the group to
//! say (`classic`, `consumer`); this file knows its states only by what it tells. Invariants: the hard state is the fold of the
//! records, at every point; a group's deadline is in `deadlines` exactly once, and is not later than the group's own.
//!
//! In reading order: this file, `members` (joining, leaving), `consumers` (of the consumer protocol, and from one
//! protocol to the other), `offsets` (committing, fetching, deleting), `admin` (list,
//! describe, delete), `cleanup` (what is past its time).

mod admin;
mod cleanup;
mod consumers;
mod members;
mod offsets;

#[cfg(test)]
mod harness;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod script;

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;

use bytes::Bytes;

use super::classic::{ClassicGroup, MalformedGroup};
use super::consumer::{ConsumerGroup, TopicWatch};
use super::offsets::{Expiry, Offsets};
use super::producers::Producers;
use super::record::{Record, RecordError};
use super::reply::CommitError;
use super::{Asked, Command, Name, Out, Producer, Reply, ReplyToken, Settings};
use crate::coordinator::{Context, Machine};
use crate::metadata::topics::Topics;
use crate::types::{MonotonicMs, Offset, TimestampMs};
use crate::wire::control::TxnResult;
use crate::wire::messages::groups::GroupMetadataValue;
use cleanup::Cleanup;

#[derive(Debug, Default)]
pub struct Groups {
    settings: Settings,
    groups: HashMap<Name, Entry>,
    offsets: Offsets,
    producers: Producers,
    /// When each group that waits for something wants to be called.
    deadlines: BTreeSet<(MonotonicMs, Name)>,
    cleanup: Cleanup,
    /// What consumer groups watch of the topics.
    watch: TopicWatch,
    /// The topics of the image that was seen last.
    topics: Topics,
}

#[derive(Debug)]
struct Entry {
    group: Group,
    /// Its place in `deadlines`.
    deadline: Option<MonotonicMs>,
}

/// A group, by the protocol that it speaks.
#[derive(Debug)]
enum Group {
    Classic(Box<ClassicGroup>),
    Consumer(Box<ConsumerGroup>),
}

impl Group {
    fn next_deadline(&self) -> Option<MonotonicMs> {
        match self {
            Group::Classic(group) => group.next_deadline(),
            Group::Consumer(group) => group.next_deadline(),
        }
    }

    /// Whether a member may read the topic.
    fn is_subscribed_to(&self, topic: &str) -> bool {
        match self {
            Group::Classic(group) => group.is_subscribed_to(topic),
            Group::Consumer(group) => group.is_subscribed_to(topic),
        }
    }

    /// By what time its offsets expire.
    fn expiry(&self) -> Expiry {
        match self {
            Group::Classic(group) => group.expiry(),
            Group::Consumer(_) => Expiry::SinceCommit,
        }
    }

    /// Whether nothing but its offsets keeps it.
    fn is_abandoned(&self) -> bool {
        match self {
            Group::Classic(group) => group.is_abandoned(),
            Group::Consumer(group) => group.is_empty(),
        }
    }
}

/// A record that cannot be taken in.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Group(#[from] MalformedGroup),
}

impl Groups {
    /// No groups yet, for a log that is still to be folded.
    pub fn new(settings: Settings) -> Groups {
        Groups { settings, ..Groups::default() }
    }

    /// The ids of all groups, in order.
    fn ids(&self) -> Vec<Name> {
        let mut ids: Vec<Name> = self.groups.keys().cloned().collect();
        ids.sort_unstable();
        ids
    }

    /// Makes the group that exists for its offsets alone, if there is none: nobody has joined it (Kafka's simple group).
    fn ensure(&mut self, id: &str, now: TimestampMs) {
        if !self.groups.contains_key(id) {
            let id: Name = id.into();
            let group = Group::Classic(Box::new(ClassicGroup::new(id.clone(), now)));
            self.groups.insert(id, Entry { group, deadline: None });
        }
    }

    fn put(&mut self, id: Name, group: Group) {
        self.remove(&id);
        self.groups.insert(id, Entry { group, deadline: None });
    }

    fn remove(&mut self, id: &str) {
        if let Some((id, Entry { deadline: Some(deadline), .. })) = self.groups.remove_entry(id) {
            self.deadlines.remove(&(deadline, id));
        }
    }

    /// Takes in anew when the group wants to be called. Without it the group is called too early at worst, as long as
    /// its deadlines only move away.
    fn reschedule(&mut self, id: &Name) {
        let Some(entry) = self.groups.get_mut(id) else { return };
        let next = entry.group.next_deadline();
        if next == entry.deadline {
            return;
        }
        if let Some(old) = std::mem::replace(&mut entry.deadline, next) {
            self.deadlines.remove(&(old, id.clone()));
        }
        if let Some(new) = next {
            self.deadlines.insert((new, id.clone()));
        }
    }

    fn replay_classic(&mut self, id: &str, value: Option<&GroupMetadataValue>) -> Result<(), ReplayError> {
        match value {
            Some(value) => {
                let id: Name = id.into();
                let group = ClassicGroup::from_stored(id.clone(), value)?;
                self.put(id, Group::Classic(Box::new(group)));
            }
            None if matches!(self.groups.get(id), Some(Entry { group: Group::Classic(_), .. })) => {
                self.remove(id);
            }
            None => {}
        }
        Ok(())
    }

    /// Takes in a record of a consumer group. One that says something makes the group, also in the place of a classic one:
    /// a simple group, which has no record, or one whose tombstone has been compacted away. A tombstone of a group that is
    /// not there says nothing.
    fn replay_consumer(&mut self, id: &str, record: &Record, is_tombstone: bool) {
        let has_ended = is_tombstone && matches!(record, Record::ConsumerGroupMetadata(..));
        if !is_tombstone && !matches!(self.groups.get(id), Some(Entry { group: Group::Consumer(_), .. })) {
            let id: Name = id.into();
            self.put(id.clone(), Group::Consumer(Box::new(ConsumerGroup::new(id))));
        }
        let Some(Entry { group: Group::Consumer(group), .. }) = self.groups.get_mut(id) else { return };
        if has_ended {
            self.remove(id);
        } else {
            group.replay(record);
        }
    }

    /// Calls the groups whose time has come, each once.
    fn tick_groups(&mut self, context: &Context<'_>, out: &mut Out) {
        let now = context.now;
        let mut due = Vec::new();
        while self.deadlines.first().is_some_and(|(at, _)| *at <= now.monotonic) {
            due.extend(self.deadlines.pop_first());
        }
        for (_, id) in due {
            let config = self.consumer_config(context, &id);
            let Some(entry) = self.groups.get_mut(&id) else { continue };
            entry.deadline = None;
            match &mut entry.group {
                Group::Classic(group) => group.tick(&self.settings.classic, now, out),
                Group::Consumer(group) => {
                    let downgrade = group.tick(context, &mut self.watch, &config, out);
                    self.take_downgrade(&id, downgrade, now, out);
                }
            }
            self.reschedule(&id);
        }
    }
}

impl Machine for Groups {
    type Command = Command;
    type Record = Record;
    type Reply = Reply;
    type Effect = Infallible;
    type Malformed = ReplayError;

    fn replay(
        &mut self,
        _offset: Offset,
        producer: Option<Producer>,
        key: Bytes,
        value: Option<Bytes>,
    ) -> Result<(), ReplayError> {
        if let Some(producer) = producer {
            self.producers.seen(producer);
        }
        // Records of types that are not known here are of groups that are not coordinated here.
        let Some(record) = Record::decode(key, value)? else { return Ok(()) };
        match record {
            Record::OffsetCommit(key, value) => {
                if value.is_some() {
                    self.ensure(&key.group, TimestampMs::NONE);
                }
                self.offsets.apply(&key, value.as_ref(), producer.map(|producer| producer.id));
            }
            Record::LegacyOffsetCommit(key, value) => {
                if value.is_some() {
                    self.ensure(&key.group, TimestampMs::NONE);
                }
                self.offsets.apply_legacy(&key, value.as_ref());
            }
            Record::GroupMetadata(key, value) => self.replay_classic(&key.group, value.as_ref())?,
            record => {
                if let Some((id, is_tombstone)) = record.of_consumer_group() {
                    self.replay_consumer(&id, &record, is_tombstone);
                }
            }
        }
        Ok(())
    }

    fn replay_marker(&mut self, producer: Producer, result: TxnResult) {
        self.producers.ended(producer);
        self.offsets.end_transaction(producer.id, result == TxnResult::Commit);
    }

    fn begin(&mut self, context: &Context<'_>, out: &mut Out) {
        self.topics = context.image.topics.clone();
        self.cleanup.begin(context.now, &self.settings);
        for id in self.ids() {
            let Some(entry) = self.groups.get_mut(&id) else { continue };
            match &mut entry.group {
                Group::Classic(group) => group.begin(&self.settings.classic, context.now, out),
                Group::Consumer(group) => {
                    let config = self.settings.consumer.of_group(&context.image.configs, &id);
                    group.begin(context, &config);
                }
            }
            self.reschedule(&id);
        }
    }

    fn step(&mut self, context: &Context<'_>, token: ReplyToken, command: Command, out: &mut Out) {
        let now = context.now;
        let reply = match command {
            Command::Configure(settings) => self.configure(settings, now),
            Command::Join { group, join } => {
                return self.join(context, &group, &Asked { token, request: *join }, out);
            }
            Command::Sync { group, sync } => {
                return self.sync(context, &group, Asked { token, request: sync }, out);
            }
            Command::Heartbeat { group, member } => {
                Reply::Heartbeat(self.heartbeat(context, &group, &member, out))
            }
            Command::Leave { group, leaving } => Reply::Leave(self.leave(context, &group, &leaving, out)),
            Command::ConsumerHeartbeat { group, heartbeat } => {
                Reply::ConsumerHeartbeat(self.consumer_heartbeat(context, &group, &heartbeat, out))
            }
            Command::CommitOffsets(commit) => Reply::CommitOffsets(self.commit(None, commit, now, out)),
            Command::CountEnds(producer) => Reply::CountEnds(self.producers.ends(producer)),
            Command::CommitOffsetsInTransaction { producer, since, commit } => {
                let is_late = since.is_some_and(|since| since != self.producers.ends(producer.id));
                Reply::CommitOffsetsInTransaction(match is_late {
                    true => Err(CommitError::TransactionEnded),
                    false => self.commit(Some(producer), commit, now, out),
                })
            }
            Command::FetchOffsets(fetch) => Reply::FetchOffsets(self.fetch(fetch)),
            Command::DeleteOffsets { group, topics } => {
                Reply::DeleteOffsets(self.delete_offsets(&group, topics, out))
            }
            Command::ListGroups(filter) => Reply::ListGroups(self.list(&filter)),
            Command::DescribeGroups(ids) => Reply::DescribeGroups(self.describe(ids)),
            Command::DescribeConsumerGroups(ids) => {
                Reply::DescribeConsumerGroups(self.describe_consumer_groups(context, ids))
            }
            Command::DeleteGroups(ids) => Reply::DeleteGroups(self.delete(ids, out)),
        };
        out.reply(token, reply);
    }

    fn metadata_changed(&mut self, context: &Context<'_>, out: &mut Out) {
        let before = std::mem::replace(&mut self.topics, context.image.topics.clone());
        self.forget_deleted_topics(&before, out);
    }

    fn tick(&mut self, context: &Context<'_>, out: &mut Out) {
        self.tick_groups(context, out);
        self.clean_up(context.now, out);
    }

    fn next_deadline(&self) -> Option<MonotonicMs> {
        let group = self.deadlines.first().map(|(at, _)| *at);
        group.into_iter().chain(self.cleanup.due()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_mean_nothing_here_are_passed_over() {
        let mut groups = Groups::default();
        let mut replay = |key: &'static [u8], value: Option<&'static [u8]>| {
            groups.replay(Offset::ZERO, None, Bytes::from_static(key), value.map(Bytes::from_static))
        };
        // Of a type that is not known, with whatever follows it; and the ends of groups that are not there.
        assert!(replay(&[3, 231, 1, 2, 3], Some(&[7])).is_ok());
        assert!(replay(&[0, 2, 0, 1, b'g'], None).is_ok());
        assert!(replay(&[0, 3, 0, 1, b'g'], None).is_ok());
        assert!(replay(&[0, 5, 0, 1, b'g', 0, 1, b'm'], None).is_ok());
        assert!(replay(&[0, 1, 0, 1, b'g', 0, 1, b't', 0, 0, 0, 0], None).is_ok());
        // What is damaged is not.
        assert!(replay(&[0], None).is_err());
        assert!(replay(&[0, 1, 0, 1, b'g', 0, 9, b't'], None).is_err());
        assert!(replay(&[0, 2, 0, 1, b'g'], Some(&[0, 99])).is_err());
        assert!(groups.groups.is_empty());
    }
}
