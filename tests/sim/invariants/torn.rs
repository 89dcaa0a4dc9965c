//! Nobody commits a transaction but its client: an EndTxn that comes late does not end the next transaction.

use super::Broken;
use crate::sim::ledger::Txn;
use crate::wire::control::TxnResult;

pub fn check(txn: &Txn) -> Result<(), Broken> {
    let is_committed = txn.fates.values().any(|fate| *fate == TxnResult::Commit);
    if is_committed && txn.asked != Some(TxnResult::Commit) {
        return Err(format!("torn: a transaction is committed that its client has not ended: {txn:?}"));
    }
    Ok(())
}
