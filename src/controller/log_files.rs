//! The metadata log on disk: segment files of checked frames, written and synced by one owner.
//!
//! A segment is named by the index of its first entry in 20 digits, with the suffix `.raftlog`. It opens with 16 bytes,
//! "FLOODMARK-RAFT" and a u16 format version (1); frames as in `frame` follow without gaps. A segment is begun only when
//! the one before it is synced, so all but the last are whole.
//!
//! Knows nothing of what entries mean. Invariants: entries are consecutive; what `sync` has returned for is there after
//! any crash; `open` cuts what a crash tore off and refuses a log that has lost a synced entry.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::controller::frame::Frame;
use crate::storage::disk::{self, Disk, DiskFile, OpenMode};

const SUFFIX: &str = ".raftlog";
/// Positions within a segment are kept in four bytes, and a segment may end a batch later than it should.
const MAX_SEGMENT_BYTES: u64 = 1 << 30;
const SEGMENT_HEADER: [u8; 16] = *b"FLOODMARK-RAFT\0\x01";

/// Whether a file of this name is a segment of the metadata log.
pub fn is_segment(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

/// The segments in `dir` by the index of their first entry, oldest first.
fn segment_names(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
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
            if !self.rest.is_empty() && (self.segments.len() > 0 || Frame::proves_durable(&self.rest, index))
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

/// Why a metadata log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenLogError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "{path} does not begin as a segment of the metadata log; it may have been written by a newer version"
    )]
    NotASegment { path: PathBuf },
    #[error("{path} is damaged at byte {position}: entry {index} had been synced and cannot be read")]
    Damaged { path: PathBuf, position: u64, index: u64 },
    #[error("{path} begins with entry {found} where entry {expected} should follow: a segment is missing")]
    Gap { path: PathBuf, expected: u64, found: u64 },
    #[error("the log in {dir} ends before entry {found}, but all entries below {expected} had been synced")]
    Lost { dir: PathBuf, expected: u64, found: u64 },
    #[error(transparent)]
    Read(#[from] ReadLogError),
}

/// Why entries cannot be read back.
#[derive(Debug, thiserror::Error)]
pub enum ReadLogError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: entry {index} at byte {position} is damaged")]
    Damaged { path: PathBuf, position: u64, index: u64 },
}

/// What the log knew when it was closed or crashed, kept outside of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Entries below this index were purged.
    pub first: u64,
    /// Entries below this index had been synced.
    pub durable: u64,
}

#[derive(Debug)]
struct Segment {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    first: u64,
    /// Where each frame begins.
    positions: Vec<u32>,
    /// Where the next frame goes; 0 before the segment's header is written.
    end: u64,
}

impl Segment {
    fn next(&self) -> u64 {
        self.first + self.positions.len() as u64
    }

    /// Where the frame of `index` begins, which for the entry after the last is the end.
    fn position(&self, index: u64) -> u64 {
        let at = usize::try_from(index - self.first).unwrap_or(usize::MAX);
        self.positions.get(at).map_or(self.end, |position| (*position).into())
    }
}

/// The open log.
#[derive(Debug)]
pub struct LogFiles {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    segment_bytes: u64,
    /// Oldest first; none when there are no entries.
    segments: Vec<Segment>,
    /// Entries below this index do not exist, though the first segment may still hold their bytes.
    first: u64,
    durable: u64,
    /// The highest `committed` of a frame found by `open`.
    committed_at_open: u64,
    /// A segment was made since the directory was last synced.
    dir_is_dirty: bool,
}

