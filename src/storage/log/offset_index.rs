//! The offset index of a segment: entries of 8 bytes, the offset of a batch's last record relative to the segment's base
//! and the batch's position in the segment file, both big-endian. Sparse: one entry per `index.interval.bytes`.
//!
//! Invariant: offsets and positions increase strictly.

use std::io;
use std::sync::Arc;

use super::index_file::IndexFile;
use super::lazy_file::Place;
use super::names::{Kind, Stage};
use crate::types::Offset;

const ENTRY_LEN: usize = 8;

/// Where in a segment file a batch starts whose last record has the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetEntry {
    pub offset: Offset,
    pub position: u32,
}

#[derive(Debug)]
pub struct OffsetIndex {
    base: Offset,
    entries: IndexFile<ENTRY_LEN>,
}

impl OffsetIndex {
    pub fn unopened(place: Arc<Place>, base: Offset, stage: Stage) -> OffsetIndex {
        OffsetIndex { base, entries: IndexFile::unopened(place, base, Kind::OffsetIndex, stage) }
    }

    pub fn entries(&self) -> &IndexFile<ENTRY_LEN> {
        &self.entries
    }

    pub fn len(&self) -> io::Result<u32> {
        self.entries.len(increases)
    }

    /// The bytes of its entries.
    pub fn size(&self) -> io::Result<u64> {
        Ok(u64::from(self.len()?) * ENTRY_LEN as u64)
    }

    /// Whether an index limited to `max_bytes` takes no further entry.
    pub fn is_full(&self, max_bytes: u32) -> io::Result<bool> {
        Ok(self.len()? >= max_bytes / ENTRY_LEN as u32)
    }

    pub fn push(&self, offset: Offset, position: u32) -> io::Result<()> {
        let last = self.last()?;
        if let Some(last) = last {
            assert!(
                last.offset < offset && last.position < position,
                "{last:?} before {offset} at {position}"
            );
        }
        self.entries.push(encode(self.base, offset, position))
    }

    pub fn last(&self) -> io::Result<Option<OffsetEntry>> {
        Ok(self.entries.last(increases)?.map(|entry| decode(self.base, &entry)))
    }

    /// The last entry at or below `offset`.
    pub fn floor(&self, offset: Offset) -> io::Result<Option<OffsetEntry>> {
        let found = self.entries.floor(increases, |entry| decode(self.base, entry).offset <= offset)?;
        Ok(found.map(|(_, entry)| decode(self.base, &entry)))
    }

    /// The first entry behind this position of the segment file.
    pub fn behind(&self, position: u64) -> io::Result<Option<OffsetEntry>> {
        let is_at_most = |entry: &[u8; ENTRY_LEN]| u64::from(decode(self.base, entry).position) <= position;
        let number = self.entries.floor(increases, is_at_most)?.map_or(0, |(number, _)| number + 1);
        Ok(self.entries.get(increases, number)?.map(|entry| decode(self.base, &entry)))
    }

    /// Drops the entries from the first on that does not increase: what a power failure made of the file's end.
    pub fn drop_damage(&self) -> io::Result<()> {
        self.entries.keep_increasing(increases)
    }

    /// Drops the entries at and above `offset`.
    pub fn truncate_to(&self, offset: Offset) -> io::Result<()> {
        let below = self.entries.floor(increases, |entry| decode(self.base, entry).offset < offset)?;
        self.entries.truncate(increases, below.map_or(0, |(index, _)| index + 1))
    }
}

fn increases(a: &[u8; ENTRY_LEN], b: &[u8; ENTRY_LEN]) -> bool {
    let (a, b) = (decode(Offset::ZERO, a), decode(Offset::ZERO, b));
    a.offset < b.offset && a.position < b.position
}

fn encode(base: Offset, offset: Offset, position: u32) -> [u8; ENTRY_LEN] {
    let relative = u32::try_from(offset.since(base)).expect("a segment spans at most 2^31 offsets");
    let mut entry = [0; ENTRY_LEN];
    entry[..4].copy_from_slice(&relative.to_be_bytes());
    entry[4..].copy_from_slice(&position.to_be_bytes());
    entry
}

fn decode(base: Offset, entry: &[u8; ENTRY_LEN]) -> OffsetEntry {
    let [a, b, c, d, e, f, g, h] = *entry;
    OffsetEntry {
        offset: base.plus(i64::from(u32::from_be_bytes([a, b, c, d]))),
        position: u32::from_be_bytes([e, f, g, h]),
    }
}
