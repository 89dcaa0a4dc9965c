//! `floodmark storage verify`: reads every partition in the log directories of a node that does not run, and its metadata log, and
//! says what is wrong with which file. What cannot be read is one of the things that it says; what it does not read it names.
//!
//! Must not know formats. Invariants: nothing is changed but the lock files; the exit code says whether anything is damaged.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use super::Failure;
use crate::config::Config;
use crate::controller::METADATA_LOG_DIR;
use crate::controller::dump::{self, DumpError};
use crate::storage::checkpoint::{META_PROPERTIES_FILE, read_meta_properties};
use crate::storage::disk::{DirEntry, Disk, DiskLock, RealDisk};
use crate::storage::log::verify::{Finding, verify};
use crate::storage::log_dir::{DirName, Fate, LogDirError, is_ours, lock};

pub fn run(config: &Config) -> Result<(), Failure> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let mut check = Check { disk, out: io::stdout().lock(), total: Total::default() };
    let node = &config.node;
    for dir in &node.log_dirs {
        check.directory(dir)?;
    }
    if !node.log_dirs.contains(&node.metadata_log_dir) {
        check.directory(&node.metadata_log_dir)?;
    }
    check.end()
}

/// What was found in all directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Total {
    partitions: usize,
    batches: u64,
    records: u64,
    bytes: u64,
    damages: usize,
}

struct Check<W> {
    disk: Arc<dyn Disk>,
    out: W,
    total: Total,
}

