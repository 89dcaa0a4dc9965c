//! A log directory through formatting, two processes, orderly and other stops.

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::storage::checkpoint::write_offsets;
use crate::storage::disk::{OpenMode, RealDisk, read_file};
use crate::storage::log::Origin;
use crate::storage::sim_disk::SimDisk;
use crate::types::{LeaderEpoch, NodeId, kafka_uuid};
use crate::wire::batch_builder::BatchBuilder;

const NOW: TimestampMs = TimestampMs(1000);

fn properties() -> MetaProperties {
    MetaProperties {
        cluster_id: "4L6g3nShT-eMCtK--X86sw".into(),
        node_id: NodeId(1),
        directory_id: kafka_uuid::parse("8pdR4J8RSuqGkEh4nHuDtQ"),
    }
}

fn owner() -> Owner {
    Owner { cluster_id: "4L6g3nShT-eMCtK--X86sw".into(), node_id: NodeId(1) }
}

/// Opens a directory, formatting it first if nobody has.
fn open(disk: &SimDisk, path: &Path) -> LogDir {
    let mut claim = Claim::take(Arc::new(disk.clone()), path).unwrap();
    if claim.properties().is_none() {
        claim.format(properties()).unwrap();
    }
    claim.check(&owner()).unwrap();
    claim.open().unwrap()
}

fn budget() -> Budgets {
    Budgets::new(1 << 20, 1 << 20, 100)
}

fn append(log: &mut Log) {
    let mut builder = BatchBuilder::new();
    builder.push(NOW, None, Some(b"value"), &[]);
    log.append_as_leader(&builder.build().unwrap(), LeaderEpoch(0), Origin::Client, NOW).unwrap();
}

#[test]
fn a_directory_has_one_owner() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("data");
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let take = || Claim::take(disk.clone(), &path);
    let mut claim = take().unwrap();
    assert!(matches!(claim.check(&owner()), Err(LogDirError::NotFormatted(_))));
    claim.format(properties()).unwrap();
    let text = String::from_utf8(read_file(&*disk, &path.join("meta.properties")).unwrap()).unwrap();
    assert_eq!(
        text,
        "#\nnode.id=1\ndirectory.id=8pdR4J8RSuqGkEh4nHuDtQ\nversion=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\n"
    );
    let dir = claim.open().unwrap();
    assert_eq!(dir.properties(), &properties());
    assert!(matches!(take(), Err(LogDirError::Locked(_))));
    drop(dir);
    let claim = take().unwrap();
    claim.check(&owner()).unwrap();
    let refused = |owner| claim.check(&owner).unwrap_err().to_string();
    let other = refused(Owner { node_id: NodeId(2), ..owner() });
    assert!(other.ends_with("/meta.properties says node.id=1, but this node has 2"), "{other}");
    let other = refused(Owner { cluster_id: "other".into(), ..owner() });
    assert!(other.ends_with("says cluster.id=4L6g3nShT-eMCtK--X86sw, but this node has other"), "{other}");
}

#[test]
fn a_damaged_directory_tells_what_is_wrong() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("data");
    std::fs::write(&path, "a file").unwrap();
    let failed = Claim::take(Arc::new(RealDisk), &path).unwrap_err();
    assert!(matches!(failed, LogDirError::Io { doing: "creating it", .. }), "{failed}");

    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("meta.properties"), "version=9\n").unwrap();
    let failed = Claim::take(Arc::new(RealDisk), &path).unwrap_err().to_string();
    assert!(failed.contains("version 9 is unknown"), "{failed}");
}

