//! Those who look at what transactions have left: readers of committed records, and of committed offsets.
//!
//! Must not know what they should find. Invariant: a reader of records leaves out what Kafka's consumers do.

use std::collections::BTreeSet;

use super::context::{Context, Ms};
use super::history::Entry;
use super::invariants::committed_reads::Read;
use super::network::{Ask, Asking, Body, Place};
use super::transactional::{GROUPS, place_of};
use crate::coordinator::group::command::{Command, FetchOffsets, FetchTopic};
use crate::metadata::Image;
use crate::storage::log::LogView;
use crate::types::{NodeId, Offset, PartitionIndex, ProducerId, TopicIdPartition};
use crate::wire::control::TxnResult;

/// Calls of readers of offsets come from clients with numbers from here on.
pub const OFFSETS: usize = 1_000;
const LIMIT_MS: Ms = 600;

/// Reads the committed records of one partition.
#[derive(Debug)]
pub struct Reader {
    pub topic: &'static str,
    pub partition: PartitionIndex,
    /// What it reads and where it goes on.
    pub at: Option<(TopicIdPartition, Offset)>,
}

impl Reader {
    /// Who leads what it reads, and from where on it wants to read.
    pub fn wants(&self, image: &Image) -> Option<(NodeId, TopicIdPartition, Offset)> {
        let topic = image.topics.by_name(self.topic)?;
        let id = TopicIdPartition { topic_id: topic.id, partition: self.partition };
        let leader = topic.partition(self.partition)?.leader;
        Some((leader, id, self.at.map_or(Offset::ZERO, |(_, offset)| offset)))
    }

    /// Goes through what a leader gives, with the aborted transactions that it names.
    pub fn read(view: &LogView, from: Offset, entries: &[Entry]) -> Option<Read> {
        let mut aborted = view.collect_aborted(from, view.last_stable).ok()?;
        aborted.sort_unstable_by_key(|txn| std::cmp::Reverse(txn.first_offset));
        let mut read = Read::default();
        let mut leaves_out: BTreeSet<ProducerId> = BTreeSet::new();
        for entry in entries {
            while let Some(txn) = aborted.pop_if(|txn| txn.first_offset < entry.next) {
                leaves_out.insert(txn.producer_id);
            }
            let Some(part) = &entry.part else { continue };
            match part.marker {
                Some(TxnResult::Abort) => drop(leaves_out.remove(&part.producer.id)),
                Some(TxnResult::Commit) => {}
                None if leaves_out.contains(&part.producer.id) => read.left_out.push(*entry),
                None => read.got.push(*entry),
            }
        }
        Some(read)
    }
}

/// Looks for the offset that a client commits.
#[derive(Debug)]
pub struct OffsetReader {
    pub client: usize,
    call: Option<(u64, Ms)>,
    /// What had been committed when it asked.
    pub floor: i64,
}

impl OffsetReader {
    pub fn new(client: usize) -> OffsetReader {
        OffsetReader { client, call: None, floor: -1 }
    }

    pub fn awaits(&self, call: u64) -> bool {
        self.call.is_some_and(|(of, _)| of == call)
    }

    pub fn answered(&mut self) {
        self.call = None;
    }

    /// Asks the coordinator, one question at a time.
    pub fn act(&mut self, context: &mut Context, image: &Image, committed: i64) {
        if self.call.is_some_and(|(_, at)| context.now - at < LIMIT_MS) {
            return;
        }
        let group = GROUPS[self.client % GROUPS.len()];
        let Some(leader) = super::transactional::coordinator_of(image, group) else { return };
        let (name, id, partition) = place_of(self.client);
        let topics = Some(vec![FetchTopic { name, id, partitions: vec![partition] }]);
        let fetch = FetchOffsets { group: group.into(), member: None, topics, require_stable: true };
        let call = context.unique();
        self.call = Some((call, context.now));
        self.floor = committed;
        let asking = Asking::Group { group: group.into(), command: Command::FetchOffsets(fetch) };
        let ask = Ask { client: OFFSETS + self.client, call, asking };
        context.send(Place::Clients, Place::Node(leader.0), Body::Ask(Box::new(ask)));
    }
}
