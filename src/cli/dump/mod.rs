//! `floodmark log dump`: what is in the files of a partition, in the words of `kafka-dump-log.sh`, line by line.
//!
//! Must not know formats. Invariants: nothing is changed; a file that cannot be read ends the command with its name.

mod batches;
mod decoder;
mod indexes;
mod messages;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::Failure;
use super::args::DumpArgs;
use crate::storage::checkpoint::read_epochs;
use crate::storage::disk::{Disk, RealDisk, read_file};
use crate::storage::log::dump::aborted_txns;
use crate::storage::log::names::LEADER_EPOCHS;
use crate::storage::log::producer_state::snapshot;
use crate::types::Offset;
use decoder::Decoder;

/// What is asked for.
struct Wanted {
    /// Records, and not batches alone.
    deep: bool,
    contents: bool,
    skip_metadata: bool,
    max_bytes: Option<u64>,
    decoder: Decoder,
    verify_only: bool,
    sanity_only: bool,
}

/// What was found wrong, told at the end as Kafka's tool does. By file.
#[derive(Default)]
struct Problems {
    index_mismatches: BTreeMap<PathBuf, BTreeMap<i64, i64>>,
    time_mismatches: BTreeMap<PathBuf, Vec<(i64, i64)>>,
    out_of_order: BTreeMap<PathBuf, Vec<(i64, i64)>>,
    not_found: BTreeMap<PathBuf, Vec<(i64, i64)>>,
    gaps: BTreeMap<PathBuf, BTreeMap<i64, i64>>,
}

pub fn run(args: &DumpArgs) -> Result<(), Failure> {
    if let Some(refusal) = args.not_served.refusal() {
        return Err(refusal.into());
    }
    let mut out = BufWriter::new(io::stdout().lock());
    match dump_all(args, &mut out).and_then(|()| Ok(out.flush()?)) {
        // Whoever reads has seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        result => result,
    }
}

fn is_broken_pipe(error: &Failure) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn dump_all(args: &DumpArgs, out: &mut impl Write) -> Result<(), Failure> {
    let decoder = Decoder::of(args);
    let contents = args.print_data_log || !matches!(decoder, Decoder::Text);
    let wanted = Wanted {
        deep: contents || args.deep_iteration,
        contents,
        skip_metadata: args.skip_record_metadata,
        max_bytes: args.max_bytes,
        decoder,
        verify_only: args.verify_index_only,
        sanity_only: args.index_sanity_check,
    };
    let mut problems = Problems::default();
    for path in args.files.iter().chain(&args.paths) {
        for file in files_of(path)? {
            dump_file(&file, &wanted, &mut problems, out)
                .map_err(|error| if is_broken_pipe(&error) { error } else { named(&file, &error) })?;
        }
    }
    out.flush()?;
    problems.tell();
    Ok(())
}

fn named(file: &Path, error: &Failure) -> Failure {
    format!("{}: {error}", file.display()).into()
}

/// The file, or the files of the directory that it is.
fn files_of(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path()));
    let mut files: Vec<PathBuf> = entries.collect::<Result<_, _>>()?;
    files.retain(|file| file.is_file() && is_known(file));
    files.sort();
    Ok(files)
}

fn is_known(file: &Path) -> bool {
    let is_epochs = file.file_name().is_some_and(|name| name == LEADER_EPOCHS);
    let known = ["log", "index", "timeindex", "txnindex", "snapshot", "checkpoint"];
    is_epochs || file.extension().is_some_and(|extension| known.iter().any(|known| extension == *known))
}

fn dump_file(
    file: &Path,
    wanted: &Wanted,
    problems: &mut Problems,
    out: &mut impl Write,
) -> Result<(), Failure> {
    writeln!(out, "Dumping {}", file.display())?;
    let extension = file.extension().and_then(|extension| extension.to_str());
    match extension {
        Some("log" | "checkpoint") => batches::dump(file, wanted, problems, out),
        Some("index") => indexes::dump_offsets(file, wanted, problems, out),
        Some("timeindex") => indexes::dump_times(file, wanted, problems, out),
        Some("txnindex") => dump_txns(file, out),
        Some("snapshot") => dump_producers(file, out),
        _ if file.file_name().is_some_and(|name| name == LEADER_EPOCHS) => dump_epochs(file, out),
        _ => {
            out.flush()?;
            eprintln!("Ignoring unknown file {}", file.display());
            Ok(())
        }
    }
}

