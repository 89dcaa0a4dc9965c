//! How much of a log is still to be checked while it is opened, for whoever wants to know meanwhile. Must not know why it is
//! checked, nor who asks.
//!
//! Invariant: what is told only shrinks while one log is checked, and is nothing when that has ended.

use std::io;
use std::ops::AddAssign;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::lazy_file::Place;
use super::names::{FileName, Kind, Stage};
use super::open_files::OpenFiles;
use super::segment::Segment;
use crate::storage::disk::Disk;
use crate::types::Offset;

/// Segments, and the bytes of batches in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub segments: u64,
    pub bytes: u64,
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        self.segments += other.segments;
        self.bytes += other.bytes;
    }
}

/// What is left to check of a log that is being opened.
#[derive(Debug, Default)]
pub struct Unchecked {
    segments: AtomicU64,
    bytes: AtomicU64,
}

impl Unchecked {
    pub fn left(&self) -> Amount {
        let (segments, bytes) = (&self.segments, &self.bytes);
        Amount { segments: segments.load(Ordering::Relaxed), bytes: bytes.load(Ordering::Relaxed) }
    }

    pub(in crate::storage) fn set(&self, left: Amount) {
        self.segments.store(left.segments, Ordering::Relaxed);
        self.bytes.store(left.bytes, Ordering::Relaxed);
    }

    /// So many bytes less. Called by whoever set what is left, and by nobody else.
    pub(in crate::storage) fn checked(&self, bytes: u64) {
        let left = self.bytes.load(Ordering::Relaxed).saturating_sub(bytes);
        self.bytes.store(left, Ordering::Relaxed);
    }
}

/// What opening the log in `dir` after an unclean stop would check, as far as the indexes tell. Changes nothing, and reads no
/// batches.
pub fn to_check(disk: &Arc<dyn Disk>, dir: &Path, recovery_point: Offset) -> io::Result<Amount> {
    let mut bases: Vec<Offset> = Vec::new();
    for entry in disk.list(dir)? {
        let name = FileName::parse(&entry.name).filter(|_| !entry.is_dir);
        let is_live = |name: &FileName| name.kind == Kind::Log && name.stage == Stage::Live;
        bases.extend(name.filter(is_live).map(|name| name.base));
    }
    bases.sort_unstable();
    let first = bases.partition_point(|base| *base < recovery_point).saturating_sub(1);
    let place = Arc::new(Place::new(disk.clone(), dir, OpenFiles::new(1)));
    let mut found = Amount::default();
    for (index, base) in bases.into_iter().enumerate().skip(first) {
        // It may be gone by now.
        let Some(size) = place.size_of(FileName::live(base, Kind::Log))? else { continue };
        let is_in_part = index == first && base < recovery_point;
        let segment = Segment::open(place.clone(), base, size, 0);
        let from = if is_in_part { indexed_before(&segment, recovery_point)? } else { 0 };
        found += Amount { segments: 1, bytes: size.saturating_sub(from) };
    }
    Ok(found)
}

/// Where the last batch lies that is below the recovery point and up to which both indexes go.
fn indexed_before(segment: &Segment, recovery_point: Offset) -> io::Result<u64> {
    let Some(time) = segment.time_index.last()? else { return Ok(0) };
    let entry = segment.offset_index.floor(time.offset.min(recovery_point.plus(-1)))?;
    Ok(entry.map_or(0, |entry| u64::from(entry.position)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{DIR, batch, open_args};
    use super::super::{Log, LogConfig, Origin};
    use super::*;
    use crate::storage::sim_disk::SimDisk;
    use crate::types::{LeaderEpoch, TimestampMs};
    use crate::wire::compression::Compression;

    #[test]
    fn what_is_counted_is_what_opening_checks() {
        let disk = SimDisk::new();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let config =
            Arc::new(LogConfig { segment_bytes: 1000, index_interval_bytes: 200, ..LogConfig::default() });
        let args = open_args(Offset::ZERO, Offset::ZERO, false);
        let mut log = Log::create(shared.clone(), Path::new(DIR), config.clone(), &args).unwrap();
        for _ in 0..40 {
            let batch = batch(&[1000], &[b'v'; 100], Compression::None);
            log.append_as_leader(&batch, LeaderEpoch(0), Origin::Client, TimestampMs(0)).unwrap();
        }
        let (segments, batch_bytes) = (log.view().segments.clone(), log.view().segments[0].size());
        log.close().unwrap();
        let all: u64 = segments.iter().map(|segment| segment.size()).sum();
        let mut last = Amount { segments: segments.len() as u64, bytes: all };
        for recovery_point in 0..=40 {
            disk.kill();
            let counted = to_check(&shared, Path::new(DIR), Offset(recovery_point)).unwrap();
            let args = open_args(Offset(recovery_point), Offset::ZERO, false);
            let log = Log::open(shared.clone(), Path::new(DIR), config.clone(), &args).unwrap();
            // The batch at which checking begins is known to be sound.
            let more = counted.bytes - log.recovered().scanned_bytes;
            assert!(more < batch_bytes, "from {recovery_point}: {more} of {counted:?}");
            assert!(counted.segments <= last.segments && counted.bytes <= last.bytes);
            assert_eq!(args.unchecked.left(), Amount::default());
            last = counted;
        }
        assert_eq!(to_check(&shared, Path::new(DIR), Offset::ZERO).unwrap().bytes, all);
        assert_eq!(last.segments, 1);
    }
}
