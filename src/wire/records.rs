//! The records inside a batch, read.
//!
//! Owns the record format: full decoding out of an uncompressed section ([`Records`]), and skimming, which yields
//! only what validation and indexing need and works on a compressed section as it is decompressed ([`Skim`]). Knows
//! nothing of the batch header but the record count, and nothing of what makes a record acceptable.
//! Invariant: a record is yielded only when its parts fill exactly its declared length, and after the last one of the
//! declared count nothing is left over.
//!
//! ```text
//! length (varint) | attributes (1) | timestamp delta (varlong) | offset delta (varint)
//! key length (varint, negative: none) key | value length value | header count (varint)
//! each header: key length (varint) key | value length (varint, negative: none) value
//! ```

use thiserror::Error;

use super::compression::{Decoder, DecompressError};
use super::varint::{VARINT_MAX, VARLONG_MAX, unzigzag};

/// Why bytes are not the records of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    #[error("the records end in the middle of a record")]
    UnexpectedEnd,
    #[error("bytes are left after the last record")]
    TrailingBytes,
    #[error("a variable-length number does not end")]
    Varint,
    #[error("a record cannot have {0} bytes")]
    Length(i64),
    #[error("the parts of a record do not fill its {0} bytes")]
    LengthMismatch(i64),
    #[error("a record cannot have {0} headers")]
    HeaderCount(i64),
    #[error("a header's key cannot have {0} bytes")]
    HeaderKey(i64),
    #[error(transparent)]
    Decompress(#[from] DecompressError),
}

/// A record of an uncompressed section, its parts borrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Unused by magic 2.
    pub attributes: i8,
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

/// One header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// UTF-8, though nobody has checked.
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

/// The headers of a record; decoded again as they are walked, since most readers never look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl Headers<'_> {}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        self.count = self.count.checked_sub(1)?;
        // The bytes were walked when the record was decoded: this cannot fail.
        let mut cursor = Cursor(self.bytes);
        let header = cursor.header().ok()?;
        self.bytes = cursor.0;
        Some(header)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for Headers<'_> {}

/// Decodes the records of an uncompressed section. After an error the walk is over.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    cursor: Cursor<'a>,
    left: i32,
}

impl<'a> Records<'a> {
    /// The records of `body`, of which the batch header announces `count`.
    pub fn new(body: &'a [u8], count: i32) -> Records<'a> {
        Records { cursor: Cursor(body), left: count }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left <= 0 {
            return None;
        }
        self.left -= 1;
        let mut record = self.cursor.record();
        if record.is_ok() && self.left == 0 && !self.cursor.0.is_empty() {
            record = Err(RecordError::TrailingBytes);
        }
        if record.is_err() {
            self.left = 0;
        }
        Some(record)
    }
}

/// A place in a section that is wholly in memory.
#[derive(Clone, Debug)]
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn record(&mut self) -> Result<Record<'a>, RecordError> {
        let len = self.varint()?;
        let body = usize::try_from(len).map_err(|_| RecordError::Length(len))?;
        let mut body = Cursor(self.take(body)?);
        body.record_body().map_err(|error| match error {
            // The record's own length is what ended.
            RecordError::UnexpectedEnd => RecordError::LengthMismatch(len),
            other => other,
        })
    }

    fn record_body(&mut self) -> Result<Record<'a>, RecordError> {
        let whole = self.0.len();
        let attributes = self.u8()? as i8;
        let timestamp_delta = self.varlong()?;
        let offset_delta = self.varint()? as i32;
        let key = self.nullable()?;
        let value = self.nullable()?;
        let count = self.varint()?;
        let count = match usize::try_from(count) {
            Ok(headers) if headers <= self.0.len() => headers,
            _ => return Err(RecordError::HeaderCount(count)),
        };
        let bytes = self.0;
        for _ in 0..count {
            self.header()?;
        }
        if !self.0.is_empty() {
            return Err(RecordError::LengthMismatch(whole as i64));
        }
        Ok(Record {
            attributes,
            timestamp_delta,
            offset_delta,
            key,
            value,
            headers: Headers { count, bytes },
        })
    }

    fn header(&mut self) -> Result<Header<'a>, RecordError> {
        let len = self.varint()?;
        let key = self.take(usize::try_from(len).map_err(|_| RecordError::HeaderKey(len))?)?;
        Ok(Header { key, value: self.nullable()? })
    }

    fn nullable(&mut self) -> Result<Option<&'a [u8]>, RecordError> {
        usize::try_from(self.varint()?).ok().map(|len| self.take(len)).transpose()
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], RecordError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(RecordError::UnexpectedEnd)?;
        self.0 = rest;
        Ok(taken)
    }
}

/// What skimming yields of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skimmed {
    /// The record without the length before it.
    pub body_len: usize,
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub has_key: bool,
}

