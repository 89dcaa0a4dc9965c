//! What must hold of a cluster, one law a file. Each looks at what a node shows of a partition whenever that has changed, at
//! each acknowledgement, or at the metadata whenever it has; it keeps what it needs to compare with.

mod acknowledged;
mod consumed;
mod equal_logs;
mod fold;
mod high_watermark;
mod in_sync;
mod one_leader;
pub mod progress;
mod sequences;

use std::sync::Arc;

use super::history::{Entry, History};
use crate::broker::partitions::Leadership;
use crate::metadata::{Image, Record};
use crate::storage::log::LogView;
use crate::types::{NodeId, Offset, TopicIdPartition};

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
    one_leader: one_leader::OneLeader,
    high_watermark: high_watermark::HighWatermark,
    equal_logs: equal_logs::EqualLogs,
    acknowledged: acknowledged::Acknowledged,
    sequences: sequences::Sequences,
    consumed: consumed::Consumed,
}

impl Invariants {
    /// A process shows something new of a partition.
    pub fn on_sight(&mut self, history: &mut History, sight: &Sight<'_>) -> Result<(), Broken> {
        self.one_leader.check(sight)?;
        self.high_watermark.check(sight)?;
        let new = self.equal_logs.check(history, sight)?;
        self.sequences.check(history, sight.id, &new)?;
        self.acknowledged.on_sight(history, sight)
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
    ) -> Result<(), Broken> {
        self.acknowledged.on_acknowledged(history, id, base, crc)
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
        in_sync::check(history, image, sight)
    }

    /// The whole log and what it has come to.
    pub fn on_log(&self, records: &[Record], head: &Image) -> Result<(), Broken> {
        fold::check(records, head)
    }
}
