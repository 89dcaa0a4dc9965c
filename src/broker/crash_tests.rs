//! The shard, its flusher and its log over the simulated disk: what was acknowledged, or shown to a consumer, outlives a loss of
//! power at any moment; a disk that fails takes its partitions offline; a full one refuses and recovers.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use proptest::prelude::*;

use super::messages::{ProduceError, Produced};
use super::partitions::{Partition, Role};
use super::rig::{Rig, id, lead, records};
use crate::replica::Acks;
use crate::storage::checkpoint::{OffsetCheckpoint, read_epochs, read_offsets};
use crate::storage::log::{AppendError, LogConfig, LogError, ReadPlan};
use crate::storage::sim_disk::{FaultOn, SimDisk};
use crate::types::Offset;

const PARTITIONS: i32 = 3;

type Answer = Pin<Box<dyn Future<Output = Vec<Result<Produced, ProduceError>>>>>;

#[derive(Clone, Debug)]
enum Step {
    Produce {
        partition: i32,
        all: bool,
        records: usize,
    },
    /// Runs one flush round of the several that may wait.
    FlushSome,
    Flush,
    Checkpoint,
    Crash(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..PARTITIONS, any::<bool>(), 1..4usize)
            .prop_map(|(partition, all, records)| Step::Produce { partition, all, records }),
        3 => Just(Step::FlushSome),
        2 => Just(Step::Flush),
        1 => Just(Step::Checkpoint),
        1 => any::<u64>().prop_map(Step::Crash),
    ];
    proptest::collection::vec(step, 1..60)
}

fn config() -> LogConfig {
    // Small segments, so that rolls are among what a crash meets.
    LogConfig { segment_bytes: 300, index_interval_bytes: 100, ..LogConfig::default() }
}

fn contents(partition: &Partition, upto: Offset) -> Vec<u8> {
    let view = partition.view();
    let mut all = Vec::new();
    let mut from = view.log_start;
    while from < upto {
        let bytes = match view.read(from, usize::MAX >> 1, upto, true).expect("in range") {
            ReadPlan::Ready(parts) => parts.concat().into(),
            ReadPlan::Cold(read) => read.run().expect("readable"),
        };
        let batches = crate::wire::batch::Batches::new(&bytes, crate::wire::batch::PartialTail::Refuse);
        let ends = batches.map(|batch| batch.expect("a batch").header.next_offset());
        from = ends.last().expect("something below the bound");
        all.extend_from_slice(&bytes);
    }
    all
}

struct Broker {
    disk: SimDisk,
    rig: Rig,
    epoch: i32,
    partitions: Vec<Arc<Partition>>,
    waiting: Vec<(usize, usize, Answer)>,
    /// Below which offset each partition's records were acknowledged, or shown to consumers.
    promised: Vec<Offset>,
}

impl Broker {
    fn new() -> Broker {
        let disk = SimDisk::new();
        let mut rig = Rig::new(Arc::new(disk.clone()), Path::new("/data"));
        let partitions =
            (0..PARTITIONS).map(|index| rig.host(id(1, index), config(), lead(1, &[1]))).collect();
        let promised = vec![Offset::ZERO; PARTITIONS as usize];
        Broker { disk, rig, epoch: 1, partitions, waiting: Vec::new(), promised }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Produce { partition, all, records: count } => {
                let values: Vec<String> =
                    (0..count).map(|nth| format!("{nth}-{}", "v".repeat(nth * 20))).collect();
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                let acks = if all { Acks::All } else { Acks::Leader };
                let answer = self.rig.produce(Some(acks), vec![(id(1, partition), records(&values))]);
                self.waiting.push((partition as usize, count, Box::pin(answer.all())));
            }
            Step::FlushSome => {
                if let Some(round) = self.rig.directory.flush.take(PARTITIONS as usize) {
                    round.run(&self.rig.directory);
                    self.rig.pump();
                }
            }
            Step::Flush => {
                self.rig.flush();
            }
            Step::Checkpoint => self.rig.checkpoints().write_all(),
            Step::Crash(seed) => self.crash(seed),
        }
        self.note_promises();
    }

    fn note_promises(&mut self) {
        for (partition, promised) in self.partitions.iter().zip(&mut self.promised) {
            *promised = (*promised).max(partition.view().high_watermark);
        }
        self.waiting.retain_mut(|(partition, count, answer)| {
            let Some(answers) = answer.as_mut().now_or_never() else { return true };
            let produced = answers.into_iter().next().expect("one answer").expect("appended");
            let end = produced.base_offset.plus(*count as i64);
            self.promised[*partition] = self.promised[*partition].max(end);
            false
        });
    }

    fn crash(&mut self, seed: u64) {
        let before: Vec<Vec<u8>> = self
            .partitions
            .iter()
            .zip(&self.promised)
            .map(|(partition, upto)| contents(partition, *upto))
            .collect();
        self.waiting.clear();
        self.disk.crash(seed);
        self.epoch += 1;
        self.rig = Rig::new(Arc::new(self.disk.clone()), Path::new("/data"));
        let epoch = self.epoch;
        self.partitions = (0..PARTITIONS)
            .map(|index| self.rig.host_again(id(1, index), config(), lead(epoch, &[1])))
            .collect();
        for ((partition, upto), before) in self.partitions.iter().zip(&self.promised).zip(before) {
            let view = partition.view();
            assert!(
                view.log_end >= *upto,
                "{}: promised {upto}, the log ends at {}",
                partition.name,
                view.log_end
            );
            assert!(view.high_watermark >= *upto);
            assert!(contents(partition, *upto) == before, "{}: other records than before", partition.name);
        }
    }
}

