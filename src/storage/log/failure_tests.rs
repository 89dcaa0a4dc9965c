//! What a log does when the disk fails or is full, and with what an interrupted process left behind.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::names::{FileName, Kind, Stage};
use super::tests::{DIR, batch, open_args, read_all};
use super::*;
use crate::storage::disk::{Disk, OpenMode, read_file};
use crate::storage::sim_disk::{FaultOn, SimDisk};
use crate::wire::compression::Compression;

const NOW: TimestampMs = TimestampMs(0);

fn new_log(disk: &SimDisk, config: LogConfig) -> Log {
    let args = open_args(Offset::ZERO, Offset::ZERO, false);
    Log::create(Arc::new(disk.clone()), Path::new(DIR), Arc::new(config), &args).unwrap()
}

fn small_segments() -> LogConfig {
    LogConfig { segment_bytes: 1000, index_interval_bytes: 200, ..LogConfig::default() }
}

fn append(log: &mut Log, value_len: usize) -> Result<Appended, AppendError> {
    let batch = batch(&[1000], &vec![b'v'; value_len], Compression::None);
    log.append_as_leader(&batch, LeaderEpoch(0), Origin::Client, NOW)
}

fn reopen(disk: &SimDisk, config: LogConfig, recovery_point: i64, clean: bool) -> Log {
    disk.kill();
    let args = open_args(Offset(recovery_point), Offset::ZERO, clean);
    Log::open(Arc::new(disk.clone()), Path::new(DIR), Arc::new(config), &args).unwrap()
}

fn path(base: i64, kind: Kind, stage: Stage) -> PathBuf {
    FileName::live(Offset(base), kind).at(stage).path(Path::new(DIR))
}

fn write(disk: &SimDisk, path: &Path, bytes: &[u8]) {
    let file = disk.open(path, OpenMode::Truncate).unwrap();
    file.write_all_at(&[IoSlice::new(bytes)], 0).unwrap();
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let disk = SimDisk::new();
    let mut log = new_log(&disk, small_segments());
    append(&mut log, 100).unwrap();
    let before = read_all(&log.view());
    disk.set_capacity(Some(disk.used() + 50));
    for _ in 0..3 {
        assert!(matches!(append(&mut log, 100), Err(AppendError::Log(LogError::DiskFull))));
    }
    assert_eq!((log.log_end(), log.failure()), (Offset(1), None));
    assert_eq!(read_all(&log.view()), before);
    log.flush().unwrap();
    disk.set_capacity(None);
    for _ in 0..20 {
        append(&mut log, 100).unwrap();
    }
    assert!(log.view().segment_count() > 2);
    // A roll needs room as well.
    let len = batch(&[1000], &[b'v'; 100], Compression::None).len() as u64;
    while log.active().size() + len <= 1000 {
        disk.set_capacity(Some(disk.used() + len));
        append(&mut log, 100).unwrap();
        disk.set_capacity(Some(disk.used()));
    }
    assert!(matches!(append(&mut log, 100), Err(AppendError::Log(LogError::DiskFull))));
    disk.set_capacity(None);
    append(&mut log, 100).unwrap();
    let (end, stored) = (log.log_end(), read_all(&log.view()));
    log.close().unwrap();
    let log = reopen(&disk, small_segments(), end.0, true);
    assert_eq!((log.log_end(), read_all(&log.view())), (end, stored));
}

#[test]
fn a_failed_write_takes_the_log_out_of_service() {
    let disk = SimDisk::new();
    let mut log = new_log(&disk, small_segments());
    append(&mut log, 10).unwrap();
    disk.fail(FaultOn::Write, ".log", 0, io::ErrorKind::Other, Some(1));
    assert!(matches!(append(&mut log, 10), Err(AppendError::Log(LogError::Io { .. }))));
    assert!(matches!(append(&mut log, 10), Err(AppendError::Log(LogError::Poisoned(_)))));
    assert!(log.flush_work().is_none());
    assert!(matches!(log.flush(), Err(LogError::Poisoned(_))));
    assert!(matches!(log.truncate_to(Offset(0), NOW), Err(LogError::Poisoned(_))));
    assert_eq!(log.log_end(), Offset(1));
}

#[test]
fn a_failed_sync_is_never_repeated() {
    let disk = SimDisk::new();
    let mut log = new_log(&disk, small_segments());
    append(&mut log, 10).unwrap();
    disk.fail(FaultOn::Sync, ".log", 0, io::ErrorKind::Other, Some(1));
    assert!(matches!(log.flush(), Err(LogError::Io { .. })));
    assert!(matches!(log.flush(), Err(LogError::Poisoned(_))));
    assert_eq!(log.flushed(), Offset(0));
}

