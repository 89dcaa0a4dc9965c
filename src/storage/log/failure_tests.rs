//! What a log does when the disk fails or is full, and with what an interrupted process left behind.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::names::{FileName, Kind, Stage};
use super::producer_state::{Coordinated, Verified};
use super::tests::{DIR, batch, open_args, read_all};
use super::*;
use crate::storage::disk::{Disk, OpenMode, read_file};
use crate::storage::sim_disk::{FaultOn, SimDisk};
use crate::types::{ProducerEpoch, ProducerId};
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::compression::Compression;
use crate::wire::control::{EndTxnMarker, TxnResult};

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
        let stored = read_file(&disk, path).unwrap();
        let (entries, behind) = stored.split_at_checked(sound.len()).unwrap();
        assert!(entries == sound && behind.iter().all(|byte| *byte == 0), "{}", path.display());
    }
    // What is no entry goes before another one is written.
    let mut log = reopen(&disk, small_segments(), end, true);
    log.truncate_to(Offset(1), NOW).unwrap();
    let later = batch(&[1001], &[b'v'; 100], Compression::None);
    log.append_as_leader(&later, LeaderEpoch(0), Origin::Client, NOW).unwrap();
    log.close().unwrap();
    let index = read_file(&disk, &path(0, Kind::TimeIndex, Stage::Live)).unwrap();
    let (entries, rest) = index.as_chunks::<12>();
    assert!(rest.is_empty() && entries.iter().all(|entry| *entry != [0; 12]), "{index:?}");
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
    assert_eq!(recovered.cut_at, Some((Offset(0), 5 * size as u64)));
    drop(log);
    // It is told when that had been flushed.
    write(&disk, &path(0, Kind::Log, Stage::Live), &damaged);
    let log = reopen(&disk, LogConfig::default(), 8, false);
    let recovered = log.recovered();
    assert_eq!((recovered.lost_flushed, recovered.cut_at), (true, Some((Offset(0), 5 * size as u64))));
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

#[test]
fn logs_keep_few_files_open_but_all_that_must_be_synced() {
    let disk = SimDisk::new();
    let args = open_args(Offset::ZERO, Offset::ZERO, false);
    let files = args.budgets.files.clone();
    let create = |index: usize| {
        let (disk, dir) = (Arc::new(disk.clone()), PathBuf::from(format!("/log-{index}")));
        Log::create(disk, &dir, Arc::new(LogConfig::default()), &args).unwrap()
    };
    let mut logs: Vec<Log> = (0..20).map(create).collect();
    for log in &mut logs {
        append(log, 100).unwrap();
    }
    let unsynced = files.count();
    assert!(unsynced >= logs.len(), "{unsynced} files are open");
    for _ in 0..2 {
        for log in &mut logs {
            log.flush().unwrap();
            append(log, 100).unwrap();
            log.flush().unwrap();
        }
    }
    assert!(files.count() <= 4, "{} files are open", files.count());
    for log in &logs {
        assert_eq!(log.view().log_end, Offset(3));
        let read = log.view().offset_for_timestamp(TimestampMs(0)).unwrap();
        assert!(read.is_some());
    }
    assert!(files.count() <= 4, "{} files are open", files.count());
    drop(logs);
    assert_eq!(files.count(), 0);
}

#[test]
fn a_roll_that_found_no_room_leaves_nothing_that_hides_later_batches() {
    for (on, name) in [
        (FaultOn::Open, ".snapshot"),
        (FaultOn::Write, ".snapshot"),
        (FaultOn::Open, ".log"),
        (FaultOn::Open, ".index"),
        (FaultOn::Open, ".timeindex"),
    ] {
        for (clean, seed) in
            [(true, None), (false, None), (false, Some(1)), (false, Some(2)), (false, Some(3))]
        {
            let disk = SimDisk::new();
            let mut log = new_log(&disk, small_segments());
            while append(&mut log, 300).is_ok() && log.active().size() < 700 {}
            log.flush().unwrap();
            disk.fail(on, name, 0, io::ErrorKind::StorageFull, Some(1));
            let refused = append(&mut log, 300);
            assert!(matches!(refused, Err(AppendError::Log(LogError::DiskFull))), "{name} {refused:?}");
            // What is smaller still fits into the old segment.
            append(&mut log, 10).unwrap();
            log.flush().unwrap();
            assert_eq!(log.view().segment_count(), 1);
            let (end, stored) = (log.log_end(), read_all(&log.view()));
            if clean {
                log.close().unwrap();
            }
            if let Some(seed) = seed {
                disk.crash(seed);
            }
            let mut log = reopen(&disk, small_segments(), end.0, clean);
            assert_eq!((log.log_end(), read_all(&log.view())), (end, stored), "{name} {clean} {seed:?}");
            append(&mut log, 300).unwrap();
            assert_eq!(log.view().segment_count(), 2);
        }
    }
}

