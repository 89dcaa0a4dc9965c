//! A disk that cannot read is out of service, whoever finds that out: leaders are elsewhere then, and nobody stays where nothing
//! is served.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use super::directory::Directory;
use super::partitions::{Partition, Role};
use super::rig::{Rig, id, lead, new_host, open_dir};
use super::serving::{ReadFrom, ReadRefused, read};
use super::waiters::Bound;
use crate::storage::disk::Disk;
use crate::storage::log::producer_state::{Coordinated, Verified};
use crate::storage::log::succession::CopyError;
use crate::storage::log::{LogConfig, Origin};
use crate::storage::sim_disk::{FaultOn, SimDisk};
use crate::types::{
    BrokerEpoch, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicIdPartition,
};
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::control::{EndTxnMarker, TxnResult};

const P: TopicIdPartition = id(1, 0);
const PRODUCER: ProducerId = ProducerId(7);
const NOW: TimestampMs = TimestampMs(1_000_000);
const EPOCH: LeaderEpoch = LeaderEpoch(1);

fn config() -> LogConfig {
    LogConfig { segment_bytes: 400, index_interval_bytes: 100, retention_ms: 1000, ..LogConfig::default() }
}

/// A log of some segments with an aborted transaction, of which nothing is in memory.
fn stored(disk: &SimDisk) -> (Rig, Arc<Partition>) {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let before = Rig::new(shared.clone(), Path::new("/data"));
    let mut log = new_host(&before.directory, P, config(), lead(1, &[1])).log;
    for index in 0..20 {
        // The first one has the latest time.
        let time = if index == 0 { 5000 } else { 1000 + index };
        let mut builder = BatchBuilder::new();
        builder.push(TimestampMs(time), Some(b"key"), Some(b"some value"), &[]);
        log.append_as_leader(&builder.build().unwrap(), EPOCH, Origin::Client, NOW).unwrap();
    }
    let mut builder = BatchBuilder::new().producer(PRODUCER, ProducerEpoch(0), 0).transactional(true);
    builder.push(TimestampMs(2000), None, Some(b"aborted"), &[]);
    let unasked = Coordinated { verified: Verified::Waived, ..Coordinated::default() };
    log.append_coordinated(&builder.build().unwrap(), EPOCH, Origin::Client, unasked, NOW).unwrap();
    let marker =
        EndTxnMarker { result: TxnResult::Abort, coordinator_epoch: 0, timestamp: TimestampMs(2000) };
    let marker = marker.batch(PRODUCER, ProducerEpoch(0), log.log_end(), EPOCH);
    log.append_as_leader(&marker, EPOCH, Origin::Coordinator, NOW).unwrap();
    log.close().unwrap();
    before.directory.dir().mark_clean(BrokerEpoch(1)).unwrap();
    drop((before, log));
    disk.kill();
    let mut rig = Rig::new(shared, Path::new("/data"));
    let partition = rig.host_again(P, config(), lead(2, &[1]));
    rig.flush();
    assert_eq!(partition.view().high_watermark, Offset(22));
    assert!(partition.view().segment_count() > 3);
    (rig, partition)
}

fn fetch(partition: &Partition, bound: Bound) -> io::Result<()> {
    let from = ReadFrom { offset: Offset(3), last_fetched_epoch: LeaderEpoch::UNKNOWN };
    match read(&partition.view(), from, bound, 1, true) {
        Ok(records) => {
            assert!(!records.pieces.is_empty());
            Ok(())
        }
        Err(ReadRefused::Io(error)) => Err(error),
        Err(ReadRefused::OutOfRange) => panic!("it is in range"),
    }
}

/// The next piece of the log into a copy on another disk.
fn copy(partition: &Partition) -> io::Result<()> {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let target = Arc::new(Directory::new(1, open_dir(&disk, Path::new("/other")), Vec::new(), 0));
    let mut copy = new_host(&target, P, config(), lead(1, &[1])).log;
    let advanced = copy.advance_to(&partition.view(), 1000, NOW);
    assert!(target.is_online());
    match advanced {
        Ok(advanced) => {
            assert!(advanced.bytes > 0);
            Ok(())
        }
        Err(CopyError::Source(error)) => Err(error),
        Err(error) => panic!("{error}"),
    }
}

