//! Which directory a partition is opened from when there are several of its name, and what happens when one cannot be
//! opened: records are never replaced by an empty log.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::checkpoints::Checkpoints;
use super::directory::Directory;
use super::log_dirs::{LogDirs, OpenError, Opened};
use super::partitions::{Partition, Partitions};
use super::rig::{ME, id, open_dir_with_id, records};
use crate::config::{BrokerConfig, Sources, load};
use crate::metadata::reconcile::Replica;
use crate::metadata::topics::{LeaderRecoveryState, PartitionRegistration};
use crate::storage::checkpoint::{OffsetCheckpoint, read_offsets, write_offsets};
use crate::storage::disk::Disk;
use crate::storage::log::{Budgets, LogConfig, Origin};
use crate::storage::sim_disk::{FaultOn, SimDisk};
use crate::types::{
    DirectoryId, LeaderEpoch, Offset, PartitionEpoch, TimestampMs, TopicPartition, Uuid, directory_id,
};

const A: DirectoryId = Uuid::from_u128(0xa000);
const B: DirectoryId = Uuid::from_u128(0xb000);
const NOW: TimestampMs = TimestampMs(1000);

fn dirs(disk: &SimDisk, which: &[DirectoryId]) -> LogDirs {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let directories = which.iter().enumerate().map(|(index, id)| {
        let path = if *id == A { "/a" } else { "/b" };
        Arc::new(Directory::new(index, open_dir_with_id(&disk, Path::new(path), *id), Vec::new(), 0))
    });
    let directories = directories.collect();
    LogDirs::scan(ME, disk, directories, Vec::new(), Budgets::new(1 << 20, 1 << 20, 100))
}

/// Of the two directories the other one is out of service.
fn only(disk: &SimDisk, id: DirectoryId) -> LogDirs {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (path, lost) = if id == A { ("/a", "/b") } else { ("/b", "/a") };
    let directory = open_dir_with_id(&disk, Path::new(path), id);
    let alone = vec![Arc::new(Directory::new(0, directory, Vec::new(), 0))];
    LogDirs::scan(ME, disk, alone, vec![lost.into()], Budgets::new(1 << 20, 1 << 20, 100))
}

/// The partition `t-0` of a topic, which the metadata has in `directory`.
fn replica(topic: u128, directory: DirectoryId) -> Replica {
    let registration = PartitionRegistration {
        replicas: vec![ME],
        directories: vec![directory],
        isr: vec![ME],
        removing: Vec::new(),
        adding: Vec::new(),
        elr: Vec::new(),
        lossy_epoch: crate::types::LeaderEpoch::UNKNOWN,
        last_known_elr: Vec::new(),
        leader: ME,
        leader_recovery_state: LeaderRecoveryState::Recovered,
        leader_epoch: LeaderEpoch(0),
        partition_epoch: PartitionEpoch(0),
    };
    Replica { id: id(topic, 0), name: TopicPartition::new("t", 0), registration }
}

fn open(dirs: &LogDirs, replica: Replica) -> Result<Opened, OpenError> {
    let config = Arc::new(LogConfig::default());
    let placement = dirs.placement(&broker_config(), std::iter::empty(), false);
    dirs.open_all(&[(replica, config)], placement, 1, NOW).pop().unwrap()
}

fn broker_config() -> BrokerConfig {
    load(&Sources::default()).unwrap().layers.broker_config()
}

fn append(opened: &mut Opened) {
    let batch = records(&["x", "y"]);
    opened.log.append_as_leader(&batch, LeaderEpoch(0), Origin::Client, NOW).unwrap();
    opened.log.flush().unwrap();
}

