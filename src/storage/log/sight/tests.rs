//! Logs are cut, opened and written to although a batch of them is damaged, in each byte in turn: no directory goes out of service for
//! that, nothing that stays is lost, and what comes later is found.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::super::names::{FileName, Kind};
use super::super::tests::{DIR, open_args, read_all};
use super::super::{Log, LogConfig, Origin, ReadPlan};
use super::*;
use crate::storage::disk::{Disk, OpenMode, read_file};
use crate::storage::sim_disk::SimDisk;
use crate::types::{LeaderEpoch, ProducerEpoch, ProducerId, TimestampMs};
use crate::wire::batch_builder::BatchBuilder;

const NOW: TimestampMs = TimestampMs(0);
const BATCHES: i64 = 14;

/// A log of some segments with batches of two records each, of which nothing is in memory.
struct Stored {
    disk: SimDisk,
    log: Log,
    sound: Vec<u8>,
}

fn config() -> Arc<LogConfig> {
    Arc::new(LogConfig { segment_bytes: 800, index_interval_bytes: 250, ..LogConfig::default() })
}

fn batch(sequence: i32) -> Bytes {
    let mut builder = BatchBuilder::new().producer(ProducerId(7), ProducerEpoch(0), sequence);
    for _ in 0..2 {
        builder.push(TimestampMs(1000 + i64::from(sequence)), None, Some(&[b'v'; 20]), &[]);
    }
    builder.build().unwrap()
}

impl Stored {
    fn new() -> Stored {
        let disk = SimDisk::new();
        let args = open_args(Offset::ZERO, Offset::ZERO, false);
        let log = Log::create(Arc::new(disk.clone()), Path::new(DIR), config(), &args).unwrap();
        let mut stored = Stored { disk, log, sound: Vec::new() };
        (0..BATCHES).for_each(|index| stored.append(2 * index as i32));
        stored.log.flush().unwrap();
        stored.log.expire_tail(TimestampMs(i64::MAX));
        stored.sound = read_all(&stored.log.view());
        stored
    }

    fn append(&mut self, sequence: i32) {
        self.log.append_as_leader(&batch(sequence), LeaderEpoch(0), Origin::Client, NOW).unwrap();
    }

    fn len(&self) -> usize {
        self.sound.len() / BATCHES as usize
    }

    /// Where the batch with this number is.
    fn place_of(&self, number: i64) -> (PathBuf, usize) {
        let view = self.log.view();
        let segment =
            view.segments.iter().rev().find(|segment| segment.base() <= Offset(2 * number)).unwrap();
        let position = usize::try_from(number - segment.base().0 / 2).unwrap() * self.len();
        (FileName::live(segment.base(), Kind::Log).path(Path::new(DIR)), position)
    }

    fn flip(&self, (path, position): &(PathBuf, usize), at: usize, mask: u8) {
        let bytes = read_file(&self.disk, path).unwrap();
        let file = self.disk.open(path, OpenMode::Write).unwrap();
        file.write_all_at(&[IoSlice::new(&[bytes[position + at] ^ mask])], (position + at) as u64).unwrap();
    }

    fn read(&self, from: Offset) -> io::Result<Bytes> {
        let view = self.log.view();
        match view.read(from, 1, view.log_end, true).unwrap() {
            ReadPlan::Ready(parts) => Ok(parts.concat().into()),
            ReadPlan::Cold(cold) => cold.run(),
        }
    }

    /// Batches in all kinds of places.
    fn victims(&self) -> Vec<i64> {
        let bases: Vec<i64> = self.log.view().segments.iter().map(|segment| segment.base().0 / 2).collect();
        assert!(bases.len() > 2 && bases[2] - bases[1] > 4, "{bases:?}");
        // The first of a segment, those behind it up to the first that the index knows, and the last.
        (bases[1]..bases[1] + 4).chain([bases[2] - 1, BATCHES - 1]).collect()
    }
}

#[test]
fn a_log_is_cut_where_it_should_be_although_what_is_before_is_damaged() {
    let victims = Stored::new().victims();
    for victim in victims {
        for (at, mask) in (0..70).flat_map(|at| [(at, 1), (at, 0x80)]) {
            for cut in (victim - 1..=victim + 3).filter(|cut| *cut < BATCHES).map(|number| Offset(2 * number))
            {
                let what = (victim, at, mask, cut);
                let mut stored = Stored::new();
                let place = stored.place_of(victim);
                stored.flip(&place, at, mask);
                stored.log.truncate_to(cut, NOW).unwrap();
                assert_eq!((stored.log.failure(), stored.log.log_end()), (None, cut), "{what:?}");
                // What comes in the place of what was cut is found, also after what was left is damaged still.
                let kept = &stored.sound[..stored.len() * (cut.0 / 2) as usize];
                let mut after = kept.to_vec();
                for sequence in [100, 102] {
                    let end = stored.log.log_end();
                    let mut header = BatchHeader::parse(&batch(sequence)).unwrap();
                    header.base_offset = end;
                    header.leader_epoch = LeaderEpoch(1);
                    let bytes: Bytes = [&header.encode()[..], &batch(sequence)[HEADER_LEN..]].concat().into();
                    stored.log.append_as_follower(&bytes, LeaderEpoch(1), NOW).unwrap();
                    after.extend_from_slice(&bytes);
                }
                stored.log.flush().unwrap();
                stored.log.expire_tail(TimestampMs(i64::MAX));
                if 2 * victim >= cut.0 {
                    assert_eq!(read_all(&stored.log.view()), after, "{what:?}");
                    continue;
                }
                for offset in [cut, cut.plus(2)] {
                    let read = stored.read(offset);
                    // What is damaged farther before may hide what follows, up to where the index knows of a batch.
                    let is_told = at >= 12 && at != 16 && !(23..27).contains(&at);
                    let hides = 2 * victim + 2 < cut.0 && !is_told;
                    assert!(hides || read.is_ok_and(|bytes| !bytes.is_empty()), "{what:?} {offset}");
                }
                // And when it is put right, all is there that stayed.
                stored.flip(&place, at, mask);
                assert_eq!(read_all(&stored.log.view()), after, "{what:?}");
            }
        }
    }
}

