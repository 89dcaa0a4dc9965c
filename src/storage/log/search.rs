//! Searches in a log that need its records or its transaction indexes: by timestamp, and for aborted transactions. Block on
//! the disk, so they run where a thread may block. Must not know how requests ask for them.

use std::io;
use std::sync::Arc;

use super::read::HeaderWalk;
use super::segment::Segment;
use super::time_index::TimestampOffset;
use super::txn_index::AbortedTxn;
use super::view::{LogView, segment_of};
use crate::types::{LeaderEpoch, Offset, TimestampMs};
use crate::wire::batch::{BatchHeader, HEADER_LEN, TimestampType};
use crate::wire::compression::{Compression, Decoder, Scratch};
use crate::wire::records::Skim;

/// A record that a search by time found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub timestamp: TimestampMs,
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
}

/// The most bytes that the records of one batch are expected to expand to; beyond it the batch is taken for damaged.
const EXPANSION_MAX: usize = i32::MAX as usize;

impl LogView {
    /// The first record at or after the log's start whose timestamp is at least `timestamp`.
    pub fn offset_for_timestamp(&self, timestamp: TimestampMs) -> io::Result<Option<Found>> {
        let mut scratch = Scratch::new();
        for segment in &self.segments[segment_of(&self.segments, self.log_start)..] {
            if segment.max_timestamp()?.timestamp < timestamp {
                continue;
            }
            if let Some(found) = self.find_in(segment, timestamp, &mut scratch)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn find_in(
        &self,
        segment: &Segment,
        timestamp: TimestampMs,
        scratch: &mut Scratch,
    ) -> io::Result<Option<Found>> {
        // Up to the last time entry below the timestamp, and including its batch, everything is older.
        let older = segment.time_index.floor(TimestampMs(timestamp.0.saturating_sub(1)))?;
        let from = older.map_or(segment.base(), |entry| entry.offset).max(self.log_start);
        let mut walk = HeaderWalk::before(segment, from)?;
        while let Some((position, header)) = walk.advance()? {
            if header.last_offset() >= self.log_end {
                break;
            }
            if header.max_timestamp < timestamp || header.last_offset() < self.log_start {
                continue;
            }
            let hit =
                |record: &TimestampOffset| record.timestamp >= timestamp && record.offset >= self.log_start;
            if let Some(record) = first_record(segment, position, &header, scratch, hit)? {
                return Ok(Some(found(record, &header)));
            }
        }
        Ok(None)
    }

    /// The first record that has the largest timestamp of the log; `None` when no record has one.
    pub fn max_timestamp(&self) -> io::Result<Option<Found>> {
        let mut latest: Option<(TimestampOffset, &Arc<Segment>)> = None;
        for segment in self.segments.iter() {
            let max = segment.max_timestamp()?;
            if max.timestamp > latest.map_or(TimestampMs::NONE, |(latest, _)| latest.timestamp) {
                latest = Some((max, segment));
            }
        }
        let Some((max, segment)) = latest else { return Ok(None) };
        let mut scratch = Scratch::new();
        let mut walk = HeaderWalk::before(segment, max.offset)?;
        while let Some((position, header)) = walk.advance()? {
            if header.max_timestamp == max.timestamp {
                let hit = |record: &TimestampOffset| record.timestamp == max.timestamp;
                if let Some(record) = first_record(segment, position, &header, &mut scratch, hit)? {
                    return Ok(Some(found(record, &header)));
                }
            }
        }
        Ok(None)
    }

    /// The transactions that were aborted and have records at offsets from `from` to below `upto`: what a reader of
    /// committed records must leave out.
    pub fn collect_aborted(&self, from: Offset, upto: Offset) -> io::Result<Vec<AbortedTxn>> {
        let mut aborted = Vec::new();
        for segment in &self.segments[segment_of(&self.segments, from)..] {
            if segment.txn_index.collect(from, upto, &mut aborted)? {
                break;
            }
        }
        Ok(aborted)
    }

    /// Whether some transaction may have been aborted at or after `from`; without it `collect_aborted` finds nothing,
    /// and this needs no disk.
    pub fn may_have_aborted(&self, from: Offset) -> bool {
        self.segments[segment_of(&self.segments, from)..].iter().any(|segment| !segment.txn_index.is_empty())
    }
}

fn found(record: TimestampOffset, header: &BatchHeader) -> Found {
    Found { timestamp: record.timestamp, offset: record.offset, leader_epoch: header.leader_epoch }
}

/// The first record of a batch for which `hit` holds.
fn first_record(
    segment: &Segment,
    position: u64,
    header: &BatchHeader,
    scratch: &mut Scratch,
    hit: impl Fn(&TimestampOffset) -> bool,
) -> io::Result<Option<TimestampOffset>> {
    let body_len = header.size_in_bytes() - HEADER_LEN;
    let body = segment.log_file().get()?.read_vec(body_len, position + HEADER_LEN as u64)?;
    let damaged = |error: &dyn std::fmt::Display| {
        io::Error::new(io::ErrorKind::InvalidData, format!("batch at {position}: {error}"))
    };
    let compression = header.compression().map_err(|error| damaged(&error))?;
    let records = match compression {
        Compression::None => Skim::new(&body, header.record_count),
        _ => {
            let decoder = Decoder::new(compression, &body, EXPANSION_MAX, scratch);
            Skim::compressed(decoder.map_err(|error| damaged(&error))?, header.record_count)
        }
    };
    for record in records {
        let record = record.map_err(|error| damaged(&error))?;
        let timestamp = match header.timestamp_type() {
            TimestampType::LogAppendTime => header.max_timestamp,
            TimestampType::CreateTime => {
                TimestampMs(header.base_timestamp.0.saturating_add(record.timestamp_delta))
            }
        };
        let record =
            TimestampOffset { timestamp, offset: header.base_offset.plus(i64::from(record.offset_delta)) };
        if hit(&record) {
            return Ok(Some(record));
        }
    }
    Ok(None)
}
