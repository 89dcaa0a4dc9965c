//! `floodmark metadata`: what a node's metadata directory holds, and the state that it leads to.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::args::MetadataCommand;
use super::{Failure, load};
use crate::broker::clock;
use crate::controller::METADATA_LOG_DIR;
use crate::controller::dump::{self, Dump, DumpedEntry, DumpedPayload};
use crate::metadata::export::{SnapshotQuorum, image_as_json, snapshot_file};
use crate::metadata::{Image, ImageVersion, Record};
use crate::storage::disk::{Disk, RealDisk};
use crate::types::LeaderEpoch;

pub fn run(command: MetadataCommand) -> Result<(), Failure> {
    match command {
        MetadataCommand::Dump { settings } => {
            let dir = load(settings)?.node.metadata_log_dir;
            print_all(open(&dir)?)
        }
        MetadataCommand::Export { settings, output } => {
            let dir = load(settings)?.node.metadata_log_dir;
            export(open(&dir)?, &output)
        }
    }
}

fn open(metadata_dir: &Path) -> Result<Dump, Failure> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    Ok(dump::open(disk, &metadata_dir.join(METADATA_LOG_DIR))?)
}

/// The fold of a directory, as it is read.
#[derive(Default)]
struct Fold {
    image: Image,
    term: u64,
    /// Entries up to this index are in the snapshot.
    in_snapshot: Option<u64>,
    committed: u64,
}

impl Fold {
    fn of_snapshot(dump: &Dump) -> Fold {
        let Some(snapshot) = &dump.snapshot else {
            return Fold { committed: dump.committed, ..Fold::default() };
        };
        let records: Vec<&Record> = snapshot.records.iter().map(|(record, _)| record).collect();
        Fold {
            image: Image::from_snapshot(snapshot.version, records),
            term: snapshot.last_term.unwrap_or(0),
            in_snapshot: snapshot.last_index,
            committed: dump.committed,
        }
    }

    /// Applies an entry as the node does; false if it has no effect: it is not committed, is in the snapshot, or was decided
    /// on another image.
    fn apply(&mut self, entry: &DumpedEntry) -> bool {
        let DumpedPayload::Records { base, records } = &entry.payload else { return false };
        let is_new = self.in_snapshot.is_none_or(|last| entry.index > last);
        if !is_new || entry.index >= self.committed || *base != self.image.version {
            return false;
        }
        for (record, _) in records {
            self.image.apply(record);
        }
        self.term = entry.term;
        true
    }
}

fn print_all(dump: Dump) -> Result<(), Failure> {
    let mut fold = Fold::of_snapshot(&dump);
    if let Some((node, term, elected)) = &dump.vote {
        println!("{}", json!({ "vote": { "node": node.0, "term": term, "elected": elected } }));
    }
    if let Some(snapshot) = &dump.snapshot {
        let path = snapshot.path.display().to_string();
        println!(
            "{}",
            json!({ "snapshot": path, "version": snapshot.version.0, "lastIndex": snapshot.last_index })
        );
    }
    for entry in dump.entries {
        let entry = entry?;
        let applied = fold.apply(&entry);
        println!("{}", entry_as_json(&entry, applied)?);
    }
    for line in image_as_json(&fold.image)? {
        println!("{{\"image\":{},\"record\":{line}}}", fold.image.version);
    }
    Ok(())
}

fn entry_as_json(entry: &DumpedEntry, applied: bool) -> Result<Value, Failure> {
    let payload = match &entry.payload {
        DumpedPayload::Blank => json!("blank"),
        DumpedPayload::Membership(members) => json!({ "membership": members }),
        DumpedPayload::Records { base, records } => {
            let records: Result<Vec<Value>, _> =
                records.iter().map(|(record, version)| record.to_json(*version)).collect();
            json!({ "base": base.0, "applied": applied, "records": records? })
        }
    };
    Ok(json!({ "index": entry.index, "term": entry.term, "entry": payload }))
}

fn export(dump: Dump, output: &Path) -> Result<(), Failure> {
    let mut fold = Fold::of_snapshot(&dump);
    for entry in dump.entries {
        fold.apply(&entry?);
    }
    if fold.image.version == ImageVersion::default() {
        return Err("there is no metadata in the directory yet".into());
    }
    let epoch = LeaderEpoch(i32::try_from(fold.term).unwrap_or(i32::MAX));
    let file = snapshot_file(&fold.image, &SnapshotQuorum::default(), epoch, clock::wall())?;
    let path = if output.is_dir() { output.join(&file.name) } else { output.to_owned() };
    std::fs::write(&path, &file.bytes)?;
    println!("{}", path.display());
    Ok(())
}
