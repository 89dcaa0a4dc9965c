//! Looks whether the files of a partition are sound, and changes none: every batch is read and checked, and what indexes and
//! snapshots say is compared with it. For a directory that no process has.
//!
//! Invariant: what is called damage is something that a start would not put right without losing records that were whole, or
//! would serve as it is; everything else that catches the eye is a note.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::batch_scan::BatchScan;
use super::compaction::{DamagedBatch, unpacked};
use super::names::{self, FileName, Kind, Stage};
use super::producer_state::snapshot;
use crate::storage::checkpoint;
use crate::storage::disk::{Disk, DiskFile, OpenMode, read_file};
use crate::types::{LeaderEpoch, Offset};
use crate::wire::batch::{Batch, BatchError};
use crate::wire::compression::Scratch;
use crate::wire::legacy::{LegacyError, LegacyMessage};
use crate::wire::records::Records;

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;
/// The bytes of an entry.
const OFFSET_ENTRY: usize = 8;
const TIME_ENTRY: usize = 12;
const TXN_ENTRY: usize = 34;

/// Something that catches the eye.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub file: String,
    /// In bytes.
    pub position: Option<u64>,
    pub what: String,
    pub is_damage: bool,
}

/// What was found in a partition's directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub segments: usize,
    pub batches: u64,
    pub records: u64,
    pub bytes: u64,
    /// Where the first segment begins, and the last ends.
    pub start: Offset,
    pub end: Offset,
    pub findings: Vec<Finding>,
}

/// Reads everything in the directory of a partition. What cannot be read is found damaged, but for the directory itself.
pub fn verify(disk: &dyn Disk, dir: &Path) -> io::Result<Verified> {
    let mut kinds: BTreeMap<Offset, Vec<Kind>> = BTreeMap::new();
    let mut verifier = Verifier::new(disk, dir);
    let mut entries = disk.list(dir)?;
    entries.sort();
    for entry in &entries {
        match FileName::parse(&entry.name).filter(|_| !entry.is_dir) {
            Some(name) if name.stage == Stage::Live => kinds.entry(name.base).or_default().push(name.kind),
            Some(_) => verifier.note(&entry.name, "left by work that was interrupted"),
            None if entry.is_dir || !names::is_of_partition(&entry.name) => {
                verifier.note(&entry.name, "is none of a partition's files, and not checked");
            }
            None => {}
        }
    }
    let bases: Vec<Offset> =
        kinds.iter().filter(|(_, kinds)| kinds.contains(&Kind::Log)).map(|(base, _)| *base).collect();
    verifier.verified.segments = bases.len();
    if let Some(first) = bases.first() {
        (verifier.verified.start, verifier.verified.end) = (*first, *first);
    }
    for (index, base) in bases.iter().enumerate() {
        verifier.segment(*base, bases.get(index + 1).copied());
    }
    for (base, kinds) in kinds {
        if kinds.contains(&Kind::ProducerSnapshot) {
            verifier.snapshot(base);
        }
    }
    verifier.small_files();
    Ok(verifier.verified)
}

struct Verifier<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    verified: Verified,
    epoch: LeaderEpoch,
    scratch: Scratch,
}

/// The first and the last offset of a message, and how many records it holds; or what is wrong with it.
fn legacy_records(
    message: &LegacyMessage<'_>,
    scratch: &mut Scratch,
) -> Result<(Offset, Offset, u64), String> {
    let told = |error: LegacyError| error.to_string();
    let unpacked = message.unpacked(scratch).map_err(told)?;
    let records = message.records(&unpacked).map_err(told)?;
    if !message.is_valid() || !records.iter().all(|record| record.is_valid) {
        return Err(format!("the checksum of a message of format {} is wrong", message.magic));
    }
    let offsets = records.first().zip(records.last());
    let (first, last) = offsets.ok_or_else(|| LegacyError::Empty.to_string())?;
    Ok((Offset(first.offset), Offset(last.offset), records.len() as u64))
}

