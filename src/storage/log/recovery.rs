//! Making the segments of a log sound after a stop: leftovers of interrupted work, lost or damaged indexes, batches that were
//! torn or never reached the disk. Must not know producers or epochs: it tells its caller which batches it met.
//!
//! After an orderly stop the files are trusted and next to nothing is read. After any other stop the batches from the
//! recovery point on are checked one by one, and the log ends before the first one that is not whole; what is kept is synced
//! before anybody can read it, for it may have been only in the page cache of the process that died.
//!
//! Invariant: afterwards the segments are whole batches with increasing offsets, indexed, and (if anything was checked)
//! durable.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::batch_scan::BatchScan;
use super::config::LogConfig;
use super::damage::check_offsets;
use super::indexing::Indexing;
use super::lazy_file::Place;
use super::names::{DAMAGED, FileName, Kind, Stage, is_of_partition};
use super::read::{HeaderWalk, header_at};
use super::segment::Segment;
use super::sight::Sight;
use super::unchecked::{Amount, Unchecked};
use super::view::segment_of;
use crate::storage::Foreign;
use crate::types::{LeaderEpoch, Offset};
use crate::wire::batch::BatchHeader;

/// Bytes that a scan reads at a time.
const SCAN_CHUNK: usize = 1 << 20;

/// What opening a log had to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Bytes of batches that were checked.
    pub scanned_bytes: u64,
    /// Bytes that were cut off, because they were no whole batches or followed such.
    pub truncated_bytes: u64,
    /// The log ended below its recovery point: batches that had been flushed are damaged.
    pub lost_flushed: bool,
    /// Where what was cut off begins: the base of the segment, and the position in it.
    pub cut_at: Option<(Offset, u64)>,
    /// What lies in its directory and is none of a log's. It is kept.
    pub foreign: Foreign,
    /// The file with the leader epochs was damaged.
    pub lost_epochs: bool,
}

/// The files of a partition directory that belong to offsets.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    /// What there is for each base offset of a segment.
    pub segments: BTreeMap<Offset, Vec<Kind>>,
    pub snapshots: Vec<Offset>,
    pub foreign: Foreign,
    /// An earlier process knew of damage.
    pub is_suspect: bool,
}

/// Finishes or undoes interrupted work and lists what is there.
pub(super) fn take_inventory(place: &Arc<Place>) -> io::Result<Inventory> {
    let (mut live, mut cleaned, mut swaps) = (Vec::new(), Vec::new(), Vec::new());
    let (mut changed, mut is_suspect, mut foreign) = (false, false, Vec::new());
    for entry in place.disk.list(&place.dir())? {
        is_suspect |= entry.name == DAMAGED;
        let Some(name) = FileName::parse(&entry.name).filter(|_| !entry.is_dir) else {
            if entry.is_dir || !is_of_partition(&entry.name) {
                foreign.push(entry.name);
            }
            continue;
        };
        match name.stage {
            Stage::Live => live.push(name),
            Stage::Deleted => changed |= place.remove(name)?,
            Stage::Cleaned => cleaned.push(name),
            Stage::Swap => swaps.push(name),
        }
    }
    // Splitting a segment makes several new ones at once: while one is incomplete, those after it do not count.
    let first_cleaned = cleaned.iter().map(|name| name.base).min();
    let (void, swaps): (Vec<_>, Vec<_>) =
        swaps.into_iter().partition(|name| first_cleaned.is_some_and(|first| name.base >= first));
    for name in cleaned.iter().chain(&void) {
        changed |= place.remove(*name)?;
    }
    if !swaps.is_empty() {
        finish_swaps(place, &swaps, &mut live)?;
        changed = true;
    }
    let inventory = sort_out(place, &live, &mut changed)?;
    if changed {
        place.sync()?;
    }
    Ok(Inventory { foreign: foreign.into_iter().collect(), is_suspect, ..inventory })
}

