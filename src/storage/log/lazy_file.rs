//! Where a partition's files lie, and a file of it that is opened when it is first needed: thousands of idle partitions
//! must not hold thousands of file handles. Knows nothing of contents.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::names::{FileName, Kind, Stage};
use super::open_files::{OpenFiles, Slot};
use crate::storage::disk::{self, Disk, DiskFile, OpenMode};
use crate::storage::locked;
use crate::types::Offset;

/// The directory of one partition.
#[derive(Debug)]
pub struct Place {
    pub disk: Arc<dyn Disk>,
    pub dir: PathBuf,
    pub open_files: Arc<OpenFiles>,
}

impl Place {
    pub fn path(&self, name: FileName) -> PathBuf {
        name.path(&self.dir)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn sync(&self) -> io::Result<()> {
        self.disk.sync_dir(&self.dir)
    }

    /// Makes a live file's content durable, if there is such a file.
    pub fn sync_file(&self, name: FileName) -> io::Result<()> {
        match self.disk.open(&self.path(name), OpenMode::Write) {
            Ok(file) => file.sync_data(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub fn remove(&self, name: FileName) -> io::Result<bool> {
        disk::remove_if_exists(&*self.disk, &self.path(name))
    }

    /// Renames a file to `stage`; `false` when there is no such file. A longer name may need room in the directory: where there
    /// is none, what is to be deleted goes at once. Whoever has it open goes on reading it.
    pub fn restage(&self, name: FileName, stage: Stage) -> io::Result<bool> {
        match self.disk.rename(&self.path(name), &self.path(name.at(stage))) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) if stage == Stage::Deleted && disk::is_full(&error) => self.remove(name),
            Err(error) => Err(error),
        }
    }

    /// The size of a file, `None` when there is none.
    pub fn size_of(&self, name: FileName) -> io::Result<Option<u64>> {
        match self.disk.stat(&self.path(name)) {
            Ok(stat) => Ok(Some(stat.len)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A file that belongs to an offset; opened at first use. A transaction index is made when it is first changed; any other
/// file that is missing went with its segment, and must not come back because somebody has an old view of the log.
#[derive(Debug)]
pub struct LazyFile {
    place: Arc<Place>,
    base: Offset,
    kind: Kind,
    /// Changes only while the slot is locked, so that a file of another segment that takes over the name is never opened
    /// for this one.
    stage: Mutex<Stage>,
    slot: Arc<Slot>,
}

impl LazyFile {
    pub fn new(place: Arc<Place>, base: Offset, kind: Kind, stage: Stage) -> LazyFile {
        LazyFile { place, base, kind, stage: Mutex::new(stage), slot: Arc::default() }
    }

    pub fn name(&self) -> FileName {
        FileName::live(self.base, self.kind).at(*locked(&self.stage))
    }

    /// Gives the file the name of another stage. Whoever reads it goes on reading the same file.
    pub fn restage(&self, to: Stage) -> io::Result<()> {
        self.slot.while_locked(|| {
            let from = self.name();
            if from.stage == to {
                return Ok(());
            }
            // Not every segment has each kind of file.
            self.place.restage(from, to)?;
            *locked(&self.stage) = to;
            Ok(())
        })
    }

    pub fn path(&self) -> PathBuf {
        self.place.path(self.name())
    }

    /// The open file, to read it.
    pub fn get(&self) -> io::Result<Arc<dyn DiskFile>> {
        self.get_as(OpenMode::Write)
    }

    fn get_as(&self, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.slot.get_or_open(&self.place.open_files, || {
            let file = self.place.disk.open(&self.path(), mode)?;
            // A system that reads ahead by megabytes, as many are set to, has syncs wait behind all of them.
            file.without_read_ahead();
            Ok(file)
        })
    }

    /// Changes the file, which stays open until [`sync_data`](LazyFile::sync_data).
    pub fn change(&self, change: impl FnOnce(&dyn DiskFile) -> io::Result<()>) -> io::Result<()> {
        self.slot.note_write();
        let mode = if self.kind == Kind::TxnIndex { OpenMode::Create } else { OpenMode::Write };
        let file = self.get_as(mode)?;
        // And again: a sync that ran meanwhile may have missed it.
        let result = change(&*file);
        self.slot.note_write();
        result
    }

    /// Makes durable what was written.
    pub fn sync_data(&self) -> io::Result<()> {
        let file = self.get()?;
        self.slot.note_sync();
        file.sync_data()?;
        self.place.open_files.trim();
        Ok(())
    }

    /// Makes the file, empty; what had its name before is gone.
    pub fn create(&self) -> io::Result<()> {
        self.slot.close();
        self.get_as(OpenMode::Truncate).map(drop)
    }

    /// The size without opening the file; `None` when there is no file.
    pub fn size(&self) -> io::Result<Option<u64>> {
        match self.slot.get() {
            Some(file) => file.len().map(Some),
            None => self.place.size_of(self.name()),
        }
    }

    /// Gives the file handle back; the next use opens the file again.
    pub fn release(&self) {
        self.slot.close();
    }
}