#[test]
fn a_log_that_finds_no_room_to_be_opened_is_opened_later() {
    // The device is full, or what this user may have of it is.
    let kinds = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    let faults = [(FaultOn::Open, ".index"), (FaultOn::Open, "partition.metadata"), (FaultOn::Sync, "t-0")];
    for ((on, name), kind) in faults.into_iter().flat_map(|fault| kinds.map(|kind| (fault, kind))) {
        let disk = SimDisk::new();
        append(&mut open(&dirs(&disk, &[A]), replica(1, A)).unwrap());
        disk.kill();
        if name == "partition.metadata" {
            disk.remove_file(Path::new("/a/t-0/partition.metadata")).unwrap();
        }
        disk.remove_file(Path::new("/a/t-0/00000000000000000000.index")).unwrap();
        let dirs = dirs(&disk, &[A]);
        disk.fail(on, name, 0, kind, None);
        for _ in 0..3 {
            assert!(open(&dirs, replica(1, A)).is_err_and(|error| error.may_pass()), "{name}");
            assert!(dirs.has_unrecovered(&dirs.directories()[0]));
        }
        disk.heal();
        let opened = open(&dirs, replica(1, A)).unwrap();
        assert_eq!(opened.log.log_end(), Offset(2), "{name}");
        assert!(!dirs.has_unrecovered(&dirs.directories()[0]));
    }
}

#[test]
fn what_the_checkpoints_say_of_a_log_that_is_not_open_is_kept() {
    let disk = SimDisk::new();
    append(&mut open(&dirs(&disk, &[A]), replica(1, A)).unwrap());
    let name = TopicPartition::new("t", 0);
    let write =
        |which| write_offsets(&disk, Path::new("/a"), which, [(&name, Offset(1))].into_iter()).unwrap();
    OffsetCheckpoint::ALL.into_iter().for_each(write);
    disk.kill();
    let said =
        || OffsetCheckpoint::ALL.map(|of| read_offsets(&disk, Path::new("/a"), of).unwrap().remove(&name));
    let checkpoints = |dirs: &Arc<LogDirs>| {
        Checkpoints::new(Partitions::new(Vec::new()), dirs.clone()).write_all();
    };

    disk.remove_file(Path::new("/a/t-0/00000000000000000000.index")).unwrap();
    let first = Arc::new(dirs(&disk, &[A]));
    disk.fail(FaultOn::Open, ".index", 0, io::ErrorKind::StorageFull, None);
    assert!(open(&first, replica(1, A)).is_err());
    checkpoints(&first);
    assert_eq!(said(), [Some(Offset(1)); 4]);
    drop(first);
    disk.heal();
    disk.kill();

    // So records that were deleted stay deleted when it opens at last.
    let second = Arc::new(dirs(&disk, &[A]));
    checkpoints(&second);
    let opened = open(&second, replica(1, A)).unwrap();
    assert_eq!((opened.log.log_start(), opened.log.high_watermark()), (Offset(1), Offset(1)));
    // Until its shard has it there is nothing newer to say. Of one that is set aside nothing is said.
    checkpoints(&second);
    assert_eq!(said(), [Some(Offset(1)); 4]);
    second.forget(&opened.directory, &name);
    checkpoints(&second);
    assert_eq!(said(), [None; 4]);
}

#[test]
fn the_directory_of_the_topic_is_found_among_others_of_its_name() {
    // The topic was deleted and made anew while the directory with the first one was out of service.
    for (older, newer) in [(A, B), (B, A)] {
        let disk = SimDisk::new();
        append(&mut open(&dirs(&disk, &[older]), replica(1, older)).unwrap());
        append(&mut open(&dirs(&disk, &[newer]), replica(2, newer)).unwrap());
        disk.kill();
        for both in [[A, B], [B, A]] {
            let dirs = dirs(&disk, &both);
            assert_eq!(dirs.unopened().len(), 2);
            let opened = open(&dirs, replica(2, newer)).unwrap();
            assert_eq!((opened.log.log_end(), opened.directory.id()), (Offset(2), newer));
            assert_eq!(dirs.unopened().len(), 1);
            disk.kill();
        }
        // A third one finds neither in its way, and both stay.
        let dirs = dirs(&disk, &[A, B]);
        let opened = open(&dirs, replica(3, newer)).unwrap();
        assert_eq!((opened.log.log_end(), opened.directory.id()), (Offset(0), newer));
        assert!(dirs.unopened().is_empty());
        for path in ["/a", "/b"] {
            let names = disk.list(Path::new(path)).unwrap();
            assert_eq!(names.iter().filter(|entry| entry.name.ends_with("-stray")).count(), 1, "{path}");
        }
    }
}

