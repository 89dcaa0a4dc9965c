//! Each byte of a batch on disk is damaged in turn, and nobody is served what was not written.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use super::super::names::{FileName, Kind};
use super::super::sight::CutPoint;
use super::super::tests::{DIR, batch, open_args, placed, read_all};
use super::super::{LogConfig, LogView, Origin, ReadPlan};
use super::*;
use crate::fault::{self, Fault};
use crate::storage::disk::{Disk, OpenMode, read_file};
use crate::storage::sim_disk::SimDisk;
use crate::types::LeaderEpoch;
use crate::wire::compression::Compression;

const NOW: TimestampMs = TimestampMs(0);
const BATCHES: i64 = 20;

/// A log of some segments, each batch of the same size, of which nothing is in memory.
struct Stored {
    disk: SimDisk,
    log: Log,
    batch_len: usize,
}

impl Stored {
    fn new() -> Stored {
        let disk = SimDisk::new();
        let config = LogConfig { segment_bytes: 1000, index_interval_bytes: 200, ..LogConfig::default() };
        let args = open_args(Offset::ZERO, Offset::ZERO, false);
        let shared = Arc::new(disk.clone());
        let mut log = Log::create(shared, Path::new(DIR), Arc::new(config), &args).unwrap();
        let batch = batch(&[1000], &[b'v'; 50], Compression::None);
        for _ in 0..BATCHES {
            log.append_as_leader(&batch, LeaderEpoch(0), Origin::Client, NOW).unwrap();
        }
        log.flush().unwrap();
        log.set_high_watermark(Offset(BATCHES));
        log.expire_tail(TimestampMs(i64::MAX));
        Stored { disk, log, batch_len: batch.len() }
    }

    /// Damages the batch with this offset.
    fn damage(&self, offset: i64, at: usize, mask: u8) {
        let view = self.log.view();
        let segment = view.segments.iter().rev().find(|segment| segment.base() <= Offset(offset)).unwrap();
        let position = usize::try_from(offset - segment.base().0).unwrap() * self.batch_len + at;
        let path = FileName::live(segment.base(), Kind::Log).path(Path::new(DIR));
        let bytes = read_file(&self.disk, &path).unwrap();
        let file = self.disk.open(&path, OpenMode::Write).unwrap();
        file.write_all_at(&[IoSlice::new(&[bytes[position] ^ mask])], position as u64).unwrap();
    }
}

fn read(view: &LogView, from: i64, max_bytes: usize) -> io::Result<Vec<u8>> {
    match view.read(Offset(from), max_bytes, view.log_end, true).unwrap() {
        ReadPlan::Ready(parts) => Ok(parts.concat()),
        ReadPlan::Cold(cold) => cold.run().map(Vec::from),
    }
}

#[test]
fn what_was_damaged_is_not_served_and_all_else_is() {
    let mut stored = Stored::new();
    let (sound, len) = (read_all(&stored.log.view()), stored.batch_len);
    let view = stored.log.view();
    assert!(view.segment_count() > 2);
    // The last of a segment, one in its middle, the first of one, and the last of all.
    let bases: Vec<i64> = view.segments.iter().map(|segment| segment.base().0).collect();
    for victim in [bases[1] - 1, bases[1] - 3, bases[1], BATCHES - 1] {
        // Not the lowest byte of its offset, nor its epoch: nothing vouches for those.
        for (at, mask) in
            (0..len).filter(|at| *at != 7 && !(12..16).contains(at)).flat_map(|at| [(at, 1), (at, 0x80)])
        {
            stored.damage(victim, at, mask);
            for (from, max_bytes) in
                (0..BATCHES).flat_map(|from| [(from, 1), (from, 3 * len), (from, 1 << 20)])
            {
                let start = usize::try_from(from).unwrap() * len;
                match read(&view, from, max_bytes) {
                    Ok(bytes) => {
                        assert!(
                            !bytes.is_empty() && sound[start..].starts_with(&bytes),
                            "{victim} {at} {from}"
                        );
                        let end = from + i64::try_from(bytes.len() / len).unwrap();
                        assert!(!(from..end).contains(&victim), "{victim} {at} {from}");
                    }
                    Err(error) => {
                        let damage = Damage::of(&error).expect("what is damaged is named");
                        // What follows may be hidden where it is not told where the batch ends.
                        let hides = from > victim && (at < 12 || at == 16 || (23..27).contains(&at));
                        assert!(from == victim || hides, "{victim} {at} {from}: {damage}");
                    }
                }
            }
            stored.damage(victim, at, mask);
        }
    }
    assert_eq!(read_all(&view), sound);
    stored.log.flush().unwrap();
}

