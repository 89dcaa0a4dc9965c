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
use super::log_dirs::{LogDirs, OpenError, Opened};
use super::mailbox::Message;
use super::messages::{Host, Names, ProduceError, Produced, Promote, Promoted, RoleSpec};
use super::partitions::{FutureReplica, Partition, Role};
use super::promotion::MISSING_MAX;
use super::repairs::Repair;
use super::rig::{
    DIRECTORY_ID, ME, Rig, follow, id, lead, leave_free, open_dir_with_id, records, replica_config,
};
use crate::config::{Sources, load};
use crate::metadata::reconcile::Replica;
use crate::metadata::topics::{LeaderRecoveryState, PartitionRegistration};
use crate::replica::Acks;
use crate::storage::disk::{Disk, OpenMode, read_file};
use crate::storage::log::succession::CopyError;
use crate::storage::log::{Budgets, Log, LogConfig, LogError, LogView, ReadPlan};
use crate::storage::log_dir::{DirName, Fate};
use crate::storage::sim_disk::{FaultOn, SimDisk};
use crate::types::{
    DirectoryId, LeaderEpoch, Offset, PartitionEpoch, TimestampMs, TopicIdPartition, TopicPartition, Uuid,
    directory_id,
};
use crate::wire::batch::{Batches, PartialTail};
use crate::wire::records::Records;

