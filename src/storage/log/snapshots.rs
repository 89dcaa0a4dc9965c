//! The producer snapshots of a partition directory, and the state of the producers as they and the log's tail tell it. The
//! rules of producers and the file's format are `producer_state`'s.
//!
//! A snapshot is named after the offset up to which it accounts for batches. One is taken at each roll, so that a segment
//! can be replayed from the snapshot of its base, and one when the log is closed. They are never needed: without any,
//! the state comes from the whole log.

use std::io::{self, IoSlice};
use std::sync::Arc;

use super::config::LogConfig;
use super::lazy_file::Place;
use super::names::{FileName, Kind};
use super::producer_state::{ProducerState, snapshot};
use super::segment::Segment;
use super::sight::Headers;
use super::view::{end_of, segment_of};
use crate::fault::{self, Fault};
use crate::storage::disk::{OpenMode, read_file};
use crate::types::{Offset, TimestampMs};
use crate::wire::batch::{BatchHeader, HEADER_LEN};

/// Which snapshots there are, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshots(Vec<Offset>);

impl Snapshots {
    pub fn new(mut offsets: Vec<Offset>) -> Snapshots {
        offsets.sort_unstable();
        Snapshots(offsets)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn latest(&self) -> Option<Offset> {
        self.0.last().copied()
    }

    /// Writes the snapshot of `state`; not durable yet.
    pub fn take(&mut self, place: &Place, state: &ProducerState) -> io::Result<()> {
        let at = state.end();
        let bytes = state.to_snapshot();
        let file = place.open(FileName::live(at, Kind::ProducerSnapshot), OpenMode::Truncate)?;
        file.write_all_at(&[IoSlice::new(&bytes)], 0)?;
        self.0.retain(|offset| *offset < at);
        self.0.push(at);
        Ok(())
    }

    /// Removes the snapshots for which `keep` does not hold. `true` when there were some.
    pub fn retain(&mut self, place: &Place, keep: impl Fn(Offset) -> bool) -> io::Result<bool> {
        let before = self.0.len();
        for &at in self.0.iter().filter(|at| !keep(**at)) {
            place.remove(FileName::live(at, Kind::ProducerSnapshot))?;
        }
        self.0.retain(|at| keep(*at));
        Ok(self.0.len() < before)
    }

    /// Forgets snapshots whose files went with their segments.
    pub fn forget_before(&mut self, offset: Offset) {
        self.0.retain(|at| *at >= offset);
    }

    /// Forgets the snapshots whose files went because no segment begins there any more.
    pub fn forget(&mut self, is_gone: impl Fn(Offset) -> bool) {
        self.0.retain(|at| !is_gone(*at));
    }

    /// Removes what no segment begins with, save the latest: the remains of earlier closings.
    pub fn remove_strays(&mut self, place: &Place, segments: &[Arc<Segment>]) -> io::Result<()> {
        let latest = self.latest();
        let is_base = |at: Offset| segments.binary_search_by_key(&at, |segment| segment.base()).is_ok();
        self.retain(place, |at| Some(at) == latest || is_base(at)).map(|_| ())
    }

    /// The state that the latest readable snapshot at or before `offset` holds. Unreadable ones are removed.
    fn load(
        &mut self,
        place: &Place,
        offset: Offset,
        limit: usize,
        expired_before: TimestampMs,
    ) -> io::Result<Option<ProducerState>> {
        while let Some(&at) = self.0.iter().rfind(|at| **at <= offset) {
            let name = FileName::live(at, Kind::ProducerSnapshot);
            let bytes = place.within(|dir| read_file(&*place.disk, &name.path(dir)))?;
            if let Ok(entries) = snapshot::decode(&bytes) {
                let state = ProducerState::new(at).limited(limit);
                return Ok(Some(state.with_snapshot(entries, expired_before)));
            }
            self.retain(place, |other| other != at)?;
        }
        Ok(None)
    }

    /// The producers of a log from `log_start` to `log_end`. The snapshot to begin with lies at or before `trusted`, the
    /// batches after it are replayed; transactions that turn out aborted and are missing in the index are added to it.
    pub fn rebuild(
        &mut self,
        log: &Replay<'_>,
        trusted: Offset,
        now: TimestampMs,
    ) -> io::Result<ProducerState> {
        let expired_before = log.config.producer_expires_before(now);
        let limit = log.config.producer_states_max;
        let mut state = match self.load(log.place, trusted, limit, expired_before)? {
            Some(state) => state,
            None => ProducerState::new(log.segments[0].base()).limited(limit),
        };
        state.advance_end(log.log_start);
        if state.end() < log.log_end && !fault::is_active(Fault::TrustsSnapshots) {
            log.replay(&mut state)?;
        }
        state.advance_end(log.log_end);
        state.expire(expired_before);
        Ok(state)
    }
}

/// A log whose batches are to be replayed.
pub(super) struct Replay<'a> {
    pub place: &'a Place,
    pub config: &'a LogConfig,
    pub segments: &'a [Arc<Segment>],
    pub log_start: Offset,
    pub log_end: Offset,
}

