//! Replicas that were found to be damaged: the cluster is told to do without them, and that they are whole again once they have
//! their records anew. While the metadata has such a replica in no directory (`LOST`), it is in no in-sync set and cannot lead;
//! its shard rebuilds it from the leader (`damaged`).
//!
//! Must not know logs. Invariant: a replica that nobody can take the place of is never given up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::lifecycle::Lifecycle;
use crate::metadata::Image;
use crate::metadata::topics::can_do_without;
use crate::types::{DirectoryId, NodeId, TopicIdPartition, directory_id};

/// How long it takes until what could not be told is told again.
const RETRY: Duration = Duration::from_secs(1);

/// What a shard has to tell of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    Damaged(TopicIdPartition),
    /// What was damaged is cut off.
    Begun(TopicIdPartition),
    /// It has what is committed, in the log directory with this id.
    Rebuilt(TopicIdPartition, DirectoryId),
}

/// What the cluster is to be told now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Due {
    pub give_up: Vec<TopicIdPartition>,
    pub take_back: Vec<(TopicIdPartition, DirectoryId)>,
}

/// What is to be repaired.
#[derive(Debug, Default)]
pub struct Repairs {
    open: BTreeMap<TopicIdPartition, State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    is_damaged: bool,
    rebuilt_in: Option<DirectoryId>,
}

impl Repairs {
    pub fn note(&mut self, repair: Repair) {
        match repair {
            Repair::Damaged(id) => self.open.entry(id).or_default().is_damaged = true,
            Repair::Begun(id) => drop(self.open.remove(&id)),
            // Whatever damage was known before is gone with what was cut.
            Repair::Rebuilt(id, directory) => {
                let rebuilt_in = Some(directory);
                self.open.insert(id, State { is_damaged: false, rebuilt_in });
            }
        }
    }

    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// The cluster does without these from now on.
    pub fn given_up(&mut self, ids: &[TopicIdPartition]) {
        for id in ids {
            if let Some(state) = self.open.get_mut(id) {
                state.is_damaged = false;
            }
        }
    }

    /// What the broker `me` is to tell by this image.
    pub fn due(&mut self, me: NodeId, image: &Image) -> Due {
        let mut due = Due::default();
        self.open.retain(|id, state| {
            let partition = image.topics.partition(id.topic_id, id.partition);
            let Some(partition) = partition.filter(|partition| partition.has_replica(me)) else {
                return false;
            };
            let is_lost = partition.directory(me) == Some(directory_id::LOST);
            // One that leads because nobody else was left is in none that is known.
            let is_nowhere = is_lost || partition.directory(me) == Some(directory_id::UNASSIGNED);
            match state.rebuilt_in {
                Some(directory) if is_nowhere => due.take_back.push((*id, directory)),
                _ => state.rebuilt_in = None,
            }
            if state.is_damaged && !is_lost && can_do_without(image, me, partition) {
                due.give_up.push(*id);
            }
            state.is_damaged || state.rebuilt_in.is_some()
        });
        due
    }
}

/// Tells the cluster what shards have to tell, for as long as they live.
pub async fn run(
    me: NodeId,
    lifecycle: Lifecycle,
    mut images: watch::Receiver<Arc<Image>>,
    mut heard: mpsc::UnboundedReceiver<Repair>,
) {
    let (mut repairs, mut has_failed) = (Repairs::default(), false);
    loop {
        tokio::select! {
            repair = heard.recv() => {
                let Some(repair) = repair else { return };
                repairs.note(repair);
            }
            changed = images.changed(), if !repairs.is_idle() => {
                if changed.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(RETRY), if has_failed => {}
        }
        while let Ok(repair) = heard.try_recv() {
            repairs.note(repair);
        }
        let image = images.borrow_and_update().clone();
        has_failed = !tell(&mut repairs, me, &image, &lifecycle).await;
    }
}

/// `false`: something was not told.
async fn tell(repairs: &mut Repairs, me: NodeId, image: &Image, lifecycle: &Lifecycle) -> bool {
    let Due { give_up, take_back } = repairs.due(me, image);
    let mut is_told = true;
    if !take_back.is_empty()
        && let Err(error) = lifecycle.report_placement(take_back).await
    {
        tracing::warn!("Could not report that replicas are whole again: {error}");
        is_told = false;
    }
    if !give_up.is_empty() {
        match lifecycle.give_up(give_up).await {
            Ok(given_up) => repairs.given_up(&given_up),
            Err(error) => {
                tracing::warn!("Could not give up damaged replicas: {error}");
                is_told = false;
            }
        }
    }
    is_told
}

#[cfg(test)]
mod tests;
