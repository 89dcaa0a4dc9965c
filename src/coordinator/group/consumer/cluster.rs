//! A metadata image for tests, changed by name.

use crate::metadata::image::Image;
use crate::metadata::record::Record;
use crate::types::{TopicId, Uuid};
use crate::wire::messages::StrBytes;
use crate::wire::messages::metadata::{
    PartitionRecord, RegisterBrokerRecord, RemoveTopicRecord, TopicRecord,
};

#[derive(Default)]
pub(super) struct Cluster {
    image: Image,
    topics: u128,
}

impl Cluster {
    pub(super) fn image(&self) -> &Image {
        &self.image
    }

    pub(super) fn add_broker(&mut self, id: i32, rack: Option<&str>) {
        self.image.apply(&Record::RegisterBroker(RegisterBrokerRecord {
            broker_id: id,
            rack: rack.map(|rack| StrBytes::from_string(rack.to_owned())),
            ..Default::default()
        }));
    }

    /// Topic ids count up: a topic that is made anew has another.
    pub(super) fn add_topic(&mut self, name: &str, partitions: usize) {
        self.topics += 1;
        let replicas: Vec<&[i32]> = vec![&[0]; partitions];
        self.add_topic_with_id(name, Uuid::from_u128(self.topics), &replicas);
    }

    pub(super) fn add_topic_with_id(&mut self, name: &str, id: TopicId, replicas: &[&[i32]]) {
        let name = StrBytes::from_string(name.to_owned());
        self.image.apply(&Record::Topic(TopicRecord { name, topic_id: id, ..Default::default() }));
        for (index, replicas) in replicas.iter().enumerate() {
            self.add_partition(id, index as i32, replicas);
        }
    }

    pub(super) fn add_partitions(&mut self, name: &str, more: usize) {
        let topic = self.image.topics.by_name(name).expect("a topic");
        let (id, count) = (topic.id, topic.partition_count());
        for index in count..count + more {
            self.add_partition(id, index as i32, &[0]);
        }
    }

    fn add_partition(&mut self, topic_id: TopicId, partition_id: i32, replicas: &[i32]) {
        self.image.apply(&Record::Partition(PartitionRecord {
            partition_id,
            topic_id,
            replicas: replicas.to_vec(),
            isr: replicas.to_vec(),
            leader: 0,
            leader_epoch: 0,
            partition_epoch: 0,
            ..Default::default()
        }));
    }

    pub(super) fn remove_topic(&mut self, name: &str) {
        let topic_id = self.image.topics.by_name(name).expect("a topic").id;
        self.image.apply(&Record::RemoveTopic(RemoveTopicRecord { topic_id, ..Default::default() }));
    }
}