/// Kafka's indexes have no checksum.
#[test]
fn an_index_that_lies_costs_time_and_nothing_else() {
    assert_eq!(misled_by_index(), None);
    // And the test would tell.
    for fault in Fault::OF_READERS {
        assert!(fault::with(fault, misled_by_index).is_some(), "{fault:?} is not found");
    }
}

/// Whom an index misleads with one of its bits turned over: which bit, and who is misled.
fn misled_by_index() -> Option<String> {
    let stored = Stored::new();
    let (sound, len) = (read_all(&stored.log.view()), stored.batch_len);
    let view = stored.log.view();
    let segment = &view.segments[1];
    let path = FileName::live(segment.base(), Kind::OffsetIndex).path(Path::new(DIR));
    let bytes = read_file(&stored.disk, &path).unwrap();
    assert!(bytes.len() >= 16, "{} bytes", bytes.len());
    let file = stored.disk.open(&path, OpenMode::Write).unwrap();
    for (at, mask) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, 1 << bit))) {
        file.write_all_at(&[IoSlice::new(&[bytes[at] ^ mask])], at as u64).unwrap();
        for (from, max_bytes) in (0..BATCHES).flat_map(|from| [(from, 1), (from, 3 * len)]) {
            let start = usize::try_from(from).unwrap() * len;
            let got = read(&view, from, max_bytes).unwrap();
            if got.is_empty() || !sound[start..].starts_with(&got) {
                return Some(format!("{at} {mask}: a reader from {from} on"));
            }
        }
        for offset in (0..view.segments[2].base().since(segment.base())).map(|of| segment.base().plus(of)) {
            let expected = offset.since(segment.base()).unsigned_abs() * len as u64;
            let cut = CutPoint::of(segment, offset, view.segments[2].base()).unwrap();
            if (cut.position, cut.is_behind_damage) != (expected, false) {
                return Some(format!("{at} {mask}: who cuts at {offset}"));
            }
        }
        file.write_all_at(&[IoSlice::new(&[bytes[at]])], at as u64).unwrap();
    }
    None
}

/// A batch that says that it ends earlier is not passed over.
#[test]
fn a_record_is_not_hidden_by_a_wrong_end() {
    let disk = SimDisk::new();
    let args = open_args(Offset::ZERO, Offset::ZERO, false);
    let config = Arc::new(LogConfig::default());
    let mut log = Log::create(Arc::new(disk.clone()), Path::new(DIR), config, &args).unwrap();
    for _ in 0..3 {
        let batch = batch(&[1000, 1000], b"value", Compression::None);
        log.append_as_leader(&batch, LeaderEpoch(0), Origin::Client, NOW).unwrap();
    }
    log.flush().unwrap();
    log.expire_tail(TimestampMs(i64::MAX));
    let stored = Stored { disk, batch_len: read(&log.view(), 0, 1).unwrap().len(), log };
    let path = FileName::live(Offset(0), Kind::Log).path(Path::new(DIR));
    let file = stored.disk.open(&path, OpenMode::Write).unwrap();
    // The end of the second batch becomes its first offset.
    file.write_all_at(&[IoSlice::new(&[0])], (stored.batch_len + 26) as u64).unwrap();
    for from in [2, 3] {
        let error = read(&stored.log.view(), from, 1).unwrap_err();
        assert!(Damage::of(&error).is_some(), "{from}: {error}");
    }
    assert!(read(&stored.log.view(), 4, 1).is_ok());
}

#[test]
fn a_message_of_an_old_format_is_no_damage() {
    let stored = Stored::new();
    let mut message = vec![0; stored.batch_len];
    message[8..12].copy_from_slice(&u32::try_from(stored.batch_len - 12).unwrap().to_be_bytes());
    message[16] = 1;
    let mut crc = flate2::Crc::new();
    crc.update(&message[16..]);
    message[12..16].copy_from_slice(&crc.sum().to_be_bytes());
    let path = FileName::live(Offset(0), Kind::Log).path(Path::new(DIR));
    let file = stored.disk.open(&path, OpenMode::Write).unwrap();
    file.write_all_at(&[IoSlice::new(&message)], 0).unwrap();
    let error = read(&stored.log.view(), 0, 1).unwrap_err();
    assert!(Damage::of(&error).is_none() && error.to_string().contains(".log at 0: "), "{error}");
    // Unless that is damaged in turn, or only looks like one.
    stored.damage(0, 20, 1);
    let error = read(&stored.log.view(), 0, 1).unwrap_err();
    assert!(Damage::of(&error).is_some(), "{error}");
}

