//! `floodmark storage verify`: reads every partition in the log directories of a node that does not run, and says what is
//! wrong with which file.
//!
//! Must not know formats. Invariant: nothing is changed; the exit code says whether anything is damaged.

use std::path::Path;
use std::sync::Arc;

use super::Failure;
use crate::config::Config;
use crate::storage::disk::{Disk, RealDisk};
use crate::storage::log::verify::{Verified, verify};
use crate::storage::log_dir::{Claim, DirName, Fate};

/// What was found in all directories.
#[derive(Debug, Default)]
struct Total {
    partitions: usize,
    batches: u64,
    records: u64,
    bytes: u64,
    damages: usize,
}

pub fn run(config: &Config) -> Result<(), Failure> {
    let mut total = Total::default();
    for dir in &config.node.log_dirs {
        if !dir.is_dir() {
            println!("{} does not exist", dir.display());
            continue;
        }
        // A node that runs changes what is read here.
        let _claim = Claim::take(Arc::new(RealDisk), dir)?;
        look_into(dir, &mut total)?;
    }
    let Total { partitions, batches, records, bytes, damages } = total;
    println!("{partitions} partitions, {records} records in {batches} batches, {bytes} bytes");
    if damages > 0 { Err(format!("{damages} places are damaged").into()) } else { Ok(()) }
}

fn look_into(dir: &Path, total: &mut Total) -> Result<(), Failure> {
    let mut names: Vec<String> = RealDisk.list(dir)?.into_iter().map(|entry| entry.name).collect();
    names.sort();
    for name in names {
        let is_live = DirName::parse(&name).is_some_and(|name| name.fate == Fate::Live);
        let path = dir.join(&name);
        // The metadata log has files of another kind.
        if !is_live || !path.is_dir() {
            continue;
        }
        let verified = verify(&RealDisk, &path)
            .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        tell(&path, &verified, total);
    }
    Ok(())
}

fn tell(path: &Path, verified: &Verified, total: &mut Total) {
    total.partitions += 1;
    total.batches += verified.batches;
    total.records += verified.records;
    total.bytes += verified.bytes;
    for finding in &verified.findings {
        let kind = if finding.is_damage { "damaged" } else { "note" };
        let at = finding.position.map_or(String::new(), |at| format!(" at {at}"));
        println!("{kind}: {}{at}: {}", path.join(&finding.file).display(), finding.what);
        total.damages += usize::from(finding.is_damage);
    }
}
