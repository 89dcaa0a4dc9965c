//! What the cluster is told of damaged replicas, by the metadata that there is.

use super::*;
use crate::metadata::brokers::BrokerRegistration;
use crate::metadata::election::ElectionDefaults;
use crate::metadata::features::bootstrap_records;
use crate::metadata::topics::{assign_directories, give_up_replicas};
use crate::metadata::{MetadataVersion, Record};
use crate::types::{BrokerEpoch, PartitionIndex, Uuid};
use crate::wire::messages::StrBytes;
use crate::wire::messages::metadata::{PartitionRecord, RegisterBrokerRecord, TopicRecord};

const ME: NodeId = NodeId(1);
const TOPIC: Uuid = Uuid::from_u128(77);
const P: TopicIdPartition = TopicIdPartition { topic_id: TOPIC, partition: PartitionIndex(0) };

fn directory(node: i32) -> DirectoryId {
    Uuid::from_u128(1000 + u128::try_from(node).unwrap())
}

/// A topic of one partition whose replicas are led by the first.
fn image(replicas: &[i32], isr: &[i32]) -> Image {
    let mut image = Image::default();
    bootstrap_records(MetadataVersion::LATEST, &[], 1).unwrap().iter().for_each(|record| image.apply(record));
    for node in replicas {
        image.apply(&Record::from(RegisterBrokerRecord {
            broker_id: *node,
            broker_epoch: 5,
            log_dirs: vec![directory(*node)],
            fenced: false,
            ..RegisterBrokerRecord::default()
        }));
    }
    let name = StrBytes::from_static_str("t");
    image.apply(&Record::from(TopicRecord { name, topic_id: TOPIC, ..TopicRecord::default() }));
    image.apply(&Record::from(PartitionRecord {
        partition_id: 0,
        topic_id: TOPIC,
        replicas: replicas.to_vec(),
        isr: isr.to_vec(),
        leader: replicas[0],
        leader_epoch: 0,
        partition_epoch: 0,
        directories: replicas.iter().map(|node| directory(*node)).collect(),
        ..PartitionRecord::default()
    }));
    image
}

fn defaults() -> ElectionDefaults {
    ElectionDefaults { unclean_leader_election: false, min_insync_replicas: 1 }
}

/// The image after this broker has told what is due; `None` when nothing is.
fn told(repairs: &mut Repairs, image: &Image) -> Option<Image> {
    let mut next = image.clone();
    let due = repairs.due(ME, image);
    if due == Due::default() {
        return None;
    }
    let decision = give_up_replicas(&next, ME, BrokerEpoch(5), &due.give_up, defaults());
    decision.records.iter().for_each(|record| next.apply(record));
    repairs.given_up(&decision.reply.unwrap());
    let decision = assign_directories(&next, ME, BrokerEpoch(5), &due.take_back, defaults());
    decision.records.iter().for_each(|record| next.apply(record));
    Some(next)
}

#[test]
fn a_damaged_replica_is_given_up_and_taken_back() {
    for (replicas, leader) in [([1, 2, 3], 2), ([2, 1, 3], 2)] {
        let mut repairs = Repairs::default();
        let image = image(&replicas, &replicas);
        repairs.note(Repair::Damaged(P));
        let image = told(&mut repairs, &image).unwrap();
        let lost = image.topics.partition(TOPIC, P.partition).unwrap();
        assert!(!lost.isr.contains(&ME) && lost.elr.is_empty() && lost.leader == NodeId(leader));
        assert_eq!(lost.directory(ME), Some(directory_id::LOST));
        assert_eq!(lost.leader_epoch.0, 1, "also when the leader stays");
        assert_eq!(told(&mut repairs, &image), None);
        assert!(repairs.is_idle());
        repairs.note(Repair::Rebuilt(P, directory(1)));
        let image = told(&mut repairs, &image).unwrap();
        let back = image.topics.partition(TOPIC, P.partition).unwrap();
        assert_eq!((back.directory(ME), back.leader_epoch.0), (Some(directory(1)), 1));
        assert!(!back.isr.contains(&ME), "that is for its leader to say");
        assert_eq!(told(&mut repairs, &image), None);
        assert!(repairs.is_idle());
    }
}

#[test]
fn a_replica_that_nobody_can_take_the_place_of_waits_for_another() {
    let mut repairs = Repairs::default();
    let alone = image(&[1, 2, 3], &[1]);
    repairs.note(Repair::Damaged(P));
    assert_eq!(told(&mut repairs, &alone), None);
    assert!(!repairs.is_idle());
    // One other may be about to die, or be damaged too.
    assert_eq!(told(&mut repairs, &image(&[1, 2], &[1, 2])), None);
    let all = image(&[1, 2, 3], &[1, 2, 3]);
    let fenced = |node: i32| {
        let mut image = all.clone();
        let registered: &BrokerRegistration = image.brokers.get(NodeId(node)).unwrap();
        assert!(!registered.fenced);
        image.apply(&Record::from(RegisterBrokerRecord {
            broker_id: node,
            broker_epoch: 6,
            log_dirs: vec![directory(node)],
            fenced: true,
            ..RegisterBrokerRecord::default()
        }));
        image
    };
    assert_eq!(told(&mut repairs, &fenced(2)), None);
    assert!(told(&mut repairs, &all).is_some());
    // Decided on a later image than it was due by, it is refused all the same.
    let decision = give_up_replicas(&alone, ME, BrokerEpoch(5), &[P], defaults());
    assert!(decision.records.is_empty() && decision.reply.unwrap().is_empty());
}

#[test]
fn damage_that_is_found_while_it_is_rebuilt_has_it_given_up_again() {
    let mut repairs = Repairs::default();
    repairs.note(Repair::Damaged(P));
    let lost = told(&mut repairs, &image(&[1, 2, 3], &[1, 2, 3])).unwrap();
    repairs.note(Repair::Damaged(P));
    assert_eq!(told(&mut repairs, &lost), None);
    // What was found before it was cut is gone with the rest; the shard says what has been found since.
    repairs.note(Repair::Rebuilt(P, directory(1)));
    repairs.note(Repair::Damaged(P));
    let back = told(&mut repairs, &lost).unwrap();
    let lost = told(&mut repairs, &back).unwrap();
    let partition = lost.topics.partition(TOPIC, P.partition).unwrap();
    assert_eq!((partition.directory(ME), partition.leader_epoch.0), (Some(directory_id::LOST), 2));
    assert_eq!(told(&mut repairs, &lost), None);
    // A partition that is not held any more is nobody's to repair.
    repairs.note(Repair::Damaged(P));
    assert_eq!(told(&mut repairs, &Image::default()), None);
    assert!(repairs.is_idle());
}
