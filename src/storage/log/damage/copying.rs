//! What the checksum of a batch does not cover is damaged, bit by bit: its base offset, its length and its leader epoch. Whoever copies
//! it finds that: the cleaner, a copy in another directory, recovery, and a follower.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::super::compaction::{CleanError, CleanLimits, CleanStats, MapLimits, clean};
use super::super::mend::tests::Swapping;
use super::super::names::{FileName, Kind};
use super::super::succession::CopyError;
use super::super::tests::{DIR, open_args, placed, read_all};
use super::super::{AppendError, LogConfig, Origin};
use super::*;
use crate::storage::disk::{Disk, OpenMode, read_file};
use crate::storage::sim_disk::SimDisk;
use crate::wire::batch::{CRC_FROM, LEADER_EPOCH_AT, MAGIC};
use crate::wire::batch_builder::BatchBuilder;

const NOW: TimestampMs = TimestampMs(0);
const BATCHES: i64 = 22;
const COPY: &str = "/other/topic-0";

/// A log of some segments, of two epochs, none of it in memory.
struct Stored {
    disk: SimDisk,
    log: Log,
    len: usize,
}

fn config() -> Arc<LogConfig> {
    let (compact, delete) = (true, false);
    Arc::new(LogConfig {
        segment_bytes: 500,
        index_interval_bytes: 150,
        compact,
        delete,
        ..LogConfig::default()
    })
}

fn batch(number: i64) -> Bytes {
    let mut builder = BatchBuilder::new();
    for key in [b"a", b"b"] {
        builder.push(TimestampMs(1000 + number), Some(key), Some(&number.to_be_bytes()), &[]);
    }
    builder.build().unwrap()
}

impl Stored {
    fn new() -> Stored {
        let disk = SimDisk::new();
        let args = open_args(Offset::ZERO, Offset::ZERO, false);
        let mut log = Log::create(Arc::new(disk.clone()), Path::new(DIR), config(), &args).unwrap();
        for number in 0..BATCHES {
            let epoch = LeaderEpoch(if number < BATCHES / 2 { 2 } else { 5 });
            log.append_as_leader(&batch(number), epoch, Origin::Client, NOW).unwrap();
        }
        log.flush().unwrap();
        log.set_high_watermark(log.log_end());
        log.expire_tail(TimestampMs(i64::MAX));
        let len = batch(0).len();
        Stored { disk, log, len }
    }

    /// Turns a bit of the batch with this number.
    fn turn(&self, number: i64, bit: usize) {
        let view = self.log.view();
        let segment =
            view.segments.iter().rev().find(|segment| segment.base() <= Offset(2 * number)).unwrap();
        let position = usize::try_from(number - segment.base().0 / 2).unwrap() * self.len + bit / 8;
        let path = FileName::live(segment.base(), Kind::Log).path(Path::new(DIR));
        let byte = read_file(&self.disk, &path).unwrap()[position] ^ (1 << (bit % 8));
        let file = self.disk.open(&path, OpenMode::Write).unwrap();
        file.write_all_at(&[IoSlice::new(&[byte])], position as u64).unwrap();
        file.sync_data().unwrap();
    }

    fn clean(&mut self, cleaned: Option<Offset>) -> Result<CleanStats, CleanError> {
        let map = MapLimits { bytes: 24_000, load_factor: 1.0, secret: 42 };
        let limits = CleanLimits { map, chunk_bytes: 200 };
        let (basis, config) = (self.log.compaction_basis(), self.log.config().clone());
        let dirt = self.log.view().dirt(&config, cleaned, NOW).unwrap();
        assert!(dirt.upto > dirt.from);
        clean(&basis, &config, &dirt, &limits, NOW, &mut Swapping(&mut self.log))
    }
}

/// All bits before the checksum, but for the magic.
fn bits() -> impl Iterator<Item = usize> {
    (0..CRC_FROM * 8).filter(|bit| bit / 8 != 16)
}

#[test]
fn the_cleaner_copies_no_batch_whose_place_or_epoch_is_not_what_it_was() {
    let view = Stored::new().log.view();
    let bases: Vec<Offset> = view.segments.iter().map(|segment| segment.base()).collect();
    assert!(bases.len() > 4);
    let first = bases[1].0 / 2;
    // The first of a segment, one in its middle and its last, in what was compacted before and in what was not.
    for victim in [first, first + 1, bases[2].0 / 2 - 1] {
        for cleaned in [None, Some(bases[3])] {
            for bit in bits() {
                let mut stored = Stored::new();
                let before = read_all(&stored.log.view());
                stored.turn(victim, bit);
                let result = stored.clean(cleaned);
                let is_found = matches!(&result, Err(CleanError::Damaged(_)));
                assert!(is_found, "bit {bit} of batch {victim}, {cleaned:?}: {result:?}");
                stored.turn(victim, bit);
                // Its segment is as it was.
                let (kept, from) = (read_all(&stored.log.view()), stored.len * first as usize);
                assert!(kept.ends_with(&before[from..]), "bit {bit} of batch {victim}, {cleaned:?}");
            }
        }
    }
    assert!(Stored::new().clean(None).is_ok());
}

