//! Where a partition's files lie, and a file of it that is opened when it is first needed: thousands of idle partitions
//! must not hold thousands of file handles. Knows nothing of contents.
//!
//! Invariants: whoever opens a file by a place opens it where it lies, also while the directory is being renamed; who only reads
//! opens no file for writing, which a file system that has turned read-only would not let it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::names::{FileName, Kind, Stage};
use super::open_files::{OpenFiles, Slot};
use crate::storage::disk::{self, Disk, DiskFile, FileStat, OpenMode};
use crate::storage::locked;
use crate::types::Offset;

/// The directory of one partition.
#[derive(Debug)]
pub struct Place {
    pub disk: Arc<dyn Disk>,
    /// Locked to read while a file is opened by it, and to write while the directory gets another name.
    dir: RwLock<PathBuf>,
    pub open_files: Arc<OpenFiles>,
}

impl Place {
    pub fn new(disk: Arc<dyn Disk>, dir: &Path, open_files: Arc<OpenFiles>) -> Place {
        Place { disk, dir: RwLock::new(dir.to_owned()), open_files }
    }

    /// Does something with the directory, which does not move meanwhile. Not to be nested.
    pub fn within<T>(&self, act: impl FnOnce(&Path) -> T) -> T {
        act(&self.dir.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn dir(&self) -> PathBuf {
        self.within(Path::to_owned)
    }

    pub fn path(&self, name: FileName) -> PathBuf {
        self.within(|dir| name.path(dir))
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.within(|dir| dir.join(name))
    }

    pub fn sync(&self) -> io::Result<()> {
        self.within(|dir| self.disk.sync_dir(dir))
    }

    /// Gives the directory another name. Whoever reads its files goes on reading them.
    pub fn rename(&self, to: &Path) -> io::Result<()> {
        let mut dir = self.dir.write().unwrap_or_else(PoisonError::into_inner);
        self.disk.rename(&dir, to)?;
        *dir = to.to_owned();
        Ok(())
    }

    /// Opens a file.
    pub fn open(&self, name: FileName, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.within(|dir| self.disk.open(&name.path(dir), mode))
    }

    /// Makes a live file's content durable, if there is such a file.
    pub fn sync_file(&self, name: FileName) -> io::Result<()> {
        match self.open(name, OpenMode::Write) {
            Ok(file) => file.sync_data(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub fn remove(&self, name: FileName) -> io::Result<bool> {
        self.within(|dir| disk::remove_if_exists(&*self.disk, &name.path(dir)))
    }

    /// Renames a file to `stage`; `false` when there is no such file. A longer name may need room in the directory: where there
    /// is none, what is to be deleted goes at once. Whoever has it open goes on reading it.
    pub fn restage(&self, name: FileName, stage: Stage) -> io::Result<bool> {
        match self.within(|dir| self.disk.rename(&name.path(dir), &name.at(stage).path(dir))) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) if stage == Stage::Deleted && disk::is_full(&error) => self.remove(name),
            Err(error) => Err(error),
        }
    }

    /// The size of a file, `None` when there is none.
    pub fn size_of(&self, name: FileName) -> io::Result<Option<u64>> {
        match self.within(|dir| self.disk.stat(&name.path(dir))) {
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

    pub fn stat(&self) -> io::Result<FileStat> {
        self.place.within(|dir| self.place.disk.stat(&self.name().path(dir)))
    }

    pub fn path(&self) -> PathBuf {
        self.place.path(self.name())
    }

    /// The open file, to read it.
    pub fn get(&self) -> io::Result<Arc<dyn DiskFile>> {
        self.get_as(OpenMode::Read)
    }

    /// The open file, to change what can be made again from others. What must be durable is changed by
    /// [`change`](LazyFile::change).
    pub fn get_to_write(&self) -> io::Result<Arc<dyn DiskFile>> {
        self.get_as(OpenMode::Write)
    }

    fn get_as(&self, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.slot.get_or_open(&self.place.open_files, mode != OpenMode::Read, || {
            let file = self.place.open(self.name(), mode)?;
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
        let file = self.get_to_write()?;
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
