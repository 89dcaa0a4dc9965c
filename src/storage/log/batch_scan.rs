//! Reading the batches of a segment whole, one after the other, a large piece at a time. Must not know why they are read.
//!
//! Invariant: at most one piece is in memory, or one batch if that is larger.

use std::io;
use std::sync::Arc;

use super::segment::Segment;
use crate::storage::disk::DiskFile;
use crate::wire::batch::{Batch, BatchError, Batches, MAGIC, PartialTail, magic_and_size};

#[derive(Debug)]
pub struct BatchScan {
    file: Arc<dyn DiskFile>,
    end: u64,
    chunk_bytes: usize,
    /// Where in the file the next batch starts.
    position: u64,
    buffer: Vec<u8>,
    /// Where in the buffer the next batch starts.
    at: usize,
}

impl BatchScan {
    pub fn new(segment: &Segment, position: u64, chunk_bytes: usize) -> io::Result<BatchScan> {
        Ok(BatchScan::over(segment.log_file().get()?, segment.size(), position, chunk_bytes))
    }

    /// The same over a file of `end` bytes.
    pub fn over(file: Arc<dyn DiskFile>, end: u64, position: u64, chunk_bytes: usize) -> BatchScan {
        BatchScan { file, end, chunk_bytes, position, buffer: Vec::new(), at: 0 }
    }

    /// Where in the file the next batch starts.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next batch, or why it is none; `None` at the end.
    pub fn advance(&mut self) -> io::Result<Option<Result<Batch<'_>, BatchError>>> {
        self.prepare()?;
        Ok(self.next_prepared())
    }

    /// Reads what is missing of the next batch, and what follows. Returns how many bytes that were.
    pub fn prepare(&mut self) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.position)).unwrap_or(usize::MAX);
        let (mut wanted, mut read) = (self.chunk_bytes.min(left), 0);
        if left == 0 {
            return Ok(read);
        }
        loop {
            match next_batch(&self.buffer[self.at..]) {
                Some(Err(BatchError::Truncated { needed, available }))
                    if available < left && needed <= left =>
                {
                    wanted = wanted.max(needed);
                    self.buffer.clear();
                    self.at = 0;
                    let next = self.position + wanted as u64;
                    self.file.will_read(next, self.chunk_bytes.min(left.saturating_sub(wanted)));
                    self.file.read_into(&mut self.buffer, wanted, self.position)?;
                    read += self.buffer.len();
                    // The file is shorter than it was said to be.
                    if self.buffer.len() < needed {
                        break;
                    }
                }
                _ => break,
            }
        }
        Ok(read)
    }

    /// The bytes of what comes next if it is a message of a format that is no longer written, and whole.
    pub fn take_message(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(Ok((magic, size))) = self.buffer.get(self.at..).map(magic_and_size) else { return Ok(None) };
        if magic >= MAGIC || self.position + size as u64 > self.end {
            return Ok(None);
        }
        let message = match self.buffer.get(self.at..self.at + size) {
            Some(message) => message.to_vec(),
            None => self.file.read_vec(size, self.position)?,
        };
        self.position += size as u64;
        self.at = (self.at + size).min(self.buffer.len());
        Ok(Some(message))
    }

    /// The next batch, or why it is none, once it is prepared; `None` at the end.
    pub fn next_prepared(&mut self) -> Option<Result<Batch<'_>, BatchError>> {
        if self.position >= self.end {
            return None;
        }
        let batch = next_batch(&self.buffer[self.at..]);
        if let Some(Ok(batch)) = &batch {
            self.position += batch.bytes.len() as u64;
            self.at += batch.bytes.len();
        }
        batch
    }
}

fn next_batch(bytes: &[u8]) -> Option<Result<Batch<'_>, BatchError>> {
    if bytes.is_empty() {
        // More than nothing is needed to tell.
        return Some(Err(BatchError::Truncated { needed: 1, available: 0 }));
    }
    Batches::new(bytes, PartialTail::Refuse).next()
}
