//! What the cluster is told of damaged replicas, by the metadata that there is.

use super::*;
use crate::metadata::brokers::BrokerRegistration;
use crate::metadata::election::ElectionDefaults;
use crate::metadata::features::bootstrap_records;
use crate::metadata::topics::{give_up_replicas, place_replicas, take_back_replicas};
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

const NOW: MonotonicMs = MonotonicMs(5_000_000);
/// Others have it, but it does not fit.
const IN_VAIN: Outcome = Outcome { mended: 0, left: 1, lost: 0, is_cut_short: false };
const MENDED: Outcome = Outcome { mended: 1, left: 0, lost: 0, is_cut_short: false };

/// Has tried to put right what was damaged as often as it is tried before a replica is given up.
fn tried(repairs: &mut Repairs, image: &Image) {
    let mut now = NOW;
    for _ in 0..ATTEMPTS {
        let attempts = repairs.begin(ME, image, now);
        assert_eq!(attempts.len(), 1);
        assert_eq!(repairs.due(ME, image, now), Due::default(), "perhaps it is put right");
        repairs.ended(&attempts[0], IN_VAIN, now);
        now = repairs.wakes_at(now).unwrap();
    }
}

/// The image after this broker has told what is due; `None` when nothing is.
fn told(repairs: &mut Repairs, image: &Image) -> Option<Image> {
    let mut next = image.clone();
    let due = repairs.due(ME, image, NOW);
    if due == Due::default() {
        return None;
    }
    let decision = give_up_replicas(&next, ME, BrokerEpoch(5), &due.give_up, defaults());
    decision.records.iter().for_each(|record| next.apply(record));
    let given_up = decision.reply.unwrap();
    assert_eq!(repairs.due(ME, image, NOW), Due::default(), "it is being told");
    repairs.told(Some(&given_up), NOW);
    let decision = take_back_replicas(&next, ME, BrokerEpoch(5), &due.take_back, defaults());
    decision.records.iter().for_each(|record| next.apply(record));
    Some(next)
}

