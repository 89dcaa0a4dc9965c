//! A log and its copy, through appends, truncations, deletions, compaction-like gaps and crashes: below its end the copy has
//! what the log has, and when it takes over nobody can tell the difference.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::super::producer_state::Coordinated;
use super::super::tests::batch;
use super::super::{Budgets, LogConfig, LogViews, OpenArgs, Origin};
use super::*;
use crate::storage::disk::{Disk, OpenMode};
use crate::storage::sim_disk::SimDisk;
use crate::types::{ProducerEpoch, ProducerId};
use crate::wire::batch::{Batches, PartialTail};
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::compression::Compression;

const LOG: &str = "/a/t-0";
const COPY: &str = "/b/t-0.00000000000000000000000000000007-future";
const TAKEN: &str = "/b/t-0";
const ASIDE: &str = "/a/t-0.00000000000000000000000000000008-delete";
const NOW: TimestampMs = TimestampMs(1_000_000);

#[derive(Clone, Debug)]
enum Op {
    Append {
        records: usize,
        size: usize,
    },
    Produce {
        producer: i64,
    },
    /// As a follower is cut, to so many parts in eight of what is not committed; then another epoch begins.
    Cut(i64),
    Commit(i64),
    AdvanceStart(i64),
    /// Everything goes, and the log begins elsewhere.
    StartOver(i64),
    Flush,
    Copy {
        max_bytes: usize,
    },
    /// Of a view that is not the latest any more.
    CopyOld {
        max_bytes: usize,
    },
    Crash(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (1..4usize, 0..200usize).prop_map(|(records, size)| Op::Append { records, size }),
        4 => (0..3i64).prop_map(|producer| Op::Produce { producer }),
        2 => (0..=8i64).prop_map(Op::Cut),
        3 => (0..9i64).prop_map(Op::Commit),
        2 => (0..9i64).prop_map(Op::AdvanceStart),
        1 => (-20..20i64).prop_map(Op::StartOver),
        2 => Just(Op::Flush),
        8 => (1..1500usize).prop_map(|max_bytes| Op::Copy { max_bytes }),
        2 => (1..1500usize).prop_map(|max_bytes| Op::CopyOld { max_bytes }),
        1 => any::<u64>().prop_map(Op::Crash),
    ]
}

struct World {
    disk: SimDisk,
    log: Log,
    copy: Log,
    epoch: i32,
    sequences: [i32; 3],
    old: Arc<LogView>,
}

fn config() -> Arc<LogConfig> {
    Arc::new(LogConfig { segment_bytes: 700, index_interval_bytes: 100, ..LogConfig::default() })
}

fn args(log_start: Offset) -> OpenArgs {
    let budgets = Budgets::new(2_000, 2_000, 20);
    let (recovery_point, unchecked) = (Offset::ZERO, Arc::default());
    OpenArgs { recovery_point, log_start, clean_shutdown: false, now: NOW, budgets, unchecked }
}

fn open(disk: &SimDisk, dir: &str, log_start: Offset) -> Log {
    open_from(disk, dir, log_start, Offset::ZERO)
}

/// After an end at which so much was flushed.
fn open_from(disk: &SimDisk, dir: &str, log_start: Offset, recovery_point: Offset) -> Log {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (dir, args) = (Path::new(dir), OpenArgs { recovery_point, ..args(log_start) });
    match Log::open(disk.clone(), dir, config(), &args) {
        Ok(log) => log,
        Err(_) => Log::create(disk, dir, config(), &args).unwrap(),
    }
}

/// Of each batch where it begins, and its bytes.
fn contents(view: &LogView) -> Vec<(Offset, Bytes)> {
    let (mut all, mut from) = (Vec::new(), view.log_start);
    while from < view.log_end {
        let bytes = read_from(view, from, 1 << 20).unwrap();
        if bytes.is_empty() {
            // It was cut within its last batch.
            break;
        }
        for found in Batches::new(&bytes, PartialTail::Refuse) {
            let found = found.unwrap();
            from = found.header.next_offset();
            all.push((found.header.base_offset, bytes.slice(found.range.clone())));
        }
    }
    all
}