#[test]
fn what_cannot_be_set_aside_is_set_aside_later() {
    let disk = SimDisk::new();
    append(&mut open(&dirs(&disk, &[A]), replica(1, A)).unwrap());
    disk.kill();
    let dirs = dirs(&disk, &[A]);
    disk.fail(FaultOn::Rename, "t-0", 0, io::ErrorKind::StorageFull, None);
    assert!(open(&dirs, replica(2, A)).is_err_and(|error| error.may_pass()));
    assert_eq!(dirs.unopened().len(), 1);
    disk.heal();
    assert_eq!(open(&dirs, replica(2, A)).unwrap().log.log_end(), Offset(0));
    assert!(dirs.unopened().is_empty());
}

#[test]
fn a_partition_can_be_deleted_on_a_disk_that_has_no_room_for_its_new_name() {
    let disk = SimDisk::new();
    let dirs = dirs(&disk, &[A]);
    let mut opened = open(&dirs, replica(1, A)).unwrap();
    append(&mut opened);
    disk.fail(FaultOn::Rename, "t-0", 0, io::ErrorKind::StorageFull, None);
    // What is left when it stops half-way still says whose it is: a new topic of the name must not take it for its own.
    disk.fail(FaultOn::Remove, "t-0", 0, io::ErrorKind::Other, Some(1));
    assert!(dirs.retire(&opened.directory, &TopicPartition::new("t", 0)).is_err());
    let left: Vec<_> = disk.list(Path::new("/a/t-0")).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(left, ["partition.metadata"]);
    assert!(dirs.retire(&opened.directory, &TopicPartition::new("t", 0)).unwrap().is_none());
    assert!(disk.stat(Path::new("/a/t-0")).is_err() && opened.directory.is_online());
    disk.heal();
    assert_eq!(open(&dirs, replica(2, A)).unwrap().log.log_end(), Offset(0));
}

#[test]
fn a_partition_that_found_no_room_to_be_opened_can_be_deleted() {
    let disk = SimDisk::new();
    append(&mut open(&dirs(&disk, &[A]), replica(1, A)).unwrap());
    disk.kill();
    disk.remove_file(Path::new("/a/t-0/00000000000000000000.index")).unwrap();
    let dirs = dirs(&disk, &[A]);
    disk.fail(FaultOn::Open, ".index", 0, io::ErrorKind::StorageFull, None);
    assert!(open(&dirs, replica(1, A)).is_err_and(|error| error.may_pass()));
    let name = TopicPartition::new("t", 0);
    assert!(dirs.retire_unopened(&id(9, 0), &name).is_empty(), "it is of another topic");
    let retired = dirs.retire_unopened(&id(1, 0), &name);
    assert_eq!(retired.len(), 1);
    assert!(dirs.take_replaced() && dirs.unopened().is_empty());
    assert!(!dirs.has_unrecovered(&dirs.directories()[0]));
    assert!(disk.stat(Path::new("/a/t-0")).is_err());
    dirs.remove(&retired);
    assert!(disk.list(Path::new("/a")).unwrap().iter().all(|entry| !entry.is_dir));
}

