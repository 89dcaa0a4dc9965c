//! Decoding of input that nobody has vouched for.
//!
//! The `kafka-protocol` decoders reserve memory for as many elements as an array announces, before they read one: a
//! frame of twenty bytes can ask for 2^31 of them, and a failed allocation aborts the process. So every message is
//! decoded twice. The first time it is read through [`Guard`], a buffer that lets no impossible length through; its
//! result is dropped. The second decode reads the frame itself and meets only lengths that the first one has proved.
//! Neither copies: strings and record batches are slices of the frame.
//!
//! The guard knows no schema. It sees single reads and must be right for whatever the read is for:
//!
//! - An `i32` may be a number or the length of an array or of bytes. A number changes nothing in how decoding goes on,
//!   so a value too large for any length is replaced by one that no length can have, -2: an array or bytes fail on it
//!   at once, a number goes by.
//! - A single byte may be the start of a varint: a length plus one, or a tag. A value too large for a length fails,
//!   unless it is small enough to be a tag. The rule holds for each byte as if a varint started there, so that a
//!   boolean outside 0 and 1 cannot hide the varint behind it.
//! - A length that fits the frame but is beyond [`MAX_ARRAY_LEN`] may belong to bytes only. The reader is given a
//!   stand-in of 1; if it then asks for one byte as a slice, it was bytes, and it gets all of them. (Two bytes if the
//!   length was that of a tagged field, which is not counted from one.) An `i32` that is followed by something else was
//!   a number or an array: a second survey hands out -2 for it and so tells which.
//!
//! Invariant: when [`decode`] reaches the second decode, every array of the message holds as many elements as it
//! announces, at most `MAX_ARRAY_LEN` each, and the message takes at most [`MAX_READS`] reads.

use bytes::{Buf, Bytes, TryGetError};
use kafka_protocol::protocol::Decodable;
use kafka_protocol::protocol::buf::{ByteBuf, NotEnoughBytesError};
use std::ops::Range;

/// The most elements that one array of a message may have. A cluster of Kafka's largest recommended size has about as
/// many partitions; what a few bytes of input can reserve for a moment is this many elements.
pub const MAX_ARRAY_LEN: usize = 1 << 18;

/// The most reads that a message may take: one for a number, two for a string, one for each byte of a varint. It bounds
/// the memory of the decoded message, which for arrays of small elements is many times the frame's.
pub const MAX_READS: usize = 1 << 21;

/// A message may take this many reads, and from there on one for every two of its bytes, up to `MAX_READS`: only frames
/// made to be expensive have more parts than that.
const FREE_READS: usize = 1 << 16;

/// Varints up to this value pass however few bytes follow, since they may be tags. Kafka's own tags are below 10;
/// vendors number theirs from 10 000.
const MAX_TAG: usize = (1 << 14) - 1;

/// Not a valid length of anything: decoders of arrays and bytes refuse it without reading on.
const NO_LENGTH: i32 = -2;

/// What a reader gets instead of a length beyond `MAX_ARRAY_LEN`, until it shows that it reads bytes.
const STAND_IN: usize = 1;

/// The same as a varint, which counts from one.
const STAND_IN_VARINT: usize = STAND_IN + 1;

/// Why a message could not be decoded.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(String);

impl DecodeError {
    pub(super) fn new(reason: impl Into<String>) -> DecodeError {
        DecodeError(reason.into())
    }
}

/// Decodes one message of the given version. Bytes after the message are ignored, as in Kafka.
pub fn decode<T: Decodable>(body: Bytes, version: i16) -> Result<T, DecodeError> {
    let mut body = body;
    decode_front(&mut body, version)
}

/// Decodes one message and leaves what follows it in `bytes`.
pub fn decode_front<T: Decodable>(bytes: &mut Bytes, version: i16) -> Result<T, DecodeError> {
    check::<T>(bytes, version)?;
    T::decode(bytes, version).map_err(|error| DecodeError(error.to_string()))
}

/// The guarded passes: an error when the message is malformed or beyond the limits.
fn check<T: Decodable>(body: &Bytes, version: i16) -> Result<(), DecodeError> {
    let mut survey = Guard::new(body.clone(), None);
    survey.run::<T>(version)?;
    if survey.unclear == 0 {
        return Ok(());
    }
    let mut verify = Guard::new(body.clone(), Some(survey.bytes_at));
    verify.run::<T>(version)
}

