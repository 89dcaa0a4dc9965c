//! Messages of the formats 0 and 1, which segments hold that Kafka wrote before 0.11.
//!
//! Must not know their layout. Invariant: a damaged message is shown as such, and what follows it too.

use std::io::Write;

use super::Wanted;
use super::batches::{INDENT, Offsets, tell_contents, timestamp_name};
use crate::cli::Failure;
use crate::storage::log::dump::RawMessage;
use crate::wire::compression::{Compression, Scratch};
use crate::wire::legacy::{LegacyMessage, LegacyRecord};

/// A message and, if they are wanted, the records in it.
pub(super) fn tell(
    raw: &RawMessage,
    wanted: &Wanted,
    offsets: &mut Offsets<'_>,
    scratch: &mut Scratch,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let damaged =
        |error: &dyn std::fmt::Display| format!("the message at {} cannot be read: {error}", raw.position);
    let message = raw.parse().map_err(|error| damaged(&error))?;
    let codec = message.compression().map_or("unknown", Compression::name);
    writeln!(
        out,
        "offset: {} position: {} {}: {} size: {} magic: {} compresscodec: {codec} crc: {} isvalid: {}",
        message.offset,
        raw.position,
        type_name(&message),
        message.timestamp,
        message.size(),
        message.magic,
        message.crc,
        message.is_valid(),
    )?;
    if wanted.deep {
        let unpacked = message.unpacked(scratch).map_err(|error| damaged(&error))?;
        for record in message.records(&unpacked).map_err(|error| damaged(&error))? {
            tell_record(&message, &record, wanted, offsets, out)?;
        }
    }
    Ok(())
}

fn tell_record(
    message: &LegacyMessage<'_>,
    record: &LegacyRecord<'_>,
    wanted: &Wanted,
    offsets: &mut Offsets<'_>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let LegacyRecord { offset, timestamp, crc, is_valid, key_size, value_size, key, value } = *record;
    offsets.note(offset);
    if !wanted.skip_metadata {
        write!(
            out,
            "{INDENT} offset: {offset} {}: {timestamp} keySize: {key_size} valueSize: {value_size} isValid: {is_valid} \
             crc: {crc}",
            type_name(message),
        )?;
    }
    if wanted.contents {
        tell_contents(wanted, (key, value), offset, out)?;
    }
    writeln!(out)?;
    Ok(())
}

fn type_name(message: &LegacyMessage<'_>) -> &'static str {
    message.timestamp_type().map_or("NoTimestampType", timestamp_name)
}
