//! Who reads committed records alone gets no record of a transaction that is open or was aborted, and all of those that were
//! committed.

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

pub fn check(ledger: &Ledger, id: TopicIdPartition, read: &Read) -> Result<(), Broken> {
    for entry in &read.got {
        match ledger.fate(id, entry.crc) {
            Some(TxnResult::Commit) => {}
            Some(TxnResult::Abort) => {
                return Err(format!("committed reads: a reader of {id:?} got {entry:?}, which is aborted"));
            }
            None => return Err(format!("committed reads: a reader of {id:?} got {entry:?}, which is open")),
        }
    }
    let lost = read.left_out.iter().find(|entry| ledger.fate(id, entry.crc) != Some(TxnResult::Abort));
    match lost {
        Some(entry) => Err(format!("committed reads: a reader of {id:?} leaves out {entry:?}")),
        None => Ok(()),
    }
}
