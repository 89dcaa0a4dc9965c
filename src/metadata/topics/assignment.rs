//! New partitions: checks an assignment that a client made, or places replicas, and makes the partitions that come of it.

use super::partition::{LeaderRecoveryState, PartitionRegistration};
use crate::metadata::Image;
use crate::metadata::brokers::BrokerRegistration;
use crate::metadata::placement::{self, PlacementError};
use crate::types::{LeaderEpoch, NodeId, PartitionEpoch, PartitionIndex};
use std::collections::BTreeSet;

/// The most partitions that one operation creates.
pub const MAX_PARTITIONS_PER_OPERATION: usize = 10_000;

/// What is wrong with the replicas that a client assigned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignmentError {
    #[error("the assignment of partition {0} has no replicas")]
    Empty(PartitionIndex),
    #[error("broker {0} in the assignment is not registered")]
    UnknownBroker(NodeId),
    #[error("broker {0} in the assignment has all its log directories cordoned")]
    CordonedBroker(NodeId),
    #[error("broker {0} comes more than once in the assignment of a partition")]
    DuplicateBroker(NodeId),
    #[error("a partition is assigned {actual} replicas where other partitions have {expected}")]
    InconsistentReplicationFactor { expected: usize, actual: usize },
    #[error("all brokers assigned to partition {0} are fenced or in controlled shutdown")]
    NoActiveBroker(PartitionIndex),
}

/// Why replicas cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unable to replicate a partition {replication_factor} time(s): {reason}")]
pub struct ReplicationError {
    pub replication_factor: i16,
    pub reason: PlacementError,
}

/// Checks the replicas that a client chose: different brokers that are registered and take new partitions.
pub(in crate::metadata) fn check_assigned(
    image: &Image,
    index: PartitionIndex,
    replicas: &[NodeId],
) -> Result<(), AssignmentError> {
    if replicas.is_empty() {
        return Err(AssignmentError::Empty(index));
    }
    // In order of the ids, so that the first offender is the same whatever order they were given in.
    let mut sorted = replicas.to_vec();
    sorted.sort_unstable();
    let mut seen = BTreeSet::new();
    for id in sorted {
        let broker = image.brokers.get(id).ok_or(AssignmentError::UnknownBroker(id))?;
        if !broker.takes_new_partitions() {
            return Err(AssignmentError::CordonedBroker(id));
        }
        if !seen.insert(id) {
            return Err(AssignmentError::DuplicateBroker(id));
        }
    }
    Ok(())
}

/// A partition with the replicas that a client chose.
pub(super) fn assigned(
    image: &Image,
    index: PartitionIndex,
    replicas: &[NodeId],
    replication_factor: Option<usize>,
) -> Result<PartitionRegistration, AssignmentError> {
    check_assigned(image, index, replicas)?;
    match replication_factor {
        Some(expected) if expected != replicas.len() => {
            Err(AssignmentError::InconsistentReplicationFactor { expected, actual: replicas.len() })
        }
        _ => new_partition(image, replicas.to_vec()).ok_or(AssignmentError::NoActiveBroker(index)),
    }
}

/// Partitions with replicas that we choose.
pub(super) fn placed(
    image: &Image,
    count: usize,
    replication_factor: i16,
    seed: u64,
) -> Result<Vec<PartitionRegistration>, ReplicationError> {
    let refused = |reason| ReplicationError { replication_factor, reason };
    let placements = placement::place(&image.brokers, count, replication_factor, seed).map_err(refused)?;
    placements
        .into_iter()
        .map(|replicas| new_partition(image, replicas).ok_or_else(|| refused(PlacementError::NoLiveBroker)))
        .collect()
}

/// A partition at its beginning: led by the first of its replicas that lives; none if all are dead.
fn new_partition(image: &Image, replicas: Vec<NodeId>) -> Option<PartitionRegistration> {
    let isr: Vec<NodeId> = replicas.iter().copied().filter(|id| image.brokers.is_active(*id)).collect();
    let directory = |id: &NodeId| image.brokers.get(*id).map(BrokerRegistration::directory_for_new_replica);
    Some(PartitionRegistration {
        directories: replicas.iter().filter_map(directory).collect(),
        leader: *isr.first()?,
        replicas,
        isr,
        removing: Vec::new(),
        adding: Vec::new(),
        elr: Vec::new(),
        last_known_elr: Vec::new(),
        leader_recovery_state: LeaderRecoveryState::Recovered,
        lossy_epoch: LeaderEpoch::UNKNOWN,
        leader_epoch: LeaderEpoch::ZERO,
        partition_epoch: PartitionEpoch(0),
    })
}
