//! Replicas whose records on disk were damaged, and that get them from their leader again.

use std::io::IoSlice;
use std::path::Path;

use super::messages::RoleSpec;
use super::partitions::Partition;
use super::repairs::Repair;
use super::replication_tests::{Node, P, exchange, pair, produce, settle};
use super::rig::{DIRECTORY_ID, follow, lead, lead_of};
use super::serving::{ReadFrom, ReadRefused, read};
use super::waiters::Bound;
use crate::replica::{Acks, Wants};
use crate::storage::disk::{Disk, OpenMode, read_file};
use crate::storage::log::LogConfig;
use crate::types::{LeaderEpoch, NodeId, Offset};
use crate::wire::batch::BatchHeader;

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

#[test]
fn a_replica_of_which_it_is_not_known_where_the_damage_is_begins_anew() {
    let (mut leader, mut follower) = stored();
    leader.assume(lead_of(&[1, 2], 2, &[1]));
    follower.assume(rebuild(1, 2));
    assert_eq!(follower.ends(), (0, 0, 0, 0));
    settle(&mut follower, &mut leader);
    assert_eq!(repairs(&mut follower), [Repair::Begun(P), Repair::Rebuilt(P, DIRECTORY_ID)]);
    assert_eq!(whole(&follower), whole(&leader));
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
