//! Moves between log directories in a whole broker: what they wait for, who does not wait for them, and what is left of one that
//! was only announced.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use bytes::Bytes;
use tokio::sync::watch;

use super::super::rig::{open_dir_with_id, records};
use super::{A, B, Node, id, remove_topic};
use crate::storage::disk::{DirEntry, Disk, DiskFile, DiskLock, FileStat, OpenMode, RealDisk, Space};
use crate::storage::log::{Budgets, Damage, LogConfig, Origin, ReadPlan};
use crate::storage::log_dir::Fate;
use crate::storage::sim_disk::SimDisk;
use crate::types::{LeaderEpoch, Offset, TimestampMs, TopicId, Uuid, directory_id};
use crate::wire::messages::StrBytes;
use crate::wire::messages::metadata::{ConfigRecord, PartitionChangeRecord};

#[tokio::test]
async fn a_copy_of_a_log_that_may_have_been_compacted_since_is_made_anew() {
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    let directories = [(a.as_path(), Some(A)), (b.as_path(), Some(B))];
    let mut node = Node::start_on(root.path(), &directories, &[]).await;
    node.create_in("t", 1, 1, A).await;
    for value in ["kept-0", "kept-1", "kept-2"] {
        node.produce(id(1, 0), &[value]).await;
    }
    let policy = ConfigRecord {
        resource_type: 2,
        resource_name: StrBytes::from_static_str("t"),
        name: StrBytes::from_static_str("cleanup.policy"),
        value: Some(StrBytes::from_static_str("compact")),
        ..ConfigRecord::default()
    };
    node.apply(vec![policy.into()]).await;
    let partition = node.handles.partitions.get(&id(1, 0)).unwrap();
    assert_eq!(partition.directory().id(), A);
    let name = partition.name.clone();
    let epoch = partition.view().epochs().latest().map_or(LeaderEpoch::UNKNOWN, |latest| latest.epoch);
    node.stop().await;

    // A move was interrupted when the copy had what is gone from the log now.
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let dir = open_dir_with_id(&disk, &b, B);
    let path = dir.path_for(&name, Fate::Future, Uuid::new_v4());
    let budgets = Budgets::new(1 << 20, 1 << 20, 100);
    let (config, now) = (Arc::new(LogConfig::default()), TimestampMs(1));
    let copy = dir.create_at(&name, &path, TopicId::from_u128(1), Offset::ZERO, config, now, budgets);
    let mut copy = copy.unwrap();
    copy.append_as_leader(&records(&["gone-0"]), epoch, Origin::Client, now).unwrap();
    copy.close().unwrap();
    drop((copy, dir));

    let node = Node::start_on(root.path(), &directories, &[]).await;
    let partition = node.handles.partitions.get(&id(1, 0)).unwrap();
    while partition.directory().id() != B {
        tokio::task::yield_now().await;
    }
    let view = partition.view();
    let all: Bytes = match view.read(Offset::ZERO, 1 << 20, view.log_end, true).unwrap() {
        ReadPlan::Ready(parts) => parts.concat().into(),
        ReadPlan::Cold(read) => read.run().unwrap(),
    };
    let all = String::from_utf8_lossy(&all);
    assert!(["kept-0", "kept-1", "kept-2"].iter().all(|value| all.contains(value)), "{all}");
    assert!(!all.contains("gone"), "{all}");
    node.stop().await;
}

/// Changes a bit of the first batch of a log, or changes it back.
fn flip(log: &Path) {
    let byte = std::fs::read(log).unwrap()[70] ^ 1;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    disk.open(log, OpenMode::Write).unwrap().write_all_at(&[IoSlice::new(&[byte])], 70).unwrap();
}

