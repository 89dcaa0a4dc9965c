//! A group with all that is around it, for tests: cluster, clock, log. After each step the group that the log folds to is
//! compared with the group that made it.

use super::super::record::Record;
use super::super::{Name, Out};
use super::cluster::Cluster;
use super::*;
use crate::coordinator::{Context, Encode, Now};
use crate::types::{MonotonicMs, TimestampMs};

pub(super) struct Harness {
    pub(super) cluster: Cluster,
    pub(super) watch: TopicWatch,
    pub(super) config: ConsumerConfig,
    pub(super) now: Now,
    pub(super) group: ConsumerGroup,
    pub(super) log: Vec<Record>,
    /// What the log folds to, up to this many records.
    folded: (ConsumerGroup, usize),
}

impl Default for Harness {
    fn default() -> Harness {
        let mut harness = Harness {
            cluster: Cluster::default(),
            watch: TopicWatch::default(),
            config: ConsumerConfig::default(),
            now: Now::default(),
            group: ConsumerGroup::new("g".into()),
            log: Vec::new(),
            folded: (ConsumerGroup::new("g".into()), 0),
        };
        harness.set_clock(0);
        harness
    }
}

impl Harness {
    pub(super) fn set_clock(&mut self, ms: i64) {
        self.now = Now { monotonic: MonotonicMs(ms), wall: TimestampMs(1_000_000 + ms) };
    }

    /// Takes a step and keeps its records. They are returned as well.
    pub(super) fn step<T>(
        &mut self,
        step: impl FnOnce(&mut ConsumerGroup, &Context<'_>, &mut TopicWatch, &ConsumerConfig, &mut Out) -> T,
    ) -> (T, Vec<Record>) {
        let context = Context { now: self.now, image: self.cluster.image(), record_max: usize::MAX };
        let mut out = Out::default();
        let result = step(&mut self.group, &context, &mut self.watch, &self.config, &mut out);
        assert!(out.replies.is_empty() && out.effects.is_empty());
        let records: Vec<Record> = out.records.into_iter().map(|write| write.record).collect();
        self.log.extend(records.iter().cloned());
        self.check();
        (result, records)
    }

    pub(super) fn beat(
        &mut self,
        request: &Heartbeat,
    ) -> (Result<Done<HeartbeatReply>, HeartbeatError>, Vec<Record>) {
        self.step(|group, context, watch, config, out| group.heartbeat(context, watch, config, request, out))
    }

    pub(super) fn tick(&mut self) -> (Option<Downgrade>, Vec<Record>) {
        self.step(ConsumerGroup::tick)
    }

    /// Another coordinator takes over: it reads the log and begins.
    pub(super) fn change_coordinator(&mut self) {
        self.group = folded(&self.log);
        self.watch = TopicWatch::default();
        let context = Context { now: self.now, image: self.cluster.image(), record_max: usize::MAX };
        self.group.begin(&context, &self.config);
    }

    /// Begins with this group, and the log that it comes from.
    pub(super) fn begin_with(&mut self, group: ConsumerGroup, log: Vec<Record>) {
        self.folded = (ConsumerGroup::new("g".into()), 0);
        self.group = group;
        self.log = log;
        self.check();
    }

    /// What the log folds to is what there is; and nothing is held twice.
    fn check(&mut self) {
        let (folded, records) = &mut self.folded;
        for record in &self.log[*records..] {
            fold(folded, record);
        }
        *records = self.log.len();
        let has_ended = matches!(self.log.last(), Some(Record::ConsumerGroupMetadata(_, None)));
        assert!(has_ended || hard_state(folded) == hard_state(&self.group), "{folded:#?}\n{:#?}", self.group);
        let mut held: BTreeMap<(TopicId, PartitionIndex), &Name> = BTreeMap::new();
        for (id, member) in &self.group.members {
            for partition in member.held() {
                let other = held.insert(partition, id);
                assert!(other.is_none(), "{other:?} and {id} both hold {partition:?}");
            }
        }
        let owners: BTreeMap<_, _> =
            self.group.owners.iter().map(|(partition, id)| (*partition, id)).collect();
        assert_eq!(held, owners);
        assert!(self.group.target.keys().all(|id| self.group.members.contains_key(id)), "a target of nobody");
    }
}

fn folded(log: &[Record]) -> ConsumerGroup {
    let mut group = ConsumerGroup::new("g".into());
    log.iter().for_each(|record| fold(&mut group, record));
    group
}

/// Takes in the bytes of a record, as a coordinator that reads the log.
fn fold(group: &mut ConsumerGroup, record: &Record) {
    let (key, value) = record.encode().expect("the record has bytes");
    let read = Record::decode(key, value).expect("the record can be read").expect("of a known type");
    assert_eq!(*record, read);
    match read {
        Record::ConsumerGroupMetadata(_, None) => *group = ConsumerGroup::new("g".into()),
        record => group.replay(&record),
    }
}

/// All that is in the records, and what follows from it.
fn hard_state(group: &ConsumerGroup) -> impl PartialEq {
    (
        (group.epoch, group.metadata_hash, group.target_epoch, group.target_made_at),
        (&group.members, &group.target, &group.regexes, group.has_partition_metadata),
        (&group.instances, &group.owners, &group.demand, &group.regex_subscribers, &group.assignors),
    )
}
