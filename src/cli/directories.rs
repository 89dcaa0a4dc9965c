//! The data directories of a node before anything runs in them: made, locked, formatted, and checked to be this node's.
//!
//! Invariant: what is returned belongs to one cluster and to this node, and nobody else uses it while the locks are held.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::controller::founding;
use crate::storage::checkpoint::{META_PROPERTIES_FILE, MetaProperties, is_cluster_id};
use crate::storage::disk::Disk;
use crate::storage::log_dir::{Claim, LogDir, LogDirError, Owner};
use crate::types::{DirectoryId, NodeId, Uuid, kafka_uuid};

/// Why a node's directories cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error(
        "{0}, and a node that is part of a quorum formats itself only as part of the cluster that CLUSTER_ID names (not a \
         controller of a dynamic quorum): run 'floodmark storage format'"
    )]
    NotFormatted(LogDirError),
    #[error(
        "{empty} is not formatted, but {other} is, for this node: what {empty} held is lost, or it is not mounted. If it \
         is to be used empty, run 'floodmark storage format --ignore-formatted'",
        empty = empty.display(), other = other.display()
    )]
    Emptied { empty: PathBuf, other: PathBuf },
    #[error(
        "{dir} has no {META_PROPERTIES_FILE} but holds {found}: it was in use before. Bring the file back, or \
         run 'floodmark storage format'",
        dir = dir.display()
    )]
    NotEmpty { dir: PathBuf, found: String },
    #[error(
        "CLUSTER_ID '{0}' is not an id: it must be one word, as 'floodmark storage random-uuid' prints it"
    )]
    ClusterId(String),
    #[error(transparent)]
    LogDir(#[from] LogDirError),
    #[error("no log directory can be used")]
    NoneLeft,
}

/// The directories of a node, its own until this is dropped.
#[derive(Debug)]
pub struct Directories {
    pub cluster_id: String,
    /// In the order of `log.dirs`.
    pub log_dirs: Vec<LogDir>,
    /// Those of `log.dirs` that are damaged or cannot be reached.
    pub lost: Vec<PathBuf>,
    pub metadata_dir: (PathBuf, DirectoryId),
    /// That of the metadata directory, if it is no log directory.
    _claims: Vec<Claim>,
}

/// What a node wants of its directories.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    pub node: NodeId,
    pub log_dirs: &'a [PathBuf],
    pub metadata_dir: &'a Path,
    /// Format what is not formatted, as a node that stands alone does.
    pub format: bool,
    /// The node is one of several voters: when it is formatted now, it asks the others how their quorum began.
    pub is_one_of_several: bool,
    /// For directories that are formatted now; a new id when there is none.
    pub cluster_id: Option<&'a str>,
}

/// Takes the directories: makes what is missing, locks all, and formats or checks each. One that is damaged or cannot be
/// reached is left out, unless it is the metadata directory or the last one.
pub fn take(disk: &Arc<dyn Disk>, wanted: &Wanted<'_>) -> Result<Directories, DirectoryError> {
    let mut taking = Taking { metadata_dir: wanted.metadata_dir, lost: Vec::new() };
    let all: BTreeSet<&Path> =
        wanted.log_dirs.iter().map(PathBuf::as_path).chain([wanted.metadata_dir]).collect();
    let mut claims = Vec::new();
    for path in all {
        claims.extend(taking.or_leave_out(path, Claim::take(Arc::clone(disk), path))?);
    }
    if wanted.format {
        check_never_formatted(wanted, &claims)?;
    }
    claims.sort_by_key(|claim| claim.path() == wanted.metadata_dir);
    let cluster_id = cluster_id(wanted, &claims)?;
    let owner = Owner { cluster_id, node_id: wanted.node };
    let mut ours = Vec::new();
    for mut claim in claims {
        if claim.properties().is_none() && !wanted.format {
            return Err(DirectoryError::NotFormatted(LogDirError::NotFormatted(claim.path().to_owned())));
        }
        let founds = wanted.is_one_of_several && claim.path() == wanted.metadata_dir;
        let ready = make_ready(disk, &mut claim, &owner, founds);
        let path = claim.path().to_owned();
        ours.extend(taking.or_leave_out(&path, ready.map(|id| (claim, id)))?);
    }
    let metadata_id = ours.iter().find(|(claim, _)| claim.path() == wanted.metadata_dir).map(|(_, id)| *id);
    let (mut log_dirs, mut others) = (Vec::new(), Vec::new());
    for (claim, _) in ours {
        // A directory that is named twice is one directory.
        match wanted.log_dirs.iter().position(|dir| dir == claim.path()) {
            Some(position) => {
                let path = claim.path().to_owned();
                log_dirs.extend(taking.or_leave_out(&path, claim.open())?.map(|dir| (position, dir)));
            }
            None => others.push(claim),
        }
    }
    log_dirs.sort_by_key(|(position, _)| *position);
    let log_dirs: Vec<LogDir> = log_dirs.into_iter().map(|(_, dir)| dir).collect();
    let (Some(metadata_id), false) = (metadata_id, log_dirs.is_empty()) else {
        return Err(DirectoryError::NoneLeft);
    };
    let metadata_dir = (wanted.metadata_dir.to_owned(), metadata_id);
    let (cluster_id, lost) = (owner.cluster_id, taking.lost);
    Ok(Directories { cluster_id, log_dirs, lost, metadata_dir, _claims: others })
}

