//! Compacting a log beside it: the keys of the dirty part are mapped, and each group of segments is written anew, without what the
//! map has later records for. Blocks on the disk. Must not know the log's writer: what it needs of it comes as an argument,
//! and what it has made goes back through [`Watch`].
//!
//! Invariants: the files of the log are only read; a group that is handed over is durable, and so are all swaps when this ends
//! well; a group that is not handed over leaves no files.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use super::super::batch_scan::BatchScan;
use super::super::config::LogConfig;
use super::super::damage::{Damage, Sequence};
use super::super::indexing::Indexing;
use super::super::names::Stage;
use super::super::segment::Segment;
use super::super::view::{LogView, segment_of};
use super::filter::{DamagedBatch, Fate, Judged, LastRecords, Terms, pass_control, unpacked};
use super::offset_map::{MapLimits, OffsetMap};
use super::plan::Dirt;
use super::swap::{Cleaned, SwapError};
use super::transactions::Transactions;
use crate::types::{Offset, TimestampMs};
use crate::wire::batch::{Batch, BatchError, BatchHeader};
use crate::wire::compression::Scratch;
use crate::wire::records::Records;

/// What is asked of the log's writer before its log is compacted.
#[derive(Clone, Debug)]
pub struct Basis {
    pub view: Arc<LogView>,
    pub last_records: LastRecords,
    /// How often the log had been cut.
    pub(in super::super) truncations: u32,
}

/// What compaction may cost.
#[derive(Clone, Copy, Debug)]
pub struct CleanLimits {
    pub map: MapLimits,
    /// Bytes that are read and written at a time.
    pub chunk_bytes: usize,
}

/// Whoever has a log compacted.
pub trait Watch {
    /// So many bytes were read or written. Takes the time that they may take, and says when to stop.
    fn spend(&mut self, bytes: usize) -> Result<(), Stopped>;

    /// Whether up to so many bytes may be written now, for a group of segments.
    fn has_room(&mut self, bytes: u64) -> bool;

    /// Has the log's writer put a compacted segment in its place.
    fn swap(&mut self, cleaned: Cleaned) -> Result<(), SwapError>;
}

/// Nobody wants the compacted log any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the compaction was stopped")]
pub struct Stopped;

/// Why a log was not compacted, or not all of it.
#[derive(Debug, Error)]
pub enum CleanError {
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The bytes are not those that were written.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// They are, and make no sense.
    #[error("{} at {position}: {why}", path.display())]
    Senseless { path: PathBuf, position: u64, why: DamagedBatch },
    #[error("reading: {0}")]
    Read(io::Error),
    #[error("there is no room for {0} bytes")]
    NoRoom(u64),
    #[error("writing: {0}")]
    Write(io::Error),
    #[error(transparent)]
    Swap(#[from] SwapError),
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanStats {
    /// All below is compacted now.
    pub upto: Offset,
    pub bytes_before: u64,
    pub bytes_after: u64,
    pub keys: usize,
    /// The map was full: there is more to do.
    pub map_was_full: bool,
}

/// Compacts a log as far as the memory for keys reaches.
pub fn clean(
    basis: &Basis,
    config: &LogConfig,
    dirt: &Dirt,
    limits: &CleanLimits,
    now: TimestampMs,
    watch: &mut dyn Watch,
) -> Result<CleanStats, CleanError> {
    let keys_max = u64::try_from(dirt.upto.since(dirt.from)).unwrap_or(0);
    let map = OffsetMap::new(&limits.map, keys_max);
    let mut pass = Pass { basis, config, limits, watch, scratch: Scratch::new() };
    let Mapped { map, upto, is_full } = pass.map_keys(map, dirt)?;
    let mut stats = CleanStats { upto, keys: map.len(), map_was_full: is_full, ..CleanStats::default() };
    let terms = Terms {
        map: &map,
        mapped_upto: upto,
        last_records: &basis.last_records,
        now,
        delete_retention_ms: config.delete_retention_ms,
    };
    let mut transactions = Transactions::default();
    for group in basis.view.groups(upto, config).map_err(CleanError::Read)? {
        let bytes = group.iter().map(|segment| segment.size()).sum::<u64>();
        if !pass.watch.has_room(bytes) {
            return Err(CleanError::NoRoom(bytes));
        }
        stats.bytes_before += bytes;
        stats.bytes_after += pass.clean_group(group, &terms, &mut transactions)?;
    }
    // What a crash could undo must not count as done: nobody would look at it again.
    basis.view.segments[0].place().sync().map_err(CleanError::Write)?;
    Ok(stats)
}

struct Mapped {
    map: OffsetMap,
    upto: Offset,
    is_full: bool,
}

struct Pass<'a> {
    basis: &'a Basis,
    config: &'a LogConfig,
    limits: &'a CleanLimits,
    watch: &'a mut dyn Watch,
    scratch: Scratch,
}

impl Pass<'_> {
    fn map_keys(&mut self, mut map: OffsetMap, dirt: &Dirt) -> Result<Mapped, CleanError> {
        let view = &self.basis.view;
        let mut transactions = Transactions::default();
        transactions.add(view.collect_aborted(dirt.from, dirt.upto).map_err(CleanError::Read)?);
        let first = segment_of(&view.segments, dirt.from);
        for segment in view.segments[first..].iter().take_while(|segment| segment.base() < dirt.upto) {
            let start = segment.search_from(dirt.from).map_err(CleanError::Read)?;
            let mut scan = self.scan(segment, start)?;
            let mut sequence = Sequence::of(segment, view);
            while let Some((position, batch)) = next(&mut scan, segment, self.basis, self.watch)? {
                sequence
                    .check(position, &batch)
                    .map_err(|why| self.basis.damaged(segment, position, why.into()))?;
                let full_at = self.map_batch(&batch, dirt.from, &mut map, &mut transactions);
                let full_at = full_at.map_err(|why| self.basis.damaged(segment, position, why))?;
                if let Some(upto) = full_at {
                    return Ok(Mapped { map, upto, is_full: true });
                }
            }
        }
        Ok(Mapped { map, upto: dirt.upto, is_full: false })
    }

