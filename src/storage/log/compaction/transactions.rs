//! Which transactions a walk through a log is in, as far as compaction must know: whose records may go, and which markers
//! are still needed. Must not know files.
//!
//! Invariant: a marker is needed while a batch of its transaction is left, and only aborted transactions of which a batch is
//! left belong into the index.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::txn_index::AbortedTxn;
use crate::types::{Offset, ProducerId};
use crate::wire::batch::BatchHeader;
use crate::wire::control::{ControlError, ControlKind};

/// The transactions at the place that the walk has reached.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    /// Aborted ones whose first batch lies ahead.
    ahead: BTreeMap<(Offset, ProducerId), AbortedTxn>,
    aborted: HashMap<ProducerId, Aborted>,
    /// Those that the walk has met a batch of and that are not known to be aborted.
    others: HashSet<ProducerId>,
}

#[derive(Debug)]
struct Aborted {
    txn: AbortedTxn,
    has_batches: bool,
}

/// What is to be done about a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marker {
    /// Nothing is left of its transaction.
    pub is_needless: bool,
    /// The transaction must be in the index, for some of it is left.
    pub aborted: Option<AbortedTxn>,
}

impl Marker {
    const NEEDED: Marker = Marker { is_needless: false, aborted: None };
    const NEEDLESS: Marker = Marker { is_needless: true, aborted: None };
}

impl Transactions {
    /// Makes aborted transactions of the part ahead known; again if they were known.
    pub fn add(&mut self, aborted: Vec<AbortedTxn>) {
        for txn in aborted {
            self.ahead.insert((txn.first_offset, txn.producer_id), txn);
        }
    }

    /// Walks over a batch of records. `true` when its transaction was aborted.
    pub fn pass_records(&mut self, header: &BatchHeader) -> bool {
        self.reach(header.last_offset());
        if !header.is_transactional() {
            return false;
        }
        match self.aborted.get_mut(&header.producer_id) {
            Some(aborted) => {
                aborted.has_batches = true;
                true
            }
            None => {
                self.others.insert(header.producer_id);
                false
            }
        }
    }

    /// Walks over a control batch, whose first record has this key; `None` when it has no records any more.
    pub fn pass_control(
        &mut self,
        header: &BatchHeader,
        key: Option<Option<&[u8]>>,
    ) -> Result<Marker, ControlError> {
        self.reach(header.last_offset());
        let Some(key) = key else { return Ok(Marker::NEEDLESS) };
        Ok(match ControlKind::of_key(key)? {
            ControlKind::Abort => match self.aborted.remove(&header.producer_id) {
                Some(Aborted { txn, has_batches: true }) => Marker { aborted: Some(txn), ..Marker::NEEDED },
                _ => Marker::NEEDLESS,
            },
            ControlKind::Commit if self.others.remove(&header.producer_id) => Marker::NEEDED,
            ControlKind::Commit => Marker::NEEDLESS,
            _ => Marker::NEEDED,
        })
    }

    fn reach(&mut self, offset: Offset) {
        while let Some(next) = self.ahead.first_entry().filter(|next| next.key().0 <= offset) {
            let txn = next.remove();
            self.aborted.entry(txn.producer_id).or_insert(Aborted { txn, has_batches: false });
        }
    }
}
