//! A message as a list of segments, with record bytes by reference.
//!
//! The `kafka-protocol` encoders copy every byte into the buffer they are given. [`RopeWriter`] is such a buffer that
//! is told beforehand which payloads will come, in order. When the encoder writes a slice that starts where the next
//! payload starts and is as long, it is that payload, and the writer keeps a reference instead of the bytes; all else
//! is copied. A payload that is not recognised is copied too, so the bytes are right in any case (tests see to it that
//! none is).
//!
//! Knows nothing of messages. This is the only file with `unsafe`: `BufMut` is an unsafe trait. What it demands is that
//! `chunk_mut` gives a region that `advance_mut` may then count as written. Both are handed on unchanged to a
//! `BytesMut`, and the writer's own fields never claim anything about that region.
//!
//! Invariant: the segments in order are exactly the bytes that a plain buffer would hold.

#![expect(unsafe_code, reason = "BufMut is an unsafe trait; see the file's description")]

use bytes::buf::UninitSlice;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::buf::ByteBufMut;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

/// Below this length a payload is copied: a segment of its own costs more than that.
const MIN_SHARED_LEN: usize = 512;

/// Encoded bytes in segments. Reading through `Buf` consumes it, with one `IoSlice` for each segment.
#[derive(Clone, Debug, Default)]
pub struct Rope {
    segments: VecDeque<Bytes>,
    len: usize,
}

impl Rope {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn segments(&self) -> impl Iterator<Item = &Bytes> {
        self.segments.iter()
    }

    /// All segments for one vectored write.
    pub fn slices(&self) -> Vec<IoSlice<'_>> {
        self.segments.iter().map(|segment| IoSlice::new(segment)).collect()
    }

    /// Appends a segment.
    pub fn push(&mut self, segment: Bytes) {
        if !segment.is_empty() {
            self.len += segment.len();
            self.segments.push_back(segment);
        }
    }

    /// All bytes in one piece; copies unless there is only one segment.
    pub fn into_bytes(mut self) -> Bytes {
        self.copy_to_bytes(self.len)
    }
}

impl From<Bytes> for Rope {
    fn from(bytes: Bytes) -> Rope {
        let mut rope = Rope::default();
        rope.push(bytes);
        rope
    }
}

impl Buf for Rope {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.segments.front().map_or(&[], |segment| segment)
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let filled = into.len().min(self.segments.len());
        for (slot, segment) in into.iter_mut().zip(&self.segments) {
            *slot = IoSlice::new(segment);
        }
        filled
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len, "advanced beyond the end of a rope");
        self.len -= count;
        while let Some(front) = self.segments.front_mut() {
            if count < front.len() {
                front.advance(count);
                break;
            }
            count -= front.len();
            self.segments.pop_front();
        }
    }

    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        assert!(len <= self.len, "more bytes wanted than a rope has");
        match self.segments.front_mut() {
            Some(front) if len <= front.len() => {
                let bytes = front.slice(..len);
                self.advance(len);
                bytes
            }
            _ => {
                let mut bytes = BytesMut::with_capacity(len);
                bytes.put(self.take(len));
                bytes.freeze()
            }
        }
    }
}

/// The buffer that messages are encoded into.
pub struct RopeWriter {
    /// What was copied, all of it in one allocation.
    owned: BytesMut,
    /// Payloads by reference, with the number of owned bytes before each.
    shared: Vec<(usize, Bytes)>,
    shared_len: usize,
    /// Payloads still to come.
    expected: VecDeque<Bytes>,
}

impl RopeWriter {
    /// A writer that will be given `payloads` in this order, among other bytes.
    pub fn new(payloads: impl IntoIterator<Item = Bytes>) -> RopeWriter {
        RopeWriter {
            owned: BytesMut::with_capacity(256),
            shared: Vec::new(),
            shared_len: 0,
            expected: payloads.into_iter().filter(|payload| payload.len() >= MIN_SHARED_LEN).collect(),
        }
    }

    pub fn finish(self) -> Rope {
        let owned = self.owned.freeze();
        let mut rope = Rope::default();
        let mut done = 0;
        for (before, payload) in self.shared {
            rope.push(owned.slice(done..before));
            rope.push(payload);
            done = before;
        }
        rope.push(owned.slice(done..));
        rope
    }

    /// Finishes a frame whose first four bytes are room for its length; `None` if the length does not fit.
    pub fn finish_frame(mut self) -> Option<Rope> {
        let room = size_of::<i32>();
        let len = i32::try_from(self.offset().checked_sub(room)?).ok()?;
        self.range(0..room).copy_from_slice(&len.to_be_bytes());
        Some(self.finish())
    }

    /// The next payload, if `bytes` are its very bytes.
    fn take_expected(&mut self, bytes: &[u8]) -> Option<Bytes> {
        let next = self.expected.front()?;
        if std::ptr::eq(next.as_ptr(), bytes.as_ptr()) && next.len() == bytes.len() {
            self.expected.pop_front()
        } else {
            None
        }
    }
}

// SAFETY: `remaining_mut`, `chunk_mut` and `advance_mut` are those of `owned`, which meets the contract of the trait;
// `put_slice` either is `owned`'s or leaves `owned` alone.
unsafe impl BufMut for RopeWriter {
    fn remaining_mut(&self) -> usize {
        self.owned.remaining_mut()
    }

    unsafe fn advance_mut(&mut self, count: usize) {
        // SAFETY: the caller has written `count` bytes to what `chunk_mut` gave, which is `owned`'s own chunk.
        unsafe { self.owned.advance_mut(count) }
    }

    fn chunk_mut(&mut self) -> &mut UninitSlice {
        self.owned.chunk_mut()
    }

    fn put_slice(&mut self, bytes: &[u8]) {
        match self.take_expected(bytes) {
            Some(payload) => {
                self.shared_len += payload.len();
                self.shared.push((self.owned.len(), payload));
            }
            None => self.owned.put_slice(bytes),
        }
    }
}

/// Gaps, for encoders that fill in a length later. Only owned bytes can be written again.
impl ByteBufMut for RopeWriter {
    fn offset(&self) -> usize {
        self.owned.len() + self.shared_len
    }

    fn seek(&mut self, offset: usize) {
        let owned = offset.checked_sub(self.shared_len).expect("seek stays behind shared payloads");
        assert!(self.shared.last().is_none_or(|(before, _)| owned >= *before), "seek into a shared payload");
        self.owned.resize(owned, 0);
    }

    fn range(&mut self, range: Range<usize>) -> &mut [u8] {
        let mut shared_before = 0;
        for (before, payload) in &self.shared {
            let start = before + shared_before;
            if range.end <= start {
                break;
            }
            assert!(range.start >= start + payload.len(), "range within a shared payload");
            shared_before += payload.len();
        }
        &mut self.owned[range.start - shared_before..range.end - shared_before]
    }
}

#[cfg(test)]
mod tests;