/// Puts complete compacted segments in the place of the live ones that they cover.
fn finish_swaps(place: &Arc<Place>, swaps: &[FileName], live: &mut Vec<FileName>) -> io::Result<()> {
    let mut covered: Option<(Offset, Offset)> = None;
    for swap in swaps.iter().filter(|name| name.kind == Kind::Log) {
        let file = place.disk.open(&place.path(*swap), crate::storage::disk::OpenMode::Read)?;
        let size = file.len()?;
        let (mut end, mut position) = (swap.base, 0);
        while let Ok(Some(header)) = header_at(&*file, position, size) {
            end = header.next_offset();
            position += header.size_in_bytes() as u64;
        }
        let (from, to) = covered.unwrap_or((swap.base, end));
        covered = Some((from.min(swap.base), to.max(end)));
    }
    if let Some((from, to)) = covered {
        let is_covered =
            |name: &FileName| from <= name.base && name.base < to && name.kind != Kind::ProducerSnapshot;
        for name in live.iter().filter(|name| is_covered(name)) {
            place.remove(*name)?;
        }
        live.retain(|name| !is_covered(name));
    }
    for swap in swaps {
        let name = swap.at(Stage::Live);
        place.disk.rename(&place.path(*swap), &place.path(name))?;
        if !live.contains(&name) {
            live.push(name);
        }
    }
    Ok(())
}

fn sort_out(place: &Arc<Place>, live: &[FileName], changed: &mut bool) -> io::Result<Inventory> {
    let mut inventory = Inventory::default();
    for name in live.iter().filter(|name| name.kind == Kind::Log) {
        inventory.segments.insert(name.base, Vec::new());
    }
    for name in live {
        if name.kind == Kind::ProducerSnapshot {
            inventory.snapshots.push(name.base);
        } else if let Some(kinds) = inventory.segments.get_mut(&name.base) {
            kinds.push(name.kind);
        } else {
            // An index without a segment.
            *changed |= place.remove(*name)?;
        }
    }
    inventory.snapshots.sort_unstable();
    Ok(inventory)
}

/// A log's segments on their way to being sound.
pub(super) struct Recovery<'a> {
    pub place: &'a Arc<Place>,
    pub config: &'a LogConfig,
    pub segments: Vec<Arc<Segment>>,
    pub outcome: Recovered,
    /// The lowest offset from which batches were checked.
    pub scanned_from: Option<Offset>,
    /// What is left to check.
    pub unchecked: &'a Unchecked,
}

