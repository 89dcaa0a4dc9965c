//! Replicas whose records on disk were damaged, and that get them from their leader again.

use std::io::IoSlice;
use std::path::Path;

use bytes::Bytes;
use futures_util::FutureExt as _;

use super::clock;
use super::mailbox::Message;
use super::mending::{Attempt, Mender, Outcome};
use super::messages::RoleSpec;
use super::partitions::Partition;
use super::repairs::Repair;
use super::replication_tests::{Node, P, exchange, pair, produce, settle};
use super::rig::{DIRECTORY_ID, follow, lead, lead_of, replica_config};
use super::serving::{ReadFrom, ReadRefused, read, replica_view};
use super::transactions::{Carried, Peers};
use super::waiters::Bound;
use crate::replica::{Acks, Wants};
use crate::storage::disk::{Disk, OpenMode, read_file};
use crate::storage::log::LogConfig;
use crate::storage::sim_disk::FaultOn;
use crate::types::{LeaderEpoch, NodeId, Offset};
use crate::wire::batch::BatchHeader;
use crate::wire::messages::fetch_response::{FetchResponse, FetchableTopicResponse, PartitionData};
use crate::wire::messages::follower_fetch::FollowerFetchRequest;

fn config() -> LogConfig {
    LogConfig { segment_bytes: 400, index_interval_bytes: 100, ..LogConfig::default() }
}

/// A pair that has replicated some segments, with nothing in memory.
fn stored() -> (Node, Node) {
    let (mut leader, mut follower) = pair(config());
    for round in 0..12 {
        let _ = produce(&mut leader, Acks::All, &[&format!("record {round}"), "another"]);
        settle(&mut follower, &mut leader);
    }
    assert_eq!((leader.ends(), follower.ends().3), ((0, 24, 24, 24), 24));
    for node in [&mut leader, &mut follower] {
        assert!(node.partition.view().segment_count() > 2);
        // The newest batches in memory are forgotten.
        node.rig.pass(100_000);
        node.hear();
    }
    (leader, follower)
}

/// Damages the first batch of the segment that begins at `base`.
fn damage(node: &Node, base: i64) {
    let path = Path::new("/data/topic1-0").join(format!("{base:020}.log"));
    let bytes = read_file(&node.disk, &path).unwrap();
    let file = node.disk.open(&path, OpenMode::Write).unwrap();
    file.write_all_at(&[IoSlice::new(&[bytes[70] ^ 1])], 70).unwrap();
    file.sync_data().unwrap();
}

fn stored_file(node: &Node, base: i64) -> Vec<u8> {
    read_file(&node.disk, &Path::new("/data/topic1-0").join(format!("{base:020}.log"))).unwrap()
}

/// What a crash would leave.
fn durable(node: &Node, base: i64) -> Vec<u8> {
    node.disk.durable_files(Path::new("/data/topic1-0"), ".log")[&format!("{base:020}.log")].clone()
}

fn second_segment(node: &Node) -> i64 {
    let mut names: Vec<String> =
        node.disk.list(Path::new("/data/topic1-0")).unwrap().into_iter().map(|entry| entry.name).collect();
    names.retain(|name| name.ends_with(".log"));
    names.sort_unstable();
    names[1].trim_end_matches(".log").parse().unwrap()
}

fn read_at(partition: &Partition, from: i64) -> Result<usize, ReadRefused> {
    let from = ReadFrom { offset: Offset(from), last_fetched_epoch: LeaderEpoch::UNKNOWN };
    let records = read(&partition.view(), from, Bound::LogEnd, 1, true)?;
    Ok(records.pieces.concat().len())
}

/// All that the log holds, whatever segments it has.
fn whole(node: &Node) -> Vec<u8> {
    let view = node.partition.view();
    let (mut from, mut all) = (view.log_start, Vec::new());
    while from < view.log_end {
        let read_from = ReadFrom { offset: from, last_fetched_epoch: LeaderEpoch::UNKNOWN };
        let bytes = read(&view, read_from, Bound::LogEnd, 1, true).unwrap().pieces.concat();
        from = BatchHeader::parse(&bytes).unwrap().next_offset();
        all.extend(bytes);
    }
    all
}