    /// Maps the keys of a batch; the offset of the first record for which there was no room, if so.
    fn map_batch(
        &mut self,
        batch: &Batch<'_>,
        from: Offset,
        map: &mut OffsetMap,
        transactions: &mut Transactions,
    ) -> Result<Option<Offset>, DamagedBatch> {
        let header = &batch.header;
        if header.is_control() {
            let body = unpacked(batch, &mut self.scratch)?;
            pass_control(batch, &body, transactions)?;
            return Ok(None);
        }
        if transactions.pass_records(header) {
            return Ok(None);
        }
        let body = unpacked(batch, &mut self.scratch)?;
        for record in Records::new(&body, header.record_count) {
            let record = record?;
            let offset = header.base_offset.plus(i64::from(record.offset_delta));
            if let Some(key) = record.key.filter(|_| offset >= from)
                && !map.put(key, offset)
            {
                return Ok(Some(offset));
            }
        }
        Ok(None)
    }

    /// Writes a group of segments anew and has it put in their place. Returns the bytes that are left.
    fn clean_group(
        &mut self,
        group: Vec<Arc<Segment>>,
        terms: &Terms<'_>,
        transactions: &mut Transactions,
    ) -> Result<u64, CleanError> {
        let mut sink =
            Sink::new(&group[0], self.config, self.limits.chunk_bytes).map_err(CleanError::Write)?;
        let filled = self.fill(&mut sink, &group, terms, transactions);
        let finished = filled.and_then(|()| sink.finish(&group).map_err(CleanError::Write));
        if finished.is_err() || (group.len() == 1 && !sink.has_changed) {
            sink.discard();
            return finished.map(|()| group[0].size());
        }
        let segment = Arc::new(sink.segment);
        let size = segment.size();
        let cleaned = Cleaned {
            segment: segment.clone(),
            replaces: group,
            truncations: self.basis.truncations,
            lacks_markers: sink.lacks_markers,
        };
        self.watch.swap(cleaned).inspect_err(|error| {
            if !matches!(error, SwapError::Log(_)) {
                // What could not be removed is removed at the next start.
                let _ = segment.discard();
            }
        })?;
        Ok(size)
    }

    fn fill(
        &mut self,
        sink: &mut Sink,
        group: &[Arc<Segment>],
        terms: &Terms<'_>,
        transactions: &mut Transactions,
    ) -> Result<(), CleanError> {
        let view = &self.basis.view;
        let last = group.iter().rposition(|segment| segment.size() > 0);
        for (index, segment) in group.iter().enumerate() {
            let end = view.end_of(segment);
            transactions.add(view.collect_aborted(segment.base(), end).map_err(CleanError::Read)?);
            let mut scan = self.scan(segment, 0)?;
            let mut sequence = Sequence::of(segment, view);
            while let Some((position, batch)) = next(&mut scan, segment, self.basis, self.watch)? {
                let ends_group = Some(index) == last && position + batch.bytes.len() as u64 == segment.size();
                let damaged = |why| self.basis.damaged(segment, position, why);
                sequence.check(position, &batch).map_err(|why| damaged(why.into()))?;
                let judged = terms.judge(&batch, ends_group, transactions, &mut self.scratch);
                let written = sink.take(&batch, judged.map_err(damaged)?).map_err(CleanError::Write)?;
                if written > 0 {
                    self.watch.spend(written)?;
                }
            }
        }
        Ok(())
    }