#[test]
fn a_copy_is_served_when_it_is_all_that_there_is() {
    let disk = SimDisk::new();
    {
        let dirs = dirs(&disk, &[A, B]);
        let mut opened = open(&dirs, replica(1, A)).unwrap();
        append(&mut opened);
        let Opened { log, directory, .. } = opened;
        let partition = Partition::new(id(1, 0), TopicPartition::new("t", 0), directory, &log);
        let mut copy = dirs.create_future(&dirs.directories()[1], &partition, NOW).unwrap();
        copy.advance_to(&log.view(), 1 << 20, NOW).unwrap();
        copy.flush().unwrap();
    }
    disk.kill();
    // The cluster has been told that the partition is about to lie in the other directory, and the first one is lost.
    let lost = only(&disk, B);
    for _ in 0..2 {
        assert!(matches!(open(&lost, replica(1, B)), Err(OpenError::AnnouncedCopyAlone)));
        // Where the metadata still names the first one, it is not told anything.
        assert!(matches!(open(&lost, replica(1, A)), Err(OpenError::CopyAlone)));
    }
    drop(lost);
    disk.kill();
    // It comes back with nothing in it.
    disk.remove_dir_all(Path::new("/a/t-0")).unwrap();
    let dirs = dirs(&disk, &[A, B]);
    let opened = open(&dirs, replica(1, B)).unwrap();
    assert_eq!((opened.log.log_end(), opened.directory.id()), (Offset(2), B));
    assert!(dirs.claim_copies(|_| true).is_empty());
}

#[test]
fn no_log_is_made_where_a_move_was_only_announced() {
    let disk = SimDisk::new();
    append(&mut open(&dirs(&disk, &[A, B]), replica(1, A)).unwrap());
    disk.kill();
    let lost = only(&disk, B);
    for _ in 0..2 {
        let error = open(&lost, replica(1, B)).unwrap_err();
        assert!(matches!(error, OpenError::NotWhereNamed), "{error}");
    }
    // Of what the metadata has elsewhere it says nothing that is wrong.
    let error = open(&lost, replica(1, A)).unwrap_err();
    assert!(matches!(error, OpenError::Elsewhere), "{error}");
    assert!(disk.stat(Path::new("/b/t-0")).is_err());
    // What comes while the broker runs was never anywhere.
    let placement = lost.placement(&broker_config(), std::iter::empty(), true);
    let job = (replica(2, B), Arc::new(LogConfig::default()));
    assert!(lost.open_all(&[job], placement, 1, NOW).pop().unwrap().is_ok());
    drop(lost);
    disk.kill();
    let opened = open(&dirs(&disk, &[A, B]), replica(1, B)).unwrap();
    assert_eq!((opened.log.log_end(), opened.directory.id()), (Offset(2), A));
}

/// The process ended when the log in A had given up its name for the copy in B, which had not got it yet.
fn between_two_names(disk: &SimDisk) {
    given_up(disk);
    disk.sync_dir(Path::new("/a")).unwrap();
    disk.kill();
}

/// The same, and nobody has synced that.
fn given_up(disk: &SimDisk) {
    let dirs = dirs(disk, &[A, B]);
    let mut opened = open(&dirs, replica(1, A)).unwrap();
    append(&mut opened);
    let Opened { log, directory, .. } = opened;
    let name = TopicPartition::new("t", 0);
    let partition = Partition::new(id(1, 0), name.clone(), directory.clone(), &log);
    let mut copy = dirs.create_future(&dirs.directories()[1], &partition, NOW).unwrap();
    copy.advance_to(&log.view(), 1 << 20, NOW).unwrap();
    copy.flush().unwrap();
    log.rename(&dirs.path_aside(&directory, &name, &copy)).unwrap();
}

/// Else a log without what was appended since could be found under its name once the power has failed.
#[test]
fn a_copy_is_not_served_before_the_name_of_its_log_is_gone_for_good() {
    for failing in ["a", "b"] {
        let disk = SimDisk::new();
        given_up(&disk);
        disk.kill();
        let dirs = dirs(&disk, &[A, B]);
        disk.fail(FaultOn::Sync, failing, 0, io::ErrorKind::Other, None);
        open(&dirs, replica(1, B)).unwrap_err();
        // Nor when it works again: what was to be synced may be lost.
        disk.heal();
        open(&dirs, replica(1, B)).unwrap_err();
        assert!(dirs.take_interrupted().is_empty());
        drop(dirs);
        disk.kill();
        let dirs = self::dirs(&disk, &[A, B]);
        let opened = open(&dirs, replica(1, B)).unwrap();
        assert_eq!((opened.log.log_end(), opened.directory.id()), (Offset(2), B), "{failing}");
        for seed in 0..10 {
            disk.crash(seed);
            assert!(disk.stat(Path::new("/a/t-0")).is_err(), "{failing} {seed}");
        }
    }
}

