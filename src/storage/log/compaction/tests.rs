//! Compaction against a model: random logs of plain, idempotent and transactional producers, compacted again and again with
//! time passing, with stops and crashes, also at every rename of a swap.
//!
//! The laws: every record that is left is the one that was written at its offset; a reader of committed records ends with the
//! same last values; no key has two values in the compacted part; tombstones stay for their time; what is known of
//! producers and transactions is the same; the log ends where it did, and recovery finds no holes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::super::producer_state::{Coordinated, Verified};
use super::super::tests::{DIR, fetch, open_args, read_all};
use super::super::*;
use super::{
    CleanError, CleanLimits, CleanStats, Cleaned, Dirt, MapLimits, Stopped, SwapError, Watch, clean,
};
use crate::storage::disk::Disk;
use crate::storage::sim_disk::{FaultOn, SimDisk};
use crate::types::{ProducerEpoch, ProducerId};
use crate::wire::batch::{Batches, PartialTail};
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::compression::{Compression, Scratch};
use crate::wire::control::{EndTxnMarker, TxnResult};
use crate::wire::records::Records;

const DELETE_RETENTION_MS: i64 = 100;

/// A record as it was written.
#[derive(Clone, Debug, PartialEq)]
struct Written {
    timestamp: i64,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    /// Of a transaction.
    producer: Option<i64>,
}

#[derive(Clone, Debug)]
enum Op {
    /// Keys, and whether they get a value.
    Append {
        records: Vec<(u8, bool)>,
        compression: Compression,
    },
    Produce {
        producer: i64,
        records: Vec<(u8, bool)>,
    },
    EndTxn {
        producer: i64,
        result: TxnResult,
    },
    Pass(i64),
    Clean {
        keys_max: usize,
    },
    /// Fails after so many calls of a kind, then the power is lost, or only the process.
    CleanAndCrash {
        on: FaultOn,
        after: u32,
        seed: Option<u64>,
    },
    /// Drops some of the batches that were not flushed.
    Truncate(usize),
    /// Only so many bytes are kept.
    Retain(i64),
    Flush,
    Close,
    Crash(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let records = || prop::collection::vec((0..6u8, prop::bool::weighted(0.75)), 1..5);
    let compression = prop_oneof![3 => Just(Compression::None), 1 => Just(Compression::Zstd)];
    let on = prop_oneof![
        4 => Just(FaultOn::Rename),
        1 => Just(FaultOn::Write),
        1 => Just(FaultOn::Sync),
        1 => Just(FaultOn::Open),
        1 => Just(FaultOn::Remove),
    ];
    let keys_max = prop_oneof![3 => Just(1000usize), 1 => 1..4usize];
    prop_oneof![
        10 => (records(), compression)
            .prop_map(|(records, compression)| Op::Append { records, compression }),
        8 => (0..4i64, records()).prop_map(|(producer, records)| Op::Produce { producer, records }),
        4 => (0..2i64, prop_oneof![Just(TxnResult::Commit), Just(TxnResult::Abort)])
            .prop_map(|(half, result)| Op::EndTxn { producer: half * 2 + 1, result }),
        2 => (1..150i64).prop_map(Op::Pass),
        5 => keys_max.prop_map(|keys_max| Op::Clean { keys_max }),
        3 => (on, 0..24u32, prop::option::weighted(0.7, any::<u64>()))
            .prop_map(|(on, after, seed)| Op::CleanAndCrash { on, after, seed }),
        1 => (0..10usize).prop_map(Op::Truncate),
        1 => (0..4000i64).prop_map(Op::Retain),
        2 => Just(Op::Flush),
        1 => Just(Op::Close),
        1 => any::<u64>().prop_map(Op::Crash),
    ]
}

struct World {
    disk: SimDisk,
    config: Arc<LogConfig>,
    log: Log,
    written: BTreeMap<Offset, Written>,
    /// By offset, with the producer.
    markers: BTreeMap<Offset, (i64, TxnResult)>,
    /// Where batches began.
    bases: BTreeSet<Offset>,
    sequences: BTreeMap<i64, i32>,
    cleaned: Option<Offset>,
    /// When each tombstone was first part of what was compacted.
    tombstones_met: BTreeMap<Offset, i64>,
    recovery_point: Offset,
    epoch: i32,
    now: i64,
    /// There may be no room for names: files of old segments that nobody has open may go at once.
    lacks_room: bool,
}

/// Swaps at once, as a shard does.
struct Swapping<'a> {
    log: &'a mut Log,
    doomed: Vec<Doomed>,
}

