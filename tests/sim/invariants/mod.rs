//! What must hold of a cluster, one law a file. Each looks at what a node shows of a partition whenever that has changed, at
//! each acknowledgement, or at the metadata whenever it has; it keeps what it needs to compare with.

mod acknowledged;
pub mod all_or_nothing;
mod branches;
mod closed;
pub mod committed_reads;
mod consumed;
mod equal_logs;
mod fold;
mod high_watermark;
mod in_sync;
pub mod lease;
pub mod mended;
mod offsets;
mod on_disk;
mod one_leader;
pub mod owners;
mod producers;
pub mod progress;
pub mod prompt;
mod sequences;
pub mod stable;
mod torn;
mod turned_away;

use std::path::Path;
use std::sync::Arc;

use super::history::{Entry, History};
use super::network::Refused;
use super::node::Node;
use super::plan::TopicKind;
use crate::broker::partitions::Leadership;
use crate::metadata::{Image, Record};
use crate::storage::log::{Log, LogView};
use crate::storage::sim_disk::SimDisk;
use crate::types::{LeaderEpoch, MonotonicMs, NodeId, Offset, TopicIdPartition};
use branches::Standing;

/// What a live process shows of one partition.
pub struct Sight<'a> {
    pub node: NodeId,
    /// The process: another one may have another log.
    pub life: u64,
    pub id: TopicIdPartition,
    pub leadership: Leadership,
    pub view: &'a Arc<LogView>,
}

/// A law that does not hold.
pub type Broken = String;

#[derive(Debug, Default)]
pub struct Invariants {
    /// What is written counts as safe: nothing that would lose it happens.
    counts_written: bool,
    branches: branches::Branches,
    one_leader: one_leader::OneLeader,
    high_watermark: high_watermark::HighWatermark,
    equal_logs: equal_logs::EqualLogs,
    acknowledged: acknowledged::Acknowledged,
    sequences: sequences::Sequences,
    consumed: consumed::Consumed,
    on_disk: on_disk::OnDisk,
    producers: producers::Producers,
    turned_away: turned_away::TurnedAway,
    active: lease::Active,
    pub offsets: offsets::Offsets,
    pub owners: owners::Owners,
}

impl Invariants {
    pub fn new(counts_written: bool) -> Invariants {
        Invariants { counts_written, ..Invariants::default() }
    }

    /// A process shows something new of a partition.
    pub fn on_sight(
        &mut self,
        history: &mut History,
        image: &Image,
        sight: &Sight<'_>,
    ) -> Result<(), Broken> {
        self.one_leader.check(sight)?;
        match self.branches.standing(history, image, sight) {
            Standing::Current => {}
            Standing::Cuts => {
                self.high_watermark.forget(|(_, id)| id == sight.id);
                self.equal_logs.forget(|(_, id)| id == sight.id);
                self.sequences.forget(sight.id);
                self.acknowledged.forget(sight.id);
            }
            Standing::Old => {
                self.on_gone(sight.node, sight.id);
                return Ok(());
            }
        }
        self.high_watermark.check(sight)?;
        let new = self.equal_logs.check(history, sight)?;
        match history.kind(sight.id) {
            TopicKind::Plain => self.sequences.check(history, sight.id, &new)?,
            TopicKind::Transactional => on_transactional(history, sight.id, &new)?,
            TopicKind::Internal => {}
        }
        if !new.is_empty() {
            self.acknowledged.on_committed(history, sight.id)?;
        }
        self.acknowledged.on_sight(history, sight)
    }

    /// The same, with the disk on which the partition's directory is.
    pub fn on_disk(&mut self, disk: &SimDisk, dir: &Path, sight: &Sight<'_>) -> Result<(), Broken> {
        self.on_disk.check(disk, dir, sight)
    }

    /// The same, with the writer's side of the log.
    pub fn on_log_of(&mut self, log: &Log, sight: &Sight<'_>) -> Result<(), Broken> {
        self.producers.check(log, sight)
    }

    /// A process in its `life` has not taken a batch.
    pub fn on_refused(&mut self, life: u64, refused: Refused) -> Result<(), Broken> {
        self.turned_away.check(life, refused)
    }

    /// Whether what a leader of this epoch has is of the history that counts.
    pub fn is_current(&self, image: &Image, id: TopicIdPartition, epoch: LeaderEpoch) -> bool {
        self.branches.is_current(image, id, epoch)
    }

    /// A process has ended; another one begins anew.
    pub fn on_end(&mut self, node: NodeId) {
        self.high_watermark.forget(|(of, _)| of == node);
        self.equal_logs.forget(|(of, _)| of == node);
    }

    /// A process no longer has this replica.
    pub fn on_gone(&mut self, node: NodeId, id: TopicIdPartition) {
        self.high_watermark.forget(|of| of == (node, id));
        self.equal_logs.forget(|of| of == (node, id));
    }

    /// A producer hears that its batch is on all in-sync replicas.
    pub fn on_acknowledged(
        &mut self,
        history: &mut History,
        id: TopicIdPartition,
        base: Offset,
        crc: u32,
        leads: bool,
    ) -> Result<(), Broken> {
        self.acknowledged.on_acknowledged(history, id, base, crc, leads)
    }

    /// Nothing is written any more.
    pub fn at_rest(&self, image: &Image) -> Result<(), Broken> {
        self.acknowledged.at_rest(image)
    }

    /// A consumer gets these.
    pub fn on_consumed(
        &mut self,
        history: &History,
        id: TopicIdPartition,
        entries: &[Entry],
    ) -> Result<(), Broken> {
        self.consumed.check(history, id, entries)
    }

    /// The replicas in sync, as the metadata has them now, against what a process shows.
    pub fn on_in_sync(&self, history: &History, image: &Image, sight: &Sight<'_>) -> Result<(), Broken> {
        let epoch = sight.leadership.leader_epoch;
        if !self.branches.is_current(image, sight.id, epoch)
            || branches::lossy_epoch(image, sight.id) == epoch
        {
            // Whoever is elected uncleanly need not have synced what it is alone in having.
            return Ok(());
        }
        in_sync::check(history, image, sight, self.counts_written)
    }

    /// The metadata has moved on.
    pub fn on_fenced(&mut self, head: &Image, nodes: &[Node], now: MonotonicMs) -> Result<(), Broken> {
        self.active.check(head, nodes, now)
    }

    /// The whole log and what it has come to.
    pub fn on_log(&self, records: &[Record], head: &Image) -> Result<(), Broken> {
        fold::check(records, head)
    }

    /// The metadata as it is now and then.
    pub fn on_head(&self, head: &Image) -> Result<(), Broken> {
        fold::check_snapshot(head)
    }
}

/// Records and markers of transactions are committed.
fn on_transactional(history: &mut History, id: TopicIdPartition, new: &[Entry]) -> Result<(), Broken> {
    let ledger = &mut history.ledger;
    for entry in new {
        let Some(part) = entry.part else {
            return Err(format!("closed: {entry:?} of {id:?} is of no transaction"));
        };
        let Some(result) = part.marker else {
            let txn =
                ledger.of(entry.crc).ok_or_else(|| format!("closed: nobody sent {entry:?} of {id:?}"))?;
            closed::check_record(ledger, id, entry, &part, txn)?;
            ledger.on_record(id, &part, txn);
            continue;
        };
        let ended = ledger.on_marker(id, &part, result);
        for txn in &ended {
            torn::check(&ledger.txns[*txn])?;
            all_or_nothing::check(&ledger.txns[*txn])?;
        }
        closed::check_marker(ledger, id, &ended)?;
    }
    Ok(())
}