#[test]
fn of_two_logs_of_a_partition_the_one_with_more_is_served_or_none() {
    for (on, name, kind) in [
        (FaultOn::Rename, "t-0", io::ErrorKind::StorageFull),
        (FaultOn::Rename, "t-0", io::ErrorKind::Other),
        (FaultOn::Read, ".log", io::ErrorKind::Other),
        (FaultOn::Sync, "", io::ErrorKind::Other),
    ] {
        for (named, after) in [(A, 0), (B, 0), (A, 1), (B, 1), (A, 2), (B, 2)] {
            let disk = SimDisk::new();
            append(&mut open(&dirs(&disk, &[A]), replica(1, A)).unwrap());
            let mut longer = open(&dirs(&disk, &[B]), replica(1, B)).unwrap();
            (0..2).for_each(|_| append(&mut longer));
            drop(longer);
            disk.kill();
            let what = (on, kind, named, after);
            let longest = |opened: Opened| (opened.log.log_end(), opened.directory.id()) == (Offset(4), B);
            let first = dirs(&disk, &[A, B]);
            disk.fail(on, name, after, kind, None);
            let opened = open(&first, replica(1, named));
            assert!(
                opened.map_or_else(|error| error.may_pass() == (kind == io::ErrorKind::StorageFull), longest),
                "{what:?}"
            );
            disk.heal();
            // What found no room is tried again by the same process.
            if kind == io::ErrorKind::StorageFull && after == 0 {
                assert!(longest(open(&first, replica(1, named)).unwrap()), "{what:?}");
            }
            drop(first);
            disk.kill();
            let again = dirs(&disk, &[A, B]);
            assert!(longest(open(&again, replica(1, named)).unwrap()), "{what:?}");
        }
    }
}

#[test]
fn what_gave_way_to_a_copy_stays_until_the_copy_is_open() {
    let disk = SimDisk::new();
    between_two_names(&disk);
    for (on, name) in [(FaultOn::Rename, "-future"), (FaultOn::Read, ".log")] {
        let dirs = dirs(&disk, &[A, B]);
        disk.fail(on, name, 0, io::ErrorKind::Other, None);
        open(&dirs, replica(1, B)).unwrap_err();
        assert!(dirs.take_interrupted().is_empty(), "{on:?} of {name}");
        disk.heal();
        drop(dirs);
        disk.kill();
    }
    // Nor does it go while the copy is away.
    let alone = only(&disk, A);
    open(&alone, replica(1, B)).unwrap_err();
    assert!(alone.take_interrupted().is_empty());
    drop(alone);
    disk.kill();
    let dirs = dirs(&disk, &[A, B]);
    let opened = open(&dirs, replica(1, B)).unwrap();
    assert_eq!((opened.log.log_end(), opened.directory.id()), (Offset(2), B));
    let old = dirs.take_interrupted();
    assert_eq!(old.len(), 1);
    dirs.remove(&old);
    assert!(disk.list(Path::new("/a")).unwrap().iter().all(|entry| !entry.name.starts_with("t-0")));
}

