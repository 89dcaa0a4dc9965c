//! What a voter knows of its leader's life: when it was heard last, and whether it is known to have crashed.
//!
//! Knows no messages. Invariant: a leader is called crashed only when its connection has broken and nobody took a new one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::controller::raft_types::RaftNodeId;

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
}

/// The pulse of the leader.
#[derive(Debug)]
pub struct Pulse {
    heard: Mutex<Option<Instant>>,
    verdict: watch::Sender<Verdict>,
}

impl Default for Pulse {
    fn default() -> Pulse {
        Pulse { heard: Mutex::new(None), verdict: watch::Sender::new(Verdict::Unknown) }
    }
}

impl Pulse {
    /// A leader has spoken, so it lives.
    pub fn heard(&self) {
        *self.lock() = Some(Instant::now());
    }

    /// When a leader spoke last.
    pub fn last_heard(&self) -> Option<Instant> {
        *self.lock()
    }

    pub fn judge(&self, verdict: Verdict) {
        self.verdict.send_if_modified(|current| std::mem::replace(current, verdict) != verdict);
    }

    pub fn verdicts(&self) -> watch::Receiver<Verdict> {
        self.verdict.subscribe()
    }

    /// Whether this node is known to have crashed; a check that is under way is waited for.
    pub async fn has_crashed(&self, node: RaftNodeId) -> bool {
        let mut verdicts = self.verdicts();
        let settled = verdicts.wait_for(|verdict| *verdict != Verdict::Checking);
        match tokio::time::timeout(CHECK_LIMIT, settled).await {
            Ok(Ok(verdict)) => *verdict == Verdict::Crashed(node),
            Ok(Err(_)) | Err(_) => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
