//! Who leads a partition, and what becomes of its ISR and eligible leader replicas (KIP-966) when brokers come and go. It
//! owns the rules; which partitions to look at is decided by its callers. A change is one record, or none when nothing
//! changes.

use super::configs::{ConfigResource, Configs};
use super::image::Image;
use super::record::Record;
use super::topics::{LeaderRecoveryState, PartitionRegistration, TopicImage, raw};
use crate::types::{NodeId, PartitionIndex};
use crate::wire::messages::metadata::PartitionChangeRecord;

pub const MIN_INSYNC_REPLICAS: &str = "min.insync.replicas";
pub const UNCLEAN_LEADER_ELECTION_ENABLE: &str = "unclean.leader.election.enable";

/// What the node's own settings say where neither the topic nor the cluster's dynamic default does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectionDefaults {
    pub min_insync_replicas: i32,
    pub unclean_leader_election: bool,
}

impl Default for ElectionDefaults {
    fn default() -> Self {
        ElectionDefaults { min_insync_replicas: 1, unclean_leader_election: false }
    }
}

/// A broker whose state changes with the records that are being decided: the image does not show it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerChange {
    /// It may lead again.
    Returns(NodeId),
    /// It must not lead nor be in any ISR.
    Leaves(NodeId),
    /// It leaves, and what it had acknowledged may be lost, so it is not eligible either.
    LosesData(NodeId),
}

impl BrokerChange {
    fn leaving(self) -> Option<NodeId> {
        match self {
            BrokerChange::Returns(_) => None,
            BrokerChange::Leaves(id) | BrokerChange::LosesData(id) => Some(id),
        }
    }
}

/// What a change of one broker does to all partitions, in the order of topics and partitions.
pub(super) fn changes_for(image: &Image, change: BrokerChange, defaults: ElectionDefaults) -> Vec<Record> {
    changes_where(image, change, defaults, |partition| match change {
        BrokerChange::Returns(_) => !partition.has_leader(),
        BrokerChange::Leaves(id) => partition.isr.contains(&id),
        BrokerChange::LosesData(id) => partition.isr.contains(&id) || partition.elr.contains(&id),
    })
}

/// What a change of one broker does to some partitions.
pub(super) fn changes_where(
    image: &Image,
    change: BrokerChange,
    defaults: ElectionDefaults,
    concerned: impl Fn(&PartitionRegistration) -> bool,
) -> Vec<Record> {
    let mut records = Vec::new();
    for topic in image.topics.iter() {
        for (index, partition) in topic.partitions().filter(|(_, partition)| concerned(partition)) {
            let election = PartitionElection::new(image, topic, index, partition, defaults);
            records.extend(election.after(change));
        }
    }
    records
}

/// One partition whose leader and ISR are to be decided anew.
pub(super) struct PartitionElection<'a> {
    image: &'a Image,
    topic: &'a TopicImage,
    index: PartitionIndex,
    partition: &'a PartitionRegistration,
    elr_enabled: bool,
    min_isr: usize,
    allow_unclean: bool,
    isr: Vec<NodeId>,
    elr: Vec<NodeId>,
}

/// What an election found.
#[derive(Clone, Copy)]
struct Elected {
    leader: NodeId,
    unclean: bool,
}