/// An index on the way through its segment.
struct Entries {
    file: String,
    /// Offset and position of each.
    entries: Vec<(Offset, u64)>,
    at: usize,
}

impl<'a> Verifier<'a> {
    fn new(disk: &'a dyn Disk, dir: &'a Path) -> Verifier<'a> {
        let (verified, epoch, scratch) = (Verified::default(), LeaderEpoch::UNKNOWN, Scratch::new());
        Verifier { disk, dir, verified, epoch, scratch }
    }

    fn find(&mut self, file: &str, position: Option<u64>, what: impl Into<String>, is_damage: bool) {
        self.verified.findings.push(Finding {
            file: file.to_owned(),
            position,
            what: what.into(),
            is_damage,
        });
    }

    fn note(&mut self, file: &str, what: impl Into<String>) {
        self.find(file, None, what, false);
    }

    fn damage(&mut self, file: &str, position: u64, what: impl Into<String>) {
        self.find(file, Some(position), what, true);
    }

    fn unreadable(&mut self, file: &str, position: Option<u64>, error: &io::Error) {
        self.find(file, position, format!("cannot be read: {error}"), true);
    }

    fn segment(&mut self, base: Offset, next: Option<Offset>) {
        let name = FileName::live(base, Kind::Log);
        let shown = name.to_string();
        if base < self.verified.end {
            let end = self.verified.end;
            self.damage(&shown, 0, format!("begins before offset {end}, where the segment before ends"));
        } else if base > self.verified.end {
            let end = self.verified.end;
            self.note(
                &shown,
                format!("the segment before ends at offset {end}; what follows was compacted, or is lost"),
            );
        }
        let mut index = self.offset_index(base);
        let opened = self.disk.open(&name.path(self.dir), OpenMode::Read);
        let walked = match opened.and_then(|file| Ok((file.len()?, file))) {
            Ok((size, file)) => self.batches(&shown, (file, size), base, next.is_none(), &mut index),
            Err(error) => {
                self.unreadable(&shown, None, &error);
                None
            }
        };
        // Of what cannot be read nobody knows where it ends: it is taken for what it should be.
        let end = walked.unwrap_or(next.unwrap_or(base));
        self.time_index(base, walked);
        self.txn_index(base, walked);
        self.verified.end = self.verified.end.max(end);
    }

    /// Looks at the batches of a file of so many bytes, and gives the offset after the last; `None` when they could not be read to
    /// the end.
    fn batches(
        &mut self,
        shown: &str,
        (file, size): (Arc<dyn DiskFile>, u64),
        base: Offset,
        is_last: bool,
        index: &mut Entries,
    ) -> Option<Offset> {
        self.verified.bytes += size;
        let mut end = base;
        let mut scan = BatchScan::over(file, size, 0, CHUNK);
        loop {
            let position = scan.position();
            let unreadable = match scan.advance() {
                Ok(None) => break,
                Ok(Some(Ok(batch))) => {
                    self.batch(shown, position, &batch, &mut end, index);
                    continue;
                }
                Ok(Some(Err(error))) => {
                    let message = match error {
                        BatchError::LegacyMagic(_) => scan.take_message(),
                        _ => Ok(None),
                    };
                    match message {
                        Ok(Some(message)) => {
                            self.message(shown, position, &message, &mut end, index);
                            continue;
                        }
                        Ok(None) => {
                            let left = size - position;
                            // What a crash tears is at the end of the last segment.
                            let what = format!("{left} bytes are no whole batch: {error}");
                            self.find(shown, Some(position), what, !is_last);
                            break;
                        }
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            self.unreadable(shown, Some(position), &unreadable);
            return None;
        }
        self.index_ends(index, scan.position(), is_last);
        Some(end)
    }

    fn batch(&mut self, file: &str, position: u64, batch: &Batch<'_>, end: &mut Offset, index: &mut Entries) {
        let header = &batch.header;
        self.verified.batches += 1;
        self.verified.records += u64::try_from(header.record_count).unwrap_or(0);
        if let Err(error) = batch.check_crc() {
            self.damage(file, position, error.to_string());
        } else if let Err(error) = self.records(batch) {
            self.damage(file, position, error);
        }
        self.follows(file, position, header.base_offset, *end);
        if header.leader_epoch < self.epoch && header.leader_epoch >= LeaderEpoch::ZERO {
            let (epoch, before) = (header.leader_epoch, self.epoch);
            self.damage(file, position, format!("a batch of leader epoch {epoch} after one of {before}"));
        }
        self.epoch = self.epoch.max(header.leader_epoch);
        *end = (*end).max(header.next_offset());
        self.indexed(position, header.last_offset(), index);
    }

    /// A message of the formats 0 and 1, which may hold others, compressed.
    fn message(&mut self, file: &str, position: u64, bytes: &[u8], end: &mut Offset, index: &mut Entries) {
        self.verified.batches += 1;
        // Of a compressed one it is that of its last record.
        let Ok(message) = LegacyMessage::parse(bytes) else {
            return self.damage(file, position, "no message");
        };
        let last = match legacy_records(&message, &mut self.scratch) {
            Err(error) => {
                self.damage(file, position, error);
                Offset(message.offset)
            }
            Ok((first, last, count)) => {
                self.verified.records += count;
                self.follows(file, position, first, *end);
                last
            }
        };
        *end = (*end).max(last.plus(1));
        self.indexed(position, last, index);
    }

    fn follows(&mut self, file: &str, position: u64, first: Offset, end: Offset) {
        if first < end {
            let what = format!("a batch from offset {first} on, where {end} was to be expected");
            self.damage(file, position, what);
        }
    }

    /// Whether the index says so, where it speaks of a batch.
    fn indexed(&mut self, position: u64, last_offset: Offset, index: &mut Entries) {
        while let Some((offset, at)) = index.entries.get(index.at).copied().filter(|(_, at)| *at <= position)
        {
            if at < position || offset != last_offset {
                let what =
                    format!("offset {offset} at {at} is not where a batch with that last offset begins");
                self.damage(&index.file, (index.at * OFFSET_ENTRY) as u64, what);
            }
            index.at += 1;
        }
    }

    /// What is wrong with the records of a batch.
    fn records(&mut self, batch: &Batch<'_>) -> Result<(), String> {
        let damaged = |error: DamagedBatch| error.to_string();
        let body = unpacked(batch, &mut self.scratch).map_err(damaged)?;
        let (mut last, mut count) = (-1, 0);
        for record in Records::new(&body, batch.header.record_count) {
            let record = record.map_err(|error| error.to_string())?;
            if record.offset_delta <= last || record.offset_delta > batch.header.last_offset_delta {
                return Err(format!("a record has offset delta {} after {last}", record.offset_delta));
            }
            (last, count) = (record.offset_delta, count + 1);
        }
        let announced = batch.header.record_count;
        if count == announced { Ok(()) } else { Err(format!("{count} records instead of {announced}")) }
    }

    fn offset_index(&mut self, base: Offset) -> Entries {
        let (file, bytes) = self.read(base, Kind::OffsetIndex);
        let mut entries: Vec<(Offset, u64)> = Vec::new();
        let mut used = 0;
        for entry in bytes.as_chunks::<OFFSET_ENTRY>().0 {
            let [a, b, c, d, e, f, g, h] = *entry;
            let offset = base.plus(i64::from(u32::from_be_bytes([a, b, c, d])));
            let position = u64::from(u32::from_be_bytes([e, f, g, h]));
            if entries.last().is_some_and(|(last, at)| offset <= *last || position <= *at) {
                break;
            }
            // Kafka fills the file of an active segment with zeros.
            if *entry == [0; OFFSET_ENTRY] && entries.is_empty() && bytes.iter().all(|byte| *byte == 0) {
                break;
            }
            entries.push((offset, position));
            used += OFFSET_ENTRY;
        }
        self.rest(&file, &bytes, used);
        Entries { file, entries, at: 0 }
    }

    fn index_ends(&mut self, index: &Entries, ends_at: u64, is_last: bool) {
        if let Some((offset, at)) = index.entries.get(index.at).copied() {
            let what = format!("offset {offset} at {at}, but the batches end at {ends_at}");
            self.find(&index.file, Some((index.at * OFFSET_ENTRY) as u64), what, !is_last);
        }
    }

    /// `end`: where the segment ends, if that is known.
    fn time_index(&mut self, base: Offset, end: Option<Offset>) {
        let (file, bytes) = self.read(base, Kind::TimeIndex);
        let (mut last, mut used) = (i64::MIN, 0);
        for entry in bytes.as_chunks::<TIME_ENTRY>().0 {
            let [a, b, c, d, e, f, g, h, i, j, k, l] = *entry;
            let timestamp = i64::from_be_bytes([a, b, c, d, e, f, g, h]);
            let offset = base.plus(i64::from(u32::from_be_bytes([i, j, k, l])));
            if timestamp <= last || *entry == [0; TIME_ENTRY] {
                break;
            }
            if let Some(end) = end
                && offset >= end.max(base.plus(1))
            {
                let what = format!("offset {offset} for time {timestamp}, but the segment ends at {end}");
                self.find(&file, Some(used as u64), what, false);
            }
            last = timestamp;
            used += TIME_ENTRY;
        }
        self.rest(&file, &bytes, used);
    }

    fn txn_index(&mut self, base: Offset, end: Option<Offset>) {
        let (file, bytes) = self.read(base, Kind::TxnIndex);
        let mut last = Offset::UNKNOWN;
        for (index, entry) in bytes.as_chunks::<TXN_ENTRY>().0.iter().enumerate() {
            let field = |at: usize| {
                let mut number = [0; 8];
                number.copy_from_slice(&entry[at..at + 8]);
                Offset(i64::from_be_bytes(number))
            };
            let (first, marker) = (field(10), field(18));
            let is_behind = end.is_some_and(|end| marker >= end);
            if entry[..2] != [0, 0] || first > marker || marker <= last || marker < base || is_behind {
                let what = format!("a transaction from offset {first} to {marker} cannot be in this segment");
                self.damage(&file, (index * TXN_ENTRY) as u64, what);
            }
            last = marker;
        }
        if !bytes.len().is_multiple_of(TXN_ENTRY) {
            self.note(&file, "ends within an entry");
        }
    }

    /// What follows the entries of an index: nothing, or the zeros of a file that is larger than what is in it.
    fn rest(&mut self, file: &str, bytes: &[u8], used: usize) {
        if bytes[used..].iter().any(|byte| *byte != 0) {
            self.find(file, Some(used as u64), "the entries do not increase any more", false);
        }
    }

    /// What is in an index; nothing if it is not there, or cannot be read.
    fn read(&mut self, base: Offset, kind: Kind) -> (String, Vec<u8>) {
        let name = FileName::live(base, kind);
        let (shown, read) = (name.to_string(), read_file(self.disk, &name.path(self.dir)));
        let bytes = read.unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                self.unreadable(&shown, None, &error);
            } else if kind != Kind::TxnIndex {
                self.note(&shown, "is missing; a start builds it anew");
            }
            Vec::new()
        });
        (shown, bytes)
    }

    fn snapshot(&mut self, at: Offset) {
        let name = FileName::live(at, Kind::ProducerSnapshot);
        match read_file(self.disk, &name.path(self.dir)) {
            Err(error) => self.unreadable(&name.to_string(), None, &error),
            Ok(bytes) => {
                if let Err(error) = snapshot::decode(&bytes) {
                    self.note(&name.to_string(), format!("{error}; a start does without it"));
                }
            }
        }
    }

    fn small_files(&mut self) {
        if let Err(error) = checkpoint::read_epochs(self.disk, &self.dir.join(names::LEADER_EPOCHS)) {
            self.find(names::LEADER_EPOCHS, None, error.to_string(), true);
        }
        if let Err(error) = checkpoint::read_partition_metadata(self.disk, self.dir) {
            self.find(checkpoint::PARTITION_METADATA_FILE, None, error.to_string(), true);
        }
    }
}

#[cfg(test)]
mod tests;
