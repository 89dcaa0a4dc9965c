//! One segment of a log: the file of batches and its indexes. Shared by the log's writer, which alone changes it, and by
//! every view. Must not know where the log starts or ends, or what may be shown to whom.
//!
//! Invariant: the first `size` bytes of the file are whole batches with increasing offsets, all at or above `base`.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::lazy_file::{LazyFile, Place};
use super::names::{FileName, Kind, Stage};
use super::offset_index::OffsetIndex;
use super::time_index::{TimeIndex, TimestampOffset};
use super::txn_index::TxnIndex;
use crate::storage::locked;
use crate::types::{Offset, TimestampMs};

/// So many places of a segment are known to be damaged at most.
const DAMAGES_MAX: usize = 100;

#[derive(Debug)]
pub struct Segment {
    base: Offset,
    place: Arc<Place>,
    log: LazyFile,
    size: AtomicU64,
    pub offset_index: OffsetIndex,
    pub time_index: TimeIndex,
    pub txn_index: TxnIndex,
    /// The largest timestamp of the segment and the last offset of the first batch that has it; `None` until it was
    /// needed. A timestamp of -1 says that there is none.
    max_timestamp: Mutex<Option<TimestampOffset>>,
    /// It is no longer part of its log: its files may go any time.
    is_out: AtomicBool,
    /// Where batches start that are not what was written.
    damages: Mutex<Vec<u64>>,
    /// Some of it was written again: who read it meanwhile may have found damage that is none.
    was_mended: AtomicBool,
}

impl Segment {
    /// A segment whose files exist: `size` bytes of batches, `txn_index_size` bytes of aborted transactions.
    pub fn open(place: Arc<Place>, base: Offset, size: u64, txn_index_size: u64) -> Segment {
        Segment::at_stage(place, base, (size, txn_index_size), Stage::Live)
    }

    fn at_stage(place: Arc<Place>, base: Offset, sizes: (u64, u64), stage: Stage) -> Segment {
        let (size, txn_index_size) = sizes;
        Segment {
            base,
            log: LazyFile::new(place.clone(), base, Kind::Log, stage),
            size: AtomicU64::new(size),
            offset_index: OffsetIndex::unopened(place.clone(), base, stage),
            time_index: TimeIndex::unopened(place.clone(), base, stage),
            txn_index: TxnIndex::new(place.clone(), base, txn_index_size, stage),
            place,
            max_timestamp: Mutex::new(None),
            is_out: AtomicBool::new(false),
            damages: Mutex::default(),
            was_mended: AtomicBool::new(false),
        }
    }

    /// A new, empty segment; files of its name are replaced.
    pub fn create(place: Arc<Place>, base: Offset) -> io::Result<Segment> {
        Segment::create_at(place, base, Stage::Live)
    }

    /// The same at another stage than that of a segment in use.
    pub fn create_at(place: Arc<Place>, base: Offset, stage: Stage) -> io::Result<Segment> {
        let segment = Segment::at_stage(place, base, (0, 0), stage);
        segment.log.create()?;
        segment.offset_index.entries().create()?;
        segment.time_index.entries().create()?;
        segment.place.remove(segment.txn_index.file().name())?;
        *locked(&segment.max_timestamp) =
            Some(TimestampOffset { timestamp: TimestampMs::NONE, offset: base });
        Ok(segment)
    }

    pub fn base(&self) -> Offset {
        self.base
    }

