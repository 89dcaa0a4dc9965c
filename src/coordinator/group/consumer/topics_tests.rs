//! The hashes are Kafka's: the numbers come from the library that Kafka 4.4 uses (hash4j 0.22), fed as Kafka feeds it.

use super::*;
use crate::coordinator::group::consumer::cluster::Cluster;
use crate::types::Uuid;

#[test]
fn topics_are_hashed_as_in_kafka() {
    let mut cluster = Cluster::default();
    for (id, rack) in [(0, "rack1"), (1, "rack0"), (2, "r\u{e4}ck")] {
        cluster.add_broker(id, Some(rack));
    }
    cluster.add_broker(3, None);
    let foo = Uuid::from_u64_pair(0x0102_0304_0506_0708, 0xf0f1_f2f3_f4f5_f6f7);
    cluster.add_topic_with_id("foo", foo, &[&[0, 1], &[2]]);
    cluster.add_topic_with_id("bar", Uuid::from_u64_pair(1, 2), &[&[3]]);
    cluster.add_topic_with_id("many", Uuid::from_u64_pair(3, 4), &[&[1, 0, 1][..]; 100]);
    let image = cluster.image();
    let hash = |name: &str| topic_hash(image, image.topics.by_name(name).expect("a topic"));
    assert_eq!(-8_548_373_369_631_246_783, hash("foo"));
    assert_eq!(-2_016_710_026_744_507_707, hash("bar"));
    assert_eq!(7_035_967_112_948_272_904, hash("many"));

    let mut watch = TopicWatch::default();
    let group = |watch: &mut TopicWatch, names: &[&str]| {
        let names: Vec<Name> = names.iter().map(|name| Name::from(*name)).collect();
        watch.hash_of_group(image, names.iter())
    };
    // Topics that do not exist count for nothing.
    assert_eq!(5_970_015_820_576_066_525, group(&mut watch, &["bar", "foo", "many", "none"]));
    assert_eq!(-5_065_616_578_405_583_907, group(&mut watch, &["foo"]));
    assert_eq!(0, group(&mut watch, &["none"]));
    assert_eq!(0, group(&mut watch, &[]));
}

#[test]
fn a_hash_that_is_known_gives_way_when_the_topic_changes() {
    let mut cluster = Cluster::default();
    cluster.add_topic("foo", 1);
    let mut watch = TopicWatch::default();
    let foo: Name = "foo".into();
    let first = watch.hash_of_group(cluster.image(), [&foo].into_iter());
    assert_eq!(first, watch.hash_of_group(cluster.image(), [&foo].into_iter()));
    cluster.add_partitions("foo", 1);
    let more = watch.hash_of_group(cluster.image(), [&foo].into_iter());
    assert_ne!(first, more);
    cluster.remove_topic("foo");
    cluster.add_topic("foo", 2);
    assert_ne!(more, watch.hash_of_group(cluster.image(), [&foo].into_iter()));
}

#[test]
fn new_topics_are_noticed() {
    let mut cluster = Cluster::default();
    cluster.add_topic("foo", 1);
    let mut watch = TopicWatch::default();
    watch.observe(cluster.image());
    let first = watch.created_at();
    assert_eq!(cluster.image().version, first, "the first image counts as new");
    cluster.add_partitions("foo", 1);
    watch.observe(cluster.image());
    assert_eq!(first, watch.created_at());
    cluster.add_topic("bar", 1);
    watch.observe(cluster.image());
    assert_eq!(cluster.image().version, watch.created_at());
    let second = watch.created_at();
    cluster.remove_topic("bar");
    watch.observe(cluster.image());
    assert_eq!(second, watch.created_at());
}
