//! What a broker must start, change and stop when the metadata has moved from one image to another. Only compares
//! images; what the broker does about it, and how its files are doing, is not known here.
//!
//! Invariant: a broker that has done all of it hosts exactly the partitions that the newer image assigns to it.

use super::configs::ResourceType;
use super::topics::{PartitionRegistration, TopicImage, Topics};
use super::{Image, brokers::BrokerRegistration};
use crate::types::{NodeId, PartitionIndex, TopicId, TopicIdPartition, TopicPartition};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Everything that is to be done, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Partitions that this broker no longer holds. A name among them may come again in `start`.
    pub stop: Vec<Stop>,
    /// Partitions that this broker holds from now on.
    pub start: Vec<Replica>,
    /// Partitions that it holds already, whose leadership, replicas, or replicas' brokers have changed.
    pub update: Vec<Replica>,
    /// Whose configuration has changed.
    pub configure: Reconfigured,
}

/// A partition that this broker holds a replica of.
#[derive(Clone, Debug, PartialEq)]
pub struct Replica {
    pub id: TopicIdPartition,
    pub name: TopicPartition,
    pub registration: PartitionRegistration,
}

/// A partition to let go of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub id: TopicIdPartition,
    pub name: TopicPartition,
    pub why: StopReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    TopicDeleted,
    /// The topic lives on, but without this replica.
    Reassigned,
}

/// Whose effective topic configuration may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reconfigured {
    /// The topics with these names.
    Topics(BTreeSet<Arc<str>>),
    /// All, because a default of the broker or of the cluster has.
    All,
}

impl Default for Reconfigured {
    fn default() -> Reconfigured {
        Reconfigured::Topics(BTreeSet::new())
    }
}

/// What the broker `me` has to do to get from `before` to `after`.
pub fn changes(me: NodeId, before: &Image, after: &Image) -> Changes {
    let mut changes = Changes { configure: reconfigured(me, before, after), ..Changes::default() };
    for (old, new) in after.topics.changed_since(&before.topics) {
        compare_topic(me, old, new, &mut changes);
    }
    let moved = changed_brokers(before, after);
    if !moved.is_empty() {
        let known: BTreeSet<_> =
            changes.start.iter().chain(&changes.update).map(|replica| replica.id).collect();
        let affected = replicas_of(me, &after.topics)
            .filter(|replica| replica.registration.replicas.iter().any(|node| moved.contains(node)))
            .filter(|replica| !known.contains(&replica.id));
        changes.update.extend(affected);
    }
    changes
}

/// Every partition that the broker holds according to the image.
pub fn replicas_of(me: NodeId, topics: &Topics) -> impl Iterator<Item = Replica> {
    topics.iter().flat_map(move |topic| {
        let mine = topic.partitions().filter(move |(_, partition)| partition.has_replica(me));
        mine.map(move |(index, partition)| replica(topic, index, partition))
    })
}

/// Whether the broker holds the partition of which it has a directory. One that does not carry the id of its topic is taken
/// to be of the topic that has its name now.
pub fn is_held(me: NodeId, topics: &Topics, name: &TopicPartition, topic_id: Option<TopicId>) -> bool {
    let topic = match topic_id {
        Some(id) => topics.by_id(id),
        None => topics.by_name(&name.topic),
    };
    let partition = topic.and_then(|topic| topic.partition(name.partition));
    partition.is_some_and(|partition| partition.has_replica(me))
}

fn compare_topic(
    me: NodeId,
    old: Option<&Arc<TopicImage>>,
    new: Option<&Arc<TopicImage>>,
    changes: &mut Changes,
) {
    if let Some(old) = old {
        for (index, partition) in old.partitions().filter(|(_, partition)| partition.has_replica(me)) {
            let still = new.is_some_and(|new| new.partition(index).is_some_and(|now| now.has_replica(me)));
            if !still {
                let why = if new.is_some() { StopReason::Reassigned } else { StopReason::TopicDeleted };
                let Replica { id, name, .. } = replica(old, index, partition);
                changes.stop.push(Stop { id, name, why });
            }
        }
    }
    let Some(new) = new else { return };
    for (index, partition) in new.partitions().filter(|(_, partition)| partition.has_replica(me)) {
        match old.and_then(|old| old.partition(index)) {
            Some(before) if before.has_replica(me) => {
                if before != partition {
                    changes.update.push(replica(new, index, partition));
                }
            }
            _ => changes.start.push(replica(new, index, partition)),
        }
    }
}

fn replica(topic: &TopicImage, index: PartitionIndex, registration: &PartitionRegistration) -> Replica {
    Replica {
        id: id(topic.id, index),
        name: TopicPartition { topic: Arc::clone(&topic.name), partition: index },
        registration: registration.clone(),
    }
}

fn id(topic_id: TopicId, partition: PartitionIndex) -> TopicIdPartition {
    TopicIdPartition { topic_id, partition }
}

