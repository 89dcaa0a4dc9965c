//! What a leader checks of a batch before it gives it offsets, and what it changes in it: timestamps and compression.
//!
//! Owns the rules of a topic for its records. Knows nothing of offsets, sequences or files, so that it can run on any
//! thread before the batch reaches its log. Invariant: a [`Validated`] batch has a true checksum and count, dense offsets,
//! records that decode, and the topic's timestamp type, key rule and codec.
//!
//! The records of every batch are walked, as by Kafka, but never decoded: keys and values are skipped, and a compressed
//! batch is decompressed into a buffer that is used again and again. Only a batch that must change its codec is ever
//! decompressed as a whole.

use std::fmt;

use bytes::Bytes;
use thiserror::Error;

use super::append::Origin;
use super::config::{CompressionPolicy, LogConfig};
use crate::types::{LeaderEpoch, Offset, TimestampMs};
use crate::wire::batch::{BatchError, BatchHeader, HEADER_LEN, MAGIC, TimestampType, magic_and_size};
use crate::wire::compression::{
    Codec, CompressError, Compression, Decoder, DecompressError, Scratch, UnknownCompression, decompress,
};
use crate::wire::records::{RecordError, Skim, Skimmed};

/// The most errors of single records that are reported; more are counted only.
const RECORD_ERRORS_MAX: usize = 1000;
/// A batch may always expand to this much ...
const EXPANSION_FLOOR: usize = 64 << 20;
/// ... and to this many times the largest batch that the topic takes.
const EXPANSION_FACTOR: usize = 100;

/// What a topic asks of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub compacted: bool,
    pub timestamp_type: TimestampType,
    pub timestamp_before_max_ms: i64,
    pub timestamp_after_max_ms: i64,
    /// `None`: the codec that the producer chose.
    pub codec: Option<Codec>,
    pub batch_bytes_max: usize,
    /// The largest record of a compressed batch.
    pub record_bytes_max: usize,
    /// What a compressed batch may expand to.
    pub expansion_max: usize,
}

impl Rules {
    pub fn of(config: &LogConfig) -> Rules {
        let batch_bytes_max = config.max_message_bytes as usize;
        Rules {
            compacted: config.compact,
            timestamp_type: config.message_timestamp_type,
            timestamp_before_max_ms: config.message_timestamp_before_max_ms,
            timestamp_after_max_ms: config.message_timestamp_after_max_ms,
            codec: match config.compression {
                CompressionPolicy::Producer => None,
                CompressionPolicy::Codec(compression, None) => Some(compression.into()),
                CompressionPolicy::Codec(compression, Some(level)) => {
                    // A level that the codec lacks was refused when the topic was configured.
                    Some(Codec::new(compression, level).unwrap_or(compression.into()))
                }
            },
            batch_bytes_max,
            record_bytes_max: config.max_decompressed_message_bytes as usize,
            expansion_max: EXPANSION_FLOOR.max(batch_bytes_max.saturating_mul(EXPANSION_FACTOR)),
        }
    }
}

/// Why a leader refuses a batch. One variant per answer that a client gets.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ValidationError {
    /// The bytes are damaged: a client may send them again.
    #[error(transparent)]
    Corrupt(#[from] BatchError),
    /// The batch is whole, but none that may be written.
    #[error(transparent)]
    Invalid(#[from] InvalidBatch),
    /// Single records are not acceptable.
    #[error("{0}")]
    Records(Rejected),
    /// Single records are not acceptable, some because of their timestamp.
    #[error("{0}")]
    Timestamps(Rejected),
    #[error("the batch has {size} bytes and the topic takes at most {max}")]
    TooLarge { size: usize, max: usize },
    #[error(transparent)]
    UnknownCompression(#[from] UnknownCompression),
    #[error(transparent)]
    Recompress(#[from] CompressError),
}

/// Why a batch as a whole may not be written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidBatch {
    #[error("there is no batch")]
    Missing,
    #[error("there is more than one batch")]
    MoreThanOne,
    #[error("message format {0} is no longer accepted")]
    LegacyFormat(i8),
    #[error("the base offset of a batch to be appended must be 0 and is {0}")]
    BaseOffset(Offset),
    #[error("a batch of {count} records cannot have the last offset delta {last_offset_delta}")]
    Count { count: i32, last_offset_delta: i32 },
    #[error("clients may not write control records")]
    Control,
    #[error("a batch of a producer id cannot begin with sequence {0}")]
    Sequence(i32),
    #[error("record {index} has the offset delta {offset_delta}")]
    OffsetDelta { index: i32, offset_delta: i32 },
    #[error("record {index} has {size} bytes and the topic takes at most {max} in a compressed batch")]
    RecordTooLarge { index: i32, size: usize, max: usize },
    #[error("record {index}: {error}")]
    Record { index: i32, error: RecordError },
}

/// The records for which a batch was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The first of them.
    pub errors: Vec<RejectedRecord>,
    /// How many there are in all.
    pub count: usize,
}

/// A record for which a batch was refused, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedRecord {
    /// Counted from the start of the batch.
    pub index: i32,
    pub message: String,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records are refused", self.count)?;
        for (RejectedRecord { index, message }, before) in self.errors.iter().take(3).zip([": ", "; ", "; "])
        {
            write!(f, "{before}record {index}: {message}")?;
        }
        Ok(())
    }
}

