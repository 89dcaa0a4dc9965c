//! A log and its copy, through appends, truncations, deletions, compaction-like gaps and crashes: below its end the copy has
//! what the log has, and when it takes over nobody can tell the difference.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::super::producer_state::Coordinated;
use super::super::tests::batch;
use super::super::{Budgets, LogConfig, LogViews, OpenArgs, Origin};
use super::*;
use crate::storage::disk::Disk;
use crate::storage::sim_disk::SimDisk;
use crate::types::{ProducerEpoch, ProducerId};
use crate::wire::batch::{Batches, PartialTail};
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::compression::Compression;

const LOG: &str = "/a/t-0";
const COPY: &str = "/b/t-0.00000000000000000000000000000007-future";
const TAKEN: &str = "/b/t-0";
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
        2 => (0..9i64).prop_map(Op::Cut),
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
    OpenArgs { recovery_point: log_start, log_start, clean_shutdown: false, now: NOW, budgets }
}

fn open(disk: &SimDisk, dir: &str, log_start: Offset) -> Log {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (dir, args) = (Path::new(dir), args(log_start));
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
                self.log.truncate_to(World::part(committed, end, eighths), NOW).unwrap();
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
        let advanced = self.copy.advance_to(view, max_bytes, NOW).unwrap();
        if let Some(doomed) = advanced.doomed {
            doomed.remove().unwrap();
        }
        let (whole, copied) = (contents(view), contents(&self.copy.view()));
        assert!(copied.len() <= whole.len());
        assert!(copied.iter().zip(&whole).all(|(copied, whole)| copied == whole), "{copied:?}\n{whole:?}");
        assert!(self.copy.log_start() == view.log_start);
        assert!(self.copy.high_watermark() <= view.high_watermark);
    }

    fn crash(&mut self, seed: u64) {
        let (starts, committed) = ([self.log.log_start(), self.copy.log_start()], self.log.high_watermark());
        self.disk.crash(seed);
        self.log = open(&self.disk, LOG, starts[0]);
        self.log.set_high_watermark(committed);
        self.copy = open(&self.disk, COPY, starts[1]);
        self.old = self.log.view();
        // What the producers know to have written may be lost.
        self.sequences = [1_000_000; 3];
        self.lead();
    }

    fn succeed(mut self) {
        for _ in 0..10_000 {
            if self.copy.catch_up_with(&self.log, 500, NOW).unwrap() {
                break;
            }
        }
        let (views, before): (LogViews, _) = (self.log.views(), self.log.view());
        self.copy.succeed(&self.log, Path::new(TAKEN)).unwrap();
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
        log.rename(Path::new("/a/t-0.00000000000000000000000000000008-delete")).unwrap();
        assert_eq!(contents(&before), contents(&after));
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
        let (start, kept) = (heir.log_start(), contents(&after));
        disk.crash(7);
        drop(heir);
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