impl<'a> Recovery<'a> {
    /// The segments of an inventory. Indexes that are missing are rebuilt.
    pub fn new(
        place: &'a Arc<Place>,
        config: &'a LogConfig,
        inventory: &Inventory,
        unchecked: &'a Unchecked,
    ) -> io::Result<Recovery<'a>> {
        let mut segments = Vec::with_capacity(inventory.segments.len());
        let mut incomplete = Vec::new();
        for (&base, kinds) in &inventory.segments {
            let size = place.size_of(FileName::live(base, Kind::Log))?.unwrap_or(0);
            let aborted = if kinds.contains(&Kind::TxnIndex) {
                place.size_of(FileName::live(base, Kind::TxnIndex))?.unwrap_or(0)
            } else {
                0
            };
            let segment = Arc::new(Segment::open(place.clone(), base, size, aborted));
            if !kinds.contains(&Kind::OffsetIndex) || !kinds.contains(&Kind::TimeIndex) {
                incomplete.push(segment.clone());
            }
            segments.push(segment);
        }
        let (outcome, scanned_from) = Default::default();
        let recovery = Recovery { place, config, segments, outcome, scanned_from, unchecked };
        for segment in &incomplete {
            recovery.rebuild_indexes(segment)?;
        }
        if !incomplete.is_empty() {
            place.sync()?;
        }
        Ok(recovery)
    }

    /// Indexes a segment anew from its headers. Stops where they end to make sense: what that means is for others to say.
    fn rebuild_indexes(&self, segment: &Segment) -> io::Result<()> {
        segment.reset_indexes()?;
        let mut indexing = Indexing::new(self.config);
        let mut walk = HeaderWalk::new(segment, 0)?;
        let mut end = segment.base();
        loop {
            match walk.advance() {
                Ok(Some((position, header)))
                    if header.base_offset >= end && segment.spans(header.last_offset()) =>
                {
                    indexing.note(segment, position, &header)?;
                    end = header.next_offset();
                }
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => break,
                Err(error) => return Err(error),
            }
        }
        segment.seal()?;
        segment.sync(true)
    }

    /// Where a log ends that was closed in an orderly way, and the epoch of the last batch if the last segment has one;
    /// `None` when that segment does not look like it.
    pub fn clean_end(&self) -> io::Result<Option<(Offset, Option<LeaderEpoch>)>> {
        let Some(last) = self.segments.last() else { return Ok(None) };
        if last.size() == 0 {
            return Ok(Some((last.base(), None)));
        }
        let start = match last.offset_index.last()? {
            Some(entry) => u64::from(entry.position),
            None => 0,
        };
        if start >= last.size() {
            return Ok(None);
        }
        let (mut end, mut epoch) = (last.base(), None);
        let mut walk = HeaderWalk::new(last, start)?;
        loop {
            match walk.advance() {
                Ok(Some((_, header))) if header.base_offset >= end && last.spans(header.last_offset()) => {
                    (end, epoch) = (header.next_offset(), Some(header.leader_epoch));
                }
                Ok(None) if walk.position() == last.size() => return Ok(Some((end, epoch))),
                Ok(_) => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether nothing was ever written to the log that could be harmed, or that would have to be durable before it is shown:
    /// a broker may have thousands of such logs, and has no time for syncs of nothing when it comes back from a crash.
    pub fn is_untouched(&self, inventory: &Inventory, recovery_point: Offset) -> io::Result<bool> {
        let [segment] = &self.segments[..] else { return Ok(false) };
        let files = inventory.segments.values().flatten();
        let files: Vec<FileName> = files.map(|kind| FileName::live(segment.base(), *kind)).collect();
        if segment.size() > 0 || recovery_point > segment.base() || !inventory.snapshots.is_empty() {
            return Ok(false);
        }
        for name in files {
            // It is a trace of transactions, or of records that were cut.
            if name.kind == Kind::TxnIndex || self.place.size_of(name)? != Some(0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Checks the batches from `recovery_point` on, cuts the log before the first that is not whole, and returns where it
    /// ends now. `met` is called for every batch that was checked and kept. The names of the files are the caller's to sync.
    pub fn check_from(
        &mut self,
        recovery_point: Offset,
        mut met: impl FnMut(&BatchHeader),
    ) -> io::Result<Offset> {
        // The segment of the last flushed record may have been sealed after the flush: its indexes are not to be trusted.
        let first = segment_of(&self.segments, recovery_point.plus(-1));
        let mut end = self.segments[first].base();
        let mut epoch = LeaderEpoch::UNKNOWN;
        for index in first..self.segments.len() {
            let segment = self.segments[index].clone();
            // The end of the segment before never reached the disk, or its end from before a truncation came back.
            let misses = segment.base() > end.max(recovery_point);
            let overlaps = segment.base() < end;
            if misses || overlaps {
                self.drop_from(index)?;
                break;
            }
            self.unchecked.set(self.left_from(index, 0));
            let start = if index == first { resume_point(&segment, recovery_point)? } else { Resume::ANEW };
            self.unchecked.set(self.left_from(index, start.position));
            end = end.max(segment.base());
            // What says that it reaches into the next segment is not what was written, and that one is not in its way.
            let next = self.segments.get(index + 1).map_or(Offset(i64::MAX), |next| next.base());
            let scan = Scan { start, within: end..next, epoch };
            let checked = self.check_segment(&segment, scan, &mut met)?;
            (end, epoch) = (checked.end, checked.epoch);
            let cut = segment.size() - checked.position;
            if cut > 0 {
                self.outcome.truncated_bytes += cut;
                self.outcome.cut_at = Some((segment.base(), checked.position));
                segment.cut(checked.position)?;
            }
            segment.seal()?;
            // The indexes of the last one are not trusted before it is sealed, neither here nor after the next crash.
            segment.sync(index + 1 < self.segments.len())?;
            if cut > 0 {
                self.drop_from(index + 1)?;
                break;
            }
        }
        self.unchecked.set(Amount::default());
        self.outcome.lost_flushed = end < recovery_point;
        Ok(end)
    }

    /// From a position in a segment to the log's end.
    fn left_from(&self, index: usize, position: u64) -> Amount {
        let left = &self.segments[index..];
        let bytes: u64 = left.iter().map(|segment| segment.size()).sum();
        Amount { segments: left.len() as u64, bytes: bytes.saturating_sub(position) }
    }

    fn check_segment(
        &mut self,
        segment: &Segment,
        scan: Scan,
        met: &mut impl FnMut(&BatchHeader),
    ) -> io::Result<Checked> {
        let Scan { start, within, epoch } = scan;
        let mut indexing = Indexing::new(self.config);
        let from = match start.after {
            Some(entry) => {
                segment.offset_index.truncate_to(entry.plus(1))?;
                segment.time_index.truncate_to(entry.plus(1))?;
                segment.txn_index.truncate_to(entry.plus(1))?;
                segment.forget_max_timestamp();
                indexing.resume(start.size_of_last);
                entry.plus(1)
            }
            None => {
                segment.reset_indexes()?;
                segment.txn_index.truncate_to(Offset::ZERO)?;
                segment.base()
            }
        };
        self.scanned_from = Some(self.scanned_from.map_or(from, |earlier| earlier.min(from)));
        let mut checked = Checked { position: start.position, end: within.start.max(from), epoch };
        let mut batches = BatchScan::new(segment, start.position, SCAN_CHUNK)?;
        let mut sight = Sight::of(segment)?;
        while let Some(batch) = batches.advance()? {
            let Ok(batch) = batch else { break };
            let header = &batch.header;
            let follows = check_offsets(header, checked.end..within.end).is_ok()
                && segment.spans(header.last_offset())
                && (header.leader_epoch >= checked.epoch || header.leader_epoch < LeaderEpoch::ZERO);
            if !follows
                || batch.check_crc().is_err()
                || sight.is_contradicted(header, checked.position, segment.size(), checked.end)?
            {
                break;
            }
            indexing.note(segment, checked.position, header)?;
            met(header);
            checked.position += batch.bytes.len() as u64;
            self.unchecked.checked(batch.bytes.len() as u64);
            checked.end = header.next_offset();
            checked.epoch = checked.epoch.max(header.leader_epoch);
        }
        self.outcome.scanned_bytes += checked.position - start.position;
        Ok(checked)
    }

    /// Removes the segments from `index` on, the newest first.
    fn drop_from(&mut self, index: usize) -> io::Result<()> {
        for segment in self.segments.drain(index..).rev() {
            self.outcome.truncated_bytes += segment.size();
            segment.remove_files()?;
        }
        Ok(())
    }
}

/// Where in a segment checking begins.
#[derive(Clone, Copy, Debug)]
struct Resume {
    position: u64,
    /// The last offset that the index vouches for.
    after: Option<Offset>,
    size_of_last: u64,
}

impl Resume {
    const ANEW: Resume = Resume { position: 0, after: None, size_of_last: 0 };
}

#[derive(Clone, Debug)]
struct Scan {
    start: Resume,
    /// The offsets that what is checked may have.
    within: Range<Offset>,
    epoch: LeaderEpoch,
}

#[derive(Clone, Copy, Debug)]
struct Checked {
    position: u64,
    end: Offset,
    epoch: LeaderEpoch,
}

/// The latest indexed batch below the recovery point up to which both indexes can be trusted.
fn resume_point(segment: &Segment, recovery_point: Offset) -> io::Result<Resume> {
    segment.offset_index.drop_damage()?;
    segment.time_index.drop_damage()?;
    match find_resume_point(segment, recovery_point) {
        Ok(found) => Ok(found.unwrap_or(Resume::ANEW)),
        // An index that led to no batch.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Resume::ANEW),
        Err(error) => Err(error),
    }
}

fn find_resume_point(segment: &Segment, recovery_point: Offset) -> io::Result<Option<Resume>> {
    // The time index has an entry only when the largest timestamp grew. Up to its last one it is complete, provided that
    // the entry is true.
    let Some(time) = segment.time_index.last()? else { return Ok(None) };
    let mut walk = HeaderWalk::new(segment, segment.search_from(time.offset)?)?;
    loop {
        match walk.advance()? {
            Some((_, header)) if header.last_offset() < time.offset => {}
            Some((_, header))
                if header.last_offset() == time.offset && header.max_timestamp == time.timestamp =>
            {
                break;
            }
            _ => return Ok(None),
        }
    }
    let trusted = time.offset.min(recovery_point.plus(-1));
    let Some(entry) = segment.offset_index.floor(trusted)? else { return Ok(None) };
    let position = u64::from(entry.position);
    let file = segment.log_file().get()?;
    let header = header_at(&*file, position, segment.size())?;
    Ok(header.and_then(|header| {
        let size = header.size_in_bytes() as u64;
        let is_there = header.last_offset() == entry.offset && position + size <= segment.size();
        is_there.then_some(Resume {
            position: position + size,
            after: Some(entry.offset),
            size_of_last: size,
        })
    }))
}