/// Somebody reads what is damaged, and the shard hears of it.
fn find(node: &mut Node, at: i64) -> Vec<Repair> {
    let Err(ReadRefused::Io(error)) = read_at(&node.partition, at) else { panic!("it is damaged") };
    node.partition.note_unreadable(&error);
    node.rig.pump();
    repairs(node)
}

fn repairs(node: &mut Node) -> Vec<Repair> {
    std::iter::from_fn(|| node.rig.inlets.repairs.try_recv().ok()).collect()
}

fn rebuild(leader: i32, leader_epoch: i32) -> RoleSpec {
    let RoleSpec::Follow(term) = follow(leader, leader_epoch) else { unreachable!() };
    RoleSpec::Rebuild(term)
}

#[test]
fn a_damaged_follower_has_its_records_again_and_tells_when_it_is_whole() {
    let (mut leader, mut follower) = stored();
    let base = second_segment(&follower);
    damage(&follower, base);
    assert_eq!(find(&mut follower, base), [Repair::Damaged(P)]);
    assert_eq!(find(&mut follower, base), [], "it is known");
    // As the metadata has it once the replica is given up: in a new term.
    leader.assume(lead_of(&[1, 2], 2, &[1]));
    follower.assume(rebuild(1, 2));
    assert_eq!(repairs(&mut follower), [Repair::Begun(P)]);
    assert_eq!(follower.ends(), (0, base, base, base));
    let Wants::Fetch(asked) = follower.wants[&NodeId(1)] else { panic!("it fetches") };
    assert_eq!(asked.offset, Offset(base));
    leader.proposals.clear();
    exchange(&mut follower, &mut leader);
    assert!(leader.proposals.is_empty(), "what it had in the term before counts no more");
    settle(&mut follower, &mut leader);
    assert_eq!(repairs(&mut follower), [Repair::Rebuilt(P, DIRECTORY_ID)]);
    assert_eq!(whole(&follower), whole(&leader));
    // In another term nothing more is cut. It may have been taken back and given up between the two, so it is told anew.
    leader.assume(lead_of(&[1, 2], 3, &[1]));
    follower.assume(rebuild(1, 3));
    assert_eq!(follower.ends().3, 24);
    settle(&mut follower, &mut leader);
    assert_eq!(repairs(&mut follower), [Repair::Rebuilt(P, DIRECTORY_ID)]);
    follower.assume(rebuild(1, 3));
    settle(&mut follower, &mut leader);
    assert_eq!(repairs(&mut follower), [], "it is the same term");
    // And it can be damaged again.
    follower.assume(follow(1, 3));
    follower.rig.pass(100_000);
    damage(&follower, base);
    assert_eq!(find(&mut follower, base), [Repair::Damaged(P)]);
}

#[test]
fn a_damaged_leader_follows_whoever_leads_now_and_has_its_records_from_there() {
    let (mut damaged, mut other) = stored();
    let base = second_segment(&damaged);
    damage(&damaged, base);
    assert_eq!(find(&mut damaged, base), [Repair::Damaged(P)]);
    other.assume(lead_of(&[1, 2], 2, &[2]));
    let _ = produce(&mut other, Acks::All, &["of the new leader"]);
    // Without a leader nothing is given away.
    damaged.assume(rebuild(-1, 2));
    assert_eq!(damaged.ends().3, 24);
    damaged.assume(rebuild(2, 2));
    assert_eq!(damaged.ends().3, base);
    settle(&mut damaged, &mut other);
    assert_eq!(repairs(&mut damaged), [Repair::Begun(P), Repair::Rebuilt(P, DIRECTORY_ID)]);
    assert_eq!((whole(&damaged), damaged.ends().3), (whole(&other), 25));
}