#[test]
fn a_damaged_replica_is_given_up_and_taken_back() {
    for (replicas, leader) in [([1, 2, 3], 2), ([2, 1, 3], 2)] {
        let mut repairs = Repairs::default();
        let image = image(&replicas, &replicas);
        repairs.note(Repair::Damaged(P), NOW);
        tried(&mut repairs, &image);
        let image = told(&mut repairs, &image).unwrap();
        let lost = image.topics.partition(TOPIC, P.partition).unwrap();
        assert!(!lost.isr.contains(&ME) && lost.elr.is_empty() && lost.leader == NodeId(leader));
        assert_eq!(lost.directory(ME), Some(directory_id::LOST));
        assert_eq!(lost.leader_epoch.0, 1, "also when the leader stays");
        assert_eq!(told(&mut repairs, &image), None);
        assert!(repairs.is_idle());
        repairs.note(Repair::Rebuilt(P, directory(1)), NOW);
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
    repairs.note(Repair::Damaged(P), NOW);
    assert_eq!(repairs.begin(ME, &alone, NOW), [], "there is nobody to ask");
    tried(&mut repairs, &image(&[1, 2], &[1, 2]));
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
    let all = image(&[1, 2, 3], &[1, 2, 3]);
    repairs.note(Repair::Damaged(P), NOW);
    tried(&mut repairs, &all);
    let lost = told(&mut repairs, &all).unwrap();
    repairs.note(Repair::Damaged(P), NOW);
    tried(&mut repairs, &lost);
    assert_eq!(told(&mut repairs, &lost), None);
    // What was found before it was cut is gone with the rest; the shard says what has been found since.
    repairs.note(Repair::Rebuilt(P, directory(1)), NOW);
    repairs.note(Repair::Damaged(P), NOW);
    let back = told(&mut repairs, &lost).unwrap();
    tried(&mut repairs, &image(&[1, 2, 3], &[1, 2, 3]));
    let lost = told(&mut repairs, &back).unwrap();
    let partition = lost.topics.partition(TOPIC, P.partition).unwrap();
    assert_eq!((partition.directory(ME), partition.leader_epoch.0), (Some(directory_id::LOST), 2));
    assert_eq!(told(&mut repairs, &lost), None);
    // A partition that is not held any more is nobody's to repair.
    repairs.note(Repair::Damaged(P), NOW);
    assert_eq!(told(&mut repairs, &Image::default()), None);
    assert!(repairs.is_idle());
}

fn nodes(ids: &[i32]) -> Vec<NodeId> {
    ids.iter().map(|id| NodeId(*id)).collect()
}

#[test]
fn those_are_asked_that_live_and_are_in_sync() {
    let sources = |image: &Image| sources(image, ME, image.topics.partition(TOPIC, P.partition).unwrap());
    assert_eq!(sources(&image(&[3, 1, 2], &[1, 2, 3])), nodes(&[3, 2]));
    assert_eq!(sources(&image(&[1, 3, 2], &[3, 1, 2])), nodes(&[2, 3]));
    assert_eq!(sources(&image(&[1, 2, 3], &[1, 3])), nodes(&[3]));
    assert_eq!(sources(&image(&[1, 2, 3], &[1])), []);
    let mut repairs = Repairs::default();
    repairs.note(Repair::Damaged(P), NOW);
    let expected =
        Attempt { id: P, number: 1, sources: nodes(&[3, 2]), leader_epoch: crate::types::LeaderEpoch(0) };
    assert_eq!(repairs.begin(ME, &image(&[3, 1, 2], &[1, 2, 3]), NOW), [expected]);
}

#[test]
fn it_is_tried_again_later_and_later_and_at_once_when_more_is_found() {
    let (mut repairs, all, mut now) = (Repairs::default(), image(&[1, 2], &[1, 2]), NOW);
    repairs.note(Repair::Damaged(P), now);
    let mut waits = Vec::new();
    for _ in 0..13 {
        let attempt = repairs.begin(ME, &all, now).pop().unwrap();
        assert_eq!((repairs.begin(ME, &all, now), repairs.wakes_at(now)), (vec![], None), "it is under way");
        repairs.ended(&attempt, IN_VAIN, now);
        assert_eq!(repairs.begin(ME, &all, now), []);
        let wakes_at = repairs.wakes_at(now).unwrap();
        waits.push(wakes_at.since(now) / 1000);
        now = wakes_at;
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600]);
    // What is put right shows that it is worth the while.
    let attempt = repairs.begin(ME, &all, now).pop().unwrap();
    repairs.ended(&attempt, Outcome { mended: 5, ..IN_VAIN }, now);
    assert_eq!(repairs.wakes_at(now), Some(now.plus(1000)));
    for _ in 0..3 {
        now = repairs.wakes_at(now).unwrap();
        let attempt = repairs.begin(ME, &all, now).pop().unwrap();
        repairs.ended(&attempt, IN_VAIN, now);
    }
    assert_eq!(repairs.wakes_at(now), Some(now.plus(8000)));
    // More is found, before an attempt and during one.
    repairs.note(Repair::Damaged(P), now);
    assert_eq!(repairs.wakes_at(now), Some(now.plus(1000)));
    now = now.plus(1000);
    let attempt = repairs.begin(ME, &all, now).pop().unwrap();
    repairs.note(Repair::Damaged(P), now);
    repairs.ended(&attempt, MENDED, now);
    assert_eq!((repairs.is_idle(), repairs.wakes_at(now)), (false, Some(now.plus(1000))));
    now = now.plus(1000);
    let attempt = repairs.begin(ME, &all, now).pop().unwrap();
    repairs.ended(&attempt, Outcome { is_cut_short: true, ..MENDED }, now);
    assert_eq!((repairs.is_idle(), repairs.wakes_at(now)), (false, Some(now.plus(1000))));
    now = now.plus(1000);
    let attempt = repairs.begin(ME, &all, now).pop().unwrap();
    repairs.ended(&attempt, Outcome::default(), now);
    assert_eq!((told(&mut repairs, &all), repairs.is_idle(), repairs.wakes_at(now)), (None, true, None));
}

/// The records that nobody has are lost: to be fetched from another replica would not bring them back, and costs what is behind.
#[test]
fn a_replica_is_not_given_up_for_what_nobody_has() {
    let (mut repairs, all, mut now) = (Repairs::default(), image(&[1, 2, 3], &[1, 2, 3]), NOW);
    repairs.note(Repair::Damaged(P), now);
    for _ in 0..5 {
        let attempt = repairs.begin(ME, &all, now).pop().unwrap();
        repairs.ended(&attempt, Outcome { left: 2, lost: 1, ..IN_VAIN }, now);
        assert_eq!(told(&mut repairs, &all), None);
        now = repairs.wakes_at(now).unwrap();
    }
    let attempt = repairs.begin(ME, &all, now).pop().unwrap();
    repairs.ended(&attempt, IN_VAIN, now);
    assert!(told(&mut repairs, &all).is_some());
}

/// What was under way when it was cut says nothing of what it is now, nor does it keep anything from beginning.
#[test]
fn an_attempt_that_was_overtaken_by_a_cut_changes_nothing() {
    let (mut repairs, all) = (Repairs::default(), image(&[1, 2, 3], &[1, 2, 3]));
    repairs.note(Repair::Damaged(P), NOW);
    let old = repairs.begin(ME, &all, NOW).pop().unwrap();
    repairs.note(Repair::Begun(P), NOW);
    assert!(repairs.is_idle());
    repairs.note(Repair::Damaged(P), NOW);
    let new = repairs.begin(ME, &all, NOW).pop().unwrap();
    assert_ne!(old.number, new.number);
    repairs.ended(&old, MENDED, NOW);
    assert!(!repairs.is_idle());
    repairs.note(Repair::Begun(P), NOW);
    repairs.ended(&new, IN_VAIN, NOW);
    assert!(repairs.is_idle());
}

