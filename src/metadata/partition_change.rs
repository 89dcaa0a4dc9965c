//! The one place where a partition's leader, ISR, eligible leader replicas (KIP-966), epochs, recovery state and replicas
//! change: callers say what they want of a partition, and what follows from it is worked out here. It does not know
//! who wants it, nor whether they may. Invariant: one record, or none when nothing changes; the leader is in the ISR,
//! the ISR and the eligible replicas are disjoint sets of replicas, and a leader from outside them has to recover.

use super::brokers::BrokerRegistration;
use super::election::{BrokerChange, ElectionDefaults, min_isr, unclean_is_allowed};
use super::image::Image;
use super::record::Record;
use super::topics::{LeaderRecoveryState, PartitionRegistration, TopicImage, raw};
use super::unclean::LogEnd;
use crate::fault::{self, Fault};
use crate::types::{DirectoryId, NodeId, PartitionIndex, directory_id};
use crate::wire::messages::metadata::PartitionChangeRecord;
use std::collections::BTreeMap;

/// Which replica is to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Election {
    /// The leader goes on while it can; else another replica that holds everything.
    Online,
    /// The first replica, if it holds everything; else as with `Online`.
    Preferred,
    /// As with `Online`, but rather any replica than none: the one whose log reaches farthest, as far as that is known.
    Unclean,
    /// As with `Online`, but rather the only replica that lives than none. Of several the best one is asked for first,
    /// which takes a moment (`unclean`).
    UncleanIfOnly,
}

/// A partition, and what it is to become.
pub(super) struct PartitionChange<'a> {
    image: &'a Image,
    topic: &'a TopicImage,
    index: PartitionIndex,
    before: &'a PartitionRegistration,
    defaults: ElectionDefaults,
    elr_enabled: bool,
    election: Election,
    ends: Option<&'a BTreeMap<NodeId, LogEnd>>,
    broker: Option<BrokerChange>,
    replicas: Vec<NodeId>,
    removing: Vec<NodeId>,
    adding: Vec<NodeId>,
    isr: Vec<NodeId>,
    elr: Vec<NodeId>,
    recovery: LeaderRecoveryState,
    begins_term: bool,
    /// A leader that may be in no directory now, but has said that it has a log.
    found: Option<NodeId>,
}

/// What an election found.
#[derive(Clone, Copy)]
struct Elected {
    leader: NodeId,
    unclean: bool,
}