/// An earlier process knew where, and had told the cluster that it gives it up.
#[test]
fn a_replica_of_which_it_is_not_known_where_the_damage_is_begins_anew() {
    let (mut leader, mut follower) = stored();
    damage(&follower, second_segment(&follower));
    follower.partition.view().mark_damaged().unwrap();
    follower.rig.flush();
    // What was flushed is not looked through after that.
    follower.rig.checkpoints().write_all();
    follower.disk.crash(1);
    let mut follower = follower.again(config(), rebuild(-1, 2));
    assert_eq!(follower.ends().3, 24, "without a leader nothing is given away");
    leader.assume(lead_of(&[1, 2], 2, &[1]));
    follower.assume(rebuild(1, 2));
    assert_eq!(follower.ends(), (0, 0, 0, 0));
    settle(&mut follower, &mut leader);
    assert_eq!(repairs(&mut follower), [Repair::Begun(P), Repair::Rebuilt(P, DIRECTORY_ID)]);
    assert_eq!(whole(&follower), whole(&leader));
    // That was it. When it is given up again, for its directory was away, it keeps what it has.
    let mut follower = follower.again(config(), rebuild(1, 3));
    assert_eq!(follower.ends().3, 24);
    leader.assume(lead_of(&[1, 2], 3, &[1]));
    settle(&mut follower, &mut leader);
    assert_eq!(repairs(&mut follower), [Repair::Begun(P), Repair::Rebuilt(P, DIRECTORY_ID)]);
}

/// Its directory was missing at a start, so the cluster has it nowhere.
#[test]
fn a_replica_that_was_only_away_keeps_what_it_has_and_gets_the_rest() {
    let (mut leader, follower) = stored();
    let before = whole(&follower);
    leader.assume(lead_of(&[1, 2], 2, &[1]));
    let _ = produce(&mut leader, Acks::Leader, &["while it was away"]);
    leader.rig.flush();
    let mut follower = follower.again(config(), rebuild(1, 2));
    assert_eq!((whole(&follower), follower.ends().3), (before, 24));
    let Wants::Fetch(asked) = follower.wants[&NodeId(1)] else { panic!("it fetches") };
    assert_eq!(asked.offset, Offset(24));
    settle(&mut follower, &mut leader);
    assert_eq!(repairs(&mut follower), [Repair::Begun(P), Repair::Rebuilt(P, DIRECTORY_ID)]);
    assert_eq!((whole(&follower), follower.ends().3), (whole(&leader), 25));
    assert!(follower.rig.directory.is_online());
}

/// It was about to be given up, and then was put right: it is like any other.
#[test]
fn what_was_put_right_is_not_suspected_any_more() {
    let (mut damaged, other) = stored();
    let base = second_segment(&damaged);
    damage(&damaged, base);
    find(&mut damaged, base);
    damaged.partition.view().mark_damaged().unwrap();
    let is_marked = |node: &Node| {
        node.disk.list(Path::new("/data/topic1-0")).unwrap().iter().any(|entry| entry.name == "damaged")
    };
    assert_eq!(mend(&mut damaged, &[]), LOST);
    assert!(is_marked(&damaged));
    assert_eq!(mend(&mut damaged, &[&other]), MENDED);
    assert!(!is_marked(&damaged));
}

/// Taken back and given up again, of which only the end is seen here: it stayed given up for ever.
#[test]
fn damage_that_is_found_after_a_rebuild_begins_another_whatever_was_seen_between() {
    let (mut leader, mut follower) = stored();
    let base = second_segment(&follower);
    damage(&follower, base);
    assert_eq!(find(&mut follower, base), [Repair::Damaged(P)]);
    leader.assume(lead_of(&[1, 2], 2, &[1]));
    follower.assume(rebuild(1, 2));
    settle(&mut follower, &mut leader);
    assert_eq!(repairs(&mut follower), [Repair::Begun(P), Repair::Rebuilt(P, DIRECTORY_ID)]);
    follower.rig.pass(100_000);
    damage(&follower, base);
    assert_eq!(
        find(&mut follower, base),
        [Repair::Damaged(P)],
        "it is other damage, though at the same place"
    );
    // In the same term nothing may be cut: what it has fetched in it counts.
    follower.assume(rebuild(1, 2));
    assert_eq!((follower.ends().3, repairs(&mut follower)), (24, vec![]));
    leader.assume(lead_of(&[1, 2], 3, &[1]));
    follower.assume(rebuild(1, 3));
    assert_eq!(follower.ends().3, base);
    settle(&mut follower, &mut leader);
    assert_eq!(repairs(&mut follower), [Repair::Begun(P), Repair::Rebuilt(P, DIRECTORY_ID)]);
    assert_eq!(whole(&follower), whole(&leader));
}