proptest! {
    #[test]
    fn what_was_promised_outlives_a_loss_of_power(steps in steps(), seed in any::<u64>()) {
        let mut broker = Broker::new();
        for step in steps {
            broker.step(&step);
        }
        broker.step(&Step::Crash(seed));
    }
}

#[test]
fn a_failed_sync_is_never_acknowledged() {
    let disk = SimDisk::new();
    let mut rig = Rig::new(Arc::new(disk.clone()), Path::new("/data"));
    let good = rig.host(id(1, 0), config(), lead(1, &[1]));
    let answer = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["a"]))]);
    disk.fail(FaultOn::Sync, ".log", 0, io::ErrorKind::Other, Some(1));
    rig.flush();
    let answers = answer.all().now_or_never().expect("answered");
    assert!(matches!(answers[0], Err(ProduceError::Offline)));
    assert_eq!((good.leadership().role, good.view().high_watermark), (Role::Offline, Offset(0)));
    assert!(rig.directory.failure().is_some_and(|why| why.contains("sync")));
    // The disk would work again, but nobody knows what the failed sync has lost.
    disk.heal();
    let again: Bytes = records(&["b"]);
    let refused = rig.produce(Some(Acks::All), vec![(id(1, 0), again)]).all().now_or_never();
    assert!(matches!(refused.expect("answered")[0], Err(ProduceError::Offline)));
}

#[test]
fn a_full_disk_refuses_and_recovers_without_a_restart() {
    let disk = SimDisk::new();
    let mut rig = Rig::new(Arc::new(disk.clone()), Path::new("/data"));
    let partition = rig.host(id(1, 0), LogConfig::default(), lead(1, &[1]));
    let kept = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["a"]))]);
    rig.flush();
    assert!(kept.all().now_or_never().expect("answered")[0].is_ok());
    disk.set_capacity(Some(disk.used() + 10));
    let refused = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["b"]))]).all().now_or_never();
    let refused = refused.expect("answered").pop().expect("one answer");
    assert!(
        matches!(refused, Err(ProduceError::Append(AppendError::Log(LogError::DiskFull)))),
        "{refused:?}"
    );
    assert_eq!(partition.leadership().role, Role::Leader);
    disk.set_capacity(None);
    let kept = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["c"]))]);
    rig.flush();
    let kept = kept.all().now_or_never().expect("answered").pop().expect("one answer");
    assert_eq!(kept.expect("appended").base_offset, Offset(1));
}

#[test]
fn without_room_for_the_epochs_batches_are_acknowledged_all_the_same() {
    let disk = SimDisk::new();
    let mut rig = Rig::new(Arc::new(disk.clone()), Path::new("/data"));
    let partition = rig.host(id(1, 0), LogConfig::default(), lead(1, &[1]));
    // As after every start, the first append is of an epoch that the file does not have.
    for (on, values) in [(FaultOn::Open, ["a"]), (FaultOn::Write, ["b"])] {
        disk.fail(on, "leader-epoch-checkpoint", 0, io::ErrorKind::StorageFull, None);
        let answer = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&values))]);
        rig.flush();
        assert!(answer.all().now_or_never().expect("answered")[0].is_ok());
        assert!(rig.directory.is_online());
        disk.heal();
    }
    let file = || {
        let path = partition.directory().path().join("topic1-0/leader-epoch-checkpoint");
        read_epochs(&disk, &path).expect("readable").len()
    };
    assert_eq!(file(), 0);
    let _ = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["c"]))]);
    rig.flush();
    assert_eq!(file(), 1);
    disk.crash(1);
    let mut rig = Rig::new(Arc::new(disk.clone()), Path::new("/data"));
    assert_eq!(rig.host_again(id(1, 0), LogConfig::default(), lead(2, &[1])).view().log_end, Offset(3));
}

#[test]
fn checkpoints_that_found_no_room_are_known_to_be_stale() {
    let disk = SimDisk::new();
    let mut rig = Rig::new(Arc::new(disk.clone()), Path::new("/data"));
    rig.host(id(1, 0), LogConfig::default(), lead(1, &[1]));
    let checkpoints = rig.checkpoints();
    checkpoints.write_all();
    assert!(!checkpoints.is_stale());
    rig.host(id(2, 0), LogConfig::default(), lead(1, &[1]));
    disk.fail(FaultOn::Write, "recovery-point", 0, io::ErrorKind::StorageFull, Some(1));
    checkpoints.write_all();
    assert!(checkpoints.is_stale() && rig.directory.is_online());
    checkpoints.write_all();
    assert!(!checkpoints.is_stale());
    let stored = read_offsets(&disk, Path::new("/data"), OffsetCheckpoint::RecoveryPoint).expect("readable");
    assert_eq!(stored.len(), 2);
}