#[test]
fn a_copy_in_another_directory_has_nothing_that_is_not_what_it_was() {
    // All but the only one of a segment, which has no neighbours that could tell.
    for victim in [0, 1, 4, 5, 10, 11, BATCHES - 2, BATCHES - 1] {
        for bit in bits() {
            let stored = Stored::new();
            let sound = read_all(&stored.log.view());
            stored.turn(victim, bit);
            let args = open_args(Offset::ZERO, Offset::ZERO, false);
            let disk: Arc<dyn Disk> = Arc::new(stored.disk.clone());
            let mut copy = Log::create(disk, Path::new(COPY), config(), &args).unwrap();
            let failed = loop {
                match copy.advance_to(&stored.log.view(), 300, NOW) {
                    Ok(_) if copy.log_end() < stored.log.log_end() => {}
                    ended => break ended,
                }
            };
            let copied = read_all(&copy.view());
            assert!(sound.starts_with(&copied), "bit {bit} of batch {victim}");
            let Err(CopyError::Source(error)) = failed else {
                panic!("bit {bit} of batch {victim}: {failed:?}")
            };
            assert!(Damage::of(&error).is_some(), "bit {bit} of batch {victim}: {error}");
            // It goes on when it is put right.
            stored.turn(victim, bit);
            while !copy.catch_up_with(&stored.log, NOW).unwrap() {}
            assert_eq!(read_all(&copy.view()), sound);
        }
    }
}

#[test]
fn recovery_keeps_no_batch_whose_place_is_not_what_it_was() {
    // Which epochs there were is not known for certain after a crash, but that they grow.
    let bits = || bits().filter(|bit| !(LEADER_EPOCH_AT * 8..(LEADER_EPOCH_AT + 4) * 8).contains(bit));
    // Nothing tells where the last one should be.
    for victim in (0..BATCHES - 1).step_by(2) {
        for bit in bits() {
            let stored = Stored::new();
            let sound = read_all(&stored.log.view());
            stored.turn(victim, bit);
            stored.disk.kill();
            let args = open_args(Offset::ZERO, Offset::ZERO, false);
            let log = Log::open(Arc::new(stored.disk.clone()), Path::new(DIR), config(), &args).unwrap();
            let kept = read_all(&log.view());
            assert_eq!(kept, sound[..stored.len * victim as usize], "bit {bit} of batch {victim}");
            assert_eq!(log.log_end(), Offset(2 * victim));
        }
    }
}

#[test]
fn a_follower_takes_no_batch_of_an_epoch_before_its_last_nor_one_that_cannot_be() {
    let mut stored = Stored::new();
    let (end, before) = (stored.log.log_end(), read_all(&stored.log.view()));
    for epoch in [4, 0, -2] {
        let refused =
            stored.log.append_as_follower(&placed(&batch(99), end, LeaderEpoch(epoch)), LeaderEpoch(9), NOW);
        let why = BatchError::LeaderEpoch { found: LeaderEpoch(epoch), known: LeaderEpoch(5) };
        assert!(matches!(refused, Err(AppendError::Batch(found)) if found == why), "{refused:?}");
    }
    // Nor one that says that it ends before it begins, whatever its checksum says.
    let mut header = BatchHeader::parse(&batch(99)).unwrap();
    (header.base_offset, header.last_offset_delta) = (end, -1);
    header.seal(&batch(99)[HEADER_LEN..]);
    assert_eq!(header.magic, MAGIC);
    let bytes: Bytes = [&header.encode()[..], &batch(99)[HEADER_LEN..]].concat().into();
    let refused = stored.log.append_as_follower(&bytes, LeaderEpoch(9), NOW);
    assert!(matches!(refused, Err(AppendError::Batch(BatchError::OffsetRange { .. }))), "{refused:?}");
    assert_eq!((read_all(&stored.log.view()), stored.log.failure()), (before, None));
    // Without an epoch, as before there were any, and of a later one it is taken.
    for epoch in [-1, 5, 6] {
        let next = placed(&batch(99), stored.log.log_end(), LeaderEpoch(epoch));
        stored.log.append_as_follower(&next, LeaderEpoch(9), NOW).unwrap();
    }
    assert_eq!(stored.log.epochs().latest().unwrap().epoch, LeaderEpoch(6));
}

/// Where more than one batch differs from what the log knows of its epochs, it is the log that knows too little.
#[test]
fn a_log_that_knows_too_little_of_its_epochs_is_read_and_compacted() {
    let mut stored = Stored::new();
    let before = read_all(&stored.log.view());
    // As after metadata that was put back: what is of epoch 5 is not known to be.
    stored.log.epochs = EpochCache::from_entries(stored.log.epochs.entries()[..1].iter().copied());
    stored.log.publish();
    assert_eq!(read_all(&stored.log.view()), before);
    stored.clean(None).unwrap();
}
