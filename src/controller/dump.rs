//! Reads a metadata directory from outside, changing nothing: what the newest snapshot holds and what follows it in the
//! log. For `floodmark metadata dump`; the node need not be running, and may be.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openraft::EntryPayload;

use crate::controller::codec::{self, DecodeError};
use crate::controller::frame::Frame;
use crate::controller::hard_state::{self, HardState, OpenStateError};
use crate::controller::log_segment::{self, ReadLogError};
use crate::controller::raft_types::{BatchError, node_id, split_records};
use crate::controller::snapshot::{ReadSnapshotError, SnapshotDir};
use crate::metadata::record::RecordError;
use crate::metadata::{ImageVersion, Record};
use crate::storage::disk::Disk;
use crate::types::NodeId;

/// Why a metadata directory cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    #[error("{} has no metadata: no controller has run on it", .0.display())]
    Nothing(PathBuf),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    State(#[from] OpenStateError),
    #[error(transparent)]
    Snapshot(#[from] ReadSnapshotError),
    #[error(transparent)]
    Log(#[from] ReadLogError),
    #[error("entry {index}: {source}")]
    Entry { index: u64, source: DecodeError },
    #[error("entry {index}: {source}")]
    Batch { index: u64, source: BatchError },
    #[error("a record of entry {index}: {source}")]
    Record { index: u64, source: RecordError },
}

/// A record and the version of its schema that it is written in.
pub type VersionedRecord = (Record, i16);

/// What a metadata directory holds.
#[derive(Debug)]
pub struct Dump {
    /// The last vote: the leader or candidate, its term, and whether it was elected.
    pub vote: Option<(NodeId, u64, bool)>,
    /// Entries below this index were known to be committed when the node last stopped.
    pub committed: u64,
    pub snapshot: Option<DumpedSnapshot>,
    pub entries: Entries,
}

/// The newest snapshot.
#[derive(Debug)]
pub struct DumpedSnapshot {
    pub path: PathBuf,
    pub version: ImageVersion,
    pub last_index: Option<u64>,
    pub last_term: Option<u64>,
    pub records: Vec<VersionedRecord>,
}

/// One entry of the log.
#[derive(Debug, PartialEq)]
pub struct DumpedEntry {
    pub index: u64,
    pub term: u64,
    pub payload: DumpedPayload,
}

#[derive(Debug, PartialEq)]
pub enum DumpedPayload {
    /// The first entry of a leader.
    Blank,
    /// Records decided on a version of the image; on another version they have no effect.
    Records { base: ImageVersion, records: Vec<VersionedRecord> },
    /// The quorum's members from here on, in openraft's words.
    Membership(String),
}

/// Opens the metadata log directory `dir` (`<metadata.log.dir>/__cluster_metadata-0`).
pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<Dump, DumpError> {
    let HardState { vote, purged, committed, .. } = match hard_state::peek(&*disk, dir) {
        Err(OpenStateError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Err(DumpError::Nothing(dir.to_owned()));
        }
        state => state?,
    };
    let io = |source| DumpError::Io { path: dir.to_owned(), source };
    let newest = SnapshotDir::new(Arc::clone(&disk), dir).newest().map_err(io)?;
    let mut snapshot = None;
    if let Some(file) = newest {
        let mut records = Vec::new();
        let contents = file.read(|bytes| {
            records.push(Record::decode(bytes).map_err(|error| error.to_string())?);
            Ok(())
        })?;
        snapshot = Some(DumpedSnapshot {
            path: file.path().to_owned(),
            version: ImageVersion(contents.version),
            last_index: contents.last.map(|last| last.index),
            last_term: contents.last.map(|last| last.leader_id.term),
            records,
        });
    }
    let first = purged.map_or(0, |purged| purged.index + 1);
    Ok(Dump {
        vote: vote.map(|vote| (node_id(vote.leader_id.node_id), vote.leader_id.term, vote.committed)),
        committed,
        snapshot,
        entries: Entries { frames: log_segment::read_only(disk, dir, first).map_err(io)? },
    })
}

/// The entries of the log in order; those that the snapshot holds too may be among them.
#[derive(Debug)]
pub struct Entries {
    frames: log_segment::Frames,
}

impl Iterator for Entries {
    type Item = Result<DumpedEntry, DumpError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.frames.next().map(|frame| dumped(frame?))
    }
}

fn dumped(frame: Frame) -> Result<DumpedEntry, DumpError> {
    let index = frame.index;
    let entry =
        codec::get_entry(index, frame.payload).map_err(|source| DumpError::Entry { index, source })?;
    let payload = match entry.payload {
        EntryPayload::Blank => DumpedPayload::Blank,
        EntryPayload::Membership(membership) => DumpedPayload::Membership(membership.to_string()),
        EntryPayload::Normal(batch) => {
            let frames = split_records(batch.records).map_err(|source| DumpError::Batch { index, source })?;
            let records: Result<Vec<_>, _> = frames.into_iter().map(Record::decode).collect();
            let records = records.map_err(|source| DumpError::Record { index, source })?;
            DumpedPayload::Records { base: ImageVersion(batch.base), records }
        }
    };
    Ok(DumpedEntry { index, term: entry.log_id.leader_id.term, payload })
}