impl LogFiles {
    /// Opens the log in `dir`, which exists. A segment longer than `segment_bytes` is followed by a new one.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        segment_bytes: u64,
        bounds: Bounds,
    ) -> Result<LogFiles, OpenLogError> {
        let mut log = LogFiles {
            disk,
            dir: dir.to_owned(),
            segment_bytes: segment_bytes.min(MAX_SEGMENT_BYTES),
            segments: Vec::new(),
            first: bounds.first,
            durable: bounds.first,
            committed_at_open: 0,
            dir_is_dirty: false,
        };
        let names = segment_names(&*log.disk, dir).map_err(|source| io_error(dir, source))?;
        for (nth, (first, path)) in names.iter().enumerate() {
            let is_last = nth + 1 == names.len();
            log.open_segment(*first, path, is_last, bounds.durable)?;
        }
        log.drop_purged_segments().map_err(|source| io_error(dir, source))?;
        if log.next() < bounds.durable {
            return Err(OpenLogError::Lost {
                dir: dir.to_owned(),
                expected: bounds.durable,
                found: log.next(),
            });
        }
        // What is there may never have been synced: what a restarted node builds on must be durable first.
        log.dir_is_dirty = !log.segments.is_empty();
        log.sync().map_err(|source| io_error(dir, source))?;
        Ok(log)
    }

    fn open_segment(
        &mut self,
        first: u64,
        path: &Path,
        is_last: bool,
        durable: u64,
    ) -> Result<(), OpenLogError> {
        let io = |source| io_error(path, source);
        // A crash may have left segments that were purged, and what follows them need not adjoin.
        self.drop_purged_segments().map_err(io)?;
        if let Some(before) = self.segments.last()
            && before.next() != first
        {
            return Err(OpenLogError::Gap { path: path.to_owned(), expected: before.next(), found: first });
        }
        let file = self.disk.open(path, OpenMode::Write).map_err(io)?;
        let len = file.len().map_err(io)?;
        let bytes = Bytes::from(file.read_vec(usize::try_from(len).unwrap_or(usize::MAX), 0).map_err(io)?);
        if bytes.len() < SEGMENT_HEADER.len() && is_last && durable <= first {
            // The crash came between making the file and syncing its first entries.
            return self.disk.remove_file(path).map_err(io);
        }
        if bytes.get(..SEGMENT_HEADER.len()) != Some(&SEGMENT_HEADER[..]) {
            if is_last && durable <= first && !Frame::proves_durable(&bytes, first) {
                return self.disk.remove_file(path).map_err(io);
            }
            return Err(OpenLogError::NotASegment { path: path.to_owned() });
        }
        let mut segment = Segment {
            path: path.to_owned(),
            file,
            first,
            positions: Vec::new(),
            end: SEGMENT_HEADER.len() as u64,
        };
        self.scan(&mut segment, bytes.slice(SEGMENT_HEADER.len()..), is_last, durable)?;
        self.segments.push(segment);
        Ok(())
    }

    /// Finds the frames of a segment. What follows the last whole one is cut off, or refused if it had been synced.
    fn scan(
        &mut self,
        segment: &mut Segment,
        mut rest: Bytes,
        is_last: bool,
        durable: u64,
    ) -> Result<(), OpenLogError> {
        while let Some(frame) = Frame::read(&rest).filter(|frame| frame.index == segment.next()) {
            segment.positions.push(position_u32(segment.end));
            segment.end += frame.len() as u64;
            rest = rest.slice(frame.len()..);
            self.committed_at_open = self.committed_at_open.max(frame.committed);
        }
        if rest.is_empty() {
            return Ok(());
        }
        let index = segment.next();
        if !is_last || index < durable || Frame::proves_durable(&rest, index) {
            return Err(OpenLogError::Damaged { path: segment.path.clone(), position: segment.end, index });
        }
        tracing::warn!(
            path = %segment.path.display(), position = segment.end, bytes = rest.len(),
            "cut the end of the metadata log, which a crash had left half written"
        );
        segment.file.set_len(segment.end).map_err(|source| io_error(&segment.path, source))
    }

    /// The first entry, if there are any.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The index of the entry to be appended next.
    pub fn next(&self) -> u64 {
        self.segments.last().map_or(self.first, Segment::next).max(self.first)
    }

    /// Entries below this index are synced.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    pub fn committed_at_open(&self) -> u64 {
        self.committed_at_open
    }

    /// Appends entries, the first of which has the index `next`; a log without entries may begin anywhere. After an
    /// error nothing is appended, and the same may be tried again.
    pub fn append(&mut self, first: u64, payloads: &[Bytes], committed: u64) -> io::Result<()> {
        let is_empty = self.next() == self.first;
        if first != self.next() && !is_empty {
            let message =
                format!("entry {first} does not follow the log, whose next entry is {}", self.next());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.make_room(first)?;
        let segment = self.segments.last_mut().expect("make_room leaves a segment to write to");
        let mut bytes = BytesMut::new();
        if segment.end == 0 {
            bytes.extend_from_slice(&SEGMENT_HEADER);
        }
        let mut positions = Vec::with_capacity(payloads.len());
        for (payload, index) in payloads.iter().zip(first..) {
            positions.push(position_u32(segment.end + bytes.len() as u64));
            let frame = Frame { index, durable: self.durable, committed, payload: payload.clone() };
            frame.write(&mut bytes);
        }
        segment.file.write_all_at(&[IoSlice::new(&bytes)], segment.end)?;
        segment.end += bytes.len() as u64;
        segment.positions.extend(positions);
        Ok(())
    }

    /// Sees to it that the last segment takes an entry `first`.
    fn make_room(&mut self, first: u64) -> io::Result<()> {
        if self.next() == self.first && self.segments.last().is_some_and(|last| last.next() != first) {
            self.remove_segments(0)?;
        }
        match self.segments.last() {
            Some(last) if last.end < self.segment_bytes => return Ok(()),
            // Only room on the disk may be waited for; after a failed sync nothing may be tried again.
            Some(_) => self.sync().map_err(io::Error::other)?,
            None => {}
        }
        let path = self.dir.join(format!("{first:020}{SUFFIX}"));
        let file = self.disk.open(&path, OpenMode::Truncate)?;
        self.dir_is_dirty = true;
        self.segments.push(Segment { path, file, first, positions: Vec::new(), end: 0 });
        Ok(())
    }

    /// Makes everything that was appended durable.
    pub fn sync(&mut self) -> io::Result<()> {
        if let Some(last) = self.segments.last() {
            last.file.sync_data()?;
        }
        if self.dir_is_dirty {
            self.disk.sync_dir(&self.dir)?;
            self.dir_is_dirty = false;
        }
        self.durable = self.next();
        Ok(())
    }

    /// Removes the entries from `since` on, durably. The caller has seen to it that `Bounds::durable` is not above it.
    pub fn truncate(&mut self, since: u64) -> io::Result<()> {
        let keep = self.segments.iter().take_while(|segment| segment.first < since).count();
        if self.segments.len() > keep {
            self.remove_segments(keep)?;
        }
        if let Some(last) = self.segments.last_mut()
            && since < last.next()
        {
            last.end = last.position(since);
            last.positions.truncate(usize::try_from(since - last.first).unwrap_or(usize::MAX));
            last.file.set_len(last.end)?;
            last.file.sync_data()?;
        }
        self.durable = self.durable.min(self.next());
        Ok(())
    }

    /// Forgets the entries below `first`. The caller has made this durable as `Bounds::first`.
    pub fn purge(&mut self, first: u64) -> io::Result<()> {
        self.first = self.first.max(first);
        self.durable = self.durable.max(self.first);
        self.drop_purged_segments()
    }

    fn drop_purged_segments(&mut self) -> io::Result<()> {
        let purged = self.segments.iter().take_while(|segment| segment.next() <= self.first).count();
        // Oldest first, so that a crash leaves no gap.
        for segment in self.segments.drain(..purged) {
            self.disk.remove_file(&segment.path)?;
        }
        Ok(())
    }

    /// Removes the segments from the `from`th on, the last one first, so that a crash leaves no gap.
    fn remove_segments(&mut self, from: usize) -> io::Result<()> {
        while self.segments.len() > from {
            if let Some(segment) = self.segments.pop() {
                self.disk.remove_file(&segment.path)?;
            }
        }
        self.disk.sync_dir(&self.dir)
    }

    /// The payloads of the entries in `from..to` that exist, each with its index: as many as `max_bytes` hold, but one at
    /// least.
    pub fn read(&self, from: u64, to: u64, max_bytes: u64) -> Result<Vec<Frame>, ReadLogError> {
        let mut frames = Vec::new();
        let mut from = from.max(self.first);
        let mut left = max_bytes;
        for segment in &self.segments {
            if from >= to || segment.next() <= from {
                continue;
            }
            from = from.max(segment.first);
            if from >= to {
                break;
            }
            let start = segment.position(from);
            let mut until = (from + 1).min(to);
            while until < to.min(segment.next()) && segment.position(until + 1) - start <= left {
                until += 1;
            }
            if !frames.is_empty() && segment.position(until) - start > left {
                break;
            }
            segment.read(from, until, &mut frames)?;
            left = left.saturating_sub(segment.position(until) - start);
            from = until;
        }
        Ok(frames)
    }
}

impl Segment {
    fn read(&self, from: u64, to: u64, into: &mut Vec<Frame>) -> Result<(), ReadLogError> {
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

fn position_u32(position: u64) -> u32 {
    u32::try_from(position).expect("a segment is below 4 GiB")
}

fn io_error(path: &Path, source: io::Error) -> OpenLogError {
    OpenLogError::Io { path: path.to_owned(), source }
}
