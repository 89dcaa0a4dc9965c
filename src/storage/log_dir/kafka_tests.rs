//! A log directory as Apache Kafka 4.4.0 left it (`testdata/kafka-4.4-log-dir`): we read it, and write the same bytes.

use std::collections::HashMap;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::storage::checkpoint::{
    read_meta_properties, read_offsets, write_epochs, write_meta_properties, write_offsets,
};
use crate::storage::disk::{OpenMode, RealDisk, read_file};
use crate::storage::log::ReadPlan;
use crate::storage::sim_disk::SimDisk;
use crate::types::{NodeId, kafka_uuid};
use crate::wire::batch::{Batches, PartialTail};

const DATA: &str = "testdata/kafka-4.4-log-dir";
const TINY: &str = "/data/tiny-0";
const NOW: TimestampMs = TimestampMs(1_795_987_600_000);

/// A copy of the directory in memory, but for the files that `without` names.
fn copied(without: &[&str]) -> SimDisk {
    let disk = SimDisk::new();
    for (from, to) in [(DATA.to_owned(), "/data"), (format!("{DATA}/tiny-0"), TINY)] {
        disk.create_dir_all(Path::new(to)).unwrap();
        for entry in RealDisk.list(Path::new(&from)).unwrap() {
            if entry.is_dir || without.iter().any(|suffix| entry.name.ends_with(suffix)) {
                continue;
            }
            let bytes = read_file(&RealDisk, &Path::new(&from).join(&entry.name)).unwrap();
            let file = disk.open(&Path::new(to).join(&entry.name), OpenMode::Create).unwrap();
            file.write_all_at(&[IoSlice::new(&bytes)], 0).unwrap();
        }
    }
    disk
}

fn kafkas(name: &str) -> Vec<u8> {
    read_file(&RealDisk, &Path::new(DATA).join(name)).unwrap()
}

fn open(disk: &SimDisk) -> (LogDir, Log) {
    let claim = Claim::take(Arc::new(disk.clone()), Path::new("/data")).unwrap();
    assert_eq!(claim.properties().unwrap().node_id, NodeId(1));
    let dir = claim.open().unwrap();
    let listing = dir.list().unwrap();
    let config = Arc::new(LogConfig { index_interval_bytes: 1000, ..LogConfig::default() });
    let log = dir.open_log(&listing.partitions[0], config, NOW, Budgets::new(0, 0, 100)).unwrap();
    (dir, log)
}

fn read_all(log: &Log) -> Vec<u8> {
    let view = log.view();
    let ReadPlan::Cold(read) = view.read(Offset(0), 1 << 20, view.log_end, true).unwrap() else { panic!() };
    read.run().unwrap().to_vec()
}

#[test]
fn a_directory_of_kafka_is_opened_and_left_as_it_was() {
    let disk = copied(&[]);
    let (dir, mut log) = open(&disk);
    assert!(dir.clean_shutdown().is_some());
    assert_eq!(
        (log.log_end(), log.high_watermark(), log.last_stable()),
        (Offset(51), Offset(51), Offset(51))
    );
    assert_eq!(log.producers().len(), 5);
    assert_eq!(log.recovered().scanned_bytes, 0);
    let stored = read_all(&log);
    assert_eq!(stored, kafkas("tiny-0/00000000000000000000.log"));
    let records: i32 =
        Batches::new(&stored, PartialTail::Refuse).map(|batch| batch.unwrap().header.record_count).sum();
    assert_eq!(records, 51);
    log.close().unwrap();
    for name in
        ["00000000000000000000.index", "00000000000000000000.timeindex", "00000000000000000051.snapshot"]
    {
        let ours = read_file(&disk, &Path::new(TINY).join(name)).unwrap();
        assert_eq!(ours, kafkas(&format!("tiny-0/{name}")), "{name}");
    }
}

