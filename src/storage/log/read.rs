//! Reading batches from segment files: the cold half of a fetch, and the walk over headers that searches need. Blocks on the
//! disk. Must not know what may be shown to whom.
//!
//! Invariant: what is returned are whole batches, in order, and as they were written.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::damage::{Damage, EpochWatch, check_offsets};
use super::epoch_cache::EpochCache;
use super::segment::Segment;
use super::sight::contradicts;
use super::view::{end_of, segment_of, shown_size};
use crate::fault::{self, Fault};
use crate::storage::disk::DiskFile;
use crate::types::Offset;
use crate::wire::batch::{BatchError, BatchHeader, HEADER_LEN};
use crate::wire::buffer::Buffer;

/// Bytes that a walk over headers reads at a time.
const WALK_CHUNK: usize = 64 << 10;
/// So much is asked of the disk at a time, while the next piece is announced. With larger pieces a sync waits longer behind
/// those of a reader of old data, and no more is read per second.
const PIECE: usize = 256 << 10;
/// Read beyond what was asked for, because the index points somewhat before the wanted batch.
const SLACK: usize = 8 << 10;

/// From so many segments one read takes batches without a record.
const EMPTY_SEGMENTS_MAX: usize = 1_000;

/// A read that was planned by a view.
#[derive(Debug)]
pub struct ColdRead {
    pub(super) segments: Arc<[Arc<Segment>]>,
    pub(super) active_size: u64,
    pub(super) log_end: Offset,
    pub(super) truncations: u32,
    pub(super) epochs: EpochCache,
    pub(super) from: Offset,
    pub(super) max_bytes: usize,
    pub(super) upto: Offset,
    pub(super) min_one_batch: bool,
}

/// The batch that a read begins with.
struct First {
    header: BatchHeader,
    /// Where it starts in the file.
    position: u64,
    /// The batch before it, if that was looked at, and where that ended, or a bound below.
    before: Option<BatchHeader>,
    after: Offset,
    /// So much may come with it.
    max_bytes: usize,
}

impl ColdRead {
    /// Reads the batches, of one segment with records at most. Every batch is checked: what was damaged is not handed on, and
    /// fails the read when it comes first ([`Damage`]).
    ///
    /// Compaction leaves empty batches. Those before the first record come with it: there are clients (librdkafka) that take an
    /// answer without a record for one that was cut off.
    pub fn run(&self) -> io::Result<Bytes> {
        let (mut empty, mut count) = (BytesMut::new(), 0);
        for segment in &self.segments[segment_of(&self.segments, self.from)..] {
            if segment.base() >= self.upto || count == EMPTY_SEGMENTS_MAX {
                break;
            }
            let max_bytes = self.max_bytes.saturating_sub(empty.len());
            let batches = match self.read_segment(segment, max_bytes) {
                // A segment has nothing at or after `from` when compaction took its last records.
                Ok(None) => continue,
                Ok(Some(batches)) => batches,
                Err(error) if empty.is_empty() => return Err(error),
                // The next read begins with it.
                Err(_) => break,
            };
            let is_last = batches.is_empty() || has_record(&batches);
            if is_last && empty.is_empty() {
                return Ok(batches);
            }
            empty.extend_from_slice(&batches);
            count += 1;
            if is_last {
                break;
            }
        }
        Ok(empty.freeze())
    }

    fn read_segment(&self, segment: &Arc<Segment>, max_bytes: usize) -> io::Result<Option<Bytes>> {
        let start = segment.search_from(self.from)?;
        match self.read_from(segment, start, max_bytes) {
            // Read once more, from the segment's start: an index can lead astray, and so can a single read.
            Err(error) if Damage::of(&error).is_some_and(|damage| !damage.is_known()) => {
                self.read_from(segment, 0, max_bytes).map_err(told_from_legacy)
            }
            result => result,
        }
    }

