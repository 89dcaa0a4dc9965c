//! A machine with its log, for tests: it notes the bytes of each record, and can fold them into another machine.
//! After each step the fold must come to the same hard state.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};

use super::super::Command;
use super::*;
use crate::coordinator::group::classic::State;
use crate::coordinator::{Encode, Now};
use crate::metadata::Image;
use crate::types::{PartitionIndex, TopicId};
use crate::wire::messages::StrBytes;
use crate::wire::messages::metadata::{PartitionRecord, RemoveTopicRecord, TopicRecord};

/// What the partition holds.
#[derive(Clone, Debug)]
pub(super) enum Logged {
    Record(Option<Producer>, Bytes, Option<Bytes>),
    Marker(Producer, TxnResult),
}

pub(super) struct Harness {
    pub(super) groups: Groups,
    pub(super) log: Vec<Logged>,
    pub(super) image: Image,
    pub(super) now: Now,
    pub(super) record_max: usize,
}

impl Harness {
    pub(super) fn new(settings: Settings) -> Harness {
        let now = Now { monotonic: MonotonicMs(0), wall: TimestampMs(1_000_000) };
        let (groups, image) = (Groups::new(settings), Image::default());
        let mut harness = Harness { groups, log: Vec::new(), image, now, record_max: usize::MAX };
        harness.run(Groups::begin);
        harness
    }

    /// The clock goes on, or stays.
    pub(super) fn set_time(&mut self, monotonic_ms: i64) {
        let passed = monotonic_ms - self.now.monotonic.0;
        assert!(passed >= 0, "the clock goes back");
        self.now = Now { monotonic: MonotonicMs(monotonic_ms), wall: TimestampMs(self.now.wall.0 + passed) };
    }

    pub(super) fn step(&mut self, token: ReplyToken, command: Command) -> Out {
        self.run(|groups, context, out| groups.step(context, token, command, out))
    }

    pub(super) fn tick(&mut self) -> Out {
        self.run(Groups::tick)
    }

    pub(super) fn metadata_changed(&mut self) -> Out {
        self.run(Groups::metadata_changed)
    }

    pub(super) fn end_transaction(&mut self, producer: Producer, result: TxnResult) {
        self.log.push(Logged::Marker(producer, result));
        self.groups.replay_marker(producer, result);
        self.check();
    }

    /// Another coordinator takes over. That the log was compacted meanwhile makes no difference to it.
    pub(super) fn move_on(&mut self) -> Out {
        self.check_compacted();
        self.groups = self.fold();
        self.run(Groups::begin)
    }

    pub(super) fn add_topic(&mut self, name: &str, topic_id: TopicId, partitions: i32) {
        let name = StrBytes::from_string(name.to_owned());
        self.image.apply(&TopicRecord { name, topic_id, ..TopicRecord::default() }.into());
        for partition_id in 0..partitions {
            let partition = PartitionRecord { partition_id, topic_id, ..PartitionRecord::default() };
            self.image.apply(&partition.into());
        }
    }

    pub(super) fn remove_topic(&mut self, topic_id: TopicId) {
        self.image.apply(&RemoveTopicRecord { topic_id, ..RemoveTopicRecord::default() }.into());
    }

    fn run(&mut self, step: impl FnOnce(&mut Groups, &Context<'_>, &mut Out)) -> Out {
        let mut out = Out::default();
        let context = Context { now: self.now, image: &self.image, record_max: self.record_max };
        step(&mut self.groups, &context, &mut out);
        for write in &out.records {
            assert!(!write.record.exceeds(self.record_max), "the log does not take {:?}", write.record);
            let (key, value) = write.record.encode().expect("a record has bytes");
            let decoded = Record::decode(key.clone(), value.clone()).expect("they can be read");
            assert_eq!(decoded.as_ref(), Some(&write.record));
            self.log.push(Logged::Record(write.producer, key, value));
        }
        self.check();
        out
    }

    /// What the log comes to.
    pub(super) fn fold(&self) -> Groups {
        self.fold_of(self.log.iter())
    }

    fn fold_of<'a>(&self, log: impl Iterator<Item = &'a Logged>) -> Groups {
        let mut groups = Groups::new(self.groups.settings.clone());
        for logged in log {
            match logged {
                Logged::Record(producer, key, value) => {
                    let replayed = groups.replay(Offset::ZERO, *producer, key.clone(), value.clone());
                    replayed.expect("the log can be read");
                }
                Logged::Marker(producer, result) => groups.replay_marker(*producer, *result),
            }
        }
        groups
    }

