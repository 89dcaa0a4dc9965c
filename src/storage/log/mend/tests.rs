//! A log is damaged in many ways, and put right from another replica: what is written is what was there before, or nothing is.

use std::io::IoSlice;
use std::path::Path;

use proptest::prelude::*;

use super::super::compaction::{CleanLimits, Cleaned, MapLimits, Stopped, SwapError, Watch, clean};
use super::super::damage::Damage;
use super::super::names::{FileName, Kind};
use super::super::sight::PIECE;
use super::super::tests::{DIR, batch, open_args, placed, read_all};
use super::super::{LogConfig, Origin, ReadPlan};
use super::*;
use crate::storage::disk::{Disk, OpenMode, read_file};
use crate::storage::sim_disk::{FaultOn, SimDisk};
use crate::types::{LeaderEpoch, TimestampMs};
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::compression::Compression;

const NOW: TimestampMs = TimestampMs(0);
const BATCHES: i64 = 12;

/// A log of some segments.
struct Stored {
    disk: SimDisk,
    log: Log,
    sound: Vec<u8>,
}

fn config() -> LogConfig {
    LogConfig { segment_bytes: 500, index_interval_bytes: 100, ..LogConfig::default() }
}

fn value(index: i64) -> Vec<u8> {
    vec![b'v'; 20 + 7 * usize::try_from(index % 5).unwrap()]
}

