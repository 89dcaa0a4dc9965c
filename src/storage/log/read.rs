//! Reading batches from segment files: the cold half of a fetch, and the walk over headers that searches need. Blocks on the
//! disk. Must not know what may be shown to whom.
//!
//! Invariant: what is returned are whole batches, in order.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::segment::Segment;
use super::view::segment_of;
use crate::storage::disk::DiskFile;
use crate::types::Offset;
use crate::wire::batch::{BatchError, BatchHeader, HEADER_LEN};
use crate::wire::buffer::Buffer;

/// Bytes that a walk over headers reads at a time.
const WALK_CHUNK: usize = 64 << 10;
/// Read beyond what was asked for, because the index points somewhat before the wanted batch.
const SLACK: usize = 8 << 10;

/// A read that was planned by a view.
#[derive(Debug)]
pub struct ColdRead {
    pub(super) segments: Arc<[Arc<Segment>]>,
    pub(super) from: Offset,
    pub(super) max_bytes: usize,
    pub(super) upto: Offset,
    pub(super) min_one_batch: bool,
}

impl ColdRead {
    /// Reads the batches, of one segment at most.
    pub fn run(&self) -> io::Result<Bytes> {
        for segment in &self.segments[segment_of(&self.segments, self.from)..] {
            if segment.base() >= self.upto {
                break;
            }
            // A segment has nothing at or after `from` when compaction took its last records.
            if let Some(batches) = self.read_segment(segment)? {
                return Ok(batches);
            }
        }
        Ok(Bytes::new())
    }

    fn read_segment(&self, segment: &Segment) -> io::Result<Option<Bytes>> {
        let start = segment.search_from(self.from)?;
        let size = segment.size();
        let file = segment.log_file().get()?;
        let wanted = self.max_bytes.max(HEADER_LEN).saturating_add(SLACK);
        let wanted = wanted.min(to_usize(size.saturating_sub(start)));
        let mut bytes = Buffer::for_len(wanted);
        read_more(&mut bytes, &*file, wanted, start)?;

        // Skip to the batch that holds `from`; a large batch before it may fill all that was read.
        let mut skip = 0;
        let header = loop {
            match bytes.rest(skip).map(BatchHeader::parse) {
                Some(Ok(header)) if header.last_offset() >= self.from => break header,
                Some(Ok(header)) => skip += header.size_in_bytes(),
                Some(Err(BatchError::Truncated { .. })) | None => {
                    let position = start + skip as u64;
                    if position >= size {
                        return Ok(None);
                    }
                    let Some(header) = header_at(&*file, position, size)? else { return Ok(None) };
                    if header.last_offset() >= self.from {
                        bytes.discard_front(skip);
                        return self.cut(bytes, 0, &header, &*file, position..size).map(Some);
                    }
                    skip += header.size_in_bytes();
                }
                Some(Err(error)) => return Err(corrupt(segment, start + skip as u64, error)),
            }
        };
        self.cut(bytes, skip, &header, &*file, start + skip as u64..size).map(Some)
    }

    /// What may be returned of `bytes` from the batch `first` on, which starts at `skip`; in the file it starts the
    /// range `rest` that ends with the segment.
    fn cut(
        &self,
        mut bytes: Buffer,
        skip: usize,
        first: &BatchHeader,
        file: &dyn DiskFile,
        rest: Range<u64>,
    ) -> io::Result<Bytes> {
        let first_size = first.size_in_bytes();
        if first.last_offset() >= self.upto || (first_size > self.max_bytes && !self.min_one_batch) {
            return Ok(Bytes::new());
        }
        let budget = self.max_bytes.max(first_size);
        // Complete the answer when the batches that were skipped, or a large first one, took its room.
        let have = bytes.len().saturating_sub(skip);
        let missing = budget.min(to_usize(rest.end - rest.start)).saturating_sub(have);
        if missing > 0 {
            read_more(&mut bytes, file, missing, rest.start + have as u64)?;
        }
        let mut end = skip;
        while let Some(Ok(header)) = bytes.rest(end).map(BatchHeader::parse) {
            let next = end + header.size_in_bytes();
            if header.last_offset() >= self.upto || next - skip > budget || next > bytes.len() {
                break;
            }
            end = next;
        }
        Ok(bytes.freeze(skip..end))
    }
}

/// Appends to `into` up to `len` bytes of the file from `offset`, fewer only at its end.
fn read_more(into: &mut Buffer, file: &dyn DiskFile, len: usize, offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        match file.read_at(into.room(len - done), offset + done as u64)? {
            0 => break,
            read => {
                into.fill(read);
                done += read;
            }
        }
    }
    Ok(())
}

/// The header of the batch at `position` of a file with `size` bytes of batches; `None` at the end.
pub fn header_at(file: &dyn DiskFile, position: u64, size: u64) -> io::Result<Option<BatchHeader>> {
    if position >= size {
        return Ok(None);
    }
    let mut head = [0; HEADER_LEN];
    match file.read_exact_at(&mut head, position) {
        Ok(()) => {}
        // Truncated meanwhile.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    BatchHeader::parse(&head)
        .map(Some)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("batch at {position}: {error}")))
}

fn corrupt(segment: &Segment, position: u64, error: BatchError) -> io::Error {
    let path = segment.log_file().path();
    io::Error::new(io::ErrorKind::InvalidData, format!("{} at {position}: {error}", path.display()))
}

fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Walks the headers of a segment from a position on.
#[derive(Debug)]
pub struct HeaderWalk {
    file: Arc<dyn DiskFile>,
    /// Where the next batch starts.
    position: u64,
    end: u64,
    chunk: Vec<u8>,
    chunk_at: u64,
    /// The size of the batch before `position`: after a large one it does not pay to read more than a header.
    last_size: usize,
}

impl HeaderWalk {
    pub fn new(segment: &Segment, position: u64) -> io::Result<HeaderWalk> {
        let file = segment.log_file().get()?;
        Ok(HeaderWalk { file, position, end: segment.size(), chunk: Vec::new(), chunk_at: 0, last_size: 0 })
    }

    /// The next batch's position and header.
    pub fn advance(&mut self) -> io::Result<Option<(u64, BatchHeader)>> {
        if self.position >= self.end {
            return Ok(None);
        }
        let position = self.position;
        let offset_in_chunk = position.checked_sub(self.chunk_at).map(to_usize);
        let parsed = offset_in_chunk.and_then(|at| self.chunk.get(at..)).map(BatchHeader::parse);
        let parsed = match parsed {
            None | Some(Err(BatchError::Truncated { .. })) => {
                let chunk = if self.last_size < WALK_CHUNK / 2 { WALK_CHUNK } else { HEADER_LEN };
                let len = chunk.min(to_usize(self.end - position));
                self.chunk.clear();
                self.file.read_into(&mut self.chunk, len, position)?;
                self.chunk_at = position;
                BatchHeader::parse(&self.chunk)
            }
            Some(parsed) => parsed,
        };
        let header = parsed.map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidData, format!("batch at {position}: {error}"))
        })?;
        self.last_size = header.size_in_bytes();
        self.position += self.last_size as u64;
        Ok(Some((position, header)))
    }

    /// Where the next batch starts.
    pub fn position(&self) -> u64 {
        self.position
    }
}