    /// The log with the last record of each key alone, as far as no transaction is open, and without what was aborted.
    fn compacted(&self) -> Vec<&Logged> {
        let ends = |at: usize, producer: Producer| {
            self.log[at..].iter().find_map(|logged| match logged {
                Logged::Marker(of, result) if of.id == producer.id => Some(*result),
                _ => None,
            })
        };
        let fate = |at: usize| match &self.log[at] {
            Logged::Record(Some(producer), ..) => ends(at, *producer),
            _ => Some(TxnResult::Commit),
        };
        let stable = (0..self.log.len()).find(|at| fate(*at).is_none()).unwrap_or(self.log.len());
        let mut last: BTreeMap<&Bytes, usize> = BTreeMap::new();
        for (at, logged) in self.log[..stable].iter().enumerate() {
            if let Logged::Record(_, key, _) = logged
                && fate(at) == Some(TxnResult::Commit)
            {
                last.insert(key, at);
            }
        }
        let stays = |(at, logged): &(usize, &Logged)| match logged {
            Logged::Record(_, key, _) => *at >= stable || last.get(key) == Some(at),
            Logged::Marker(..) => true,
        };
        self.log.iter().enumerate().filter(stays).map(|(_, logged)| logged).collect()
    }

    pub(super) fn check_compacted(&self) {
        let (whole, compacted) = (self.fold(), self.fold_of(self.compacted().into_iter()));
        assert_eq!(whole.offsets.snapshot(), compacted.offsets.snapshot());
        let found = hard_groups(&compacted);
        let mut expected = hard_groups(&whole);
        // A group that nobody has joined goes with its last offset.
        expected.retain(|id, _| found.contains_key(*id) || !whole.is_bare(id));
        assert_eq!(found, expected);
    }

    fn check(&self) {
        let folded = self.fold();
        let live = hard_groups(&self.groups);
        assert_eq!(self.groups.ids(), folded.ids(), "the log has other groups");
        for ((id, live), (_, folded)) in live.iter().zip(hard_groups(&folded)) {
            // A rebalance of the classic protocol is not written down before it is over.
            if let Some(live) = live {
                assert_eq!(Some(live), folded.as_ref(), "group {id}");
            }
        }
        assert_eq!(self.groups.offsets.snapshot(), folded.offsets.snapshot());
        for (at, id) in &self.groups.deadlines {
            assert_eq!(self.groups.groups[id].deadline, Some(*at));
        }
        let with_deadline = self.groups.groups.values().filter(|entry| entry.deadline.is_some()).count();
        assert_eq!(with_deadline, self.groups.deadlines.len());
        for (id, entry) in &self.groups.groups {
            let own = entry.group.next_deadline();
            let kept = entry.deadline;
            let is_early = own.is_none_or(|own| kept.is_some_and(|kept| kept <= own));
            assert!(is_early, "group {id} wants to be called at {own:?}, and will be at {kept:?}");
        }
    }
}

impl Groups {
    /// Whether nothing at all is known of a group, but that it was there.
    fn is_bare(&self, id: &Name) -> bool {
        let is_simple = match &self.groups[id].group {
            Group::Classic(group) => group.is_simple(),
            Group::Consumer(_) => false,
        };
        is_simple && self.offsets.is_empty(id)
    }
}

/// The groups as the log knows them; none of the classic protocol in the middle of a rebalance.
fn hard_groups(groups: &Groups) -> BTreeMap<&Name, Option<String>> {
    fn hard_state<'a>((id, Entry { group, .. }): (&'a Name, &Entry)) -> (&'a Name, Option<String>) {
        let state = match group {
            Group::Classic(group) => {
                let is_settled = matches!(group.state(), State::Empty | State::Stable);
                is_settled.then(|| format!("classic {}", group.hard_state()))
            }
            Group::Consumer(group) => Some(format!("consumer {}", group.hard_state())),
        };
        (id, state)
    }
    groups.groups.iter().map(hard_state).collect()
}

/// What consumers say of the topics that they read.
pub(super) fn subscription<'a>(topics: impl Iterator<Item = &'a str>) -> Bytes {
    let topics: Vec<&str> = topics.collect();
    let mut bytes = BytesMut::new();
    bytes.put_i16(0);
    bytes.put_i32(topics.len() as i32);
    for topic in topics {
        put_text(&mut bytes, topic);
    }
    bytes.put_i32(-1);
    bytes.freeze()
}

/// What a leader gives a consumer, by topics in order.
pub(super) fn assignment(places: &[(Name, PartitionIndex)]) -> Bytes {
    let mut topics: BTreeMap<&Name, Vec<PartitionIndex>> = BTreeMap::new();
    for (topic, index) in places {
        topics.entry(topic).or_default().push(*index);
    }
    let mut bytes = BytesMut::new();
    bytes.put_i16(0);
    bytes.put_i32(topics.len() as i32);
    for (topic, partitions) in topics {
        put_text(&mut bytes, topic);
        bytes.put_i32(partitions.len() as i32);
        partitions.iter().for_each(|index| bytes.put_i32(index.0));
    }
    bytes.put_i32(-1);
    bytes.freeze()
}

fn put_text(bytes: &mut BytesMut, text: &str) {
    bytes.put_i16(text.len() as i16);
    bytes.put_slice(text.as_bytes());
}