#[test]
fn few_are_tried_at_the_same_time_and_each_has_its_turn() {
    let mut all = image(&[1, 2], &[1, 2]);
    let partition = |index| TopicIdPartition { topic_id: TOPIC, partition: PartitionIndex(index) };
    for index in 1..5 {
        all.apply(&Record::from(PartitionRecord {
            partition_id: index,
            topic_id: TOPIC,
            replicas: vec![1, 2],
            isr: vec![1, 2],
            leader: 1,
            directories: vec![directory(1), directory(2)],
            ..PartitionRecord::default()
        }));
    }
    let mut repairs = Repairs::default();
    (0..5).for_each(|index| repairs.note(Repair::Damaged(partition(index)), NOW));
    let (mut now, mut seen) = (NOW, Vec::new());
    let mut under_way = repairs.begin(ME, &all, now);
    for _ in 0..10 {
        assert_eq!((under_way.len(), repairs.begin(ME, &all, now)), (ATTEMPTS_UNDER_WAY, vec![]));
        let ended = under_way.remove(0);
        // Even where it could go on for ever.
        repairs.ended(&ended, Outcome { is_cut_short: true, ..MENDED }, now);
        seen.push(ended.id.partition.0);
        now = now.plus(1000);
        under_way.extend(repairs.begin(ME, &all, now));
    }
    assert_eq!(seen, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
}

#[test]
fn what_could_not_be_told_is_told_again() {
    let (mut repairs, all) = (Repairs::default(), image(&[1, 2, 3], &[1, 2, 3]));
    repairs.note(Repair::Damaged(P), NOW);
    tried(&mut repairs, &all);
    let due = repairs.due(ME, &all, NOW);
    assert_eq!(due.give_up, [P]);
    let later = NOW.plus(1_000_000);
    assert_eq!(repairs.begin(ME, &all, later), [], "while it is told");
    repairs.told(None, NOW);
    assert_eq!((repairs.due(ME, &all, NOW), repairs.wakes_at(NOW)), (Due::default(), Some(NOW.plus(1000))));
    assert_eq!(repairs.due(ME, &all, NOW.plus(1000)), due);
}

/// A disk that cannot be read, or is full, is not asked each second.
#[test]
fn what_is_cut_short_in_vain_is_tried_again_later_and_later() {
    let (mut repairs, all, mut now) = (Repairs::default(), image(&[1, 2, 3], &[1, 2, 3]), NOW);
    repairs.note(Repair::Damaged(P), now);
    let mut waits = Vec::new();
    for _ in 0..4 {
        let attempt = repairs.begin(ME, &all, now).pop().unwrap();
        repairs.ended(&attempt, Outcome { is_cut_short: true, ..Outcome::default() }, now);
        assert_eq!(told(&mut repairs, &all), None, "it is not known what others have");
        let wakes_at = repairs.wakes_at(now).unwrap();
        waits.push(wakes_at.since(now) / 1000);
        now = wakes_at;
    }
    assert_eq!(waits, [1, 2, 4, 8]);
}

#[test]
fn a_replica_that_is_given_up_lies_nowhere_until_it_is_whole_and_then_where_it_was_last_told() {
    let mut repairs = Repairs::default();
    repairs.note(Repair::Damaged(P), NOW);
    let whole = image(&[1, 2, 3], &[1, 2, 3]);
    tried(&mut repairs, &whole);
    let mut lost = told(&mut repairs, &whole).unwrap();
    // A move or a start says where its log is.
    let place = |image: &Image, at| place_replicas(image, ME, BrokerEpoch(5), &[(P, at)], defaults());
    let refused = place(&lost, directory(1));
    assert_eq!((refused.records, refused.reply), (Vec::new(), Ok(vec![P])));
    repairs.note(Repair::Rebuilt(P, directory(1)), NOW);
    let due = repairs.due(ME, &lost, NOW);
    let take_back =
        |image: &Image| take_back_replicas(image, ME, BrokerEpoch(5), &due.take_back, defaults()).records;
    take_back(&lost).iter().for_each(|record| lost.apply(record));
    let other = Uuid::from_u128(2000);
    let moved = place(&lost, other);
    assert_eq!(moved.reply, Ok(Vec::new()));
    moved.records.iter().for_each(|record| lost.apply(record));
    // Told once more, for the answer was lost, it does not put the replica back.
    assert_eq!(take_back(&lost), []);
    assert_eq!(lost.topics.partition(TOPIC, P.partition).unwrap().directory(ME), Some(other));
}

#[test]
fn damage_of_a_log_whose_place_a_copy_has_taken_is_nobodys_concern() {
    let mut repairs = Repairs::default();
    repairs.note(Repair::Damaged(P), NOW);
    assert_eq!(told(&mut repairs, &image(&[1, 2, 3], &[1])), None);
    repairs.note(Repair::Moved(P), NOW);
    assert_eq!(told(&mut repairs, &image(&[1, 2, 3], &[1, 2, 3])), None);
    assert!(repairs.is_idle());
}
