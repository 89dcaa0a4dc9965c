//! What transactional clients have done and were told, and what the logs have made of it.
//!
//! Must not know how it came about, nor which laws hold. Invariant: a fate is what a committed marker says.

use std::collections::{BTreeMap, BTreeSet};

use super::history::Part;
use crate::coordinator::Producer;
use crate::types::{ProducerEpoch, ProducerId, TopicIdPartition};
use crate::wire::control::TxnResult;

/// A transaction.
#[derive(Debug)]
pub struct Txn {
    pub client: usize,
    /// The how many-th of its client.
    pub number: i64,
    pub producer: Producer,
    /// The batches that were acknowledged, by checksum, and where they are.
    pub acknowledged: BTreeMap<u32, TopicIdPartition>,
    /// Its offset was acknowledged.
    pub has_offset: bool,
    /// How its client wants it to end, once it has said so.
    pub asked: Option<TxnResult>,
    /// How it ended, as its client was told.
    pub told: Option<TxnResult>,
    /// How it ended in each partition.
    pub fates: BTreeMap<TopicIdPartition, TxnResult>,
}

#[derive(Debug, Default)]
pub struct Ledger {
    pub txns: Vec<Txn>,
    by_crc: BTreeMap<u32, usize>,
    by_number: BTreeMap<(usize, i64), usize>,
    /// The transactions that have records in a partition since the last marker of their producer.
    open: BTreeMap<(TopicIdPartition, ProducerId), BTreeSet<usize>>,
    /// The latest epoch of a producer's markers in a partition.
    ended: BTreeMap<(TopicIdPartition, ProducerId), ProducerEpoch>,
}

impl Ledger {
    pub fn begin(&mut self, client: usize, number: i64, producer: Producer) -> usize {
        let (acknowledged, fates) = Default::default();
        let (has_offset, asked, told) = Default::default();
        self.by_number.insert((client, number), self.txns.len());
        self.txns.push(Txn { client, number, producer, acknowledged, has_offset, asked, told, fates });
        self.txns.len() - 1
    }

    pub fn sends(&mut self, txn: usize, crc: u32) {
        self.by_crc.insert(crc, txn);
    }

    /// The transaction of a batch.
    pub fn of(&self, crc: u32) -> Option<usize> {
        self.by_crc.get(&crc).copied()
    }

    pub fn numbered(&self, client: usize, number: i64) -> Option<&Txn> {
        Some(&self.txns[*self.by_number.get(&(client, number))?])
    }

    /// How a batch has ended in its partition, as far as is known.
    pub fn fate(&self, id: TopicIdPartition, crc: u32) -> Option<TxnResult> {
        self.txns[self.of(crc)?].fates.get(&id).copied()
    }

    pub fn ended(&self, id: TopicIdPartition, producer: ProducerId) -> ProducerEpoch {
        self.ended.get(&(id, producer)).copied().unwrap_or(ProducerEpoch::NONE)
    }

    pub fn on_record(&mut self, id: TopicIdPartition, part: &Part, txn: usize) {
        self.open.entry((id, part.producer.id)).or_default().insert(txn);
    }

    /// Gives the transactions that the marker ends.
    pub fn on_marker(&mut self, id: TopicIdPartition, part: &Part, result: TxnResult) -> BTreeSet<usize> {
        let key = (id, part.producer.id);
        let ended = self.ended.entry(key).or_insert(ProducerEpoch::NONE);
        *ended = part.producer.epoch.max(*ended);
        let txns = self.open.remove(&key).unwrap_or_default();
        for txn in &txns {
            self.txns[*txn].fates.insert(id, result);
        }
        txns
    }

    /// The largest number of a transaction of a client that is known to be committed with its offset.
    pub fn committed_offset(&self, client: usize) -> i64 {
        let of_client = self.txns.iter().filter(|txn| txn.client == client && txn.has_offset);
        let committed = of_client.filter(|txn| txn.told == Some(TxnResult::Commit));
        committed.map(|txn| txn.number).max().unwrap_or(-1)
    }
}
