//! The time index of a segment: entries of 12 bytes, a timestamp and the offset (relative to the segment's base) at which
//! the segment's largest timestamp so far was that, both big-endian. Sparse.
//!
//! Invariant: timestamps increase strictly, offsets never decrease.

use std::io;
use std::sync::Arc;

use super::index_file::IndexFile;
use super::lazy_file::Place;
use super::names::{Kind, Stage};
use crate::types::{Offset, TimestampMs};

const ENTRY_LEN: usize = 12;

/// A timestamp and the offset that belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    pub timestamp: TimestampMs,
    pub offset: Offset,
}

#[derive(Debug)]
pub struct TimeIndex {
    base: Offset,
    entries: IndexFile<ENTRY_LEN>,
}

impl TimeIndex {
    pub fn unopened(place: Arc<Place>, base: Offset, stage: Stage) -> TimeIndex {
        TimeIndex { base, entries: IndexFile::unopened(place, base, Kind::TimeIndex, stage) }
    }

    pub fn entries(&self) -> &IndexFile<ENTRY_LEN> {
        &self.entries
    }

    /// The bytes of its entries.
    pub fn size(&self) -> io::Result<u64> {
        Ok(u64::from(self.entries.len(increases)?) * ENTRY_LEN as u64)
    }

    /// Whether an index limited to `max_bytes` takes no further entry. One entry is kept in reserve for the roll.
    pub fn is_full(&self, max_bytes: u32) -> io::Result<bool> {
        Ok(self.entries.len(increases)? + 1 >= max_bytes / ENTRY_LEN as u32)
    }

    /// Adds an entry unless its timestamp is not above the last one.
    pub fn push_if_later(&self, entry: TimestampOffset) -> io::Result<()> {
        let last = self.last()?;
        let later = last.map_or(entry.timestamp > TimestampMs::NONE, |last| entry.timestamp > last.timestamp);
        if later { self.entries.push(encode(self.base, entry)) } else { Ok(()) }
    }

    pub fn last(&self) -> io::Result<Option<TimestampOffset>> {
        Ok(self.entries.last(increases)?.map(|entry| decode(self.base, &entry)))
    }

    /// The last entry whose timestamp is at most `timestamp`.
    pub fn floor(&self, timestamp: TimestampMs) -> io::Result<Option<TimestampOffset>> {
        let found = self.entries.floor(increases, |entry| decode(self.base, entry).timestamp <= timestamp)?;
        Ok(found.map(|(_, entry)| decode(self.base, &entry)))
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
    a.timestamp < b.timestamp && a.offset <= b.offset
}

fn encode(base: Offset, entry: TimestampOffset) -> [u8; ENTRY_LEN] {
    let relative = u32::try_from(entry.offset.since(base)).expect("a segment spans at most 2^31 offsets");
    let mut bytes = [0; ENTRY_LEN];
    bytes[..8].copy_from_slice(&entry.timestamp.0.to_be_bytes());
    bytes[8..].copy_from_slice(&relative.to_be_bytes());
    bytes
}

fn decode(base: Offset, entry: &[u8; ENTRY_LEN]) -> TimestampOffset {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *entry;
    TimestampOffset {
        timestamp: TimestampMs(i64::from_be_bytes([a, b, c, d, e, f, g, h])),
        offset: base.plus(i64::from(u32::from_be_bytes([i, j, k, l]))),
    }
}