#[test]
fn a_log_is_never_made_in_the_place_of_records() {
    let disk = SimDisk::new();
    let mut log = new_log(&disk, small_segments());
    let make = |disk: &SimDisk| {
        let args = open_args(Offset::ZERO, Offset::ZERO, false);
        Log::create(Arc::new(disk.clone()), Path::new(DIR), Arc::new(small_segments()), &args)
    };
    // An attempt that was interrupted is no obstacle.
    assert!(make(&disk).is_ok());
    append(&mut log, 10).unwrap();
    let stored = read_all(&log.view());
    assert!(matches!(make(&disk), Err(LogError::Io { .. })));
    log.close().unwrap();
    assert_eq!(read_all(&reopen(&disk, small_segments(), 1, true).view()), stored);
}

#[test]
fn a_lost_index_of_a_segment_that_makes_no_sense_stops_nobody() {
    let disk = SimDisk::new();
    let mut log = new_log(&disk, LogConfig { index_interval_bytes: 1, ..LogConfig::default() });
    for _ in 0..10 {
        append(&mut log, 100).unwrap();
    }
    let sound = read_all(&log.view());
    log.close().unwrap();
    let size = sound.len() / 10;
    for (index, base) in [(4, 3_i64), (6, i64::MAX), (8, -5), (9, i64::MIN)] {
        let mut damaged = sound.clone();
        damaged[index * size..index * size + 8].copy_from_slice(&base.to_be_bytes());
        write(&disk, &path(0, Kind::Log, Stage::Live), &damaged);
        for kind in [Kind::OffsetIndex, Kind::TimeIndex] {
            disk.remove_file(&path(0, kind, Stage::Live)).unwrap();
        }
        let log = reopen(&disk, LogConfig { index_interval_bytes: 1, ..LogConfig::default() }, 0, false);
        assert_eq!(log.log_end(), Offset(index as i64));
    }
}