/// A length read a moment ago that was replaced; it stands where the bytes must start.
struct Pending {
    at: usize,
    /// What the reader asks for if it reads bytes, and what it is to get.
    len: Length,
    /// A varint cannot be a plain number, so what follows must be bytes.
    must_be_bytes: bool,
}

#[derive(Clone, Copy)]
enum Length {
    /// Of an `i32`.
    Plain(usize),
    /// A varint is the length plus one of compact bytes, or the size of a tagged field.
    Varint(usize),
}

impl Length {
    /// The true length behind a wish for `size` bytes; `None` if the stand-in leads to no such wish.
    fn meant_by(self, size: usize) -> Option<usize> {
        match (self, size) {
            (Length::Plain(len), STAND_IN) => Some(len),
            (Length::Varint(value), STAND_IN) => Some(value - 1),
            (Length::Varint(value), STAND_IN_VARINT) => Some(value),
            _ => None,
        }
    }
}

/// A varint that is being replaced while its bytes are read one by one.
struct Replaced {
    start: usize,
    width: usize,
    value: usize,
}

/// The buffer of the first pass.
struct Guard {
    rest: Bytes,
    end: usize,
    /// How many reads are left.
    reads: usize,
    failed: Option<&'static str>,
    pending: Option<Pending>,
    replaced: Option<Replaced>,
    /// Where `i32` lengths of long bytes ended, in the order of reading.
    bytes_at: Vec<usize>,
    /// How many `i32` values could have been the length of a long array.
    unclear: usize,
    /// In the second survey: what the first one found in `bytes_at`; every other long `i32` is refused as a length.
    known: Option<Vec<usize>>,
}

impl Guard {
    fn new(body: Bytes, known: Option<Vec<usize>>) -> Guard {
        Guard {
            end: body.len(),
            reads: MAX_READS.min(FREE_READS + body.len() / 2),
            rest: body,
            failed: None,
            pending: None,
            replaced: None,
            bytes_at: Vec::new(),
            unclear: 0,
            known,
        }
    }

    fn run<T: Decodable>(&mut self, version: i16) -> Result<(), DecodeError> {
        let decoded = T::decode(self, version).map(drop);
        match (self.failed, decoded) {
            (Some(reason), _) => Err(DecodeError::new(reason)),
            (None, Err(error)) => Err(DecodeError(error.to_string())),
            // A varint stands for a length or a tag, and neither ends a message.
            (None, Ok(())) if self.replaced.is_some() => Err(DecodeError::new("malformed varint")),
            (None, Ok(())) => match self.pending.take() {
                Some(pending) if pending.must_be_bytes => Err(DecodeError::new("array too long")),
                Some(_) => {
                    self.unclear += 1;
                    Ok(())
                }
                None => Ok(()),
            },
        }
    }

    fn position(&self) -> usize {
        self.end - self.rest.len()
    }

    /// From here on every read fails; `run` reports the reason even if the decoder never reads again.
    fn fail(&mut self, reason: &'static str) {
        self.failed.get_or_insert(reason);
        self.rest.clear();
        self.end = 0;
    }

    fn count_read(&mut self) {
        match self.reads.checked_sub(1) {
            Some(left) => self.reads = left,
            None => self.fail("message has too many parts"),
        }
    }

    /// Counts a read, and settles what a stand-in was for: anything but bytes comes through here.
    fn begin_read(&mut self) {
        self.count_read();
        if let Some(pending) = self.pending.take() {
            if pending.must_be_bytes {
                self.fail("array too long");
            } else {
                self.unclear += 1;
            }
        }
    }

    /// What the reader gets for an `i32` of `value` that ends at `self.position()`.
    fn admit_i32(&mut self, value: i32) -> i32 {
        let Ok(len) = usize::try_from(value) else { return value };
        let remaining = self.rest.len();
        if len <= remaining.min(MAX_ARRAY_LEN) {
            return value;
        }
        let at = self.position();
        let may_be_bytes = self.known.as_ref().is_none_or(|known| known.binary_search(&at).is_ok());
        if len > remaining || !may_be_bytes {
            return NO_LENGTH;
        }
        self.pending = Some(Pending { at, len: Length::Plain(len), must_be_bytes: self.known.is_some() });
        STAND_IN as i32
    }

