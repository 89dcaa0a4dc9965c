//! A file that only takes up room beside the metadata log. When the disk is full, it is given up piece by piece, so that a node
//! can still be started on a full disk, take its office, and delete topics.
//!
//! Knows nothing of the log. Invariant: it never fails; a node without it only waits for room earlier.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use crate::storage::disk::{Disk, DiskFile, OpenMode};

pub const FILE_NAME: &str = "raft-ballast";

/// Enough for thousands of small changes.
const SIZE: u64 = 256 << 10;
/// What is given up at a time.
const PIECE: u64 = 32 << 10;
/// It is filled again when there is so much room.
const PLENTY: u64 = 16 * SIZE;

#[derive(Debug)]
pub struct Ballast {
    /// None when it could not be made.
    file: Option<Arc<dyn DiskFile>>,
    disk: Arc<dyn Disk>,
    dir: Box<Path>,
    len: u64,
}

impl Ballast {
    /// Takes up the room, as far as there is plenty.
    pub fn new(disk: Arc<dyn Disk>, dir: &Path) -> Ballast {
        let file = disk.open(&dir.join(FILE_NAME), OpenMode::Create).ok();
        let len = file.as_ref().and_then(|file| file.len().ok()).unwrap_or(0);
        let mut ballast = Ballast { file, disk, dir: dir.into(), len };
        ballast.refill();
        ballast
    }

    /// Gives some room up. False when there is none left to give.
    pub fn give(&mut self) -> bool {
        let Some(file) = self.file.as_ref().filter(|_| self.len > 0) else { return false };
        self.len = self.len.saturating_sub(PIECE);
        // File systems give back what a transaction of theirs has freed once that is durable.
        file.set_len(self.len).and_then(|()| file.sync_data()).is_ok()
    }

    /// Whether nothing is given, or was before a start on a disk without room.
    pub fn is_whole(&self) -> bool {
        self.file.is_none() || self.len >= SIZE
    }

    /// Takes up again what was given, if there is plenty of room. True when it is whole.
    pub fn refill(&mut self) -> bool {
        let Some(file) = self.file.as_ref().filter(|_| self.len < SIZE) else { return true };
        if !self.disk.space(&self.dir).is_ok_and(|space| space.free >= PLENTY) {
            return false;
        }
        let bytes = noise((SIZE - self.len) as usize);
        if file.write_all_at(&[IoSlice::new(&bytes)], self.len).is_ok() {
            self.len = SIZE;
        }
        self.len == SIZE
    }
}

/// Bytes that a file system cannot leave out or pack.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::sim_disk::SimDisk;

    #[test]
    fn it_gives_its_room_piece_by_piece_and_takes_it_again() {
        let sim = SimDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let dir = Path::new("/m");
        disk.create_dir_all(dir).unwrap();
        let mut ballast = Ballast::new(disk.clone(), dir);
        assert_eq!(sim.used(), SIZE);
        sim.set_capacity(Some(SIZE));
        let free = || disk.space(dir).unwrap().free;
        for given in 1..=SIZE / PIECE {
            assert!(ballast.give());
            assert_eq!(free(), given * PIECE);
        }
        assert!(!ballast.give() && !ballast.refill());
        // A start on a disk that is full leaves what there is.
        let mut ballast = Ballast::new(disk.clone(), dir);
        assert!(!ballast.give() && !ballast.is_whole());
        sim.set_capacity(Some(PLENTY));
        assert!(ballast.refill() && ballast.is_whole());
        assert_eq!(sim.used(), SIZE);
        assert!(Ballast::new(disk, dir).give(), "and a start finds what another has filled");
    }

    #[test]
    fn a_node_does_without_it() {
        let sim = SimDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let mut ballast = Ballast::new(disk, Path::new("/nowhere"));
        assert!(!ballast.give() && ballast.refill());
    }
}