impl Replay<'_> {
    /// What is damaged says nothing of producers, and keeps no log from being opened or cut.
    fn replay(&self, state: &mut ProducerState) -> io::Result<()> {
        let from = state.end();
        for segment in &self.segments[segment_of(self.segments, from)..] {
            let mut last_aborted = segment.txn_index.last_offset()?;
            let within = segment.base()..end_of(self.segments, segment, Offset(i64::MAX));
            let mut walk = Headers::before(segment, from, within)?;
            while let Some((position, header)) = walk.advance()? {
                if header.base_offset >= self.log_end {
                    return Ok(());
                }
                if header.last_offset() < from || !header.has_producer_id() {
                    continue;
                }
                let Some(body) = body_for_replay(segment, position, &header)? else { continue };
                let completed = state.replay(&header, &body).map_err(|error| {
                    let what = format!("{} at {position}: {error}", segment.log_file().path().display());
                    io::Error::new(io::ErrorKind::InvalidData, what)
                })?;
                let aborted = completed.and_then(|completed| completed.aborted());
                if let Some(txn) =
                    aborted.filter(|txn| last_aborted.is_none_or(|last| last < txn.last_offset))
                {
                    segment.txn_index.push(txn)?;
                    last_aborted = Some(txn.last_offset);
                }
            }
        }
        Ok(())
    }
}

/// The records of control batches; of others nothing, for their headers say enough. `None`: they are not what was written.
fn body_for_replay(segment: &Segment, position: u64, header: &BatchHeader) -> io::Result<Option<Vec<u8>>> {
    if !header.is_control() {
        return Ok(Some(Vec::new()));
    }
    let mut batch = segment.log_file().get()?.read_vec(header.size_in_bytes(), position)?;
    Ok(header.check_crc(&batch).is_ok().then(|| batch.split_off(HEADER_LEN)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::tests::{DIR, open_args};
    use super::super::{Log, OpenArgs, Origin};
    use super::*;
    use crate::storage::sim_disk::SimDisk;
    use crate::types::{LeaderEpoch, ProducerEpoch, ProducerId};
    use crate::wire::batch_builder::BatchBuilder;

    const LIMIT: usize = 64;

    fn args(clean: bool) -> OpenArgs {
        let args = open_args(Offset::ZERO, Offset::ZERO, clean);
        OpenArgs { budgets: args.budgets.with_producers(1_000_000), ..args }
    }

    fn check(log: &Log, args: &OpenArgs, ends_with: i64) {
        let known: Vec<i64> = log.producers().active_producers().iter().map(|p| p.producer_id.0).collect();
        assert!(known.len() <= LIMIT && known.len() >= LIMIT - LIMIT / 16, "{}", known.len());
        assert_eq!(known, (ends_with - known.len() as i64..ends_with).collect::<Vec<_>>());
        assert_eq!(args.budgets.producers.held(), known.len());
    }

    /// However many there were, and with whatever snapshots: of Kafka's, say, which has no bound.
    #[test]
    fn a_log_of_very_many_producers_is_rebuilt_within_the_bound() {
        let config = LogConfig { segment_bytes: 5_000, ..LogConfig::default() };
        let bounded = Arc::new(LogConfig { producer_states_max: LIMIT, ..config.clone() });
        for limit in [LIMIT, usize::MAX] {
            let disk = SimDisk::new();
            let config = Arc::new(LogConfig { producer_states_max: limit, ..config.clone() });
            let before = args(false);
            let mut log =
                Log::create(Arc::new(disk.clone()), Path::new(DIR), config.clone(), &before).unwrap();
            for id in 0..2_000 {
                let mut builder = BatchBuilder::new().producer(ProducerId(id), ProducerEpoch(0), 0);
                builder.push(TimestampMs(1000), None, Some(b"v"), &[]);
                let records = builder.build().unwrap();
                log.append_as_leader(&records, LeaderEpoch(0), Origin::Client, TimestampMs(0)).unwrap();
            }
            log.update_config(bounded.clone());
            check(&log, &before, 2_000);
            log.truncate_to(Offset(1_234), TimestampMs(0)).unwrap();
            check(&log, &before, 1_234);
            if limit == LIMIT {
                log.close().unwrap();
            }
            drop(log);
            assert_eq!(before.budgets.producers.held(), 0);
            disk.kill();
            let after = args(limit == LIMIT);
            let log = Log::open(Arc::new(disk), Path::new(DIR), bounded.clone(), &after).unwrap();
            check(&log, &after, 1_234);
        }
    }
}
