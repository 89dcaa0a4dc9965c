//! AlterPartition: a leader asks for another in-sync set, or tells that it has recovered. It owns what of a leader's word
//! is believed: the leader of now, with the epochs of now, and in-sync members that are replicas on brokers that live,
//! in the incarnation that the leader saw (KIP-903). A change may complete a reassignment and so cost the asker its
//! office. Invariant: a refused proposal changes nothing.

use super::brokers::{BrokerEpochError, check_epoch};
use super::election::ElectionDefaults;
use super::partition_change::PartitionChange;
use super::topics::{LeaderRecoveryState, PartitionRegistration};
use super::{Decision, Draft, Image, Record};
use crate::types::{BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch, TopicIdPartition, directory_id};
use std::collections::BTreeSet;

/// What a leader wants a partition to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedIsr {
    pub partition: TopicIdPartition,
    /// The epochs of the state that the leader knows.
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    /// With the epoch in which each broker was seen; unknown where the leader cannot tell.
    pub isr: Vec<(NodeId, BrokerEpoch)>,
    pub recovery_state: LeaderRecoveryState,
}

/// The partition's state after a change, or after a proposal that changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlteredPartition {
    pub leader: NodeId,
    pub leader_epoch: LeaderEpoch,
    pub isr: Vec<NodeId>,
    pub recovery_state: LeaderRecoveryState,
    pub partition_epoch: PartitionEpoch,
}

/// Why a broker must not be in an ISR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ineligible {
    #[error("not registered")]
    NotRegistered,
    #[error("in controlled shutdown")]
    ShuttingDown,
    #[error("fenced")]
    Fenced,
    #[error("given up because it was damaged, and not whole yet")]
    Lost,
    #[error("in a log directory that has failed")]
    DirectoryOffline,
    #[error("of epoch {current}, not {given}")]
    OtherEpoch { given: BrokerEpoch, current: BrokerEpoch },
}

/// Why a proposal is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlterPartitionError {
    #[error("no topic has this id")]
    UnknownTopic,
    #[error("the topic has no such partition")]
    UnknownPartition,
    /// The leader knows a later state than this controller, which must have lost its office.
    #[error(
        "leader epoch {leader_epoch} or partition epoch {partition_epoch} is newer than what is known here"
    )]
    NewerEpoch { leader_epoch: LeaderEpoch, partition_epoch: PartitionEpoch },
    #[error("the leader epoch is {0}")]
    FencedLeaderEpoch(LeaderEpoch),
    #[error("the leader is {0}")]
    NotLeader(NodeId),
    #[error("the partition epoch is {0}")]
    StalePartitionEpoch(PartitionEpoch),
    #[error("{0} is no replica, or in the ISR more than once")]
    InvalidMember(NodeId),
    #[error("the ISR is without the leader")]
    WithoutLeader,
    #[error("a leader that has to recover is in sync with nobody")]
    RecoveringWithOthers,
    #[error("a leader that has recovered does not recover again")]
    RecoversAgain,
    #[error("broker {broker} cannot be in the ISR: it is {reason}")]
    IneligibleReplica { broker: NodeId, reason: Ineligible },
    /// The proposal has been carried out, and with it the leader changed.
    #[error("the partition has a new leader")]
    NewLeaderElected,
}

/// The outcome of each proposal, in the order of the request.
pub type AlterPartitionReply =
    Result<Vec<(TopicIdPartition, Result<AlteredPartition, AlterPartitionError>)>, BrokerEpochError>;

/// Judges the proposals of the broker `leader` and carries them out.
pub fn alter_partition(
    image: &Image,
    leader: NodeId,
    broker_epoch: BrokerEpoch,
    proposals: &[ProposedIsr],
    defaults: ElectionDefaults,
) -> Decision<AlterPartitionReply> {
    if let Err(error) = check_epoch(image, leader, broker_epoch) {
        return Decision::reply(Err(error));
    }
    let mut draft = Draft::new(image);
    let mut outcomes = Vec::with_capacity(proposals.len());
    for proposal in proposals {
        let outcome = change(&draft.image, leader, proposal, defaults).and_then(|record| {
            if let Some(record) = record {
                draft.add(record);
            }
            state_after(&draft.image, leader, proposal)
        });
        outcomes.push((proposal.partition, outcome));
    }
    draft.decision(Ok(outcomes))
}