impl World {
    fn new() -> World {
        let disk = SimDisk::new();
        for dir in ["/a", "/b"] {
            disk.create_dir_all(Path::new(dir)).unwrap();
        }
        disk.sync_dir(Path::new("/")).unwrap();
        let (log, copy) = (open(&disk, LOG, Offset::ZERO), open(&disk, COPY, Offset::ZERO));
        let old = log.view();
        let mut world = World { disk, log, copy, epoch: 0, sequences: [0; 3], old };
        world.lead();
        world
    }

    fn lead(&mut self) {
        self.epoch += 1;
        self.log.assign_epoch_start(LeaderEpoch(self.epoch));
    }

    fn part(from: Offset, to: Offset, eighths: i64) -> Offset {
        from.plus((to.since(from) * eighths / 8).clamp(0, to.since(from)))
    }

    fn append(&mut self, records: &Bytes) {
        let (epoch, coordinated) = (LeaderEpoch(self.epoch), Coordinated::default());
        self.log.append_coordinated(records, epoch, Origin::Client, coordinated, NOW).unwrap();
    }

    fn step(&mut self, op: &Op) {
        let (start, end) = (self.log.log_start(), self.log.log_end());
        let committed = self.log.high_watermark();
        match *op {
            Op::Append { records, size } => {
                let timestamps: Vec<i64> = (0..records as i64).map(|nth| 1000 + nth).collect();
                self.append(&batch(&timestamps, &vec![b'v'; size], Compression::None));
            }
            Op::Produce { producer } => {
                let sequence = self.sequences[producer as usize];
                let mut builder =
                    BatchBuilder::new().producer(ProducerId(producer), ProducerEpoch(0), sequence);
                builder.push(TimestampMs(1000), None, Some(b"p"), &[]);
                let records = builder.build().unwrap();
                let (epoch, coordinated) = (LeaderEpoch(self.epoch), Coordinated::default());
                let appended = self.log.append_coordinated(&records, epoch, Origin::Client, coordinated, NOW);
                if appended.is_ok() {
                    self.sequences[producer as usize] += 1;
                }
            }
            Op::Cut(eighths) => {
                // Epochs begin with batches, so that is where logs are cut.
                let batches = contents(&self.log.view()).into_iter().map(|(base, _)| base);
                let cuts: Vec<Offset> = batches.filter(|base| *base >= committed).chain([end]).collect();
                self.log.truncate_to(cuts[(cuts.len() - 1) * eighths as usize / 8], NOW).unwrap();
                self.lead();
            }
            Op::Commit(eighths) => self.log.set_high_watermark(World::part(committed, end, eighths)),
            Op::AdvanceStart(eighths) => {
                self.log.advance_log_start(World::part(start, committed, eighths)).unwrap();
                if let Some(doomed) = self.log.delete_before_start(1).unwrap() {
                    doomed.remove().unwrap();
                }
            }
            Op::StartOver(by) => {
                let at = Offset((end.0 + by).max(0));
                self.log.truncate_fully_and_start_at(at, NOW).unwrap();
                self.lead();
            }
            Op::Flush => self.log.flush().unwrap(),
            Op::Copy { max_bytes } => self.copy(&self.log.view(), max_bytes),
            Op::CopyOld { max_bytes } => {
                let old = std::mem::replace(&mut self.old, self.log.view());
                // Its files may be gone or cut.
                let _ = self.copy.advance_to(&old, max_bytes, NOW);
            }
            Op::Crash(seed) => self.crash(seed),
        }
    }

    fn copy(&mut self, view: &LogView, max_bytes: usize) {
        self.copy.advance_to(view, max_bytes, NOW).unwrap();
        if let Some(doomed) = self.copy.take_doomed() {
            doomed.remove().unwrap();
        }
        let (whole, copied) = (contents(view), contents(&self.copy.view()));
        assert!(copied.len() <= whole.len());
        assert!(copied.iter().zip(&whole).all(|(copied, whole)| copied == whole), "{copied:?}\n{whole:?}");
        assert!(self.copy.log_start() == view.log_start);
        assert!(self.copy.high_watermark() <= view.high_watermark);
    }