impl Skimmed {
    /// The whole record with its length.
    pub fn size_in_bytes(&self) -> usize {
        super::varint::varint_len(self.body_len as i32) + self.body_len
    }
}

/// Bytes that are read from front to back: a slice, or a section that is decompressed on the way.
trait Source {
    fn u8(&mut self) -> Result<u8, RecordError>;
    fn skip(&mut self, len: u64) -> Result<(), RecordError>;

    #[inline]
    fn varint(&mut self) -> Result<i64, RecordError> {
        // A fifth byte may carry bits beyond the 32nd; they are dropped, as by Kafka.
        self.unsigned(VARINT_MAX).map(|value| unzigzag(u64::from(value as u32)))
    }

    #[inline]
    fn varlong(&mut self) -> Result<i64, RecordError> {
        self.unsigned(VARLONG_MAX).map(unzigzag)
    }

    #[inline]
    fn unsigned(&mut self, bytes_max: usize) -> Result<u64, RecordError> {
        let first = self.u8()?;
        let mut value = u64::from(first & 0x7f);
        if first < 0x80 {
            return Ok(value);
        }
        for index in 1..bytes_max {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(RecordError::Varint)
    }
}

impl Source for Cursor<'_> {
    #[inline]
    fn u8(&mut self) -> Result<u8, RecordError> {
        let (&first, rest) = self.0.split_first().ok_or(RecordError::UnexpectedEnd)?;
        self.0 = rest;
        Ok(first)
    }

    #[inline]
    fn skip(&mut self, len: u64) -> Result<(), RecordError> {
        let len = usize::try_from(len).map_err(|_| RecordError::UnexpectedEnd)?;
        self.take(len).map(|_| ())
    }
}

impl Source for Decoder<'_, '_> {
    fn u8(&mut self) -> Result<u8, RecordError> {
        if !self.fill()? {
            return Err(RecordError::UnexpectedEnd);
        }
        let byte = self.buffered()[0];
        self.consume(1);
        Ok(byte)
    }

    fn skip(&mut self, mut len: u64) -> Result<(), RecordError> {
        while len > 0 {
            if !self.fill()? {
                return Err(RecordError::UnexpectedEnd);
            }
            let step = len.min(self.buffered().len() as u64);
            self.consume(step as usize);
            len -= step;
        }
        Ok(())
    }
}

/// The body of one record: a source that ends with it.
struct Body<'s, S> {
    source: &'s mut S,
    left: u64,
}

impl<S: Source> Source for Body<'_, S> {
    #[inline]
    fn u8(&mut self) -> Result<u8, RecordError> {
        self.left = self.left.checked_sub(1).ok_or(RecordError::LengthMismatch(0))?;
        self.source.u8()
    }

    #[inline]
    fn skip(&mut self, len: u64) -> Result<(), RecordError> {
        self.left = self.left.checked_sub(len).ok_or(RecordError::LengthMismatch(0))?;
        self.source.skip(len)
    }
}

impl<S: Source> Body<'_, S> {
    fn skip_nullable(&mut self) -> Result<bool, RecordError> {
        match u64::try_from(self.varint()?) {
            Ok(len) => self.skip(len).map(|()| true),
            Err(_) => Ok(false),
        }
    }

    fn skim(&mut self, body_len: usize) -> Result<Skimmed, RecordError> {
        self.u8()?;
        let timestamp_delta = self.varlong()?;
        let offset_delta = self.varint()? as i32;
        let has_key = self.skip_nullable()?;
        self.skip_nullable()?;
        let headers = self.varint()?;
        if headers < 0 || headers as u64 > self.left {
            return Err(RecordError::HeaderCount(headers));
        }
        for _ in 0..headers {
            let len = self.varint()?;
            self.skip(u64::try_from(len).map_err(|_| RecordError::HeaderKey(len))?)?;
            self.skip_nullable()?;
        }
        if self.left > 0 {
            return Err(RecordError::LengthMismatch(0));
        }
        Ok(Skimmed { body_len, timestamp_delta, offset_delta, has_key })
    }
}

fn skim_record<S: Source>(source: &mut S) -> Result<Skimmed, RecordError> {
    let len = source.varint()?;
    let left = u64::try_from(len).map_err(|_| RecordError::Length(len))?;
    Body { source, left }.skim(left as usize).map_err(|error| match error {
        RecordError::LengthMismatch(_) => RecordError::LengthMismatch(len),
        other => other,
    })
}

/// Skims the records of a section. After an error the walk is over.
pub struct Skim<'i, 's> {
    section: Section<'i, 's>,
    left: i32,
}