type Reader = fn(&Partition) -> io::Result<()>;

/// Whoever reads a log, with what it reads of it.
const READERS: [(&str, &str, Reader); 11] = [
    ("a consumer", ".log", |partition| fetch(partition, Bound::HighWatermark)),
    ("a follower", ".log", |partition| fetch(partition, Bound::LogEnd)),
    ("a fetch that looks for its place", ".index", |partition| fetch(partition, Bound::HighWatermark)),
    ("a search by time", ".log", |partition| {
        partition.view().offset_for_timestamp(TimestampMs(1005)).map(|found| assert!(found.is_some()))
    }),
    ("a search by time that looks for its place", ".timeindex", |partition| {
        partition.view().offset_for_timestamp(TimestampMs(1005)).map(|found| assert!(found.is_some()))
    }),
    ("a search for the latest time", ".log", |partition| {
        partition.view().max_timestamp().map(|found| assert!(found.is_some()))
    }),
    ("a reader of committed records", ".txnindex", |partition| {
        let aborted = partition.view().collect_aborted(Offset(0), Offset(22));
        aborted.map(|aborted| assert_eq!(aborted.len(), 1))
    }),
    ("retention", ".timeindex", |partition| {
        partition.view().overdue(&partition.log_config(), NOW).map(|count| assert!(count > 0))
    }),
    ("the choice of what is compacted", ".timeindex", |partition| {
        let config = LogConfig { compact: true, min_compaction_lag_ms: 1, ..config() };
        let dirt = partition.view().dirt(&config, None, NOW);
        dirt.map(|dirt| assert!(dirt.dirty_bytes > 0))
    }),
    ("a move", ".log", copy),
    ("a move that looks for its place", ".index", copy),
];

#[test]
fn whoever_cannot_read_a_log_takes_its_directory_out_of_service() {
    for (who, file, reads) in READERS {
        for on in [FaultOn::Read, FaultOn::Open] {
            let disk = SimDisk::new();
            let (mut rig, partition) = stored(&disk);
            assert_eq!(partition.leadership().role, Role::Leader);
            disk.fail(on, file, 0, ErrorKind::Other, Some(1));
            let refused = reads(&partition).expect_err(who);
            assert_eq!(refused.kind(), ErrorKind::Other, "{who}");
            let failure =
                rig.directory.failure().unwrap_or_else(|| panic!("{who}, {on:?}: it is in service"));
            assert!(failure.starts_with("could not read /data/topic1-0/0"), "{who}: {failure}");
            assert!(failure.contains(file), "{who}: {failure}");
            rig.pump();
            assert_eq!(partition.leadership().role, Role::Offline, "{who}");
        }
    }
}

#[test]
fn a_file_that_is_gone_and_a_limit_of_the_process_leave_the_directory_in_service() {
    for (who, file, reads) in READERS {
        for error in [ErrorKind::NotFound, ErrorKind::OutOfMemory] {
            let disk = SimDisk::new();
            let (mut rig, partition) = stored(&disk);
            disk.fail(FaultOn::Read, file, 0, error, None);
            assert_eq!(reads(&partition).expect_err(who).kind(), error, "{who}");
            disk.heal();
            reads(&partition).expect(who);
            rig.pump();
            assert!(rig.directory.is_online(), "{who}");
            assert_eq!(partition.leadership().role, Role::Leader, "{who}");
        }
    }
}

#[test]
fn who_only_reads_can_do_so_where_nothing_can_be_written_any_more() {
    for (who, _, reads) in READERS {
        let disk = SimDisk::new();
        let (mut rig, partition) = stored(&disk);
        for on in [FaultOn::OpenToWrite, FaultOn::Write, FaultOn::SetLen] {
            disk.fail(on, "", 0, ErrorKind::ReadOnlyFilesystem, None);
        }
        reads(&partition).expect(who);
        rig.pump();
        assert!(rig.directory.is_online(), "{who}");
        assert_eq!(partition.leadership().role, Role::Leader, "{who}");
    }
}