    /// The byte that the reader gets for the next one, `None` if no varint that starts with it is acceptable.
    fn admit_byte(&mut self) -> Option<u8> {
        if let Some(replaced) = &self.replaced {
            return Some(self.replaced_byte(replaced.start, replaced.width));
        }
        let (value, width) = peek_varint(&self.rest)?;
        let after = self.rest.len() - width;
        if value <= after.min(MAX_ARRAY_LEN) + 1 || value <= MAX_TAG {
            return self.rest.first().copied();
        }
        if value - 1 > after {
            return None;
        }
        self.replaced = Some(Replaced { start: self.position(), width, value });
        Some(self.replaced_byte(self.position(), width))
    }

    /// The stand-in as a varint of the width that the real one has, so that positions stay as they are.
    fn replaced_byte(&self, start: usize, width: usize) -> u8 {
        let index = self.position() - start;
        let bits = if index == 0 { STAND_IN_VARINT as u8 } else { 0 };
        if index + 1 < width { bits | 0x80 } else { bits }
    }

    /// After a byte was handed out: does a replaced varint end with it?
    fn end_byte(&mut self) {
        let at = self.position();
        if let Some(replaced) = &self.replaced
            && at == replaced.start + replaced.width
        {
            self.pending = Some(Pending { at, len: Length::Varint(replaced.value), must_be_bytes: true });
            self.replaced = None;
        }
    }

    /// The true length of the bytes that a reader wants `size` of; `None` if it may not have them.
    fn admit_bytes(&mut self, size: usize) -> Option<usize> {
        self.count_read();
        if self.replaced.is_some() {
            self.fail("malformed varint");
        }
        if self.failed.is_some() {
            return None;
        }
        let Some(pending) = self.pending.take() else { return Some(size) };
        let Some(len) = pending.len.meant_by(size) else {
            self.fail("array too long");
            return None;
        };
        if !pending.must_be_bytes {
            self.bytes_at.push(pending.at);
        }
        Some(len)
    }
}

/// The varint at the start of `bytes` as the decoders read it, and its width; `None` if it is longer than Kafka's. One
/// that the end of the bytes cuts short passes: the decoder will miss the rest.
fn peek_varint(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0u32;
    for (index, &byte) in bytes.iter().take(5).enumerate() {
        value |= u32::from(byte & 0x7f) << (index * 7);
        if byte < 0x80 {
            return Some((value as usize, index + 1));
        }
    }
    if bytes.len() < 5 { Some((0, bytes.len())) } else { None }
}

impl Buf for Guard {
    fn remaining(&self) -> usize {
        self.rest.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.rest
    }

    /// Every read but the ones below ends here.
    fn advance(&mut self, count: usize) {
        self.begin_read();
        if self.replaced.is_some() {
            self.fail("malformed varint");
        }
        if self.failed.is_none() {
            self.rest.advance(count);
        }
    }

    fn try_get_u8(&mut self) -> Result<u8, TryGetError> {
        self.begin_read();
        if self.rest.is_empty() {
            return Err(TryGetError { requested: 1, available: 0 });
        }
        let Some(byte) = self.admit_byte() else {
            self.fail("length beyond the end of the frame");
            return Err(TryGetError { requested: 1, available: 0 });
        };
        self.rest.advance(1);
        self.end_byte();
        Ok(byte)
    }

    fn try_get_i32(&mut self) -> Result<i32, TryGetError> {
        let Some(bytes) = self.rest.first_chunk() else {
            return Err(TryGetError { requested: size_of::<i32>(), available: self.rest.len() });
        };
        let value = i32::from_be_bytes(*bytes);
        self.advance(size_of::<i32>());
        Ok(self.admit_i32(value))
    }
}

impl ByteBuf for Guard {
    fn peek_bytes(&mut self, range: Range<usize>) -> Bytes {
        self.rest.slice(range)
    }

    fn get_bytes(&mut self, size: usize) -> Bytes {
        self.try_get_bytes(size).unwrap_or_default()
    }

    fn try_get_bytes(&mut self, size: usize) -> Result<Bytes, NotEnoughBytesError> {
        match self.admit_bytes(size) {
            Some(len) if len <= self.rest.len() => Ok(self.rest.split_to(len)),
            _ => Err(NotEnoughBytesError),
        }
    }
}

#[cfg(test)]
mod tests;
