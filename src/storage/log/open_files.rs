//! How many files the logs of a process keep open: the ones that were used lately. Must not know what is in them.
//!
//! Invariant: a file with writes that were not synced is never closed, since the system may tell of a write that failed later
//! only through the handle that it was made with. So the limit may be exceeded, by as many files as there are such.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::producer_state::ProducerBudget;
use super::tail_cache::TailBudget;
use crate::storage::disk::DiskFile;
use crate::storage::locked;

/// How many of the open files are looked at for one that can be closed, when one is opened or synced.
const LOOKS: usize = 64;

/// What all logs of a process share.
#[derive(Clone, Debug)]
pub struct Budgets {
    pub tail: Arc<TailBudget>,
    pub files: Arc<OpenFiles>,
    pub producers: Arc<ProducerBudget>,
}

impl Budgets {
    /// `tail_bytes` and `tail_bytes_per_log`: see [`TailBudget`].
    pub fn new(tail_bytes: usize, tail_bytes_per_log: usize, open_files: usize) -> Budgets {
        Budgets {
            tail: TailBudget::new(tail_bytes, tail_bytes_per_log),
            files: OpenFiles::new(open_files),
            producers: ProducerBudget::new(usize::MAX),
        }
    }

    /// The same with so many producers in all logs together.
    pub fn with_producers(self, max: usize) -> Budgets {
        Budgets { producers: ProducerBudget::new(max), ..self }
    }
}

/// The files that are open. They are looked at in turn; one that was not used since the last look is closed.
#[derive(Debug)]
pub struct OpenFiles {
    limit: usize,
    turns: Mutex<VecDeque<Weak<Slot>>>,
    /// How many are on the list.
    listed: AtomicUsize,
}

/// Where a file is kept while it is open.
#[derive(Debug, Default)]
pub(super) struct Slot {
    file: Mutex<Kept>,
    /// Since it was last looked at.
    is_used: AtomicBool,
    has_unsynced: AtomicBool,
}

#[derive(Debug, Default)]
struct Kept {
    file: Option<Arc<dyn DiskFile>>,
    /// It was opened for writing.
    is_writable: bool,
    /// It is among those that are looked at.
    is_listed: bool,
}

impl OpenFiles {
    pub fn new(limit: usize) -> Arc<OpenFiles> {
        let (turns, listed) = Default::default();
        Arc::new(OpenFiles { limit, turns, listed })
    }

    /// How many files are open.
    pub fn count(&self) -> usize {
        let turns = locked(&self.turns);
        turns.iter().filter_map(Weak::upgrade).filter(|slot| locked(&slot.file).file.is_some()).count()
    }

    fn add(&self, slot: &Arc<Slot>) {
        let mut turns = locked(&self.turns);
        self.close_some(&mut turns);
        turns.push_back(Arc::downgrade(slot));
        self.listed.store(turns.len(), Ordering::Relaxed);
    }

    /// Closes some if there are too many, now that one could be closed that could not before.
    pub(super) fn trim(&self) {
        if self.listed.load(Ordering::Relaxed) > self.limit {
            self.close_some(&mut locked(&self.turns));
        }
    }

    fn close_some(&self, turns: &mut VecDeque<Weak<Slot>>) {
        // Each once, so that nothing is closed because it was looked at twice at one time.
        for _ in 0..turns.len().min(LOOKS) {
            if turns.len() <= self.limit {
                break;
            }
            let Some(weak) = turns.pop_front() else { break };
            if weak.upgrade().is_some_and(|slot| !slot.close_unless_needed()) {
                turns.push_back(weak);
            }
        }
        self.listed.store(turns.len(), Ordering::Relaxed);
    }
}

impl Slot {
    /// The file, if it is open.
    pub(super) fn get(&self) -> Option<Arc<dyn DiskFile>> {
        self.is_used.store(true, Ordering::Relaxed);
        locked(&self.file).file.clone()
    }

    /// The file; `open` opens it when it is not open, or not for writing and that is wanted.
    pub(super) fn get_or_open(
        self: &Arc<Slot>,
        files: &OpenFiles,
        to_write: bool,
        open: impl FnOnce() -> io::Result<Arc<dyn DiskFile>>,
    ) -> io::Result<Arc<dyn DiskFile>> {
        self.is_used.store(true, Ordering::Relaxed);
        let mut kept = locked(&self.file);
        if let Some(file) = &kept.file
            && (kept.is_writable || !to_write)
        {
            return Ok(file.clone());
        }
        let file = open()?;
        // Through one that is only read nothing was written that would have to be synced through it.
        (kept.file, kept.is_writable) = (Some(file.clone()), to_write);
        let is_new = !std::mem::replace(&mut kept.is_listed, true);
        // Others are looked at below, and each has a lock like this one.
        drop(kept);
        if is_new {
            files.add(self);
        }
        Ok(file)
    }

    /// Does something that must not overlap with the file's opening.
    pub(super) fn while_locked<T>(&self, act: impl FnOnce() -> T) -> T {
        let _kept = locked(&self.file);
        act()
    }

    pub(super) fn close(&self) {
        locked(&self.file).file = None;
    }

    /// There will be writes that must be synced through this handle.
    pub(super) fn note_write(&self) {
        self.has_unsynced.store(true, Ordering::Release);
    }

    /// What was written so far is about to be synced; whoever syncs holds the file.
    pub(super) fn note_sync(&self) {
        self.has_unsynced.store(false, Ordering::Release);
    }

    /// True when the file is closed and off the list.
    fn close_unless_needed(&self) -> bool {
        // Somebody who holds the lock uses the file.
        let Ok(mut kept) = self.file.try_lock() else { return false };
        let is_used = self.is_used.swap(false, Ordering::Relaxed);
        if kept.file.is_some() && (is_used || self.has_unsynced.load(Ordering::Acquire)) {
            return false;
        }
        *kept = Kept::default();
        true
    }
}
