//! One segment file of the metadata log, and reading segments from outside.
//!
//! A segment is named by the index of its first entry in 20 digits, with the suffix `.raftlog`. It opens with 16 bytes,
//! "FLOODMARK-RAFT" and a u16 format version (1); frames as in `frame` follow without gaps.
//!
//! Knows nothing of the segments before and after. Invariant: a frame that is handed out has the index that it was asked
//! for and an intact checksum.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::controller::frame::Frame;
use crate::storage::disk::{self, Disk, DiskFile};

const SUFFIX: &str = ".raftlog";
pub const SEGMENT_HEADER: [u8; 16] = *b"FLOODMARK-RAFT\0\x01";

/// The name of the segment that begins with entry `first`.
pub fn segment_name(first: u64) -> String {
    format!("{first:020}{SUFFIX}")
}

/// Whether a file of this name is a segment of the metadata log.
pub fn is_segment(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

/// The segments in `dir` by the index of their first entry, oldest first.
pub fn segment_names(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let named = |name: &str| name.strip_suffix(SUFFIX).and_then(|first| first.parse().ok());
    let entries = disk.list(dir)?.into_iter();
    let mut names: Vec<(u64, PathBuf)> =
        entries.filter_map(|entry| named(&entry.name).map(|first| (first, dir.join(&entry.name)))).collect();
    names.sort_unstable();
    Ok(names)
}

/// The frames of the log in `dir` from entry `first` on, read without changing anything. What a crash has torn off, or a
/// running node is just writing, ends it.
pub fn read_only(disk: Arc<dyn Disk>, dir: &Path, first: u64) -> io::Result<Frames> {
    let segments = segment_names(&*disk, dir)?.into_iter();
    Ok(Frames { disk, segments, path: dir.to_owned(), position: 0, rest: Bytes::new(), first })
}

/// See [`read_only`].
#[derive(Debug)]
pub struct Frames {
    disk: Arc<dyn Disk>,
    segments: std::vec::IntoIter<(u64, PathBuf)>,
    /// The segment that `rest` is the rest of.
    path: PathBuf,
    position: u64,
    rest: Bytes,
    first: u64,
}

impl Iterator for Frames {
    type Item = Result<Frame, ReadLogError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(frame) = Frame::read(&self.rest) {
                self.rest = self.rest.slice(frame.len()..);
                self.position += frame.len() as u64;
                if frame.index >= self.first {
                    self.first = frame.index + 1;
                    return Some(Ok(frame));
                }
                continue;
            }
            let index = self.first;
            let is_lost = |later: Frame| later.index > index && later.durable > index;
            if !self.rest.is_empty() && (self.segments.len() > 0 || Frame::find_all(&self.rest).any(is_lost))
            {
                self.rest = Bytes::new();
                return Some(Err(ReadLogError::Damaged {
                    path: self.path.clone(),
                    position: self.position,
                    index,
                }));
            }
            let (_, path) = self.segments.next()?;
            let bytes = match disk::read_file(&*self.disk, &path) {
                Ok(bytes) => Bytes::from(bytes),
                Err(source) => return Some(Err(ReadLogError::Io { path, source })),
            };
            self.path = path;
            self.position = SEGMENT_HEADER.len() as u64;
            self.rest = bytes.slice(SEGMENT_HEADER.len().min(bytes.len())..);
        }
    }
}

/// Why entries cannot be read back.
#[derive(Debug, thiserror::Error)]
pub enum ReadLogError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: entry {index} at byte {position} is damaged")]
    Damaged { path: PathBuf, position: u64, index: u64 },
}

/// One open segment.
#[derive(Debug)]
pub struct Segment {
    pub path: PathBuf,
    pub file: Arc<dyn DiskFile>,
    pub first: u64,
    /// Where each frame begins.
    pub positions: Vec<u32>,
    /// Where the next frame goes; 0 before the segment's header is written.
    pub end: u64,
}

impl Segment {
    /// The index after its last entry.
    pub fn next(&self) -> u64 {
        self.first + self.positions.len() as u64
    }

    /// Where the frame of `index` begins, which for the entry after the last is the end.
    pub fn position(&self, index: u64) -> u64 {
        let at = usize::try_from(index - self.first).unwrap_or(usize::MAX);
        self.positions.get(at).map_or(self.end, |position| (*position).into())
    }

    /// Appends the frames of entries `from..to`, which the segment has, to `into`.
    pub fn read(&self, from: u64, to: u64, into: &mut Vec<Frame>) -> Result<(), ReadLogError> {
        let start = self.position(from);
        let len = usize::try_from(self.position(to) - start).unwrap_or(usize::MAX);
        let bytes = self.file.read_vec(len, start);
        let mut bytes =
            Bytes::from(bytes.map_err(|source| ReadLogError::Io { path: self.path.clone(), source })?);
        for index in from..to {
            let frame = Frame::read(&bytes).filter(|frame| frame.index == index);
            let Some(frame) = frame else {
                let (path, position) = (self.path.clone(), self.position(index));
                return Err(ReadLogError::Damaged { path, position, index });
            };
            bytes = bytes.slice(frame.len()..);
            into.push(frame);
        }
        Ok(())
    }
}

/// A position as a segment keeps it.
pub fn position_u32(position: u64) -> u32 {
    u32::try_from(position).expect("a segment is below 4 GiB")
}