/// The brokers whose part in an ISR may have changed.
fn changed_brokers(before: &Image, after: &Image) -> BTreeSet<NodeId> {
    let standing = |broker: &BrokerRegistration| {
        (broker.epoch, broker.fenced, broker.in_controlled_shutdown, broker.directories.clone())
    };
    let differs = |from: &Image, to: &Image| -> BTreeSet<NodeId> {
        let changed = from
            .brokers
            .iter()
            .filter(|broker| to.brokers.get(broker.id).map(standing) != Some(standing(broker)));
        changed.map(|broker| broker.id).collect()
    };
    &differs(before, after) | &differs(after, before)
}

fn reconfigured(me: NodeId, before: &Image, after: &Image) -> Reconfigured {
    let mut topics = BTreeSet::new();
    let my_name = me.to_string();
    for resource in after.configs.changed_since(&before.configs) {
        match resource.kind {
            ResourceType::Topic => {
                topics.insert(Arc::clone(&resource.name));
            }
            // The nameless broker stands for all of them.
            ResourceType::Broker if resource.name.is_empty() || *resource.name == *my_name => {
                return Reconfigured::All;
            }
            _ => {}
        }
    }
    Reconfigured::Topics(topics)
}

#[cfg(test)]
mod tests {
    use super::super::Record;
    use super::*;
    use crate::types::{PartitionEpoch, Uuid, directory_id};
    use crate::wire::messages::StrBytes;
    use crate::wire::messages::metadata::{
        ConfigRecord, PartitionChangeRecord, PartitionRecord, RegisterBrokerRecord, RemoveTopicRecord,
        TopicRecord, UnfenceBrokerRecord,
    };
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const ME: NodeId = NodeId(1);

    fn topic_id(topic: u8) -> TopicId {
        Uuid::from_u128(u128::from(topic) + 100)
    }

    fn add_topic(image: &mut Image, topic: u8, name: &str, partitions: &[Vec<i32>]) {
        let name = StrBytes::from_string(name.to_owned());
        let topic_id = topic_id(topic);
        image.apply(&Record::from(TopicRecord { name, topic_id, ..TopicRecord::default() }));
        for (index, replicas) in (0..).zip(partitions) {
            image.apply(&Record::from(PartitionRecord {
                partition_id: index,
                topic_id,
                replicas: replicas.clone(),
                isr: replicas.clone(),
                leader: replicas[0],
                directories: vec![directory_id::UNASSIGNED; replicas.len()],
                ..PartitionRecord::default()
            }));
        }
    }

    fn remove_topic(image: &mut Image, topic: u8) {
        let topic_id = topic_id(topic);
        image.apply(&Record::from(RemoveTopicRecord { topic_id, ..RemoveTopicRecord::default() }));
    }

    fn move_partition(image: &mut Image, topic: u8, index: i32, replicas: &[i32]) {
        image.apply(&Record::from(PartitionChangeRecord {
            partition_id: index,
            topic_id: topic_id(topic),
            replicas: Some(replicas.to_vec()),
            isr: Some(replicas.to_vec()),
            leader: replicas[0],
            directories: Some(vec![directory_id::UNASSIGNED; replicas.len()]),
            ..PartitionChangeRecord::default()
        }));
    }

    fn register(image: &mut Image, broker: i32) {
        let broker_epoch = image.version.broker_epoch().0;
        image.apply(&Record::from(RegisterBrokerRecord {
            broker_id: broker,
            broker_epoch,
            fenced: true,
            ..RegisterBrokerRecord::default()
        }));
    }

    fn names(changes: &Changes) -> (Vec<String>, Vec<String>, Vec<String>) {
        let replicas = |list: &[Replica]| list.iter().map(|replica| replica.name.to_string()).collect();
        let stop = changes.stop.iter().map(|stop| format!("{} {:?}", stop.name, stop.why)).collect();
        (stop, replicas(&changes.start), replicas(&changes.update))
    }

    #[test]
    fn only_what_concerns_this_broker_changes() {
        let before = Image::default();
        let mut after = before.clone();
        add_topic(&mut after, 1, "a", &[vec![1, 2], vec![2, 3], vec![3, 1]]);
        add_topic(&mut after, 2, "b", &[vec![2]]);
        let (stop, start, update) = names(&changes(ME, &before, &after));
        assert_eq!((stop.len(), start, update.len()), (0, vec!["a-0".to_owned(), "a-2".to_owned()], 0));

        let before = after.clone();
        move_partition(&mut after, 1, 0, &[2, 1]);
        move_partition(&mut after, 1, 1, &[3, 1]);
        move_partition(&mut after, 1, 2, &[3, 2]);
        move_partition(&mut after, 2, 0, &[3]);
        let (stop, start, update) = names(&changes(ME, &before, &after));
        assert_eq!(
            (&stop[..], &start[..], &update[..]),
            (&["a-2 Reassigned".to_owned()][..], &["a-1".to_owned()][..], &["a-0".to_owned()][..])
        );

        // A topic that is deleted and made again between two looks: the old one stops, the new one starts.
        let before = after.clone();
        remove_topic(&mut after, 1);
        add_topic(&mut after, 3, "a", &[vec![1]]);
        let (stop, start, update) = names(&changes(ME, &before, &after));
        assert_eq!((stop.len(), start, update.len()), (2, vec!["a-0".to_owned()], 0));
        assert_eq!(changes(ME, &after, &after), Changes::default());
    }