    fn crash(&mut self, seed: u64) {
        let [log, copy] = [&self.log, &self.copy].map(|log| (log.log_start(), log.flushed()));
        let committed = self.log.high_watermark();
        self.disk.crash(seed);
        self.log = open_from(&self.disk, LOG, log.0, log.1);
        self.log.set_high_watermark(committed);
        self.copy = open_from(&self.disk, COPY, copy.0, copy.1);
        self.old = self.log.view();
        // What the producers know to have written may be lost.
        self.sequences = [1_000_000; 3];
        self.lead();
    }

    fn succeed(mut self) {
        for _ in 0..10_000 {
            if self.copy.catch_up_with(&self.log, NOW).unwrap() {
                break;
            }
        }
        self.copy.take_doomed().into_iter().for_each(|doomed| doomed.remove().unwrap());
        let files = self.disk.list(Path::new(COPY)).unwrap();
        assert!(files.iter().all(|file| !file.name.ends_with(".deleted")), "{files:?}");
        let (views, before): (LogViews, _) = (self.log.views(), self.log.view());
        self.copy.succeed(&self.log, Path::new(TAKEN), Path::new(ASIDE)).unwrap();
        let World { disk, log, copy: mut heir, epoch, .. } = self;
        let after = views.load_full();
        assert_eq!(contents(&after), contents(&before));
        let offsets = |view: &LogView| (view.log_start, view.high_watermark, view.last_stable, view.log_end);
        assert_eq!(offsets(&after), offsets(&before));
        assert_eq!(after.flushed, after.log_end);
        assert_eq!(after.epochs(), before.epochs());
        assert_eq!(heir.producers().active_producers(), log.producers().active_producers());
        // Who has an old view reads on while the log is set aside.
        let mut log = log;
        let stale = log.flush_work();
        assert!(disk.list(Path::new(LOG)).is_err() && log.dir() == Path::new(ASIDE));
        let kept = contents(&after);
        assert_eq!(contents(&before), kept);
        // What becomes durable of it is nothing to its heir.
        heir.append_as_leader(
            &batch(&[1000], b"new", Compression::None),
            LeaderEpoch(epoch),
            Origin::Client,
            NOW,
        )
        .unwrap();
        if let Some(work) = stale {
            assert!(!heir.mark_flushed(work.flushed()));
        }
        assert!(heir.flushed() < heir.log_end());
        // All of it is on disk, under the new name.
        let start = heir.log_start();
        disk.crash(7);
        drop(heir);
        // Also if nobody had the time to write down how much of it is.
        let reopened = open(&disk, TAKEN, start);
        assert!(contents(&reopened.view()).starts_with(&kept));
        assert!(disk.list(Path::new(COPY)).is_err(), "it has one name");
    }
}

proptest! {
    #[test]
    fn a_copy_follows_its_log_and_takes_its_place(ops in prop::collection::vec(op(), 1..80)) {
        let mut world = World::new();
        for op in &ops {
            world.step(op);
        }
        world.succeed();
    }
}

#[test]
fn a_log_that_ends_behind_its_last_batch_has_a_copy_too() {
    let mut world = World::new();
    world.step(&Op::Append { records: 2, size: 10 });
    world.log.truncate_to(Offset(1), NOW).unwrap();
    world.lead();
    world.succeed();
}

#[test]
fn a_log_whose_file_lacks_its_end_is_not_taken_for_one_that_was_cut_there() {
    let size = stored().log.view().size_in_bytes();
    for lacking in 1..=size {
        let mut world = stored();
        let path = Path::new(LOG).join("00000000000000000000.log");
        world.disk.open(&path, OpenMode::Write).unwrap().set_len(size - lacking).unwrap();
        let failed = world.copy.catch_up_with(&world.log, NOW);
        assert!(matches!(failed, Err(CopyError::Source(_))), "{lacking}: {failed:?}");
        assert_eq!(world.copy.failure(), None);
    }
}

/// A log of three batches, none of them in memory.
fn stored() -> World {
    let mut world = World::new();
    for _ in 0..3 {
        world.step(&Op::Append { records: 1, size: 50 });
    }
    world.log.flush().unwrap();
    world.log.expire_tail(TimestampMs(i64::MAX));
    world
}