mod missing;

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
    /// How often the log had been rebuilt when the copy was begun.
    rebuilds: u32,
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
        let dirs = Arc::new(LogDirs::scan(ME, shared, directories, Vec::new(), budgets));
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
        let checkpoints = Checkpoints::new(rig.partitions.clone(), dirs.clone());
        if dirs.take_replaced() {
            checkpoints.write_all();
        }
        let host = Host {
            partition: partition.clone(),
            log,
            config: replica_config(&config()),
            role: lead(epoch, &[1]),
        };
        rig.tell(Message::Host(Box::new(host)));
        let mut broker = Broker {
            disk,
            rig,
            dirs,
            checkpoints,
            partition,
            copy: None,
            rebuilds: 0,
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
        for (directory, found) in self.dirs.claim_copies(|_| true) {
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
                    copy.take_doomed().into_iter().for_each(|doomed| doomed.remove().expect("removed"));
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
        (self.copy, self.rebuilds) = (Some(copy), self.partition.rebuilds());
    }

    /// The last step of a move; `None` when there is none, or it is none of this partition.
    fn promote(&mut self) -> Option<bool> {
        let target = self.partition.future()?.directory.clone();
        let source = self.partition.directory();
        self.named = target.id();
        match self.send_promote()? {
            Promoted::Done(before) => {
                self.before = Some((source, before));
                Some(true)
            }
            Promoted::Behind(copy, _) => {
                self.copy = Some(copy);
                Some(false)
            }
            Promoted::Failed(copy, error) => {
                if copy.failure().is_some() {
                    target.fail("move", &error);
                }
                assert!(!source.is_online() || !target.is_online(), "{error}");
                self.rig.pump();
                self.partition.set_future(None);
                // It may have failed together with the target.
                self.named = self.partition.directory().id();
                Some(false)
            }
            Promoted::Gone(copy) => {
                self.copy = Some(copy);
                None
            }
        }
    }

    fn send_promote(&mut self) -> Option<Promoted> {
        let (future, target) = (self.copy.take()?, self.partition.future()?.directory.clone());
        let source = self.partition.directory();
        let name = &self.partition.name;
        let names = Names {
            log: self.dirs.path_in(&target, name),
            aside: self.dirs.path_aside(&source, name, &future),
        };
        let (reply, mut promoted) = oneshot::channel();
        let (partition, directory, rebuilds) = (self.partition.clone(), target, self.rebuilds);
        let missing_max = MISSING_MAX;
        let promote = Promote { partition, future, directory, names, rebuilds, missing_max, reply };
        self.rig.tell(Message::Promote(P, Box::new(promote)));
        Some(promoted.try_recv().expect("answered"))
    }

    /// Damages the first batch, and has its shard know.
    fn damage(&mut self) {
        // The newest batches in memory are forgotten.
        self.rig.pass(100_000);
        let path = self.partition.view().dir().join("00000000000000000000.log");
        let byte = read_file(&self.disk, &path).expect("read")[70] ^ 1;
        let file = self.disk.open(&path, OpenMode::Write).expect("open");
        file.write_all_at(&[io::IoSlice::new(&[byte])], 70).expect("written");
        let view = self.partition.view();
        let Ok(ReadPlan::Cold(read)) = view.read(Offset::ZERO, 1, view.log_end, true) else {
            panic!("in memory")
        };
        self.partition.note_unreadable(&read.run().expect_err("damaged"));
        self.rig.pump();
    }

    fn finish(&mut self) {
        let Some((source, before)) = self.before.take() else { return };
        self.dirs.forget(&source, &self.partition.name);
        self.checkpoints.write_all();
        source.flush.await_running(&P);
        self.dirs.remove(&[self.dirs.as_retired(&source, &before)]);
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
    values_of(&partition.view())
}

fn values_of(view: &LogView) -> Vec<(Offset, String)> {
    let (mut all, mut from) = (Vec::new(), view.log_start);
    while from < view.log_end {
        let bytes = match view.read(from, 1 << 20, view.log_end, true).expect("in range") {
            ReadPlan::Ready(parts) => parts.concat().into(),
            ReadPlan::Cold(read) => read.run().expect("readable"),
        };
        assert!(!bytes.is_empty(), "nothing at {from} of {}", view.log_end);
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

/// There was a log in the directory that the copy is made in, of which the checkpoints there told. They do not vouch for the copy.
#[test]
fn a_copy_that_was_not_synced_is_looked_through_after_a_crash() {
    for seed in 0..100 {
        let mut broker = Broker::new();
        let small = Step::Produce { records: 1, size: 60 };
        for step in [&small, &small, &small, &small, &small, &small, &Step::Flush, &Step::Checkpoint] {
            broker.step(step);
        }
        for step in [&Step::Begin, &Step::Promote, &Step::Crash(seed), &small, &small, &Step::Flush] {
            broker.step(step);
        }
        // Back to where it came from, and not to the end.
        for step in [&Step::Begin, &Step::Copy(300), &Step::Copy(300), &Step::Copy(300), &Step::Crash(seed)] {
            broker.step(step);
        }
        for step in [&Step::Copy(300), &Step::Copy(2000), &Step::Promote, &Step::Finish, &Step::Kill] {
            broker.step(step);
        }
        assert_eq!((broker.promised.len(), broker.partition.directory().id()), (8, DIRECTORY_ID), "{seed}");
    }
}

/// What fails when a copy takes over, and whether the log that goes on then is the one that a later start finds.
#[test]
fn a_target_that_fails_at_the_last_moment_takes_nothing_along() {
    for (on, name) in [
        (FaultOn::Sync, ".log"),
        (FaultOn::Rename, "-future"),
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

#[test]
fn a_source_that_fails_at_the_last_moment_leaves_one_log_that_has_everything() {
    for (on, name) in [(FaultOn::Rename, "t-0"), (FaultOn::Sync, "data")] {
        let mut broker = Broker::new();
        for step in [Step::Produce { records: 3, size: 50 }, Step::Flush, Step::Begin, Step::Copy(1)] {
            broker.step(&step);
        }
        broker.disk.fail(on, name, 0, io::ErrorKind::Other, Some(1));
        assert_eq!(broker.promote(), Some(false), "{on:?} of {name}");
        // Nobody knows where the log is, so nothing is appended to either.
        assert_eq!(broker.partition.leadership().role, Role::Offline);
        broker.disk.heal();
        broker.step(&Step::Kill);
        assert_eq!(broker.promised.len(), 3, "{on:?} of {name}");
        broker.step(&Step::Produce { records: 1, size: 50 });
        broker.step(&Step::Flush);
        broker.step(&Step::Crash(1));
        assert_eq!(broker.promised.len(), 4, "{on:?} of {name}");
    }
}

#[test]
fn the_last_step_may_be_cut_off_anywhere() {
    for on in [FaultOn::Write, FaultOn::Sync, FaultOn::Rename] {
        for after in 0..10 {
            for seed in 0..8 {
                let mut broker = Broker::new();
                let produce = Step::Produce { records: 3, size: 150 };
                for step in [
                    &produce,
                    &produce,
                    &Step::Flush,
                    &Step::Checkpoint,
                    &Step::Begin,
                    &Step::Copy(1),
                    &produce,
                ] {
                    broker.step(step);
                }
                // From some moment on nothing works any more, and then the power is gone.
                broker.disk.fail(on, "", after, io::ErrorKind::Other, None);
                if broker.promote() == Some(true) {
                    broker.note_promises();
                } else if seed % 2 == 1 {
                    // The cluster has not heard that it stayed.
                    broker.named = OTHER_ID;
                }
                broker.step(&Step::Crash(seed));
                broker.step(&produce);
                broker.step(&Step::Flush);
                broker.step(&Step::Crash(seed));
                assert!(broker.promised.len() >= 9, "{on:?} after {after}, {seed}");
            }
        }
    }
}

#[test]
fn a_name_that_is_taken_does_not_cost_the_directory() {
    let mut broker = Broker::new();
    broker.step(&Step::Produce { records: 3, size: 50 });
    broker.step(&Step::Flush);
    broker.step(&Step::Begin);
    broker.disk.create_dir_all(Path::new("/other/t-0/of/somebody")).expect("made");
    let (future, target) = (broker.copy.take().expect("a copy"), broker.dirs.directories()[1].clone());
    assert!(!broker.dirs.is_free(&target, &broker.partition.name).expect("looked"));
    let name = &broker.partition.name;
    let names = Names {
        log: broker.dirs.path_in(&target, name),
        aside: broker.dirs.path_aside(&broker.partition.directory(), name, &future),
    };
    let (reply, mut promoted) = oneshot::channel();
    let (partition, directory, missing_max) = (broker.partition.clone(), target.clone(), MISSING_MAX);
    let promote = Promote { partition, future, directory, names, rebuilds: 0, missing_max, reply };
    broker.rig.tell(Message::Promote(P, Box::new(promote)));
    let Ok(Promoted::Failed(copy, _)) = promoted.try_recv() else { panic!("it was promoted") };
    assert!(copy.failure().is_none() && target.is_online());
    broker.copy = Some(copy);
    // The log goes on, and the copy takes its place when the name is free.
    broker.step(&Step::Produce { records: 1, size: 50 });
    broker.step(&Step::Flush);
    broker.disk.remove_dir_all(Path::new("/other/t-0")).expect("removed");
    assert_eq!(broker.promote(), Some(true));
    broker.step(&Step::Finish);
    broker.step(&Step::Crash(5));
    assert_eq!((broker.promised.len(), broker.partition.directory().id()), (4, OTHER_ID));
}

#[test]
fn a_copy_of_a_partition_that_was_let_go_of_does_not_take_the_place_of_the_next_one() {
    let mut broker = Broker::new();
    broker.step(&Step::Produce { records: 3, size: 50 });
    broker.step(&Step::Flush);
    broker.step(&Step::Begin);
    let directory = broker.partition.directory();
    let log = broker.copy.as_ref().expect("a copy");
    // As the reconciler makes it when the partition comes back.
    let another = Arc::new(Partition::new(P, TopicPartition::new("t", 0), directory, log));
    let here = std::mem::replace(&mut broker.partition, another);
    broker.partition.set_future(
        here.future().map(|future| {
            FutureReplica::new(future.directory.clone(), broker.copy.as_ref().expect("a copy"))
        }),
    );
    assert_eq!(broker.promote(), None);
    broker.partition = here;
    assert_eq!(broker.partition.directory().id(), DIRECTORY_ID);
    broker.check();
}

#[test]
fn a_replica_that_is_rebuilt_does_not_move_before_it_is_taken_back() {
    let mut broker = Broker::new();
    for step in [Step::Produce { records: 3, size: 50 }, Step::Flush, Step::Begin, Step::Copy(1000)] {
        broker.step(&step);
    }
    broker.damage();
    let RoleSpec::Follow(term) = follow(2, 2) else { unreachable!() };
    broker.rig.tell(Message::Assume(P, RoleSpec::Rebuild(term)));
    assert_eq!(broker.partition.view().log_end, Offset::ZERO);
    assert_eq!(broker.promote(), None);
    broker.rig.tell(Message::Assume(P, RoleSpec::Rebuild(term)));
    assert_eq!(broker.promote(), None);
    assert_eq!(broker.partition.directory().id(), DIRECTORY_ID);
    broker.rig.tell(Message::Assume(P, follow(2, 3)));
    broker.rebuilds = broker.partition.rebuilds();
    assert_eq!(broker.promote(), Some(true));
    assert_eq!(broker.partition.directory().id(), OTHER_ID);
    assert_eq!(values(&broker.partition), []);
}

#[test]
fn damage_that_came_after_it_was_copied_goes_with_the_log() {
    let mut broker = Broker::new();
    for _ in 0..4 {
        broker.step(&Step::Produce { records: 3, size: 50 });
    }
    for step in [Step::Flush, Step::Begin, Step::Copy(10_000), Step::Copy(10_000)] {
        broker.step(&step);
    }
    broker.damage();
    assert_eq!(broker.rig.inlets.repairs.try_recv(), Ok(Repair::Damaged(P)));
    assert_eq!(broker.promote(), Some(true));
    assert_eq!(broker.rig.inlets.repairs.try_recv(), Ok(Repair::Moved(P)));
    broker.step(&Step::Finish);
    broker.check();
    assert_eq!(broker.promised.len(), 12);
}

#[test]
fn a_copy_that_lacks_much_comes_back_without_having_kept_the_shard() {
    let mut broker = Broker::new();
    broker.step(&Step::Begin);
    while broker.partition.view().size_in_bytes() <= MISSING_MAX as u64 {
        broker.step(&Step::Produce { records: 3, size: 150 });
    }
    let written = broker.disk.counts().written_bytes;
    assert_eq!(broker.promote(), Some(false));
    assert_eq!(broker.disk.counts().written_bytes, written);
    assert_eq!(broker.copy.as_ref().expect("it came back").log_end(), Offset::ZERO);
    broker.step(&Step::Copy(100_000));
    assert_eq!(broker.promote(), Some(true));
    broker.note_promises();
    broker.check();
    assert_eq!(broker.promised.len(), broker.next);
}

#[test]
fn a_copy_takes_no_room_that_its_directory_keeps_free() {
    let mut broker = Broker::new();
    for step in [Step::Produce { records: 3, size: 50 }, Step::Flush, Step::Begin] {
        broker.step(&step);
    }
    broker.dirs.directories()[1].keep_free(50_000);
    leave_free(&broker.disk, 50_100);
    let Some(Promoted::Failed(copy, error)) = broker.send_promote() else { panic!("it was promoted") };
    assert!(matches!(error, CopyError::Copy(LogError::DiskFull)), "{error}");
    assert_eq!((copy.log_end(), copy.failure()), (Offset::ZERO, None));
    assert!(broker.dirs.directories().iter().all(|directory| directory.is_online()));
}

#[test]
fn a_copy_of_what_was_rebuilt_since_does_not_take_its_place() {
    let mut broker = Broker::new();
    for step in [Step::Produce { records: 3, size: 50 }, Step::Flush, Step::Begin, Step::Copy(1000)] {
        broker.step(&step);
    }
    broker.damage();
    let RoleSpec::Follow(term) = follow(2, 2) else { unreachable!() };
    broker.rig.tell(Message::Assume(P, RoleSpec::Rebuild(term)));
    broker.rig.tell(Message::Assume(P, follow(2, 3)));
    assert_eq!(broker.promote(), None, "it is whole again, and the copy is of what it was before");
    broker.rebuilds = broker.partition.rebuilds();
    assert_eq!(broker.promote(), Some(true));
}

#[test]
fn a_sync_of_the_log_before_is_none_of_the_next_one_there() {
    let mut broker = Broker::new();
    for step in [Step::Produce { records: 3, size: 50 }, Step::Begin, Step::Copy(1000)] {
        broker.step(&step);
    }
    // A flusher has taken the work, and is slow.
    let source = broker.partition.directory();
    let round = source.flush.take(1).expect("work");
    broker.step(&Step::Produce { records: 3, size: 50 });
    assert_eq!(broker.promote(), Some(true));
    assert!(source.flush.take(1).is_none(), "what waited went with the log");
    // The partition goes, and comes back to where it was: it begins anew there.
    let (done, mut released) = oneshot::channel();
    broker.rig.tell(Message::Release(P, done));
    drop(released.try_recv().expect("let go of"));
    let budgets = Budgets::new(1 << 20, 1 << 20, 100);
    let log = source.dir().create_log(&broker.partition.name, P.topic_id, Arc::new(config()), NOW, budgets);
    let log = log.expect("made");
    let partition = Arc::new(Partition::new(P, broker.partition.name.clone(), source.clone(), &log));
    let (config, role) = (replica_config(&config()), lead(9, &[1]));
    broker.rig.tell(Message::Host(Box::new(Host { partition: partition.clone(), log, config, role })));
    let _ = broker.rig.produce(Some(Acks::All), vec![(P, records(&["a", "b", "c"]))]);
    assert_eq!(partition.view().flushed, Offset::ZERO);
    round.run(&source);
    broker.rig.pump();
    assert_eq!(partition.view().flushed, Offset::ZERO, "it was another log that was synced");
    source.flush.await_running(&P);
    source.flush.take(1).expect("its own").run(&source);
    broker.rig.pump();
    assert_eq!(partition.view().flushed, Offset(3));
}