enum Section<'i, 's> {
    Plain(Cursor<'i>),
    Compressed(Decoder<'i, 's>),
}

impl<'i, 's> Skim<'i, 's> {
    /// The records of the uncompressed `body`, of which the batch header announces `count`.
    pub fn new(body: &'i [u8], count: i32) -> Skim<'i, 's> {
        Skim { section: Section::Plain(Cursor(body)), left: count }
    }

    /// The records that `decoder` decompresses.
    pub fn compressed(decoder: Decoder<'i, 's>, count: i32) -> Skim<'i, 's> {
        Skim { section: Section::Compressed(decoder), left: count }
    }

    fn read(&mut self) -> Result<Skimmed, RecordError> {
        let record = match &mut self.section {
            Section::Plain(cursor) => skim_record(cursor)?,
            Section::Compressed(decoder) => skim_decoded(decoder)?,
        };
        let more = self.left == 0
            && match &mut self.section {
                Section::Plain(cursor) => !cursor.0.is_empty(),
                Section::Compressed(decoder) => decoder.fill()?,
            };
        if more { Err(RecordError::TrailingBytes) } else { Ok(record) }
    }
}

/// Most records lie whole in the chunk at hand: reading them from the slice is much faster than byte by byte through
/// the decoder, which is left to those that cross its end.
fn skim_decoded(decoder: &mut Decoder<'_, '_>) -> Result<Skimmed, RecordError> {
    let chunk = decoder.buffered();
    let mut cursor = Cursor(chunk);
    match skim_record(&mut cursor) {
        Err(RecordError::UnexpectedEnd) => skim_record(decoder),
        skimmed => {
            let read = chunk.len() - cursor.0.len();
            decoder.consume(read);
            skimmed
        }
    }
}

impl Iterator for Skim<'_, '_> {
    type Item = Result<Skimmed, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left <= 0 {
            return None;
        }
        self.left -= 1;
        let record = self.read();
        if record.is_err() {
            self.left = 0;
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::batch::{BatchHeader, HEADER_LEN};
    use super::super::batch_builder::BatchBuilder;
    use super::super::compression::{Codec, Compression, Scratch};
    use super::*;
    use crate::types::TimestampMs;

    type Owned = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, Option<Vec<u8>>)>);

    fn bytes(max: usize) -> impl Strategy<Value = Option<Vec<u8>>> {
        proptest::option::weighted(0.8, proptest::collection::vec(any::<u8>(), 0..max))
    }

    fn record() -> impl Strategy<Value = Owned> {
        let headers = proptest::collection::vec(("[a-z]{0,8}", bytes(20)), 0..4);
        (0..1_000_000i64, bytes(40), bytes(400), headers)
    }