impl Stored {
    /// An empty one.
    fn empty(config: LogConfig) -> Stored {
        let disk = SimDisk::new();
        disk.create_dir_all(Path::new("/data")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let args = open_args(Offset::ZERO, Offset::ZERO, false);
        let log = Log::create(Arc::new(disk.clone()), Path::new(DIR), Arc::new(config), &args).unwrap();
        Stored { disk, log, sound: Vec::new() }
    }

    fn new() -> Stored {
        let mut stored = Stored::empty(config());
        for index in 0..BATCHES {
            stored.append(&batch(&[1000, 1000], &value(index), Compression::None), index > BATCHES / 2);
        }
        stored.store();
        stored
    }

    fn append(&mut self, batch: &Bytes, is_second_epoch: bool) {
        let epoch = LeaderEpoch(i32::from(is_second_epoch));
        self.log.append_as_leader(batch, epoch, Origin::Client, NOW).unwrap();
    }

    /// Nothing of it is in memory only, and all of it is committed.
    fn store(&mut self) {
        self.log.flush().unwrap();
        self.log.set_high_watermark(self.log.log_end());
        self.log.expire_tail(TimestampMs(i64::MAX));
        self.sound = read_all(&self.log.view());
    }

    /// Another replica of it, with segments of its own.
    fn copy(&self, config: LogConfig) -> Stored {
        let mut copy = Stored::empty(config);
        for batch in Batches::new(&self.sound, PartialTail::Refuse) {
            let bytes = Bytes::copy_from_slice(batch.unwrap().bytes);
            copy.log.append_as_follower(&bytes, LeaderEpoch(9), NOW).unwrap();
        }
        copy.store();
        assert_eq!(copy.sound, self.sound);
        copy
    }

    fn path(base: Offset) -> std::path::PathBuf {
        FileName::live(base, Kind::Log).path(Path::new(DIR))
    }

    fn file(&self, base: Offset) -> Vec<u8> {
        read_file(&self.disk, &Stored::path(base)).unwrap()
    }

    fn files(&self) -> Vec<(Offset, Vec<u8>)> {
        self.log.view().segments.iter().map(|segment| (segment.base(), self.file(segment.base()))).collect()
    }

    fn write(&self, base: Offset, position: u64, bytes: &[u8]) {
        let file = self.disk.open(&Stored::path(base), OpenMode::Write).unwrap();
        file.write_all_at(&[IoSlice::new(bytes)], position).unwrap();
    }

    fn flip(&self, base: Offset, positions: &[u64], mask: u8) {
        let bytes = self.file(base);
        for &position in positions {
            self.write(base, position, &[bytes[usize::try_from(position).unwrap()] ^ mask]);
        }
    }

    fn base(&self, number: usize) -> Offset {
        self.log.view().segments[number].base()
    }

    /// Reads everything, and has noted what is damaged.
    fn find(&mut self) -> usize {
        let (view, mut count) = (self.log.view(), 0);
        for offset in view.log_start.0..view.log_end.0 {
            let read = match view.read(Offset(offset), 1, view.log_end, true).unwrap() {
                ReadPlan::Ready(_) => panic!("nothing is in memory"),
                ReadPlan::Cold(cold) => cold.run(),
            };
            if let Err(error) = read {
                count += usize::from(self.log.note_damage(Damage::of(&error).unwrap()));
            }
        }
        count
    }

    /// Has all segments looked at.
    fn suspect_all(&self) {
        for segment in self.log.view().segments.iter() {
            segment.note_damage(0);
        }
    }

    /// Where the batches of a segment start.
    fn starts(&self, base: Offset) -> Vec<u64> {
        let bytes = self.file(base);
        let batches = Batches::new(&bytes, PartialTail::Refuse);
        batches.map(|batch| batch.unwrap().range.start as u64).collect()
    }

    /// What it answers another replica.
    fn answer(&self, from: Offset) -> Bytes {
        match self.log.view().read(from, 300, self.log.high_watermark(), true) {
            Ok(ReadPlan::Ready(parts)) => parts.concat().into(),
            Ok(ReadPlan::Cold(cold)) => cold.run().unwrap_or_default(),
            Err(_) => Bytes::new(),
        }
    }

    /// What another replica answers that has what this one had.
    fn elsewhere(&self, from: Offset) -> Bytes {
        from_offset(&self.sound, from)
    }

    /// One attempt. Says how many places were put right, and why others were not.
    fn mend(&mut self, elsewhere: impl Fn(Offset) -> Bytes) -> (usize, Vec<(Offset, Unfit)>) {
        let (mut mended, mut left, mut before) = (0, Vec::new(), None);
        while let Some(begun) = self.log.view().next_damaged(before.as_ref()) {
            before = Some(begun.clone());
            let mut progress = begun;
            loop {
                let view = self.log.view();
                let wound = match view.look(progress).unwrap() {
                    Looked::Wound(wound) => wound,
                    Looked::Done(progress) => break progress.forget_damage(),
                    looked @ (Looked::Gone | Looked::Cut) => panic!("{looked:?}"),
                };
                let mut records = elsewhere(wound.from());
                let patch = loop {
                    match view.patch(&wound, &records).unwrap() {
                        Err(Unfit::Short { next, len }) if !elsewhere(next).is_empty() => {
                            records = [records.slice(..len), elsewhere(next)].concat().into();
                        }
                        patch => break patch,
                    }
                };
                progress = match patch {
                    Ok(patch) if self.log.mend(&patch).unwrap().is_ok() => {
                        mended += 1;
                        wound.mended(&patch)
                    }
                    Ok(_) => {
                        left.push((wound.from(), Unfit::Other));
                        wound.left()
                    }
                    Err(unfit) => {
                        left.push((wound.from(), unfit));
                        wound.left()
                    }
                };
            }
        }
        (mended, left)
    }

    fn mend_as_before(&mut self) -> (usize, Vec<(Offset, Unfit)>) {
        let sound = self.sound.clone();
        self.mend(|from| from_offset(&sound, from))
    }

    fn wound(&self) -> Wound {
        let view = self.log.view();
        let Looked::Wound(wound) = view.look(view.next_damaged(None).unwrap()).unwrap() else {
            panic!("it is damaged")
        };
        wound
    }

    fn check_sound(&mut self, what: &dyn std::fmt::Debug) {
        assert_eq!((self.find(), self.log.is_damaged()), (0, false), "{what:?}");
        assert_eq!(read_all(&self.log.view()), self.sound, "{what:?}");
    }
}

fn from_offset(batches: &[u8], from: Offset) -> Bytes {
    let batches = Batches::new(batches, PartialTail::Refuse).map(Result::unwrap);
    let batches = batches.filter(|batch| batch.header.last_offset() >= from);
    batches.flat_map(|batch| batch.bytes.to_vec()).collect()
}

#[test]
fn whatever_is_damaged_is_put_right_and_stays_so() {
    let mut stored = Stored::new();
    assert!(stored.log.view().segment_count() > 2);
    for (base, file) in stored.files() {
        let starts = stored.starts(base);
        // Nothing vouches for the lowest byte of an offset, nor for an epoch.
        let is_checked = |at: &u64| {
            let within = at - starts[starts.partition_point(|start| start <= at) - 1];
            within != 7 && !(12..16).contains(&within)
        };
        let size = file.len() as u64;
        for (at, mask) in (0..size - 1).filter(is_checked).flat_map(|at| [(at, 1), (at, 0x80)]) {
            for positions in [&[at][..], &[at, at + 1]] {
                let what = (base, positions, mask);
                stored.flip(base, positions, mask);
                assert!(stored.find() > 0, "{what:?}");
                let (mended, left) = stored.mend_as_before();
                assert_eq!((mended, left), (1, vec![]), "{what:?}");
                stored.check_sound(&what);
            }
        }
    }
}

/// As a disk loses whole blocks: nothing is left to compare, and several batches go together.
#[test]
fn what_was_overwritten_is_put_right_by_its_place() {
    let mut stored = Stored::new();
    for (base, file) in stored.files() {
        for start in (0..file.len()).step_by(37) {
            for end in (start + 1..file.len() + 1).step_by(97).chain([file.len()]) {
                for byte in [0, 0xff] {
                    let what = (base, start..end, byte);
                    stored.write(base, start as u64, &vec![byte; end - start]);
                    stored.suspect_all();
                    assert_eq!(stored.mend_as_before().1, vec![], "{what:?}");
                    // Nothing vouches for an epoch.
                    if end - start > 4 {
                        stored.check_sound(&what);
                    }
                    stored.write(base, 0, &file);
                }
            }
        }
    }
}

/// A batch that says that it begins later than it does is found by the one behind it.
#[test]
fn of_two_batches_that_contradict_each_other_the_right_one_is_put_right() {
    let mut stored = Stored::new();
    let base = stored.base(1);
    for (number, start) in stored.starts(base).into_iter().enumerate() {
        stored.flip(base, &[start + 7], 1);
        stored.suspect_all();
        assert_eq!(stored.mend_as_before(), (1, vec![]), "{number}");
        stored.check_sound(&number);
    }
}

#[test]
fn what_does_not_fit_is_not_written() {
    let mut stored = Stored::new();
    let base = stored.base(1);
    // The whole header is gone: it is told by its place.
    stored.write(base, 0, &[0; 61]);
    assert_eq!(stored.find(), 1);
    let (view, wound) = (stored.log.view(), stored.wound());
    assert_eq!(wound.from(), base);
    let records = stored.elsewhere(base);
    let is_unfit = |records: &[u8]| view.patch(&wound, &Bytes::copy_from_slice(records)).unwrap().err();
    assert_eq!(is_unfit(&records), None);
    let first = Batches::new(&records, PartialTail::Ignore).next().unwrap().unwrap();
    let other = |base: Offset, epoch, len: usize| {
        let len = if len == 0 { value(base.0 / 2).len() } else { len };
        placed(&batch(&[1000, 1000], &vec![b'w'; len], Compression::None), base, LeaderEpoch(epoch))
    };
    assert_eq!(is_unfit(&other(base, 0, 0)), None, "it is of the right length");
    let as_if_compacted = |header: &mut BatchHeader| header.record_count -= 1;
    let has_horizon = |header: &mut BatchHeader| {
        header.attributes = header.attributes.with_delete_horizon(true);
    };
    let changed = |change: &dyn Fn(&mut BatchHeader)| {
        let mut header = first.header;
        change(&mut header);
        header.seal(&first.bytes[HEADER_LEN..]);
        [&header.encode()[..], &first.bytes[HEADER_LEN..]].concat()
    };
    let short = |len| Unfit::Short { next: base.plus(2), len };
    let mut damaged = records.to_vec();
    damaged[70] ^= 1;
    for (unfit, records, what) in [
        (Unfit::Nothing, Vec::new(), "nothing"),
        (Unfit::Nothing, records[..first.bytes.len() - 1].to_vec(), "a part"),
        (Unfit::Damaged, damaged, "it is damaged there too"),
        (Unfit::Damaged, [&[0; 3][..], &records].concat(), "garbage"),
        (Unfit::Other, stored.elsewhere(base.plus(2)).to_vec(), "what follows"),
        (short(other(base, 0, 60).len()), other(base, 0, 60).to_vec(), "another length"),
        (Unfit::Epoch, other(base, 1, 0).to_vec(), "another epoch"),
        (Unfit::Epoch, other(base, -1, 0).to_vec(), "no epoch"),
        (Unfit::Other, other(base.plus(-1), 0, 0).to_vec(), "what overlaps with the batch before"),
        (Unfit::Other, other(base.plus(1), 0, 0).to_vec(), "what overlaps with the batch behind"),
        (Unfit::Other, changed(&as_if_compacted), "what lacks a record"),
        (Unfit::Other, changed(&has_horizon), "what was compacted"),
        (Unfit::Damaged, changed(&|header| header.last_offset_delta -= 1), "what cannot be"),
    ] {
        assert_eq!(is_unfit(&records), Some(unfit), "{what}");
    }
    // More is needed than came.
    let (second, len) = (first.bytes.len() as u64, first.bytes.len());
    stored.write(base, second, &[0; 61]);
    assert_eq!(is_unfit(&records[..len + 20]), Some(short(len)));
    stored.write(base, second, &records[len..len + 61]);
    // Nor when the log is cut between any two steps.
    let patch = view.patch(&wound, &records).unwrap().unwrap();
    stored.log.truncate_to(stored.log.log_end().plus(-1), NOW).unwrap();
    assert_eq!(stored.log.mend(&patch).unwrap(), Err(Unfit::Gone));
    let view = stored.log.view();
    assert_eq!(view.patch(&wound, &records).unwrap().err(), Some(Unfit::Gone));
    assert!(matches!(view.look(wound.clone().left()).unwrap(), Looked::Cut));
    stored.log.advance_log_start(stored.log.high_watermark()).unwrap();
    stored.log.delete_before_start(usize::MAX).unwrap().unwrap().remove().unwrap();
    assert!(matches!(stored.log.view().look(wound.left()).unwrap(), Looked::Gone));
    assert!(stored.log.failure().is_none());
}

#[test]
fn only_what_is_committed_is_mended() {
    let mut stored = Stored::new();
    let base = stored.base(1);
    stored.flip(base, &[70], 1);
    stored.find();
    for (high_watermark, unfit) in [(base.plus(1), Some(Unfit::Uncommitted)), (base.plus(2), None)] {
        stored.log.set_high_watermark(high_watermark);
        let (view, wound) = (stored.log.view(), stored.wound());
        assert_eq!(view.patch(&wound, &stored.elsewhere(wound.from())).unwrap().err(), unfit);
    }
}

/// Who read while it was written has found something that was there for a moment.
#[test]
fn what_was_found_while_it_was_mended_is_no_damage() {
    let mut stored = Stored::new();
    let base = stored.base(1);
    stored.flip(base, &[70], 1);
    let view = stored.log.view();
    let ReadPlan::Cold(cold) = view.read(base, 1, view.log_end, true).unwrap() else { panic!() };
    let error = cold.run().unwrap_err();
    assert_eq!(stored.find(), 1);
    assert_eq!(stored.mend_as_before(), (1, vec![]));
    assert!(!stored.log.note_damage(Damage::of(&error).unwrap()));
    stored.flip(base, &[70], 1);
    assert!(stored.log.note_damage(Damage::of(&error).unwrap()), "and can be damaged again");
}

/// The first place that nobody can help with does not keep the others from being put right.
#[test]
fn each_place_is_put_right_for_itself() {
    let config = LogConfig { index_interval_bytes: 1, segment_bytes: 1 << 20, ..config() };
    let mut stored = Stored::new().copy(config.clone());
    let other = stored.copy(config);
    let base = stored.base(0);
    let starts = stored.starts(base);
    assert_eq!(starts.len() as i64, BATCHES);
    for number in [1, 4, 6, 8, 11] {
        stored.flip(base, &[starts[number] + 70], 1);
    }
    other.flip(base, &[starts[4] + 70], 1);
    assert_eq!(stored.find(), 5);
    let (mended, left) = stored.mend(|from| other.answer(from));
    assert_eq!((mended, left), (4, vec![(Offset(8), Unfit::Nothing)]));
    assert!(stored.log.is_damaged());
    for offset in (0..BATCHES * 2).filter(|offset| offset / 2 != 4) {
        assert!(!stored.answer(Offset(offset)).is_empty(), "{offset}");
    }
    other.flip(base, &[starts[4] + 70], 1);
    assert_eq!(stored.mend(|from| other.answer(from)), (1, vec![]));
    stored.check_sound(&"all");
}

/// Records below the log's start are nobody's any more.
#[test]
fn what_is_damaged_below_the_start_is_left() {
    let mut stored = Stored::empty(LogConfig { segment_bytes: 1 << 20, index_interval_bytes: 1, ..config() });
    for index in 0..BATCHES {
        stored.append(&batch(&[1000, 1000], &value(index), Compression::None), false);
    }
    stored.store();
    let starts = stored.starts(Offset::ZERO);
    stored.flip(Offset::ZERO, &[starts[2] + 70], 1);
    stored.flip(Offset::ZERO, &[starts[7] + 70], 1);
    stored.suspect_all();
    stored.log.advance_log_start(Offset(8)).unwrap();
    let sound = stored.elsewhere(Offset(8));
    assert_eq!(stored.mend(|from| if from < Offset(8) { Bytes::new() } else { sound.clone() }).1.len(), 1);
    let sound = stored.elsewhere(Offset(14));
    assert_eq!(stored.mend(|from| if from < Offset(14) { Bytes::new() } else { sound.clone() }), (1, vec![]));
    assert_eq!(stored.find(), 0);
    // And where all of a segment is.
    let mut stored = Stored::new();
    stored.flip(Offset::ZERO, &[70], 1);
    stored.find();
    stored.log.advance_log_start(stored.base(1)).unwrap();
    assert_eq!(stored.mend(|_| panic!("nothing is asked for")), (0, vec![]));
}

/// Not a gap, as if the log were cut at that moment.
#[test]
fn a_file_that_is_shorter_than_it_should_be_is_damaged_and_put_right() {
    let mut stored = Stored::new();
    for (base, file) in stored.files() {
        let starts = stored.starts(base);
        for len in [0, 1, starts[1] - 1, starts[1], starts[1] + 1, file.len() as u64 - 1] {
            stored.log.view().segments.iter().for_each(|segment| segment.log_file().release());
            stored.disk.open(&Stored::path(base), OpenMode::Write).unwrap().set_len(len).unwrap();
            for start in starts.iter().filter(|start| **start >= len) {
                let header = BatchHeader::parse(&file[usize::try_from(*start).unwrap()..]).unwrap();
                assert!(stored.answer(header.base_offset).is_empty(), "{base} {len} {start}");
            }
            assert!(stored.find() > 0, "{base} {len}");
            assert_eq!(stored.mend_as_before(), (1, vec![]), "{base} {len}");
            stored.check_sound(&(base, len));
            assert_eq!(stored.file(base), file);
        }
    }
}

#[test]
fn what_is_put_right_is_synced_as_all_that_is_written() {
    for number in 0..2 {
        // What was not synced is damaged again after a crash, and nothing worse.
        for (seed, is_flushed) in (0..20).flat_map(|seed| [(seed, false), (seed, true)]) {
            let mut stored = Stored::new();
            let number = if number == 0 { 1 } else { stored.log.view().segment_count() - 1 };
            let base = stored.base(number);
            let (before, second) = (stored.file(base), stored.starts(base).get(1).copied());
            let end = second.map_or(before.len(), |second| usize::try_from(second).unwrap());
            stored.flip(base, &[70], 1);
            stored.disk.open(&Stored::path(base), OpenMode::Write).unwrap().sync_data().unwrap();
            stored.find();
            assert!(stored.log.flush_work().is_none());
            assert_eq!(stored.mend_as_before(), (1, vec![]));
            assert!(stored.log.has_unsynced_mends());
            if is_flushed {
                let work = stored.log.flush_work().unwrap();
                let flushed = work.run().unwrap();
                stored.log.mark_flushed(flushed);
                assert!(!stored.log.has_unsynced_mends() && stored.log.flush_work().is_none());
            }
            stored.disk.crash(seed);
            let after = stored.file(base);
            assert_eq!(after.len(), before.len());
            assert_eq!(after[end..], before[end..]);
            assert!(!is_flushed || after == before);
            if number == 1 {
                // Whatever the crash has made of it is put right after the start.
                let args = open_args(stored.log.flushed(), Offset::ZERO, false);
                let (disk, sound) = (Arc::new(stored.disk.clone()), Arc::new(config()));
                stored.log = Log::open(disk, Path::new(DIR), sound, &args).unwrap();
                stored.log.set_high_watermark(stored.log.log_end());
                stored.suspect_all();
                assert_eq!(stored.mend_as_before().1, vec![]);
                stored.check_sound(&seed);
            }
        }
        // A sync or a write that fails takes the log out of service.
        for (on, is_full) in [(FaultOn::Sync, false), (FaultOn::Write, false), (FaultOn::Write, true)] {
            let mut stored = Stored::new();
            let base = stored.base(1);
            stored.flip(base, &[70], 1);
            stored.find();
            let (view, wound) = (stored.log.view(), stored.wound());
            let patch = view.patch(&wound, &stored.elsewhere(base)).unwrap().unwrap();
            let kind = if is_full { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
            stored.disk.fail(on, ".log", 0, kind, None);
            let mended = stored.log.mend(&patch);
            assert_eq!(mended.is_ok(), on == FaultOn::Sync);
            if on == FaultOn::Sync {
                assert!(stored.log.flush().is_err());
            }
            assert_eq!(stored.log.failure().is_none(), is_full, "{on:?}");
            stored.disk.heal();
            if is_full {
                assert_eq!(stored.mend_as_before(), (1, vec![]));
            } else {
                assert!(stored.log.mend(&patch).is_err());
            }
        }
    }
}

/// Bytes of a batch that say that it is as long as the rest of the segment are not believed, nor kept in memory.
#[test]
fn a_length_that_is_wrong_takes_no_memory() {
    let mut stored = Stored::empty(LogConfig { segment_bytes: 1 << 30, ..config() });
    let large = batch(&[1000], &vec![b'v'; 900 << 10], Compression::None);
    for _ in 0..6 {
        stored.append(&large, false);
    }
    stored.store();
    let starts = stored.starts(Offset::ZERO);
    let rest = u32::try_from(stored.file(Offset::ZERO).len() as u64 - starts[1] - 12).unwrap();
    stored.write(Offset::ZERO, starts[1] + 8, &rest.to_be_bytes());
    let mut sight = Sight::of(&stored.log.view().segments[0]).unwrap();
    let size = stored.log.view().segments[0].size();
    assert_eq!(sight.sound_at(starts[1], size).unwrap(), None);
    assert!(sight.sound_at(starts[2], size).unwrap().is_some());
    assert!(sight.piece.capacity() <= 2 * PIECE, "{}", sight.piece.capacity());
    assert!(stored.find() > 0);
    assert_eq!(stored.mend_as_before(), (1, vec![]));
    stored.check_sound(&"length");
}

/// Takes compacted segments over at once.
pub(in crate::storage::log) struct Swapping<'a>(pub &'a mut Log);

impl Watch for Swapping<'_> {
    fn spend(&mut self, _: usize) -> Result<(), Stopped> {
        Ok(())
    }

