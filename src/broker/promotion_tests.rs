//! A partition moves between two log directories while producers write, the power fails, and disks do: what was promised is
//! there afterwards, once, and one log of the partition lives.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt as _;
use proptest::prelude::*;
use tokio::sync::oneshot;

use super::checkpoints::Checkpoints;
use super::directory::Directory;
use super::log_dirs::{LogDirs, Opened};
use super::mailbox::Message;
use super::messages::{Host, ProduceError, Produced, Promote, Promoted};
use super::partitions::{FutureReplica, Partition, Role};
use super::promotion::MISSING_MAX;
use super::rig::{DIRECTORY_ID, ME, Rig, id, lead, open_dir_with_id, records, replica_config};
use crate::config::{Sources, load};
use crate::metadata::reconcile::Replica;
use crate::metadata::topics::{LeaderRecoveryState, PartitionRegistration};
use crate::replica::Acks;
use crate::storage::disk::Disk;
use crate::storage::log::{Budgets, Log, LogConfig, ReadPlan};
use crate::storage::log_dir::{DirName, Fate};
use crate::storage::sim_disk::{FaultOn, SimDisk};
use crate::types::{
    DirectoryId, LeaderEpoch, Offset, PartitionEpoch, TimestampMs, TopicIdPartition, TopicPartition, Uuid,
    directory_id,
};
use crate::wire::batch::{Batches, PartialTail};
use crate::wire::records::Records;

const P: TopicIdPartition = id(1, 0);
const OTHER_ID: DirectoryId = Uuid::from_u128(0xb000);
const PATHS: [&str; 2] = ["/data", "/other"];
const NOW: TimestampMs = TimestampMs(1_000_000);

type Answer = Pin<Box<dyn Future<Output = Vec<Result<Produced, ProduceError>>>>>;

#[derive(Clone, Debug)]
enum Step {
    Produce {
        records: usize,
        size: usize,
    },
    Flush,
    Checkpoint,
    /// Begins to move to the other directory.
    Begin,
    Copy(usize),
    Promote,
    /// What the move has left is set aside.
    Finish,
    Abandon,
    Crash(u64),
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1..4usize, 0..100usize).prop_map(|(records, size)| Step::Produce { records, size }),
        3 => Just(Step::Flush),
        1 => Just(Step::Checkpoint),
        3 => Just(Step::Begin),
        6 => (1..2000usize).prop_map(Step::Copy),
        3 => Just(Step::Promote),
        2 => Just(Step::Finish),
        1 => Just(Step::Abandon),
        1 => any::<u64>().prop_map(Step::Crash),
        1 => Just(Step::Kill),
    ];
    proptest::collection::vec(step, 1..80)
}

fn config() -> LogConfig {
    LogConfig { segment_bytes: 600, index_interval_bytes: 100, ..LogConfig::default() }
}

/// A broker of one shard with two log directories and one partition.
struct Broker {
    disk: SimDisk,
    rig: Rig,
    dirs: Arc<LogDirs>,
    checkpoints: Checkpoints,
    partition: Arc<Partition>,
    copy: Option<Log>,
    /// The log that was replaced, and where it lies.
    before: Option<(Arc<Directory>, Log)>,
    /// Where the metadata has the partition.
    named: DirectoryId,
    epoch: i32,
    next: usize,
    waiting: Vec<(Vec<String>, Answer)>,
    /// The values that were acknowledged, in order.
    promised: Vec<(Offset, String)>,
}

fn replica(named: DirectoryId) -> Replica {
    let registration = PartitionRegistration {
        replicas: vec![ME],
        directories: vec![named],
        isr: vec![ME],
        removing: Vec::new(),
        adding: Vec::new(),
        elr: Vec::new(),
        lossy_epoch: LeaderEpoch::UNKNOWN,
        last_known_elr: Vec::new(),
        leader: ME,
        leader_recovery_state: LeaderRecoveryState::Recovered,
        leader_epoch: LeaderEpoch(0),
        partition_epoch: PartitionEpoch(0),
    };
    Replica { id: P, name: TopicPartition::new("t", 0), registration }
}