impl<'a> PartitionElection<'a> {
    pub(super) fn new(
        image: &'a Image,
        topic: &'a TopicImage,
        index: PartitionIndex,
        partition: &'a PartitionRegistration,
        defaults: ElectionDefaults,
    ) -> PartitionElection<'a> {
        PartitionElection {
            image,
            topic,
            index,
            partition,
            elr_enabled: image.features.elr_is_enabled(),
            min_isr: min_isr(&image.configs, topic, partition, defaults),
            allow_unclean: unclean_is_allowed(&image.configs, topic, defaults),
            isr: partition.isr.clone(),
            elr: partition.elr.clone(),
        }
    }

    /// The record for what `change` makes of the partition, if it makes anything of it.
    pub(super) fn after(mut self, change: BrokerChange) -> Option<Record> {
        self.isr.retain(|replica| Some(*replica) != change.leaving());
        if self.elr_enabled {
            self.elr = self.eligible(change);
        }
        let elected = self.elect(change);
        let unchanged = self.unchanged();
        let record = self.record(elected);
        (record != unchanged).then(|| record.into())
    }

    /// Whoever was in sync stays eligible while the ISR is too small to move the high watermark on without it.
    fn eligible(&self, change: BrokerChange) -> Vec<NodeId> {
        if self.isr.len() >= self.min_isr {
            return Vec::new();
        }
        let lost = match change {
            BrokerChange::LosesData(id) => Some(id),
            _ => None,
        };
        let mut eligible = self.elr.clone();
        eligible.extend(self.partition.isr.iter().filter(|replica| !self.elr.contains(replica)));
        eligible.retain(|replica| !self.isr.contains(replica) && Some(*replica) != lost);
        eligible.sort_unstable();
        eligible
    }

    fn may_lead(&self, replica: NodeId, change: BrokerChange) -> bool {
        let Some(broker) = self.image.brokers.get(replica) else { return false };
        let lives = match change {
            BrokerChange::Returns(id) if id == replica => true,
            _ if change.leaving() == Some(replica) => false,
            _ => broker.is_active(),
        };
        lives && self.partition.directory(replica).is_some_and(|directory| broker.has_online(directory))
    }

    fn elect(&self, change: BrokerChange) -> Elected {
        let in_sync = |replica: NodeId| {
            let eligible =
                self.isr.contains(&replica) || (self.isr.is_empty() && self.elr.contains(&replica));
            eligible && self.may_lead(replica, change)
        };
        // A leader that can go on does.
        let candidates =
            std::iter::once(self.partition.leader).chain(self.partition.replicas.iter().copied());
        if let Some(leader) = candidates.into_iter().find(|replica| in_sync(*replica)) {
            return Elected { leader, unclean: false };
        }
        if let Some(leader) = self.last_known_leader().filter(|replica| self.may_lead(*replica, change)) {
            return Elected { leader, unclean: true };
        }
        let any = self.partition.replicas.iter().copied().find(|replica| self.may_lead(*replica, change));
        match any.filter(|_| self.allow_unclean) {
            Some(leader) => Elected { leader, unclean: true },
            None => Elected { leader: NodeId::NONE, unclean: false },
        }
    }

    /// Who led last, when nobody is eligible: the best of what is left.
    fn last_known_leader(&self) -> Option<NodeId> {
        if !self.elr_enabled || !self.isr.is_empty() || !self.elr.is_empty() {
            return None;
        }
        match self.partition.last_known_elr[..] {
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

    fn record(mut self, elected: Elected) -> PartitionChangeRecord {
        let before = self.partition;
        let mut record = self.unchanged();
        if elected.leader != before.leader {
            record.leader = elected.leader.0;
            if elected.unclean {
                // Whatever the others have beyond the new leader's log is lost.
                self.isr = vec![elected.leader];
                if before.leader_recovery_state != LeaderRecoveryState::Recovering {
                    record.leader_recovery_state = LeaderRecoveryState::Recovering.code();
                }
            } else if self.elr.contains(&elected.leader) {
                self.isr = vec![elected.leader];
                self.elr.retain(|replica| *replica != elected.leader);
            }
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
        self.bump_leader_epoch_if_old_versions_need_it(&mut record);
        self.note_last_known_leader(&mut record);
        record
    }

    fn bump_leader_epoch_if_old_versions_need_it(&self, record: &mut PartitionChangeRecord) {
        let shrinks = record
            .isr
            .as_ref()
            .is_some_and(|isr| self.partition.isr.iter().any(|replica| !isr.contains(&replica.0)));
        let version = self.image.metadata_version();
        if shrinks
            && record.leader == PartitionChangeRecord::LEADER_AS_BEFORE
            && !version.keeps_leader_epoch_on_isr_shrink()
        {
            record.leader = self.partition.leader.0;
        }
    }

    fn note_last_known_leader(&self, record: &mut PartitionChangeRecord) {
        if !self.elr_enabled {
            return;
        }
        let known = !self.partition.last_known_elr.is_empty();
        if record.leader == NodeId::NONE.0 && !known {
            record.last_known_elr = Some(vec![self.partition.leader.0]);
        } else if record.leader >= 0 && known {
            record.last_known_elr = Some(Vec::new());
        }
    }
}

/// What a topic property is set to, on the topic or for all brokers.
fn dynamic_value<'a>(configs: &'a Configs, topic: &TopicImage, key: &str) -> Option<&'a str> {
    let value = configs
        .topic(&topic.name)
        .and_then(|values| values.get(key))
        .or_else(|| configs.value(&ConfigResource::cluster(), key));
    value.map(|value| &**value)
}

/// How many replicas must be in sync, but never more than there are.
fn min_isr(
    configs: &Configs,
    topic: &TopicImage,
    partition: &PartitionRegistration,
    defaults: ElectionDefaults,
) -> usize {
    let configured = dynamic_value(configs, topic, MIN_INSYNC_REPLICAS)
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(defaults.min_insync_replicas);
    usize::try_from(configured).unwrap_or(0).min(partition.replicas.len())
}

fn unclean_is_allowed(configs: &Configs, topic: &TopicImage, defaults: ElectionDefaults) -> bool {
    dynamic_value(configs, topic, UNCLEAN_LEADER_ELECTION_ENABLE)
        .map_or(defaults.unclean_leader_election, |value| value.trim().eq_ignore_ascii_case("true"))
}
