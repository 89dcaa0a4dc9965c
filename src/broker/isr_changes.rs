//! Carries the in-sync sets that leaders want to the active controller, and what became of them back to their shards.
//!
//! Decides nothing. Invariants: one request is under way at a time, with all that has gathered; every proposal gets an
//! outcome, if only that it is not known, which has its leader propose again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::controller_channel::{AlterCallError, ControllerChannel};
use super::messages::{IsrAltered, IsrProposal};
use super::partitions::Partitions;
use crate::metadata::alter_partition::ProposedIsr;
use crate::metadata::topics::LeaderRecoveryState;
use crate::replica::AlterOutcome;
use crate::types::{BrokerEpoch, NodeId, TopicIdPartition};

/// How long one request may take. A controller that dies is noticed sooner, by its connection.
const CALL_LIMIT: Duration = Duration::from_secs(3);
/// So many proposals go into one request.
const BATCH_MAX: usize = 2_000;

/// Whose proposals these are, and where they go.
#[derive(Clone)]
pub struct IsrChanges {
    pub me: NodeId,
    /// The epoch of this broker's registration as it is now.
    pub epoch: Arc<dyn Fn() -> BrokerEpoch + Send + Sync>,
    pub controller: ControllerChannel,
    pub partitions: Partitions,
}

impl IsrChanges {
    /// Runs for as long as the shards live.
    pub async fn run(self, mut proposals: mpsc::UnboundedReceiver<Vec<IsrProposal>>) {
        let mut gathered: Vec<IsrProposal> = Vec::new();
        loop {
            if gathered.is_empty() {
                let Some(more) = proposals.recv().await else { return };
                gathered.extend(more);
            }
            while let Ok(more) = proposals.try_recv() {
                gathered.extend(more);
            }
            let later = gathered.split_off(gathered.len().min(BATCH_MAX));
            let now = std::mem::replace(&mut gathered, later);
            let altered = self.carry(now).await;
            self.partitions.isr_altered(altered);
        }
    }

    async fn carry(&self, proposals: Vec<IsrProposal>) -> Vec<IsrAltered> {
        let asked: Vec<ProposedIsr> = proposals.iter().map(proposed).collect();
        let answer = self.controller.alter_partitions(self.me, (self.epoch)(), &asked, CALL_LIMIT).await;
        let mut outcomes: HashMap<TopicIdPartition, AlterOutcome> = match answer {
            Ok(outcomes) => outcomes.into_iter().collect(),
            Err(error @ (AlterCallError::Unavailable(_) | AlterCallError::Stale)) => {
                tracing::debug!("in-sync sets of {} partitions are not altered yet: {error}", asked.len());
                HashMap::new()
            }
        };
        proposals
            .into_iter()
            .map(|IsrProposal { id, alter }| {
                let outcome = outcomes.remove(&id).unwrap_or(AlterOutcome::Unknown);
                IsrAltered { id, proposed_at: alter.partition_epoch, outcome }
            })
            .collect()
    }
}

fn proposed(proposal: &IsrProposal) -> ProposedIsr {
    let IsrProposal { id, alter } = proposal;
    ProposedIsr {
        partition: *id,
        leader_epoch: alter.leader_epoch,
        partition_epoch: alter.partition_epoch,
        isr: alter.isr.clone(),
        // A leader leads with the log that it has: there is nothing that it would recover first.
        recovery_state: LeaderRecoveryState::Recovered,
    }
}
