//! Committed offsets of groups never go back: what was found once is found again, or a later one; so is what its committer was
//! told. What a transaction has brought counts when it is committed, and not before.

use std::collections::BTreeMap;

use super::Broken;
use crate::sim::ledger::Ledger;
use crate::types::LeaderEpoch;
use crate::wire::control::TxnResult;

#[derive(Debug, Default)]
pub struct Offsets {
    /// The offset that was found last for each client, and in which term of the coordinator.
    found: BTreeMap<usize, (LeaderEpoch, i64)>,
}

impl Offsets {
    /// Somebody asked for the offset of a client when at least `floor` had been committed, and has found this.
    pub fn check(
        &mut self,
        ledger: &Ledger,
        client: usize,
        floor: i64,
        term: LeaderEpoch,
        found: i64,
    ) -> Result<(), Broken> {
        let (known_term, known) = *self.found.entry(client).or_insert((LeaderEpoch::UNKNOWN, -1));
        // One that does not know yet that it has been replaced answers as of its own term.
        if term < known_term {
            return Ok(());
        }
        self.found.insert(client, (term, found));
        if found < known {
            return Err(format!("offsets: that of client {client} goes back from {known} to {found}"));
        }
        if found < floor {
            return Err(format!("offsets: that of client {client} is {found}, {floor} has been committed"));
        }
        let txn = ledger.numbered(client, found);
        let is_aborted = |txn: &crate::sim::ledger::Txn| {
            txn.asked != Some(TxnResult::Commit)
                || txn.told == Some(TxnResult::Abort)
                || txn.fates.values().any(|fate| *fate == TxnResult::Abort)
        };
        match txn.filter(|txn| is_aborted(txn)) {
            Some(txn) => Err(format!("offsets: {found} of client {client} was not committed: {txn:?}")),
            None => Ok(()),
        }
    }
}
