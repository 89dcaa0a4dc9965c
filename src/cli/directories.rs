//! The data directories of a node before anything runs in them: made, locked, formatted, and checked to be this node's.
//!
//! Invariant: what is returned belongs to one cluster and to this node, and nobody else uses it while the locks are held.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::storage::checkpoint::{
    META_PROPERTIES_FILE, MetaProperties, read_meta_properties, write_meta_properties,
};
use crate::storage::disk::{Disk, DiskLock};
use crate::storage::log_dir::{LogDir, LogDirError};
use crate::types::{DirectoryId, NodeId, Uuid, kafka_uuid};

/// The lock file of a directory, Kafka's.
const LOCK_FILE: &str = ".lock";

/// Why a node's directories cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error("{dir}: {doing} failed: {error}", dir = dir.display())]
    Io { dir: PathBuf, doing: &'static str, error: io::Error },
    #[error("{} is in use by another process", .0.display())]
    InUse(PathBuf),
    #[error("{dir}/{META_PROPERTIES_FILE} says {key}={found}, but this node has {expected}", dir = dir.display())]
    Other { dir: PathBuf, key: &'static str, found: String, expected: String },
    #[error(
        "{} is not formatted, and a node that is part of a quorum is not formatted by itself: run 'floodmark storage format'",
        .0.display()
    )]
    NotFormatted(PathBuf),
    #[error("CLUSTER_ID '{0}' is not an id: 22 letters as 'floodmark storage random-uuid' prints them")]
    ClusterId(String),
    #[error(transparent)]
    LogDir(#[from] LogDirError),
}

/// The directories of a node, its own until this is dropped.
#[derive(Debug)]
pub struct Directories {
    pub cluster_id: String,
    /// In the order of `log.dirs`.
    pub log_dirs: Vec<LogDir>,
    pub metadata_dir: (PathBuf, DirectoryId),
    _locks: Vec<Box<dyn DiskLock>>,
}

/// What a node wants of its directories.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    pub node: NodeId,
    pub log_dirs: &'a [PathBuf],
    pub metadata_dir: &'a Path,
    /// Format what is not formatted, as a node that stands alone does.
    pub format: bool,
    /// For directories that are formatted now; a new id when there is none.
    pub cluster_id: Option<&'a str>,
}

/// Takes the directories: makes what is missing, locks all, and formats or checks each.
pub fn take(shared_disk: &Arc<dyn Disk>, wanted: &Wanted<'_>) -> Result<Directories, DirectoryError> {
    let disk = shared_disk.as_ref();
    let all: BTreeSet<&Path> =
        wanted.log_dirs.iter().map(PathBuf::as_path).chain([wanted.metadata_dir]).collect();
    let mut locks = BTreeMap::new();
    let mut found = Vec::new();
    for dir in all {
        let io = |doing| move |error| DirectoryError::Io { dir: dir.to_owned(), doing, error };
        disk.create_dir_all(dir).map_err(io("creating it"))?;
        let lock = disk.lock(&dir.join(LOCK_FILE)).map_err(io("locking it"))?;
        locks.insert(dir, lock.ok_or_else(|| DirectoryError::InUse(dir.to_owned()))?);
        let properties = read_meta_properties(disk, dir).map_err(io("reading meta.properties"))?;
        found.push((dir, properties));
    }
    let cluster_id = cluster_id(wanted, &found)?;
    let mut ids = BTreeMap::new();
    for (dir, properties) in found {
        let id = match properties {
            Some(properties) => check(disk, dir, properties, wanted.node, &cluster_id)?,
            None if wanted.format => format(disk, dir, wanted.node, &cluster_id)?,
            None => return Err(DirectoryError::NotFormatted(dir.to_owned())),
        };
        ids.insert(dir, id);
    }
    let mut log_dirs = Vec::new();
    for dir in wanted.log_dirs {
        // A directory that is named twice is one directory.
        let Some(lock) = locks.remove(dir.as_path()) else { continue };
        let (cluster_id, node_id) = (cluster_id.clone(), wanted.node);
        let directory_id = ids.get(dir.as_path()).copied();
        let properties = MetaProperties { cluster_id, node_id, directory_id };
        log_dirs.push(LogDir::open_locked(Arc::clone(shared_disk), dir, properties, lock)?);
    }
    let metadata_id = ids[wanted.metadata_dir];
    let metadata_dir = (wanted.metadata_dir.to_owned(), metadata_id);
    Ok(Directories { cluster_id, log_dirs, metadata_dir, _locks: locks.into_values().collect() })
}

/// That of a directory that is formatted, else the one given, else a new one.
fn cluster_id(
    wanted: &Wanted<'_>,
    found: &[(&Path, Option<MetaProperties>)],
) -> Result<String, DirectoryError> {
    if let Some(properties) = found.iter().find_map(|(_, properties)| properties.as_ref()) {
        return Ok(properties.cluster_id.clone());
    }
    match wanted.cluster_id {
        Some(id) if kafka_uuid::parse(id).is_none() => Err(DirectoryError::ClusterId(id.to_owned())),
        Some(id) => Ok(id.to_owned()),
        None => Ok(kafka_uuid::format(random_id())),
    }
}

fn check(
    disk: &dyn Disk,
    dir: &Path,
    properties: MetaProperties,
    node: NodeId,
    cluster_id: &str,
) -> Result<DirectoryId, DirectoryError> {
    let other = |key, found: String, expected: String| {
        Err(DirectoryError::Other { dir: dir.to_owned(), key, found, expected })
    };
    if properties.cluster_id != cluster_id {
        return other("cluster.id", properties.cluster_id, cluster_id.to_owned());
    }
    if properties.node_id != node {
        return other("node.id", properties.node_id.to_string(), node.to_string());
    }
    match properties.directory_id {
        Some(id) => Ok(id),
        // Formatted before directories had ids (KIP-858).
        None => format(disk, dir, node, cluster_id),
    }
}

/// Writes a `meta.properties` with a new directory id.
pub fn format(
    disk: &dyn Disk,
    dir: &Path,
    node: NodeId,
    cluster_id: &str,
) -> Result<DirectoryId, DirectoryError> {
    let io = |error| DirectoryError::Io { dir: dir.to_owned(), doing: "formatting it", error };
    let directory_id = random_id();
    let (cluster_id, node_id) = (cluster_id.to_owned(), node);
    let properties = MetaProperties { cluster_id, node_id, directory_id: Some(directory_id) };
    write_meta_properties(disk, dir, &properties, "").map_err(io)?;
    Ok(directory_id)
}

/// A random id that reads well on a command line: Kafka's own avoid a leading dash too.
pub fn random_id() -> Uuid {
    loop {
        let id = Uuid::from_u128(rand::random());
        // The first hundred ids are reserved (KIP-858).
        if id.as_u128() >= 100 && !kafka_uuid::format(id).starts_with('-') {
            return id;
        }
    }
}