impl<W: Write> Check<W> {
    fn directory(&mut self, dir: &Path) -> Result<(), Failure> {
        let entries = match self.disk.list(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                writeln!(self.out, "{} does not exist", dir.display())?;
                return Ok(());
            }
            Err(error) => return self.unreadable(dir, &error),
        };
        // A node that runs changes what is read here.
        let _lock = self.lock(dir)?;
        match read_meta_properties(&*self.disk, dir) {
            Ok(Some(_)) => {}
            Ok(None) => writeln!(self.out, "note: {} is not formatted", dir.display())?,
            Err(error) => self.unreadable(&dir.join(META_PROPERTIES_FILE), &error)?,
        }
        let mut entries = entries;
        entries.sort();
        for entry in entries {
            self.entry(dir, &entry)?;
        }
        Ok(())
    }

    /// Where nothing can be written, nobody can change what is read, at least not here.
    fn lock(&mut self, dir: &Path) -> Result<Option<Box<dyn DiskLock>>, Failure> {
        match lock(&*self.disk, dir) {
            Ok(lock) => Ok(Some(lock)),
            Err(LogDirError::Io { error, .. }) => {
                writeln!(
                    self.out,
                    "note: {} cannot be locked ({error}): nobody must have it meanwhile",
                    dir.display()
                )?;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn entry(&mut self, dir: &Path, entry: &DirEntry) -> Result<(), Failure> {
        let path = dir.join(&entry.name);
        match DirName::parse(&entry.name).filter(|_| entry.is_dir) {
            Some(DirName { fate: Fate::Delete, .. }) => self.skipped(&path, "it is to be removed"),
            Some(DirName { fate, .. }) => self.partition(&path, fate),
            None if entry.name == METADATA_LOG_DIR => self.metadata_log(&path),
            None if is_ours(entry) => Ok(()),
            None => self.skipped(&path, "it is none of a log directory's"),
        }
    }

    fn partition(&mut self, path: &Path, fate: Fate) -> Result<(), Failure> {
        let what = match fate {
            Fate::Live | Fate::Delete => None,
            Fate::Future => Some("a copy that a move has not finished"),
            Fate::Stray => Some("kept aside; nobody serves it"),
        };
        if let Some(what) = what {
            writeln!(self.out, "note: {} is checked as well: {what}", path.display())?;
        }
        let verified = match verify(&*self.disk, path) {
            Ok(verified) => verified,
            Err(error) => return self.unreadable(path, &error),
        };
        self.total.partitions += 1;
        self.total.batches += verified.batches;
        self.total.records += verified.records;
        self.total.bytes += verified.bytes;
        for Finding { file, position, what, is_damage } in &verified.findings {
            let kind = if *is_damage { "damaged" } else { "note" };
            let at = position.map_or(String::new(), |at| format!(" at {at}"));
            writeln!(self.out, "{kind}: {}{at}: {what}", path.join(file).display())?;
            self.total.damages += usize::from(*is_damage);
        }
        Ok(())
    }

    /// Its files have checksums of their own.
    fn metadata_log(&mut self, path: &Path) -> Result<(), Failure> {
        let entries = match dump::open(self.disk.clone(), path) {
            Ok(dump) => dump.entries.collect::<Result<Vec<_>, _>>(),
            Err(DumpError::Nothing(_)) => return self.skipped(path, "it has no metadata log of ours"),
            Err(error) => Err(error),
        };
        match entries {
            Ok(entries) => {
                writeln!(self.out, "{}: {} entries of the metadata log", path.display(), entries.len())?;
            }
            Err(error) => self.damaged(path, &error)?,
        }
        Ok(())
    }

    fn unreadable(&mut self, path: &Path, error: &io::Error) -> Result<(), Failure> {
        self.damaged(path, &format_args!("cannot be read: {error}"))
    }

    fn damaged(&mut self, path: &Path, what: &dyn std::fmt::Display) -> Result<(), Failure> {
        self.total.damages += 1;
        Ok(writeln!(self.out, "damaged: {}: {what}", path.display())?)
    }

    fn skipped(&mut self, path: &Path, why: &str) -> Result<(), Failure> {
        Ok(writeln!(self.out, "skipped: {}: {why}", path.display())?)
    }

    fn end(mut self) -> Result<(), Failure> {
        let Total { partitions, batches, records, bytes, damages } = self.total;
        writeln!(self.out, "{partitions} partitions, {records} records in {batches} batches, {bytes} bytes")?;
        if damages > 0 { Err(format!("{damages} places are damaged").into()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::storage::checkpoint::MetaProperties;
    use crate::storage::disk::OpenMode;
    use crate::storage::log::{Budgets, LogConfig, Origin};
    use crate::storage::log_dir::Claim;
    use crate::storage::sim_disk::{FaultOn, SimDisk};
    use crate::types::{LeaderEpoch, NodeId, TimestampMs, TopicPartition, Uuid};
    use crate::wire::batch_builder::BatchBuilder;

    const DIR: &str = "/data";
    const FIRST: &str = "00000000000000000000.log";
    const UNIQUE: &str = "0123456789abcdef0123456789abcdef";
    const NOW: TimestampMs = TimestampMs(1);

    /// A directory with some partitions of a topic, of two segments each.
    fn directory(partitions: i32) -> SimDisk {
        let disk = SimDisk::new();
        let mut claim = Claim::take(Arc::new(disk.clone()), Path::new(DIR)).unwrap();
        let directory_id = Some(Uuid::from_u128(7));
        claim.format(MetaProperties { cluster_id: "c".into(), node_id: NodeId(1), directory_id }).unwrap();
        let dir = claim.open().unwrap();
        for partition in 0..partitions {
            let config = Arc::new(LogConfig { segment_bytes: 100, ..LogConfig::default() });
            let budgets = Budgets::new(1 << 20, 1 << 20, 100);
            let name = TopicPartition::new("t", partition);
            let mut log = dir.create_log(&name, Uuid::from_u128(5), config, NOW, budgets).unwrap();
            for _ in 0..2 {
                let mut builder = BatchBuilder::new();
                builder.push(NOW, None, Some(b"value"), &[]);
                let batch = builder.build().unwrap();
                log.append_as_leader(&batch, LeaderEpoch(0), Origin::Client, NOW).unwrap();
            }
            log.close().unwrap();
        }
        disk
    }

    fn rename(disk: &SimDisk, from: &str, to: &str) {
        disk.rename(&Path::new(DIR).join(from), &Path::new(DIR).join(to)).unwrap();
    }

    /// What is said, a line each, and what it comes to.
    fn checked(disk: &SimDisk) -> (Vec<String>, Total) {
        let mut check = Check { disk: Arc::new(disk.clone()), out: Vec::new(), total: Total::default() };
        check.directory(Path::new(DIR)).unwrap();
        let said = String::from_utf8(check.out).unwrap();
        (said.lines().map(str::to_owned).collect(), check.total)
    }

    #[test]
    fn a_sound_directory_has_nothing_to_tell() {
        let (said, total) = checked(&directory(2));
        assert_eq!(said, [""; 0]);
        assert_eq!((total.partitions, total.records, total.damages), (2, 4, 0));
    }

    #[test]
    fn what_cannot_be_read_is_told_and_keeps_nobody_from_reading_the_rest() {
        for (on, file, told) in [
            (
                FaultOn::Read,
                FIRST,
                "damaged: /data/t-0/00000000000000000000.log at 0: cannot be read: injected",
            ),
            (FaultOn::Open, FIRST, "damaged: /data/t-0/00000000000000000000.log: cannot be read: injected"),
            (
                FaultOn::Read,
                "0.timeindex",
                "damaged: /data/t-0/00000000000000000000.timeindex: cannot be read: injected",
            ),
            (
                FaultOn::Open,
                "0.index",
                "damaged: /data/t-0/00000000000000000000.index: cannot be read: injected",
            ),
            (FaultOn::Open, "partition.metadata", "damaged: /data/t-0/partition.metadata: injected"),
            (FaultOn::Read, META_PROPERTIES_FILE, "damaged: /data/meta.properties: cannot be read: injected"),
        ] {
            let disk = directory(2);
            disk.fail(on, file, 0, io::ErrorKind::Other, Some(1));
            let (said, total) = checked(&disk);
            assert_eq!(said, [told]);
            assert_eq!((total.partitions, total.damages), (2, 1), "{told}");
            // The other segment, and the other partition.
            assert!(total.records >= 3, "{told}");
        }
    }

    #[test]
    fn what_is_not_a_living_partition_is_named_with_what_becomes_of_it() {
        let disk = directory(4);
        for (partition, fate) in [(1, "future"), (2, "stray"), (3, "delete")] {
            rename(&disk, &format!("t-{partition}"), &format!("t-{partition}.{UNIQUE}-{fate}"));
        }
        disk.create_dir_all(&Path::new(DIR).join("backup")).unwrap();
        disk.create_dir_all(&Path::new(DIR).join(METADATA_LOG_DIR)).unwrap();
        disk.create_dir_all(&Path::new(DIR).join("lost+found")).unwrap();
        disk.open(&Path::new(DIR).join("t-0/notes.txt"), OpenMode::Create).unwrap();
        let (said, total) = checked(&disk);
        assert_eq!(
            said,
            [
                "skipped: /data/__cluster_metadata-0: it has no metadata log of ours",
                "skipped: /data/backup: it is none of a log directory's",
                "note: /data/t-0/notes.txt: is none of a partition's files, and not checked",
                &format!(
                    "note: /data/t-1.{UNIQUE}-future is checked as well: a copy that a move has not finished"
                ),
                &format!("note: /data/t-2.{UNIQUE}-stray is checked as well: kept aside; nobody serves it"),
                &format!("skipped: /data/t-3.{UNIQUE}-delete: it is to be removed"),
            ]
        );
        assert_eq!((total.partitions, total.damages), (3, 0));
    }

    #[test]
    fn a_directory_in_which_nothing_can_be_written_is_checked_and_one_in_use_is_not() {
        let disk = directory(1);
        disk.fail(FaultOn::Open, ".lock", 0, io::ErrorKind::ReadOnlyFilesystem, None);
        let (said, total) = checked(&disk);
        assert_eq!(said, ["note: /data cannot be locked (injected): nobody must have it meanwhile"]);
        assert_eq!((total.partitions, total.damages), (1, 0));
        disk.heal();
        let _node = Claim::take(Arc::new(disk.clone()), Path::new(DIR)).unwrap();
        let mut check = Check { disk: Arc::new(disk), out: Vec::new(), total: Total::default() };
        let refused = check.directory(Path::new(DIR)).unwrap_err();
        assert!(refused.to_string().ends_with("is in use by another process"), "{refused}");
    }
}
