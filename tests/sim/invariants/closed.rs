//! A transaction that has ended stays so: no record of it follows its marker, and what is between two markers of a producer is
//! one transaction.

use std::collections::BTreeSet;

use super::Broken;
use crate::sim::history::{Entry, Part};
use crate::sim::ledger::Ledger;
use crate::types::TopicIdPartition;

/// A record is committed.
pub fn check_record(
    ledger: &Ledger,
    id: TopicIdPartition,
    entry: &Entry,
    part: &Part,
    txn: usize,
) -> Result<(), Broken> {
    let told = &ledger.txns[txn];
    if told.fates.contains_key(&id) {
        return Err(format!("closed: {entry:?} of {id:?} follows the marker of its transaction: {told:?}"));
    }
    if told.producer != part.producer {
        return Err(format!("closed: {entry:?} of {id:?} has another producer than {told:?}"));
    }
    let ended = ledger.ended(id, part.producer.id);
    if part.producer.epoch < ended {
        return Err(format!("closed: {entry:?} of {id:?} follows a marker of epoch {ended}: {told:?}"));
    }
    Ok(())
}

/// A marker has ended these.
pub fn check_marker(ledger: &Ledger, id: TopicIdPartition, ended: &BTreeSet<usize>) -> Result<(), Broken> {
    if ended.len() > 1 {
        let txns: Vec<_> = ended.iter().map(|txn| &ledger.txns[*txn]).collect();
        return Err(format!("closed: one marker in {id:?} ends several transactions: {txns:?}"));
    }
    Ok(())
}
