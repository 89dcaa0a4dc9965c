//! The reconciler on a disk that runs full, with a shard that runs on its thread.

use std::io;
use std::path::Path;

use super::super::directory::Directory;
use super::super::mailbox::{mailbox, spawn};
use super::super::outbox::outlets;
use super::super::rig::{ME, id, open_dir};
use super::super::shard::Shard;
use super::super::start_tests::layers;
use super::*;
use crate::metadata::Record;
use crate::storage::checkpoint::{OffsetCheckpoint, read_offsets, write_offsets};
use crate::storage::disk::Disk;
use crate::storage::log::Budgets;
use crate::storage::sim_disk::{FaultOn, SimDisk};
use crate::types::{Offset, TopicPartition, Uuid, directory_id};
use crate::wire::messages::StrBytes;
use crate::wire::messages::metadata::{PartitionRecord, RegisterBrokerRecord, TopicRecord};

const DIR: &str = "/data";

/// Topics of one partition each, led by this broker.
fn image(version: u64, topics: &[(&str, u128)]) -> Arc<Image> {
    let mut image = Image::default();
    for (name, topic) in topics {
        let (name, topic_id) = (StrBytes::from_string((*name).to_owned()), Uuid::from_u128(*topic));
        image.apply(&Record::from(TopicRecord { name, topic_id, ..TopicRecord::default() }));
        image.apply(&Record::from(PartitionRecord {
            partition_id: 0,
            topic_id,
            replicas: vec![ME.0],
            isr: vec![ME.0],
            leader: ME.0,
            directories: vec![directory_id::UNASSIGNED],
            ..PartitionRecord::default()
        }));
    }
    image.version = ImageVersion(version);
    Arc::new(image)
}

fn reconciler(disk: &SimDisk) -> (Reconciler, mpsc::UnboundedReceiver<Chore>) {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (sender, mailbox) = mailbox(100);
    let directory = Directory::new(0, open_dir(&shared, Path::new(DIR)), vec![sender.clone()], 0);
    spawn(0, Shard::new(0, ME, outlets().0), mailbox).unwrap();
    let (partitions, budgets) = (Partitions::new(vec![sender]), Budgets::new(1 << 20, 1 << 20, 100));
    let dirs = LogDirs::scan(ME, shared.clone(), vec![Arc::new(directory)], Vec::new(), budgets);
    let dirs = Arc::new(dirs);
    let checkpoints = Arc::new(Checkpoints::new(partitions.clone(), dirs.clone()));
    let (chores, to_do) = mpsc::unbounded_channel();
    let config = Arc::new(DynamicConfig::new(ME, layers(&[])));
    (Reconciler::new(ME, config, partitions, dirs, checkpoints, chores).0, to_do)
}

/// As if records of `t` had been deleted.
fn say_where_t_starts(disk: &SimDisk) {
    let t = TopicPartition::new("t", 0);
    let starts = [(&t, Offset(5000))].into_iter();
    write_offsets(disk, Path::new(DIR), OffsetCheckpoint::LogStart, starts).unwrap();
}

fn says_where_t_starts(disk: &SimDisk) -> bool {
    let stored = read_offsets(disk, Path::new(DIR), OffsetCheckpoint::LogStart).unwrap();
    stored.contains_key(&TopicPartition::new("t", 0))
}

/// After a crash a new log would be taken for the older one, and lose what lies below where that began.
#[tokio::test]
async fn the_checkpoints_say_nothing_of_an_older_topic_of_the_name_whatever_room_there_is() {
    for was_left in [false, true] {
        let disk = SimDisk::new();
        let (mut reconciler, _to_do) = {
            let (mut first, to_do) = reconciler(&disk);
            first.catch_up(image(1, &[("t", 1), ("kept", 9)])).await;
            if was_left {
                drop((first, to_do));
                disk.kill();
                say_where_t_starts(&disk);
                reconciler(&disk)
            } else {
                let says = vec![(TopicPartition::new("t", 0), Offset(5000))];
                let offsets = first.dirs.directories()[0].dir().offsets().clone();
                assert!(offsets.write(OffsetCheckpoint::LogStart, |_| says).unwrap());
                (first, to_do)
            }
        };
        assert!(says_where_t_starts(&disk));
        disk.fail(FaultOn::Write, "checkpoint", 0, io::ErrorKind::StorageFull, None);
        let mut version = 1;
        for topics in [&[("kept", 9)][..], &[("kept", 9), ("t", 2)]] {
            version += 1;
            reconciler.catch_up(image(version, topics)).await;
        }
        let partition = reconciler.partitions.get(&id(2, 0)).unwrap();
        assert_eq!(partition.view().log_start, Offset(0));
        assert!(!says_where_t_starts(&disk) && reconciler.partitions.get(&id(9, 0)).is_some());
        assert!(reconciler.dirs.directories()[0].is_online());
    }
}

