//! Messages of the formats 0 and 1, as they lie in segments that Kafka wrote before 0.11. Read only: nobody writes them any more,
//! and they are not served.
//!
//! Owns their layout and the rules for what a compressed one holds. Must not know files. Invariant: no input makes it panic; what
//! is said of a message is in its bytes.
//!
//! ```text
//!  0 offset (8) | 8 length of what follows (4) | 12 CRC-32 (4) | 16 magic (1) | 17 attributes (1) | format 1: timestamp (8)
//! key length (4, negative: none) key | value length (4, negative: none) value
//! ```
//!
//! The value of a compressed message is a sequence of others. Its own offset is that of the last of them; in format 1 theirs
//! count from the first one of them.

use std::borrow::Cow;

use thiserror::Error;

use super::batch::{LOG_OVERHEAD, TimestampType, is_legacy_message};
use super::compression::{
    Compression, DecompressError, Scratch, UnknownCompression, decompress, with_sound_lz4_descriptor,
};

const CRC_AT: usize = 12;
const MAGIC_AT: usize = 16;
const ATTRIBUTES_AT: usize = 17;
const TIMESTAMP_AT: usize = 18;
/// Of the attributes.
const LOG_APPEND_TIME: u8 = 0x08;
const COMPRESSION: u8 = 0x07;
/// The least length: no key, no value, and no timestamp.
const LENGTH_MIN: usize = 14;
/// A message that expands to more is taken for damaged.
const EXPANSION_MAX: usize = i32::MAX as usize;
const NO_TIMESTAMP: i64 = -1;

/// Why bytes are not a message, or not what a compressed one can hold.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LegacyError {
    #[error("the message is too short for what it should hold")]
    Short,
    #[error("{0} is not the magic number of a message")]
    Magic(i8),
    #[error(transparent)]
    Codec(#[from] UnknownCompression),
    #[error("messages of these formats are never compressed with zstd")]
    Zstd,
    #[error("a compressed message has no value")]
    NoValue,
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    #[error("a compressed message holds none")]
    Empty,
    #[error("a compressed message with offset {outer} holds one with offset {inner}")]
    Offset { outer: i64, inner: i64 },
    #[error("a message within a compressed one is compressed")]
    Nested,
}

/// The fields of a message, not checked by its sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegacyMessage<'a> {
    pub offset: i64,
    pub magic: i8,
    pub crc: u32,
    attributes: u8,
    /// -1 in format 0.
    pub timestamp: i64,
    /// All of it.
    bytes: &'a [u8],
}

/// A record: a message that is not compressed, or one out of a compressed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegacyRecord<'a> {
    pub offset: i64,
    pub timestamp: i64,
    pub crc: u32,
    pub is_valid: bool,
    /// As it is written: negative where there is none.
    pub key_size: i32,
    pub value_size: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
}

