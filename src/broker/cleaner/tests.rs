//! The threads of compaction with shards, flushers and logs on the real disk.

use super::super::directory::Directory;
use super::super::flusher::DEFAULT_THREADS;
use super::super::log_dirs::LogDirs;
use super::super::mailbox::{Message, mailbox, spawn};
use super::super::messages::Host;
use super::super::outbox::{Inlets, outlets};
use super::super::rig::{ME, id, lead, leave_free, new_host, open_dir};
use super::super::shard::Shard;
use super::super::start_tests::layers;
use super::*;
use crate::metadata::Image;
use crate::replica::Acks;
use crate::storage::checkpoint::read_offsets;
use crate::storage::disk::{Disk, OpenMode, RealDisk};
use crate::storage::log::{Budgets, LogConfig, Origin};
use crate::storage::sim_disk::{FaultOn, SimDisk};
use crate::types::{LeaderEpoch, Offset, TimestampMs};
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::messages::StrBytes;
use crate::wire::messages::metadata::ConfigRecord;

const SECRET: u128 = 7;

struct World {
    dir: tempfile::TempDir,
    partitions: Partitions,
    checkpoints: Arc<Checkpoints>,
    runtime: tokio::runtime::Runtime,
    _inlets: Inlets,
}

impl World {
    /// Partitions of a compacted topic with records of few keys in several segments.
    fn new(count: i32) -> World {
        World::on(RealDisk, count)
    }

    fn on(disk: impl Disk + 'static, count: i32) -> World {
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let dir = tempfile::tempdir().unwrap();
        let (sender, inbox) = mailbox(8);
        let directory = Directory::new(0, open_dir(&disk, dir.path()), vec![sender.clone()], DEFAULT_THREADS);
        let directory = Arc::new(directory);
        let partitions = Partitions::new(vec![sender]);
        let (outlets, inlets) = outlets();
        spawn(0, Shard::new(0, ME, outlets), inbox).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let config = log_config();
        runtime.block_on(async {
            for partition in 0..count {
                let host = new_host(&directory, id(1, partition), config.clone(), lead(1, &[1]));
                partitions.update(|table| {
                    table.insert(host.partition.id, host.partition.clone());
                });
                partitions.shard_of(&host.partition.id).send(Message::Host(Box::new(host))).await;
                produce(&partitions, partition, 40).await;
            }
        });
        let budgets = Budgets::new(1 << 20, 1 << 20, 100);
        let dirs = LogDirs::scan(ME, disk.clone(), vec![directory], Vec::new(), budgets);
        let checkpoints = Arc::new(Checkpoints::new(partitions.clone(), Arc::new(dirs)));
        World { dir, partitions, checkpoints, runtime, _inlets: inlets }
    }

    fn cleaner(&self, overrides: &[(&str, &str)]) -> Cleaner {
        self.cleaner_of(Arc::new(DynamicConfig::new(ME, layers(overrides))))
    }

    fn cleaner_of(&self, config: Arc<DynamicConfig>) -> Cleaner {
        Cleaner::start(self.partitions.clone(), self.checkpoints.clone(), config, SECRET).unwrap()
    }

    /// Writes records of few keys.
    fn produce(&self, partition: i32, records: u8) {
        self.runtime.block_on(produce(&self.partitions, partition, records));
    }

    fn partition(&self, index: i32) -> Arc<Partition> {
        self.partitions.get(&id(1, index)).unwrap()
    }

    fn close(self) {
        let World { partitions, runtime, .. } = self;
        runtime.block_on(partitions.close());
    }
}

fn log_config() -> LogConfig {
    LogConfig { segment_bytes: 400, compact: true, delete: false, ..LogConfig::default() }
}

async fn produce(partitions: &Partitions, partition: i32, records: u8) {
    for index in 0..records {
        let mut builder = BatchBuilder::new();
        builder.push(TimestampMs(1000), Some(&[index % 3]), Some(b"value"), &[]);
        let appends = vec![(id(1, partition), builder.build().unwrap())];
        let sent = partitions.produce(Some(Acks::All), Origin::Client, 30_000, appends).await;
        assert!(sent.all().await.iter().all(Result::is_ok));
    }
}

/// Metadata with a default of the cluster.
fn image_with(key: &str, value: &str) -> Image {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let record = ConfigRecord {
        resource_type: 4,
        name: text(key),
        value: Some(text(value)),
        ..ConfigRecord::default()
    };
    let mut image = Image::default();
    image.apply(&record.into());
    image
}

fn wait_until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::yield_now();
    }
}

