//! The log against a plain list of batches, through random appends, flushes, truncations, restarts and crashes on a disk
//! that forgets what was not synced.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::producer_state::{Coordinated, Verified};
use super::*;
use crate::storage::disk::Disk;
use crate::storage::sim_disk::SimDisk;
use crate::types::{ProducerEpoch, ProducerId};
use crate::wire::batch::{BatchHeader, Batches, HEADER_LEN, PartialTail};
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::compression::Compression;
use crate::wire::control::{EndTxnMarker, TxnResult};

pub(super) const DIR: &str = "/data/topic-0";

/// A batch as the model keeps it: what the log must give back.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    base: Offset,
    last: Offset,
    /// Of each record.
    timestamps: Vec<i64>,
    producing: Producing,
    bytes: Bytes,
}

/// What a batch is to its producer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Producing {
    Nobody,
    Data { producer: i64, transactional: bool },
    Marker { producer: i64, result: TxnResult },
}

#[derive(Clone, Debug)]
enum Op {
    Append {
        timestamps: Vec<i64>,
        value_len: usize,
        compression: Compression,
    },
    Copy {
        batches: usize,
        gap: i64,
    },
    /// By an idempotent producer; ones with an odd id write transactions.
    Produce {
        producer: i64,
        records: usize,
    },
    Retry {
        producer: i64,
    },
    EndTxn {
        producer: i64,
        result: TxnResult,
    },
    Flush,
    /// Begins a flush that a later `Flush` or this op ends.
    FlushSlowly,
    Checkpoint,
    Truncate(usize),
    AdvanceStart(usize),
    /// So much is kept, in bytes and in time.
    Retain {
        bytes: i64,
        ms: i64,
    },
    Close,
    Kill,
    Crash(u64),
    ForgetTail,
}

fn op() -> impl Strategy<Value = Op> {
    let compression = prop_oneof![4 => Just(Compression::None), 1 => Just(Compression::Lz4)];
    let append = (prop::collection::vec(900..1100i64, 1..4), 0..120usize, compression)
        .prop_map(|(timestamps, value_len, compression)| Op::Append { timestamps, value_len, compression });
    prop_oneof![
        12 => append,
        3 => (1..4usize, 0..3i64).prop_map(|(batches, gap)| Op::Copy { batches, gap }),
        6 => (0..4i64, 1..4usize).prop_map(|(producer, records)| Op::Produce { producer, records }),
        1 => (0..4i64).prop_map(|producer| Op::Retry { producer }),
        2 => (0..2i64, prop_oneof![Just(TxnResult::Commit), Just(TxnResult::Abort)])
            .prop_map(|(half, result)| Op::EndTxn { producer: half * 2 + 1, result }),
        3 => Just(Op::Flush),
        2 => Just(Op::FlushSlowly),
        2 => Just(Op::Checkpoint),
        1 => (0..8usize).prop_map(Op::Truncate),
        1 => (0..100usize).prop_map(Op::AdvanceStart),
        1 => (-1..5000i64, -1..300i64).prop_map(|(bytes, ms)| Op::Retain { bytes, ms }),
        1 => Just(Op::Close),
        1 => Just(Op::Kill),
        2 => any::<u64>().prop_map(Op::Crash),
        1 => Just(Op::ForgetTail),
    ]
}

pub(super) fn batch(timestamps: &[i64], value: &[u8], compression: Compression) -> Bytes {
    let mut builder = BatchBuilder::new().compression(compression);
    for &timestamp in timestamps {
        builder.push(TimestampMs(timestamp), Some(b"key"), Some(value), &[]);
    }
    builder.build().unwrap()
}

pub(super) fn placed(batch: &Bytes, base: Offset, epoch: LeaderEpoch) -> Bytes {
    let mut header = BatchHeader::parse(batch).unwrap();
    (header.base_offset, header.leader_epoch) = (base, epoch);
    [&header.encode()[..], &batch[HEADER_LEN..]].concat().into()
}

struct World {
    disk: SimDisk,
    config: Arc<LogConfig>,
    log: Log,
    batches: Vec<Kept>,
    /// Other contents that a crash may bring back: what a truncation cut and no flush has made final.
    ghosts: Vec<Vec<Kept>>,
    flushing: Option<FlushWork>,
    /// What the checkpoint of recovery points says.
    recovery_point: Offset,
    log_start: Offset,
    epoch: i32,
    now: i64,
    /// Transactions may have begun before the log's start.
    start_moved: bool,
}

