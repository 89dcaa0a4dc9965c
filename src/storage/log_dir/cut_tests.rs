//! Logs that are cut while checkpoints speak of what goes: after a crash the checkpoints must not vouch for what has come in
//! its place and was not synced. A log with a hole would be taken for whole, count as flushed, and be led.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::storage::checkpoint::write_offsets;
use crate::storage::log::{LogView, Origin, ReadPlan};
use crate::storage::sim_disk::SimDisk;
use crate::types::{LeaderEpoch, NodeId, kafka_uuid};
use crate::wire::batch::{Batches, PartialTail};
use crate::wire::batch_builder::BatchBuilder;

const NOW: TimestampMs = TimestampMs(1000);
const PATH: &str = "/data";

#[derive(Clone, Debug)]
enum Op {
    Append {
        records: usize,
        size: usize,
    },
    Flush,
    Checkpoint,
    /// The high watermark moves to so many parts in eight of what is not committed.
    Commit(usize),
    AdvanceStart(usize),
    /// The log is cut to so many parts in eight of it, committed or not; then another epoch begins.
    Cut(usize),
    /// Everything goes, and the log begins elsewhere.
    StartOver(i64),
    Retire,
    Crash(u64),
    Kill,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => (1..4usize, 0..150usize).prop_map(|(records, size)| Op::Append { records, size }),
        3 => Just(Op::Flush),
        3 => Just(Op::Checkpoint),
        2 => (0..9usize).prop_map(Op::Commit),
        1 => (0..9usize).prop_map(Op::AdvanceStart),
        2 => (0..8usize).prop_map(Op::Cut),
        1 => (-20..20i64).prop_map(Op::StartOver),
        1 => Just(Op::Retire),
        3 => any::<u64>().prop_map(Op::Crash),
        1 => Just(Op::Kill),
    ]
}

type Batch = (Offset, Bytes);

struct World {
    disk: SimDisk,
    dir: LogDir,
    log: Log,
    epoch: i32,
    topic: u128,
    written: Vec<Batch>,
    /// What was there before a cut that no flush has made final.
    ghosts: Vec<Vec<Batch>>,
    start: Offset,
    committed: Offset,
}

fn name() -> TopicPartition {
    TopicPartition::new("t", 0)
}

fn open(disk: &SimDisk) -> LogDir {
    let mut claim = Claim::take(Arc::new(disk.clone()), Path::new(PATH)).unwrap();
    if claim.properties().is_none() {
        let properties = MetaProperties {
            cluster_id: "test".into(),
            node_id: NodeId(1),
            directory_id: kafka_uuid::parse("8pdR4J8RSuqGkEh4nHuDtQ"),
        };
        claim.format(properties).unwrap();
    }
    claim.open().unwrap()
}

fn config() -> Arc<LogConfig> {
    Arc::new(LogConfig { segment_bytes: 600, index_interval_bytes: 100, ..LogConfig::default() })
}

fn budgets() -> Budgets {
    Budgets::new(2_000, 2_000, 20)
}

fn create(dir: &LogDir, topic: u128) -> Log {
    dir.create_log(&name(), Uuid::from_u128(topic), config(), NOW, budgets()).unwrap()
}

/// The batches of a log. Panics when they are not whole, or not all there.
fn batches(view: &LogView) -> Vec<Batch> {
    let (mut all, mut from) = (Vec::new(), view.log_start);
    while from < view.log_end {
        let bytes: Bytes = match view.read(from, 500, view.log_end, true).unwrap() {
            ReadPlan::Ready(parts) => parts.concat().into(),
            ReadPlan::Cold(read) => read.run().unwrap(),
        };
        for batch in Batches::new(&bytes, PartialTail::Refuse) {
            let batch = batch.unwrap();
            batch.check_crc().unwrap();
            let begins = batch.header.base_offset;
            assert!(begins == from || from == view.log_start && begins <= from, "{begins} at {from}");
            from = batch.header.next_offset();
            all.push((begins, bytes.slice(batch.range.clone())));
        }
        assert!(!bytes.is_empty(), "nothing at {from} of {}", view.log_end);
    }
    all
}

impl World {
    fn new() -> World {
        let disk = SimDisk::new();
        let dir = open(&disk);
        let log = create(&dir, 1);
        World {
            disk,
            dir,
            log,
            epoch: 0,
            topic: 1,
            written: Vec::new(),
            ghosts: Vec::new(),
            start: Offset::ZERO,
            committed: Offset::ZERO,
        }
    }

    fn part(from: Offset, to: Offset, eighths: usize) -> Offset {
        from.plus(to.since(from) * eighths as i64 / 8)
    }

    fn checkpoint(&self) {
        for which in OffsetCheckpoint::ALL {
            let offset = match which {
                OffsetCheckpoint::RecoveryPoint => self.log.flushed(),
                OffsetCheckpoint::Replication => self.log.high_watermark(),
                OffsetCheckpoint::LogStart => self.log.log_start(),
                OffsetCheckpoint::Cleaner => continue,
            };
            self.dir.offsets().write(which, |_| vec![(name(), offset)]).unwrap();
        }
    }