/// Only a replica that the cluster does without is rebuilt, for that cuts its log. One in no directory may be needed all the same.
#[tokio::test]
async fn a_replica_is_rebuilt_only_where_nobody_may_need_what_it_has() {
    let (reconciler, _to_do) = reconciler(&SimDisk::new());
    let other = NodeId(ME.0 + 1);
    let registration = |directory, leader: NodeId, isr: &[NodeId], elr: &[NodeId]| PartitionRegistration {
        replicas: vec![ME, other],
        directories: vec![directory, Uuid::from_u128(1000)],
        isr: isr.to_vec(),
        removing: Vec::new(),
        adding: Vec::new(),
        elr: elr.to_vec(),
        lossy_epoch: crate::types::LeaderEpoch::UNKNOWN,
        last_known_elr: Vec::new(),
        leader,
        leader_recovery_state: LeaderRecoveryState::Recovered,
        leader_epoch: crate::types::LeaderEpoch(4),
        partition_epoch: crate::types::PartitionEpoch(7),
    };
    let mut image = Image::default();
    image.apply(&Record::from(RegisterBrokerRecord {
        broker_id: ME.0,
        broker_epoch: 5,
        fenced: false,
        ..RegisterBrokerRecord::default()
    }));
    let lost = directory_id::LOST;
    for (of, rebuilds) in [
        (registration(lost, other, &[other], &[]), true),
        (registration(lost, NodeId::NONE, &[other], &[]), true),
        (registration(lost, other, &[other, ME], &[]), false),
        (registration(lost, NodeId::NONE, &[], &[ME]), false),
        (registration(directory_id::UNASSIGNED, other, &[other], &[]), false),
        (registration(Uuid::from_u128(77), other, &[other], &[]), false),
    ] {
        assert_eq!(is_given_up(&of, ME), rebuilds, "{of:?}");
        assert!(!is_given_up(&of, other));
        let name = TopicPartition::new("t", 0);
        let role = reconciler.role(&Replica { id: id(1, 0), name, registration: of.clone() }, &image);
        assert_eq!(matches!(role, RoleSpec::Rebuild(_)), rebuilds, "{of:?}: {role:?}");
        assert!(matches!(role, RoleSpec::Rebuild(_) | RoleSpec::Follow(_)));
        // Its leader must not take it in while it is cut.
        let standing = standing(ME, &of, &image);
        assert_eq!(matches!(standing, BrokerStanding::Fenced(_)), rebuilds, "{of:?}: {standing:?}");
    }
    // One whose directory has failed cannot be taken in either, however far its leader has seen it come.
    let of = registration(Uuid::from_u128(77), other, &[other], &[]);
    for (online, is_out) in [(77, false), (78, true)] {
        image.apply(&Record::from(RegisterBrokerRecord {
            broker_id: ME.0,
            broker_epoch: 5,
            fenced: false,
            log_dirs: vec![Uuid::from_u128(online)],
            ..RegisterBrokerRecord::default()
        }));
        let standing = standing(ME, &of, &image);
        assert_eq!(matches!(standing, BrokerStanding::Fenced(_)), is_out, "{standing:?}");
    }
    // Who leads has nobody to be rebuilt from.
    let leads = registration(lost, ME, &[ME], &[]);
    let replica = Replica { id: id(1, 0), name: TopicPartition::new("t", 0), registration: leads };
    assert!(matches!(reconciler.role(&replica, &image), RoleSpec::Lead(_)));
}
