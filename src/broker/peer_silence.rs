//! For which other brokers this one waits in vain, and since when. Whoever fetches from a broker, or is fetched from, says so
//! here; heartbeats carry it to the active controller, which takes it for one of the signs that a broker hangs.
//!
//! Knows nothing of what was asked. Invariant: any answer of a broker ends its silence. That it asks something itself does not:
//! a broker that can call may still be one that nobody can call.

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
    waiting: Arc<Mutex<BTreeMap<NodeId, Due>>>,
}

/// What is due from a broker, and since when.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    answer: Option<MonotonicMs>,
    fetch: Option<MonotonicMs>,
}

impl PeerSilence {
    /// An answer of this broker is due from now on. Each question says so, also when the one before has no answer yet.
    pub fn asked(&self, broker: NodeId, now: MonotonicMs) {
        self.lock().entry(broker).or_default().answer.get_or_insert(now);
    }

    /// The broker has answered, or nothing is due from it any more.
    pub fn answered(&self, broker: NodeId) {
        self.lock().remove(&broker);
    }

    /// This broker, which follows, has its answer, and is expected to fetch again.
    pub fn served(&self, broker: NodeId, now: MonotonicMs) {
        self.lock().entry(broker).or_default().fetch.get_or_insert(now);
    }

    /// The broker fetches.
    pub fn fetches(&self, broker: NodeId) {
        if let Some(due) = self.lock().get_mut(&broker) {
            due.fetch = None;
        }
    }

    /// Whom this broker waits for in vain, and for how many milliseconds.
    pub fn silent(&self, now: MonotonicMs) -> Vec<(NodeId, i64)> {
        let waiting = self.lock();
        let since = |due: &Due| due.answer.into_iter().chain(due.fetch).min();
        let silent = waiting.iter().filter_map(|(id, due)| Some((*id, now.since(since(due)?))));
        silent.filter(|(_, silent_ms)| *silent_ms >= WORTH_TELLING_MS).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Due>> {
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

    #[test]
    fn a_broker_that_asks_and_does_not_answer_is_silent() {
        let (silence, peer) = (PeerSilence::default(), NodeId(2));
        silence.asked(peer, MonotonicMs(0));
        silence.served(peer, MonotonicMs(100));
        silence.fetches(peer);
        assert_eq!(silence.silent(MonotonicMs(2_000)), [(peer, 2_000)]);
        silence.answered(peer);
        // A follower that does not come back is missed as well, until it comes or answers.
        for ends in [PeerSilence::fetches, PeerSilence::answered] {
            silence.served(peer, MonotonicMs(3_000));
            silence.served(peer, MonotonicMs(4_000));
            assert_eq!(silence.silent(MonotonicMs(5_000)), [(peer, 2_000)]);
            ends(&silence, peer);
            assert_eq!(silence.silent(MonotonicMs(9_000)), []);
        }
    }
}