/// The offset that a file is named after.
fn base_offset(file: &Path) -> Result<Offset, Failure> {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let digits = name.split('.').next().unwrap_or_default();
    Ok(Offset(digits.parse().map_err(|_| "its name is no offset")?))
}

/// The file of another kind beside this one.
fn beside(file: &Path, extension: &str) -> PathBuf {
    file.with_extension(extension)
}

/// The name under which problems are told.
fn absolute(file: &Path) -> PathBuf {
    std::path::absolute(file).unwrap_or_else(|_| file.to_owned())
}

fn dump_txns(file: &Path, out: &mut impl Write) -> Result<(), Failure> {
    for txn in aborted_txns(&read_file(&RealDisk, file)?) {
        let txn = txn?;
        writeln!(
            out,
            "version: 0 producerId: {} firstOffset: {} lastOffset: {} lastStableOffset: {}",
            txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset
        )?;
    }
    Ok(())
}

fn dump_producers(file: &Path, out: &mut impl Write) -> Result<(), Failure> {
    let producers = match snapshot::decode(&read_file(&RealDisk, file)?) {
        Ok(producers) => producers,
        Err(error) => {
            out.flush()?;
            eprintln!("{}: {error}", file.display());
            return Ok(());
        }
    };
    for (id, entry) in producers {
        write!(
            out,
            "producerId: {id} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {} lastTimestamp: {}",
            entry.epoch,
            entry.coordinator_epoch,
            optional(entry.current_txn_first_offset.map(|offset| offset.0)),
            entry.last_timestamp
        )?;
        if let Some(batch) = entry.last_batch() {
            write!(
                out,
                " firstSequence: {} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
                batch.first_sequence(),
                batch.last_sequence,
                batch.last_offset,
                batch.offset_delta,
                batch.timestamp
            )?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Kafka's tool does not know this file.
fn dump_epochs(file: &Path, out: &mut impl Write) -> Result<(), Failure> {
    // A missing file reads as an empty one.
    RealDisk.stat(file)?;
    for entry in read_epochs(&RealDisk, file)? {
        writeln!(out, "epoch: {} startOffset: {}", entry.epoch, entry.start)?;
    }
    Ok(())
}

/// As Java shows an optional number.
fn optional(value: Option<i64>) -> String {
    value.map_or("OptionalLong.empty".to_owned(), |value| format!("OptionalLong[{value}]"))
}

impl Problems {
    fn tell(&self) {
        for (file, mismatches) in &self.index_mismatches {
            eprintln!("Mismatches in :{}", file.display());
            for (index, log) in mismatches.iter().rev() {
                eprintln!("  Index offset: {index}, log offset: {log}");
            }
        }
        let pairs = |title: &str, of: &BTreeMap<PathBuf, Vec<(i64, i64)>>, words: [&str; 2]| {
            for (file, pairs) in of {
                eprintln!("{title} :{}", file.display());
                for (left, right) in pairs {
                    eprintln!("{}: {left}, {}: {right}", words[0], words[1]);
                }
            }
        };
        pairs("Found timestamp mismatch in", &self.time_mismatches, ["  Index timestamp", "log timestamp"]);
        pairs(
            "Found out of order timestamp in",
            &self.out_of_order,
            ["  Index timestamp", "Previously indexed timestamp"],
        );
        pairs(
            "The following indexed offsets are not found in",
            &self.not_found,
            ["Indexed offset", "found log offset"],
        );
        for (file, gaps) in &self.gaps {
            eprintln!("Non-consecutive offsets in {}", file.display());
            for (before, after) in gaps {
                eprintln!("  {before} is followed by {after}");
            }
        }
    }
}