impl<'a> LegacyMessage<'a> {
    /// Reads a message that takes up all of `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Result<LegacyMessage<'a>, LegacyError> {
        if bytes.len() < LOG_OVERHEAD + LENGTH_MIN {
            return Err(LegacyError::Short);
        }
        let magic = bytes[MAGIC_AT] as i8;
        let timestamp = match magic {
            0 => NO_TIMESTAMP,
            1 => i64_at(bytes, TIMESTAMP_AT)?,
            _ => return Err(LegacyError::Magic(magic)),
        };
        Ok(LegacyMessage {
            offset: i64_at(bytes, 0)?,
            magic,
            crc: i32_at(bytes, CRC_AT)? as u32,
            attributes: bytes[ATTRIBUTES_AT],
            timestamp,
            bytes,
        })
    }

    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the checksum is right.
    pub fn is_valid(&self) -> bool {
        is_legacy_message(self.bytes)
    }

    /// `None` in format 0, which has no timestamps.
    pub fn timestamp_type(&self) -> Option<TimestampType> {
        (self.magic > 0).then_some(match self.attributes & LOG_APPEND_TIME {
            0 => TimestampType::CreateTime,
            _ => TimestampType::LogAppendTime,
        })
    }

    pub fn compression(&self) -> Result<Compression, UnknownCompression> {
        Compression::from_id(self.attributes & COMPRESSION)
    }

    fn key_at(&self) -> usize {
        if self.magic == 0 { TIMESTAMP_AT } else { TIMESTAMP_AT + 8 }
    }

    fn part(&self, at: usize) -> Result<(i32, Option<&'a [u8]>, usize), LegacyError> {
        let (size, start) = (i32_at(self.bytes, at)?, at + 4);
        let Ok(len) = usize::try_from(size) else { return Ok((size, None, start)) };
        let part = self.bytes.get(start..).and_then(|rest| rest.get(..len)).ok_or(LegacyError::Short)?;
        Ok((size, Some(part), start + len))
    }

    /// The messages in a compressed one; the message itself when it is not compressed.
    pub fn unpacked(&self, scratch: &mut Scratch) -> Result<Cow<'a, [u8]>, LegacyError> {
        let codec = match self.compression()? {
            Compression::None => return Ok(Cow::from(self.bytes)),
            Compression::Zstd => return Err(LegacyError::Zstd),
            codec => codec,
        };
        let (_, _, value_at) = self.part(self.key_at())?;
        let value = self.part(value_at)?.1.ok_or(LegacyError::NoValue)?;
        // With format 0 clients computed another sum there, and nobody checked it.
        let value = match (codec, self.magic) {
            (Compression::Lz4, 0) => Cow::from(with_sound_lz4_descriptor(value)),
            _ => Cow::from(value),
        };
        Ok(Cow::from(decompress(codec, &value, EXPANSION_MAX, scratch)?))
    }

    /// The records, out of what is [`unpacked`](LegacyMessage::unpacked).
    pub fn records<'b>(&self, unpacked: &'b [u8]) -> Result<Vec<LegacyRecord<'b>>, LegacyError> {
        if self.compression()? == Compression::None {
            return Ok(vec![LegacyMessage::parse(unpacked)?.record()?]);
        }
        let (mut records, mut rest) = (Vec::new(), unpacked);
        while let Some(size) = size_of_first(rest)? {
            // What is left at the end is no whole message.
            let Some((bytes, after)) = rest.split_at_checked(size) else { break };
            let message = LegacyMessage::parse(bytes)?;
            if message.compression()? != Compression::None {
                return Err(LegacyError::Nested);
            }
            let mut record = message.record()?;
            if message.magic == 1 && self.timestamp_type() == Some(TimestampType::LogAppendTime) {
                record.timestamp = self.timestamp;
            }
            records.push(record);
            rest = after;
        }
        let last = records.last().ok_or(LegacyError::Empty)?.offset;
        if self.magic == 1 {
            let outer = self.offset;
            // Some clients left it at 0, and brokers too.
            let base = if outer == 0 { 0 } else { outer.wrapping_sub(last) };
            if outer != 0 && outer < last {
                return Err(LegacyError::Offset { outer, inner: last });
            }
            records.iter_mut().for_each(|record| record.offset = record.offset.wrapping_add(base));
        }
        Ok(records)
    }

    fn record(&self) -> Result<LegacyRecord<'a>, LegacyError> {
        let (key_size, key, value_at) = self.part(self.key_at())?;
        let (value_size, value, _) = self.part(value_at)?;
        let LegacyMessage { offset, timestamp, crc, .. } = *self;
        let is_valid = self.is_valid();
        Ok(LegacyRecord { offset, timestamp, crc, is_valid, key_size, value_size, key, value })
    }
}

/// The size of the message that `bytes` begin with; `None` when there are too few to tell.
fn size_of_first(bytes: &[u8]) -> Result<Option<usize>, LegacyError> {
    if bytes.len() < LOG_OVERHEAD {
        return Ok(None);
    }
    let length = usize::try_from(i32_at(bytes, 8)?).unwrap_or(0);
    if length < LENGTH_MIN { Err(LegacyError::Short) } else { Ok(Some(LOG_OVERHEAD + length)) }
}

fn i32_at(bytes: &[u8], at: usize) -> Result<i32, LegacyError> {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.first_chunk().map(|bytes| i32::from_be_bytes(*bytes)).ok_or(LegacyError::Short)
}