    fn read_from(&self, segment: &Arc<Segment>, start: u64, max_bytes: usize) -> io::Result<Option<Bytes>> {
        let size = shown_size(&self.segments, self.active_size, segment);
        let segment_end = end_of(&self.segments, segment, self.log_end);
        let file = segment.log_file().get()?;
        let wanted = max_bytes.max(HEADER_LEN).saturating_add(SLACK);
        let wanted = wanted.min(to_usize(size.saturating_sub(start)));
        let mut bytes = Buffer::for_len(wanted);
        read_more(&mut bytes, &*file, wanted, start)?;

        // Skip to the batch that holds `from`; a large batch before it may fill all that was read.
        let trusts = fault::is_active(Fault::TrustsIndexes);
        let (mut skip, mut after, mut before) = (0, segment.base(), None);
        loop {
            let position = start + skip as u64;
            let (header, is_here) = match bytes.rest(skip).map(BatchHeader::parse) {
                Some(Ok(header)) => (header, true),
                Some(Err(BatchError::Truncated { .. })) | None if position >= size => return Ok(None),
                Some(Err(BatchError::Truncated { .. })) | None => {
                    match read_header(&*file, position)
                        .map_err(|error| self.explain(error, segment, position))?
                    {
                        Some(header) => (header, false),
                        None => return self.check_cut(&*file, segment, position, size).map(|()| None),
                    }
                }
                Some(Err(error)) => return Err(self.damage(segment, position, error)),
            };
            check_offsets(&header, after..segment_end).map_err(|why| self.damage(segment, position, why))?;
            if position + header.size_in_bytes() as u64 > size {
                let (needed, available) = (header.size_in_bytes(), to_usize(size - position));
                return Err(self.damage(segment, position, BatchError::Truncated { needed, available }));
            }
            if header.last_offset() >= self.from {
                match before {
                    // Compaction leaves gaps. But perhaps it only tells a wrong end.
                    Some((position, before)) if header.base_offset > self.from => {
                        self.check_crc(&*file, segment, position, &before)?;
                    }
                    // The index leads beyond what is wanted.
                    None if header.base_offset > self.from && start > 0 && !trusts => {
                        let BatchHeader { base_offset, last_offset_delta, .. } = header;
                        let why = BatchError::OffsetRange { base_offset, last_offset_delta };
                        return Err(self.damage(segment, position, why));
                    }
                    _ => {}
                }
                if !is_here {
                    bytes.discard_front(skip);
                    skip = 0;
                }
                let before = before.map(|(_, before)| before);
                let first = First { header, position, before, after, max_bytes };
                return self.cut(bytes, skip, &first, segment, (&*file, size)).map(Some);
            }
            before = Some((position, header));
            after = header.next_offset();
            skip += header.size_in_bytes();
        }
    }

    /// What may be returned of `bytes` from the first batch on, which starts at `skip`; the file has `size` bytes.
    fn cut(
        &self,
        mut bytes: Buffer,
        skip: usize,
        first: &First,
        segment: &Arc<Segment>,
        (file, size): (&dyn DiskFile, u64),
    ) -> io::Result<Bytes> {
        let first_size = first.header.size_in_bytes();
        // The end that it tells may be damaged.
        let is_beyond = first.header.last_offset() >= self.upto;
        if !is_beyond && first_size > first.max_bytes && !self.min_one_batch {
            return Ok(Bytes::new());
        }
        let budget = if is_beyond { first_size } else { first.max_bytes.max(first_size) };
        // Complete the answer when the batches that were skipped, or a large first one, took its room.
        let have = bytes.len().saturating_sub(skip);
        let missing = budget.min(to_usize(size - first.position)).saturating_sub(have);
        if missing > 0 {
            read_more(&mut bytes, file, missing, first.position + have as u64)?;
        }
        // The next read is likely to go on here.
        let read_to = first.position + bytes.len().saturating_sub(skip) as u64;
        file.will_read(read_to, PIECE.min(first.max_bytes).min(to_usize(size.saturating_sub(read_to))));
        let (mut end, mut after) = (skip, first.after);
        let segment_end = end_of(&self.segments, segment, self.log_end);
        let mut epochs = EpochWatch::behind(&self.epochs, first.before.as_ref());
        while let Some(Ok(header)) = bytes.rest(end).map(BatchHeader::parse) {
            let next = end + header.size_in_bytes();
            if end > skip && (header.last_offset() >= self.upto || next - skip > budget || next > bytes.len())
            {
                break;
            }
            let checked = match header.check_crc(bytes.rest(end).unwrap_or_default()) {
                Err(_) if fault::is_active(Fault::ServesDamaged) => Ok(()),
                checked => checked,
            };
            let checked = checked.and_then(|()| check_offsets(&header, after..segment_end));
            let behind = || match bytes.rest(next).map(BatchHeader::parse) {
                Some(Ok(behind)) => Some(behind),
                _ => header_at(file, first.position + (next - skip) as u64, size).ok()?,
            };
            let checked = checked.and_then(|()| check_gap(&header, after, behind));
            match checked.and_then(|()| epochs.check(&header, behind)) {
                Ok(()) if is_beyond => return Ok(Bytes::new()),
                Ok(()) => (end, after) = (next, header.next_offset()),
                Err(why) if end == skip => return Err(self.damage(segment, first.position, why)),
                // The next read begins with it.
                Err(_) => break,
            }
        }
        Ok(bytes.freeze(skip..end))
    }

