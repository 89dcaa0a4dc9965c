//! What consumer groups watch of the cluster: a hash of each topic, by which a group tells that its topics have changed,
//! and when a topic was last created, which is when regular expressions have to be looked at anew.
//!
//! One for all groups of a coordinator, soft state. Invariant: the hashes are Kafka 4.4's, bit for bit, for they are in the
//! records and a group must not rebalance because its coordinator is another program.

use std::collections::HashMap;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use super::super::Name;
use crate::metadata::image::{Image, ImageVersion};
use crate::metadata::topics::{TopicImage, Topics};

/// Kafka's number for this way of hashing a topic.
const TOPIC_HASH_VERSION: u8 = 0;

#[derive(Debug, Default)]
pub struct TopicWatch {
    /// The image that was last seen.
    seen: Option<(ImageVersion, Topics)>,
    /// The version of the first image that had all topics created so far.
    created_at: ImageVersion,
    hashes: HashMap<Name, (Arc<TopicImage>, i64)>,
}

impl TopicWatch {
    /// Takes notice of an image. Costs nothing when it is the one from before.
    pub(super) fn observe(&mut self, image: &Image) {
        let has_new = match &self.seen {
            Some((version, _)) if *version == image.version => return,
            Some((_, topics)) => image.topics.has_created_since(topics),
            None => true,
        };
        if has_new {
            self.created_at = image.version;
        }
        if self.hashes.len() > image.topics.len() {
            self.hashes.retain(|name, _| image.topics.by_name(name).is_some());
        }
        self.seen = Some((image.version, image.topics.clone()));
    }

    pub(super) fn created_at(&self) -> ImageVersion {
        self.created_at
    }

    /// The hash of a group whose members are subscribed to these topics, which come in the order of their names.
    pub(super) fn hash_of_group<'a>(&mut self, image: &Image, topics: impl Iterator<Item = &'a Name>) -> i64 {
        let mut hash = Xxh3::new();
        let mut is_empty = true;
        for topic in topics.filter_map(|name| image.topics.by_name(name)) {
            is_empty = false;
            hash.update(&self.hash_of_topic(image, topic).to_le_bytes());
        }
        if is_empty { 0 } else { hash.digest().cast_signed() }
    }

    /// Of a topic that has not changed it is known. A rack that changes without the topic is not noticed, as in Kafka.
    fn hash_of_topic(&mut self, image: &Image, topic: &Arc<TopicImage>) -> i64 {
        if let Some((known, hash)) = self.hashes.get(&topic.name)
            && Arc::ptr_eq(known, topic)
        {
            return *hash;
        }
        let hash = topic_hash(image, topic);
        self.hashes.insert(topic.name.clone(), (topic.clone(), hash));
        hash
    }
}

fn topic_hash(image: &Image, topic: &TopicImage) -> i64 {
    let mut hash = Xxh3::new();
    let (high, low) = topic.id.as_u64_pair();
    hash.update(&[TOPIC_HASH_VERSION]);
    hash.update(&high.to_le_bytes());
    hash.update(&low.to_le_bytes());
    hash_text(&mut hash, &topic.name);
    hash_int(&mut hash, topic.partition_count());
    for (index, partition) in topic.partitions() {
        hash.update(&index.0.to_le_bytes());
        let brokers = partition.replicas.iter().filter_map(|replica| image.brokers.get(*replica));
        let mut racks: Vec<&str> = brokers.filter_map(|broker| broker.rack.as_deref()).collect();
        racks.sort_unstable_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
        for rack in racks {
            hash_int(&mut hash, rack.encode_utf16().count());
            hash_text(&mut hash, rack);
        }
    }
    hash.digest().cast_signed()
}

/// A text as Java has it: its UTF-16 units, then how many they are.
fn hash_text(hash: &mut Xxh3, text: &str) {
    let mut len = 0;
    for unit in text.encode_utf16() {
        hash.update(&unit.to_le_bytes());
        len += 1;
    }
    hash_int(hash, len);
}

fn hash_int(hash: &mut Xxh3, value: usize) {
    hash.update(&(value as i32).to_le_bytes());
}

#[cfg(test)]
#[path = "topics_tests.rs"]
mod tests;