impl Watch for Swapping<'_> {
    fn spend(&mut self, bytes: usize) -> Result<(), Stopped> {
        assert!(bytes > 0);
        Ok(())
    }

    fn has_room(&mut self, _: u64) -> bool {
        true
    }

    fn swap(&mut self, cleaned: Cleaned) -> Result<(), SwapError> {
        self.doomed.push(self.log.swap_in(&cleaned)?);
        Ok(())
    }
}

fn limits(keys_max: usize) -> CleanLimits {
    // Of n slots, n - 1 are used.
    let map = MapLimits { bytes: (keys_max + 1) * 24, load_factor: 1.0, secret: 42 };
    CleanLimits { map, chunk_bytes: 200 }
}

impl World {
    fn new() -> World {
        let disk = SimDisk::new();
        disk.create_dir_all(Path::new("/data")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let config = Arc::new(LogConfig {
            segment_bytes: 700,
            index_interval_bytes: 100,
            compact: true,
            delete: false,
            delete_retention_ms: DELETE_RETENTION_MS,
            min_cleanable_dirty_ratio: 0.0,
            ..LogConfig::default()
        });
        let args = open_args(Offset::ZERO, Offset::ZERO, false);
        let log = Log::create(Arc::new(disk.clone()), Path::new(DIR), config.clone(), &args).unwrap();
        let (written, markers, bases, sequences, tombstones_met) = Default::default();
        World {
            disk,
            config,
            log,
            written,
            markers,
            bases,
            sequences,
            cleaned: None,
            tombstones_met,
            recovery_point: Offset::ZERO,
            epoch: 0,
            now: 1000,
            lacks_room: false,
        }
    }

    fn step(&mut self, op: &Op) {
        self.now += 1;
        match op {
            Op::Append { records, compression } => {
                self.append(BatchBuilder::new().compression(*compression), records, None);
            }
            Op::Produce { producer, records } => {
                let sequence = *self.sequences.get(producer).unwrap_or(&0);
                self.sequences.insert(*producer, sequence + records.len() as i32);
                let transactional = producer % 2 == 1;
                let builder = BatchBuilder::new()
                    .producer(ProducerId(*producer), ProducerEpoch(0), sequence)
                    .transactional(transactional);
                self.append(builder, records, transactional.then_some(*producer));
            }
            Op::EndTxn { producer, result } => self.end_txn(*producer, *result),
            Op::Pass(ms) => self.now += ms,
            Op::Clean { keys_max } => {
                let cleaned = self.cleaned;
                let stats = self.clean(*keys_max).unwrap();
                assert!(stats.is_none_or(|stats| Some(stats.upto) > cleaned));
                self.check_compact(stats);
            }
            Op::CleanAndCrash { on, after, seed } => {
                let _ = self.clean_until(1000, Some((*on, *after)));
                match seed {
                    Some(seed) => self.disk.crash(*seed),
                    None => self.disk.kill(),
                }
                self.reopen(false);
            }
            Op::Truncate(back) => {
                let flushed = self.log.flushed();
                let unflushed: Vec<Offset> = self.bases.iter().copied().filter(|at| *at >= flushed).collect();
                if let Some(to) = unflushed.len().checked_sub(back + 1).map(|at| unflushed[at]) {
                    self.log.truncate_to(to, TimestampMs(self.now)).unwrap();
                    self.forget_from(to);
                    self.epoch += 1;
                    self.log.assign_epoch_start(LeaderEpoch(self.epoch));
                    // Or a crash could bring back what was cut.
                    self.log.flush().unwrap();
                }
            }
            Op::Retain(bytes) => self.retain(*bytes),
            Op::Flush => {
                self.log.flush().unwrap();
                self.recovery_point = self.log.flushed();
            }
            Op::Close => {
                self.log.close().unwrap();
                self.recovery_point = self.log.flushed();
                self.disk.kill();
                self.reopen(true);
            }
            Op::Crash(seed) => {
                self.disk.crash(*seed);
                self.reopen(false);
            }
        }
        self.check();
    }

    fn append(&mut self, mut builder: BatchBuilder, records: &[(u8, bool)], txn: Option<i64>) {
        let base = self.log.log_end();
        for (index, (key, has_value)) in records.iter().enumerate() {
            let offset = base.plus(index as i64);
            let value = has_value.then(|| format!("value {offset}").into_bytes());
            let written = Written { timestamp: self.now, key: vec![b'k', *key], value, producer: txn };
            let (key, value) = (Some(&written.key[..]), written.value.as_deref());
            builder.push(TimestampMs(self.now), key, value, &[]);
            self.written.insert(offset, written);
        }
        self.write(&builder.build().unwrap(), Origin::Client);
    }

    /// Only where no transaction is open, since of one that began before the log's start less may be known later.
    fn retain(&mut self, bytes: i64) {
        if self.log.last_stable() < self.log.high_watermark() {
            return;
        }
        let config = LogConfig { delete: true, retention_bytes: bytes, ..(*self.config).clone() };
        self.log.update_config(Arc::new(LogConfig { retention_ms: -1, ..config }));
        let retained = self.log.retain(TimestampMs(self.now), 2).unwrap();
        self.log.update_config(self.config.clone());
        if let Some(doomed) = retained.doomed {
            doomed.remove().unwrap();
        }
    }

    fn forget_from(&mut self, end: Offset) {
        self.written.retain(|offset, _| *offset < end);
        self.markers.retain(|offset, _| *offset < end);
        self.bases.retain(|offset| *offset < end);
        self.sequences.clear();
        for producer in self.log.producers().active_producers() {
            self.sequences.insert(producer.producer_id.0, producer.last_sequence + 1);
        }
    }

    fn write(&mut self, batch: &Bytes, origin: Origin) {
        self.bases.insert(self.log.log_end());
        let coordinated = Coordinated { verified: Verified::Waived, ..Coordinated::default() };
        let (epoch, now) = (LeaderEpoch(self.epoch), TimestampMs(self.now));
        let appended = self.log.append_coordinated(batch, epoch, origin, coordinated, now).unwrap();
        assert!(!appended.duplicate);
    }

    fn end_txn(&mut self, producer: i64, result: TxnResult) {
        let marker = EndTxnMarker { result, coordinator_epoch: 0, timestamp: TimestampMs(self.now) };
        let base = self.log.log_end();
        let bytes = marker.batch(ProducerId(producer), ProducerEpoch(0), base, LeaderEpoch(self.epoch));
        self.write(&bytes, Origin::Coordinator);
        self.markers.insert(base, (producer, result));
    }

    fn dirt(&self) -> Dirt {
        self.log.view().dirt(&self.config, self.cleaned, TimestampMs(self.now)).unwrap()
    }

    /// Everything that is flushed is committed here.
    fn clean(&mut self, keys_max: usize) -> Result<Option<CleanStats>, CleanError> {
        self.clean_until(keys_max, None)
    }

    /// The same on a disk that fails after so many calls.
    fn clean_until(
        &mut self,
        keys_max: usize,
        fault: Option<(FaultOn, u32)>,
    ) -> Result<Option<CleanStats>, CleanError> {
        self.log.set_high_watermark(self.log.flushed());
        let dirt = self.dirt();
        if !dirt.is_due(&self.config) {
            return Ok(None);
        }
        let before = self.log.view();
        let stored = read_all(&before);
        let met = self.written.range(..dirt.upto).filter(|(_, written)| written.value.is_none());
        let met: Vec<Offset> = met.map(|(offset, _)| *offset).collect();
        for offset in met {
            self.tombstones_met.entry(offset).or_insert(self.now);
        }
        let basis = self.log.compaction_basis();
        let config = self.config.clone();
        if let Some((on, after)) = fault {
            self.disk.fail(on, "", after, io::ErrorKind::Other, None);
        }
        let mut swapping = Swapping { log: &mut self.log, doomed: Vec::new() };
        let result = clean(&basis, &config, &dirt, &limits(keys_max), TimestampMs(self.now), &mut swapping);
        let doomed = swapping.doomed;
        self.disk.heal();
        // Who had begun to read is served, whatever is open.
        for segment in before.segments.iter() {
            segment.log_file().release();
        }
        if result.is_ok() && !self.lacks_room {
            assert_eq!(read_all(&before), stored);
        }
        for doomed in doomed {
            doomed.remove().unwrap();
        }
        let stats = result?;
        self.cleaned = Some(stats.upto);
        Ok(Some(stats))
    }

    fn reopen(&mut self, clean: bool) {
        let now = TimestampMs(self.now);
        let args = OpenArgs { now, ..open_args(self.recovery_point, Offset::ZERO, clean) };
        let flushed = self.log.flushed();
        let disk = Arc::new(self.disk.clone());
        self.log = Log::open(disk, Path::new(DIR), self.config.clone(), &args).unwrap();
        let end = self.log.log_end();
        assert!(end >= flushed, "{end} < {flushed}");
        assert!(!self.log.recovered().lost_flushed);
        self.forget_from(end);
        self.cleaned = self.cleaned.filter(|cleaned| *cleaned <= end);
        self.epoch += 1;
        // Nothing unfinished is left.
        let names = self.disk.list(Path::new(DIR)).unwrap();
        let left: Vec<_> = names.iter().filter(|entry| entry.name.ends_with(".swap")).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    /// The records of the log, with the flag of batches that are part of a transaction.
    fn records(&self) -> Vec<(Offset, Written)> {
        let (mut all, mut scratch) = (Vec::new(), Scratch::new());
        let stored = read_all(&self.log.view());
        for batch in Batches::new(&stored, PartialTail::Refuse) {
            let batch = batch.unwrap();
            let header = &batch.header;
            if header.is_control() {
                continue;
            }
            let body = super::filter::unpacked(&batch, &mut scratch).unwrap();
            let mut count = 0;
            for record in Records::new(&body, header.record_count) {
                let record = record.unwrap();
                count += 1;
                let written = Written {
                    timestamp: header.base_timestamp.0 + record.timestamp_delta,
                    key: record.key.unwrap().to_vec(),
                    value: record.value.map(<[u8]>::to_vec),
                    producer: header.is_transactional().then_some(header.producer_id.0),
                };
                all.push((header.base_offset.plus(i64::from(record.offset_delta)), written));
            }
            assert_eq!(count, header.record_count);
        }
        all
    }

    /// How and where the transaction of a record ended: `None` while it is open.
    fn outcome(&self, offset: Offset, producer: i64) -> Option<(Offset, TxnResult)> {
        let mut later = self.markers.range(offset..);
        later.find(|(_, (of, _))| *of == producer).map(|(at, (_, result))| (*at, *result))
    }

    fn is_aborted(&self, offset: Offset, written: &Written) -> bool {
        let outcome = written.producer.and_then(|producer| self.outcome(offset, producer));
        outcome.is_some_and(|(_, result)| result == TxnResult::Abort)
    }

    /// Where the first record is whose transaction is open, or ended by a marker that is not committed.
    fn last_stable(&self) -> Offset {
        let high_watermark = self.log.high_watermark();
        let open = self.written.iter().find(|(offset, written)| {
            let outcome = |producer| self.outcome(**offset, producer);
            written.producer.is_some_and(|of| outcome(of).is_none_or(|(marker, _)| marker >= high_watermark))
        });
        open.map_or(high_watermark, |(offset, _)| high_watermark.min(*offset))
    }

    fn check(&mut self) {
        self.log.set_high_watermark(self.log.flushed());
        let view = self.log.view();
        let last_stable = self.last_stable();
        assert_eq!(view.last_stable, last_stable);
        let aborted = view.collect_aborted(Offset::ZERO, view.log_end).unwrap();
        let records = self.records();
        assert!(records.windows(2).all(|pair| pair[0].0 < pair[1].0));
        // What a reader of committed records makes of it, by the index of aborted transactions alone.
        let mut state = BTreeMap::new();
        for (offset, record) in &records {
            assert_eq!(Some(record), self.written.get(offset), "at {offset}");
            let skips = record.producer.is_some_and(|producer| {
                aborted.iter().any(|txn| {
                    txn.producer_id.0 == producer && (txn.first_offset..=txn.last_offset).contains(offset)
                })
            });
            assert_eq!(skips, self.is_aborted(*offset, record), "at {offset}");
            if !skips && *offset < last_stable {
                state.insert(&record.key, (*offset, &record.value));
            }
        }
        let mut expected = BTreeMap::new();
        for (offset, written) in self.written.range(view.log_start.min(last_stable)..last_stable) {
            if !self.is_aborted(*offset, written) {
                expected.insert(&written.key, (*offset, &written.value));
            }
        }
        for (key, (offset, value)) in expected {
            match (state.get(key), value) {
                (Some(found), _) => assert_eq!(*found, (offset, value), "of {key:?}"),
                (None, Some(_)) => panic!("{key:?} at {offset} is lost"),
                (None, None) => {
                    let met = self.tombstones_met.get(&offset).expect("compacted");
                    assert!(
                        self.now >= met + DELETE_RETENTION_MS,
                        "the tombstone at {offset} went too early"
                    );
                }
            }
        }
        // A record whose time has come is found where it is.
        for at in [0, self.now / 2, self.now - 5, self.now + 1] {
            let found = view.offset_for_timestamp(TimestampMs(at)).unwrap();
            let data = records.iter().map(|(offset, written)| (*offset, written.timestamp));
            let markers = self.marker_times(&view);
            let first = data.chain(markers).filter(|(_, timestamp)| *timestamp >= at).min();
            assert_eq!(found.map(|found| (found.offset, found.timestamp.0)), first, "at {at}");
        }
        for producer in self.log.producers().active_producers() {
            let next = self.sequences.get(&producer.producer_id.0).copied().unwrap_or(0);
            assert_eq!(producer.last_sequence + 1, next, "of {}", producer.producer_id);
        }
    }

    /// Markers are records with times, too.
    fn marker_times(&self, view: &LogView) -> Vec<(Offset, i64)> {
        let stored = read_all(view);
        let batches = Batches::new(&stored, PartialTail::Refuse).map(Result::unwrap);
        let markers = batches.filter(|batch| batch.header.is_control() && batch.header.record_count > 0);
        markers.map(|batch| (batch.header.base_offset, batch.header.max_timestamp.0)).collect()
    }

    /// In what was compacted just now, a key has one record, and aborted records are gone.
    fn check_compact(&self, stats: Option<CleanStats>) {
        let Some(stats) = stats else { return };
        let mut last = BTreeMap::new();
        for (offset, written) in self.written.range(..stats.upto) {
            if !self.is_aborted(*offset, written) {
                last.insert(&written.key, *offset);
            }
        }
        for (offset, record) in self.records().iter().filter(|(offset, _)| *offset < stats.upto) {
            assert_eq!(last.get(&record.key), Some(offset), "{record:?} at {offset} has a later one");
        }
        // All of the log that may be compacted is, unless the memory for keys was too small.
        assert!(stats.map_was_full || self.dirt().dirty_bytes == 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_compacted_log_says_what_it_said(ops in prop::collection::vec(op(), 1..80)) {
        let mut world = World::new();
        for op in &ops {
            world.step(op);
        }
    }
}

/// A log with one key in several sealed segments.
fn repetitive() -> World {
    let mut world = World::new();
    for _ in 0..40 {
        world.step(&Op::Append { records: vec![(1, true), (2, true)], compression: Compression::None });
    }
    world.step(&Op::Flush);
    world
}

#[test]
fn a_swap_that_stops_at_any_rename_is_finished_or_undone() {
    let mut finished = 0;
    for renames in 0..60 {
        for seed in [None, Some(1), Some(2), Some(3)] {
            let mut world = repetitive();
            world.step(&Op::EndTxn { producer: 1, result: TxnResult::Abort });
            let before = world.records().len();
            world.step(&Op::CleanAndCrash { on: FaultOn::Rename, after: renames, seed });
            let after = world.records().len();
            assert!(after <= before);
            finished += usize::from(after < before);
            // What is left is compacted by the next attempt.
            world.log.flush().unwrap();
            let stats = world.clean(1000).unwrap();
            assert!(stats.is_some() || after < before);
            world.check_compact(stats);
            world.check();
        }
    }
    assert!(finished > 50, "{finished}");
}

#[test]
fn a_follower_copies_a_compacted_log_with_its_gaps_and_recovers_it() {
    let mut world = repetitive();
    for round in 0..6 {
        let records = vec![(1, true), (3, round % 2 == 0), (4, true)];
        world.step(&Op::Produce { producer: round % 4, records });
        let result = if round == 1 { TxnResult::Abort } else { TxnResult::Commit };
        world.step(&Op::EndTxn { producer: 1, result });
        world.step(&Op::EndTxn { producer: 3, result });
        world.step(&Op::Append { records: vec![(2, true); 4], compression: Compression::Zstd });
    }
    world.step(&Op::Flush);
    world.step(&Op::Clean { keys_max: 1000 });
    let leader = world.log.view();
    let stored = read_all(&leader);
    let is_empty =
        |batch: &Result<crate::wire::batch::Batch<'_>, _>| batch.as_ref().unwrap().header.record_count == 0;
    assert!(Batches::new(&stored, PartialTail::Refuse).any(|batch| is_empty(&batch)));
    // Segments of another size, and answers that end anywhere between batches.
    let disk = SimDisk::new();
    let config = Arc::new(LogConfig { segment_bytes: 300, ..(*world.config).clone() });
    let args = open_args(Offset::ZERO, Offset::ZERO, false);
    let mut copy = Log::create(Arc::new(disk.clone()), Path::new(DIR), config.clone(), &args).unwrap();
    while copy.log_end() < leader.log_end {
        let plan = leader.read(copy.log_end(), 250, leader.log_end, true).unwrap();
        let bytes: Bytes = match plan {
            ReadPlan::Ready(parts) => parts.concat().into(),
            ReadPlan::Cold(read) => read.run().unwrap(),
        };
        copy.append_as_follower(&bytes, LeaderEpoch(world.epoch), TimestampMs(0)).unwrap();
    }
    assert!(copy.view().segment_count() > 3);
    let check = |copy: &Log| {
        let view = copy.view();
        assert_eq!(read_all(&view), stored);
        // Of transactions of which nothing is left, the leader may know more.
        let skipped = |view: &LogView| {
            let aborted = view.collect_aborted(Offset::ZERO, view.log_end).unwrap();
            let skips = |offset: Offset, written: &Written| {
                aborted.iter().any(|txn| {
                    written.producer == Some(txn.producer_id.0)
                        && (txn.first_offset..=txn.last_offset).contains(&offset)
                })
            };
            let records = world.records();
            records.iter().filter(|(offset, of)| skips(*offset, of)).map(|(at, _)| *at).collect::<Vec<_>>()
        };
        assert_eq!(skipped(&view), skipped(&leader));
        let sequences = |log: &Log| {
            let producers = log.producers().active_producers();
            producers.iter().map(|of| (of.producer_id, of.last_sequence)).collect::<Vec<_>>()
        };
        assert_eq!(sequences(copy), sequences(&world.log));
    };
    check(&copy);
    copy.flush().unwrap();
    disk.crash(1);
    let copy = Log::open(Arc::new(disk), Path::new(DIR), config, &args).unwrap();
    assert!(copy.recovered().scanned_bytes > 0 && copy.recovered().truncated_bytes == 0);
    check(&copy);
}

#[test]
fn no_snapshot_leaves_a_transaction_open_whose_marker_is_gone() {
    let mut world = World::new();
    let fill = |world: &mut World, keys: std::ops::Range<u8>| {
        for key in keys {
            world.step(&Op::Append { records: vec![(key, true)], compression: Compression::None });
        }
    };
    fill(&mut world, 10..20);
    world.step(&Op::Produce { producer: 1, records: vec![(5, true)] });
    // Snapshots with the open transaction, and a recovery point that stays behind.
    fill(&mut world, 20..35);
    world.step(&Op::Flush);
    world.step(&Op::EndTxn { producer: 1, result: TxnResult::Abort });
    fill(&mut world, 40..60);
    world.step(&Op::Produce { producer: 1, records: vec![(6, true)] });
    fill(&mut world, 70..80);
    world.log.flush().unwrap();
    // The records of the transaction go, then the marker gets its time, and then it goes.
    for keys_max in [25, 5] {
        assert!(world.clean(keys_max).unwrap().unwrap().map_was_full);
    }
    world.now += 2 * DELETE_RETENTION_MS;
    world.clean(1000).unwrap().unwrap();
    let stored = read_all(&world.log.view());
    let mut markers = Batches::new(&stored, PartialTail::Refuse).map(Result::unwrap);
    assert!(!markers.any(|batch| batch.header.is_control() && batch.header.record_count > 0));
    world.step(&Op::Crash(1));
}

#[test]
fn a_log_that_was_cut_meanwhile_is_left_alone() {
    struct Cutting<'a>(&'a mut Log, Offset);
    impl Watch for Cutting<'_> {
        fn spend(&mut self, _: usize) -> Result<(), Stopped> {
            Ok(())
        }
        fn has_room(&mut self, _: u64) -> bool {
            true
        }
        fn swap(&mut self, cleaned: Cleaned) -> Result<(), SwapError> {
            self.0.truncate_to(self.1, TimestampMs(0)).unwrap();
            self.0.swap_in(&cleaned).map(drop)
        }
    }
    // In the active segment, which does not matter to the group, in the group, and everything.
    for to in [78, 30, 0] {
        let mut world = repetitive();
        world.log.set_high_watermark(Offset(80));
        let (dirt, basis, config) = (world.dirt(), world.log.compaction_basis(), world.config.clone());
        let mut cutting = Cutting(&mut world.log, Offset(to));
        let cleaned = clean(&basis, &config, &dirt, &limits(10), TimestampMs(0), &mut cutting);
        assert!(matches!(cleaned, Err(CleanError::Swap(SwapError::Outdated))));
        assert!(!world.log.is_uncut_since(&basis));
        world.written.retain(|offset, _| *offset < Offset(to));
        world.check();
        let left = world.disk.list(Path::new(DIR)).unwrap();
        assert!(left.iter().all(|entry| !entry.name.ends_with(".cleaned")));
    }
}

#[test]
fn a_damaged_batch_is_named_and_nothing_is_changed() {
    let mut world = repetitive();
    world.log.set_high_watermark(Offset(80));
    let segment = world.log.view().segments[1].clone();
    let file = segment.log_file().get_to_write().unwrap();
    file.write_all_at(&[std::io::IoSlice::new(b"damage")], segment.size() - 10).unwrap();
    let names = |disk: &SimDisk| {
        let mut names = disk.list(Path::new(DIR)).unwrap();
        names.sort();
        names
    };
    let before = names(&world.disk);
    let (dirt, basis, config) = (world.dirt(), world.log.compaction_basis(), world.config.clone());
    let mut swapping = Swapping { log: &mut world.log, doomed: Vec::new() };
    let error = clean(&basis, &config, &dirt, &limits(10), TimestampMs(0), &mut swapping).unwrap_err();
    assert!(matches!(error, CleanError::Damaged { .. }));
    assert!(error.to_string().contains(&segment.log_file().path().display().to_string()), "{error}");
    assert_eq!(names(&world.disk), before);
}

#[test]
fn a_full_disk_leaves_the_log_as_it_was() {
    let mut world = repetitive();
    let before = read_all(&world.log.view());
    world.disk.set_capacity(Some(world.disk.used()));
    assert!(matches!(world.clean(10).unwrap_err(), CleanError::Write(_)));
    assert_eq!((read_all(&world.log.view()), world.log.failure()), (before, None));
    world.disk.set_capacity(None);
    let stats = world.clean(10).unwrap().unwrap();
    world.check_compact(Some(stats));
    world.check();
}

#[test]
fn a_swap_that_finds_no_room_for_a_name_makes_some_or_is_refused() {
    let mut refused = 0;
    for renames in 0..60 {
        let mut world = repetitive();
        world.step(&Op::Produce { producer: 1, records: vec![(3, true)] });
        world.step(&Op::EndTxn { producer: 1, result: TxnResult::Abort });
        world.step(&Op::Flush);
        world.disk.fail(FaultOn::Rename, "", renames, io::ErrorKind::StorageFull, Some(1));
        world.lacks_room = true;
        let result = world.clean(1000);
        assert_eq!(world.log.failure(), None, "{renames}");
        world.check();
        if result.is_err() {
            refused += 1;
        }
        let stats = result.unwrap_or_else(|_| world.clean(1000).unwrap());
        world.check_compact(stats);
        world.step(&Op::Crash(renames.into()));
    }
    // No room for the names that say that a segment is whole.
    assert!((1..30).contains(&refused), "{refused}");
}

#[test]
fn what_is_dirty_enough_or_old_enough_is_due() {
    let world = {
        let mut world = repetitive();
        world.log.set_high_watermark(Offset(80));
        world
    };
    let view = world.log.view();
    let active = view.segments[view.segments.len() - 1].base();
    let dirt = |config: &LogConfig, cleaned: Option<i64>, now: i64| {
        view.dirt(config, cleaned.map(Offset), TimestampMs(now)).unwrap()
    };
    let config = |change: &dyn Fn(&mut LogConfig)| {
        let mut config = LogConfig { min_cleanable_dirty_ratio: 0.5, ..(*world.config).clone() };
        change(&mut config);
        config
    };
    let plain = config(&|_| {});
    let all = dirt(&plain, None, 2000);
    assert_eq!((all.from, all.upto, all.ratio(), all.is_due(&plain)), (Offset(0), active, 1.0, true));
    // Compacted to the end; to the middle.
    let none = dirt(&plain, Some(active.0), 2000);
    assert_eq!((none.dirty_bytes, none.is_due(&plain)), (0, false));
    let half = dirt(&plain, Some(active.0 / 2 + 8), 2000);
    assert!(half.ratio() < 0.5 && half.dirty_bytes > 0 && !half.is_due(&plain), "{half:?}");
    // What a checkpoint says of a log that ends before counts for nothing.
    assert_eq!(dirt(&plain, Some(81), 2000), all);
    // Records are from 1001 on, one batch at a time.
    let lagging = config(&|config| config.min_compaction_lag_ms = 20);
    let first = dirt(&lagging, None, 1041);
    assert!(Offset(0) < first.upto && first.upto < active, "{first:?}");
    assert_eq!(dirt(&lagging, None, 1010).dirty_bytes, 0);
    let overdue = config(&|config| {
        (config.min_cleanable_dirty_ratio, config.max_compaction_lag_ms) = (1.0, 100);
    });
    assert!(!dirt(&overdue, None, 1101).is_due(&overdue));
    assert!(dirt(&overdue, None, 1102).is_due(&overdue));
    // Never beyond the last stable offset, nor what is flushed.
    let mut world = repetitive();
    world.log.set_high_watermark(Offset(40));
    let held = world.dirt();
    assert!(held.upto <= Offset(40) && held.upto > Offset(20));
}

#[test]
fn small_segments_become_large_ones() {
    let mut world = repetitive();
    let before = world.log.view();
    let stats = world.clean(10).unwrap().unwrap();
    let after = world.log.view();
    assert!(stats.bytes_after < stats.bytes_before / 4);
    // All of them together are smaller than one may be, in the second round.
    world.cleaned = None;
    world.clean(10).unwrap();
    assert_eq!(after.segment_count(), before.segment_count());
    assert_eq!(world.log.view().segment_count(), 2);
    assert_eq!(world.records().iter().filter(|(offset, _)| *offset < stats.upto).count(), 2);
}

#[test]
fn a_read_goes_on_to_the_first_record() {
    let mut world = repetitive();
    world.clean(10).unwrap().unwrap();
    world.reopen(true);
    let (view, last) = (world.log.view(), world.records().pop().unwrap().0);
    let headers = |from, upto| {
        let bytes = fetch(&view, from, 300, upto, true);
        Batches::new(&bytes, PartialTail::Refuse).map(|batch| batch.unwrap().header).collect::<Vec<_>>()
    };
    for from in (0..=last.0).map(Offset) {
        assert!(headers(from, view.log_end).iter().any(|header| header.record_count > 0), "{from}");
        assert!(headers(from, from.plus(9)).iter().all(|header| header.next_offset() <= from.plus(9)));
    }
}