/// Also where several batches in a row are, and the cut is among them.
#[test]
fn a_cut_among_what_is_damaged_keeps_what_is_sound() {
    let victims = Stored::new().victims();
    let first = victims[1];
    for count in 1..4 {
        for cut in first - 1..=first + count + 1 {
            let mut stored = Stored::new();
            for victim in first..first + count {
                let place = stored.place_of(victim);
                (0..60).for_each(|at| stored.flip(&place, at, 0xff));
            }
            stored.log.truncate_to(Offset(2 * cut), NOW).unwrap();
            assert_eq!((stored.log.failure(), stored.log.log_end()), (None, Offset(2 * cut)));
            let mut builder = BatchBuilder::new();
            builder.push(TimestampMs(2000), None, Some(b"new"), &[]);
            let new = builder.build().unwrap();
            stored.log.append_as_leader(&new, LeaderEpoch(1), Origin::Client, NOW).unwrap();
            stored.log.flush().unwrap();
            stored.log.expire_tail(TimestampMs(i64::MAX));
            let new = stored.read(Offset(2 * cut));
            assert!(cut > first + count || new.is_ok_and(|bytes| !bytes.is_empty()), "{count} {cut}");
            let len = stored.len();
            for number in (0..cut).filter(|number| !(first..first + count).contains(number)) {
                let start = len * number as usize;
                // It may be hidden behind what is damaged until that is put right.
                let is_hidden = number >= first + count;
                match stored.read(Offset(2 * number)) {
                    Ok(bytes) => {
                        assert_eq!(bytes, stored.sound[start..start + len], "{count} {cut} {number}");
                    }
                    Err(error) => assert!(is_hidden, "{count} {cut} {number}: {error}"),
                }
            }
            for number in (first..first + count).filter(|number| *number < cut) {
                assert!(
                    stored.read(Offset(2 * number)).is_err(),
                    "{count} {cut}: {number} is not passed over"
                );
            }
        }
    }
}

#[test]
fn a_damaged_header_keeps_no_log_from_being_opened_and_written_to() {
    let victims = Stored::new().victims();
    for victim in victims {
        for (at, mask) in (0..61).flat_map(|at| [(at, 1), (at, 0x80)]) {
            for (is_clean, has_snapshots) in [(true, true), (true, false), (false, false)] {
                let mut stored = Stored::new();
                let place = stored.place_of(victim);
                stored.log.close().unwrap();
                let end = stored.log.log_end();
                stored.flip(&place, at, mask);
                if !has_snapshots {
                    // All that follows the first is replayed then.
                    let names = stored.disk.list(Path::new(DIR)).unwrap().into_iter().map(|entry| entry.name);
                    let mut names: Vec<String> = names.filter(|name| name.ends_with(".snapshot")).collect();
                    names.sort();
                    names[1..]
                        .iter()
                        .for_each(|name| stored.disk.remove_file(&Path::new(DIR).join(name)).unwrap());
                }
                stored.disk.kill();
                let args = open_args(end, Offset::ZERO, is_clean);
                let opened = Log::open(Arc::new(stored.disk.clone()), Path::new(DIR), config(), &args);
                stored.log = opened.unwrap_or_else(|error| panic!("{victim} {at} {mask}: {error}"));
                for _ in 0..8 {
                    let mut builder = BatchBuilder::new();
                    builder.push(TimestampMs(5000), None, Some(&[b'w'; 100]), &[]);
                    let batch = builder.build().unwrap();
                    stored.log.append_as_leader(&batch, LeaderEpoch(0), Origin::Client, NOW).unwrap();
                }
                assert_eq!(stored.log.failure(), None);
            }
        }
    }
}

/// The index tells of a batch farther behind; in between others are found all the same.
#[test]
fn the_next_sound_batch_is_found_whatever_the_index_says() {
    let stored = Stored::new();
    let view = stored.log.view();
    let segment = &view.segments[1];
    let (len, within) = (stored.len() as u64, segment.base()..view.end_of(segment));
    let mut sight = Sight::of(segment).unwrap();
    for number in 0..segment.size() / len - 1 {
        for inside in [0, 1, 30, len - 1] {
            let found = behind(segment, &mut sight, number * len + inside, &within).unwrap();
            let (position, header) = found.unwrap();
            assert_eq!(
                (position, header.base_offset),
                ((number + 1) * len, segment.base().plus(2 * (number as i64 + 1)))
            );
        }
    }
    assert_eq!(behind(segment, &mut sight, segment.size() - len, &within).unwrap().map(|(at, _)| at), None);
}