#[test]
fn a_damaged_replica_that_has_to_lead_keeps_what_it_has_and_tells_where_it_is() {
    let (_, mut damaged) = stored();
    let base = second_segment(&damaged);
    damage(&damaged, base);
    assert_eq!(find(&mut damaged, base), [Repair::Damaged(P)]);
    damaged.assume(rebuild(-1, 2));
    damaged.assume(lead(3, &[2]));
    assert_eq!(damaged.ends().3, 24);
    assert_eq!(repairs(&mut damaged), [Repair::Rebuilt(P, DIRECTORY_ID), Repair::Damaged(P)]);
    damaged.assume(lead(3, &[2]));
    assert_eq!(repairs(&mut damaged), []);
}

/// What is cut off is removed by somebody else: a shard renames at most.
#[test]
fn a_cut_removes_no_files_on_the_shard() {
    let (mut leader, mut follower) = stored();
    let deleted = |node: &Node| {
        let names = node.disk.list(Path::new("/data/topic1-0")).unwrap();
        names.iter().filter(|entry| entry.name.ends_with(".log.deleted")).count()
    };
    let segments = follower.partition.view().segment_count();
    assert_eq!(deleted(&follower), 0);
    damage(&follower, 0);
    assert_eq!(find(&mut follower, 0), [Repair::Damaged(P)]);
    leader.assume(lead_of(&[1, 2], 2, &[1]));
    follower.assume(rebuild(1, 2));
    assert_eq!(deleted(&follower), segments);
    settle(&mut follower, &mut leader);
    follower.rig.directory.remove_doomed(crate::types::MonotonicMs(i64::MAX));
    assert_eq!(deleted(&follower), 0);
    assert_eq!(whole(&follower), whole(&leader));
}

#[test]
fn a_replica_that_is_alone_serves_all_but_what_is_damaged() {
    let (mut leader, _) = stored();
    let base = second_segment(&leader);
    damage(&leader, base);
    assert_eq!(find(&mut leader, base), [Repair::Damaged(P)]);
    leader.assume(lead(2, &[1]));
    for offset in 0..24 {
        let is_damaged = offset == base || offset == base + 1;
        assert_eq!(read_at(&leader.partition, offset).is_err(), is_damaged, "{offset}");
    }
    assert!(leader.rig.directory.is_online());
    let _ = produce(&mut leader, Acks::All, &["more"]);
    leader.rig.flush();
    assert_eq!(leader.ends(), (0, 25, 25, 25));
}

/// Answers a broker that asks for what another one has, as that one's handler does.
fn answer(carried: Carried, other: &Node) {
    let Carried { broker, request, answer } = carried;
    assert_eq!(broker, other.id);
    let FollowerFetchRequest(request) = *request.downcast().unwrap();
    let (topic, partition) = (&request.topics[0], &request.topics[0].partitions[0]);
    assert_eq!((topic.topic_id, partition.partition), (P.topic_id, P.partition.0));
    let from = ReadFrom { offset: Offset(partition.fetch_offset), last_fetched_epoch: LeaderEpoch::UNKNOWN };
    let served = replica_view(&other.partition, LeaderEpoch(partition.current_leader_epoch));
    let records = match served.map(|(_, view)| read(&view, from, Bound::HighWatermark, 1, true)) {
        Ok(Ok(records)) => records.pieces.concat(),
        Ok(Err(_)) | Err(_) => Vec::new(),
    };
    let data = PartitionData { records: Some(Bytes::from(records).into()), ..PartitionData::default() };
    let response = FetchableTopicResponse { partitions: vec![data], ..FetchableTopicResponse::default() };
    let _ = answer.send(Box::new(FetchResponse { responses: vec![response], ..FetchResponse::default() }));
}