#[tokio::test]
async fn a_damaged_log_is_moved_once_it_is_whole() {
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    let directories = [(a.as_path(), Some(A)), (b.as_path(), Some(B))];
    let mut node = Node::start_on(root.path(), &directories, &[]).await;
    node.create_in("t", 1, 1, A).await;
    node.produce(id(1, 0), &["x", "y"]).await;
    node.produce(id(1, 0), &["z"]).await;
    let before = node.readable(id(1, 0));
    node.stop().await;

    let log = a.join("t-0/00000000000000000000.log");
    flip(&log);
    let node = Node::start_on(root.path(), &directories, &[]).await;
    let partition = node.handles.partitions.get(&id(1, 0)).unwrap();
    let target = node.handles.log_dirs.directories()[1].clone();
    node.handles.moves.begin(id(1, 0), target).await.unwrap();
    // Its shard hears of it from who copies.
    let is_known = || {
        let view = partition.view();
        let Ok(ReadPlan::Cold(read)) = view.read(Offset::ZERO, 1, view.log_end, true) else { panic!("cold") };
        read.run().is_err_and(|error| Damage::of(&error).is_some_and(Damage::is_known))
    };
    while !is_known() {
        tokio::task::yield_now().await;
    }
    let lies = partition.lies();
    assert_eq!(
        (lies.directory.id(), lies.future.as_ref().unwrap().view().unwrap().log_end),
        (A, Offset::ZERO)
    );
    flip(&log);
    while partition.directory().id() != B {
        tokio::task::yield_now().await;
    }
    node.until_in(1, B).await;
    assert_eq!(node.readable(id(1, 0)), before);
    assert_eq!(node.produce(id(1, 0), &["after"]).await, 3);
    node.stop().await;
}

#[tokio::test]
async fn a_replica_that_is_given_up_moves_when_it_has_been_taken_back() {
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    let mut node = Node::start_on(root.path(), &[(&a, Some(A)), (&b, Some(B))], &[]).await;
    node.create_in("t", 1, 1, A).await;
    let given_up = PartitionChangeRecord {
        partition_id: 0,
        topic_id: Uuid::from_u128(1),
        replicas: Some(vec![1, 2, 3]),
        isr: Some(vec![2, 3]),
        leader: 2,
        directories: Some(vec![directory_id::LOST, directory_id::UNASSIGNED, directory_id::UNASSIGNED]),
        ..PartitionChangeRecord::default()
    };
    node.apply(vec![given_up.into()]).await;
    let partition = node.handles.partitions.get(&id(1, 0)).unwrap();
    let target = node.handles.log_dirs.directories()[1].clone();
    node.handles.moves.begin(id(1, 0), target).await.unwrap();
    let lifecycle = node.handles.lifecycle.clone();
    assert_eq!(lifecycle.report_placement(vec![(id(1, 0), B)]).await.unwrap(), [id(1, 0)]);
    assert_eq!((node.directories(1), partition.directory().id()), (vec![directory_id::LOST], A));
    lifecycle.take_back(vec![(id(1, 0), A)]).await.unwrap();
    node.until_in(1, B).await;
    while partition.directory().id() != B {
        tokio::task::yield_now().await;
    }
    node.stop().await;
}

/// A disk that takes its time to make copies: until somebody lets it.
#[derive(Clone, Debug)]
struct SlowDisk {
    disk: SimDisk,
    is_reached: Arc<watch::Sender<bool>>,
    is_open: Arc<(Mutex<bool>, Condvar)>,
}

impl SlowDisk {
    fn new() -> SlowDisk {
        SlowDisk {
            disk: SimDisk::new(),
            is_reached: Arc::new(watch::channel(false).0),
            is_open: Arc::default(),
        }
    }

    fn release(&self) {
        *self.is_open.0.lock().unwrap() = true;
        self.is_open.1.notify_all();
    }
}

impl Disk for SlowDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        if dir.to_str().unwrap().ends_with("-future") {
            self.is_reached.send_replace(true);
            drop(self.is_open.1.wait_while(self.is_open.0.lock().unwrap(), |is_open| !*is_open).unwrap());
        }
        self.disk.create_dir_all(dir)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(path, mode)
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        self.disk.stat(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.disk.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.disk.space(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.disk.lock(path)
    }
}

#[tokio::test]
async fn a_target_that_hangs_keeps_nobody_waiting_but_its_move() {
    let slow = SlowDisk::new();
    let directories = [(Path::new("/a"), Some(A)), (Path::new("/b"), Some(B))];
    let mut node = Node::start_with(Arc::new(slow.clone()), Path::new("/a"), &directories, &[]).await;
    for (name, topic) in [("t", 1), ("u", 2)] {
        node.create_in(name, topic, 1, A).await;
        node.produce(id(topic, 0), &["x"]).await;
    }
    let (moves, target) = (node.handles.moves.clone(), node.handles.log_dirs.directories()[1].clone());
    let begun = tokio::spawn(async move { moves.begin(id(1, 0), target).await });
    slow.is_reached.subscribe().wait_for(|is_reached| *is_reached).await.unwrap();
    // The partition goes, others come, and both take effect.
    node.apply(vec![remove_topic(1)]).await;
    assert!(node.handles.partitions.get(&id(1, 0)).is_none());
    node.create_in("v", 3, 1, B).await;
    node.produce(id(3, 0), &["y"]).await;
    slow.release();
    // The copy is set aside when it is made.
    begun.await.unwrap().unwrap();
    while slow.list(Path::new("/b")).unwrap().iter().any(|entry| entry.name.ends_with("-future")) {
        tokio::task::yield_now().await;
    }
    assert!(node.handles.log_dirs.directories().iter().all(|directory| directory.is_online()));
    node.stop().await;
}