    fn step(&mut self, op: &Op) {
        let (start, end) = (self.log.log_start(), self.log.log_end());
        match *op {
            Op::Append { records, size } => {
                let mut builder = BatchBuilder::new();
                for _ in 0..records {
                    builder.push(NOW, None, Some(&vec![b'v'; size]), &[]);
                }
                let (records, epoch) = (builder.build().unwrap(), LeaderEpoch(self.epoch));
                self.log.append_as_leader(&records, epoch, Origin::Client, NOW).unwrap();
            }
            Op::Flush => {
                self.log.flush().unwrap();
                self.ghosts.clear();
            }
            Op::Checkpoint => self.checkpoint(),
            Op::Commit(eighths) => {
                self.log.set_high_watermark(World::part(self.log.high_watermark(), end, eighths));
            }
            Op::AdvanceStart(eighths) => {
                let to = World::part(start, self.log.high_watermark(), eighths);
                self.log.advance_log_start(to).unwrap();
                if let Some(doomed) = self.log.delete_before_start(1).unwrap() {
                    doomed.remove().unwrap();
                }
            }
            Op::Cut(eighths) => {
                // Epochs begin with batches, so that is where logs are cut.
                let cuts: Vec<Offset> = self.written.iter().map(|(base, _)| *base).chain([end]).collect();
                self.ghosts.push(self.written.clone());
                self.log.truncate_to(cuts[(cuts.len() - 1) * eighths / 8], NOW).unwrap();
                self.lead();
            }
            Op::StartOver(by) => {
                self.ghosts.push(std::mem::take(&mut self.written));
                self.log.truncate_fully_and_start_at(Offset((end.0 + by).max(0)), NOW).unwrap();
                self.lead();
            }
            Op::Retire => self.retire(),
            Op::Crash(seed) => self.restart(|disk| disk.crash(seed)),
            Op::Kill => self.restart(SimDisk::kill),
        }
        self.note();
    }

    /// What is deleted at the start stays noted: after a crash it may be there again.
    fn note(&mut self) {
        let now = batches(&self.log.view());
        let from = now.first().map_or(self.log.log_end(), |(base, _)| *base);
        self.written.retain(|(base, _)| *base < from);
        self.written.extend(now);
        (self.start, self.committed) = (self.log.log_start(), self.log.high_watermark());
    }

    fn lead(&mut self) {
        self.epoch += 1;
        self.log.assign_epoch_start(LeaderEpoch(self.epoch));
    }

    /// Another topic gets the name.
    fn retire(&mut self) {
        self.topic += 1;
        let path = self.dir.retire(&name(), Fate::Delete, Uuid::from_u128(self.topic)).unwrap();
        self.dir.sync().unwrap();
        self.dir.remove(&path).unwrap();
        self.log = create(&self.dir, self.topic);
        self.written.clear();
        self.ghosts.clear();
        self.lead();
    }

    fn restart(&mut self, end: impl FnOnce(&SimDisk)) {
        let flushed = self.log.flushed();
        end(&self.disk);
        self.dir = open(&self.disk);
        let found = self.dir.list().unwrap().partitions;
        let found = found.iter().find(|found| found.fate == Fate::Live).expect("it has its name");
        self.log = self.dir.open_log(found, config(), NOW, budgets()).unwrap();
        let log = &self.log;
        assert!(!log.recovered().lost_flushed);
        if self.ghosts.is_empty() {
            assert!(log.log_end() >= flushed && log.log_start() <= self.start);
        }
        assert!(log.high_watermark() <= self.committed.max(log.log_start()));
        let found = batches(&log.view());
        let is_first_part = |written: &&Vec<Batch>| {
            let live = written.iter().filter(|(base, _)| found.first().is_some_and(|first| *base >= first.0));
            live.take(found.len()).eq(&found)
        };
        let mut histories = std::iter::once(&self.written).chain(&self.ghosts);
        self.written = histories.find(is_first_part).expect("what was written").clone();
        self.ghosts.clear();
        if self.dir.take_excess() {
            self.checkpoint();
        }
        self.lead();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn checkpoints_vouch_for_nothing_that_came_after_a_cut(ops in prop::collection::vec(op(), 1..60)) {
        let mut world = World::new();
        for op in &ops {
            world.step(op);
        }
        world.step(&Op::Crash(1));
    }
}

/// The shortest way to a hole: what was flushed and cut lies below the recovery point, and what came in its place was on its way to
/// the disk, the later segments first.
#[test]
fn a_cut_takes_the_recovery_point_back() {
    let mut world = World::new();
    let append = Op::Append { records: 1, size: 250 };
    for op in [&append, &append, &append, &append, &append, &append, &Op::Flush, &Op::Checkpoint] {
        world.step(op);
    }
    assert_eq!(world.dir.offsets().said(OffsetCheckpoint::RecoveryPoint, &name()), Some(Offset(6)));
    world.step(&Op::Cut(2));
    let cut = world.log.log_end();
    assert_eq!(world.dir.offsets().said(OffsetCheckpoint::RecoveryPoint, &name()), Some(cut));
    for seed in 0..200 {
        for op in [&append, &append, &append, &append, &append, &Op::Crash(seed)] {
            world.step(op);
        }
        world.step(&Op::Flush);
        world.step(&Op::Checkpoint);
        world.step(&Op::Cut(0));
    }
}

/// What a log has lost although it was synced leaves the checkpoints saying too much as well.
#[test]
fn a_log_that_lost_what_was_flushed_has_the_checkpoints_written_anew() {
    let mut world = World::new();
    for op in [&Op::Append { records: 1, size: 10 }, &Op::Flush, &Op::Checkpoint] {
        world.step(op);
    }
    let beyond = [(&name(), Offset(9))];
    write_offsets(&world.disk, Path::new(PATH), OffsetCheckpoint::RecoveryPoint, beyond.into_iter()).unwrap();
    world.disk.kill();
    world.dir = open(&world.disk);
    let found = world.dir.list().unwrap().partitions.pop().unwrap();
    world.log = world.dir.open_log(&found, config(), NOW, budgets()).unwrap();
    assert!(world.log.recovered().lost_flushed && world.dir.take_excess() && !world.dir.take_excess());
}