    /// The directory of its log.
    pub fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// The bytes of batches in the segment.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    pub fn log_file(&self) -> &LazyFile {
        &self.log
    }

    /// Whether `offset` can be written as an index entry of this segment.
    pub fn spans(&self, offset: Offset) -> bool {
        (0..=i64::from(i32::MAX)).contains(&offset.since(self.base))
    }

    /// Writes `parts` behind what there is. After an error the file may hold more than `size` says.
    pub fn append(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let size = self.size();
        self.log.change(|file| file.write_all_at(parts, size))?;
        let added: usize = parts.iter().map(|part| part.len()).sum();
        self.size.store(size + added as u64, Ordering::Release);
        Ok(())
    }

    /// Cuts the file to what `size` says, after a failed append.
    pub fn undo_append(&self) -> io::Result<()> {
        self.log.change(|file| file.set_len(self.size()))
    }

    /// Cuts off what lies behind `position` and was never indexed.
    pub fn cut(&self, position: u64) -> io::Result<()> {
        self.size.store(position, Ordering::Release);
        self.log.change(|file| file.set_len(position))
    }

    /// Empties the offset and the time index, making their files when they are missing.
    pub fn reset_indexes(&self) -> io::Result<()> {
        self.offset_index.entries().create()?;
        self.time_index.entries().create()?;
        *locked(&self.max_timestamp) =
            Some(TimestampOffset { timestamp: TimestampMs::NONE, offset: self.base });
        Ok(())
    }

    /// Has the largest timestamp looked up again.
    pub fn forget_max_timestamp(&self) {
        *locked(&self.max_timestamp) = None;
    }

    /// Removes the segment's files, the batches first.
    pub fn remove_files(&self) -> io::Result<()> {
        for kind in [Kind::Log, Kind::OffsetIndex, Kind::TimeIndex, Kind::TxnIndex, Kind::ProducerSnapshot] {
            self.place.remove(FileName::live(self.base, kind))?;
        }
        Ok(())
    }

    /// Cuts the segment to the batches below `offset`, which start at `position`.
    pub fn truncate(&self, offset: Offset, position: u64) -> io::Result<()> {
        self.offset_index.truncate_to(offset)?;
        self.time_index.truncate_to(offset)?;
        self.txn_index.truncate_to(offset)?;
        // Before the file is shorter: who finds less there than this says has found damage.
        self.size.store(position, Ordering::Release);
        self.log.change(|file| file.set_len(position))?;
        locked(&self.damages).retain(|damage| *damage < position);
        *locked(&self.max_timestamp) = None;
        Ok(())
    }

    /// Writes batches over what is damaged, within the size.
    pub fn overwrite(&self, position: u64, batches: &[u8]) -> io::Result<()> {
        assert!(position + batches.len() as u64 <= self.size(), "what is mended is part of the segment");
        self.was_mended.store(true, Ordering::Release);
        self.log.change(|file| file.write_all_at(&[IoSlice::new(batches)], position))
    }

    pub fn was_mended(&self) -> bool {
        self.was_mended.load(Ordering::Acquire)
    }

    /// Where batches start that are known not to be what was written.
    pub fn damages(&self) -> Vec<u64> {
        locked(&self.damages).clone()
    }

    /// Takes down such a batch; `false` when it was known, or when so many are that it makes no difference.
    pub fn note_damage(&self, position: u64) -> bool {
        let is_new = self.takes_damage(position);
        if is_new {
            locked(&self.damages).push(position);
        }
        is_new
    }

    /// Whether it would.
    pub fn takes_damage(&self, position: u64) -> bool {
        let damages = locked(&self.damages);
        damages.len() < DAMAGES_MAX && !damages.contains(&position)
    }

    /// These are what was written after all.
    pub fn forget_damages(&self, sound: &[u64]) {
        locked(&self.damages).retain(|damage| !sound.contains(damage));
    }

    /// Where to start looking for `offset`: the position of a batch that lies at or before it.
    pub fn search_from(&self, offset: Offset) -> io::Result<u64> {
        let position = self.offset_index.floor(offset)?.map_or(0, |entry| u64::from(entry.position));
        // An index that points behind the end was written for batches that a crash took; the scan is then longer.
        Ok(if position < self.size() { position } else { 0 })
    }

    /// The largest timestamp and the last offset of its batch; -1 when no batch has a timestamp.
    pub fn max_timestamp(&self) -> io::Result<TimestampOffset> {
        if let Some(known) = *locked(&self.max_timestamp) {
            return Ok(known);
        }
        let none = TimestampOffset { timestamp: TimestampMs::NONE, offset: self.base };
        let last = self.time_index.last()?.unwrap_or(none);
        *locked(&self.max_timestamp) = Some(last);
        Ok(last)
    }

    pub fn set_max_timestamp(&self, max: TimestampOffset) {
        *locked(&self.max_timestamp) = Some(max);
    }

    /// Notes a batch that was appended at `position`; `index` when it is due for an index entry.
    pub fn note_batch(
        &self,
        last_offset: Offset,
        max_timestamp: TimestampMs,
        position: u64,
        index: bool,
    ) -> io::Result<()> {
        let mut max = self.max_timestamp()?;
        if max_timestamp > max.timestamp {
            max = TimestampOffset { timestamp: max_timestamp, offset: last_offset };
            self.set_max_timestamp(max);
        }
        if index {
            let position = u32::try_from(position).map_err(|_| io::ErrorKind::FileTooLarge)?;
            self.offset_index.push(last_offset, position)?;
            self.time_index.push_if_later(max)?;
        }
        Ok(())
    }

    /// Completes the indexes of a segment that takes no more appends for now.
    pub fn seal(&self) -> io::Result<()> {
        let max = self.max_timestamp()?;
        self.time_index.push_if_later(max)?;
        self.offset_index.entries().flush()?;
        self.time_index.entries().flush()
    }

    /// Makes the batches durable, and the indexes too when `sealed`. A segment that was taken out of its log meanwhile has
    /// nothing to make durable; nor has a sealed one whose partition is gone.
    pub fn sync(&self, sealed: bool) -> io::Result<()> {
        match self.sync_files(sealed) {
            Err(error) if (sealed || self.is_out()) && error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Acquire)
    }

    /// The segment is about to be taken out of its log.
    pub fn note_out(&self) {
        self.is_out.store(true, Ordering::Release);
    }

    /// When the batches were last written.
    pub fn modified(&self) -> io::Result<TimestampMs> {
        Ok(self.log.stat()?.modified)
    }

    fn sync_files(&self, sealed: bool) -> io::Result<()> {
        self.log.sync_data()?;
        self.txn_index.sync()?;
        if sealed {
            self.offset_index.entries().sync()?;
            self.time_index.entries().sync()?;
        }
        Ok(())
    }

    /// Renames the segment's files and its producer snapshot to `.deleted`, or removes them where there is no room. After a crash in between, what recovery can
    /// rebuild may be missing, but no segment is without its aborted transactions.
    pub fn mark_deleted(&self) -> io::Result<()> {
        self.mark_replaced()?;
        self.place.restage(FileName::live(self.base, Kind::ProducerSnapshot), Stage::Deleted)?;
        Ok(())
    }

    /// The same for a segment at the end of the log, the batches first: after a crash in between, what is left of it is no segment.
    pub fn mark_cut(&self) -> io::Result<()> {
        self.note_out();
        self.log.restage(Stage::Deleted)?;
        self.mark_deleted()
    }

    /// The same for a segment in whose place another comes, which begins like it.
    pub fn mark_replaced(&self) -> io::Result<()> {
        self.note_out();
        let [offset_index, time_index, txn_index] = self.indexes();
        [offset_index, time_index, &self.log, txn_index]
            .iter()
            .try_for_each(|file| file.restage(Stage::Deleted))
    }

    /// Gives the files of a compacted segment the names of another stage, the batches first.
    pub fn restage(&self, to: Stage) -> io::Result<()> {
        let [offset_index, time_index, txn_index] = self.indexes();
        [&self.log, offset_index, time_index, txn_index].iter().try_for_each(|file| file.restage(to))
    }

    /// Removes the files of a segment that did not become part of the log.
    pub fn discard(&self) -> io::Result<()> {
        self.note_out();
        let [offset_index, time_index, txn_index] = self.indexes();
        for file in [&self.log, offset_index, time_index, txn_index] {
            self.place.remove(file.name())?;
        }
        Ok(())
    }

    fn indexes(&self) -> [&LazyFile; 3] {
        [self.offset_index.entries().file(), self.time_index.entries().file(), self.txn_index.file()]
    }
}
