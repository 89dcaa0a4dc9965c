//! Retention against the settings, on the simulated disk.

use std::path::Path;
use std::sync::Arc;

use super::super::tests::{DIR, batch, open_args, read_all};
use super::super::*;
use crate::storage::disk::Disk;
use crate::storage::sim_disk::SimDisk;
use crate::wire::compression::Compression;

/// Every segment takes one of the batches below.
const SEGMENT_BYTES: u32 = 300;
const BATCH_BYTES: i64 = 279;

fn config() -> LogConfig {
    LogConfig { segment_bytes: SEGMENT_BYTES, retention_ms: -1, ..LogConfig::default() }
}

struct Old {
    disk: SimDisk,
    log: Log,
    now: i64,
}

impl Old {
    /// A log with a segment for each timestamp, its high watermark at its end.
    fn new(timestamps: &[i64]) -> Old {
        let disk = SimDisk::new();
        disk.create_dir_all(Path::new("/data")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let args = open_args(Offset::ZERO, Offset::ZERO, false);
        let log = Log::create(Arc::new(disk.clone()), Path::new(DIR), Arc::new(config()), &args).unwrap();
        let mut old = Old { disk, log, now: 0 };
        for timestamp in timestamps {
            old.append(*timestamp);
        }
        old
    }

    fn append(&mut self, timestamp: i64) {
        let batch = batch(&[timestamp], &[b'v'; 206], Compression::None);
        assert_eq!(batch.len() as i64, BATCH_BYTES);
        self.disk.set_now(TimestampMs(self.now));
        let now = TimestampMs(self.now);
        self.log.append_as_leader(&batch, LeaderEpoch(0), Origin::Client, now).unwrap();
        self.log.set_high_watermark(self.log.log_end());
    }

    fn set(&mut self, change: impl FnOnce(&mut LogConfig)) {
        let mut config = config();
        change(&mut config);
        self.log.update_config(Arc::new(config));
    }

    fn retain(&mut self, at_most: usize) -> Retained {
        self.log.retain(TimestampMs(self.now), at_most).unwrap()
    }

    /// How many segments are left, after all that are due went.
    fn left(&mut self) -> usize {
        let retained = self.retain(usize::MAX);
        assert!(!retained.more && !self.retain(usize::MAX).more);
        let view = self.log.view();
        assert_eq!(view.log_start, view.segments[0].base());
        read_all(&view);
        view.segment_count()
    }
}

#[test]
fn by_size_only_what_is_too_much_goes() {
    for (limit, left) in
        [(-1, 4), (i64::MAX, 4), (4 * BATCH_BYTES, 4), (3 * BATCH_BYTES + 1, 4), (3 * BATCH_BYTES, 3), (1, 1)]
    {
        let mut old = Old::new(&[10, 20, 30, 40]);
        old.set(|config| config.retention_bytes = limit);
        assert_eq!(old.left(), left, "{limit}");
        assert_eq!(old.log.log_start(), Offset(4 - left as i64));
    }
    // Nothing at all is kept: a new segment takes the place of the last.
    let mut old = Old::new(&[10, 20]);
    old.set(|config| config.retention_bytes = 0);
    assert_eq!(old.left(), 1);
    assert_eq!((old.log.log_start(), old.log.log_end()), (Offset(2), Offset(2)));
    assert_eq!(old.log.view().size_in_bytes(), 0);
    old.append(30);
    assert_eq!((old.log.log_start(), old.log.log_end()), (Offset(2), Offset(3)));
}

#[test]
fn by_time_the_newest_record_of_a_segment_counts() {
    let mut old = Old::new(&[100, 200, 50, 300]);
    old.set(|config| config.retention_ms = 100);
    for (now, left) in [(200, 4), (201, 3), (300, 3), (301, 1), (400, 1)] {
        old.now = now;
        assert_eq!(old.left(), left, "at {now}");
    }
    // The active segment is old as well. Later nothing is left that could go.
    old.now = 401;
    for _ in 0..2 {
        assert_eq!(old.left(), 1);
        assert_eq!((old.log.log_start(), old.log.log_end()), (Offset(4), Offset(4)));
        old.now += 1_000_000;
    }
    // A record from the future holds what follows it.
    let mut old = Old::new(&[5000, 10, 10]);
    old.set(|config| config.retention_ms = 100);
    old.now = 1000;
    assert_eq!(old.left(), 3);
    old.now = 5101;
    assert_eq!(old.left(), 1);
}

#[test]
fn without_timestamps_the_time_of_writing_counts() {
    let mut old = Old::new(&[]);
    for now in [1000, 2000, 3000] {
        old.now = now;
        old.append(-1);
    }
    old.set(|config| config.retention_ms = 500);
    for (now, left) in [(1500, 3), (1501, 2), (2501, 1)] {
        old.now = now;
        assert_eq!(old.left(), left, "at {now}");
    }
}

#[test]
fn nothing_goes_that_is_not_committed() {
    for high_watermark in 0..=4 {
        let mut old = Old::new(&[]);
        for _ in 0..4 {
            let batch = batch(&[1], &[b'v'; 206], Compression::None);
            old.log.append_as_leader(&batch, LeaderEpoch(0), Origin::Client, TimestampMs(0)).unwrap();
        }
        old.log.set_high_watermark(Offset(high_watermark));
        old.set(|config| (config.retention_bytes, config.retention_ms) = (0, 0));
        old.now = 1000;
        old.left();
        assert_eq!(old.log.log_start(), Offset(high_watermark));
        assert_eq!((old.log.high_watermark(), old.log.log_end()), (Offset(high_watermark), Offset(4)));
    }
}

#[test]
fn only_the_policy_delete_deletes_by_size_and_time() {
    for (compact, delete, left) in [(true, false, 3), (false, false, 3), (true, true, 1), (false, true, 1)] {
        let mut old = Old::new(&[10, 20, 30, 40]);
        old.set(|config| {
            (config.retention_bytes, config.retention_ms) = (0, 0);
            (config.compact, config.delete) = (compact, delete);
        });
        old.now = 1000;
        // What lies before the log's start goes in any case.
        old.log.advance_log_start(Offset(1)).unwrap();
        assert_eq!(old.left(), left, "{compact} {delete}");
    }
}

#[test]
fn a_few_go_at_a_time_and_their_files_later() {
    let mut old = Old::new(&[10, 20, 30, 40, 50]);
    old.set(|config| config.retention_bytes = 2 * BATCH_BYTES);
    let before = old.log.view();
    let mut doomed = Vec::new();
    for (more, start) in [(true, 2), (false, 3)] {
        let retained = old.retain(2);
        doomed.extend(retained.doomed);
        assert_eq!((retained.more, old.log.log_start()), (more, Offset(start)));
    }
    assert_eq!(doomed.iter().map(Doomed::count).sum::<usize>(), 3);
    // Who still reads an older view is served, also when the files are opened only now.
    for segment in before.segments.iter() {
        segment.log_file().release();
    }
    assert_eq!(read_all(&before).len() as i64, 5 * BATCH_BYTES);
    let files = |disk: &SimDisk| disk.list(Path::new(DIR)).unwrap().len();
    let with_doomed = files(&old.disk);
    for doomed in &doomed {
        doomed.remove().unwrap();
    }
    // Batches and two indexes of each, and the producers at all bases but the first.
    assert_eq!(with_doomed - files(&old.disk), 3 * 3 + 2);
    assert_eq!(read_all(&old.log.view()).len() as i64, 2 * BATCH_BYTES);
}

#[test]
fn after_a_crash_the_log_starts_at_a_segment_and_never_behind_its_start() {
    for seed in 0..40 {
        let mut old = Old::new(&[10, 20, 30, 40, 50, 60]);
        old.log.flush().unwrap();
        old.set(|config| config.retention_ms = 100);
        old.now = 140;
        let stored = read_all(&old.log.view());
        let retained = old.retain(usize::MAX);
        assert_eq!(old.log.log_start(), Offset(3));
        if seed % 2 == 0 {
            old.log.flush().unwrap();
        }
        if seed % 3 == 0 {
            retained.doomed.unwrap().remove().unwrap();
        }
        old.disk.crash(seed);
        let args = open_args(Offset(6), Offset::ZERO, false);
        let log = Log::open(Arc::new(old.disk.clone()), Path::new(DIR), Arc::new(config()), &args).unwrap();
        let start = log.log_start().0;
        assert!(start <= 3 && log.log_end() == Offset(6), "{start}");
        assert_eq!(read_all(&log.view()), stored[(start * BATCH_BYTES) as usize..]);
    }
}
