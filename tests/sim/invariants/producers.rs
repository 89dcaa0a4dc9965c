//! Every replica knows the producers as its log has them: what it goes by when it comes to lead is what its batches say, after
//! whatever cuts, restarts, snapshots and changes of leader. Otherwise it would take a batch twice, or refuse the next one.

use std::collections::{BTreeMap, BTreeSet};

use super::{Broken, Sight};
use crate::sim::history::each_batch;
use crate::storage::log::Log;
use crate::storage::log::producer_state::{ProducerEntry, ProducerState, SequencedBatch};
use crate::types::{LeaderEpoch, NodeId, Offset, ProducerId, TopicIdPartition};

/// What is only appended to is looked at now and then.
const EVERY: u32 = 49;

#[derive(Debug, Default)]
pub struct Producers {
    seen: BTreeMap<(NodeId, TopicIdPartition), Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    life: u64,
    epoch: LeaderEpoch,
    log_end: Offset,
    /// How many changes since then were not looked at.
    skipped: u32,
}

impl Producers {
    pub fn check(&mut self, log: &Log, sight: &Sight<'_>) -> Result<(), Broken> {
        if log.failure().is_some() {
            return Ok(());
        }
        let (epoch, log_end) = (sight.leadership.leader_epoch, log.log_end());
        let fresh = Seen { life: sight.life, epoch, log_end, skipped: EVERY };
        let seen = self.seen.entry((sight.node, sight.id)).or_insert(fresh);
        let is_same = seen.life == sight.life && seen.epoch == epoch && seen.log_end <= log_end;
        if is_same && seen.skipped < EVERY {
            (seen.log_end, seen.skipped) = (log_end, seen.skipped + 1);
            return Ok(());
        }
        *seen = Seen { skipped: 0, ..fresh };
        let Some(told) = told_by_log(log) else { return Ok(()) };
        let known = log.producers();
        let ids = [known, &told].into_iter().flat_map(ProducerState::active_producers);
        let ids: BTreeSet<ProducerId> = ids.map(|producer| producer.producer_id).collect();
        match ids.iter().find(|id| !agree(known.get(**id), told.get(**id), log.log_start())) {
            None => Ok(()),
            Some(id) => Err(format!(
                "producers: of {id} {} knows {:?} in {:?}, whose log from {} to {log_end} has {:?}",
                sight.node,
                known.get(*id),
                sight.id,
                log.log_start(),
                told.get(*id),
            )),
        }
    }
}

/// The producers as the batches of the log have them.
fn told_by_log(log: &Log) -> Option<ProducerState> {
    let view = log.view();
    let mut told = ProducerState::new(view.log_start);
    each_batch(&view, view.log_start, view.log_end, |batch| {
        told.replay(&batch.header, batch.body()).expect("batches that make sense");
    })?;
    Some(told)
}

/// `known` may hold more than the log does, of what lay before its start.
fn agree(known: Option<&ProducerEntry>, told: Option<&ProducerEntry>, log_start: Offset) -> bool {
    let Some(known) = known else { return told.is_none() };
    let is_gone = |offset: Offset| offset < log_start;
    let Some(told) = told else {
        // Its markers, if it has any, tell no offset.
        let mut offsets = known.batches().iter().map(|batch| batch.last_offset);
        return log_start > Offset::ZERO && offsets.all(is_gone);
    };
    let Some(more) = known.batches().len().checked_sub(told.batches().len()) else { return false };
    let (earlier, same) = known.batches().split_at(more);
    // A snapshot has one time for all batches of a producer and its marker.
    let which = |batch: &SequencedBatch| (batch.last_sequence, batch.last_offset, batch.offset_delta);
    known.epoch == told.epoch
        && same.iter().map(which).eq(told.batches().iter().map(which))
        && earlier.iter().all(|batch| is_gone(batch.last_offset))
        && known.last_timestamp == told.last_timestamp
        && (known.coordinator_epoch == told.coordinator_epoch || told.coordinator_epoch < 0)
        && (known.current_txn_first_offset == told.current_txn_first_offset
            || known.current_txn_first_offset.is_some_and(is_gone))
}