/// A batch that may be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validated {
    /// As it will be written but for base offset and leader epoch. Its max timestamp is that of the records.
    pub header: BatchHeader,
    /// The records, compressed as the header says; the very bytes that came in unless the codec had to change.
    pub body: Bytes,
    /// The codec was changed.
    pub recompressed: bool,
}

impl Validated {
    /// Header and records of the batch at its place in the log.
    pub fn place(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> (BatchHeader, Bytes) {
        (BatchHeader { base_offset, leader_epoch, ..self.header }, self.body)
    }
}

/// Checks the one batch in `records` against `rules`.
pub fn validate(
    records: &Bytes,
    rules: &Rules,
    origin: Origin,
    now: TimestampMs,
    scratch: &mut Scratch,
) -> Result<Validated, ValidationError> {
    let (mut header, compression) = check_envelope(records, rules, origin)?;
    check_header(&header, origin)?;
    let target = match rules.codec {
        // A control batch stays as its writer made it.
        Some(codec) if codec.compression() != compression && !header.is_control() => Some(codec),
        _ => None,
    };
    let mut body = records.slice(HEADER_LEN..);
    let mut walk = Walk::new(&header, rules, now);
    if compression == Compression::None {
        // The size of the batch says enough.
        walk.record_bytes_max = usize::MAX;
    }
    match (compression, target) {
        (Compression::None, _) => walk.all(Skim::new(&body, header.record_count))?,
        (_, None) => {
            let decoder = Decoder::new(compression, &body, rules.expansion_max, scratch);
            walk.all(Skim::compressed(decoder.map_err(undecodable)?, header.record_count))?;
        }
        (_, Some(_)) => {
            let plain = decompress(compression, &body, rules.expansion_max, scratch).map_err(undecodable)?;
            walk.all(Skim::new(&plain, header.record_count))?;
            body = plain.into();
        }
    }
    let max_timestamp = match rules.timestamp_type {
        TimestampType::CreateTime => walk.max_timestamp,
        TimestampType::LogAppendTime => now,
    };
    let changed = header.set_timestamps(rules.timestamp_type, max_timestamp);
    if let Some(codec) = target {
        if codec.compression() != Compression::None {
            body = codec.compress(&body)?.into();
        }
        header.attributes = header.attributes.with_compression(codec.compression());
    }
    if changed || target.is_some() {
        header.seal(&body);
        if !is_marker(&header, origin) {
            check_size(header.size_in_bytes(), rules)?;
        }
    }
    Ok(Validated { header, body, recompressed: target.is_some() })
}

/// Checks that `records` are one whole and undamaged batch that is not too large.
fn check_envelope(
    records: &Bytes,
    rules: &Rules,
    origin: Origin,
) -> Result<(BatchHeader, Compression), ValidationError> {
    if records.is_empty() {
        return Err(InvalidBatch::Missing.into());
    }
    let (magic, size) = magic_and_size(records)?;
    if magic != MAGIC {
        return Err(InvalidBatch::LegacyFormat(magic).into());
    }
    let header = BatchHeader::parse(records)?;
    if records.len() > size {
        return Err(InvalidBatch::MoreThanOne.into());
    }
    if origin == Origin::Client && header.base_offset != Offset::ZERO {
        return Err(InvalidBatch::BaseOffset(header.base_offset).into());
    }
    if !is_marker(&header, origin) {
        check_size(size, rules)?;
    }
    header.check_crc(records)?;
    Ok((header, header.compression()?))
}

/// A transaction must end also where the topic takes less than a marker by now.
fn is_marker(header: &BatchHeader, origin: Origin) -> bool {
    origin == Origin::Coordinator && header.is_control()
}

fn check_size(size: usize, rules: &Rules) -> Result<(), ValidationError> {
    let max = rules.batch_bytes_max;
    if size > max { Err(ValidationError::TooLarge { size, max }) } else { Ok(()) }
}

fn check_header(header: &BatchHeader, origin: Origin) -> Result<(), InvalidBatch> {
    let BatchHeader { record_count: count, last_offset_delta, .. } = *header;
    // Compaction leaves batches with fewer records than offsets, but nobody appends one.
    if count <= 0 || i64::from(count) != i64::from(last_offset_delta) + 1 {
        return Err(InvalidBatch::Count { count, last_offset_delta });
    }
    if origin != Origin::Client {
        return Ok(());
    }
    if header.is_control() {
        return Err(InvalidBatch::Control);
    }
    if header.has_producer_id() && header.base_sequence < 0 {
        return Err(InvalidBatch::Sequence(header.base_sequence));
    }
    Ok(())
}

fn undecodable(error: DecompressError) -> InvalidBatch {
    InvalidBatch::Record { index: 0, error: error.into() }
}

/// The walk over the records of one batch.
struct Walk<'r> {
    rules: &'r Rules,
    now: TimestampMs,
    base_timestamp: TimestampMs,
    /// The batch claims that a leader has set its timestamps.
    log_append_time: bool,
    max_timestamp: TimestampMs,
    record_bytes_max: usize,
    index: i32,
    rejected: Rejected,
    bad_timestamp: bool,
}