    /// The file ends at `position` or soon after. That is no damage if it was cut meanwhile.
    fn check_cut(
        &self,
        file: &dyn DiskFile,
        segment: &Arc<Segment>,
        position: u64,
        size: u64,
    ) -> io::Result<()> {
        if shown_size(&self.segments, self.active_size, segment) < size {
            return Ok(());
        }
        let available = to_usize(file.len()?.saturating_sub(position));
        Err(self.damage(segment, position, BatchError::Truncated { needed: HEADER_LEN, available }))
    }

    fn check_crc(
        &self,
        file: &dyn DiskFile,
        segment: &Arc<Segment>,
        position: u64,
        header: &BatchHeader,
    ) -> io::Result<()> {
        let batch = file.read_vec(header.size_in_bytes(), position)?;
        header.check_crc(&batch).map_err(|why| self.damage(segment, position, why))
    }

    fn damage(&self, segment: &Arc<Segment>, position: u64, why: BatchError) -> io::Error {
        Damage::new(segment, position, why, self.truncations).into()
    }

    fn explain(&self, error: HeaderError, segment: &Arc<Segment>, position: u64) -> io::Error {
        match error {
            HeaderError::Batch(why) => self.damage(segment, position, why),
            HeaderError::Io(error) => error,
        }
    }
}

/// Whether there is a record in these whole batches.
fn has_record(mut batches: &[u8]) -> bool {
    while let Ok(header) = BatchHeader::parse(batches) {
        if header.record_count > 0 {
            return true;
        }
        batches = batches.get(header.size_in_bytes()..).unwrap_or_default();
    }
    false
}

/// Compaction leaves gaps. But perhaps the base offset is not what it was: then the next batch begins before this one ends.
fn check_gap(
    header: &BatchHeader,
    after: Offset,
    behind: impl FnOnce() -> Option<BatchHeader>,
) -> Result<(), BatchError> {
    if header.base_offset == after || !behind().is_some_and(|behind| contradicts(header, &behind, after)) {
        return Ok(());
    }
    let BatchHeader { base_offset, last_offset_delta, .. } = *header;
    Err(BatchError::OffsetRange { base_offset, last_offset_delta })
}

/// What Kafka wrote in an old format is no damage: no other replica has anything else.
fn told_from_legacy(error: io::Error) -> io::Error {
    match Damage::of(&error) {
        Some(damage) if damage.is_legacy_message() => {
            io::Error::new(io::ErrorKind::InvalidData, damage.to_string())
        }
        _ => error,
    }
}

/// Appends to `into` up to `len` bytes of the file from `offset`, fewer only at its end.
fn read_more(into: &mut Buffer, file: &dyn DiskFile, len: usize, offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        let piece = PIECE.min(len - done);
        let at = offset + done as u64;
        file.will_read(at + piece as u64, PIECE.min(len - done - piece));
        match file.read_at(into.room(piece), at)? {
            0 => break,
            read => {
                into.fill(read);
                done += read;
            }
        }
    }
    Ok(())
}

/// Why there is no header.
enum HeaderError {
    Batch(BatchError),
    Io(io::Error),
}

