//! Memory for large frames and for answers from disk. A buffer is used again as soon as the last slice of its contents is
//! gone: for fresh memory the system has to find and clear pages, which costs as much as a copy, and memory that was used a
//! moment ago is still in the processor's caches.
//!
//! Invariant: a buffer's bytes are initialised to its full length and nothing but the `filled` first ones is ever shown;
//! at most `POOLED` bytes lie unused in the pool.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// The most that lies in the pool.
const POOLED: usize = 8 << 20;
/// Smaller buffers are not worth keeping.
const SMALLEST_KEPT: usize = 64 << 10;
/// Buffers are made in multiples of this, so that they fit others.
const GRAIN: usize = 64 << 10;

static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), bytes: 0 });

#[derive(Debug)]
struct Pool {
    free: Vec<Vec<u8>>,
    bytes: usize,
}

/// One buffer in use.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    filled: usize,
}

impl Buffer {
    /// A buffer for about `len` bytes, from the pool if one fits. Pages of a new one cost nothing until they are filled.
    pub fn for_len(len: usize) -> Buffer {
        let mut pool = pool();
        let fitting = pool.free.iter().rposition(|free| free.len() >= len && free.len() / 2 <= len);
        if let Some(index) = fitting {
            let bytes = pool.free.swap_remove(index);
            pool.bytes -= bytes.len();
            return Buffer { bytes, filled: 0 };
        }
        drop(pool);
        let len = if len < SMALLEST_KEPT { len } else { len.next_multiple_of(GRAIN) };
        Buffer { bytes: vec![0; len], filled: 0 }
    }

    /// Room for `len` bytes behind what there is; what is written to it counts once [`fill`](Self::fill) was told.
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.filled + len;
        if self.bytes.len() < end {
            self.bytes.reserve_exact(end - self.bytes.len());
            self.bytes.resize(end, 0);
        }
        &mut self.bytes[self.filled..end]
    }

    /// So many bytes of the room were written.
    pub fn fill(&mut self, len: usize) {
        assert!(self.filled + len <= self.bytes.len(), "only what there is room for can be filled");
        self.filled += len;
    }

    /// What was filled from `from` on.
    pub fn rest(&self, from: usize) -> Option<&[u8]> {
        self.bytes[..self.filled].get(from..)
    }

    pub fn len(&self) -> usize {
        self.filled
    }

    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Drops the first `count` bytes, or all when there are fewer.
    pub fn discard_front(&mut self, count: usize) {
        let count = count.min(self.filled);
        self.bytes.copy_within(count..self.filled, 0);
        self.filled -= count;
    }

    /// A part of what was filled; the buffer goes back to the pool when it is dropped.
    pub fn freeze(self, range: Range<usize>) -> Bytes {
        Bytes::from_owner(self).slice(range)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut pool = pool();
        if bytes.len() >= SMALLEST_KEPT && pool.bytes + bytes.len() <= POOLED {
            pool.bytes += bytes.len();
            pool.free.push(bytes);
        }
    }
}

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(len: usize, contents: &[u8]) -> Buffer {
        let mut buffer = Buffer::for_len(len);
        buffer.room(contents.len()).copy_from_slice(contents);
        buffer.fill(contents.len());
        buffer
    }

    #[test]
    fn a_buffer_that_comes_back_shows_nothing_of_its_last_contents() {
        let last = filled(100_000, &[7; 100_000]);
        assert_eq!(last.freeze(99_990..100_000), [7u8; 10][..]);

        let mut buffer = filled(100_000, b"bcdef");
        assert_eq!((buffer.len(), buffer.rest(3)), (5, Some(&b"ef"[..])));
        assert_eq!(buffer.rest(6), None);
        buffer.discard_front(2);
        assert_eq!(buffer.as_ref(), b"def");
    }

    #[test]
    fn a_buffer_grows_when_more_is_asked_for() {
        let mut buffer = filled(10, b"0123456789");
        buffer.room(90_000).fill(1);
        buffer.fill(90_000);
        assert_eq!(buffer.len(), 90_010);
        assert_eq!(buffer.freeze(8..12), b"89\x01\x01"[..]);
    }
}
