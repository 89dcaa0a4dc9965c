//! A compacted segment takes the place of the ones that it was made of. Must not know how it was made.
//!
//! The order of the renames makes every crash in between one that opening the log can finish or undo (`recovery`): first the new
//! files from `.cleaned` to `.swap`, which says that they are whole; then the old ones to `.deleted`; then the new ones to
//! their names, the batches first.
//!
//! Invariant: readers see the old segments or the new one, and never a mixture.

use std::io;
use std::sync::Arc;

use thiserror::Error;

use super::super::names::Stage;
use super::super::segment::Segment;
use super::super::truncate::Doomed;
use super::super::{Log, LogError};
use super::clean::Basis;
use super::filter::LastRecord;
use crate::storage::disk;

/// A segment that is ready to take the place of others.
#[derive(Debug)]
pub struct Cleaned {
    pub(super) segment: Arc<Segment>,
    /// Neighbours, the oldest first; it begins where they do.
    pub(super) replaces: Vec<Arc<Segment>>,
    pub(super) truncations: u32,
    /// Some of the markers in the old segments are not in it.
    pub(super) lacks_markers: bool,
}

/// Why a compacted segment did not take its place.
#[derive(Debug, Error)]
pub enum SwapError {
    /// Some of what it was made of is no longer there, or there is more than there was.
    #[error("the log was cut or its segments were deleted meanwhile")]
    Outdated,
    /// The log is not here any more.
    #[error("the log is gone")]
    Gone,
    /// As it was before, and in service if the error says no more.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl Log {
    /// What a compaction of the log as it is now must know.
    pub fn compaction_basis(&self) -> Basis {
        let last_record = |producer: &super::super::ActiveProducer| {
            let entry = self.producers.get(producer.producer_id);
            let offset = entry.and_then(|entry| entry.last_batch()).map(|batch| batch.last_offset);
            (producer.producer_id, LastRecord { offset, epoch: producer.epoch })
        };
        Basis {
            view: self.view(),
            last_records: self.producers.active_producers().iter().map(last_record).collect(),
            truncations: self.truncations,
        }
    }

    /// Whether the log was not cut since, so that what is above its compacted part is what it was.
    pub fn is_uncut_since(&self, basis: &Basis) -> bool {
        self.truncations == basis.truncations
    }

    /// Puts a compacted segment in the place of the ones that it was made of.
    pub fn swap_in(&mut self, cleaned: &Cleaned) -> Result<Doomed, SwapError> {
        self.check_in_service()?;
        let Cleaned { segment, replaces, truncations, lacks_markers } = cleaned;
        let at = self.segments.partition_point(|other| other.base() < segment.base());
        let end = at + replaces.len();
        let is_there = self.segments.get(at..end).is_some_and(|present| {
            present.iter().zip(replaces).all(|(present, replaced)| Arc::ptr_eq(present, replaced))
        });
        if !is_there || end == self.segments.len() || *truncations != self.truncations {
            return Err(SwapError::Outdated);
        }
        if *lacks_markers {
            // A snapshot of before would leave a transaction open that such a marker has ended.
            let end = self.segments[end].base();
            let removed = self.snapshots.retain(&self.place, |at| at >= end);
            self.or_poison("remove snapshots", removed)?;
        }
        if let Err(error) = segment.restage(Stage::Swap) {
            // A part of it that says that it is whole must not be there at the next start.
            let discarded = segment.discard();
            self.or_poison("undo a swap", discarded)?;
            return Err(LogError::io("swapping segments of", &self.place.dir(), error).into());
        }
        // What is kept in memory goes with the index of aborted transactions that there was.
        self.tail.drop_below(self.segments[end].base());
        let mut segments = self.segments.to_vec();
        segments.splice(at..end, [segment.clone()]);
        self.segments = segments.into();
        self.publish();
        let take_out = |old: &Arc<Segment>| {
            if old.base() == segment.base() { old.mark_replaced() } else { old.mark_deleted() }
        };
        let doomed = Doomed::new(self.place.clone(), replaces.iter().map(|old| old.base()).collect());
        let replaced = replaces.iter().try_for_each(take_out);
        let replaced = replaced.and_then(|()| take_names(segment, &doomed));
        self.or_poison("swap segments", replaced)?;
        self.dir_changes.note();
        let is_base = |at| self.segments.binary_search_by_key(&at, |segment| segment.base()).is_ok();
        let (first, last) = (segment.base(), replaces[replaces.len() - 1].base());
        self.snapshots.forget(|at| first < at && at <= last && !is_base(at));
        Ok(doomed)
    }
}

/// Gives the new segment its names. Where there is no room for those, what it replaces makes some at once.
fn take_names(segment: &Segment, replaced: &Doomed) -> io::Result<()> {
    match segment.restage(Stage::Live) {
        Err(error) if disk::is_full(&error) => {
            replaced.remove()?;
            segment.restage(Stage::Live)
        }
        result => result,
    }
}