/// The header of the batch at `position`; `None` when the file ends before.
fn read_header(file: &dyn DiskFile, position: u64) -> Result<Option<BatchHeader>, HeaderError> {
    let mut head = [0; HEADER_LEN];
    match file.read_exact_at(&mut head, position) {
        Ok(()) => BatchHeader::parse(&head).map(Some).map_err(HeaderError::Batch),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(HeaderError::Io(error)),
    }
}

/// The header of the batch at `position` of a file with `size` bytes of batches; `None` at the end.
pub fn header_at(file: &dyn DiskFile, position: u64, size: u64) -> io::Result<Option<BatchHeader>> {
    if position >= size {
        return Ok(None);
    }
    read_header(file, position).map_err(|error| match error {
        HeaderError::Io(error) => error,
        HeaderError::Batch(error) => {
            io::Error::new(io::ErrorKind::InvalidData, format!("batch at {position}: {error}"))
        }
    })
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

    /// From a batch on that lies at or before the one that holds `offset`.
    pub fn before(segment: &Segment, offset: Offset) -> io::Result<HeaderWalk> {
        let mut walk = HeaderWalk::new(segment, segment.search_from(offset)?)?;
        let start = walk.position;
        if start > 0 {
            match walk.advance() {
                Ok(Some((_, first))) if first.base_offset <= offset => walk.position = start,
                Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
                // The index leads astray.
                _ => return HeaderWalk::new(segment, 0),
            }
        }
        Ok(walk)
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

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::path::Path;
    use std::sync::Mutex;

    use super::*;
    use crate::storage::disk::{Disk, OpenMode};
    use crate::storage::sim_disk::SimDisk;
    use crate::types::TimestampMs;

    /// A file that notes what is announced and what is read, each as a range.
    #[derive(Debug)]
    struct Noting {
        file: Arc<dyn DiskFile>,
        announced: Mutex<Vec<(u64, usize)>>,
        read: Mutex<Vec<(u64, usize)>>,
    }

    impl DiskFile for Noting {
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }
        fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
            self.read.lock().unwrap().push((offset, buf.len()));
            self.file.read_at(buf, offset)
        }
        fn read_into(&self, into: &mut Vec<u8>, len: usize, offset: u64) -> io::Result<()> {
            self.file.read_into(into, len, offset)
        }
        fn write_all_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
            self.file.write_all_at(parts, offset)
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.file.set_len(len)
        }
        fn set_modified(&self, at: TimestampMs) -> io::Result<()> {
            self.file.set_modified(at)
        }
        fn sync_data(&self) -> io::Result<()> {
            self.file.sync_data()
        }
        fn will_read(&self, offset: u64, len: usize) {
            if len > 0 {
                self.announced.lock().unwrap().push((offset, len));
            }
        }
    }

    #[test]
    fn large_reads_go_by_pieces_each_announced_before_the_one_in_front_of_it_is_read() {
        let content: Vec<u8> = (0..3 * PIECE + 10).map(|at| (at / 7) as u8).collect();
        let file = SimDisk::new().open(Path::new("/f"), OpenMode::Create).unwrap();
        file.write_all_at(&[IoSlice::new(&content)], 0).unwrap();
        let file = Noting { file, announced: Mutex::default(), read: Mutex::default() };

        let mut bytes = Buffer::for_len(10);
        read_more(&mut bytes, &file, 2 * PIECE + 5, 3).unwrap();
        assert_eq!(bytes.rest(0), Some(&content[3..2 * PIECE + 8]));
        let piece = PIECE as u64;
        let pieces = [(3, PIECE), (3 + piece, PIECE), (3 + 2 * piece, 5)];
        assert_eq!(*file.read.lock().unwrap(), pieces);
        assert_eq!(*file.announced.lock().unwrap(), pieces[1..]);
        // What is small is one piece, and the end of the file ends it.
        read_more(&mut bytes, &file, 100, 3 * piece).unwrap();
        assert_eq!(bytes.len(), 2 * PIECE + 15);
        assert_eq!(*file.announced.lock().unwrap(), pieces[1..]);
    }
}