    fn scan(&self, segment: &Segment, from: u64) -> Result<BatchScan, CleanError> {
        BatchScan::new(segment, from, self.limits.chunk_bytes).map_err(CleanError::Read)
    }
}

/// The next batch of a scan and its position; what had to be read for it is paid for.
fn next<'s>(
    scan: &'s mut BatchScan,
    segment: &Arc<Segment>,
    basis: &Basis,
    watch: &mut dyn Watch,
) -> Result<Option<(u64, Batch<'s>)>, CleanError> {
    let position = scan.position();
    let read = scan.prepare().map_err(CleanError::Read)?;
    if read > 0 {
        watch.spend(read)?;
    }
    match scan.next_prepared() {
        None => Ok(None),
        Some(Ok(batch)) => Ok(Some((position, batch))),
        Some(Err(error)) => Err(basis.damaged(segment, position, error.into())),
    }
}

impl Basis {
    fn damaged(&self, segment: &Arc<Segment>, position: u64, why: DamagedBatch) -> CleanError {
        match why {
            DamagedBatch::Batch(why) if !matches!(why, BatchError::LegacyMagic(_)) => {
                Damage::new(segment, position, why, self.truncations).into()
            }
            why => CleanError::Senseless { path: segment.log_file().path(), position, why },
        }
    }
}

/// The segment that a group becomes.
struct Sink {
    segment: Segment,
    indexing: Indexing,
    /// Batches that wait to be written.
    pending: Vec<u8>,
    /// Their headers, and where each starts.
    headers: VecDeque<BatchHeader>,
    chunk_bytes: usize,
    /// It is not what was there before.
    has_changed: bool,
    /// Markers went.
    lacks_markers: bool,
}

impl Sink {
    fn new(first: &Segment, config: &LogConfig, chunk_bytes: usize) -> io::Result<Sink> {
        Ok(Sink {
            segment: Segment::create_at(first.place().clone(), first.base(), Stage::Cleaned)?,
            indexing: Indexing::new(config),
            pending: Vec::new(),
            headers: VecDeque::new(),
            chunk_bytes,
            has_changed: false,
            lacks_markers: false,
        })
    }

    /// Takes what is left of a batch. Returns how many bytes were written by that.
    fn take(&mut self, batch: &Batch<'_>, judged: Judged) -> io::Result<usize> {
        if let Some(txn) = judged.aborted {
            self.segment.txn_index.push(txn)?;
        }
        match judged.fate {
            Fate::Stays => {
                self.pending.extend_from_slice(batch.bytes);
                self.headers.push_back(batch.header);
            }
            Fate::Changes(header, body) => {
                self.has_changed = true;
                self.lacks_markers |= header.is_control() && header.record_count == 0;
                self.pending.extend_from_slice(&header.encode());
                self.pending.extend_from_slice(&body);
                self.headers.push_back(header);
            }
            Fate::Goes => {
                self.has_changed = true;
                self.lacks_markers |= batch.header.is_control();
            }
        }
        if self.pending.len() < self.chunk_bytes {
            return Ok(0);
        }
        self.write_out()
    }

    fn write_out(&mut self) -> io::Result<usize> {
        let mut position = self.segment.size();
        self.segment.append(&[IoSlice::new(&self.pending)])?;
        for header in self.headers.drain(..) {
            self.indexing.note(&self.segment, position, &header)?;
            position += header.size_in_bytes() as u64;
        }
        let written = self.pending.len();
        self.pending.clear();
        Ok(written)
    }

    /// Makes it durable, as a sealed segment is. Its age is that of the segments that it replaces.
    fn finish(&mut self, group: &[Arc<Segment>]) -> io::Result<()> {
        if !self.pending.is_empty() {
            self.write_out()?;
        }
        let modified = group.iter().map(|segment| segment.modified()).collect::<io::Result<Vec<_>>>()?;
        let file = self.segment.log_file().get()?;
        file.set_modified(modified.into_iter().max().unwrap_or_default())?;
        self.segment.seal()?;
        self.segment.sync(true)?;
        self.segment.place().sync()
    }

    fn discard(&self) {
        // What could not be removed is removed at the next start.
        let _ = self.segment.discard();
    }
}
