//! What a voter knows of its leader's life: when it was heard last, and whether it is known to have crashed or to be deaf.
//!
//! Knows no messages. Invariants: a leader is called crashed only when its connection has broken and nobody took a new one,
//! and deaf only when it has answered nothing for as long as a silent one is waited for.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::controller::raft_types::RaftNodeId;

/// An election that began so recently is let go on before the next one.
const ELECTION: Duration = Duration::from_millis(250);
/// How long a question waits for the check of a connection that has just broken.
const CHECK_LIMIT: Duration = Duration::from_millis(300);

/// Whether the leader is there, as its connection tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing speaks against it.
    #[default]
    Unknown,
    /// The connection has broken and is dialled again.
    Checking,
    /// Nobody listens where this node did.
    Crashed(RaftNodeId),
    /// This node may still speak, but nothing that is said to it is answered: who cannot be called leads nobody.
    Deaf(RaftNodeId),
}

impl Verdict {
    /// Whether a leader must be replaced, however well it is heard.
    pub fn is_against(self, node: RaftNodeId) -> bool {
        matches!(self, Verdict::Crashed(judged) | Verdict::Deaf(judged) if judged == node)
    }
}

/// The pulse of the leader.
#[derive(Debug)]
pub struct Pulse {
    heard: Mutex<Option<Instant>>,
    /// Who stands for election, as far as this node has a part in it, and since when.
    candidate: Mutex<Option<(RaftNodeId, Instant)>>,
    verdict: watch::Sender<Verdict>,
}

impl Default for Pulse {
    fn default() -> Pulse {
        Pulse {
            heard: Mutex::new(None),
            candidate: Mutex::new(None),
            verdict: watch::Sender::new(Verdict::Unknown),
        }
    }
}

impl Pulse {
    /// A leader has spoken, so it lives.
    pub fn heard(&self) {
        *lock(&self.heard) = Some(Instant::now());
    }

    /// A node stands for election: this one, or one that has its vote.
    pub fn stands(&self, candidate: RaftNodeId) {
        *lock(&self.candidate) = Some((candidate, Instant::now()));
    }

    /// Whether an election of another than `node` is under way.
    pub fn elects_other_than(&self, node: RaftNodeId) -> bool {
        let candidate = *lock(&self.candidate);
        candidate.is_some_and(|(candidate, since)| candidate != node && since.elapsed() < ELECTION)
    }

    /// When a leader spoke last.
    pub fn last_heard(&self) -> Option<Instant> {
        *lock(&self.heard)
    }

    pub fn judge(&self, verdict: Verdict) {
        self.verdict.send_if_modified(|current| std::mem::replace(current, verdict) != verdict);
    }

    pub fn verdicts(&self) -> watch::Receiver<Verdict> {
        self.verdict.subscribe()
    }

    /// Whether this node is known to have crashed or to be deaf; a check that is under way is waited for.
    pub async fn is_against(&self, node: RaftNodeId) -> bool {
        let mut verdicts = self.verdicts();
        let settled = verdicts.wait_for(|verdict| *verdict != Verdict::Checking);
        match tokio::time::timeout(CHECK_LIMIT, settled).await {
            Ok(Ok(verdict)) => verdict.is_against(node),
            Ok(Err(_)) | Err(_) => false,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