#[test]
fn damage_is_taken_down_once_and_only_where_it_is() {
    let mut stored = Stored::new();
    let base = stored.log.view().segments[1].base().0;
    stored.damage(base + 1, 70, 1);
    let error = read(&stored.log.view(), base + 1, 1).unwrap_err();
    let damage = Damage::of(&error).unwrap();
    let path = FileName::live(Offset(base), Kind::Log).path(Path::new(DIR));
    assert!(
        error.to_string().starts_with(&format!("{} at {}: ", path.display(), stored.batch_len)),
        "{error}"
    );
    assert!(!damage.is_known() && stored.log.note_damage(damage));
    assert!(damage.is_known() && !stored.log.note_damage(damage));
    // Found by somebody whose view is of before a cut, it may be anything.
    stored.damage(base + 2, 70, 1);
    let error = read(&stored.log.view(), base + 2, 1).unwrap_err();
    stored.log.truncate_to(Offset(BATCHES - 1), NOW).unwrap();
    assert!(!stored.log.note_damage(Damage::of(&error).unwrap()));
    let error = read(&stored.log.view(), base + 2, 1).unwrap_err();
    assert!(stored.log.note_damage(Damage::of(&error).unwrap()));
}

#[test]
fn what_is_damaged_is_dropped_with_what_follows_and_can_be_had_anew() {
    for at in [70, 8, 16, 3] {
        let mut stored = Stored::new();
        let sound = read_all(&stored.log.view());
        let base = stored.log.view().segments[1].base();
        stored.damage(base.0, at, 0x80);
        let error = read(&stored.log.view(), base.0, 1).unwrap_err();
        assert!(stored.log.note_damage(Damage::of(&error).unwrap()));
        stored.log.drop_damaged(NOW).unwrap();
        assert_eq!((stored.log.log_end(), stored.log.high_watermark()), (base, base), "{at}");
        let missing = usize::try_from(base.0).unwrap() * stored.batch_len;
        stored.log.append_as_follower(&sound[missing..].to_vec().into(), LeaderEpoch(0), NOW).unwrap();
        stored.log.expire_tail(TimestampMs(i64::MAX));
        assert_eq!(read_all(&stored.log.view()), sound);
    }
}

#[test]
fn everything_is_dropped_when_it_is_not_known_where_the_damage_is() {
    let mut stored = Stored::new();
    stored.log.advance_log_start(Offset(3)).unwrap();
    stored.log.drop_damaged(NOW).unwrap();
    assert_eq!((stored.log.log_start(), stored.log.log_end()), (Offset(3), Offset(3)));
    let mut stored = Stored::new();
    stored.damage(1, 70, 1);
    let error = read(&stored.log.view(), 1, 1).unwrap_err();
    assert!(stored.log.note_damage(Damage::of(&error).unwrap()));
    stored.log.drop_damaged(NOW).unwrap();
    assert_eq!((stored.log.log_start(), stored.log.log_end()), (Offset(0), Offset(0)));
}

/// A log that was cut within a gap ends there. Who reads in it, and is overtaken by an append, has found nothing damaged.
#[test]
fn what_is_appended_behind_a_gap_while_somebody_reads_in_it_is_no_damage() {
    let copy = |base| placed(&batch(&[1000], &[b'v'; 50], Compression::None), base, LeaderEpoch(0));
    for ahead in [5, 8] {
        let mut stored = Stored::new();
        let last = stored.log.log_end();
        let cut = last.plus(5);
        stored.log.append_as_follower(&copy(last.plus(9)), LeaderEpoch(0), NOW).unwrap();
        stored.log.truncate_to(cut, NOW).unwrap();
        let overtaken = stored.log.view();
        assert_eq!(overtaken.log_end, cut);
        stored.log.append_as_follower(&copy(last.plus(ahead)), LeaderEpoch(0), NOW).unwrap();
        stored.log.expire_tail(TimestampMs(i64::MAX));
        for from in last.0..cut.0 {
            assert_eq!(read(&overtaken, from, 1).unwrap(), [0; 0], "{from} {ahead}");
            assert_eq!(read(&stored.log.view(), from, 1).unwrap().len(), stored.batch_len);
        }
        // What is wrong below its end is found all the same.
        stored.damage(last.0 - 1, 3, 0x80);
        assert!(Damage::of(&read(&overtaken, last.0 - 1, 1).unwrap_err()).is_some());
    }
}
