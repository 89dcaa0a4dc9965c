//! All or nothing: a transaction ends in the same way wherever it has written, and as its client was told. What was
//! acknowledged in one that is committed is there.

use super::Broken;
use crate::sim::ledger::{Ledger, Txn};
use crate::wire::control::TxnResult;

/// A marker has ended the transaction somewhere, or its client was told how it ended.
pub fn check(txn: &Txn) -> Result<(), Broken> {
    let mut fates = txn.fates.values().copied();
    let Some(first) = fates.next() else { return Ok(()) };
    if fates.any(|fate| fate != first) {
        return Err(format!("all or nothing: half of a transaction is committed: {txn:?}"));
    }
    if txn.told.is_some_and(|told| told != first) {
        return Err(format!("all or nothing: a transaction ends in another way than was told: {txn:?}"));
    }
    Ok(())
}

/// Nothing is open any more.
pub fn check_at_rest(ledger: &Ledger) -> Result<(), Broken> {
    for txn in ledger.txns.iter().filter(|txn| txn.told == Some(TxnResult::Commit)) {
        let missing = txn.acknowledged.values().find(|id| txn.fates.get(id) != Some(&TxnResult::Commit));
        if let Some(id) = missing {
            return Err(format!("all or nothing: what was committed is not in {id:?}: {txn:?}"));
        }
    }
    Ok(())
}