/// What becomes of directories that fail while they are taken.
struct Taking<'a> {
    metadata_dir: &'a Path,
    lost: Vec<PathBuf>,
}

impl Taking<'_> {
    /// Leaves out a directory that the disk does not give, if the node can do without. What somebody has done wrong, such as
    /// two nodes on one directory, ends the start.
    fn or_leave_out<T>(
        &mut self,
        path: &Path,
        result: Result<T, LogDirError>,
    ) -> Result<Option<T>, LogDirError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error @ LogDirError::Io { .. }) if path != self.metadata_dir => {
                tracing::error!("Log directory {} is out of service: {error}", path.display());
                self.lost.push(path.to_owned());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Makes sure that a directory which would be formatted never was: formatting it anew would forget what it held. Whoever adds
/// an empty directory to a node says so by formatting it.
fn check_never_formatted(wanted: &Wanted<'_>, claims: &[Claim]) -> Result<(), DirectoryError> {
    // The metadata directory is formatted last, so a start that was cut short has left neither it nor traces of use.
    let mut in_use = None;
    for claim in claims.iter().filter(|claim| claim.properties().is_some()) {
        if claim.path() == wanted.metadata_dir || claim.trace_of_use()?.is_some() {
            in_use = Some(claim.path());
        }
    }
    for claim in claims.iter().filter(|claim| claim.properties().is_none()) {
        let dir = claim.path().to_owned();
        match (claim.trace_of_use()?, in_use) {
            (Some(found), _) => return Err(DirectoryError::NotEmpty { dir, found }),
            (None, Some(other)) => {
                return Err(DirectoryError::Emptied { empty: dir, other: other.to_owned() });
            }
            (None, None) if claim.is_new() => {}
            (None, None) => tracing::warn!(
                "{} is there but empty, and is formatted now. If it should hold data, stop this node and look for it",
                dir.display()
            ),
        }
    }
    Ok(())
}

/// That of a directory that is formatted, else the one given, else a new one.
fn cluster_id(wanted: &Wanted<'_>, claims: &[Claim]) -> Result<String, DirectoryError> {
    if let Some(properties) = claims.iter().find_map(Claim::properties) {
        return Ok(properties.cluster_id.clone());
    }
    match wanted.cluster_id {
        Some(id) if !is_cluster_id(id) => Err(DirectoryError::ClusterId(id.to_owned())),
        Some(id) => Ok(id.to_owned()),
        None => Ok(kafka_uuid::format(random_id())),
    }
}

/// Checks whose directory it is, and formats it when nobody has or when it has no id, as before KIP-858.
fn make_ready(
    disk: &Arc<dyn Disk>,
    claim: &mut Claim,
    owner: &Owner,
    founds: bool,
) -> Result<DirectoryId, LogDirError> {
    match claim.properties() {
        Some(_) => claim.check(owner)?,
        // Noted before anything says that the directory is formatted.
        None if founds => founding::begin(&**disk, claim.path()).map_err(|error| LogDirError::Io {
            dir: claim.path().to_owned(),
            doing: "formatting it",
            error,
        })?,
        None => {}
    }
    if let Some(id) = claim.properties().and_then(|properties| properties.directory_id) {
        return Ok(id);
    }
    let Owner { cluster_id, node_id } = owner.clone();
    let id = random_id();
    claim.format(MetaProperties { cluster_id, node_id, directory_id: Some(id) })?;
    Ok(id)
}

/// Formats one directory, which nobody may use meanwhile.
pub fn format(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    node_id: NodeId,
    cluster_id: &str,
    id: DirectoryId,
) -> Result<(), LogDirError> {
    let properties = MetaProperties { cluster_id: cluster_id.to_owned(), node_id, directory_id: Some(id) };
    Claim::take(Arc::clone(disk), dir)?.format(properties)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::disk::RealDisk;

    fn take_of(log_dirs: &[PathBuf], metadata_dir: &Path) -> Result<Directories, DirectoryError> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let node = NodeId(1);
        let (format, is_one_of_several, cluster_id) = (true, false, None);
        take(&disk, &Wanted { node, log_dirs, metadata_dir, format, is_one_of_several, cluster_id })
    }

    fn paths(directories: &Directories) -> Vec<&Path> {
        directories.log_dirs.iter().map(LogDir::path).collect()
    }

    #[test]
    fn a_damaged_directory_is_left_out_if_the_node_can_do_without() {
        let root = tempfile::tempdir().unwrap();
        let [z, b, c] = ["z", "b", "c"].map(|name| root.path().join(name));
        let all = [z.clone(), b.clone(), c.clone()];
        let taken = take_of(&all, &z).unwrap();
        assert_eq!(paths(&taken), [&z, &b, &c]);
        assert_eq!(taken.metadata_dir, (z.clone(), taken.log_dirs[0].properties().directory_id.unwrap()));
        assert!(matches!(take_of(&all, &z), Err(DirectoryError::LogDir(LogDirError::Locked(_)))));
        drop(taken);

        std::fs::write(b.join("meta.properties"), "version=9\n").unwrap();
        std::fs::create_dir(c.join("log-start-offset-checkpoint")).unwrap();
        let taken = take_of(&all, &z).unwrap();
        assert_eq!((paths(&taken), &taken.lost[..]), (vec![z.as_path()], &[b.clone(), c.clone()][..]));
        drop(taken);
        assert!(matches!(take_of(&all, &b), Err(DirectoryError::LogDir(LogDirError::Io { .. }))));
        let metadata = root.path().join("metadata");
        assert!(matches!(take_of(&[b, c], &metadata), Err(DirectoryError::NoneLeft)));
    }

    #[test]
    fn a_directory_that_was_formatted_is_not_formatted_by_itself() {
        let root = tempfile::tempdir().unwrap();
        let [a, b, m] = ["a", "b", "m"].map(|name| root.path().join(name));
        let dirs = [a.clone(), b.clone()];
        let properties = |dir: &Path| dir.join(META_PROPERTIES_FILE);
        // An empty mount point is as good as a new directory.
        std::fs::create_dir_all(b.join("lost+found")).unwrap();
        drop(take_of(&dirs, &m).unwrap());
        // The first start was cut short: the metadata directory is formatted last.
        for dir in [&a, &m] {
            std::fs::remove_file(properties(dir)).unwrap();
        }
        drop(take_of(&dirs, &m).unwrap());
        // The metadata directory knows that there were others.
        for dir in [&a, &b] {
            std::fs::remove_dir_all(dir).unwrap();
            let refused = take_of(&dirs, &m).unwrap_err();
            assert!(
                matches!(&refused, DirectoryError::Emptied { empty, other } if empty == dir && *other == m)
            );
            let disk: Arc<dyn Disk> = Arc::new(RealDisk);
            let cluster_id = read(&m).cluster_id;
            format(&disk, dir, NodeId(1), &cluster_id, random_id()).unwrap();
            drop(take_of(&dirs, &m).unwrap());
        }
        // And so does a directory that has been in use.
        std::fs::create_dir(a.join("orders-0")).unwrap();
        std::fs::remove_dir_all(&m).unwrap();
        let refused = take_of(&dirs, &m).unwrap_err();
        assert!(matches!(&refused, DirectoryError::Emptied { empty, other } if *empty == m && *other == a));
        // A directory that only lost what says whose it is is not empty.
        std::fs::remove_file(properties(&a)).unwrap();
        let refused = take_of(std::slice::from_ref(&a), &a).unwrap_err();
        assert!(
            matches!(&refused, DirectoryError::NotEmpty { dir, found } if *dir == a && found == "orders-0")
        );
    }

    fn read(dir: &Path) -> MetaProperties {
        crate::storage::checkpoint::read_meta_properties(&RealDisk, dir).unwrap().unwrap()
    }

    #[test]
    fn a_directory_of_somebody_else_ends_the_start() {
        let root = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| root.path().join(name));
        drop(take_of(std::slice::from_ref(&a), &a).unwrap());
        drop(take_of(std::slice::from_ref(&b), &b).unwrap());
        let refused = take_of(&[a.clone(), b], &a).unwrap_err().to_string();
        assert!(refused.contains("says cluster.id="), "{refused}");
    }
}
