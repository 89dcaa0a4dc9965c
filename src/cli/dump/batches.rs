//! The batches of a segment or of a snapshot of the metadata, and the records in them.
//!
//! Must not know what records mean. Invariant: a damaged batch is shown as such, and what follows it too.

use std::io::Write;
use std::path::Path;

use bytes::Bytes;

use super::decoder::{Shown, metadata_message};
use super::{Problems, Wanted, absolute, base_offset, messages, optional};
use crate::cli::Failure;
use crate::storage::disk::RealDisk;
use crate::storage::log::dump::{BatchWalk, Raw, RawBatch};
use crate::wire::batch::{BatchHeader, NO_SEQUENCE, TimestampType, sequence_plus};
use crate::wire::compression::{Compression, Scratch};
use crate::wire::control::ControlKind;
use crate::wire::messages::snapshot::{
    KRaftVersionRecord, LeaderChangeMessage, SnapshotFooterRecord, SnapshotHeaderRecord, VotersRecord,
};
use crate::wire::records::{Record, Records};

/// Before the line of a record.
pub(super) const INDENT: &str = "|";

pub(super) fn dump(
    file: &Path,
    wanted: &Wanted,
    problems: &mut Problems,
    out: &mut impl Write,
) -> Result<(), Failure> {
    tell_start(file, out)?;
    let mut walk = BatchWalk::open(&RealDisk, file, wanted.max_bytes.unwrap_or(u64::MAX))?;
    let (mut scratch, mut last) = (Scratch::new(), -1);
    while let Some(batch) = walk.advance()? {
        let batch = batch.map_err(|error| format!("{error}, where a batch should begin"))?;
        let mut offsets = Offsets { file, last: &mut last, problems };
        match &batch {
            Raw::Batch(batch) => {
                tell_batch(batch, out)?;
                if wanted.deep {
                    RecordLines { wanted, batch: &batch.header, offsets }.tell(batch, &mut scratch, out)?;
                }
            }
            Raw::Message(message) => messages::tell(message, wanted, &mut offsets, &mut scratch, out)?,
        }
    }
    let left = walk.left();
    if left > 0 && wanted.max_bytes.is_none() {
        let name = file.file_name().unwrap_or_default().display();
        writeln!(out, "Found {left} invalid bytes at the end of {name}")?;
    }
    Ok(())
}

fn tell_start(file: &Path, out: &mut impl Write) -> Result<(), Failure> {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match name.strip_suffix(".checkpoint") {
        None => writeln!(out, "Log starting offset: {}", base_offset(file)?)?,
        Some("bootstrap") => writeln!(out, "KRaft bootstrap snapshot")?,
        Some(id) => {
            let parsed = id
                .split_once('-')
                .and_then(|(offset, epoch)| Some((offset.parse::<i64>().ok()?, epoch.parse::<i32>().ok()?)));
            let (offset, epoch) = parsed.ok_or("its name is no end offset and epoch")?;
            writeln!(out, "Snapshot end offset: {offset}, epoch: {epoch}")?;
        }
    }
    Ok(())
}

fn tell_batch(batch: &RawBatch, out: &mut impl Write) -> Result<(), Failure> {
    let h = &batch.header;
    write!(
        out,
        "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} producerEpoch: {} \
         partitionLeaderEpoch: {} isTransactional: {} isControl: {} deleteHorizonMs: {}",
        h.base_offset,
        h.last_offset(),
        h.record_count,
        h.base_sequence,
        h.last_sequence(),
        h.producer_id,
        h.producer_epoch,
        h.leader_epoch,
        h.is_transactional(),
        h.is_control(),
        optional(h.delete_horizon().map(|horizon| horizon.0)),
    )?;
    let codec = h.compression().map_or("unknown", Compression::name);
    writeln!(
        out,
        " position: {} {}: {} size: {} magic: {} compresscodec: {codec} crc: {} isvalid: {}",
        batch.position,
        timestamp_name(h.timestamp_type()),
        h.max_timestamp,
        batch.size(),
        h.magic,
        h.crc,
        batch.is_valid(),
    )?;
    Ok(())
}

pub(super) fn timestamp_name(of: TimestampType) -> &'static str {
    match of {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    }
}

/// The offsets of a file's records.
pub(super) struct Offsets<'a> {
    file: &'a Path,
    /// Of the last record so far.
    last: &'a mut i64,
    problems: &'a mut Problems,
}

impl Offsets<'_> {
    /// Offsets that do not follow one another are told at the end.
    pub(super) fn note(&mut self, offset: i64) {
        if offset != self.last.wrapping_add(1) {
            self.problems.gaps.entry(absolute(self.file)).or_default().insert(*self.last, offset);
        }
        *self.last = offset;
    }
}