#[test]
fn a_log_that_cannot_be_compacted_rests_and_holds_up_no_other() {
    let world = World::new(3);
    let sizes = |index| world.partition(index).view().size_in_bytes();
    let before = sizes(0);
    // A damaged batch in the middle of a segment, and in its offsets rather than in its records.
    let path = world.dir.path().join("topic1-1").join("00000000000000000000.log");
    let file = RealDisk.open(&path, OpenMode::Write).unwrap();
    file.write_all_at(&[std::io::IoSlice::new(&[0xff; 40])], 100).unwrap();
    let cleaner = world.cleaner(&[("log.cleaner.backoff.ms", "5"), ("log.cleaner.threads", "2")]);
    wait_until(|| [0, 2].iter().all(|index| world.partition(*index).cleaned().is_some()));
    wait_until(|| !cleaner.shared.lock().resting.is_empty());
    assert!(sizes(0) < before / 2 && sizes(2) < before / 2 && sizes(1) == before);
    assert_eq!(world.partition(1).cleaned(), None);
    assert!(world.partition(1).directory().is_online());
    assert_eq!(cleaner.shared.lock().resting.keys().collect::<Vec<_>>(), [&id(1, 1)]);
    let bytes = world.partition(1).view().dirt(&log_config(), None, clock::wall()).unwrap().dirty_bytes;
    let uncleanable =
        UncleanableByDir([(world.dir.path().to_owned(), Uncleanable { partitions: 1, bytes })].into());
    assert!(bytes > 0);
    assert_eq!(cleaner.uncleanable(), uncleanable);
    cleaner.stop();
    let said = read_offsets(&RealDisk, world.dir.path(), OffsetCheckpoint::Cleaner).unwrap();
    let mut said: Vec<_> = said.into_iter().map(|(name, offset)| (name.to_string(), offset)).collect();
    said.sort();
    let upto = |index| world.partition(index).cleaned().unwrap();
    assert_eq!(said, [("topic1-0".to_owned(), upto(0)), ("topic1-2".to_owned(), upto(2))]);
    assert!(upto(0) > Offset(30));
    world.close();
}

#[test]
fn each_further_failure_is_followed_by_a_longer_rest() {
    let mut state = State::default();
    let rests: Vec<i64> = (0..9).map(|_| state.rest(id(1, 0), false).ms / 1000).collect();
    assert_eq!(rests, [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]);
    assert_eq!(state.rest(id(1, 1), false).ms, REST_MS);
}

#[test]
fn that_there_is_no_room_for_a_log_is_told_once() {
    let mut state = State::default();
    let told: Vec<bool> =
        [true, true, false, false, true, true].map(|lacks| !state.rest(id(1, 0), lacks).is_told).into();
    assert_eq!(told, [true, false, true, true, true, false]);
    state.resting.clear();
    assert!(!state.rest(id(1, 0), true).is_told);
}

#[test]
fn a_log_rests_when_there_is_no_room_for_a_group_beyond_the_reserve() {
    const RESERVE: u64 = 50_000;
    let disk = SimDisk::new();
    let world = World::on(disk.clone(), 1);
    let partition = world.partition(0);
    partition.directory().keep_free(RESERVE);
    // A group has some hundred bytes.
    leave_free(&disk, RESERVE + 50);
    let (before, used) = (partition.view().size_in_bytes(), disk.used());
    let cleaner = world.cleaner(&[("log.cleaner.backoff.ms", "5")]);
    wait_until(|| cleaner.shared.lock().resting.get(&id(1, 0)).is_some_and(|rest| rest.lacks_room));
    cleaner.stop();
    assert_eq!((partition.cleaned(), partition.view().size_in_bytes()), (None, before));
    assert_eq!(disk.used(), used, "nothing was written");
    assert!(partition.directory().is_online() && !partition.directory().is_short());
    leave_free(&disk, 20 * RESERVE);
    let cleaner = world.cleaner(&[("log.cleaner.backoff.ms", "5")]);
    wait_until(|| partition.cleaned().is_some());
    cleaner.stop();
    assert!(partition.view().size_in_bytes() < before / 2);
    world.close();
}

#[test]
fn a_log_that_the_disk_cannot_read_takes_its_directory_out_of_service() {
    let disk = SimDisk::new();
    let world = World::on(disk.clone(), 1);
    let partition = world.partition(0);
    disk.fail(FaultOn::Read, ".log", 0, io::ErrorKind::Other, None);
    let cleaner = world.cleaner(&[("log.cleaner.backoff.ms", "5")]);
    wait_until(|| !partition.directory().is_online());
    cleaner.stop();
    assert_eq!(partition.cleaned(), None);
    world.close();
}

