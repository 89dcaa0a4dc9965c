//! Who reads committed records alone gets no record of a transaction that is open or was aborted, and all of those that were
//! committed. A transaction whose marker the leader has is decided for good: whoever leads next gets the same marker again.
//! (A log that was closed forgets which of its markers are not committed themselves, as with Kafka.)

use super::Broken;
use crate::sim::history::Entry;
use crate::sim::ledger::Ledger;
use crate::types::TopicIdPartition;
use crate::wire::control::TxnResult;

/// What a reader got, and what it left out because it was told that it is aborted.
#[derive(Debug, Default)]
pub struct Read {
    pub got: Vec<Entry>,
    pub left_out: Vec<Entry>,
}

/// `tail`: what the leader has from where the reader began up to the end of its log.
pub fn check(ledger: &Ledger, id: TopicIdPartition, read: &Read, tail: &[Entry]) -> Result<(), Broken> {
    let fate = |entry: &Entry| {
        ledger.fate(id, entry.crc).or_else(|| {
            let producer = entry.part?.producer.id;
            let mut later =
                tail.iter().filter(|other| other.base > entry.base).filter_map(|other| other.part);
            later.find_map(|part| part.marker.filter(|_| part.producer.id == producer))
        })
    };
    for entry in &read.got {
        match fate(entry) {
            Some(TxnResult::Commit) => {}
            Some(TxnResult::Abort) => {
                return Err(format!("committed reads: a reader of {id:?} got {entry:?}, which is aborted"));
            }
            None => return Err(format!("committed reads: a reader of {id:?} got {entry:?}, which is open")),
        }
    }
    let lost = read.left_out.iter().find(|entry| fate(entry) != Some(TxnResult::Abort));
    match lost {
        Some(entry) => Err(format!("committed reads: a reader of {id:?} leaves out {entry:?}")),
        None => Ok(()),
    }
}
