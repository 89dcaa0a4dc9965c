//! Which partitions are concerned when brokers come and go, and which settings say how partitions are led. What a change
//! makes of a partition is worked out by `partition_change`.

use super::configs::{ConfigResource, Configs};
use super::image::Image;
use super::partition_change::PartitionChange;
use super::record::Record;
use super::topics::{PartitionRegistration, TopicImage};
use crate::types::NodeId;

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
    pub(super) fn leaving(self) -> Option<NodeId> {
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
            let changed = PartitionChange::new(image, topic, index, partition, defaults);
            records.extend(changed.unclean_if_allowed().broker(change).record());
        }
    }
    records
}

/// What a topic property is set to, on the topic or for all brokers.
fn dynamic_value<'a>(configs: &'a Configs, topic: &TopicImage, key: &str) -> Option<&'a str> {
    let value = configs
        .topic(&topic.name)
        .and_then(|values| values.get(key))
        .or_else(|| configs.value(&ConfigResource::cluster(), key));
    value.map(|value| &**value)
}

/// How many of `replicas` must be in sync, but never more than there are.
pub(super) fn min_isr(
    configs: &Configs,
    topic: &TopicImage,
    replicas: usize,
    defaults: ElectionDefaults,
) -> usize {
    let configured = dynamic_value(configs, topic, MIN_INSYNC_REPLICAS)
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(defaults.min_insync_replicas);
    usize::try_from(configured).unwrap_or(0).min(replicas)
}

pub(super) fn unclean_is_allowed(configs: &Configs, topic: &TopicImage, defaults: ElectionDefaults) -> bool {
    dynamic_value(configs, topic, UNCLEAN_LEADER_ELECTION_ENABLE)
        .map_or(defaults.unclean_leader_election, |value| value.trim().eq_ignore_ascii_case("true"))
}