/// The dirtiest log is one of which its shard knows nothing.
#[test]
fn a_log_of_which_nothing_comes_lets_others_go_first() {
    let world = World::new(1);
    let partition = world.partition(0);
    let cleaner = world.cleaner(&[("log.cleaner.backoff.ms", "5")]);
    wait_until(|| partition.cleaned().is_some());
    cleaner.stop();
    let before = partition.cleaned().unwrap();
    world.produce(0, 120);
    let Host { partition: ghost, mut log, .. } =
        new_host(&partition.directory(), id(2, 0), log_config(), lead(1, &[1]));
    for index in 0..40 {
        let mut builder = BatchBuilder::new();
        builder.push(TimestampMs(1000), Some(&[index % 3]), Some(b"value"), &[]);
        let batch = builder.build().unwrap();
        log.append_as_leader(&batch, LeaderEpoch(1), Origin::Client, TimestampMs(1000)).unwrap();
    }
    log.flush().unwrap();
    log.set_high_watermark(log.log_end());
    let ratio = |partition: &Partition| {
        let dirt = partition.view().dirt(&log_config(), partition.cleaned(), clock::wall()).unwrap();
        assert!(dirt.is_due(&log_config()));
        dirt.ratio()
    };
    assert!(ratio(&ghost) > ratio(&partition));
    world.partitions.update(|table| drop(table.insert(id(2, 0), ghost.clone())));
    // It would be slept for ten minutes.
    let cleaner = world.cleaner(&[("log.cleaner.backoff.ms", "600000")]);
    wait_until(|| partition.cleaned().unwrap() > before);
    assert_eq!(cleaner.shared.lock().passed_over.keys().collect::<Vec<_>>(), [&id(2, 0)]);
    assert_eq!(cleaner.uncleanable(), UncleanableByDir::default());
    cleaner.stop();
    world.close();
}

#[test]
fn what_is_changed_while_the_threads_sleep_holds_at_once() {
    let world = World::new(2);
    let cleaned = || [0, 1].map(|index| world.partition(index).cleaned().map_or(0, |offset| offset.0));
    let config = Arc::new(DynamicConfig::new(ME, layers(&[("log.cleaner.backoff.ms", "600000")])));
    let cleaner = world.cleaner_of(config.clone());
    wait_until(|| cleaned().iter().all(|offset| *offset > 0));
    // Now it sleeps for ten minutes, whatever is written.
    let before = cleaned();
    (0..2).for_each(|partition| world.produce(partition, 120));
    config.at(&image_with("log.cleaner.threads", "2"));
    assert!(cleaner.shared.lock().running.contains(&1), "who was missing is there");
    wait_until(|| cleaned().iter().zip(before).all(|(now, before)| *now > before));
    config.at(&image_with("log.cleaner.threads", "1"));
    wait_until(|| !cleaner.shared.lock().running.contains(&1));
    cleaner.stop();
    world.close();
}

#[test]
fn a_higher_rate_holds_for_a_compaction_that_waits() {
    let world = World::new(1);
    let slow = [("log.cleaner.backoff.ms", "5"), ("log.cleaner.io.max.bytes.per.second", "1")];
    let config = Arc::new(DynamicConfig::new(ME, layers(&slow)));
    let cleaner = world.cleaner_of(config.clone());
    wait_until(|| cleaner.shared.lock().busy.len() == 1);
    config.at(&image_with("log.cleaner.io.max.bytes.per.second", "1e9"));
    wait_until(|| world.partition(0).cleaned().is_some());
    cleaner.stop();
    world.close();
}

#[test]
fn threads_that_wait_for_their_pace_stop_at_once() {
    let world = World::new(2);
    let slow = [("log.cleaner.backoff.ms", "1"), ("log.cleaner.io.max.bytes.per.second", "1")];
    let cleaner = world.cleaner(&slow);
    wait_until(|| cleaner.shared.lock().busy.len() == 1);
    cleaner.stop();
    let left = std::fs::read_dir(world.dir.path().join("topic1-0")).unwrap();
    let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.ends_with(".cleaned")).count(), 0);
    world.close();
}

#[test]
fn the_configuration_says_how_many_threads_share_how_much() {
    let settings = |overrides: &[(&str, &str)]| Settings::new(&layers(overrides).broker_config(), SECRET);
    let default = settings(&[]);
    assert_eq!((default.threads, default.limits.map.bytes), (1, 128 << 20));
    assert_eq!(default.limits.chunk_bytes, 256 << 10);
    let two = settings(&[("log.cleaner.threads", "2")]);
    assert_eq!((two.threads, two.limits.map.bytes, two.limits.chunk_bytes), (2, 64 << 20, 128 << 10));
    assert_eq!(settings(&[("log.cleaner.enable", "false")]).threads, 0);
}