#[test]
fn logs_are_opened_as_they_were_left() {
    let disk = SimDisk::new();
    let path = Path::new("/data");
    let partitions: Vec<_> = (0..20).map(|index| TopicPartition::new("orders", index)).collect();
    let dir = open(&disk, path);
    let mut logs: Vec<Log> = partitions
        .iter()
        .map(|partition| {
            dir.create_log(partition, Uuid::from_u128(5), Arc::default(), NOW, budget()).unwrap()
        })
        .collect();
    logs.iter_mut().for_each(append);
    for log in &mut logs {
        log.set_high_watermark(log.log_end());
        log.close().unwrap();
    }
    for which in [OffsetCheckpoint::RecoveryPoint, OffsetCheckpoint::Replication] {
        write_offsets(&disk, path, which, partitions.iter().map(|partition| (partition, Offset(1)))).unwrap();
    }
    dir.mark_clean(BrokerEpoch(42)).unwrap();
    let marker = read_file(&disk, &path.join(".kafka_cleanshutdown")).unwrap();
    assert_eq!(marker, br#"{"version":0,"brokerEpoch":42}"#);
    drop(dir);
    disk.crash(0);

    let reads = disk.counts().read_bytes;
    let dir = open(&disk, path);
    assert_eq!(dir.clean_shutdown().unwrap().broker_epoch, BrokerEpoch(42));
    assert!(disk.open(&path.join(".kafka_cleanshutdown"), OpenMode::Read).is_err());
    let listing = dir.list().unwrap();
    assert_eq!(listing.partitions.len(), 20);
    assert!(listing.partitions.iter().all(|dir| dir.topic_id == Some(Uuid::from_u128(5))));
    let found = listing.partitions.iter();
    let mut opened: Vec<Log> =
        found.map(|found| dir.open_log(found, Arc::default(), NOW, budget()).unwrap()).collect();
    for log in &mut opened {
        assert_eq!((log.high_watermark(), log.log_end()), (Offset(1), Offset(1)));
        append(log);
    }
    assert!(disk.counts().read_bytes - reads < 20 * 300, "{}", disk.counts().read_bytes - reads);
    opened.iter_mut().for_each(|log| log.flush().unwrap());
    drop((opened, dir));

    // No orderly stop this time.
    disk.crash(1);
    let dir = open(&disk, path);
    assert_eq!(dir.clean_shutdown(), None);
    let listing = dir.list().unwrap();
    let log = dir.open_log(&listing.partitions[7], Arc::default(), NOW, budget()).unwrap();
    assert_eq!(log.log_end(), Offset(2));
    assert!(log.recovered().scanned_bytes > 0);
}

#[test]
fn what_does_not_belong_there_is_kept_and_named() {
    let disk = SimDisk::new();
    let path = Path::new("/data");
    let dir = open(&disk, path);
    let partition = TopicPartition::new("orders", 0);
    let mut log = dir.create_log(&partition, Uuid::from_u128(5), Arc::default(), NOW, budget()).unwrap();
    append(&mut log);
    log.close().unwrap();
    dir.offsets().write(OffsetCheckpoint::Replication, |_| [(partition.clone(), Offset(1))].into()).unwrap();
    dir.mark_clean(BrokerEpoch(1)).unwrap();
    disk.create_dir_all(&path.join("__cluster_metadata-0")).unwrap();
    disk.create_dir_all(&path.join("lost+found")).unwrap();
    let listed = |dir: &LogDir| dir.list().unwrap();
    assert!(listed(&dir).foreign.is_empty(), "{}", listed(&dir).foreign);
    let opened = |dir: &LogDir| {
        let listing = dir.list().unwrap();
        dir.open_log(&listing.partitions[0], Arc::default(), NOW, budget()).unwrap()
    };
    assert!(opened(&dir).recovered().foreign.is_empty());
    let put = |at: &Path, file: &str| drop(disk.open(&at.join(file), OpenMode::Create).unwrap());
    let of_partition = path.join("orders-0");
    for at in [path, &of_partition] {
        put(at, "notes.txt");
        put(at, "00000000000000000000.lag");
        disk.create_dir_all(&at.join("backup")).unwrap();
    }
    // What belongs to a partition does not belong here, and the other way round.
    put(path, "leader-epoch-checkpoint");
    put(&of_partition, "meta.properties");
    // An interrupted write is ours.
    put(path, "replication-offset-checkpoint.tmp");
    put(&of_partition, "leader-epoch-checkpoint.tmp");
    let foreign = listed(&dir).foreign;
    assert_eq!(foreign.to_string(), "00000000000000000000.lag, backup, leader-epoch-checkpoint, notes.txt");
    let log = opened(&dir);
    let foreign = &log.recovered().foreign;
    assert_eq!(foreign.to_string(), "00000000000000000000.lag, backup, meta.properties, notes.txt");
    assert_eq!(log.log_end(), Offset(1));
    for at in [path, &of_partition] {
        assert!(disk.stat(&at.join("notes.txt")).is_ok() && disk.stat(&at.join("backup")).is_ok());
    }
}

#[test]
fn retired_partitions_are_no_longer_there() {
    let disk = SimDisk::new();
    let path = Path::new("/data");
    let dir = open(&disk, path);
    let partition = TopicPartition::new("orders", 0);
    let log = dir.create_log(&partition, Uuid::from_u128(5), Arc::default(), NOW, budget()).unwrap();
    drop(log);
    let retired = dir.retire(&partition, Fate::Delete, Uuid::from_u128(9)).unwrap();
    let listing = dir.list().unwrap();
    assert_eq!(listing.partitions[0].fate, Fate::Delete);
    assert_eq!(listing.partitions[0].path, retired);
    dir.create_log(&partition, Uuid::from_u128(6), Arc::default(), NOW, budget()).unwrap();
    dir.remove(&retired).unwrap();
    let listing = dir.list().unwrap();
    assert_eq!(listing.partitions.len(), 1);
    assert_eq!(listing.partitions[0].topic_id, Some(Uuid::from_u128(6)));
}