impl<'r> Walk<'r> {
    fn new(header: &BatchHeader, rules: &'r Rules, now: TimestampMs) -> Walk<'r> {
        Walk {
            rules,
            now,
            base_timestamp: header.base_timestamp,
            log_append_time: header.timestamp_type() == TimestampType::LogAppendTime,
            max_timestamp: TimestampMs::NONE,
            record_bytes_max: rules.record_bytes_max,
            index: 0,
            rejected: Rejected { errors: Vec::new(), count: 0 },
            bad_timestamp: false,
        }
    }

    fn all(&mut self, records: Skim<'_, '_>) -> Result<(), ValidationError> {
        for record in records {
            let index = self.index;
            self.record(&record.map_err(|error| InvalidBatch::Record { index, error })?)?;
            self.index += 1;
        }
        if self.rejected.count == 0 {
            return Ok(());
        }
        let rejected = std::mem::replace(&mut self.rejected, Rejected { errors: Vec::new(), count: 0 });
        Err(match self.bad_timestamp {
            true => ValidationError::Timestamps(rejected),
            false => ValidationError::Records(rejected),
        })
    }

    fn record(&mut self, record: &Skimmed) -> Result<(), InvalidBatch> {
        let Skimmed { body_len: size, offset_delta, timestamp_delta, has_key } = *record;
        if size > self.record_bytes_max {
            return Err(InvalidBatch::RecordTooLarge { index: self.index, size, max: self.record_bytes_max });
        }
        if offset_delta != self.index {
            return Err(InvalidBatch::OffsetDelta { index: self.index, offset_delta });
        }
        let timestamp = TimestampMs(self.base_timestamp.0.wrapping_add(timestamp_delta));
        if self.rules.compacted && !has_key {
            self.reject(|_| "a compacted topic takes no record without a key".into());
        } else if self.log_append_time {
            self.bad_timestamp = true;
            self.reject(|_| "a producer may not set the timestamp type LogAppendTime".into());
        } else if self.rules.timestamp_type == TimestampType::CreateTime && !self.is_in_time(timestamp) {
            self.bad_timestamp = true;
            self.reject(|walk| walk.describe_out_of_time(timestamp));
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        Ok(())
    }

    fn is_in_time(&self, timestamp: TimestampMs) -> bool {
        if timestamp == TimestampMs::NONE {
            return true;
        }
        let age = i128::from(self.now.0) - i128::from(timestamp.0);
        age <= i128::from(self.rules.timestamp_before_max_ms)
            && -age <= i128::from(self.rules.timestamp_after_max_ms)
    }

    fn describe_out_of_time(&self, timestamp: TimestampMs) -> String {
        let from = self.now.0.saturating_sub(self.rules.timestamp_before_max_ms);
        let to = self.now.0.saturating_add(self.rules.timestamp_after_max_ms);
        format!("the timestamp {timestamp} is not between {from} and {to}")
    }

    fn reject(&mut self, message: impl FnOnce(&Walk<'_>) -> String) {
        self.rejected.count += 1;
        if self.rejected.errors.len() < RECORD_ERRORS_MAX {
            let message = message(self);
            self.rejected.errors.push(RejectedRecord { index: self.index, message });
        }
    }
}

#[cfg(test)]
mod tests;
