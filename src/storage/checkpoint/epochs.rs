//! `leader-epoch-checkpoint` in a partition's directory: one line `epoch startOffset` per epoch.

use std::io;
use std::path::Path;

use super::lines;
use crate::storage::disk::Disk;
use crate::storage::log::EpochEntry;
use crate::types::{LeaderEpoch, Offset};

pub fn write_epochs(disk: &dyn Disk, path: &Path, entries: &[EpochEntry]) -> io::Result<()> {
    lines::write(disk, path, entries.iter().map(|entry| format!("{} {}", entry.epoch, entry.start)))
}

pub fn read_epochs(disk: &dyn Disk, path: &Path) -> io::Result<Vec<EpochEntry>> {
    lines::read(disk, path, |words| {
        let [epoch, start] = words else { return None };
        Some(EpochEntry { epoch: LeaderEpoch(epoch.parse().ok()?), start: Offset(start.parse().ok()?) })
    })
}
