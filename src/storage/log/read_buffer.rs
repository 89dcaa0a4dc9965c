//! Memory that answers from disk are read into. A buffer is used again as soon as the last slice of its answer is gone:
//! for fresh memory the system has to find and clear pages, which costs as much as the read itself.
//!
//! Invariant: a buffer's bytes are initialised to its full length, `filled` of them are from the file, and at most
//! `POOLED` bytes lie unused in the pool.

use std::io;
use std::ops::Range;
use std::sync::Mutex;

use bytes::Bytes;

use crate::storage::disk::DiskFile;
use crate::storage::locked;

/// The most that lies in the pool.
const POOLED: usize = 8 << 20;
/// Smaller buffers are not worth keeping.
const SMALLEST_KEPT: usize = 64 << 10;

static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), bytes: 0 });

#[derive(Debug)]
struct Pool {
    free: Vec<Vec<u8>>,
    bytes: usize,
}

/// One buffer in use.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    bytes: Vec<u8>,
    filled: usize,
}

impl ReadBuffer {
    /// A buffer for about `len` bytes, from the pool if one fits.
    pub(super) fn for_len(len: usize) -> ReadBuffer {
        let mut pool = locked(&POOL);
        let fitting = pool.free.iter().position(|free| free.len() >= len && free.len() / 2 <= len);
        let bytes = fitting.map(|index| pool.free.swap_remove(index)).unwrap_or_default();
        pool.bytes -= bytes.len();
        ReadBuffer { bytes, filled: 0 }
    }

    /// Appends up to `len` bytes of the file from `offset`, fewer only at its end.
    pub(super) fn read(&mut self, file: &dyn DiskFile, len: usize, offset: u64) -> io::Result<()> {
        let start = self.filled;
        let end = start + len;
        if self.bytes.len() < end {
            self.bytes.reserve_exact(end - self.bytes.len());
            self.bytes.resize(end, 0);
        }
        while self.filled < end {
            let at = offset + (self.filled - start) as u64;
            match file.read_at(&mut self.bytes[self.filled..end], at)? {
                0 => break,
                read => self.filled += read,
            }
        }
        Ok(())
    }

    /// What was read from `from` on.
    pub(super) fn rest(&self, from: usize) -> Option<&[u8]> {
        self.bytes[..self.filled].get(from..)
    }

    pub(super) fn len(&self) -> usize {
        self.filled
    }

    /// Drops the first `count` bytes, or all when there are fewer.
    pub(super) fn discard_front(&mut self, count: usize) {
        let count = count.min(self.filled);
        self.bytes.copy_within(count..self.filled, 0);
        self.filled -= count;
    }

    /// A part of what was read; the buffer goes back to the pool when it is dropped.
    pub(super) fn freeze(self, range: Range<usize>) -> Bytes {
        Bytes::from_owner(self).slice(range)
    }
}

impl AsRef<[u8]> for ReadBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut pool = locked(&POOL);
        if bytes.len() >= SMALLEST_KEPT && pool.bytes + bytes.len() <= POOLED {
            pool.bytes += bytes.len();
            pool.free.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::disk::{Disk, OpenMode, RealDisk};

    #[test]
    fn a_buffer_that_comes_back_shows_nothing_of_its_last_answer() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let file = RealDisk.open(&dir.path().join(name), OpenMode::Truncate).unwrap();
            file.write_all_at(&[io::IoSlice::new(bytes)], 0).unwrap();
            file
        };
        let (long, short) = (file("long", &[7; 100_000]), file("short", b"abcdef"));
        let mut buffer = ReadBuffer::for_len(100_000);
        buffer.read(&*long, 100_000, 0).unwrap();
        assert_eq!(buffer.freeze(99_990..100_000), [7u8; 10][..]);

        let mut buffer = ReadBuffer::for_len(100_000);
        buffer.read(&*short, 100_000, 1).unwrap();
        assert_eq!((buffer.len(), buffer.rest(3)), (5, Some(&b"ef"[..])));
        assert_eq!(buffer.rest(6), None);
        buffer.discard_front(2);
        assert_eq!(buffer.as_ref(), b"def");
    }
}