impl Broker {
    fn new() -> Broker {
        Broker::start(SimDisk::new(), directory_id::UNASSIGNED, 1)
    }

    /// Starts on what the disk has.
    fn start(disk: SimDisk, named: DirectoryId, epoch: i32) -> Broker {
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let mut rig = Rig::new(shared.clone(), Path::new(PATHS[0]));
        let shard = rig.partitions.shard_of(&P).clone();
        let other = open_dir_with_id(&shared, Path::new(PATHS[1]), OTHER_ID);
        let other = Arc::new(Directory::new(1, other, vec![shard], 0));
        let directories = vec![rig.directory.clone(), other];
        let budgets = Budgets::new(1 << 20, 1 << 20, 100);
        let dirs = Arc::new(LogDirs::scan(ME, shared.clone(), directories, Vec::new(), budgets));
        let settings = load(&Sources::default()).expect("settings").layers.broker_config();
        let placement = dirs.placement(&settings, std::iter::empty(), false);
        let jobs = [(replica(named), Arc::new(config()))];
        let opened = dirs.open_all(&jobs, placement, 1, NOW).pop().expect("one").expect("opened");
        let Opened { log, directory, .. } = opened;
        let named = directory.id();
        let partition = Arc::new(Partition::new(P, TopicPartition::new("t", 0), directory, &log));
        rig.partitions.update(|table| {
            table.insert(P, partition.clone());
        });
        let host = Host {
            partition: partition.clone(),
            log,
            config: replica_config(&config()),
            role: lead(epoch, &[1]),
        };
        rig.tell(Message::Host(Box::new(host)));
        let checkpoints = Checkpoints::new(shared, rig.partitions.clone(), dirs.clone());
        let mut broker = Broker {
            disk,
            rig,
            dirs,
            checkpoints,
            partition,
            copy: None,
            before: None,
            named,
            epoch,
            next: 0,
            waiting: Vec::new(),
            promised: Vec::new(),
        };
        broker.resume();
        broker
    }

