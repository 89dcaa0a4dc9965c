//! The sparse indexes of a segment, entry by entry, compared with the batches that they lead to.
//!
//! Invariant: an index that lies does not end the command; what it says is shown, and what is wrong is told at the end.

use std::io::Write;
use std::path::Path;

use super::{Problems, Wanted, absolute, base_offset, beside};
use crate::cli::Failure;
use crate::storage::disk::{RealDisk, read_file};
use crate::storage::log::dump::{BatchWalk, Raw, offset_entries, time_entries};
use crate::types::Offset;
use crate::wire::batch::TimestampType;
use crate::wire::compression::Scratch;
use crate::wire::records::Records;

const OFFSET_ENTRY: usize = 8;
const TIME_ENTRY: usize = 12;

pub(super) fn dump_offsets(
    file: &Path,
    wanted: &Wanted,
    problems: &mut Problems,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let base = base_offset(file)?;
    let mut walk = BatchWalk::open(&RealDisk, &beside(file, "log"), u64::MAX)?;
    let bytes = read_file(&RealDisk, file)?;
    let entries = offset_entries(&bytes, base);
    if entries.len() == 0 {
        writeln!(out, "{} is empty.", file.display())?;
        return Ok(());
    }
    if wanted.sanity_only {
        let last = offset_entries(&bytes, base).last().map_or(base, |(offset, _)| offset);
        check_sanity(file, bytes.len(), OFFSET_ENTRY, last >= base, out)?;
        return Ok(());
    }
    for (at, (offset, position)) in entries.enumerate() {
        // Behind the entries of a file that was made at its full length there are zeros.
        if offset == base && at > 0 {
            return Ok(());
        }
        walk.seek(u64::from(position));
        let found = next_batch(&mut walk)?.map_or(-1, |(_, last)| last.0);
        if found != offset.0 {
            problems.index_mismatches.entry(absolute(file)).or_default().insert(offset.0, found);
        }
        if !wanted.verify_only {
            writeln!(out, "offset: {offset} position: {position}")?;
        }
    }
    Ok(())
}

pub(super) fn dump_times(
    file: &Path,
    wanted: &Wanted,
    problems: &mut Problems,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let base = base_offset(file)?;
    let mut walk = BatchWalk::open(&RealDisk, &beside(file, "log"), u64::MAX)?;
    let offsets = read_file(&RealDisk, &beside(file, "index"))?;
    let bytes = read_file(&RealDisk, file)?;
    if wanted.sanity_only {
        let (first, last) = (time_entries(&bytes, base).next(), time_entries(&bytes, base).last());
        let is_sound = first.zip(last).is_none_or(|(first, last)| last.0 >= first.0 && last.1 >= base);
        return check_sanity(file, bytes.len(), TIME_ENTRY, is_sound, out);
    }
    let (mut previous, mut scratch) = (-1, Scratch::new());
    for (at, (timestamp, offset)) in time_entries(&bytes, base).enumerate() {
        if offset == base && at > 0 {
            return Ok(());
        }
        walk.seek(position_before(&offsets, base, offset));
        let mut found = next_batch(&mut walk)?;
        while found.as_ref().is_some_and(|(_, last)| *last < offset) {
            found = next_batch(&mut walk)?;
        }
        let name = absolute(file);
        match found {
            Some((batch, last)) if last == offset => {
                let newest = newest_timestamp(&batch, &mut scratch)?;
                if newest != timestamp.0 {
                    problems.time_mismatches.entry(name.clone()).or_default().push((timestamp.0, newest));
                }
                if previous >= timestamp.0 {
                    problems.out_of_order.entry(name).or_default().push((timestamp.0, previous));
                }
            }
            other => {
                let found = other.map_or(-1, |(_, last)| last.0);
                problems.not_found.entry(name).or_default().push((offset.0, found));
            }
        }
        if !wanted.verify_only {
            writeln!(out, "timestamp: {timestamp} offset: {offset}")?;
        }
        previous = timestamp.0;
    }
    Ok(())
}

/// Whether a start would take the index as it is.
fn check_sanity(
    file: &Path,
    len: usize,
    entry: usize,
    is_sound: bool,
    out: &mut impl Write,
) -> Result<(), Failure> {
    if !is_sound || !len.is_multiple_of(entry) {
        return Err("its entries do not increase, or it ends within one".into());
    }
    writeln!(out, "{} passed sanity check.", file.display())?;
    Ok(())
}

/// Where the index says that a batch at or before the offset begins.
fn position_before(index: &[u8], base: Offset, offset: Offset) -> u64 {
    let entries = offset_entries(index, base).enumerate();
    let entries =
        entries.take_while(|(at, (indexed, _))| *indexed <= offset && (*indexed > base || *at == 0));
    entries.last().map_or(0, |(_, (_, position))| u64::from(position))
}

/// A batch or message with its last offset; `None` where none begins: an index entry can lead anywhere.
fn next_batch(walk: &mut BatchWalk) -> Result<Option<(Raw, Offset)>, Failure> {
    let found = walk.advance()?.and_then(Result::ok);
    Ok(found.and_then(|found| found.last_offset().ok().map(|last| (found, last))))
}

fn newest_timestamp(batch: &Raw, scratch: &mut Scratch) -> Result<i64, Failure> {
    let batch = match batch {
        Raw::Batch(batch) => batch,
        Raw::Message(message) => {
            let message = message.parse()?;
            let unpacked = message.unpacked(scratch)?;
            let timestamps = message.records(&unpacked)?.into_iter().map(|record| record.timestamp);
            return Ok(timestamps.max().unwrap_or(-1));
        }
    };
    let header = &batch.header;
    if header.timestamp_type() == TimestampType::LogAppendTime {
        return Ok(header.newest_timestamp().0);
    }
    let body = batch.records(scratch)?;
    let mut newest = -1;
    for record in Records::new(&body, header.record_count) {
        newest = newest.max(header.base_timestamp.0.wrapping_add(record?.timestamp_delta));
    }
    Ok(newest)
}
