//! One partition: its replicas and their state, and how a change record changes it.

use crate::fault::{self, Fault};
use crate::metadata::features::MetadataVersion;
use crate::metadata::record::Record;
use crate::types::{DirectoryId, LeaderEpoch, NodeId, PartitionEpoch, PartitionIndex, TopicId, directory_id};
use crate::wire::messages::metadata::{PartitionChangeRecord, PartitionRecord};

/// Whether the leader still has to recover from having been elected outside the ISR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaderRecoveryState {
    #[default]
    Recovered,
    Recovering,
}

impl LeaderRecoveryState {
    pub fn from_code(code: i8) -> LeaderRecoveryState {
        if code == 1 { LeaderRecoveryState::Recovering } else { LeaderRecoveryState::Recovered }
    }

    pub fn code(self) -> i8 {
        match self {
            LeaderRecoveryState::Recovered => 0,
            LeaderRecoveryState::Recovering => 1,
        }
    }
}

/// A partition as the cluster knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionRegistration {
    /// The first is the preferred leader.
    pub replicas: Vec<NodeId>,
    /// The log directory of each replica, in the same order.
    pub directories: Vec<DirectoryId>,
    pub isr: Vec<NodeId>,
    /// Replicas that a reassignment takes away.
    pub removing: Vec<NodeId>,
    /// Replicas that a reassignment adds.
    pub adding: Vec<NodeId>,
    /// Replicas out of the ISR that hold everything below the high watermark (KIP-966).
    pub elr: Vec<NodeId>,
    /// Who was last eligible when nobody is any more.
    pub last_known_elr: Vec<NodeId>,
    /// `NodeId::NONE` when there is none.
    pub leader: NodeId,
    pub leader_recovery_state: LeaderRecoveryState,
    /// The epoch of the last leader that was elected uncleanly; `UNKNOWN` when none was. Who has nothing of it or of a later
    /// one may have more committed records than its leader, and must give them up.
    pub lossy_epoch: LeaderEpoch,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
}

fn nodes(ids: &[i32]) -> Vec<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

/// Node ids as records hold them.
pub(in crate::metadata) fn raw(ids: &[NodeId]) -> Vec<i32> {
    ids.iter().map(|id| id.0).collect()
}

/// Records from before directories had ids carry none.
fn directories_or_migrating(directories: Vec<DirectoryId>, replicas: usize) -> Vec<DirectoryId> {
    if directories.is_empty() { vec![directory_id::MIGRATING; replicas] } else { directories }
}

impl PartitionRegistration {
    /// The replica that leads when it can.
    pub fn preferred_leader(&self) -> NodeId {
        self.replicas.first().copied().unwrap_or(NodeId::NONE)
    }

    pub fn is_reassigning(&self) -> bool {
        !self.removing.is_empty() || !self.adding.is_empty()
    }

    pub fn has_leader(&self) -> bool {
        self.leader != NodeId::NONE
    }

    pub fn has_replica(&self, id: NodeId) -> bool {
        self.replicas.contains(&id)
    }

    /// The log directory of a replica.
    pub fn directory(&self, id: NodeId) -> Option<DirectoryId> {
        let position = self.replicas.iter().position(|replica| *replica == id)?;
        self.directories.get(position).copied()
    }

    pub(super) fn from_record(record: &PartitionRecord) -> PartitionRegistration {
        PartitionRegistration {
            replicas: nodes(&record.replicas),
            directories: directories_or_migrating(record.directories.clone(), record.replicas.len()),
            isr: nodes(&record.isr),
            removing: nodes(&record.removing_replicas),
            adding: nodes(&record.adding_replicas),
            elr: nodes(record.eligible_leader_replicas.as_deref().unwrap_or_default()),
            last_known_elr: nodes(record.last_known_elr.as_deref().unwrap_or_default()),
            leader: NodeId(record.leader),
            leader_recovery_state: LeaderRecoveryState::from_code(record.leader_recovery_state),
            lossy_epoch: LeaderEpoch(record.lossy_epoch),
            leader_epoch: LeaderEpoch(record.leader_epoch),
            partition_epoch: PartitionEpoch(record.partition_epoch),
        }
    }

    /// The record that creates this partition, with what `version` can say.
    pub(in crate::metadata) fn to_record(
        &self,
        topic_id: TopicId,
        index: PartitionIndex,
        version: MetadataVersion,
    ) -> Record {
        let mut record = PartitionRecord {
            partition_id: index.0,
            topic_id,
            replicas: raw(&self.replicas),
            isr: raw(&self.isr),
            removing_replicas: raw(&self.removing),
            adding_replicas: raw(&self.adding),
            leader: self.leader.0,
            leader_recovery_state: self.leader_recovery_state.code(),
            lossy_epoch: self.lossy_epoch.0,
            leader_epoch: self.leader_epoch.0,
            partition_epoch: self.partition_epoch.0,
            ..PartitionRecord::default()
        };
        if version.has_directories() {
            record.directories.clone_from(&self.directories);
        }
        if version.has_elr() {
            let unless_empty = |ids: &[NodeId]| (!ids.is_empty()).then(|| raw(ids));
            record.eligible_leader_replicas = unless_empty(&self.elr);
            record.last_known_elr = unless_empty(&self.last_known_elr);
        }
        record.into()
    }

    /// Takes over what a record changes. Naming a leader, be it the same one, begins a new leader epoch.
    pub(super) fn apply(&mut self, record: &PartitionChangeRecord) {
        let replace = |list: &mut Vec<NodeId>, new: &Option<Vec<i32>>| {
            if let Some(new) = new {
                *list = nodes(new);
            }
        };
        replace(&mut self.isr, &record.isr);
        replace(&mut self.removing, &record.removing_replicas);
        replace(&mut self.adding, &record.adding_replicas);
        replace(&mut self.elr, &record.eligible_leader_replicas);
        replace(&mut self.last_known_elr, &record.last_known_elr);
        replace(&mut self.replicas, &record.replicas);
        if let Some(directories) = &record.directories {
            self.directories = directories_or_migrating(directories.clone(), self.replicas.len());
        } else if self.directories.len() != self.replicas.len() {
            self.directories = vec![directory_id::MIGRATING; self.replicas.len()];
        }
        assert_eq!(self.directories.len(), self.replicas.len(), "every replica has one directory");
        if record.leader != PartitionChangeRecord::LEADER_AS_BEFORE {
            self.leader = NodeId(record.leader);
            self.leader_epoch.0 += i32::from(!fault::is_active(Fault::SkipsEpochBump));
        }
        if record.leader_recovery_state >= 0 {
            self.leader_recovery_state = LeaderRecoveryState::from_code(record.leader_recovery_state);
        }
        let is_led_anew = record.leader >= 0;
        if is_led_anew && self.leader_recovery_state == LeaderRecoveryState::Recovering {
            self.lossy_epoch = self.leader_epoch;
        }
        self.partition_epoch.0 += 1;
    }

    /// Forgets eligible leader replicas; tells whether there were any.
    pub(super) fn clear_elr(&mut self) -> bool {
        if self.elr.is_empty() && self.last_known_elr.is_empty() {
            return false;
        }
        self.elr.clear();
        self.last_known_elr.clear();
        self.partition_epoch.0 += 1;
        true
    }
}

impl PartitionChangeRecord {
    /// In `leader`: it did not change.
    pub const LEADER_AS_BEFORE: i32 = -2;
}