    /// Goes on with a copy that was found.
    fn resume(&mut self) {
        for (directory, found) in self.dirs.take_futures() {
            let is_elsewhere = directory.index() != self.partition.directory().index();
            if found.topic_id.is_some() && is_elsewhere && self.copy.is_none() {
                let config = self.partition.log_config();
                let copy = self.dirs.open_future(&directory, &found, config, NOW).expect("opened");
                self.partition.set_future(Some(FutureReplica::new(directory, &copy)));
                self.copy = Some(copy);
            } else {
                self.dirs.retire_found(&directory, &found).expect("set aside");
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Produce { records: count, size } => {
                let values: Vec<String> =
                    (0..count).map(|nth| format!("{}-{}", self.next + nth, "v".repeat(size))).collect();
                self.next += count;
                let batch = records(&values.iter().map(String::as_str).collect::<Vec<_>>());
                let answer = self.rig.produce(Some(Acks::All), vec![(P, batch)]);
                self.waiting.push((values, Box::pin(answer.all())));
            }
            Step::Flush => self.flush(),
            Step::Checkpoint => self.checkpoints.write_all(),
            Step::Begin => self.begin(),
            Step::Copy(max_bytes) => {
                let view = self.partition.view();
                if let Some(copy) = &mut self.copy {
                    copy.advance_to(&view, max_bytes, NOW).expect("copied");
                }
            }
            Step::Promote => drop(self.promote()),
            Step::Finish => self.finish(),
            Step::Abandon => self.abandon(),
            Step::Crash(seed) => self.restart(|disk| disk.crash(seed)),
            Step::Kill => self.restart(SimDisk::kill),
        }
        self.note_promises();
    }

    fn flush(&mut self) {
        for directory in self.dirs.directories().to_vec() {
            while let Some(round) = directory.flush.take(1) {
                round.run(&directory);
                self.rig.pump();
            }
        }
    }

    fn begin(&mut self) {
        if self.copy.is_some() || self.before.is_some() {
            return;
        }
        let target = self.dirs.directories()[1 - self.partition.directory().index()].clone();
        let copy = self.dirs.create_future(&target, &self.partition, NOW).expect("made");
        self.partition.set_future(Some(FutureReplica::new(target, &copy)));
        self.copy = Some(copy);
    }

    /// The last step of a move; `None` when there is none.
    fn promote(&mut self) -> Option<bool> {
        let (future, target) = (self.copy.take()?, self.partition.future()?.directory.clone());
        let source = self.partition.directory();
        self.named = target.id();
        let path = self.dirs.path_in(&target, &self.partition.name);
        let (reply, mut promoted) = oneshot::channel();
        let missing_max = MISSING_MAX;
        let promote = Promote { future, directory: target.clone(), path, missing_max, reply };
        self.rig.tell(Message::Promote(P, Box::new(promote)));
        match promoted.try_recv().expect("answered") {
            Promoted::Done(before) => {
                self.before = Some((source, before));
                Some(true)
            }
            Promoted::Behind(copy) => {
                self.copy = Some(copy);
                Some(false)
            }
            Promoted::Failed(copy, error) => {
                assert!(copy.failure().is_some(), "{error}");
                target.fail("move", &error);
                self.partition.set_future(None);
                self.named = source.id();
                Some(false)
            }
            Promoted::Gone(_) => panic!("the partition is here"),
        }
    }

    fn finish(&mut self) {
        let Some((source, before)) = self.before.take() else { return };
        self.dirs.forget(&source, &self.partition.name);
        self.checkpoints.write_all();
        source.flush.forget(&P);
        self.dirs.retire_log(&source, &self.partition, &before).expect("set aside");
    }

    fn abandon(&mut self) {
        let Some(copy) = self.copy.take() else { return };
        let target = self.partition.future().expect("a copy").directory.clone();
        self.partition.set_future(None);
        self.named = self.partition.directory().id();
        self.dirs.forget(&target, &self.partition.name);
        self.checkpoints.write_all();
        self.dirs.retire_log(&target, &self.partition, &copy).expect("set aside");
    }

    fn note_promises(&mut self) {
        let promised = &mut self.promised;
        self.waiting.retain_mut(|(values, answer)| {
            let Some(mut answers) = answer.as_mut().now_or_never() else { return true };
            let produced = answers.pop().expect("one answer").expect("appended");
            let offsets = (0..).map(|nth| produced.base_offset.plus(nth));
            promised.extend(offsets.zip(std::mem::take(values)));
            false
        });
        promised.sort();
    }

    fn restart(&mut self, end: impl FnOnce(&SimDisk)) {
        let (disk, named, epoch) = (self.disk.clone(), self.named, self.epoch + 1);
        end(&disk);
        let next = self.next;
        let promised = std::mem::take(&mut self.promised);
        *self = Broker { next, promised, ..Broker::start(disk, named, epoch) };
        self.check();
        assert_eq!(self.live_directories(), 1, "one log of it lives");
    }

    /// All that was promised is there, where it was, and once.
    fn check(&self) {
        let all = values(&self.partition);
        for (offset, value) in &self.promised {
            let at = all.iter().filter(|(_, found)| found == value).map(|(at, _)| *at);
            assert_eq!(at.collect::<Vec<_>>(), [*offset], "{value}");
        }
    }

    fn live_directories(&self) -> usize {
        let names = PATHS.iter().flat_map(|path| self.disk.list(Path::new(path)).expect("listed"));
        let parsed = names.filter_map(|entry| DirName::parse(&entry.name));
        parsed.filter(|name| name.fate == Fate::Live).count()
    }
}

fn values(partition: &Partition) -> Vec<(Offset, String)> {
    let view = partition.view();
    let (mut all, mut from) = (Vec::new(), view.log_start);
    while from < view.log_end {
        let bytes = match view.read(from, 1 << 20, view.log_end, true).expect("in range") {
            ReadPlan::Ready(parts) => parts.concat().into(),
            ReadPlan::Cold(read) => read.run().expect("readable"),
        };
        for batch in Batches::new(&bytes, PartialTail::Refuse) {
            let batch = batch.expect("a batch");
            from = batch.header.next_offset();
            for record in Records::new(batch.body(), batch.header.record_count) {
                let record = record.expect("a record");
                let value = String::from_utf8(record.value.expect("a value").to_vec()).expect("text");
                all.push((batch.header.base_offset.plus(i64::from(record.offset_delta)), value));
            }
        }
    }
    all
}

proptest! {
    #[test]
    fn what_was_promised_outlives_a_move(steps in steps(), seed in any::<u64>()) {
        let mut broker = Broker::new();
        for step in steps {
            broker.step(&step);
        }
        broker.check();
        broker.step(&Step::Crash(seed));
        broker.step(&Step::Begin);
        for _ in 0..200 {
            broker.step(&Step::Copy(500));
        }
        broker.step(&Step::Promote);
        broker.step(&Step::Finish);
        broker.check();
        broker.step(&Step::Kill);
    }
}

/// What fails when a copy takes over, and whether the log that goes on then is the one that a later start finds.
#[test]
fn a_target_that_fails_at_the_last_moment_takes_nothing_along() {
    for (on, name) in [
        (FaultOn::Sync, ".log"),
        (FaultOn::Rename, "t-0"),
        (FaultOn::Sync, "other"),
        (FaultOn::Write, ".log"),
    ] {
        let mut broker = Broker::new();
        assert_eq!(broker.partition.directory().id(), DIRECTORY_ID);
        broker.step(&Step::Produce { records: 3, size: 50 });
        broker.step(&Step::Flush);
        broker.step(&Step::Begin);
        broker.step(&Step::Copy(1));
        broker.step(&Step::Produce { records: 3, size: 50 });
        broker.disk.fail(on, name, 0, io::ErrorKind::Other, Some(1));
        assert_eq!(broker.promote(), Some(false), "{on:?} of {name}");
        assert_eq!(broker.partition.leadership().role, Role::Leader);
        // The cluster has not heard yet that it stayed.
        broker.named = OTHER_ID;
        broker.step(&Step::Produce { records: 1, size: 50 });
        broker.step(&Step::Flush);
        assert_eq!(broker.promised.len(), 7, "{on:?} of {name}");
        broker.disk.heal();
        broker.step(&Step::Kill);
        assert_eq!(broker.partition.directory().id(), DIRECTORY_ID, "{on:?} of {name}");
    }
}

#[test]
fn producers_hear_of_what_the_move_has_made_durable() {
    let mut broker = Broker::new();
    broker.step(&Step::Begin);
    broker.step(&Step::Produce { records: 2, size: 10 });
    assert_eq!(broker.promised.len(), 0, "nothing was synced");
    assert_eq!(broker.promote(), Some(true));
    broker.note_promises();
    assert_eq!(broker.promised.len(), 2);
    assert_eq!(broker.partition.directory().id(), OTHER_ID);
    // The sync of the log that was replaced says nothing of the new one.
    broker.step(&Step::Produce { records: 2, size: 10 });
    let old = broker.dirs.directories()[0].clone();
    while let Some(round) = old.flush.take(1) {
        round.run(&old);
        broker.rig.pump();
    }
    broker.note_promises();
    assert_eq!(broker.promised.len(), 2);
    broker.step(&Step::Flush);
    assert_eq!(broker.promised.len(), 4);
    broker.step(&Step::Finish);
    broker.step(&Step::Checkpoint);
    broker.step(&Step::Crash(3));
    assert_eq!(broker.partition.directory().id(), OTHER_ID);
}