#[test]
fn files_of_deleted_segments_do_not_come_back() {
    let disk = SimDisk::new();
    let mut log = new_log(&disk, small_segments());
    for _ in 0..20 {
        append(&mut log, 100).unwrap();
    }
    log.close().unwrap();
    // After a restart nobody has the files of old segments open.
    let mut log = reopen(&disk, small_segments(), 20, true);
    log.set_high_watermark(Offset(20));
    let before = log.view();
    while log.view().segment_count() == before.segment_count() {
        append(&mut log, 100).unwrap();
    }
    // A sync that is under way knows the segment that was just sealed, too.
    let work = log.flush_work().unwrap();
    log.set_high_watermark(log.log_end());
    log.advance_log_start(log.log_end()).unwrap();
    let doomed = log.delete_before_start(usize::MAX).unwrap().unwrap();
    let flushed = work.run().unwrap();
    assert!(log.mark_flushed(flushed));
    let read = before.read(Offset(0), 1 << 20, Offset(20), true).unwrap();
    let ReadPlan::Cold(read) = read else { panic!("in memory") };
    // Who reads an older view is served until the files go.
    assert!(!read.run().unwrap().is_empty());
    doomed.remove().unwrap();
    for segment in before.segments.iter() {
        segment.log_file().release();
    }
    assert_eq!(read.run().unwrap_err().kind(), io::ErrorKind::NotFound);
    let _ = before.offset_for_timestamp(TimestampMs(1));
    let names = disk.list(Path::new(DIR)).unwrap();
    let old = |name: FileName| name.base < log.active().base() && name.kind != Kind::ProducerSnapshot;
    let left: Vec<_> = names.iter().filter(|entry| FileName::parse(&entry.name).is_some_and(old)).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Opens the log again after each kind of stop and from each recovery point, and compares its epochs.
fn check_epochs_after_stops(stop: impl Fn() -> (SimDisk, Log)) {
    for clean in [true, false] {
        for seed in [None, Some(1), Some(2)] {
            let (disk, mut log) = stop();
            let (end, epochs) = (log.log_end(), log.epochs().clone());
            assert_eq!(log.flushed(), end);
            if clean {
                log.close().unwrap();
            }
            if let Some(seed) = seed {
                disk.crash(seed);
            }
            for recovery_point in (0..=end.0).rev() {
                // Also on a disk that is still full: what was found is kept in memory until there is room.
                let log = reopen(&disk, small_segments(), recovery_point, clean);
                assert_eq!(log.log_end(), end);
                assert_eq!(log.epochs(), &epochs, "{clean} {seed:?} {recovery_point}");
            }
            disk.set_capacity(None);
            disk.heal();
            reopen(&disk, small_segments(), end.0, clean).close().unwrap();
            let opened = reopen(&disk, small_segments(), end.0, true);
            assert_eq!(opened.epochs(), &epochs);
            assert!(!opened.epoch_changes.pending(), "the file is complete again");
        }
    }
}

#[test]
fn a_damaged_file_of_epochs_is_made_anew_from_the_batches() {
    let disk = SimDisk::new();
    let mut log = new_log(&disk, small_segments());
    for epoch in [0, 3, 4] {
        append_in(&mut log, epoch, 9);
    }
    let epochs = log.epochs().clone();
    log.close().unwrap();
    for clean in [true, false] {
        let file = Path::new(DIR).join(names::LEADER_EPOCHS);
        let sound = read_file(&disk, &file).unwrap();
        write(&disk, &file, b"\xb0\n3\n");
        let mut log = reopen(&disk, small_segments(), 0, clean);
        assert!(log.recovered().lost_epochs);
        assert_eq!(log.epochs(), &epochs);
        log.close().unwrap();
        assert_eq!(read_file(&disk, &file).unwrap(), sound);
        assert!(!reopen(&disk, small_segments(), 0, clean).recovered().lost_epochs);
    }
}

fn append_in(log: &mut Log, epoch: i32, count: usize) {
    let batch = batch(&[1000], &[b'v'; 200], Compression::None);
    for _ in 0..count {
        log.append_as_leader(&batch, LeaderEpoch(epoch), Origin::Client, NOW).unwrap();
    }
    log.flush().unwrap();
}

fn no_room_for_epochs(disk: &SimDisk) {
    disk.fail(FaultOn::Write, "leader-epoch-checkpoint", 0, io::ErrorKind::StorageFull, None);
}

#[test]
fn epochs_for_which_there_was_no_room_are_found_in_the_batches() {
    // How many batches each epoch writes: within a segment, over several, at the start of one.
    for counts in [&[3][..], &[1, 1, 1], &[2, 7, 1], &[9, 9, 9], &[12, 1, 12]] {
        for stored in [0, 2] {
            check_epochs_after_stops(|| {
                let disk = SimDisk::new();
                let mut log = new_log(&disk, small_segments());
                if stored > 0 {
                    append_in(&mut log, 1, stored);
                }
                no_room_for_epochs(&disk);
                for (epoch, count) in (2..).zip(counts) {
                    append_in(&mut log, epoch * 2, *count);
                }
                (disk, log)
            });
        }
    }
}

#[test]
fn epochs_that_a_cut_took_do_not_outlive_it_on_a_full_disk() {
    for (cut, epoch) in [(6, 7), (6, 3), (2, 4), (0, 9)] {
        check_epochs_after_stops(|| {
            let disk = SimDisk::new();
            let mut log = new_log(&disk, small_segments());
            append_in(&mut log, 1, 4);
            append_in(&mut log, 2, 2);
            append_in(&mut log, 5, 6);
            no_room_for_epochs(&disk);
            log.truncate_to(Offset(cut), NOW).unwrap();
            append_in(&mut log, epoch, 9);
            (disk, log)
        });
    }
}

#[test]
fn a_cut_leaves_transactions_undecided_whose_markers_are_not_committed() {
    for result in [TxnResult::Commit, TxnResult::Abort] {
        let disk = SimDisk::new();
        let mut log = new_log(&disk, small_segments());
        let mut builder =
            BatchBuilder::new().producer(ProducerId(1), ProducerEpoch(0), 0).transactional(true);
        builder.push(TimestampMs(1000), None, Some(b"value"), &[]);
        let coordinated = Coordinated { verified: Verified::Waived, ..Coordinated::default() };
        let records = builder.build().unwrap();
        log.append_coordinated(&records, LeaderEpoch(0), Origin::Client, coordinated, NOW).unwrap();
        append(&mut log, 100).unwrap();
        log.set_high_watermark(Offset(2));
        let marker = EndTxnMarker { result, coordinator_epoch: 0, timestamp: TimestampMs(1000) };
        let marker = marker.batch(ProducerId(1), ProducerEpoch(0), Offset(2), LeaderEpoch(0));
        log.append_as_leader(&marker, LeaderEpoch(0), Origin::Coordinator, NOW).unwrap();
        // A snapshot is taken that knows of no open transaction.
        while log.view().segment_count() < 3 {
            append(&mut log, 100).unwrap();
        }
        assert_eq!((log.high_watermark(), log.last_stable()), (Offset(2), Offset(0)));
        log.truncate_to(log.log_end().plus(-1), NOW).unwrap();
        assert_eq!((log.high_watermark(), log.last_stable()), (Offset(2), Offset(0)));
        log.set_high_watermark(Offset(3));
        assert_eq!(log.last_stable(), Offset(3));
    }
}

#[test]
fn a_log_that_finds_no_room_when_it_is_closed_loses_nothing_and_says_so() {
    // Its index waits in memory, or its producers do.
    for name in [".timeindex", ".index", ".snapshot"] {
        let disk = SimDisk::new();
        let mut log = new_log(&disk, small_segments());
        for sequence in 0..4 {
            let mut builder = crate::wire::batch_builder::BatchBuilder::new().producer(
                crate::types::ProducerId(1),
                crate::types::ProducerEpoch(0),
                sequence,
            );
            builder.push(TimestampMs(1000), None, Some(&[b'v'; 100]), &[]);
            log.append_as_leader(&builder.build().unwrap(), LeaderEpoch(0), Origin::Client, NOW).unwrap();
        }
        let before = read_all(&log.view());
        disk.fail(FaultOn::Write, name, 0, io::ErrorKind::StorageFull, None);
        assert!(matches!(log.close(), Err(LogError::DiskFull)), "{name}");
        assert!(matches!(append(&mut log, 1), Err(AppendError::Log(LogError::Poisoned(_)))));
        disk.heal();
        let log = reopen(&disk, small_segments(), 4, false);
        assert_eq!((read_all(&log.view()), log.producers().is_empty()), (before, false), "{name}");
    }
}

/// Writes a record of a transaction, or ends it.
fn in_transaction(log: &mut Log, producer_id: i64, end: Option<TxnResult>) -> Result<Appended, AppendError> {
    let batch = transactional(producer_id, end);
    let origin = if end.is_some() { Origin::Coordinator } else { Origin::Client };
    let coordinated = Coordinated { verified: Verified::Waived, ..Coordinated::default() };
    log.append_coordinated(&batch, LeaderEpoch(0), origin, coordinated, NOW)
}

fn transactional(producer_id: i64, end: Option<TxnResult>) -> bytes::Bytes {
    let (id, epoch) = (ProducerId(producer_id), ProducerEpoch(0));
    if let Some(result) = end {
        let marker = EndTxnMarker { result, coordinator_epoch: 0, timestamp: TimestampMs(1000) };
        return marker.batch(id, epoch, Offset(0), LeaderEpoch(0));
    }
    let mut builder = BatchBuilder::new().producer(id, epoch, 0).transactional(true);
    builder.push(TimestampMs(1000), None, Some(b"value"), &[]);
    builder.build().unwrap()
}

/// The aborted transactions by the offsets of their first records and their markers.
fn aborted(log: &Log) -> Vec<(i64, i64)> {
    let aborted = log.view().collect_aborted(Offset(0), log.log_end()).unwrap();
    aborted.iter().map(|txn| (txn.first_offset.0, txn.last_offset.0)).collect()
}

/// Opens the log again after each kind of stop, and looks what is aborted.
fn check_aborted_after_stops(stop: impl Fn() -> (SimDisk, Log), expected: &[(i64, i64)]) {
    for (clean, seed) in [(true, None), (false, None), (false, Some(1)), (false, Some(2)), (false, Some(3))] {
        let (disk, mut log) = stop();
        assert_eq!(aborted(&log), expected);
        log.flush().unwrap();
        let (end, stored) = (log.log_end(), read_all(&log.view()));
        if clean {
            log.close().unwrap();
        }
        if let Some(seed) = seed {
            disk.crash(seed);
        }
        disk.heal();
        for recovery_point in [end.0, 0] {
            let mut log = reopen(&disk, LogConfig::default(), recovery_point, clean);
            assert_eq!((log.log_end(), read_all(&log.view())), (end, stored.clone()));
            assert_eq!(aborted(&log), expected, "{clean} {seed:?} {recovery_point}");
            let found = verify::verify(&disk, Path::new(DIR)).unwrap();
            assert!(found.findings.iter().all(|finding| !finding.is_damage), "{found:?}");
            log.close().unwrap();
        }
    }
}

#[test]
fn an_abort_for_which_there_is_no_room_is_refused_and_comes_later() {
    let points = [(FaultOn::Open, ".txnindex"), (FaultOn::Write, ".txnindex"), (FaultOn::Write, ".log")];
    for (on, name) in points {
        // The first of a segment, and one that follows others.
        for before in 0..2 {
            if before > 0 && on == FaultOn::Open {
                continue;
            }
            let first = before as i64 * 2;
            let refused = || {
                let disk = SimDisk::new();
                let mut log = new_log(&disk, LogConfig::default());
                for _ in 0..before {
                    in_transaction(&mut log, 1, None).unwrap();
                    in_transaction(&mut log, 1, Some(TxnResult::Abort)).unwrap();
                }
                in_transaction(&mut log, 7, None).unwrap();
                let (end, stored) = (log.log_end(), read_all(&log.view()));
                disk.fail(on, name, 0, io::ErrorKind::StorageFull, None);
                for _ in 0..2 {
                    let refused = in_transaction(&mut log, 7, Some(TxnResult::Abort));
                    assert!(matches!(refused, Err(AppendError::Log(LogError::DiskFull))), "{refused:?}");
                    assert_eq!((log.failure(), log.log_end()), (None, end));
                    assert_eq!(read_all(&log.view()), stored);
                }
                // The transaction is open as before.
                log.set_high_watermark(end);
                assert_eq!(log.last_stable(), Offset(first));
                (disk, log)
            };
            let known = &[(0, 1), (first, first + 2)][..before];
            check_aborted_after_stops(refused, known);
            check_aborted_after_stops(
                || {
                    let (disk, mut log) = refused();
                    disk.heal();
                    in_transaction(&mut log, 7, Some(TxnResult::Commit)).unwrap();
                    (disk, log)
                },
                known,
            );
            let mut all = known.to_vec();
            all.push((first, first + 2));
            check_aborted_after_stops(
                || {
                    let (disk, mut log) = refused();
                    if name == ".txnindex" {
                        // What needs no index goes on.
                        append(&mut log, 10).unwrap();
                    }
                    disk.heal();
                    if name != ".txnindex" {
                        append(&mut log, 10).unwrap();
                    }
                    in_transaction(&mut log, 7, Some(TxnResult::Abort)).unwrap();
                    (disk, log)
                },
                &all,
            );
        }
    }
}

#[test]
fn an_abort_whose_batch_was_not_written_is_none_after_a_crash() {
    for seed in 0..8 {
        let disk = SimDisk::new();
        let mut log = new_log(&disk, LogConfig::default());
        disk.sync_dir(Path::new("/")).unwrap();
        in_transaction(&mut log, 7, None).unwrap();
        log.flush().unwrap();
        disk.fail(FaultOn::Write, ".log", 0, io::ErrorKind::Other, Some(1));
        assert!(in_transaction(&mut log, 7, Some(TxnResult::Abort)).is_err());
        assert!(log.failure().is_some());
        if seed > 0 {
            disk.crash(seed);
        }
        let mut log = reopen(&disk, LogConfig::default(), 1, false);
        assert_eq!((log.log_end(), aborted(&log)), (Offset(1), vec![]));
        in_transaction(&mut log, 7, Some(TxnResult::Abort)).unwrap();
        assert_eq!(aborted(&log), [(0, 1)]);
    }
}

#[test]
fn a_follower_without_room_for_aborts_copies_them_later() {
    let mut copied = Vec::new();
    let records =
        [(1, None), (2, None), (1, Some(TxnResult::Abort)), (3, None), (3, Some(TxnResult::Commit))];
    for (offset, (producer_id, end)) in (0..).zip(records.into_iter().chain([(2, Some(TxnResult::Abort))])) {
        let mut batch = transactional(producer_id, end).to_vec();
        batch[..8].copy_from_slice(&i64::to_be_bytes(offset));
        copied.extend(batch);
    }
    let copied = bytes::Bytes::from(copied);
    for on in [FaultOn::Open, FaultOn::Write] {
        check_aborted_after_stops(
            || {
                let disk = SimDisk::new();
                let mut log = new_log(&disk, LogConfig::default());
                disk.fail(on, ".txnindex", 0, io::ErrorKind::StorageFull, Some(2));
                for _ in 0..2 {
                    let refused = log.append_as_follower(&copied, LeaderEpoch(0), NOW);
                    assert!(matches!(refused, Err(AppendError::Log(LogError::DiskFull))), "{refused:?}");
                    assert_eq!((log.failure(), log.log_end(), aborted(&log)), (None, Offset(0), vec![]));
                }
                log.append_as_follower(&copied, LeaderEpoch(0), NOW).unwrap();
                // What the leader's index says of the last stable offset, too.
                let stable = log.view().collect_aborted(Offset(0), Offset(6)).unwrap();
                assert_eq!(stable.iter().map(|txn| txn.last_stable_offset.0).collect::<Vec<_>>(), [1, 6]);
                (disk, log)
            },
            &[(0, 2), (1, 5)],
        );
    }
}

/// A log whose segments all have aborted transactions, committed and flushed.
fn log_of_aborts(disk: &SimDisk) -> Log {
    let mut log = new_log(disk, small_segments());
    disk.sync_dir(Path::new("/")).unwrap();
    for producer_id in 1..20 {
        in_transaction(&mut log, producer_id, None).unwrap();
        append(&mut log, 200).unwrap();
        in_transaction(&mut log, producer_id, Some(TxnResult::Abort)).unwrap();
    }
    log.flush().unwrap();
    log.set_high_watermark(log.log_end());
    log
}

#[test]
fn old_segments_go_at_once_where_there_is_no_room_for_their_longer_names() {
    const DELETED: usize = 3;
    // Any of the renames, of three indexes and the batches of each segment and of producers, and all of them from one on.
    for (after, times) in (0..14).map(|after| (after, Some(1))).chain([(0, None), (6, None)]) {
        for seed in [None, Some(1), Some(2), Some(3)] {
            let disk = SimDisk::new();
            let mut log = log_of_aborts(&disk);
            let (before, stored, all, end) =
                (log.view(), read_all(&log.view()), aborted(&log), log.log_end());
            let held: Vec<_> =
                before.segments.iter().map(|s| (s.size(), s.log_file().get().unwrap())).collect();
            before.segments.iter().for_each(|segment| segment.txn_index.file().release());
            let start = before.segments[DELETED].base();
            log.advance_log_start(start).unwrap();
            disk.fail(FaultOn::Rename, "", after, io::ErrorKind::StorageFull, times);
            let doomed = log.delete_before_start(usize::MAX).unwrap().unwrap();
            disk.heal();
            assert_eq!(
                (log.failure(), doomed.count(), log.view().segments[0].base()),
                (None, DELETED, start)
            );
            // Who has the files open reads on. Who has not finds nothing, and never less than there was.
            let reads = held.iter().map(|(size, file)| file.read_vec(*size as usize, 0).unwrap());
            assert_eq!(reads.collect::<Vec<_>>().concat(), stored);
            match before.collect_aborted(Offset(0), end) {
                Ok(found) => assert_eq!(found.len(), all.len()),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound),
            }
            if seed.is_none() {
                doomed.remove().unwrap();
                let names = disk.list(Path::new(DIR)).unwrap();
                let names: Vec<_> = names.iter().filter_map(|entry| FileName::parse(&entry.name)).collect();
                assert!(
                    names.iter().all(|name| name.base >= start && name.stage == Stage::Live),
                    "{names:?}"
                );
            }
            append(&mut log, 200).unwrap();
            log.flush().unwrap();
            if let Some(seed) = seed {
                disk.crash(seed);
            }
            let log = reopen(&disk, small_segments(), end.0 + 1, false);
            let gone = before.segments.iter().take_while(|segment| segment.base() < log.log_start());
            let gone: u64 = gone.map(|segment| segment.size()).sum();
            let read = read_all(&log.view());
            assert!(log.log_start() <= start && log.log_end() == end.plus(1) && gone < stored.len() as u64);
            assert_eq!(read[..stored.len() - gone as usize], stored[gone as usize..]);
            let all: Vec<_> = all.into_iter().filter(|(_, marker)| *marker >= log.log_start().0).collect();
            assert_eq!(aborted(&log), all, "{after} {times:?} {seed:?}");
        }
    }
}
