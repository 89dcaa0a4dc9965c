//! Who follows the log without a vote: a node that polls is taken in, and one that has long gone is let go.
//!
//! Knows no messages. Invariant: no voter is touched here; a learner whose metadata directory has changed starts anew, for
//! its log is not the one that the leader knew.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use openraft::ChangeMembers;
use openraft::error::{ClientWriteError, RaftError};

use crate::controller::observers::Observers;
use crate::controller::quorum::QuorumView;
use crate::controller::raft_types::{Member, Raft, RaftNodeId, node_id, raft_id};
use crate::controller::state_machine::Published;
use crate::types::{DirectoryId, NodeId};

/// How often the leader looks for learners that have gone.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// One that is registered with the cluster is kept for so long without a poll, as in Kafka; it is likely to come back.
const KEEP_REGISTERED: Duration = Duration::from_secs(300);
/// One that is not, for so long.
const KEEP_OTHERS: Duration = Duration::from_secs(10);

/// How often a change that meets another one is tried again before the next poll does it.
const ADMIT_ATTEMPTS: u32 = 20;
const ADMIT_PAUSE: Duration = Duration::from_millis(20);

/// Takes learners in and lets them go; cheap to clone.
#[derive(Clone)]
pub struct Learners {
    raft: Raft,
    view: QuorumView,
    observers: Arc<Observers>,
    published: Arc<Published>,
    /// Those whose change is under way.
    changing: Arc<Mutex<HashSet<NodeId>>>,
}

impl Learners {
    pub fn new(
        raft: Raft,
        view: QuorumView,
        observers: Arc<Observers>,
        published: Arc<Published>,
    ) -> Learners {
        Learners { raft, view, observers, published, changing: Arc::default() }
    }

    /// Makes a node a learner, if it is not one. The change goes on after this returns.
    pub fn admit(&self, node: NodeId, directory: DirectoryId) {
        let known = self.view.member(node);
        if known.as_ref().is_some_and(|member| member.directory_id == directory) || !self.lock().insert(node)
        {
            return;
        }
        let learners = self.clone();
        tokio::spawn(async move {
            let id = raft_id(node);
            // Other members may be coming at the same time, and one change is made after the other.
            for _ in 0..ADMIT_ATTEMPTS {
                match learners.take_in(id, known.is_some(), directory).await {
                    Ok(()) => {
                        tracing::info!("Node {node} follows the metadata log");
                        break;
                    }
                    Err(error) => tracing::debug!(%node, %error, "a learner was not taken in"),
                }
                if !learners.view.is_leader() {
                    break;
                }
                tokio::time::sleep(ADMIT_PAUSE).await;
            }
            learners.lock().remove(&node);
        });
    }

    async fn take_in(
        &self,
        id: RaftNodeId,
        is_known: bool,
        directory: DirectoryId,
    ) -> Result<(), RaftError<RaftNodeId, ClientWriteError<RaftNodeId, Member>>> {
        if is_known {
            let removed = ChangeMembers::RemoveNodes(BTreeSet::from([id]));
            self.raft.change_membership(removed, true).await?;
        }
        let member = Member { directory_id: directory, endpoints: Vec::new() };
        self.raft.add_learner(id, member, false).await.map(drop)
    }

    /// Lets go of learners that have gone, as long as the member runs.
    pub async fn tidy(self) {
        loop {
            let mut metrics = self.view.metrics();
            let leads = metrics.wait_for(|metrics| metrics.state.is_leader() && has_learners(metrics));
            if leads.await.is_err() {
                return;
            }
            // Whom a new leader has not heard of may not have had the time.
            let since = Instant::now();
            while self.view.is_leader() && has_learners(&metrics.borrow_and_update()) {
                tokio::time::sleep(LOOK_INTERVAL).await;
                self.remove_gone(since, Instant::now()).await;
            }
        }
    }

    /// Lets go of those that have not polled for too long at `now`. One that has never polled counts from `since`.
    pub(super) async fn remove_gone(&self, since: Instant, now: Instant) {
        let image = self.published.image();
        let learners: Vec<NodeId> = {
            let metrics = self.view.metrics();
            let metrics = metrics.borrow();
            metrics.membership_config.membership().learner_ids().map(node_id).collect()
        };
        let has_gone = |node: &NodeId| {
            let registered = image.brokers.get(*node).is_some() || image.controllers.get(*node).is_some();
            let keep = if registered { KEEP_REGISTERED } else { KEEP_OTHERS };
            now.saturating_duration_since(self.observers.last_poll(*node).unwrap_or(since)) > keep
        };
        for node in learners.into_iter().filter(has_gone) {
            let removed = ChangeMembers::RemoveNodes(BTreeSet::from([raft_id(node)]));
            if self.raft.change_membership(removed, true).await.is_ok() {
                tracing::info!("Node {node} has gone and follows the metadata log no more");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<NodeId>> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn has_learners(metrics: &crate::controller::quorum::Metrics) -> bool {
    metrics.membership_config.membership().learner_ids().next().is_some()
}