#[tokio::test]
async fn one_copy_at_a_time_takes_the_place_of_its_log() {
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    let mut node = Node::start_on(root.path(), &[(&a, Some(A)), (&b, Some(B))], &[]).await;
    node.create_in("t", 1, 1, A).await;
    node.produce(id(1, 0), &["x"]).await;
    let (moves, target) = (node.handles.moves.clone(), node.handles.log_dirs.directories()[1].clone());
    let of_another = moves.promotions().acquire().await.unwrap();
    moves.begin(id(1, 0), target).await.unwrap();
    // All but the last step.
    node.until_in(1, B).await;
    assert_eq!(node.produce(id(1, 0), &["y"]).await, 1);
    let partition = node.handles.partitions.get(&id(1, 0)).unwrap();
    assert_eq!(partition.directory().id(), A);
    drop(of_another);
    while partition.directory().id() != B {
        tokio::task::yield_now().await;
    }
    assert_eq!(node.produce(id(1, 0), &["z"]).await, 2);
    node.stop().await;
}

#[tokio::test]
async fn a_move_that_was_only_announced_makes_no_empty_log_when_the_real_one_is_lost() {
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    let mut node = Node::start_on(root.path(), &[(&a, Some(A)), (&b, Some(B))], &[]).await;
    node.create_in("t", 1, 1, A).await;
    node.produce(id(1, 0), &["x", "y"]).await;
    let before = node.readable(id(1, 0));
    node.handles.lifecycle.clone().report_placement(vec![(id(1, 0), B)]).await.unwrap();
    node.until_in(1, B).await;
    node.stop().await;

    let node = Node::start_on(root.path(), &[(&a, None), (&b, Some(B))], &[]).await;
    // Nobody is to wait for it here.
    node.until_in(1, directory_id::LOST).await;
    assert!(node.handles.partitions.get(&id(1, 0)).is_none() && !b.join("t-0").exists());
    node.stop().await;

    let node = Node::start_on(root.path(), &[(&a, Some(A)), (&b, Some(B))], &[]).await;
    node.until_in(1, A).await;
    assert_eq!(node.readable(id(1, 0)), before);
    node.stop().await;
}

#[tokio::test]
async fn a_move_that_nobody_has_heard_of_is_nothing_to_the_cluster() {
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    let slow = [("replica.alter.log.dirs.io.max.bytes.per.second", "1")];
    let both = [(a.as_path(), Some(A)), (b.as_path(), Some(B))];
    let mut node = Node::start_on(root.path(), &both, &slow).await;
    node.create_in("t", 1, 1, A).await;
    for value in ["x", "y", "z"] {
        node.produce(id(1, 0), &[value]).await;
    }
    let before = node.readable(id(1, 0));
    let target = node.handles.log_dirs.directories()[1].clone();
    node.handles.moves.begin(id(1, 0), target).await.unwrap();
    let partition = node.handles.partitions.get(&id(1, 0)).unwrap();
    while partition.future().unwrap().view().unwrap().log_end == Offset::ZERO {
        tokio::task::yield_now().await;
    }
    drop(partition);
    node.stop().await;

    // The directory with the log is away for a while. Where the metadata has it is still true.
    let node = Node::start_on(root.path(), &[(&a, None), (&b, Some(B))], &slow).await;
    assert!(node.handles.partitions.get(&id(1, 0)).is_none());
    assert_eq!(node.directories(1), [A]);
    node.stop().await;

    let node = Node::start_on(root.path(), &both, &slow).await;
    while node.readable(id(1, 0)) != before {
        tokio::task::yield_now().await;
    }
    let lies = node.handles.partitions.get(&id(1, 0)).unwrap().lies();
    assert_eq!((lies.directory.id(), lies.future.as_ref().unwrap().directory.id()), (A, B));
    assert_eq!(node.produce(id(1, 0), &["after"]).await, 3);
    node.stop().await;
}
