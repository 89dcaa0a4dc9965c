//! Finding out again which leader epoch began where, from the batches, when `leader-epoch-checkpoint` does not say it: a
//! full disk leaves that file as it was, while the batches are safe. Knows no files but segments.
//!
//! Invariant: what the file says of a batch that is there is kept when the batch agrees, for then the logs are the same up
//! to it; and where the last batch agrees nothing is read.

use std::io;
use std::sync::Arc;

use super::epoch_cache::EpochCache;
use super::read::HeaderWalk;
use super::segment::Segment;
use crate::types::{LeaderEpoch, Offset};

/// Completes `epochs`, which come from the file and end where the log does. `last` is the epoch of the last batch, if it is
/// known already.
pub(super) fn complete(
    epochs: &mut EpochCache,
    segments: &[Arc<Segment>],
    last: Option<LeaderEpoch>,
) -> io::Result<()> {
    let last = match last {
        Some(last) => Some(last),
        None => last_epoch(segments)?,
    };
    let Some(last) = last else { return Ok(()) };
    // An epoch says where it began, and so what came before: who knows the last one knows all.
    if last < LeaderEpoch::ZERO || epochs.latest().is_some_and(|latest| latest.epoch == last) {
        return Ok(());
    }
    rebuild(epochs, segments)
}

/// Goes back to a segment whose first batch is as the epochs say, and notes what began since. Epochs only grow, so a segment
/// that begins as the next one does is not walked through.
fn rebuild(epochs: &mut EpochCache, segments: &[Arc<Segment>]) -> io::Result<()> {
    let mut unknown = Vec::new();
    let mut agrees_up_to = None;
    for segment in segments.iter().rev() {
        let Some(first) = begins(segment, 1)?.first().copied() else { continue };
        unknown.push((segment, first));
        if epochs.epoch_of(first.1) == Some(first.0) {
            agrees_up_to = Some(first.1);
            break;
        }
    }
    epochs.truncate_from_end(agrees_up_to.map_or(Offset::ZERO, |base| base.plus(1)));
    unknown.reverse();
    for (index, &(segment, (epoch, base))) in unknown.iter().enumerate() {
        let next = unknown.get(index + 1).map(|(_, (epoch, _))| *epoch);
        if next == Some(epoch) {
            epochs.assign(epoch, base);
            continue;
        }
        for (epoch, base) in begins(segment, usize::MAX)? {
            epochs.assign(epoch, base);
        }
    }
    Ok(())
}

/// The first batch of each epoch in a segment, at most so many. What makes no sense ends the walk: that is for others to find.
fn begins(segment: &Segment, at_most: usize) -> io::Result<Vec<(LeaderEpoch, Offset)>> {
    let mut found: Vec<(LeaderEpoch, Offset)> = Vec::new();
    walk(segment, 0, |epoch, base| {
        if found.last().is_none_or(|(last, _)| *last < epoch) {
            found.push((epoch, base));
        }
        found.len() < at_most
    })?;
    Ok(found)
}

fn last_epoch(segments: &[Arc<Segment>]) -> io::Result<Option<LeaderEpoch>> {
    let Some(segment) = segments.iter().rev().find(|segment| segment.size() > 0) else { return Ok(None) };
    let from = segment.offset_index.last()?.map_or(0, |entry| u64::from(entry.position));
    let mut last = None;
    walk(segment, from, |epoch, _| {
        last = Some(epoch);
        true
    })?;
    Ok(last)
}

/// Calls `met` with the epoch and first offset of each batch, for as long as it wants more.
fn walk(segment: &Segment, from: u64, mut met: impl FnMut(LeaderEpoch, Offset) -> bool) -> io::Result<()> {
    let mut walk = HeaderWalk::new(segment, from)?;
    loop {
        match walk.advance() {
            Ok(Some((_, header))) if segment.spans(header.last_offset()) => {
                if !met(header.leader_epoch, header.base_offset) {
                    return Ok(());
                }
            }
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