/// The lines of one batch's records.
struct RecordLines<'a> {
    wanted: &'a Wanted,
    batch: &'a BatchHeader,
    offsets: Offsets<'a>,
}

impl RecordLines<'_> {
    fn tell(&mut self, batch: &RawBatch, scratch: &mut Scratch, out: &mut impl Write) -> Result<(), Failure> {
        let damaged = |error: &dyn std::fmt::Display| {
            format!("the batch at {} cannot be read: {error}", batch.position)
        };
        let body = batch.records(scratch).map_err(|error| damaged(&error))?;
        for record in Records::new(&body, self.batch.record_count) {
            let record = record.map_err(|error| damaged(&error))?;
            self.record(&record, out)?;
        }
        Ok(())
    }

    fn record(&mut self, record: &Record<'_>, out: &mut impl Write) -> Result<(), Failure> {
        let offset = self.batch.base_offset.0.wrapping_add(i64::from(record.offset_delta));
        self.offsets.note(offset);
        if !self.wanted.skip_metadata {
            self.metadata(record, offset, out)?;
        }
        if self.wanted.contents && !self.batch.is_control() {
            tell_contents(self.wanted, (record.key, record.value), offset, out)?;
        }
        writeln!(out)?;
        Ok(())
    }

    fn metadata(&self, record: &Record<'_>, offset: i64, out: &mut impl Write) -> Result<(), Failure> {
        let timestamp = match self.batch.timestamp_type() {
            TimestampType::LogAppendTime => self.batch.max_timestamp.0,
            TimestampType::CreateTime => self.batch.base_timestamp.0.wrapping_add(record.timestamp_delta),
        };
        let size = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| bytes.len() as i64);
        let sequence = match self.batch.base_sequence {
            base if base >= 0 => sequence_plus(base, record.offset_delta),
            _ => NO_SEQUENCE,
        };
        let headers: Vec<_> =
            record.headers.clone().map(|header| String::from_utf8_lossy(header.key)).collect();
        write!(
            out,
            "{INDENT} offset: {offset} {}: {timestamp} keySize: {} valueSize: {} sequence: {sequence} headerKeys: [{}]",
            timestamp_name(self.batch.timestamp_type()),
            size(record.key),
            size(record.value),
            headers.join(","),
        )?;
        if self.batch.is_control() { tell_control(record, out) } else { Ok(()) }
    }
}

/// The key and the value of a record, behind whatever else was told of it.
pub(super) fn tell_contents(
    wanted: &Wanted,
    (key, value): (Option<&[u8]>, Option<&[u8]>),
    offset: i64,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let prefix = if wanted.skip_metadata { "| " } else { " " };
    let Shown { key, value } = wanted.decoder.show(key, value, offset)?;
    if let Some(key) = &key {
        write!(out, "{prefix}key: {key}")?;
    }
    if let Some(value) = value {
        write!(out, "{}payload: {value}", if key.is_some() { " " } else { prefix })?;
    }
    Ok(())
}

fn tell_control(record: &Record<'_>, out: &mut impl Write) -> Result<(), Failure> {
    let kind = ControlKind::of_key(record.key)?;
    let value = Bytes::copy_from_slice(record.value.unwrap_or_default());
    match kind {
        ControlKind::Abort | ControlKind::Commit => {
            let name = if kind == ControlKind::Commit { "COMMIT" } else { "ABORT" };
            let &[_, _, a, b, c, d, ..] = &value[..] else {
                return Err("the value of a transaction marker is malformed".into());
            };
            let epoch = i32::from_be_bytes([a, b, c, d]);
            write!(out, " endTxnMarker: {name} coordinatorEpoch: {epoch}")?;
        }
        ControlKind::LeaderChange => {
            write!(out, " LeaderChange: {}", metadata_message::<LeaderChangeMessage>(value)?)?;
        }
        ControlKind::SnapshotHeader => {
            write!(out, " SnapshotHeader {}", metadata_message::<SnapshotHeaderRecord>(value)?)?;
        }
        ControlKind::SnapshotFooter => {
            write!(out, " SnapshotFooter {}", metadata_message::<SnapshotFooterRecord>(value)?)?;
        }
        ControlKind::KRaftVersion => {
            write!(out, " KRaftVersion {}", metadata_message::<KRaftVersionRecord>(value)?)?;
        }
        ControlKind::KRaftVoters => {
            write!(out, " KRaftVoters {}", metadata_message::<VotersRecord>(value)?)?;
        }
        ControlKind::Unknown(id) => write!(out, " controlType: UNKNOWN({id})")?,
    }
    Ok(())
}