    /// The body of a batch of `records`.
    fn body(records: &[Owned]) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for (timestamp, key, value, headers) in records {
            let headers: Vec<_> = headers
                .iter()
                .map(|(key, value)| Header { key: key.as_bytes(), value: value.as_deref() })
                .collect();
            builder.push(TimestampMs(*timestamp), key.as_deref(), value.as_deref(), &headers);
        }
        builder.build().unwrap()[HEADER_LEN..].to_vec()
    }

    fn skim(body: &[u8], count: i32) -> Result<Vec<Skimmed>, RecordError> {
        Skim::new(body, count).collect()
    }

    fn skim_compressed(
        body: &[u8],
        count: i32,
        compression: Compression,
    ) -> Result<Vec<Skimmed>, RecordError> {
        let compressed = Codec::from(compression).compress(body).unwrap();
        let mut scratch = Scratch::new();
        let decoder = Decoder::new(compression, &compressed, 1 << 24, &mut scratch)?;
        Skim::compressed(decoder, count).collect()
    }

    #[test]
    fn records_larger_than_a_chunk_are_skimmed() {
        let records: Vec<Owned> =
            (0..5).map(|i| (i, Some(vec![7; 50_000]), Some(vec![i as u8; 150_000]), vec![])).collect();
        let body = body(&records);
        let expected = skim(&body, 5).unwrap();
        assert_eq!(expected.len(), 5);
        for compression in Compression::ALL {
            assert_eq!(skim_compressed(&body, 5, compression).unwrap(), expected);
        }
    }

    #[test]
    fn a_wrong_count_is_an_error() {
        let body = body(&[(1, None, Some(b"a".to_vec()), vec![]), (2, None, Some(b"b".to_vec()), vec![])]);
        assert_eq!(skim(&body, 1), Err(RecordError::TrailingBytes));
        assert_eq!(skim(&body, 3), Err(RecordError::UnexpectedEnd));
        assert_eq!(Records::new(&body, 1).last(), Some(Err(RecordError::TrailingBytes)));
        assert_eq!(Records::new(&body, 3).last(), Some(Err(RecordError::UnexpectedEnd)));
        assert_eq!(skim_compressed(&body, 1, Compression::Lz4), Err(RecordError::TrailingBytes));
        assert_eq!(skim_compressed(&body, 3, Compression::Zstd), Err(RecordError::UnexpectedEnd));
        assert_eq!(skim(&body, 0), Ok(vec![]));
    }

    #[test]
    fn broken_records_are_told_apart() {
        let both = |bytes: &[u8]| {
            let full = Records::new(bytes, 1).next().unwrap().map(|_| ());
            let skimmed = Skim::new(bytes, 1).next().unwrap().map(|_| ());
            assert_eq!(full, skimmed, "{bytes:?}");
            full.unwrap_err()
        };
        // Length 6: attributes, timestamp delta, offset delta, no key, no value, no headers.
        let good = [12, 0, 0, 0, 1, 1, 0];
        assert!(Records::new(&good, 1).next().unwrap().is_ok());
        assert_eq!(both(&[1]), RecordError::Length(-1));
        assert_eq!(both(&[12, 0, 0, 0, 1, 1]), RecordError::UnexpectedEnd);
        assert_eq!(both(&[10, 0, 0, 0, 1, 1, 0]), RecordError::LengthMismatch(5));
        assert_eq!(both(&[14, 0, 0, 0, 1, 1, 0, 0]), RecordError::LengthMismatch(7));
        assert_eq!(both(&[12, 0, 0, 0, 1, 1, 1]), RecordError::HeaderCount(-1));
        assert_eq!(both(&[12, 0, 0, 0, 1, 1, 2]), RecordError::HeaderCount(1));
        assert_eq!(both(&[16, 0, 0, 0, 1, 1, 2, 1, 1]), RecordError::HeaderKey(-1));
        assert_eq!(both(&[12, 0, 0, 0, 100, 1, 0]), RecordError::LengthMismatch(6));
        assert_eq!(both(&[0x80, 0x80, 0x80, 0x80, 0x80, 1]), RecordError::Varint);
        let endless = [&[26, 0][..], &[0x80; 10], &[1, 0]].concat();
        assert_eq!(both(&endless), RecordError::Varint);
    }

    proptest! {
        #[test]
        fn records_come_back_as_they_were(records in proptest::collection::vec(record(), 1..12)) {
            let body = body(&records);
            let base = records[0].0;
            let decoded: Vec<_> = Records::new(&body, records.len() as i32).map(Result::unwrap).collect();
            prop_assert_eq!(decoded.len(), records.len());
            for (index, (read, written)) in decoded.iter().zip(&records).enumerate() {
                prop_assert_eq!(read.offset_delta, index as i32);
                prop_assert_eq!(read.timestamp_delta, written.0 - base);
                prop_assert_eq!(read.key, written.1.as_deref());
                prop_assert_eq!(read.value, written.2.as_deref());
                let headers: Vec<_> = read
                    .headers
                    .clone()
                    .map(|h| (String::from_utf8(h.key.to_vec()).unwrap(), h.value.map(<[u8]>::to_vec)))
                    .collect();
                prop_assert_eq!(&headers, &written.3);
            }
            let skimmed = skim(&body, records.len() as i32).unwrap();
            prop_assert_eq!(skimmed.iter().map(Skimmed::size_in_bytes).sum::<usize>(), body.len());
            for (skimmed, record) in skimmed.iter().zip(&decoded) {
                prop_assert_eq!(skimmed.has_key, record.key.is_some());
                prop_assert_eq!(skimmed.offset_delta, record.offset_delta);
                prop_assert_eq!(skimmed.timestamp_delta, record.timestamp_delta);
            }
            for compression in Compression::ALL {
                let streamed = skim_compressed(&body, records.len() as i32, compression).unwrap();
                prop_assert_eq!(&streamed, &skimmed);
            }
        }

        #[test]
        fn mutated_records_fail_alike_or_not_at_all(
            records in proptest::collection::vec(record(), 1..6),
            flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut body = body(&records);
            for (at, byte) in flips {
                let at = at.index(body.len());
                body[at] = byte;
            }
            let count = records.len() as i32;
            let full: Result<Vec<_>, _> = Records::new(&body, count).collect();
            let skimmed = skim(&body, count);
            prop_assert_eq!(full.is_ok(), skimmed.is_ok());
            if let Ok(full) = &full {
                for record in full {
                    prop_assert_eq!(record.headers.clone().count(), record.headers.len());
                }
            }
            prop_assert_eq!(skim_compressed(&body, count, Compression::Lz4).is_ok(), skimmed.is_ok());
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..100), count: i32) {
            let full: Result<Vec<_>, _> = Records::new(&bytes, count).collect();
            prop_assert_eq!(full.is_ok(), skim(&bytes, count).is_ok());
            let _ = BatchHeader::parse(&bytes);
        }
    }
}