    fn has_room(&mut self, _: u64) -> bool {
        true
    }

    fn swap(&mut self, cleaned: Cleaned) -> Result<(), SwapError> {
        self.0.swap_in(&cleaned)?.remove().unwrap();
        Ok(())
    }
}

impl Stored {
    fn compact(&mut self, now: i64) {
        let map = MapLimits { bytes: 24_000, load_factor: 1.0, secret: 42 };
        let limits = CleanLimits { map, chunk_bytes: 200 };
        let (basis, config) = (self.log.compaction_basis(), self.log.config().clone());
        let dirt = self.log.view().dirt(&config, None, TimestampMs(now)).unwrap();
        if dirt.upto == dirt.from {
            return;
        }
        clean(&basis, &config, &dirt, &limits, TimestampMs(now), &mut Swapping(&mut self.log)).unwrap();
        self.store();
    }
}

fn keyed(records: &[(u8, bool, u8)]) -> Bytes {
    let mut builder = BatchBuilder::new();
    for (key, has_value, value) in records {
        let value = vec![*value; 3];
        builder.push(TimestampMs(1000), Some(&[*key]), has_value.then_some(&value), &[]);
    }
    builder.build().unwrap()
}

/// Batches of equal size, of which other ones are left here than there: an old value must not be written over a new one.
#[test]
fn a_value_that_was_superseded_is_not_brought_back() {
    for is_compacted_here in [true, false] {
        let compacting = LogConfig { compact: true, segment_bytes: 300, ..config() };
        let mut here = Stored::empty(compacting.clone());
        for index in 0..12 {
            here.append(&keyed(&[(b'a' + index % 3, true, index)]), false);
        }
        here.store();
        let mut there = here.copy(compacting.clone());
        if is_compacted_here {
            here.compact(0);
        } else {
            there.compact(0);
        }
        for compact in [true, false] {
            let config = LogConfig { compact, ..compacting.clone() };
            here.log.update_config(Arc::new(config));
            for (base, file) in here.files() {
                for start in here.starts(base) {
                    for (from, to) in [(0, 61), (0, 21), (20, 24), (60, 64)] {
                        let to = to.min(file.len() as u64 - start).max(from);
                        here.write(base, start + from, &vec![0; usize::try_from(to - from).unwrap()]);
                        here.suspect_all();
                        let _ = here.mend(|from| there.answer(from));
                        let after = here.file(base);
                        let damaged = |at: u64| (from..to).contains(&at.wrapping_sub(start));
                        for (at, (after, before)) in after.iter().zip(&file).enumerate() {
                            assert!(
                                after == before || (*after == 0 && damaged(at as u64)),
                                "{base} {start} {at}"
                            );
                        }
                        here.write(base, 0, &file);
                    }
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Hit {
    segment: usize,
    start: usize,
    len: usize,
    how: How,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Flip(u8),
    Fill(u8),
}

fn hit() -> impl Strategy<Value = Hit> {
    let how = prop_oneof![(1..=255u8).prop_map(How::Flip), any::<u8>().prop_map(How::Fill)];
    let len = prop_oneof![3 => 1..4usize, 2 => 1..100usize, 1 => 1..500usize];
    (0..20usize, 0..600usize, len, how).prop_map(|(segment, start, len, how)| Hit {
        segment,
        start,
        len,
        how,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Two replicas, each compacted when it was, one of them damaged: each byte stays as it is, or becomes what it was. Where nothing
    /// was compacted, all does.
    #[test]
    fn what_is_written_is_what_was_there(
        batches in prop::collection::vec(prop::collection::vec((0..5u8, prop::bool::weighted(0.8), 0..3u8), 1..4), 4..40),
        compactions in (prop::collection::vec(0..3000i64, 0..3), prop::collection::vec(0..3000i64, 0..3)),
        is_compacting in any::<bool>(),
        hits in prop::collection::vec(hit(), 1..5),
    ) {
        let compacting = LogConfig { compact: true, segment_bytes: 400, delete_retention_ms: 500, ..config() };
        let mut here = Stored::empty(compacting.clone());
        let count = batches.len();
        for (index, records) in batches.iter().enumerate() {
            let records: Vec<_> = records.iter().map(|(key, has_value, value)| (b'a' + key, *has_value, *value)).collect();
            here.append(&keyed(&records), index > count / 2);
        }
        here.store();
        let mut there = here.copy(LogConfig { segment_bytes: 700, ..compacting.clone() });
        compactions.0.iter().for_each(|now| here.compact(*now));
        compactions.1.iter().for_each(|now| there.compact(*now));
        here.log.update_config(Arc::new(LogConfig { compact: is_compacting, ..compacting }));
        let before = here.files();
        for Hit { segment, start, len, how } in &hits {
            let (base, file) = &before[segment % before.len()];
            if file.is_empty() {
                continue;
            }
            let (file, start) = (here.file(*base), start % file.len());
            let end = (start + len).min(file.len());
            let bytes: Vec<u8> = file[start..end].iter().map(|byte| match how {
                How::Flip(mask) => byte ^ mask,
                How::Fill(byte) => *byte,
            }).collect();
            here.write(*base, start as u64, &bytes);
        }
        let damaged = here.files();
        here.suspect_all();
        let (_, left) = here.mend(|from| there.answer(from));
        if compactions.0.is_empty() && compactions.1.is_empty() && !is_compacting {
            prop_assert_eq!(left, vec![]);
        }
        for ((_, after), ((base, before), (_, damaged))) in here.files().iter().zip(before.iter().zip(&damaged)) {
            prop_assert_eq!(after.len(), before.len());
            for (at, after) in after.iter().enumerate() {
                prop_assert!(*after == before[at] || *after == damaged[at], "{} at {}", base, at);
            }
        }
    }
}

/// The property above is worth something: much is put right, also of logs that are compacted.
#[test]
fn much_is_put_right_in_compacted_logs() {
    let compacting = LogConfig { compact: true, segment_bytes: 400, ..config() };
    let mut here = Stored::empty(compacting.clone());
    for index in 0..30 {
        here.append(&keyed(&[(b'a' + index % 7, true, index), (b'h' + index, true, index)]), false);
    }
    here.store();
    let mut there = here.copy(compacting);
    here.compact(0);
    there.compact(0);
    let (mut mended, mut count) = (0, 0);
    for (base, _) in here.files() {
        for start in here.starts(base) {
            here.flip(base, &[start + 65], 1);
            here.suspect_all();
            let (put_right, left) = here.mend(|from| there.answer(from));
            mended += put_right;
            if !left.is_empty() {
                here.flip(base, &[start + 65], 1);
            }
            count += 1;
        }
    }
    assert!(count > 10 && mended == count, "{mended} of {count}");
    here.suspect_all();
    assert_eq!(here.mend(|_| Bytes::new()), (0, vec![]));
}

/// Cleaners of replicas are not in step: what was compacted away here still lies there before what is wanted, or the other way.
#[test]
fn a_batch_that_is_left_is_put_right_from_a_replica_that_is_compacted_otherwise() {
    for is_compacted_here in [true, false] {
        let compacting = LogConfig { compact: true, segment_bytes: 400, ..config() };
        let mut here = Stored::empty(compacting.clone());
        for index in 0..30 {
            here.append(&keyed(&[(b'a' + index % 7 * (index % 2), true, index)]), false);
        }
        here.store();
        let mut there = here.copy(compacting);
        if is_compacted_here {
            here.compact(0);
        } else {
            there.compact(0);
        }
        let left: Vec<Offset> = Batches::new(&there.sound, PartialTail::Refuse)
            .map(Result::unwrap)
            .filter(|batch| batch.header.record_count > 0)
            .map(|batch| batch.header.base_offset)
            .collect();
        let mut count = 0;
        for (base, file) in here.files() {
            for start in here.starts(base) {
                let header = BatchHeader::parse(&file[usize::try_from(start).unwrap()..]).unwrap();
                if header.record_count == 0 || !left.contains(&header.base_offset) {
                    continue;
                }
                here.flip(base, &[start + 65], 1);
                let view = here.log.view();
                view.segments.iter().find(|segment| segment.base() == base).unwrap().note_damage(start);
                let wound = here.wound();
                let answers = [Some(wound.from()), wound.says()].into_iter().flatten();
                let view = here.log.view();
                let patches = answers.map(|from| view.patch(&wound, &there.answer(from)).unwrap());
                let patch = patches.filter_map(Result::ok).next().unwrap();
                assert_eq!(here.log.mend(&patch).unwrap(), Ok(()));
                here.check_sound_file(base, &file);
                assert_eq!(here.mend(|_| Bytes::new()), (0, vec![]));
                count += 1;
            }
        }
        assert!(count > 5, "{count}");
    }
}

impl Stored {
    fn check_sound_file(&self, base: Offset, file: &[u8]) {
        assert_eq!(self.file(base), file);
        assert_eq!(read_all(&self.log.view()), self.sound);
    }
}

/// Records were deleted up to the middle of a batch.
#[test]
fn what_straddles_the_start_is_put_right() {
    let mut stored = Stored::new();
    stored.flip(Offset::ZERO, &[70], 1);
    stored.log.advance_log_start(Offset(1)).unwrap();
    stored.suspect_all();
    assert_eq!(stored.mend_as_before(), (1, vec![]));
    assert_eq!(stored.find(), 0);
}
