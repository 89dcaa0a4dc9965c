//! Taking possession of a directory: it is made and locked, says whose it is, and is formatted when it says nothing. Where
//! ids come from, and whether to format, is for the caller.
//!
//! Invariant: while a `Claim`, or the `LogDir` that it becomes, is held, no other process has the directory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use super::LogDir;
use super::names::is_partition_dir;
use crate::storage::checkpoint::{
    CLEAN_SHUTDOWN_FILE, META_PROPERTIES_FILE, MetaProperties, OffsetCheckpoint, read_meta_properties,
    write_meta_properties,
};
use crate::storage::disk::{DirEntry, Disk, DiskLock};
use crate::types::NodeId;

/// Kafka's name of the file that is locked.
pub(super) const LOCK_FILE: &str = ".lock";

/// Why a directory cannot be used.
#[derive(Debug, Error)]
pub enum LogDirError {
    /// It is damaged or cannot be reached.
    #[error("{dir}: {doing} failed: {error}", dir = dir.display())]
    Io { dir: PathBuf, doing: &'static str, error: io::Error },
    #[error("{} is in use by another process", .0.display())]
    Locked(PathBuf),
    #[error("{} is not formatted", .0.display())]
    NotFormatted(PathBuf),
    #[error("{dir}/{META_PROPERTIES_FILE} says {key}={found}, but this node has {expected}", dir = dir.display())]
    Other { dir: PathBuf, key: &'static str, found: String, expected: String },
}

impl LogDirError {
    pub(super) fn io(doing: &'static str, dir: &Path, error: io::Error) -> LogDirError {
        LogDirError::Io { dir: dir.to_owned(), doing, error }
    }
}

/// Whose directory it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub cluster_id: String,
    pub node_id: NodeId,
}

/// A directory that this process has locked and not looked into yet.
#[derive(Debug)]
pub struct Claim {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    lock: Box<dyn DiskLock>,
    properties: Option<MetaProperties>,
    is_new: bool,
}

/// Locks a directory, which is there, against every other process.
pub fn lock(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn DiskLock>, LogDirError> {
    let lock = disk.lock(&dir.join(LOCK_FILE));
    lock.map_err(|error| LogDirError::io("locking it", dir, error))?
        .ok_or_else(|| LogDirError::Locked(dir.to_owned()))
}

impl Claim {
    /// Makes the directory when it is missing, and locks it.
    pub fn take(disk: Arc<dyn Disk>, path: &Path) -> Result<Claim, LogDirError> {
        let failed = |doing| move |error| LogDirError::io(doing, path, error);
        let is_new = disk.list(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        disk.create_dir_all(path).map_err(failed("creating it"))?;
        let lock = lock(&*disk, path)?;
        let properties =
            read_meta_properties(&*disk, path).map_err(failed("reading what it is formatted for"))?;
        Ok(Claim { disk, path: path.to_owned(), lock, properties, is_new })
    }

    /// Whether there was no such directory before.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The name of something that only a broker puts into a log directory, if there is any.
    pub fn trace_of_use(&self) -> Result<Option<String>, LogDirError> {
        let entries = self.disk.list(&self.path);
        let entries = entries.map_err(|error| LogDirError::io("looking into it", &self.path, error))?;
        let is_checkpoint =
            |name: &str| OffsetCheckpoint::ALL.iter().any(|checkpoint| checkpoint.file_name() == name);
        let is_trace = |entry: &DirEntry| match entry.is_dir {
            true => is_partition_dir(&entry.name),
            false => is_checkpoint(&entry.name) || entry.name == CLEAN_SHUTDOWN_FILE,
        };
        Ok(entries.into_iter().find(is_trace).map(|entry| entry.name))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is formatted for, if it is.
    pub fn properties(&self) -> Option<&MetaProperties> {
        self.properties.as_ref()
    }

    /// Whether it is formatted for `owner`.
    pub fn check(&self, owner: &Owner) -> Result<(), LogDirError> {
        let dir = self.path.clone();
        let found = self.properties().ok_or_else(|| LogDirError::NotFormatted(dir.clone()))?;
        if found.cluster_id != owner.cluster_id {
            let (found, expected) = (found.cluster_id.clone(), owner.cluster_id.clone());
            return Err(LogDirError::Other { dir, key: "cluster.id", found, expected });
        }
        if found.node_id != owner.node_id {
            let (found, expected) = (found.node_id.to_string(), owner.node_id.to_string());
            return Err(LogDirError::Other { dir, key: "node.id", found, expected });
        }
        Ok(())
    }

    /// Formats it, or gives it an id when it has none.
    pub fn format(&mut self, properties: MetaProperties) -> Result<(), LogDirError> {
        let failed = |error| LogDirError::io("formatting it", &self.path, error);
        write_meta_properties(&*self.disk, &self.path, &properties, "").map_err(failed)?;
        if let Some(parent) = self.path.parent() {
            // Its own name must not be lost either. Above a root or a relative path there is nothing to sync.
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            self.disk.sync_dir(parent).map_err(failed)?;
        }
        self.properties = Some(properties);
        Ok(())
    }

    /// The formatted directory with what lies in it, and how it was left.
    pub fn open(self) -> Result<LogDir, LogDirError> {
        let Claim { disk, path, lock, properties, is_new: _ } = self;
        let properties = properties.ok_or_else(|| LogDirError::NotFormatted(path.clone()))?;
        LogDir::read(disk, &path, properties, lock)
    }
}