/// Has the damage of a node mended by what others have.
fn mend(damaged: &mut Node, others: &[&Node]) -> Outcome {
    clock::simulate(Some(damaged.rig.now));
    let (carrier, mut carried) = tokio::sync::mpsc::unbounded_channel();
    let mender = Mender { peers: Peers::simulated(carrier), partitions: damaged.rig.partitions.clone() };
    let sources = others.iter().map(|other| other.id).collect();
    let leader_epoch = damaged.partition.leadership().leader_epoch;
    let attempt = Attempt { id: P, number: 1, sources, leader_epoch };
    let mut attempt = std::pin::pin!(mender.mend(&attempt));
    let outcome = (0..100).find_map(|_| {
        let done = attempt.as_mut().now_or_never();
        while let Ok(call) = carried.try_recv() {
            let other = others.iter().find(|other| other.id == call.broker).unwrap();
            answer(call, other);
        }
        damaged.rig.pump();
        done
    });
    clock::simulate(None);
    outcome.expect("it comes to an end")
}

const MENDED: Outcome = Outcome { mended: 1, left: 0, lost: 0, is_cut_short: false };
const LOST: Outcome = Outcome { mended: 0, left: 1, lost: 1, is_cut_short: false };

#[test]
fn what_is_damaged_is_had_from_another_replica_and_nothing_else_changes() {
    for is_leader in [true, false] {
        let (leader, follower) = stored();
        let (mut damaged, other) = if is_leader { (leader, follower) } else { (follower, leader) };
        let (base, ends) = (second_segment(&damaged), damaged.ends());
        let other_base = second_segment(&other);
        damage(&damaged, base);
        assert_eq!(find(&mut damaged, base), [Repair::Damaged(P)]);
        assert_eq!(mend(&mut damaged, &[]), LOST, "nobody else is there");
        assert!(read_at(&damaged.partition, base).is_err());
        damage(&other, other_base);
        assert_eq!(mend(&mut damaged, &[&other]), LOST, "it is damaged there too");
        damage(&other, other_base);
        assert_eq!(mend(&mut damaged, &[&other]), MENDED);
        assert_eq!((damaged.ends(), repairs(&mut damaged)), (ends, vec![]));
        // As all that is written it is synced.
        assert_ne!(durable(&damaged, base), stored_file(&damaged, base));
        damaged.rig.flush();
        assert_eq!(durable(&damaged, base), stored_file(&damaged, base));
        assert_eq!(whole(&damaged), whole(&other));
        // Found again by nobody, but damaged again it is found.
        assert_eq!(mend(&mut damaged, &[]), Outcome::default(), "nothing is known to be damaged");
        damage(&damaged, base);
        assert_eq!(find(&mut damaged, base), [Repair::Damaged(P)]);
    }
}

/// Its own log says that nothing of it is damaged; then a sync fails.
#[test]
fn a_sync_that_fails_after_a_mend_takes_the_directory_out_of_service() {
    let (mut damaged, other) = stored();
    let base = second_segment(&damaged);
    damage(&damaged, base);
    find(&mut damaged, base);
    damaged.disk.fail(FaultOn::Sync, &format!("{base:020}.log"), 0, std::io::ErrorKind::Other, None);
    assert_eq!(mend(&mut damaged, &[&other]), MENDED);
    assert!(damaged.rig.directory.is_online());
    damaged.rig.flush();
    assert!(!damaged.rig.directory.is_online());
}

/// Who is in another term may have other records.
#[test]
fn only_replicas_in_the_same_term_help() {
    let (mut damaged, mut other) = stored();
    let base = second_segment(&damaged);
    damage(&damaged, base);
    find(&mut damaged, base);
    other.assume(follow(1, 2));
    assert_eq!(mend(&mut damaged, &[&other]), LOST);
    damaged.assume(lead_of(&[1, 2], 2, &[1, 2]));
    assert_eq!(mend(&mut damaged, &[&other]), MENDED);
}