fn i64_at(bytes: &[u8], at: usize) -> Result<i64, LegacyError> {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.first_chunk().map(|bytes| i64::from_be_bytes(*bytes)).ok_or(LegacyError::Short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::compression::Codec;

    /// A message as producers wrote it.
    fn message(
        magic: u8,
        offset: i64,
        attributes: u8,
        timestamp: i64,
        key: Option<&[u8]>,
        value: &[u8],
    ) -> Vec<u8> {
        let mut covered = vec![magic, attributes];
        if magic == 1 {
            covered.extend(timestamp.to_be_bytes());
        }
        for part in [key, Some(value)] {
            covered.extend(part.map_or(-1, |part| part.len() as i32).to_be_bytes());
            covered.extend(part.unwrap_or_default());
        }
        let mut crc = flate2::Crc::new();
        crc.update(&covered);
        let length = (4 + covered.len()) as i32;
        [&offset.to_be_bytes()[..], &length.to_be_bytes(), &crc.sum().to_be_bytes(), &covered].concat()
    }

    /// Offset, timestamp, whether it is valid, value.
    type Brief = (i64, i64, bool, Option<Vec<u8>>);

    fn records_of(bytes: &[u8]) -> Result<Vec<Brief>, LegacyError> {
        let message = LegacyMessage::parse(bytes)?;
        let unpacked = message.unpacked(&mut Scratch::new())?;
        let brief = |record: LegacyRecord<'_>| {
            (record.offset, record.timestamp, record.is_valid, record.value.map(<[u8]>::to_vec))
        };
        Ok(message.records(&unpacked)?.into_iter().map(brief).collect())
    }

    #[test]
    fn what_a_compressed_message_holds_is_found_with_its_offsets_and_times() {
        for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4] {
            // In format 1 from 0 on; in format 0 as they are.
            let inner = |magic, first| {
                let of = |at: i64| message(magic, first + at, 0, 100 + at, Some(b"k"), &[b'a' + at as u8]);
                Codec::from(codec).compress(&[of(0), of(1), of(2)].concat()).unwrap()
            };
            let value = |at: u8| Some(vec![b'a' + at]);
            let first = message(1, 42, codec.id(), 500, None, &inner(1, 0));
            let times =
                [(40, 100, true, value(0)), (41, 101, true, value(1)), (42, 102, true, value(2))].to_vec();
            assert_eq!(records_of(&first).unwrap(), times);
            let appended = message(1, 42, codec.id() | LOG_APPEND_TIME, 500, None, &inner(1, 0));
            assert!(records_of(&appended).unwrap().iter().all(|(_, timestamp, ..)| *timestamp == 500));
            let old = records_of(&message(0, 42, codec.id(), 0, None, &inner(0, 40))).unwrap();
            assert_eq!(
                old.iter().map(|(offset, timestamp, ..)| (*offset, *timestamp)).collect::<Vec<_>>(),
                [(40, -1), (41, -1), (42, -1)]
            );
            let unplaced = records_of(&message(1, 0, codec.id(), 500, None, &inner(1, 0))).unwrap();
            assert_eq!(unplaced[2].0, 2);
            let wrong = message(1, 1, codec.id(), 500, None, &inner(1, 0));
            assert_eq!(records_of(&wrong), Err(LegacyError::Offset { outer: 1, inner: 2 }));
        }
        // The sum of the frame's descriptor that clients wrote into format 0.
        let mut frame = Codec::from(Compression::Lz4).compress(&message(0, 7, 0, 0, None, b"v")).unwrap();
        frame[6] ^= 0x55;
        assert_eq!(
            records_of(&message(0, 7, 3, 0, None, &frame)).unwrap(),
            [(7, -1, true, Some(b"v".to_vec()))]
        );
        assert!(records_of(&message(1, 7, 3, 0, None, &frame)).is_err());
    }

    #[test]
    fn no_bytes_are_taken_for_more_than_they_are() {
        let inner = message(1, 0, 0, 1, None, b"v");
        let packed = message(1, 3, 1, 1, None, &Codec::from(Compression::Gzip).compress(&inner).unwrap());
        assert_eq!(records_of(&message(1, 3, 4, 1, None, b"v")), Err(LegacyError::Zstd));
        assert!(records_of(&message(1, 3, 1, 1, None, b"")).is_err());
        let nested = Codec::from(Compression::Gzip).compress(&packed).unwrap();
        assert_eq!(records_of(&message(1, 3, 1, 1, None, &nested)), Err(LegacyError::Nested));
        let empty = Codec::from(Compression::Gzip).compress(&inner[..9]).unwrap();
        assert_eq!(records_of(&message(1, 3, 1, 1, None, &empty)), Err(LegacyError::Empty));
        for sound in [message(0, 3, 0, 0, Some(b"key"), b"value"), inner, packed] {
            assert!(LegacyMessage::parse(&sound).unwrap().is_valid());
            for len in 0..sound.len() {
                let _ = records_of(&sound[..len]);
            }
            for at in 0..sound.len() {
                for mask in [1, 0x10, 0x80, 0xff] {
                    let mut damaged = sound.clone();
                    damaged[at] ^= mask;
                    let _ = records_of(&damaged);
                    let is_valid = LegacyMessage::parse(&damaged).is_ok_and(|message| message.is_valid());
                    assert!(at < CRC_AT || !is_valid, "{at} {mask}");
                }
            }
        }
    }
}