#[test]
fn a_copy_that_its_log_has_given_way_to_is_served_whatever_else_is_lost() {
    let scan = |disk: &SimDisk| {
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let directories = [("/a", A), ("/b", B)].into_iter().enumerate().map(|(index, (path, id))| {
            Arc::new(Directory::new(index, open_dir_with_id(&shared, Path::new(path), id), Vec::new(), 0))
        });
        let (directories, budgets) = (directories.collect(), Budgets::new(1 << 20, 1 << 20, 100));
        LogDirs::scan(ME, shared.clone(), directories, vec!["/c".into()], budgets)
    };
    let disk = SimDisk::new();
    between_two_names(&disk);
    let opened = open(&scan(&disk), replica(1, B)).unwrap();
    assert_eq!((opened.log.log_end(), opened.directory.id()), (Offset(2), B));
    // What an earlier move has left shows nothing.
    let disk = SimDisk::new();
    between_two_names(&disk);
    let aside = disk.list(Path::new("/a")).unwrap().into_iter().find(|entry| entry.name.starts_with("t-0"));
    let other = Path::new("/a/t-0.00000000000000000000000000000001-delete");
    disk.rename(&Path::new("/a").join(aside.unwrap().name), other).unwrap();
    assert!(matches!(open(&scan(&disk), replica(1, B)), Err(OpenError::AnnouncedCopyAlone)));
}

#[test]
fn a_copy_that_nobody_has_opened_goes_with_its_topic() {
    let disk = SimDisk::new();
    {
        let dirs = dirs(&disk, &[A, B]);
        let Opened { log, directory, .. } = open(&dirs, replica(1, A)).unwrap();
        let partition = Partition::new(id(1, 0), TopicPartition::new("t", 0), directory, &log);
        let _ = dirs.create_future(&dirs.directories()[1], &partition, NOW).unwrap();
    }
    disk.kill();
    let dirs = dirs(&disk, &[A, B]);
    assert!(dirs.retire_unopened(&id(2, 0), &TopicPartition::new("t", 0)).is_empty(), "another topic");
    // The log has not been opened either.
    let retired = dirs.retire_unopened(&id(1, 0), &TopicPartition::new("t", 0));
    dirs.sync_retired(&retired);
    assert_eq!(retired.len(), 2);
    dirs.remove(&retired);
    for path in ["/a", "/b"] {
        assert!(disk.list(Path::new(path)).unwrap().iter().all(|entry| !entry.is_dir), "{path}");
    }
}

#[test]
fn a_new_partition_is_made_where_a_client_wants_it() {
    let disk = SimDisk::new();
    let dirs = dirs(&disk, &[A, B]);
    for (topic, wanted) in [(1, B), (2, A)] {
        let directory = dirs.directories().iter().find(|directory| directory.id() == wanted).unwrap();
        dirs.prefer(TopicPartition::new("t", 0), directory);
        assert_eq!(open(&dirs, replica(topic, A)).unwrap().directory.id(), wanted);
        // The wish is granted once.
        dirs.prefer(TopicPartition::new("u", 0), directory);
    }
}

#[test]
fn a_log_that_has_its_name_is_served_although_the_target_of_its_move_is_lost() {
    let disk = SimDisk::new();
    append(&mut open(&dirs(&disk, &[A]), replica(1, A)).unwrap());
    disk.kill();
    // The cluster has heard of the move. The log gives up its name before anything is appended to its copy.
    for named in [B, directory_id::LOST, A] {
        let opened = open(&only(&disk, A), replica(1, named)).unwrap();
        assert_eq!((opened.log.log_end(), opened.directory.id()), (Offset(2), A));
        disk.kill();
    }
}

#[test]
fn a_directory_with_a_copy_that_nobody_has_opened_was_not_left_in_an_orderly_way() {
    let disk = SimDisk::new();
    {
        let dirs = dirs(&disk, &[A, B]);
        let Opened { log, directory, .. } = open(&dirs, replica(1, A)).unwrap();
        let partition = Partition::new(id(1, 0), TopicPartition::new("t", 0), directory, &log);
        let _ = dirs.create_future(&dirs.directories()[1], &partition, NOW).unwrap();
    }
    disk.kill();
    let dirs = dirs(&disk, &[A, B]);
    let unrecovered = || [0, 1].map(|index| dirs.has_unrecovered(&dirs.directories()[index]));
    assert_eq!(unrecovered(), [false, true]);
    let futures = dirs.claim_copies(|_| true);
    assert_eq!(unrecovered(), [false, false]);
    futures.into_iter().for_each(|(directory, found)| dirs.leave_copy(&directory, found));
    assert_eq!(unrecovered(), [false, true]);
}
