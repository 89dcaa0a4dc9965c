//! A log directory through formatting, two processes, orderly and other stops.

use std::path::Path;
use std::sync::{Arc, Mutex};

use super::*;
use crate::storage::checkpoint::write_offsets;
use crate::storage::disk::{OpenMode, RealDisk, read_file};
use crate::storage::log::Origin;
use crate::storage::sim_disk::SimDisk;
use crate::types::{LeaderEpoch, kafka_uuid};
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
    Owner { cluster_id: Some("4L6g3nShT-eMCtK--X86sw".into()), node_id: NodeId(1) }
}

fn budget() -> Arc<TailBudget> {
    TailBudget::new(1 << 20, 1 << 20)
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
    assert!(matches!(LogDir::open(disk.clone(), &path, &owner()), Err(LogDirError::NotFormatted(_))));
    assert!(format(&*disk, &path, &properties(), "Thu Jan 01 00:00:00 UTC 1970").unwrap());
    assert!(!format(&*disk, &path, &properties(), "").unwrap());
    let text = String::from_utf8(read_file(&*disk, &path.join("meta.properties")).unwrap()).unwrap();
    assert_eq!(
        text,
        "#\n#Thu Jan 01 00:00:00 UTC 1970\nnode.id=1\ndirectory.id=8pdR4J8RSuqGkEh4nHuDtQ\n\
         version=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\n"
    );
    let dir = LogDir::open(disk.clone(), &path, &owner()).unwrap();
    assert_eq!(dir.properties(), &properties());
    assert!(matches!(LogDir::open(disk.clone(), &path, &owner()), Err(LogDirError::Locked(_))));
    drop(dir);
    let other = Owner { node_id: NodeId(2), ..owner() };
    assert!(matches!(LogDir::open(disk.clone(), &path, &other), Err(LogDirError::OtherNode { .. })));
    let other = Owner { cluster_id: Some("other".into()), ..owner() };
    assert!(matches!(LogDir::open(disk, &path, &other), Err(LogDirError::OtherCluster { .. })));
}

#[test]
fn logs_are_opened_as_they_were_left() {
    let disk = SimDisk::new();
    let path = Path::new("/data");
    format(&disk, path, &properties(), "").unwrap();
    let partitions: Vec<_> = (0..20).map(|index| TopicPartition::new("orders", index)).collect();
    let dir = LogDir::open(Arc::new(disk.clone()), path, &owner()).unwrap();
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
    let dir = LogDir::open(Arc::new(disk.clone()), path, &owner()).unwrap();
    assert_eq!(dir.clean_shutdown().unwrap().broker_epoch, BrokerEpoch(42));
    assert!(disk.open(&path.join(".kafka_cleanshutdown"), OpenMode::Read).is_err());
    let listing = dir.list().unwrap();
    assert_eq!(listing.partitions.len(), 20);
    assert!(listing.partitions.iter().all(|dir| dir.topic_id == Some(Uuid::from_u128(5))));
    let opened = Mutex::new(Vec::new());
    let config_of = |_: &PartitionDir| Arc::<LogConfig>::default();
    dir.open_logs(listing.partitions, 4, &config_of, NOW, &budget(), &|log| locked(&opened).push(log));
    let mut opened = opened.into_inner().unwrap();
    assert_eq!(opened.len(), 20);
    for Opened { result, .. } in &mut opened {
        let log = result.as_mut().unwrap();
        assert_eq!((log.high_watermark(), log.log_end()), (Offset(1), Offset(1)));
        append(log);
    }
    assert!(disk.counts().read_bytes - reads < 20 * 300, "{}", disk.counts().read_bytes - reads);
    opened.iter_mut().for_each(|opened| opened.result.as_mut().unwrap().flush().unwrap());
    drop((opened, dir));

    // No orderly stop this time.
    disk.crash(1);
    let dir = LogDir::open(Arc::new(disk.clone()), path, &owner()).unwrap();
    assert_eq!(dir.clean_shutdown(), None);
    let listing = dir.list().unwrap();
    let log = dir.open_log(&listing.partitions[7], Arc::default(), NOW, budget()).unwrap();
    assert_eq!(log.log_end(), Offset(2));
    assert!(log.recovered().scanned_bytes > 0);
}

#[test]
fn retired_partitions_are_no_longer_there() {
    let disk = SimDisk::new();
    let path = Path::new("/data");
    format(&disk, path, &properties(), "").unwrap();
    let dir = LogDir::open(Arc::new(disk.clone()), path, &owner()).unwrap();
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