impl World {
    fn new() -> World {
        let disk = SimDisk::new();
        let config = Arc::new(LogConfig {
            segment_bytes: 900,
            index_interval_bytes: 100,
            segment_index_bytes: 64,
            segment_ms: 1_000,
            ..LogConfig::default()
        });
        let args = open_args(Offset::ZERO, Offset::ZERO, false);
        disk.create_dir_all(Path::new("/data")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let log = Log::create(Arc::new(disk.clone()), Path::new(DIR), config.clone(), &args).unwrap();
        World {
            disk,
            config,
            log,
            batches: Vec::new(),
            ghosts: Vec::new(),
            flushing: None,
            recovery_point: Offset::ZERO,
            log_start: Offset::ZERO,
            epoch: 0,
            now: 0,
            start_moved: false,
        }
    }

    fn end(&self) -> Offset {
        self.batches.last().map_or(self.log.log_start(), |batch| batch.last.plus(1))
    }

    fn step(&mut self, op: &Op) {
        self.now += 10;
        let now = TimestampMs(self.now);
        let epoch = LeaderEpoch(self.epoch);
        match op {
            Op::Append { timestamps, value_len, compression } => {
                let batch = batch(timestamps, &vec![b'v'; *value_len], *compression);
                let base = self.log.log_end();
                let appended = self.log.append_as_leader(&batch, epoch, Origin::Client, now).unwrap();
                assert_eq!(appended.first_offset, base);
                self.keep(base, timestamps, placed(&batch, base, epoch));
            }
            Op::Produce { producer, records } => self.produce(*producer, *records, now),
            Op::Retry { producer } => self.retry(*producer, now),
            Op::EndTxn { producer, result } => self.end_txn(*producer, *result, now),
            Op::Copy { batches, gap } => {
                let mut all = Vec::new();
                let mut base = self.log.log_end().plus(*gap);
                for index in 0..*batches {
                    let timestamps = [1000 + index as i64, 1000];
                    let bytes = placed(&batch(&timestamps, b"copied", Compression::None), base, epoch);
                    all.extend_from_slice(&bytes);
                    self.keep(base, &timestamps, bytes);
                    base = base.plus(timestamps.len() as i64);
                }
                self.log.append_as_follower(&all.into(), epoch, now).unwrap();
            }
            Op::Flush => {
                self.finish_flush();
                self.log.flush().unwrap();
                assert_eq!(self.log.flushed(), self.log.log_end());
                self.ghosts.clear();
            }
            Op::FlushSlowly => {
                self.finish_flush();
                self.flushing = self.log.flush_work();
            }
            Op::Checkpoint => {
                self.recovery_point = self.log.flushed();
                self.log_start = self.log.log_start();
            }
            Op::Truncate(back) => self.truncate(*back, now),
            Op::AdvanceStart(percent) => {
                let (start, end) = (self.log.log_start(), self.log.log_end());
                let to = start.plus(end.since(start) * *percent as i64 / 100);
                self.log.set_high_watermark(end);
                self.log.advance_log_start(to).unwrap();
                self.log_start = to;
                self.start_moved |= to > start;
                if let Some(doomed) = self.log.delete_before_start(usize::MAX).unwrap() {
                    doomed.remove().unwrap();
                }
            }
            Op::Retain { bytes, ms } => self.retain(*bytes, *ms),
            Op::Close => self.close(now),
            Op::Kill => {
                self.disk.kill();
                let _ = self.reopen(false, now);
            }
            Op::Crash(seed) => {
                self.disk.crash(*seed);
                let _ = self.reopen(false, now);
            }
            Op::ForgetTail => self.log.expire_tail(now.plus_ms(1)),
        }
        self.check();
    }

    fn keep(&mut self, base: Offset, timestamps: &[i64], bytes: Bytes) {
        let last = base.plus(timestamps.len() as i64 - 1);
        let (timestamps, producing) = (timestamps.to_vec(), Producing::Nobody);
        self.batches.push(Kept { base, last, timestamps, producing, bytes });
    }

    fn produce(&mut self, producer: i64, records: usize, now: TimestampMs) {
        if self.start_moved {
            // Of a producer whose batches were deleted, less may be known after a restart.
            return;
        }
        let of_producer =
            |kept: &&Kept| matches!(kept.producing, Producing::Data { producer: of, .. } if of == producer);
        let written: usize = self.batches.iter().filter(of_producer).map(|kept| kept.timestamps.len()).sum();
        let transactional = producer % 2 == 1;
        let mut builder = BatchBuilder::new()
            .producer(ProducerId(producer), ProducerEpoch(0), written as i32)
            .transactional(transactional);
        for _ in 0..records {
            builder.push(TimestampMs(1000), None, Some(b"produced"), &[]);
        }
        let batch = builder.build().unwrap();
        let (base, epoch) = (self.log.log_end(), LeaderEpoch(self.epoch));
        let coordinated = Coordinated { verified: Verified::Waived, ..Coordinated::default() };
        let appended = self.log.append_coordinated(&batch, epoch, Origin::Client, coordinated, now).unwrap();
        assert_eq!((appended.first_offset, appended.duplicate), (base, false));
        self.keep(base, &vec![1000; records], placed(&batch, base, epoch));
        self.batches.last_mut().unwrap().producing = Producing::Data { producer, transactional };
    }

    /// Sends the producer's last batch again.
    fn retry(&mut self, producer: i64, now: TimestampMs) {
        let of_producer =
            |kept: &&Kept| matches!(kept.producing, Producing::Data { producer: of, .. } if of == producer);
        let Some(kept) = self.batches.iter().rfind(of_producer) else { return };
        if kept.base < self.log.log_start() {
            return;
        }
        let (end, epoch) = (self.log.log_end(), LeaderEpoch(self.epoch));
        let again = placed(&kept.bytes, Offset::ZERO, LeaderEpoch::UNKNOWN);
        let appended = self.log.append_as_leader(&again, epoch, Origin::Client, now).unwrap();
        assert_eq!((appended.first_offset, appended.duplicate), (kept.base, true));
        assert_eq!(self.log.log_end(), end);
    }

    fn end_txn(&mut self, producer: i64, result: TxnResult, now: TimestampMs) {
        let (base, epoch) = (self.log.log_end(), LeaderEpoch(self.epoch));
        let marker = EndTxnMarker { result, coordinator_epoch: 0, timestamp: TimestampMs(1000) };
        let bytes = marker.batch(ProducerId(producer), ProducerEpoch(0), base, epoch);
        self.log.append_as_leader(&bytes, epoch, Origin::Coordinator, now).unwrap();
        self.keep(base, &[1000], bytes);
        self.batches.last_mut().unwrap().producing = Producing::Marker { producer, result };
    }

    /// The last stable offset and the aborted transactions, from the batches alone.
    fn transactions(&self) -> (Offset, Vec<AbortedTxn>) {
        let (mut open, mut aborted) = (Vec::<(i64, Offset)>::new(), Vec::new());
        for kept in &self.batches {
            match kept.producing {
                Producing::Data { producer, transactional: true }
                    if open.iter().all(|(of, _)| *of != producer) =>
                {
                    open.push((producer, kept.base));
                }
                Producing::Marker { producer, result } => {
                    let Some(at) = open.iter().position(|(of, _)| *of == producer) else { continue };
                    let (_, first_offset) = open.remove(at);
                    if result == TxnResult::Abort {
                        let last_stable_offset = open.first().map_or(kept.last.plus(1), |(_, first)| *first);
                        let producer_id = ProducerId(producer);
                        let last_offset = kept.last;
                        aborted.push(AbortedTxn {
                            producer_id,
                            first_offset,
                            last_offset,
                            last_stable_offset,
                        });
                    }
                }
                _ => {}
            }
        }
        (open.first().map_or(self.log.log_end(), |(_, first)| *first), aborted)
    }

    fn finish_flush(&mut self) {
        if let Some(work) = self.flushing.take() {
            let flushed = work.run().unwrap();
            self.log.mark_flushed(flushed);
        }
    }

    fn truncate(&mut self, back: usize, now: TimestampMs) {
        let keep = self.batches.len().saturating_sub(back);
        if keep == self.batches.len() {
            return;
        }
        let to = match keep.checked_sub(1) {
            Some(last) => self.batches[last].last.plus(1),
            None => self.log.log_start().min(self.batches[0].base),
        };
        self.ghosts.push(self.batches.clone());
        self.batches.truncate(keep);
        self.log.truncate_to(to, now).unwrap();
        assert_eq!(self.log.log_end(), to);
        self.recovery_point = self.recovery_point.min(to);
        self.log_start = self.log_start.min(to);
        self.epoch += 1;
        self.log.assign_epoch_start(LeaderEpoch(self.epoch));
    }

    /// The batches that go stay in the model: after a crash they may be there again.
    fn retain(&mut self, bytes: i64, ms: i64) {
        // Timestamps of records are around 1000.
        let now = TimestampMs(1100);
        let config = LogConfig { retention_bytes: bytes, retention_ms: ms, ..(*self.config).clone() };
        self.log.set_high_watermark(self.log.log_end());
        let start = self.log.log_start();
        self.log.update_config(Arc::new(config.clone()));
        while self.log.retain(now, 2).unwrap().more {}
        assert_eq!(self.log.view().overdue(&config, now).unwrap(), 0);
        self.log.update_config(self.config.clone());
        self.start_moved |= self.log.log_start() > start;
    }

    fn close(&mut self, now: TimestampMs) {
        self.flushing = None;
        self.log.close().unwrap();
        self.recovery_point = self.log.flushed();
        self.log_start = self.log.log_start();
        self.ghosts.clear();
        self.disk.kill();
        let read_bytes = self.reopen(true, now);
        assert_eq!(*self.log.recovered(), Recovered::default());
        // The ends of a few files, and what lies behind the last entry of an index; not the log.
        assert!(read_bytes < 4_000, "{read_bytes}");
    }

    /// Opens the log again and checks it against the model; returns how much opening read.
    fn reopen(&mut self, clean: bool, now: TimestampMs) -> u64 {
        self.flushing = None;
        let flushed = self.log.flushed();
        let args = OpenArgs { now, ..open_args(self.recovery_point, self.log_start, clean) };
        let disk = Arc::new(self.disk.clone());
        let before = self.disk.counts().read_bytes;
        self.log = Log::open(disk, Path::new(DIR), self.config.clone(), &args).unwrap();
        let read_bytes = self.disk.counts().read_bytes - before;
        let end = self.log.log_end();
        assert!(end >= flushed.min(self.end()) || !self.ghosts.is_empty(), "{end} < {flushed}");
        assert_eq!(self.log.flushed(), end);
        assert!(!self.log.recovered().lost_flushed);
        // The log is a first part of what was written, or of what was before a truncation.
        let stored = read_all(&self.log.view());
        let candidates = std::iter::once(&self.batches).chain(&self.ghosts);
        let found = candidates.filter_map(|batches| {
            let live: Vec<&Kept> = batches.iter().filter(|kept| kept.last >= self.log.log_start()).collect();
            let prefix: Vec<u8> =
                live.iter().take_while(|kept| kept.last < end).flat_map(|kept| kept.bytes.to_vec()).collect();
            (prefix == stored).then(|| batches.iter().take_while(|kept| kept.last < end).cloned().collect())
        });
        let found: Vec<Vec<Kept>> = found.collect();
        self.batches = found.into_iter().next().expect("the log is none that was written");
        self.ghosts.clear();
        // What survived is durable now, and a broker writes down that it has no more before it appends.
        self.recovery_point = self.recovery_point.min(end);
        self.log_start = self.log_start.min(end);
        self.epoch += 1;
        read_bytes
    }

    /// Reads everything in several ways.
    fn check(&mut self) {
        if !self.start_moved {
            self.log.set_high_watermark(self.log.log_end());
            let (last_stable, aborted) = self.transactions();
            let view = self.log.view();
            assert_eq!(view.last_stable, last_stable);
            assert_eq!(view.collect_aborted(Offset::ZERO, view.log_end).unwrap(), aborted);
        }
        let view = self.log.view();
        assert_eq!(view.log_end, self.log.log_end());
        let live: Vec<&Kept> = self.batches.iter().filter(|kept| kept.last >= view.log_start).collect();
        assert_eq!(read_all(&view), live.iter().flat_map(|kept| kept.bytes.to_vec()).collect::<Vec<u8>>());
        for (index, kept) in live.iter().enumerate().step_by(3) {
            let from = kept.last;
            let got = fetch(&view, from, 1, view.log_end, true);
            assert_eq!(got, kept.bytes, "one batch from {from}");
            assert_eq!(fetch(&view, from, 1, view.log_end, false), b"");
            assert_eq!(fetch(&view, from, 1000, kept.last, true), b"");
            let bound = live[(index + 2).min(live.len() - 1)];
            let got = fetch(&view, from, 300, bound.base, false);
            let expected: Vec<u8> = live[index..]
                .iter()
                .take_while(|kept| kept.last < bound.base)
                .flat_map(|k| k.bytes.to_vec())
                .collect();
            assert!(expected.starts_with(&got) && got.len() <= 300);
        }
        for timestamp in [0, 950, 1000, 1050, 2000] {
            let expected = live.iter().find_map(|kept| {
                let hit = |(index, &ts): (usize, &i64)| {
                    let offset = kept.base.plus(index as i64);
                    (ts >= timestamp && offset >= view.log_start).then_some((ts, offset))
                };
                kept.timestamps.iter().enumerate().find_map(hit)
            });
            let found = view.offset_for_timestamp(TimestampMs(timestamp)).unwrap();
            assert_eq!(found.map(|found| (found.timestamp.0, found.offset)), expected, "at {timestamp}");
        }
        let epochs = view.epochs().entries();
        assert!(epochs.windows(2).all(|pair| pair[0].epoch < pair[1].epoch && pair[0].start < pair[1].start));
    }
}

pub(super) fn open_args(recovery_point: Offset, log_start: Offset, clean_shutdown: bool) -> OpenArgs {
    OpenArgs {
        recovery_point,
        log_start,
        clean_shutdown,
        now: TimestampMs(0),
        // So few files that they are closed and opened again all the time.
        budgets: Budgets::new(1 << 20, 2000, 3),
        unchecked: Arc::default(),
    }
}

pub(super) fn fetch(view: &LogView, from: Offset, max: usize, upto: Offset, min_one: bool) -> Vec<u8> {
    match view.read(from, max, upto, min_one).unwrap() {
        ReadPlan::Ready(parts) => parts.concat(),
        ReadPlan::Cold(read) => read.run().unwrap().to_vec(),
    }
}

pub(super) fn read_all(view: &LogView) -> Vec<u8> {
    let (mut from, mut all) = (view.log_start, Vec::new());
    while from < view.log_end {
        let bytes = fetch(view, from, 500, view.log_end, true);
        for batch in Batches::new(&bytes, PartialTail::Refuse) {
            let batch = batch.unwrap();
            batch.check_crc().unwrap();
            from = batch.header.next_offset();
        }
        assert!(!bytes.is_empty(), "nothing at {from} of {}", view.log_end);
        all.extend_from_slice(&bytes);
    }
    all
}

impl TimestampMs {
    fn plus_ms(self, ms: i64) -> TimestampMs {
        TimestampMs(self.0 + ms)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn nothing_flushed_is_lost_and_nothing_torn_is_served(ops in prop::collection::vec(op(), 1..60)) {
        let mut world = World::new();
        for op in &ops {
            world.step(op);
        }
    }
}

#[test]
fn what_a_crash_left_of_a_cut_log_is_not_missed_by_the_next_start() {
    let crashed = |seed| {
        let mut world = World::new();
        let cut =
            [Op::Copy { batches: 1, gap: 1 }, Op::Close, Op::Retain { bytes: 0, ms: 0 }, Op::Truncate(1)];
        cut.iter().chain([&Op::Crash(seed)]).for_each(|op| world.step(op));
        world
    };
    let mut taken = (0..300).map(crashed).filter(|world| world.log.log_end() < Offset(1));
    let mut world = taken.next().expect("a crash that takes the cut log");
    world.step(&Op::Kill);
}

#[test]
fn a_log_to_which_nothing_was_written_costs_a_start_after_a_crash_no_sync() {
    let mut world = World::new();
    let syncs_of_a_start = |world: &mut World| {
        let before = world.disk.counts().syncs;
        world.step(&Op::Kill);
        world.disk.counts().syncs - before
    };
    assert_eq!(syncs_of_a_start(&mut world), 0);
    // The batches, and the names.
    world.step(&Op::Copy { batches: 2, gap: 0 });
    assert_eq!(syncs_of_a_start(&mut world), 2);
}