#[test]
fn a_full_disk_leaves_the_copy_in_service() {
    let mut world = World::new();
    for _ in 0..20 {
        world.step(&Op::Append { records: 3, size: 100 });
    }
    world.log.flush().unwrap();
    world.disk.set_capacity(Some(world.disk.used() + 800));
    let mut failed = None;
    while failed.is_none() {
        failed = world.copy.advance_to(&world.log.view(), 300, NOW).err();
    }
    assert!(matches!(failed, Some(CopyError::Copy(LogError::DiskFull))), "{failed:?}");
    assert_eq!(world.copy.failure(), None);
    world.disk.set_capacity(None);
    world.succeed();
}

#[test]
fn a_view_from_before_a_cut_brings_nothing_of_what_came_after() {
    for is_cold in [false, true] {
        let mut world = World::new();
        let append = Op::Append { records: 1, size: 10 };
        for op in [&append, &append, &Op::Copy { max_bytes: 1 }] {
            world.step(op);
        }
        let old = world.log.view();
        world.step(&Op::Cut(0));
        for op in [&append, &append] {
            world.step(op);
        }
        if is_cold {
            world.log.expire_tail(TimestampMs(i64::MAX));
        }
        assert!(world.copy.advance_to(&old, 1 << 20, NOW).unwrap().is_void);
        world.step(&Op::Copy { max_bytes: 1 << 20 });
        world.succeed();
    }
}

#[test]
fn a_sync_that_runs_while_the_log_gets_another_name_is_none_that_fails() {
    let mut world = stored();
    world.lead();
    let work = world.log.flush_work().unwrap();
    let view = world.log.view();
    std::thread::scope(|scope| {
        let syncs = scope.spawn(|| {
            (0..2000).try_for_each(|_| work.run().and_then(|_| view.segments[0].modified()).map(drop))
        });
        for name in [ASIDE, LOG].iter().cycle() {
            if syncs.is_finished() {
                break;
            }
            world.log.rename(Path::new(name)).unwrap();
        }
        syncs.join().unwrap().unwrap();
    });
}

#[test]
fn what_a_copy_lacks_is_known_before_it_is_copied() {
    let mut world = World::new();
    for _ in 0..5 {
        world.step(&Op::Append { records: 1, size: 300 });
    }
    world.log.flush().unwrap();
    world.log.expire_tail(TimestampMs(i64::MAX));
    let view = world.log.view();
    let batches = contents(&view);
    for done in 0..=batches.len() {
        let missing: usize = batches[done..].iter().map(|(_, batch)| batch.len()).sum();
        assert_eq!(world.copy.missing_of(&view, NOW).unwrap(), missing, "{done} batches are there");
        world.copy.advance_to(&view, 1, NOW).unwrap();
    }
    // What is cut off the log is missing no more, and what comes in its place is.
    world.log.truncate_to(Offset(3), NOW).unwrap();
    world.lead();
    world.step(&Op::Append { records: 1, size: 10 });
    let missing = contents(&world.log.view())[3].1.len();
    assert_eq!(world.copy.missing_of(&world.log.view(), NOW).unwrap(), missing);
    assert_eq!(world.copy.log_end(), Offset(3));
}

#[test]
fn producers_count_once_however_many_copies_there_are() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let budgets = Budgets::new(2_000, 2_000, 20).with_producers(100);
    let args = |log_start| OpenArgs { budgets: budgets.clone(), ..args(log_start) };
    let create = |dir: &str| {
        disk.create_dir_all(Path::new(dir).parent().unwrap()).unwrap();
        Log::create(disk.clone(), Path::new(dir), config(), &args(Offset::ZERO)).unwrap()
    };
    let (mut log, mut copy) = (create(LOG), create(COPY).into_copy());
    for producer in 0..3 {
        let mut builder = BatchBuilder::new().producer(ProducerId(producer), ProducerEpoch(0), 0);
        builder.push(TimestampMs(1000), None, Some(b"p"), &[]);
        let records = builder.build().unwrap();
        let coordinated = Coordinated::default();
        log.append_coordinated(&records, LeaderEpoch(0), Origin::Client, coordinated, NOW).unwrap();
    }
    while !copy.catch_up_with(&log, NOW).unwrap() {}
    assert_eq!((budgets.producers.held(), copy.producers().active_producers().len()), (3, 3));
    copy.succeed(&log, Path::new(TAKEN), Path::new(ASIDE)).unwrap();
    drop(log);
    assert_eq!(budgets.producers.held(), 3);
}

