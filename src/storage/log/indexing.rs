//! The entries that a segment's indexes get when its batches are written, or walked, in a row. Must not know why.

use std::io;

use super::config::LogConfig;
use super::segment::Segment;
use crate::wire::batch::BatchHeader;

/// Adds index entries as an append would.
#[derive(Debug)]
pub struct Indexing {
    interval: u64,
    bytes_since_entry: u64,
}

impl Indexing {
    pub fn new(config: &LogConfig) -> Indexing {
        Indexing { interval: u64::from(config.index_interval_bytes), bytes_since_entry: 0 }
    }

    /// Goes on behind an entry, whose batch has this size.
    pub fn resume(&mut self, batch_bytes: u64) {
        self.bytes_since_entry = batch_bytes;
    }

    /// Notes the batch at `position`.
    pub fn note(&mut self, segment: &Segment, position: u64, header: &BatchHeader) -> io::Result<()> {
        let due = self.bytes_since_entry > self.interval;
        segment.note_batch(header.last_offset(), header.newest_timestamp(), position, due)?;
        let size = header.size_in_bytes() as u64;
        self.bytes_since_entry = if due { size } else { self.bytes_since_entry + size };
        Ok(())
    }
}