/// Retention, or a cut, while somebody asks for what was damaged.
#[test]
fn what_goes_while_it_is_mended_is_not_damaged_any_more() {
    for (is_cut, is_early) in [(false, true), (true, false), (true, true)] {
        let (mut damaged, other) = stored();
        let base = second_segment(&damaged);
        damage(&damaged, base);
        find(&mut damaged, base);
        clock::simulate(Some(damaged.rig.now));
        let (carrier, mut carried) = tokio::sync::mpsc::unbounded_channel();
        let mender = Mender { peers: Peers::simulated(carrier), partitions: damaged.rig.partitions.clone() };
        let leader_epoch = damaged.partition.leadership().leader_epoch;
        let attempt = Attempt { id: P, number: 1, sources: vec![other.id], leader_epoch };
        let mut attempt = std::pin::pin!(mender.mend(&attempt));
        assert!(attempt.as_mut().now_or_never().is_none());
        let go = |damaged: &mut Node| {
            if is_cut {
                return damaged.assume(rebuild(2, 2));
            }
            let deletes = vec![(P, Some(Offset(20)))];
            let _ = damaged.rig.partitions.delete_records(1_000, deletes).now_or_never();
            damaged.rig.pump();
            drop(damaged.rig.partitions.retain(P));
            damaged.rig.pump();
        };
        if is_early {
            go(&mut damaged);
        }
        answer(carried.try_recv().unwrap(), &other);
        let mut outcome = attempt.as_mut().now_or_never();
        if !is_early {
            assert_eq!(outcome, None, "it is to be written");
            go(&mut damaged);
            damaged.rig.pump();
            outcome = attempt.as_mut().now_or_never();
        }
        let outcome = outcome.unwrap();
        clock::simulate(None);
        assert_eq!(outcome, Outcome { is_cut_short: true, ..Outcome::default() }, "{is_cut} {is_early}");
        // So it is looked at once more, and nothing is left of it.
        assert_eq!(mend(&mut damaged, &[]), Outcome::default());
        assert!(damaged.rig.directory.is_online());
    }
}

/// Each answer has one batch here.
#[test]
fn what_is_larger_than_an_answer_is_asked_for_until_it_is_whole() {
    let (mut damaged, other) = stored();
    let base = second_segment(&damaged);
    let path = Path::new("/data/topic1-0").join(format!("{base:020}.log"));
    let before = stored_file(&damaged, base);
    let len = BatchHeader::parse(&before).unwrap().size_in_bytes();
    assert!(before.len() > 3 * len);
    let wipe = |node: &Node| {
        let file = node.disk.open(&path, OpenMode::Write).unwrap();
        file.write_all_at(&[IoSlice::new(&vec![0; 2 * len + 3])], 0).unwrap();
    };
    wipe(&damaged);
    assert_eq!(find(&mut damaged, base), [Repair::Damaged(P)]);
    assert_eq!(mend(&mut damaged, &[&other]), MENDED);
    assert_eq!(stored_file(&damaged, base), before);
    // There the second batch is damaged as well.
    let other_base = second_segment(&other);
    assert_eq!(other_base, base);
    let file = other.disk.open(&path, OpenMode::Write).unwrap();
    file.write_all_at(&[IoSlice::new(&[0xff])], len as u64 + 70).unwrap();
    wipe(&damaged);
    assert_eq!(find(&mut damaged, base), [Repair::Damaged(P)]);
    assert_eq!(mend(&mut damaged, &[&other]), LOST);
}

/// Damage of any size up to the largest batches that a topic takes, and across where two of them meet.
#[test]
fn what_is_damaged_may_be_as_large_as_the_largest_batches() {
    const LARGE: usize = 5 << 20;
    let config = LogConfig { segment_bytes: 1 << 30, max_message_bytes: 6 << 20, ..LogConfig::default() };
    let (mut leader, mut follower) = pair(config);
    let (small, large) = ("v".repeat(700 << 10), "w".repeat(LARGE));
    for value in [&large, &large, &small, &small, &small, &small, &small, &small, &small, &small] {
        let _ = produce(&mut leader, Acks::All, &[value]);
        settle(&mut follower, &mut leader);
    }
    for node in [&mut leader, &mut follower] {
        node.rig.pass(100_000);
        node.hear();
    }
    let before = stored_file(&follower, 0);
    let file =
        follower.disk.open(Path::new("/data/topic1-0/00000000000000000000.log"), OpenMode::Write).unwrap();
    // Within one batch, across two, and over many.
    for (from, to) in [
        (70, 71),
        (1000, LARGE - 1000),
        (LARGE - 100, LARGE + 1000),
        (0, 2 * LARGE),
        (2 * LARGE, 2 * LARGE + (5 << 20)),
    ] {
        file.write_all_at(&[IoSlice::new(&vec![0; to - from])], from as u64).unwrap();
        let at = i64::from(from >= 2 * LARGE) * 2;
        let found: Vec<Repair> = (at..10)
            .flat_map(|at| match read_at(&follower.partition, at) {
                Ok(_) => Vec::new(),
                Err(ReadRefused::Io(error)) => {
                    follower.partition.note_unreadable(&error);
                    follower.rig.pump();
                    repairs(&mut follower)
                }
                Err(error) => panic!("{error:?}"),
            })
            .collect();
        assert!(!found.is_empty(), "{from}..{to}");
        let Outcome { mended, left, .. } = mend(&mut follower, &[&leader]);
        assert!(mended > 0 && left == 0, "{from}..{to}");
        assert!(stored_file(&follower, 0) == before, "{from}..{to}");
    }
}

