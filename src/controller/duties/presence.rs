//! A broker's connection to the active controller, as long as it lasts. Its end is the first sign of a crash.

use std::sync::{Arc, Weak};

use super::Inner;
use crate::types::{BrokerEpoch, NodeId};

/// Kept for as long as a connection of a broker is open; dropped, it tells that the connection is gone.
#[derive(Debug)]
pub struct Presence {
    controller: Weak<Inner>,
    id: NodeId,
    epoch: BrokerEpoch,
    term: u64,
}

impl Presence {
    pub(super) fn new(inner: &Arc<Inner>, id: NodeId, epoch: BrokerEpoch) -> Option<Presence> {
        let term = inner.term_number()?;
        inner.with_liveness(|liveness, _| liveness.connected(id, epoch))?;
        Some(Presence { controller: Arc::downgrade(inner), id, epoch, term })
    }

    /// Whether this is what the controller that leads now would note of such a connection.
    pub fn is_of(&self, id: NodeId, epoch: BrokerEpoch) -> bool {
        let term = self.controller.upgrade().and_then(|inner| inner.term_number());
        (self.id, self.epoch) == (id, epoch) && term == Some(self.term)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let Some(inner) = self.controller.upgrade() else { return };
        if inner.term_number() == Some(self.term) {
            inner.with_liveness(|liveness, now| liveness.disconnected(self.id, self.epoch, now));
            inner.wake.notify_one();
        }
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}