#[test]
fn a_copy_that_begins_anew_has_not_caught_up() {
    let mut world = World::new();
    world.step(&Op::Append { records: 1, size: 10 });
    world.step(&Op::Copy { max_bytes: 1 });
    // The same epoch, and yet a batch that the end of the copy lies within.
    world.log.truncate_fully_and_start_at(Offset::ZERO, NOW).unwrap();
    world.step(&Op::Append { records: 3, size: 10 });
    assert!(!world.copy.catch_up_with(&world.log, NOW).unwrap());
    assert!(world.copy.catch_up_with(&world.log, NOW).unwrap());
    world.succeed();
}

#[test]
fn segments_of_the_copy_that_go_meanwhile_are_given_out() {
    let mut world = World::new();
    for _ in 0..8 {
        world.step(&Op::Append { records: 1, size: 400 });
    }
    for _ in 0..8 {
        world.step(&Op::Copy { max_bytes: 1 << 20 });
    }
    assert_eq!(world.copy.log_end(), world.log.log_end());
    world.step(&Op::Commit(8));
    let last = world.log.log_end().plus(-1);
    world.log.advance_log_start(last).unwrap();
    world.log.delete_before_start(100).unwrap().unwrap().remove().unwrap();
    assert!(world.copy.catch_up_with(&world.log, NOW).unwrap());
    let doomed = world.copy.take_doomed().unwrap();
    assert_eq!(doomed.count(), 7);
    doomed.remove().unwrap();
    let left = world.disk.list(Path::new(COPY)).unwrap();
    assert!(left.iter().all(|entry| !entry.name.ends_with(".deleted")));
    world.succeed();
}

#[test]
fn a_copy_keeps_nothing_in_memory_until_it_is_the_log() {
    let mut world = World::new();
    world.copy = open(&world.disk, "/b/u-0", Offset::ZERO).into_copy();
    for _ in 0..3 {
        world.step(&Op::Append { records: 1, size: 100 });
    }
    let is_in_memory = |log: &Log| {
        let view = log.view();
        matches!(view.read(view.log_end.plus(-1), 1 << 20, view.log_end, true), Ok(ReadPlan::Ready(_)))
    };
    world.step(&Op::Copy { max_bytes: 1 << 20 });
    assert!(is_in_memory(&world.log) && !is_in_memory(&world.copy));
    assert!(world.copy.catch_up_with(&world.log, NOW).unwrap());
    world.copy.succeed(&world.log, Path::new(TAKEN), Path::new(ASIDE)).unwrap();
    let (records, epoch) = (batch(&[1000], b"new", Compression::None), LeaderEpoch(world.epoch));
    world.copy.append_as_leader(&records, epoch, Origin::Client, NOW).unwrap();
    assert!(is_in_memory(&world.copy));
}

#[test]
fn what_is_in_the_way_leaves_the_log_and_the_copy_as_they_were() {
    let mut world = World::new();
    world.step(&Op::Append { records: 3, size: 100 });
    world.disk.create_dir_all(&Path::new(TAKEN).join("something")).unwrap();
    assert!(world.copy.catch_up_with(&world.log, NOW).unwrap());
    let failed = world.copy.succeed(&world.log, Path::new(TAKEN), Path::new(ASIDE));
    assert!(matches!(failed, Err(SuccessionError::Copy(_))), "{failed:?}");
    assert_eq!((world.log.dir().as_path(), world.copy.dir().as_path()), (Path::new(LOG), Path::new(COPY)));
    assert_eq!((world.log.failure(), world.copy.failure()), (None, None));
    world.disk.remove_dir_all(Path::new(TAKEN)).unwrap();
    world.succeed();
}

/// What is left of the copy then ends within a batch, before the offset at which the log begins.
#[test]
fn a_log_that_begins_within_a_batch_of_its_copy_leaves_no_gap_in_it() {
    let mut world = World::new();
    for _ in 0..2 {
        world.step(&Op::Append { records: 3, size: 100 });
        world.step(&Op::Copy { max_bytes: 1 });
    }
    world.log.truncate_fully_and_start_at(Offset(4), NOW).unwrap();
    world.lead();
    for _ in 0..2 {
        world.step(&Op::Append { records: 1, size: 300 });
    }
    world.succeed();
}