fn change(
    image: &Image,
    leader: NodeId,
    proposal: &ProposedIsr,
    defaults: ElectionDefaults,
) -> Result<Option<Record>, AlterPartitionError> {
    let TopicIdPartition { topic_id, partition: index } = proposal.partition;
    let topic = image.topics.by_id(topic_id).ok_or(AlterPartitionError::UnknownTopic)?;
    let partition = topic.partition(index).ok_or(AlterPartitionError::UnknownPartition)?;
    check_asker(partition, leader, proposal)?;
    check_isr(partition, leader, proposal)?;
    for &(broker, epoch) in &proposal.isr {
        let reason = ineligible(image, broker, epoch).or_else(|| out_of_reach(image, partition, broker));
        if let Some(reason) = reason {
            return Err(AlterPartitionError::IneligibleReplica { broker, reason });
        }
    }
    let isr = proposal.isr.iter().map(|(broker, _)| *broker).collect();
    let change = PartitionChange::new(image, topic, index, partition, defaults)
        .unclean_if_allowed()
        .isr(isr)
        .recovery(proposal.recovery_state);
    Ok(change.record())
}

/// Whether it is the leader who asks, and knows the state that it wants changed.
fn check_asker(
    partition: &PartitionRegistration,
    leader: NodeId,
    proposal: &ProposedIsr,
) -> Result<(), AlterPartitionError> {
    let ProposedIsr { leader_epoch, partition_epoch, .. } = *proposal;
    if leader_epoch > partition.leader_epoch || partition_epoch > partition.partition_epoch {
        Err(AlterPartitionError::NewerEpoch { leader_epoch, partition_epoch })
    } else if leader_epoch < partition.leader_epoch {
        Err(AlterPartitionError::FencedLeaderEpoch(partition.leader_epoch))
    } else if leader != partition.leader {
        Err(AlterPartitionError::NotLeader(partition.leader))
    } else if partition_epoch < partition.partition_epoch {
        Err(AlterPartitionError::StalePartitionEpoch(partition.partition_epoch))
    } else {
        Ok(())
    }
}

fn check_isr(
    partition: &PartitionRegistration,
    leader: NodeId,
    proposal: &ProposedIsr,
) -> Result<(), AlterPartitionError> {
    let mut seen = BTreeSet::new();
    let mut members = proposal.isr.iter().map(|(broker, _)| *broker);
    if let Some(broker) = members.find(|broker| !partition.has_replica(*broker) || !seen.insert(*broker)) {
        return Err(AlterPartitionError::InvalidMember(broker));
    }
    if !seen.contains(&leader) {
        return Err(AlterPartitionError::WithoutLeader);
    }
    match (partition.leader_recovery_state, proposal.recovery_state) {
        (_, LeaderRecoveryState::Recovering) if seen.len() > 1 => {
            Err(AlterPartitionError::RecoveringWithOthers)
        }
        (LeaderRecoveryState::Recovered, LeaderRecoveryState::Recovering) => {
            Err(AlterPartitionError::RecoversAgain)
        }
        _ => Ok(()),
    }
}

/// Why the broker has not got the replica, although it runs. Its leader may not know yet, and remember how far it had come.
fn out_of_reach(image: &Image, partition: &PartitionRegistration, broker: NodeId) -> Option<Ineligible> {
    let directory = partition.directory(broker)?;
    if directory == directory_id::LOST {
        return Some(Ineligible::Lost);
    }
    let is_online = image.brokers.get(broker)?.has_online(directory);
    (!is_online).then_some(Ineligible::DirectoryOffline)
}

fn ineligible(image: &Image, broker: NodeId, epoch: BrokerEpoch) -> Option<Ineligible> {
    let Some(registration) = image.brokers.get(broker) else { return Some(Ineligible::NotRegistered) };
    if registration.in_controlled_shutdown {
        Some(Ineligible::ShuttingDown)
    } else if registration.fenced {
        Some(Ineligible::Fenced)
    } else if epoch != BrokerEpoch::UNKNOWN && epoch != registration.epoch {
        Some(Ineligible::OtherEpoch { given: epoch, current: registration.epoch })
    } else {
        None
    }
}

fn state_after(
    image: &Image,
    leader: NodeId,
    proposal: &ProposedIsr,
) -> Result<AlteredPartition, AlterPartitionError> {
    let TopicIdPartition { topic_id, partition } = proposal.partition;
    let partition =
        image.topics.partition(topic_id, partition).ok_or(AlterPartitionError::UnknownPartition)?;
    if partition.leader != leader {
        return Err(AlterPartitionError::NewLeaderElected);
    }
    Ok(AlteredPartition {
        leader: partition.leader,
        leader_epoch: partition.leader_epoch,
        isr: partition.isr.clone(),
        recovery_state: partition.leader_recovery_state,
        partition_epoch: partition.partition_epoch,
    })
}
