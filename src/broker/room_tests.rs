//! A full disk as shards, brokers and their parts meet it: clients' records are refused before the reserve is touched, everything
//! else goes on, and so do they once there is room.

use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt as _;

use super::mailbox::Message;
use super::messages::{Host, ProduceError};
use super::partitions::{Partition, Role};
use super::rig::{Rig, id, lead, leave_free, new_host, readable, records};
use crate::replica::Acks;
use crate::storage::disk::Disk;
use crate::storage::log::{AppendError, LogConfig, LogError, Origin};
use crate::storage::sim_disk::SimDisk;
use crate::types::{Offset, ProducerEpoch, ProducerId, TimestampMs, TopicIdPartition, TopicPartition};
use crate::wire::batch_builder::BatchBuilder;

const USER: TopicIdPartition = id(1, 0);
const OFFSETS: TopicIdPartition = id(2, 0);
const RESERVE: u64 = 50_000;

/// A leader of a partition of clients, and of one that a coordinator keeps its state in.
fn rig(disk: &SimDisk) -> (Rig, Arc<Partition>) {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut rig = Rig::new(shared.clone(), Path::new("/data"));
    let user = rig.host(USER, LogConfig::default(), lead(1, &[1]));
    let Host { log, config, role, .. } =
        new_host(&rig.directory, OFFSETS, LogConfig::default(), lead(1, &[1]));
    let name = TopicPartition::new("__consumer_offsets", 0);
    let partition = Arc::new(Partition::new(OFFSETS, name, rig.directory.clone(), &log));
    rig.partitions.update(|table| {
        table.insert(OFFSETS, partition.clone());
    });
    rig.tell(Message::Host(Box::new(Host { partition, log, config, role })));
    rig.directory.keep_free(RESERVE);
    (rig, user)
}

fn produce(rig: &mut Rig, to: TopicIdPartition, origin: Origin) -> Result<Offset, ProduceError> {
    produce_value(rig, to, origin, "v")
}

fn produce_value(
    rig: &mut Rig,
    to: TopicIdPartition,
    origin: Origin,
    value: &str,
) -> Result<Offset, ProduceError> {
    let appends = vec![(to, records(&[value]))];
    let gathered = rig.partitions.produce(Some(Acks::All), origin, 30_000, appends).now_or_never();
    rig.pump();
    rig.flush();
    let answers = gathered.expect("sent").all().now_or_never();
    answers.expect("answered").pop().expect("one answer").map(|produced| produced.base_offset)
}

fn is_refused(result: &Result<Offset, ProduceError>) -> bool {
    matches!(result, Err(ProduceError::Append(AppendError::Log(LogError::DiskFull))))
}

#[test]
fn while_there_is_nothing_but_the_reserve_clients_alone_are_refused() {
    let disk = SimDisk::new();
    let (mut rig, user) = rig(&disk);
    assert_eq!(produce(&mut rig, USER, Origin::Client).expect("appended"), Offset(0));
    leave_free(&disk, RESERVE + 10);
    rig.directory.measure(0, rig.now.monotonic);
    for _ in 0..3 {
        assert!(is_refused(&produce(&mut rig, USER, Origin::Client)));
    }
    assert_eq!(user.leadership().role, Role::Leader);
    assert!(readable(&user) > 0);
    // Coordinators go on: their own topics, whoever commits, and the ends of transactions.
    assert_eq!(produce(&mut rig, OFFSETS, Origin::Client).expect("appended"), Offset(0));
    assert_eq!(produce(&mut rig, USER, Origin::Coordinator).expect("appended"), Offset(1));
    let deleting = rig.partitions.delete_records(1000, vec![(USER, Some(Offset(1)))]).now_or_never();
    rig.pump();
    let deleted = deleting.expect("sent").all().now_or_never().expect("answered").pop();
    assert_eq!(deleted.expect("one answer").expect("deleted"), Offset(1));
    // Not a byte more is not enough, or this would begin and end with each segment that goes.
    leave_free(&disk, RESERVE + 1_000);
    rig.directory.measure(0, rig.now.monotonic);
    assert!(is_refused(&produce(&mut rig, USER, Origin::Client)));
    leave_free(&disk, 2 * RESERVE);
    assert!(is_refused(&produce(&mut rig, USER, Origin::Client)), "nobody has looked");
    rig.directory.measure(0, rig.now.monotonic);
    assert_eq!(produce(&mut rig, USER, Origin::Client).expect("appended"), Offset(2));
}

#[test]
fn what_is_sent_again_needs_no_room() {
    let disk = SimDisk::new();
    let (mut rig, _) = rig(&disk);
    let of_producer = |rig: &mut Rig, sequence| {
        let mut builder = BatchBuilder::new().producer(ProducerId(7), ProducerEpoch(0), sequence);
        builder.push(TimestampMs(1000), None, Some(b"v"), &[]);
        let appends = vec![(USER, builder.build().expect("a batch"))];
        let gathered = rig.produce(Some(Acks::All), appends);
        rig.flush();
        let answers = gathered.all().now_or_never();
        answers.expect("answered").pop().expect("one answer").map(|produced| produced.base_offset)
    };
    assert_eq!(of_producer(&mut rig, 0).expect("appended"), Offset(0));
    assert_eq!(of_producer(&mut rig, 1).expect("appended"), Offset(1));
    leave_free(&disk, 0);
    rig.directory.measure(0, rig.now.monotonic);
    for sequence in [0, 1] {
        assert_eq!(of_producer(&mut rig, sequence).expect("it is there"), Offset(i64::from(sequence)));
        assert!(is_refused(&of_producer(&mut rig, 2)));
    }
}

#[test]
fn what_is_too_large_for_its_topic_closes_nothing() {
    let disk = SimDisk::new();
    let (mut rig, _) = rig(&disk);
    leave_free(&disk, 2 * RESERVE);
    let huge = "x".repeat(2 << 20);
    let refused = produce_value(&mut rig, USER, Origin::Client, &huge).expect_err("it is too large");
    assert!(matches!(refused, ProduceError::Append(AppendError::Validation(_))), "{refused:?}");
    assert!(!rig.directory.is_short());
    assert_eq!(produce(&mut rig, USER, Origin::Client).expect("appended"), Offset(0));
}

#[test]
fn appends_stop_before_the_reserve_without_anybody_who_looks() {
    let disk = SimDisk::new();
    let (mut rig, user) = rig(&disk);
    leave_free(&disk, RESERVE + 5_000);
    let appended = std::iter::from_fn(|| produce(&mut rig, USER, Origin::Client).ok()).count();
    assert!((20..100).contains(&appended), "{appended}");
    // The file of the epochs is not counted.
    assert!(disk.space(Path::new("/data")).expect("known").free >= RESERVE - 200);
    assert_eq!(user.view().log_end, Offset(i64::try_from(appended).expect("a few")));
}

#[test]
fn a_disk_without_a_free_byte_refuses_coordinators_and_takes_them_again() {
    let disk = SimDisk::new();
    let (mut rig, _) = rig(&disk);
    leave_free(&disk, 0);
    for to in [OFFSETS, USER, OFFSETS] {
        assert!(is_refused(&produce(&mut rig, to, Origin::Coordinator)));
    }
    assert!(rig.directory.is_online() && rig.directory.is_short());
    leave_free(&disk, 2 * RESERVE);
    assert_eq!(produce(&mut rig, OFFSETS, Origin::Coordinator).expect("appended"), Offset(0));
}
