//! What rots on the simulated disk: bits that turn over where nobody has written. Must not know what the bytes mean.
//!
//! Invariant: only what is at rest rots: it is durable, and no change that a sync or a crash may bring is about to replace it.

use std::path::Path;

use super::{Change, Content, Node, NodeId, ROOT, SimDisk, State};
use crate::storage::locked;

/// A byte that has changed while nobody wrote there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rotten {
    file: NodeId,
    at: usize,
    was: u8,
    is: u8,
}

impl SimDisk {
    /// Turns a bit over of what is durable and has not been written since, without a trace. `false`: there is no such byte.
    pub fn rot(&self, path: &Path, at: usize, bit: u32) -> bool {
        let mut state = locked(&self.state);
        let Ok(file) = state.resolve(path) else { return false };
        let Some(Node::File { content, .. }) = state.nodes.get_mut(&file) else { return false };
        let Some(was) = content.at_rest(at) else { return false };
        let is = was ^ (1 << (bit % u8::BITS));
        (content.live[at], content.durable[at]) = (is, is);
        // What it was before it rotted the first time is what was written.
        match state.rotten.iter_mut().find(|rotten| (rotten.file, rotten.at, rotten.is) == (file, at, was)) {
            Some(rotten) => rotten.is = is,
            None => state.rotten.push(Rotten { file, at, was, is }),
        }
        state.rotten.retain(|rotten| rotten.was != rotten.is);
        true
    }

    /// Whether some of what has rotted is as it was left, in a file that can be reached.
    pub fn is_rotten(&self) -> bool {
        let mut state = locked(&self.state);
        let rotten = std::mem::take(&mut state.rotten);
        state.rotten = rotten.into_iter().filter(|rotten| state.has(rotten)).collect();
        !state.rotten.is_empty()
    }

    /// Turns everything back that is as it was left.
    pub fn restore(&self) {
        let mut state = locked(&self.state);
        for Rotten { file, at, was, is } in std::mem::take(&mut state.rotten).into_iter().rev() {
            if let Some(Node::File { content, .. }) = state.nodes.get_mut(&file) {
                for bytes in [&mut content.live, &mut content.durable] {
                    bytes.get_mut(at).filter(|byte| **byte == is).into_iter().for_each(|byte| *byte = was);
                }
            }
        }
    }
}

impl State {
    /// Whether what has rotted is still there.
    fn has(&self, rotten: &Rotten) -> bool {
        match self.nodes.get(&rotten.file) {
            Some(Node::File { content, name, .. }) if !name.ends_with(".deleted") => {
                let is_there = |bytes: &Vec<u8>| bytes.get(rotten.at) == Some(&rotten.is);
                (is_there(&content.live) || is_there(&content.durable)) && self.is_named(rotten.file)
            }
            _ => false,
        }
    }

    /// What a file would hold for good from `from` on if nothing had rotted.
    pub(super) fn written(&self, file: NodeId, content: &Content, from: usize) -> Vec<u8> {
        let mut bytes = content.durable.get(from..).unwrap_or_default().to_vec();
        for Rotten { at, was, is, .. } in self.rotten.iter().rev().filter(|rotten| rotten.file == file) {
            let byte = at.checked_sub(from).and_then(|at| bytes.get_mut(at));
            byte.filter(|byte| **byte == *is).into_iter().for_each(|byte| *byte = *was);
        }
        bytes
    }

    /// Whether a file is still in some directory.
    fn is_named(&self, file: NodeId) -> bool {
        let mut left = vec![ROOT];
        while let Some(id) = left.pop() {
            if id == file {
                return true;
            }
            if let Some(Node::Dir { names, .. }) = self.nodes.get(&id) {
                left.extend(names.live.values());
            }
        }
        false
    }
}

impl Content {
    /// The byte that is there for good, if nothing is about to change it.
    fn at_rest(&self, at: usize) -> Option<u8> {
        let touches = |change: &Change| match change {
            Change::SetLen(len) => *len <= at,
            Change::Write { at: from, bytes } => (*from..from + bytes.len()).contains(&at),
        };
        let byte = self.durable.get(at).filter(|byte| self.live.get(at) == Some(byte))?;
        (!self.unsynced.iter().any(touches)).then_some(*byte)
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::storage::disk::{Disk, OpenMode, read_file, remove_if_exists};

    const FILE: &str = "/f.log";

    #[test]
    fn what_is_at_rest_rots_until_it_is_written_anew() {
        let (disk, path) = (SimDisk::new(), Path::new(FILE));
        let file = disk.open(path, OpenMode::Create).unwrap();
        file.write_all_at(&[IoSlice::new(b"abc")], 0).unwrap();
        assert!(!disk.rot(path, 1, 0), "it is not synced");
        file.sync_data().unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        assert!(disk.rot(path, 1, 0) && !disk.rot(path, 3, 0) && !disk.rot(Path::new("/other"), 0, 0));
        assert_eq!((read_file(&disk, path).unwrap(), disk.is_rotten()), (b"acc".to_vec(), true));
        assert_eq!(disk.durable_files(Path::new("/"), ".log")["f.log"], b"abc");
        disk.crash(0);
        assert_eq!(read_file(&disk, path).unwrap(), b"acc", "it stays");

        // What is written over it has to be synced as well.
        let file = disk.open(path, OpenMode::Write).unwrap();
        file.write_all_at(&[IoSlice::new(b"b")], 1).unwrap();
        assert!(disk.is_rotten() && !disk.rot(path, 1, 1));
        file.sync_data().unwrap();
        assert!(!disk.is_rotten());

        assert!(disk.rot(path, 0, 1) && disk.rot(path, 0, 2) && disk.is_rotten());
        assert_eq!(disk.durable_files(Path::new("/"), ".log")["f.log"], b"abc", "what was written");
        assert!(disk.rot(path, 2, 0) && disk.rot(path, 2, 0), "it rots, and is as it was by chance");
        disk.restore();
        assert_eq!((read_file(&disk, path).unwrap(), disk.is_rotten()), (b"abc".to_vec(), false));
        assert!(disk.rot(path, 2, 7));
        assert!(remove_if_exists(&disk, path).unwrap() && !disk.is_rotten());
    }
}