#[test]
fn leftovers_of_interrupted_work_are_finished_or_removed() {
    let disk = SimDisk::new();
    let mut log = new_log(&disk, small_segments());
    for _ in 0..20 {
        append(&mut log, 100).unwrap();
    }
    let bases: Vec<i64> = log.segments.iter().map(|segment| segment.base().0).collect();
    let stored = read_all(&log.view());
    log.close().unwrap();
    let end = log.log_end().0;
    disk.kill();
    // A finished compaction of the first segment into itself, an unfinished one of a later segment, removed files, an
    // index without a segment.
    let first = read_file(&disk, &path(0, Kind::Log, Stage::Live)).unwrap();
    write(&disk, &path(0, Kind::Log, Stage::Swap), &first);
    write(&disk, &path(0, Kind::OffsetIndex, Stage::Swap), b"");
    write(&disk, &path(0, Kind::TimeIndex, Stage::Swap), b"");
    write(&disk, &path(bases[2], Kind::Log, Stage::Cleaned), b"half");
    write(&disk, &path(bases[2], Kind::Log, Stage::Swap), b"void");
    write(&disk, &path(7000, Kind::Log, Stage::Deleted), b"old");
    write(&disk, &path(8000, Kind::TimeIndex, Stage::Live), b"orphan");
    let log = reopen(&disk, small_segments(), end, true);
    assert_eq!(read_all(&log.view()), stored);
    let names: Vec<String> = disk.list(Path::new(DIR)).unwrap().into_iter().map(|entry| entry.name).collect();
    let left = |name: &&String| {
        FileName::parse(name).is_some_and(|name| name.stage != Stage::Live || name.base > Offset(end))
    };
    assert_eq!(names.iter().filter(left).count(), 0, "{names:?}");
}

#[test]
fn lost_and_damaged_indexes_are_rebuilt() {
    let disk = SimDisk::new();
    let mut log = new_log(&disk, small_segments());
    for _ in 0..20 {
        append(&mut log, 100).unwrap();
    }
    let stored = read_all(&log.view());
    let indexes: Vec<PathBuf> = log
        .segments
        .iter()
        .flat_map(|segment| {
            [Kind::OffsetIndex, Kind::TimeIndex].map(|kind| path(segment.base().0, kind, Stage::Live))
        })
        .collect();
    log.close().unwrap();
    let end = log.log_end().0;
    let sound: Vec<Vec<u8>> = indexes.iter().map(|path| read_file(&disk, path).unwrap()).collect();
    for (index, path) in indexes.iter().enumerate() {
        match index % 3 {
            0 => disk.remove_file(path).unwrap(),
            // What a Kafka broker leaves behind its last entry.
            1 => disk.open(path, OpenMode::Write).unwrap().set_len(sound[index].len() as u64 + 240).unwrap(),
            _ => {}
        }
    }
    let mut log = reopen(&disk, small_segments(), end, true);
    assert_eq!(read_all(&log.view()), stored);
    for timestamp in [0, 1000, 1001] {
        let found = log.view().offset_for_timestamp(TimestampMs(timestamp)).unwrap();
        assert_eq!(found.map(|found| found.offset), (timestamp <= 1000).then_some(Offset(0)));
    }
    log.close().unwrap();
    for (path, sound) in indexes.iter().zip(&sound) {
        assert_eq!(&read_file(&disk, path).unwrap(), sound, "{}", path.display());
    }
}

#[test]
fn damage_ends_the_log_where_it_begins() {
    let disk = SimDisk::new();
    let mut log = new_log(&disk, LogConfig::default());
    for _ in 0..10 {
        append(&mut log, 100).unwrap();
    }
    let stored = read_all(&log.view());
    log.close().unwrap();
    let size = stored.len() / 10;
    // A flipped bit in the sixth batch.
    let mut damaged = stored.clone();
    damaged[5 * size + 80] ^= 1;
    write(&disk, &path(0, Kind::Log, Stage::Live), &damaged);
    let log = reopen(&disk, LogConfig::default(), 3, false);
    assert_eq!((log.log_end(), log.flushed()), (Offset(5), Offset(5)));
    assert_eq!(read_all(&log.view()), stored[..5 * size]);
    let recovered = log.recovered();
    assert_eq!((recovered.truncated_bytes, recovered.lost_flushed), (5 * size as u64, false));
}

#[test]
fn a_log_that_lost_its_end_starts_anew_where_it_was_said_to() {
    let disk = SimDisk::new();
    let mut log = new_log(&disk, LogConfig::default());
    append(&mut log, 100).unwrap();
    log.close().unwrap();
    disk.kill();
    let args = open_args(Offset(50), Offset(50), false);
    let log = Log::open(Arc::new(disk.clone()), Path::new(DIR), Arc::default(), &args).unwrap();
    assert_eq!((log.log_start(), log.log_end()), (Offset(50), Offset(50)));
}

#[test]
fn an_idle_log_holds_no_file() {
    let disk = SimDisk::new();
    let mut log = new_log(&disk, LogConfig::default());
    append(&mut log, 100).unwrap();
    log.close().unwrap();
    let before = disk.counts();
    let mut log = reopen(&disk, LogConfig::default(), 1, true);
    let opening = disk.counts();
    // The epochs, and the end of the segment by its time index.
    assert!(opening.opens - before.opens <= 3, "{before:?} {opening:?}");
    log.close().unwrap();
    assert_eq!(disk.counts().opens, opening.opens);
    assert_eq!(disk.counts().syncs, opening.syncs);
}