    #[test]
    fn a_directory_is_of_the_topic_whose_id_it_carries() {
        let mut image = Image::default();
        add_topic(&mut image, 1, "a", &[vec![1, 2], vec![2]]);
        let held = |partition, id| is_held(ME, &image.topics, &TopicPartition::new("a", partition), id);
        assert!(held(0, Some(topic_id(1))) && held(0, None));
        // Reassigned, of no such partition, of an older topic of that name.
        assert!(!held(1, Some(topic_id(1))) && !held(1, None));
        assert!(!held(2, Some(topic_id(1))) && !held(0, Some(topic_id(2))));
        assert!(!is_held(ME, &image.topics, &TopicPartition::new("b", 0), None));
    }

    #[test]
    fn a_broker_that_moves_concerns_the_partitions_it_has_replicas_of() {
        let mut before = Image::default();
        register(&mut before, 2);
        add_topic(&mut before, 1, "a", &[vec![1, 2], vec![1, 3]]);
        let mut after = before.clone();
        let epoch = after.brokers.get(NodeId(2)).unwrap().epoch.0;
        after.apply(&Record::from(UnfenceBrokerRecord { id: 2, epoch, ..UnfenceBrokerRecord::default() }));
        assert_eq!(names(&changes(ME, &before, &after)).2, ["a-0"]);
    }

    #[test]
    fn configuration_changes_are_told() {
        let before = Image::default();
        let set = |kind: ResourceType, name: &str| {
            let mut after = before.clone();
            after.apply(&Record::from(ConfigRecord {
                resource_type: kind.code(),
                resource_name: StrBytes::from_string(name.to_owned()),
                name: StrBytes::from_static_str("retention.ms"),
                value: Some(StrBytes::from_static_str("1")),
                ..ConfigRecord::default()
            }));
            changes(ME, &before, &after).configure
        };
        assert_eq!(set(ResourceType::Topic, "a"), Reconfigured::Topics(["a".into()].into()));
        assert_eq!(set(ResourceType::Broker, ""), Reconfigured::All);
        assert_eq!(set(ResourceType::Broker, "1"), Reconfigured::All);
        assert_eq!(set(ResourceType::Broker, "2"), Reconfigured::default());
        assert_eq!(set(ResourceType::Group, "1"), Reconfigured::default());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add(u8, Vec<Vec<i32>>),
        Remove(u8),
        Move(u8, u8, Vec<i32>),
        Look,
    }

    fn replicas() -> impl Strategy<Value = Vec<i32>> {
        proptest::sample::subsequence(vec![1, 2, 3], 1..=3)
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..6u8, proptest::collection::vec(replicas(), 1..4))
                .prop_map(|(topic, all)| Step::Add(topic, all)),
            (0..6u8).prop_map(Step::Remove),
            (0..6u8, 0..4u8, replicas())
                .prop_map(|(topic, index, replicas)| Step::Move(topic, index, replicas)),
            Just(Step::Look),
        ];
        proptest::collection::vec(step, 1..60)
    }

    proptest! {
        /// Whoever follows the changes hosts what the image says, with the registration that it says.
        #[test]
        fn following_the_changes_leads_to_the_image(steps in steps()) {
            let mut image = Image::default();
            let mut seen = image.clone();
            let mut hosted: BTreeMap<TopicIdPartition, PartitionEpoch> = BTreeMap::new();
            for step in steps.into_iter().chain([Step::Look]) {
                let exists = |topic: u8| image.topics.by_id(topic_id(topic)).is_some();
                match step {
                    Step::Add(topic, partitions) if !exists(topic) => {
                        add_topic(&mut image, topic, &format!("t{topic}"), &partitions);
                    }
                    Step::Remove(topic) if exists(topic) => remove_topic(&mut image, topic),
                    Step::Move(topic, index, replicas) => {
                        let index = i32::from(index);
                        if image.topics.partition(topic_id(topic), PartitionIndex(index)).is_some() {
                            move_partition(&mut image, topic, index, &replicas);
                        }
                    }
                    Step::Look => {
                        let changes = changes(ME, &seen, &image);
                        for stop in &changes.stop {
                            prop_assert!(hosted.remove(&stop.id).is_some());
                        }
                        for replica in &changes.start {
                            let epoch = replica.registration.partition_epoch;
                            prop_assert!(hosted.insert(replica.id, epoch).is_none());
                        }
                        for replica in &changes.update {
                            let epoch = replica.registration.partition_epoch;
                            prop_assert!(hosted.insert(replica.id, epoch).is_some());
                        }
                        let wanted: BTreeMap<_, _> = replicas_of(ME, &image.topics)
                            .map(|replica| (replica.id, replica.registration.partition_epoch))
                            .collect();
                        prop_assert_eq!(&hosted, &wanted);
                        seen = image.clone();
                    }
                    _ => {}
                }
            }
        }
    }
}