impl<'a> PartitionChange<'a> {
    /// A partition that stays as it is, but for what its brokers' state asks for.
    pub(super) fn new(
        image: &'a Image,
        topic: &'a TopicImage,
        index: PartitionIndex,
        partition: &'a PartitionRegistration,
        defaults: ElectionDefaults,
    ) -> PartitionChange<'a> {
        PartitionChange {
            image,
            topic,
            index,
            before: partition,
            defaults,
            elr_enabled: image.features.elr_is_enabled(),
            election: Election::Online,
            ends: None,
            broker: None,
            replicas: partition.replicas.clone(),
            removing: partition.removing.clone(),
            adding: partition.adding.clone(),
            isr: partition.isr.clone(),
            elr: partition.elr.clone(),
            recovery: partition.leader_recovery_state,
            begins_term: false,
            found: None,
        }
    }

    pub(super) fn election(mut self, election: Election) -> Self {
        self.election = election;
        self
    }

    /// How far the logs of replicas reach.
    pub(super) fn log_ends(mut self, ends: Option<&'a BTreeMap<NodeId, LogEnd>>) -> Self {
        self.ends = ends;
        self
    }

    /// The replicas that could lead if it did not matter what they have. Those in no directory among them: they were given up for
    /// their damage, and lead if nobody else's log reaches as far; or their directory has failed, and they will not answer.
    pub(super) fn candidates(&self) -> Vec<NodeId> {
        let is_lost = |replica| self.directory(replica) == directory_id::LOST && self.lives(replica);
        self.replicas.iter().copied().filter(|replica| self.may_lead(*replica) || is_lost(*replica)).collect()
    }

    /// Any replica may lead if the topic says so, and there is no choice.
    pub(super) fn unclean_if_allowed(self) -> Self {
        if unclean_is_allowed(&self.image.configs, self.topic, self.defaults) {
            self.election(Election::UncleanIfOnly)
        } else {
            self
        }
    }

    /// A broker's state changes with this; one that leaves is out of the ISR.
    pub(super) fn broker(mut self, change: BrokerChange) -> Self {
        self.isr.retain(|replica| Some(*replica) != change.leaving());
        self.broker = Some(change);
        self
    }

    pub(super) fn isr(mut self, isr: Vec<NodeId>) -> Self {
        self.isr = isr;
        self
    }

    /// A new leader epoch begins, also when the leader stays.
    pub(super) fn new_term(mut self) -> Self {
        self.begins_term = true;
        self
    }

    pub(super) fn recovery(mut self, recovery: LeaderRecoveryState) -> Self {
        self.recovery = recovery;
        self
    }

    pub(super) fn replicas(
        mut self,
        replicas: Vec<NodeId>,
        adding: Vec<NodeId>,
        removing: Vec<NodeId>,
    ) -> Self {
        (self.replicas, self.adding, self.removing) = (replicas, adding, removing);
        self
    }

    /// The record that makes it so.
    pub(super) fn record(mut self) -> Option<Record> {
        self.complete_reassignment();
        self.elr = if self.elr_enabled { self.eligible() } else { self.elr };
        let elected = self.elect();
        let unchanged = self.unchanged();
        let record = self.difference(elected);
        (record != unchanged).then(|| record.into())
    }

    /// A reassignment is complete when all replicas that it adds are in sync and some replica stays. One that lowers the
    /// replication factor waits for all that stay, so that it does not cost replicas that are in sync for nothing.
    fn complete_reassignment(&mut self) {
        if self.adding.is_empty() && self.removing.is_empty() {
            return;
        }
        let staying = |ids: &[NodeId]| -> Vec<NodeId> {
            ids.iter().copied().filter(|id| !self.removing.contains(id)).collect()
        };
        let (replicas, isr) = (staying(&self.replicas), staying(&self.isr));
        let in_sync = |ids: &[NodeId]| ids.iter().all(|id| isr.contains(id));
        let shrinks = self.adding.len() < self.removing.len();
        let someone_stays = self.removing.is_empty() || !isr.is_empty();
        if someone_stays && in_sync(&self.adding) && (!shrinks || in_sync(&replicas)) {
            (self.replicas, self.isr) = (replicas, isr);
            self.removing.clear();
            self.adding.clear();
        }
    }

    /// Whoever was in sync stays eligible while the ISR is too small to move the high watermark on without it.
    fn eligible(&self) -> Vec<NodeId> {
        let min_isr = min_isr(&self.image.configs, self.topic, self.replicas.len(), self.defaults);
        if self.isr.len() >= min_isr {
            return Vec::new();
        }
        let lost = match self.broker {
            Some(BrokerChange::LosesData(id)) if !fault::is_active(Fault::KeepsLostReplicas) => Some(id),
            _ => None,
        };
        let mut eligible = self.elr.clone();
        eligible.extend(self.before.isr.iter().filter(|replica| !self.elr.contains(replica)));
        eligible.retain(|replica| {
            !self.isr.contains(replica) && Some(*replica) != lost && self.replicas.contains(replica)
        });
        eligible.sort_unstable();
        eligible
    }

    /// Whether a replica is on a broker that lives, in a directory that is online.
    fn may_lead(&self, replica: NodeId) -> bool {
        let broker = self.image.brokers.get(replica);
        self.lives(replica) && broker.is_some_and(|broker| broker.has_online(self.directory(replica)))
    }

    fn lives(&self, replica: NodeId) -> bool {
        let Some(broker) = self.image.brokers.get(replica) else { return false };
        let lives = match self.broker {
            Some(BrokerChange::Returns(id)) if id == replica => true,
            Some(change) if change.leaving() == Some(replica) => false,
            _ => broker.is_active(),
        };
        lives && self.replicas.contains(&replica)
    }

    fn elect(&self) -> Elected {
        let holds_everything = |replica: &NodeId| {
            let any = fault::is_active(Fault::ElectsOutsideIsr);
            let eligible =
                any || self.isr.contains(replica) || (self.isr.is_empty() && self.elr.contains(replica));
            eligible && self.may_lead(*replica)
        };
        let preferred = self.replicas.first().copied().filter(|_| self.election == Election::Preferred);
        // A leader that can go on does, unless it is to make room for the preferred one.
        let mut candidates = preferred
            .into_iter()
            .chain(std::iter::once(self.before.leader))
            .chain(self.replicas.iter().copied());
        if let Some(leader) = candidates.find(holds_everything) {
            return Elected { leader, unclean: false };
        }
        match self.elect_unclean() {
            Some(leader) => Elected { leader, unclean: true },
            None => Elected { leader: NodeId::NONE, unclean: false },
        }
    }

    /// A leader that may lack what was committed.
    fn elect_unclean(&self) -> Option<NodeId> {
        let live: Vec<NodeId> =
            self.replicas.iter().copied().filter(|replica| self.may_lead(*replica)).collect();
        let last_known = self.last_known_leader().filter(|replica| live.contains(replica));
        match self.election {
            Election::Unclean => {
                let farthest = self.farthest(&self.candidates(), last_known);
                farthest.or(last_known).or(live.first().copied())
            }
            Election::UncleanIfOnly if live.len() == 1 => live.first().copied(),
            Election::UncleanIfOnly | Election::Online | Election::Preferred => last_known,
        }
    }

    /// The replica whose log reaches farthest, of those of which it is known. Of equals the last known leader, then the
    /// first.
    fn farthest(&self, live: &[NodeId], last_known: Option<NodeId>) -> Option<NodeId> {
        let ends = self.ends?;
        let known = live.iter().rev().filter_map(|replica| Some((ends.get(replica)?, *replica)));
        known.max_by_key(|(end, replica)| (*end, Some(*replica) == last_known)).map(|(_, replica)| replica)
    }

    /// Who led last, when nobody is eligible: the best of what is left.
    fn last_known_leader(&self) -> Option<NodeId> {
        if !self.elr_enabled || !self.isr.is_empty() || !self.elr.is_empty() {
            return None;
        }
        match self.before.last_known_elr[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    fn unchanged(&self) -> PartitionChangeRecord {
        PartitionChangeRecord {
            partition_id: self.index.0,
            topic_id: self.topic.id,
            ..PartitionChangeRecord::default()
        }
    }

    fn difference(mut self, elected: Elected) -> PartitionChangeRecord {
        let before = self.before;
        let mut record = self.unchanged();
        if elected.leader != before.leader {
            record.leader = elected.leader.0;
        }
        if elected.unclean {
            self.found = Some(elected.leader);
            // Whatever the others have beyond the new leader's log is lost.
            self.isr = vec![elected.leader];
            self.recovery = LeaderRecoveryState::Recovering;
        } else if self.elr.contains(&elected.leader) {
            self.isr = vec![elected.leader];
            self.elr.retain(|replica| *replica != elected.leader);
        }
        if elected.unclean || !self.elr_enabled {
            self.elr.clear();
        }
        if self.elr != before.elr {
            record.eligible_leader_replicas = Some(raw(&self.elr));
        }
        // Without eligible leader replicas the last in-sync replica stays on record, or nobody could lead cleanly.
        if self.isr != before.isr && (!self.isr.is_empty() || self.elr_enabled) {
            record.isr = Some(raw(&self.isr));
        }
        if self.recovery != before.leader_recovery_state {
            record.leader_recovery_state = self.recovery.code();
        }
        self.begin_leader_epoch_if_needed(&mut record);
        self.note_last_known_leader(&mut record);
        self.note_replicas(&mut record);
        record
    }

    /// A new leader epoch fences replicas that are no more; before some version, also those out of the ISR.
    fn begin_leader_epoch_if_needed(&self, record: &mut PartitionChangeRecord) {
        let before = self.before;
        let loses_replicas = before.replicas.iter().any(|replica| !self.replicas.contains(replica));
        let shrinks =
            record.isr.as_ref().is_some_and(|isr| before.isr.iter().any(|replica| !isr.contains(&replica.0)));
        let shrink_counts = !self.image.metadata_version().keeps_leader_epoch_on_isr_shrink();
        if record.leader == PartitionChangeRecord::LEADER_AS_BEFORE
            && (self.begins_term || loses_replicas || (shrinks && shrink_counts))
        {
            record.leader = before.leader.0;
        }
    }

    fn note_last_known_leader(&self, record: &mut PartitionChangeRecord) {
        if !self.elr_enabled {
            return;
        }
        let known = !self.before.last_known_elr.is_empty();
        if record.leader == NodeId::NONE.0 && !known && self.before.has_leader() {
            record.last_known_elr = Some(vec![self.before.leader.0]);
        } else if record.leader >= 0 && known {
            record.last_known_elr = Some(Vec::new());
        }
    }

    fn note_replicas(&self, record: &mut PartitionChangeRecord) {
        let before = self.before;
        let if_changed = |new: &[NodeId], old: &[NodeId]| (new != old).then(|| raw(new));
        record.replicas = if_changed(&self.replicas, &before.replicas);
        record.adding_replicas = if_changed(&self.adding, &before.adding);
        record.removing_replicas = if_changed(&self.removing, &before.removing);
        if self.image.metadata_version().has_directories() {
            let directories: Vec<_> = self.replicas.iter().map(|id| self.directory(*id)).collect();
            record.directories = (directories != before.directories).then_some(directories);
        }
    }

    /// Where a replica is, or where a new one is to be.
    fn directory(&self, replica: NodeId) -> DirectoryId {
        let of_new = || self.image.brokers.get(replica).map(BrokerRegistration::directory_for_new_replica);
        let known = self.before.directory(replica);
        let known = known.filter(|known| *known != directory_id::LOST || self.found != Some(replica));
        known.or_else(of_new).unwrap_or(directory_id::MIGRATING)
    }
}
