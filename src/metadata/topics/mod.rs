//! Topics and their partitions: where the replicas are, which of them are in sync, and who leads. Topics are found by
//! name and by id; a partition is shared between images until it changes.

pub mod name;
mod assignment;
mod create;
mod delete;
mod directories;
mod grow;
mod partition;

pub(super) use assignment::check_assigned;
pub use assignment::{AssignmentError, MAX_PARTITIONS_PER_OPERATION, ReplicationError};
pub use create::{
    CreateTopicError, CreateTopicsOptions, CreateTopicsReply, CreatedTopic, NewTopic, TooManyPartitions,
    create_topics,
};
pub use delete::{DeleteTopicError, DeleteTopicsReply, DeletedTopic, TopicRef, delete_topics};
pub use directories::{
    AssignDirectoriesReply, AssignDirectoryError, assign_directories, can_do_without, give_up_replicas,
    is_given_up, is_kept_out, is_nowhere, place_replicas, take_back_replicas,
};
pub use grow::{CreatePartitionsError, CreatePartitionsReply, MorePartitions, create_partitions};
pub(super) use partition::raw;
pub use partition::{LeaderRecoveryState, PartitionRegistration};

use super::features::MetadataVersion;
use super::record::Record;
use crate::types::{PartitionIndex, TopicId};
use crate::wire::messages::StrBytes;
use crate::wire::messages::metadata::{
    ClearElrRecord, PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord,
};
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use std::sync::Arc;

/// A topic.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicImage {
    pub name: Arc<str>,
    pub id: TopicId,
    partitions: OrdMap<PartitionIndex, Arc<PartitionRegistration>>,
}

impl TopicImage {
    pub fn partition(&self, index: PartitionIndex) -> Option<&PartitionRegistration> {
        self.partitions.get(&index).map(Arc::as_ref)
    }

    /// By index.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionIndex, &PartitionRegistration)> {
        self.partitions.iter().map(|(index, partition)| (*index, partition.as_ref()))
    }

    pub fn partition_count(&self) -> usize {
        self.partitions.len()
    }
}

/// Topics by id and by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topics {
    by_id: OrdMap<TopicId, Arc<TopicImage>>,
    by_name: OrdMap<Arc<str>, Arc<TopicImage>>,
}

impl Topics {
    pub fn by_name(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.by_name.get(name)
    }

    pub fn by_id(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.by_id.get(&id)
    }

    /// All topics in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.by_name.values()
    }

    /// The topics whose names come at or after `name`, in order.
    pub fn starting_at<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Arc<TopicImage>> {
        self.by_name
            .range::<_, str>((std::ops::Bound::Included(name), std::ops::Bound::Unbounded))
            .map(|(_, t)| t)
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub fn partition(&self, id: TopicId, index: PartitionIndex) -> Option<&PartitionRegistration> {
        self.by_id.get(&id)?.partition(index)
    }

    /// The topics that differ from those of `older`: as they were there, and as they are here.
    pub fn changed_since<'a>(
        &'a self,
        older: &'a Topics,
    ) -> impl Iterator<Item = (Option<&'a Arc<TopicImage>>, Option<&'a Arc<TopicImage>>)> {
        older.by_id.diff(&self.by_id).map(|difference| match difference {
            DiffItem::Add(_, new) => (None, Some(new)),
            DiffItem::Update { old: (_, old), new: (_, new) } => (Some(old), Some(new)),
            DiffItem::Remove(_, old) => (Some(old), None),
        })
    }

    /// Whether there is a topic here that is not among the older ones.
    pub fn has_created_since(&self, older: &Topics) -> bool {
        self.changed_since(older).any(|(before, after)| before.is_none() && after.is_some())
    }

    pub(super) fn add(&mut self, record: &TopicRecord) {
        let topic =
            TopicImage { name: Arc::from(&*record.name), id: record.topic_id, partitions: OrdMap::new() };
        assert!(!self.by_name.contains_key(&topic.name), "topic {} exists already", topic.name);
        assert!(!self.by_id.contains_key(&topic.id), "topic id {} exists already", topic.id);
        self.put(topic);
    }

    pub(super) fn add_partition(&mut self, record: &PartitionRecord) {
        let mut topic = self.topic(record.topic_id);
        let partition = PartitionRegistration::from_record(record);
        topic.partitions.insert(PartitionIndex(record.partition_id), Arc::new(partition));
        self.put(topic);
    }

    pub(super) fn change_partition(&mut self, record: &PartitionChangeRecord) {
        let mut topic = self.topic(record.topic_id);
        let index = PartitionIndex(record.partition_id);
        let Some(partition) = topic.partitions.get_mut(&index) else {
            panic!("a record changes partition {index} of topic {}, which does not exist", topic.name)
        };
        Arc::make_mut(partition).apply(record);
        self.put(topic);
    }

    /// Forgets the eligible leader replicas of a topic, or of all topics.
    pub(super) fn clear_elr(&mut self, record: &ClearElrRecord) {
        let topics: Vec<_> = match &*record.topic_name {
            "" => self.by_id.values().cloned().collect(),
            name => self.by_name.get(name).cloned().into_iter().collect(),
        };
        for topic in topics {
            let mut topic = topic.as_ref().clone();
            for (index, partition) in topic.partitions.clone() {
                let mut partition = partition.as_ref().clone();
                if partition.clear_elr() {
                    topic.partitions.insert(index, Arc::new(partition));
                }
            }
            self.put(topic);
        }
    }

    /// Removes a topic and gives its name.
    pub(super) fn remove(&mut self, record: &RemoveTopicRecord) -> Arc<str> {
        let topic = self.topic(record.topic_id);
        self.by_id.remove(&topic.id);
        self.by_name.remove(&topic.name);
        topic.name
    }

    fn topic(&self, id: TopicId) -> TopicImage {
        match self.by_id.get(&id) {
            Some(topic) => topic.as_ref().clone(),
            None => panic!("a record names topic {id}, which does not exist"),
        }
    }

    fn put(&mut self, topic: TopicImage) {
        let topic = Arc::new(topic);
        self.by_name.insert(Arc::clone(&topic.name), Arc::clone(&topic));
        self.by_id.insert(topic.id, topic);
    }

    pub(super) fn to_records(&self, version: MetadataVersion, records: &mut Vec<Record>) {
        for topic in self.by_id.values() {
            records.push(topic_record(&topic.name, topic.id));
            records.extend(
                topic.partitions().map(|(index, partition)| partition.to_record(topic.id, index, version)),
            );
        }
    }
}

fn topic_record(name: &str, id: TopicId) -> Record {
    TopicRecord { name: StrBytes::from_string(name.to_owned()), topic_id: id, ..TopicRecord::default() }
        .into()
}
