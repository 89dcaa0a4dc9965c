//! The metadata log on disk: its segments, written and synced by one owner.
//!
//! Knows nothing of what entries mean. Invariants: entries are consecutive; a segment is begun only when the one before
//! it is synced, so that all but the last are whole; what `sync` has returned for is there after any crash; `open` cuts
//! what a crash tore off and refuses a log that has lost a synced entry.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::controller::frame::Frame;
use crate::controller::log_segment::{
    ReadLogError, SEGMENT_HEADER, Segment, position_u32, segment_name, segment_names,
};
use crate::storage::disk::{Disk, OpenMode};

/// Positions within a segment are kept in four bytes, and a segment may end a batch later than it should.
const MAX_SEGMENT_BYTES: u64 = 1 << 30;

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

/// What the log knew when it was closed or crashed, kept outside of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Entries below this index were purged.
    pub first: u64,
    /// Entries below this index had been synced.
    pub durable: u64,
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
            let next_first = names.get(nth + 1).map(|(first, _)| *first);
            if next_first.is_some_and(|next_first| next_first <= bounds.first) {
                // A crash came before its removal was durable.
                log.disk.remove_file(path).map_err(|source| io_error(path, source))?;
            } else {
                log.open_segment(*first, path, next_first.is_none(), bounds.durable)?;
            }
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
        let (expected, begins) = match self.segments.last() {
            Some(before) => (before.next(), before.next() == first),
            None => (self.first, first <= self.first),
        };
        if !begins {
            return Err(OpenLogError::Gap { path: path.to_owned(), expected, found: first });
        }
        let file = self.disk.open(path, OpenMode::Write).map_err(io)?;
        let len = file.len().map_err(io)?;
        let bytes = Bytes::from(file.read_vec(usize::try_from(len).unwrap_or(usize::MAX), 0).map_err(io)?);
        if bytes.get(..SEGMENT_HEADER.len()) != Some(&SEGMENT_HEADER[..]) {
            if is_last && self.is_torn_off(&bytes, first, durable) {
                // The crash came between making the file and syncing its first entries.
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
        if !is_last || !self.is_torn_off(&rest, index, durable) {
            return Err(OpenLogError::Damaged { path: segment.path.clone(), position: segment.end, index });
        }
        tracing::warn!(
            path = %segment.path.display(), position = segment.end, bytes = rest.len(),
            "cut the end of the metadata log, which a crash had left half written"
        );
        segment.file.set_len(segment.end).map_err(|source| io_error(&segment.path, source))
    }

    /// Whether bytes in which entry `index` should begin may be what a crash left of entries that nobody relies on.
    fn is_torn_off(&self, rest: &Bytes, index: u64, durable: u64) -> bool {
        let is_lost = |later: &Frame| {
            if index < self.first {
                // Damage to a purged entry does no harm, unless others follow it.
                later.index >= self.first
            } else {
                later.index > index && later.durable > index
            }
        };
        durable <= index.max(self.first) && !Frame::find_all(rest).any(|later| is_lost(&later))
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

    /// The bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.end).sum()
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
        let path = self.dir.join(segment_name(first));
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

fn io_error(path: &Path, source: io::Error) -> OpenLogError {
    OpenLogError::Io { path: path.to_owned(), source }
}
