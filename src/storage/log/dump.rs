//! Reading the files of a partition for whoever wants to see what is in them, sound or not.
//!
//! Must not know how it is shown. Invariant: nothing is changed and nothing is made up: what is not understood is told, with
//! its place.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::AbortedTxn;
use super::compaction::{DamagedBatch, unpacked};
use super::txn_index;
use crate::storage::disk::{Disk, DiskFile, OpenMode};
use crate::types::{Offset, TimestampMs};
use crate::wire::batch::{Batch, BatchError, BatchHeader, HEADER_LEN, LOG_OVERHEAD, magic_and_size};
use crate::wire::compression::Scratch;
use crate::wire::legacy::{LegacyError, LegacyMessage};

/// Walks through the batches of a file by their lengths alone, so that a damaged one hides none that follow it.
#[derive(Debug)]
pub struct BatchWalk {
    file: Arc<dyn DiskFile>,
    end: u64,
    position: u64,
}

/// What lies in a file: a batch, or a message of the formats before.
#[derive(Debug)]
pub enum Raw {
    Batch(RawBatch),
    Message(RawMessage),
}

/// A message of format 0 or 1 as it lies in the file.
#[derive(Debug)]
pub struct RawMessage {
    pub position: u64,
    bytes: Vec<u8>,
}

/// A batch as it lies in the file.
#[derive(Debug)]
pub struct RawBatch {
    pub position: u64,
    pub header: BatchHeader,
    bytes: Vec<u8>,
}

impl BatchWalk {
    /// Over the first `max_bytes` of a file.
    pub fn open(disk: &dyn Disk, path: &Path, max_bytes: u64) -> io::Result<BatchWalk> {
        let file = disk.open(path, OpenMode::Read)?;
        let end = file.len()?.min(max_bytes);
        Ok(BatchWalk { file, end, position: 0 })
    }

    /// Goes on at this position.
    pub fn seek(&mut self, position: u64) {
        self.position = position;
    }

    /// The next batch or message; `None` where the rest is no whole one.
    pub fn advance(&mut self) -> io::Result<Option<Result<Raw, BatchError>>> {
        let left = self.left();
        let head =
            self.file.read_vec(usize::try_from(left).unwrap_or(HEADER_LEN).min(HEADER_LEN), self.position)?;
        let header = match BatchHeader::parse(&head) {
            Err(BatchError::Truncated { .. }) => return Ok(None),
            Err(BatchError::LegacyMagic(_)) => None,
            Err(error) => return Ok(Some(Err(error))),
            Ok(header) => Some(header),
        };
        let size = match magic_and_size(&head) {
            Err(error) => return Ok(Some(Err(error))),
            Ok((_, size)) => size,
        };
        if size as u64 > left {
            return Ok(None);
        }
        let bytes = self.file.read_vec(size, self.position)?;
        let position = self.position;
        self.position += size as u64;
        Ok(Some(Ok(match header {
            Some(header) => Raw::Batch(RawBatch { position, header, bytes }),
            None => Raw::Message(RawMessage { position, bytes }),
        })))
    }

    /// The bytes behind the last batch.
    pub fn left(&self) -> u64 {
        self.end.saturating_sub(self.position)
    }
}

impl Raw {
    /// Of the last record.
    pub fn last_offset(&self) -> Result<Offset, LegacyError> {
        match self {
            Raw::Batch(batch) => Ok(batch.header.last_offset()),
            Raw::Message(message) => message.parse().map(|message| Offset(message.offset)),
        }
    }
}

impl RawMessage {
    pub fn parse(&self) -> Result<LegacyMessage<'_>, LegacyError> {
        LegacyMessage::parse(&self.bytes)
    }
}

impl RawBatch {
    pub fn size(&self) -> usize {
        LOG_OVERHEAD + self.header.batch_length.max(0) as usize
    }

    /// Whether the checksum is right.
    pub fn is_valid(&self) -> bool {
        self.header.check_crc(&self.bytes).is_ok()
    }

    /// The records, decompressed.
    pub fn records(&self, scratch: &mut Scratch) -> Result<Cow<'_, [u8]>, DamagedBatch> {
        unpacked(&Batch { header: self.header, range: 0..self.bytes.len(), bytes: &self.bytes }, scratch)
    }
}

/// The entries of an offset index: offset and position.
pub fn offset_entries(bytes: &[u8], base: Offset) -> impl ExactSizeIterator<Item = (Offset, u32)> {
    bytes.as_chunks::<8>().0.iter().map(move |&[a, b, c, d, e, f, g, h]| {
        let relative = i64::from(i32::from_be_bytes([a, b, c, d]));
        (base.plus(relative), u32::from_be_bytes([e, f, g, h]))
    })
}

/// The entries of a time index.
pub fn time_entries(bytes: &[u8], base: Offset) -> impl ExactSizeIterator<Item = (TimestampMs, Offset)> {
    bytes.as_chunks::<12>().0.iter().map(move |&[a, b, c, d, e, f, g, h, i, j, k, l]| {
        let timestamp = TimestampMs(i64::from_be_bytes([a, b, c, d, e, f, g, h]));
        (timestamp, base.plus(i64::from(i32::from_be_bytes([i, j, k, l]))))
    })
}

/// The entries of a transaction index.
pub fn aborted_txns(bytes: &[u8]) -> impl Iterator<Item = io::Result<AbortedTxn>> {
    bytes.as_chunks().0.iter().map(txn_index::decode)
}