#[test]
fn what_is_rebuilt_is_what_kafka_had() {
    let disk = copied(&[".kafka_cleanshutdown", "-offset-checkpoint", "index", ".snapshot"]);
    let (_, mut log) = open(&disk);
    assert_eq!(log.log_end(), Offset(51));
    assert_eq!(log.recovered().scanned_bytes, 6305);
    log.close().unwrap();
    for name in ["00000000000000000000.index", "00000000000000000000.timeindex", "leader-epoch-checkpoint"] {
        let ours = read_file(&disk, &Path::new(TINY).join(name)).unwrap();
        assert_eq!(ours, kafkas(&format!("tiny-0/{name}")), "{name}");
    }
    // Kafka keeps no order of producers in a snapshot, and ends where we go on.
    let ours = read_file(&disk, &Path::new(TINY).join("00000000000000000051.snapshot")).unwrap();
    let theirs = kafkas("tiny-0/00000000000000000051.snapshot");
    let entries = |bytes: &[u8]| {
        let mut entries: Vec<Vec<u8>> = bytes[10..theirs.len()].chunks(46).map(<[u8]>::to_vec).collect();
        entries.sort();
        (bytes[6..10].to_vec(), entries)
    };
    assert_eq!(entries(&ours), entries(&theirs));
}

#[test]
fn checkpoints_have_kafkas_bytes() {
    let disk = SimDisk::new();
    let root = Path::new("/");
    let tiny = TopicPartition::new("tiny", 0);
    for which in [OffsetCheckpoint::RecoveryPoint, OffsetCheckpoint::Replication] {
        write_offsets(&disk, root, which, [(&tiny, Offset(51))].into_iter()).unwrap();
        assert_eq!(read_file(&disk, &root.join(which.file_name())).unwrap(), kafkas(which.file_name()));
        let read = read_offsets(&disk, root, which).unwrap();
        assert_eq!(read, HashMap::from([(tiny.clone(), Offset(51))]));
    }
    write_offsets(&disk, root, OffsetCheckpoint::LogStart, [].into_iter()).unwrap();
    let name = OffsetCheckpoint::LogStart.file_name();
    assert_eq!(read_file(&disk, &root.join(name)).unwrap(), kafkas(name));

    let (_, log) = open(&copied(&[]));
    let path = root.join("epochs");
    write_epochs(&disk, &path, log.epochs().entries()).unwrap();
    assert_eq!(read_file(&disk, &path).unwrap(), kafkas("tiny-0/leader-epoch-checkpoint"));

    let kafka_dir = Path::new(DATA);
    let topic_id = read_partition_metadata(&RealDisk, &kafka_dir.join("tiny-0")).unwrap().unwrap();
    write_partition_metadata(&disk, root, topic_id).unwrap();
    let ours = read_file(&disk, &root.join("partition.metadata")).unwrap();
    assert_eq!(ours, kafkas("tiny-0/partition.metadata"));

    let marker = read_clean_shutdown(&RealDisk, kafka_dir).unwrap().unwrap();
    write_clean_shutdown(&disk, root, marker.broker_epoch).unwrap();
    assert_eq!(read_file(&disk, &root.join(CLEAN_SHUTDOWN_FILE)).unwrap(), kafkas(CLEAN_SHUTDOWN_FILE));

    let properties = read_meta_properties(&RealDisk, kafka_dir).unwrap().unwrap();
    assert_eq!(properties.node_id, NodeId(1));
    assert!(properties.directory_id.is_some_and(|id| kafka_uuid::format(id).len() == 22));
    let text = String::from_utf8(kafkas("meta.properties")).unwrap();
    let written_at = text.lines().nth(1).unwrap().trim_start_matches('#');
    write_meta_properties(&disk, root, &properties, written_at).unwrap();
    assert_eq!(String::from_utf8(read_file(&disk, &root.join("meta.properties")).unwrap()).unwrap(), text);
}

#[test]
fn broken_checkpoints_are_refused() {
    let disk = SimDisk::new();
    let root = Path::new("/");
    let path = root.join(OffsetCheckpoint::RecoveryPoint.file_name());
    let read = |text: &str| {
        let file = disk.open(&path, OpenMode::Truncate).unwrap();
        file.write_all_at(&[IoSlice::new(text.as_bytes())], 0).unwrap();
        read_offsets(&disk, root, OffsetCheckpoint::RecoveryPoint).map(|offsets| offsets.len())
    };
    assert_eq!(read("").unwrap(), 0);
    assert_eq!(read("0\n1\na 0 5\n").unwrap(), 1);
    for broken in ["1\n0\n", "0\nx\n", "0\n2\na 0 5\n", "0\n1\na 0\n", "0\n1\na 0 5x\n"] {
        assert!(read(broken).is_err(), "{broken:?}");
    }
}
