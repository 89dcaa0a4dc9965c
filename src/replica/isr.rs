//! The in-sync set: what the controller has committed, and the one change that may be under way.
//!
//! Knows no offsets. Invariant: whatever the controller makes of the pending change, the set that it commits is
//! contained in the maximal set, so that a high watermark that counts the maximal set is safe either way (KIP-497).

use crate::fault::{self, Fault};
use crate::types::{MonotonicMs, NodeId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IsrState {
    Committed(Vec<NodeId>),
    PendingExpand { committed: Vec<NodeId>, joining: NodeId, retry_at: Option<MonotonicMs> },
    PendingShrink { committed: Vec<NodeId>, leaving: Vec<NodeId>, retry_at: Option<MonotonicMs> },
}

impl IsrState {
    /// The set that the controller is known to have committed.
    pub fn committed(&self) -> &[NodeId] {
        match self {
            IsrState::Committed(committed)
            | IsrState::PendingExpand { committed, .. }
            | IsrState::PendingShrink { committed, .. } => committed,
        }
    }

    /// Whether the node is in the committed set or would be after the pending change.
    pub fn may_contain(&self, node: NodeId) -> bool {
        match self {
            IsrState::PendingExpand { committed, joining, .. } => {
                *joining == node || committed.contains(&node)
            }
            IsrState::PendingShrink { leaving, .. } if fault::is_active(Fault::LosesIsrShrink) => {
                self.committed().contains(&node) && !leaving.contains(&node)
            }
            _ => self.committed().contains(&node),
        }
    }

    /// The size of the maximal set.
    pub fn maximal_len(&self) -> usize {
        let joining = usize::from(matches!(self, IsrState::PendingExpand { .. }));
        self.committed().len() + joining
    }

    pub fn is_pending(&self) -> bool {
        !matches!(self, IsrState::Committed(_))
    }

    /// The set as it is after the pending change.
    pub(super) fn proposed(&self) -> Vec<NodeId> {
        let mut isr = self.committed().to_vec();
        match self {
            IsrState::Committed(_) => {}
            IsrState::PendingExpand { joining, .. } => isr.push(*joining),
            IsrState::PendingShrink { leaving, .. } => isr.retain(|node| !leaving.contains(node)),
        }
        isr
    }

    /// The change was certainly not applied: back to the committed set.
    pub(super) fn revert(&mut self) {
        *self = IsrState::Committed(self.committed().to_vec());
    }

    /// When to propose the pending change again, if its outcome is unknown.
    pub(super) fn retry_at(&self) -> Option<MonotonicMs> {
        match self {
            IsrState::Committed(_) => None,
            IsrState::PendingExpand { retry_at, .. } | IsrState::PendingShrink { retry_at, .. } => *retry_at,
        }
    }

    pub(super) fn set_retry_at(&mut self, at: Option<MonotonicMs>) {
        match self {
            IsrState::Committed(_) => {}
            IsrState::PendingExpand { retry_at, .. } | IsrState::PendingShrink { retry_at, .. } => {
                *retry_at = at;
            }
        }
    }
}
