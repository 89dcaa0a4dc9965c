//! Record batches, written: control batches, compacted and recompressed ones, internal topics, tests.
//!
//! Owns the encoding of records and the making of a sealed batch. Knows nothing of logs: offset and leader epoch are
//! what the caller says. Invariant: offset deltas grow, and the header agrees with the records.

use bytes::Bytes;

use super::batch::{Attributes, BatchHeader, HEADER_LEN, MAGIC, NO_SEQUENCE, TimestampType};
use super::compression::{Codec, CompressError, Compression};
use super::records::Header;
use super::varint::{put_varint, put_varlong, varint_len, varlong_len};
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

/// Collects records into one batch. Unless told otherwise: base offset 0, no leader epoch, no producer, create time,
/// not compressed.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    header: BatchHeader,
    codec: Codec,
    log_append_time: Option<TimestampMs>,
    body: Vec<u8>,
}

impl Default for BatchBuilder {
    fn default() -> BatchBuilder {
        BatchBuilder::new()
    }
}

impl BatchBuilder {
    pub fn new() -> BatchBuilder {
        let header = BatchHeader {
            base_offset: Offset::ZERO,
            batch_length: 0,
            leader_epoch: LeaderEpoch::UNKNOWN,
            magic: MAGIC,
            crc: 0,
            attributes: Attributes::default(),
            last_offset_delta: -1,
            base_timestamp: TimestampMs::NONE,
            max_timestamp: TimestampMs::NONE,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: NO_SEQUENCE,
            record_count: 0,
        };
        BatchBuilder { header, codec: Codec::NONE, log_append_time: None, body: Vec::new() }
    }

    #[must_use]
    pub fn base_offset(mut self, offset: Offset) -> Self {
        self.header.base_offset = offset;
        self
    }

    #[must_use]
    pub fn leader_epoch(mut self, epoch: LeaderEpoch) -> Self {
        self.header.leader_epoch = epoch;
        self
    }

    #[must_use]
    pub fn compression(mut self, codec: impl Into<Codec>) -> Self {
        self.codec = codec.into();
        self
    }

    /// The producer, and the sequence number of the first record.
    #[must_use]
    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: i32) -> Self {
        self.header.producer_id = id;
        self.header.producer_epoch = epoch;
        self.header.base_sequence = base_sequence;
        self
    }

    #[must_use]
    pub fn transactional(mut self, on: bool) -> Self {
        self.header.attributes = self.header.attributes.with_transactional(on);
        self
    }

    #[must_use]
    pub fn control(mut self, on: bool) -> Self {
        self.header.attributes = self.header.attributes.with_control(on);
        self
    }

    /// When the tombstones or the marker in it may go (KIP-534).
    #[must_use]
    pub fn delete_horizon(mut self, at: TimestampMs) -> Self {
        self.header.attributes = self.header.attributes.with_delete_horizon(true);
        self.header.base_timestamp = at;
        self
    }

    /// The leader's time, which stands for that of all records.
    #[must_use]
    pub fn log_append_time(mut self, now: TimestampMs) -> Self {
        self.log_append_time = Some(now);
        self
    }

    /// Appends a record at the next offset.
    pub fn push(
        &mut self,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) {
        self.push_at(self.header.last_offset_delta + 1, timestamp, key, value, headers);
    }

    /// Appends a record `offset_delta` after the base offset: compaction leaves gaps.
    pub fn push_at(
        &mut self,
        offset_delta: i32,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) {
        assert!(offset_delta > self.header.last_offset_delta, "offsets grow within a batch");
        if self.header.record_count == 0 && !self.header.attributes.has_delete_horizon() {
            self.header.base_timestamp = timestamp;
        }
        self.header.last_offset_delta = offset_delta;
        self.header.record_count += 1;
        self.header.max_timestamp = self.header.max_timestamp.max(timestamp);
        let timestamp_delta = timestamp.0.wrapping_sub(self.header.base_timestamp.0);
        put_record(&mut self.body, offset_delta, timestamp_delta, key, value, headers);
    }

    /// Has the batch end at this offset, whose record compaction may have removed.
    #[must_use]
    pub fn ending_at(mut self, offset_delta: i32) -> Self {
        assert!(offset_delta >= self.header.last_offset_delta, "a batch ends with its last record or later");
        self.header.last_offset_delta = offset_delta;
        self
    }

    pub fn record_count(&self) -> i32 {
        self.header.record_count
    }

    /// The size of the batch so far, before compression.
    pub fn size_in_bytes(&self) -> usize {
        HEADER_LEN + self.body.len()
    }

    /// The finished batch.
    pub fn build(self) -> Result<Bytes, CompressError> {
        let (header, body) = self.build_parts()?;
        let mut batch = Vec::with_capacity(HEADER_LEN + body.len());
        batch.extend_from_slice(&header.encode());
        batch.extend_from_slice(&body);
        Ok(batch.into())
    }

    /// The finished batch as its header and its records.
    pub fn build_parts(mut self) -> Result<(BatchHeader, Bytes), CompressError> {
        let body = match self.codec.compression() {
            Compression::None => self.body,
            _ => self.codec.compress(&self.body)?,
        };
        let header = &mut self.header;
        header.last_offset_delta = header.last_offset_delta.max(0);
        header.attributes = header.attributes.with_compression(self.codec.compression());
        if let Some(now) = self.log_append_time {
            header.set_timestamps(TimestampType::LogAppendTime, now);
        }
        header.seal(&body);
        Ok((self.header, body.into()))
    }
}

/// Appends one record with its length to `out`.
fn put_record(
    out: &mut Vec<u8>,
    offset_delta: i32,
    timestamp_delta: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[Header<'_>],
) {
    let header_count = length(headers.len());
    let headers_len: usize = headers.iter().map(|h| nullable_len(Some(h.key)) + nullable_len(h.value)).sum();
    let len = 1
        + varlong_len(timestamp_delta)
        + varint_len(offset_delta)
        + nullable_len(key)
        + nullable_len(value)
        + varint_len(header_count)
        + headers_len;
    out.reserve(len + varint_len(i32::MAX));
    put_varint(out, length(len));
    out.push(0);
    put_varlong(out, timestamp_delta);
    put_varint(out, offset_delta);
    put_nullable(out, key);
    put_nullable(out, value);
    put_varint(out, header_count);
    for header in headers {
        put_nullable(out, Some(header.key));
        put_nullable(out, header.value);
    }
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_varint(out, length(bytes.len()));
            out.extend_from_slice(bytes);
        }
    }
}

fn nullable_len(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| varint_len(length(bytes.len())) + bytes.len())
}

fn length(len: usize) -> i32 {
    i32::try_from(len).expect("parts of a record are smaller than 2 GiB")
}