/// A directory that is out of service has none: else it would be looked at for ever.
#[test]
fn a_directory_that_has_failed_is_not_looked_at() {
    let (mut damaged, other) = stored();
    let base = second_segment(&damaged);
    damage(&damaged, base);
    find(&mut damaged, base);
    damaged.rig.directory.fail("write", &"failed");
    damaged.disk.fail(FaultOn::Read, "", 0, std::io::ErrorKind::Other, None);
    assert_eq!(mend(&mut damaged, &[&other]), Outcome::default());
}

#[test]
fn a_segment_that_cannot_be_read_keeps_no_other_from_being_put_right() {
    let (mut damaged, other) = stored();
    let base = second_segment(&damaged);
    for base in [0, base] {
        damage(&damaged, base);
        assert_eq!(find(&mut damaged, base), [Repair::Damaged(P)]);
    }
    // Somebody has taken the file away.
    damaged.disk.fail(FaultOn::Read, &format!("{:020}.log", 0), 0, std::io::ErrorKind::NotFound, None);
    assert_eq!(mend(&mut damaged, &[&other]), Outcome { left: 1, lost: 1, ..MENDED });
    assert!(read_at(&damaged.partition, base).is_ok());
    damaged.disk.heal();
    assert_eq!(mend(&mut damaged, &[&other]), MENDED);
}

/// Nobody gives a replica up because of that: it is offline.
#[test]
fn a_disk_that_cannot_read_what_is_damaged_is_out_of_service() {
    let (mut damaged, other) = stored();
    let base = second_segment(&damaged);
    damage(&damaged, base);
    find(&mut damaged, base);
    damaged.disk.fail(FaultOn::Read, ".log", 0, std::io::ErrorKind::Other, None);
    assert_eq!(mend(&mut damaged, &[&other]), Outcome::default());
    assert!(!damaged.rig.directory.is_online());
}

#[test]
fn a_full_disk_is_tried_again_later() {
    let (mut damaged, other) = stored();
    let base = second_segment(&damaged);
    damage(&damaged, base);
    find(&mut damaged, base);
    damaged.disk.fail(FaultOn::Write, ".log", 0, std::io::ErrorKind::StorageFull, None);
    assert_eq!(mend(&mut damaged, &[&other]), Outcome { is_cut_short: true, ..Outcome::default() });
    damaged.disk.heal();
    assert!(damaged.rig.directory.is_online());
    assert_eq!(mend(&mut damaged, &[&other]), MENDED);
}

/// What the leader must have when this replica is cut, whoever that is then.
#[test]
fn what_one_of_the_others_lacks_counts_as_lost() {
    let (mut damaged, other) = stored();
    let (_, mut third) = stored();
    third.id = NodeId(3);
    let base = second_segment(&damaged);
    damage(&damaged, base);
    find(&mut damaged, base);
    let path = Path::new("/data/topic1-0").join(format!("{base:020}.log"));
    let file = damaged.disk.open(&path, OpenMode::Write).unwrap();
    // Where a topic is compacted nothing is told by its place.
    file.write_all_at(&[IoSlice::new(&[0; 61])], 0).unwrap();
    let compacting = LogConfig { compact: true, ..config() };
    let settings = replica_config(&compacting);
    damaged.rig.tell(Message::Configure(P, std::sync::Arc::new(compacting), settings));
    let unfit = Outcome { left: 1, ..Outcome::default() };
    assert_eq!(mend(&mut damaged, &[&other, &third]), unfit);
    damage(&third, base);
    assert_eq!(mend(&mut damaged, &[&other, &third]), LOST);
}
