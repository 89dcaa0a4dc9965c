//! For which other brokers this one waits in vain, and since when. Whoever fetches from a broker, or is fetched from, says so
//! here; heartbeats carry it to the active controller, which takes it for one of the signs that a broker hangs.
//!
//! Knows nothing of what was asked. Invariant: any answer of a broker ends its silence.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::metadata::liveness::LONG_POLL_MS;
use crate::types::{MonotonicMs, NodeId};

/// Silence that is worth telling. A follower's fetch waits half a second for records by default.
const WORTH_TELLING_MS: i64 = 1_500;
const _: () = assert!(LONG_POLL_MS < WORTH_TELLING_MS);

/// Cheap to clone; all clones share what is known.
#[derive(Clone, Debug, Default)]
pub struct PeerSilence {
    waiting: Arc<Mutex<BTreeMap<NodeId, MonotonicMs>>>,
}

impl PeerSilence {
    /// An answer of this broker is due from now on. Each question says so, also when the one before has no answer yet.
    pub fn asked(&self, broker: NodeId, now: MonotonicMs) {
        self.lock().entry(broker).or_insert(now);
    }

    /// The broker has said something, or nothing is due from it any more.
    pub fn answered(&self, broker: NodeId) {
        self.lock().remove(&broker);
    }

    /// Whom this broker waits for in vain, and for how many milliseconds.
    pub fn silent(&self, now: MonotonicMs) -> Vec<(NodeId, i64)> {
        let waiting = self.lock();
        let silent = waiting.iter().map(|(id, since)| (*id, now.since(*since)));
        silent.filter(|(_, silent_ms)| *silent_ms >= WORTH_TELLING_MS).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, MonotonicMs>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_counts_from_the_first_question_without_an_answer() {
        let (silence, peer) = (PeerSilence::default(), NodeId(2));
        silence.asked(peer, MonotonicMs(100));
        silence.asked(peer, MonotonicMs(900));
        assert_eq!(silence.silent(MonotonicMs(1_599)), []);
        assert_eq!(silence.silent(MonotonicMs(1_600)), [(peer, 1_500)]);
        silence.answered(peer);
        assert_eq!(silence.silent(MonotonicMs(9_000)), []);
        silence.asked(peer, MonotonicMs(9_000));
        silence.asked(NodeId(3), MonotonicMs(10_000));
        assert_eq!(silence.silent(MonotonicMs(10_700)), [(peer, 1_700)]);
    }
}
