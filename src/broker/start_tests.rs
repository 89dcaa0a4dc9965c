//! A whole broker over a quorum of one: started, used, stopped, started again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::controller_channel::ControllerChannel;
use super::duty_settings::duty_settings;
use super::dynamic_config::DynamicConfig;
use super::partitions::Role;
use super::readiness::Readiness;
use super::rig::{DIRECTORY_ID, ME, open_dir_with_id, readable, records};
use super::start::{BrokerHandles, BrokerOptions, RunningBroker, start};
use crate::config::{Layers, Sources, load};
use crate::controller::duties::ActiveController;
use crate::controller::{self, Controller, ControllerConfig, Member, MetadataHandle, SnapshotLimits, Timing};
use crate::metadata::features::bootstrap_records;
use crate::metadata::{Decision, Image, MetadataVersion, Record};
use crate::replica::Acks;
use crate::storage::checkpoint::{
    CLEAN_SHUTDOWN_FILE, OffsetCheckpoint, read_offsets, write_clean_shutdown, write_offsets,
};
use crate::storage::disk::{Disk, RealDisk};
use crate::storage::log::Origin;
use crate::storage::sim_disk::SimDisk;
use crate::types::{
    BrokerEpoch, DirectoryId, Offset, PartitionIndex, TopicId, TopicIdPartition, TopicPartition, Uuid,
    directory_id,
};
use crate::wire::messages::StrBytes;
use crate::wire::messages::metadata::{
    ConfigRecord, PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord,
    UnregisterBrokerRecord,
};

mod moves;
mod readiness;

struct Node {
    metadata: MetadataHandle,
    controller: Controller,
    handles: BrokerHandles,
    broker: RunningBroker,
}

pub(super) fn layers(overrides: &[(&str, &str)]) -> Layers {
    let overrides = overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    load(&Sources { overrides, ..Sources::default() }).unwrap().layers
}

/// A quorum of one with a new cluster's metadata.
pub(super) async fn run_quorum(dir: &Path) -> (MetadataHandle, Controller) {
    run_quorum_on(Arc::new(RealDisk), dir).await
}

async fn run_quorum_on(disk: Arc<dyn Disk>, dir: &Path) -> (MetadataHandle, Controller) {
    let config = ControllerConfig {
        node_id: ME,
        cluster_id: "test".into(),
        dir: dir.to_owned(),
        disk,
        me: Member::default(),
        voters: BTreeMap::from([(ME, Member::default())]),
        addresses: BTreeMap::new(),
        servers: Vec::new(),
        listener: None,
        joins_voters: false,
        segment_bytes: 1 << 20,
        snapshots: SnapshotLimits::default(),
        timing: Timing::default(),
        bootstrap_records: bootstrap_records(MetadataVersion::LATEST, &[], 1).unwrap(),
    };
    controller::start(config).await.unwrap()
}

impl Node {
    async fn start(dir: &Path, overrides: &[(&str, &str)]) -> Node {
        Node::start_on(dir, &[(dir, Some(DIRECTORY_ID))], overrides).await
    }

    /// A node with these log directories; those without an id are out of service.
    async fn start_on(
        dir: &Path,
        log_dirs: &[(&Path, Option<DirectoryId>)],
        overrides: &[(&str, &str)],
    ) -> Node {
        Node::start_with(Arc::new(RealDisk), dir, log_dirs, overrides).await
    }

    async fn start_with(
        disk: Arc<dyn Disk>,
        dir: &Path,
        log_dirs: &[(&Path, Option<DirectoryId>)],
        overrides: &[(&str, &str)],
    ) -> Node {
        let (metadata, controller, options) = Node::prepare(disk, dir, log_dirs, overrides).await;
        let (handles, mut broker) = start(options, metadata.clone()).await.unwrap();
        broker.unfence().await.unwrap();
        Node { metadata, controller, handles, broker }
    }

    /// What a broker starts from, and the quorum that it is to be part of.
    async fn prepare(
        disk: Arc<dyn Disk>,
        dir: &Path,
        log_dirs: &[(&Path, Option<DirectoryId>)],
        overrides: &[(&str, &str)],
    ) -> (MetadataHandle, Controller, BrokerOptions) {
        let (metadata, controller) = run_quorum_on(Arc::clone(&disk), dir).await;
        let config = Arc::new(DynamicConfig::new(ME, layers(overrides)));
        let settings = duty_settings(config.clone(), "PLAINTEXT".into());
        let (active, duties) = ActiveController::new(metadata.clone(), metadata.office(), Some(ME), settings);
        tokio::spawn(duties);
        let options = BrokerOptions {
            id: ME,
            config,
            log_dirs: log_dirs
                .iter()
                .filter_map(|(path, id)| Some(open_dir_with_id(&disk, path, (*id)?)))
                .collect(),
            lost_dirs: log_dirs
                .iter()
                .filter(|(_, id)| id.is_none())
                .map(|(path, _)| (*path).to_owned())
                .collect(),
            disk,
            open_files: 1000,
            endpoints: Vec::new(),
            inter_broker_listener: "PLAINTEXT".into(),
            rack: None,
            controller: ControllerChannel::new(Some(active), Arc::new(Vec::new), "test".into(), "test"),
            is_alone: true,
            readiness: Readiness::default(),
        };
        (metadata, controller, options)
    }

    async fn stop(self) {
        let locks = self.broker.stop().await;
        self.controller.shutdown().await;
        drop(locks);
    }

    /// Commits records and waits until they have taken effect on the broker.
    async fn apply(&mut self, records: Vec<Record>) {
        self.metadata.run(move |_| Decision::new(records.clone(), ())).await.unwrap();
        assert!(self.handles.reconciled.reached(self.metadata.image().version).await);
    }

    async fn create(&mut self, name: &str, topic: u128, partitions: i32) {
        self.create_in(name, topic, partitions, DIRECTORY_ID).await;
    }

    async fn create_in(&mut self, name: &str, topic: u128, partitions: i32, directory: DirectoryId) {
        let topic_id = Uuid::from_u128(topic);
        let name = StrBytes::from_string(name.to_owned());
        let mut all = vec![Record::from(TopicRecord { name, topic_id, ..TopicRecord::default() })];
        all.extend((0..partitions).map(|partition_id| {
            Record::from(PartitionRecord {
                partition_id,
                topic_id,
                replicas: vec![1],
                isr: vec![1],
                leader: 1,
                directories: vec![directory],
                ..PartitionRecord::default()
            })
        }));
        self.apply(all).await;
    }

    async fn delete(&mut self, topic: u128) {
        self.apply(vec![remove_topic(topic)]).await;
    }

    async fn produce(&self, id: TopicIdPartition, values: &[&str]) -> i64 {
        let appends: Vec<(TopicIdPartition, Bytes)> = vec![(id, records(values))];
        let answers = self.handles.partitions.produce(Some(Acks::All), Origin::Client, 30_000, appends).await;
        answers.all().await.pop().unwrap().unwrap().base_offset.0
    }

    /// Waits until the metadata is as it should be.
    async fn until(&self, holds: impl Fn(&Image) -> bool) {
        let mut images = self.metadata.subscribe();
        images.wait_for(|image| holds(image)).await.unwrap();
    }

    /// Waits until the metadata has partition 0 of the topic in this directory.
    async fn until_in(&self, topic: u128, directory: DirectoryId) {
        let topic = TopicId::from_u128(topic);
        let is_there = |image: &Image| {
            let partition = image.topics.partition(topic, PartitionIndex(0));
            partition.is_some_and(|partition| partition.directory(ME) == Some(directory))
        };
        self.until(is_there).await;
    }

    async fn configure(&mut self, key: &str, value: &str) {
        let text = |text: &str| StrBytes::from_string(text.to_owned());
        let record = ConfigRecord {
            resource_type: 4,
            resource_name: text("1"),
            name: text(key),
            value: Some(text(value)),
            ..ConfigRecord::default()
        };
        self.apply(vec![record.into()]).await;
    }

    /// In which directories the metadata has the partitions of a topic.
    fn directories(&self, topic: u128) -> Vec<DirectoryId> {
        let image = self.metadata.image();
        let topic = image.topics.by_id(TopicId::from_u128(topic)).unwrap();
        topic.partitions().map(|(_, partition)| partition.directory(ME).unwrap()).collect()
    }

    fn readable(&self, id: TopicIdPartition) -> usize {
        readable(&self.handles.partitions.get(&id).expect("hosted"))
    }
}

fn id(topic: u128, partition: i32) -> TopicIdPartition {
    TopicIdPartition { topic_id: TopicId::from_u128(topic), partition: PartitionIndex(partition) }
}

fn partition_dirs(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let names = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    let mut names: Vec<String> = names
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| !name.starts_with("__cluster_metadata"))
        // The unique part of a name that was set aside.
        .map(|name| name.split_once('.').map_or(name.clone(), |(of, rest)| format!("{of}.{}", &rest[32..])))
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]).await;
    node.create("a", 1, 3).await;
    for partition in 0..3 {
        assert_eq!(node.produce(id(1, partition), &["x", "y"]).await, 0);
    }
    let before = node.readable(id(1, 0));
    let leadership = node.handles.partitions.get(&id(1, 0)).unwrap().leadership();
    assert_eq!((leadership.role, leadership.leader), (Role::Leader, ME));
    let first = node.handles.lifecycle.epoch();
    node.stop().await;
    assert!(dir.path().join(CLEAN_SHUTDOWN_FILE).exists());

    let node = Node::start(dir.path(), &[]).await;
    assert!(!dir.path().join(CLEAN_SHUTDOWN_FILE).exists());
    assert_eq!(node.handles.log_dirs.previous_epoch(), first);
    assert!(node.handles.lifecycle.epoch() > first);
    assert_eq!(node.readable(id(1, 0)), before);
    assert_eq!(node.produce(id(1, 0), &["z"]).await, 2);
    let now = node.handles.partitions.get(&id(1, 0)).unwrap().leadership();
    assert!(now.leader_epoch > leadership.leader_epoch);
    node.stop().await;
}

#[tokio::test]
async fn a_deleted_topic_goes_and_its_name_can_be_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]).await;
    node.create("a", 1, 2).await;
    node.produce(id(1, 0), &["x", "y"]).await;
    node.delete(1).await;
    assert!(node.handles.partitions.get(&id(1, 0)).is_none());
    assert_eq!(partition_dirs(dir.path()), ["a-0.-delete", "a-1.-delete"]);
    node.create("a", 2, 1).await;
    assert_eq!(node.produce(id(2, 0), &["z"]).await, 0);
    node.stop().await;

    // What the stop has interrupted is done at the start.
    let node = Node::start(dir.path(), &[]).await;
    node.stop().await;
    assert_eq!(partition_dirs(dir.path()), ["a-0"]);

    // A directory of another topic of the same name is not touched, and not served.
    std::fs::create_dir(dir.path().join("b-0")).unwrap();
    let metadata = "version: 0\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg";
    std::fs::write(dir.path().join("b-0/partition.metadata"), metadata).unwrap();
    let start_of_b = |offset: i64| {
        let b = TopicPartition::new("b", 0);
        write_offsets(&RealDisk, dir.path(), OffsetCheckpoint::LogStart, [(&b, Offset(offset))].into_iter())
    };
    start_of_b(500).unwrap();
    let mut node = Node::start(dir.path(), &[]).await;
    assert_eq!(partition_dirs(dir.path()), ["a-0", "b-0.-stray"]);
    node.create("b", 3, 1).await;
    // After a crash the new one is not taken to start where the other did, which would make it empty.
    assert!(read_offsets(&RealDisk, dir.path(), OffsetCheckpoint::LogStart).unwrap().is_empty());
    assert_eq!(node.produce(id(3, 0), &["z"]).await, 0);
    node.stop().await;
    assert_eq!(partition_dirs(dir.path()), ["a-0", "b-0", "b-0.-stray"]);
}

/// Changes the metadata while there is no broker.
async fn apply_while_away(dir: &Path, records: Vec<Record>) {
    let (metadata, controller) = run_quorum(dir).await;
    metadata.run(move |_| Decision::new(records.clone(), ())).await.unwrap();
    controller.shutdown().await;
}

fn remove_topic(topic: u128) -> Record {
    RemoveTopicRecord { topic_id: Uuid::from_u128(topic), ..RemoveTopicRecord::default() }.into()
}

#[tokio::test]
async fn partitions_that_went_while_the_broker_was_away_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]).await;
    for (name, topic) in [("deleted", 1), ("given-away", 2), ("kept", 3)] {
        node.create(name, topic, 1).await;
        node.produce(id(topic, 0), &["x"]).await;
    }
    node.stop().await;
    let given_away = PartitionChangeRecord {
        partition_id: 0,
        topic_id: Uuid::from_u128(2),
        replicas: Some(vec![2]),
        isr: Some(vec![2]),
        leader: 2,
        directories: Some(vec![directory_id::UNASSIGNED]),
        ..PartitionChangeRecord::default()
    };
    apply_while_away(dir.path(), vec![remove_topic(1), given_away.into()]).await;
    let node = Node::start(dir.path(), &[]).await;
    assert_eq!(partition_dirs(dir.path()), ["deleted-0.-delete", "given-away-0.-delete", "kept-0"]);
    assert_eq!(node.produce(id(3, 0), &["y"]).await, 1);
    node.stop().await;
}

#[tokio::test]
async fn partitions_are_kept_if_the_metadata_cannot_know_that_they_were_deleted() {
    // The metadata was begun anew, the broker was unregistered, or the metadata is older than what the broker has seen.
    for case in ["anew", "unregistered", "older"] {
        let dir = tempfile::tempdir().unwrap();
        let mut node = Node::start(dir.path(), &[]).await;
        node.create("a", 1, 1).await;
        node.produce(id(1, 0), &["x"]).await;
        let epoch = node.handles.lifecycle.epoch();
        node.stop().await;
        match case {
            "anew" => std::fs::remove_dir_all(dir.path().join("__cluster_metadata-0")).unwrap(),
            "unregistered" => {
                let unregister =
                    UnregisterBrokerRecord { broker_id: ME.0, broker_epoch: epoch.0, ..Default::default() };
                apply_while_away(dir.path(), vec![remove_topic(1), unregister.into()]).await;
            }
            _ => {
                let later = BrokerEpoch(epoch.0 + 1);
                write_clean_shutdown(&RealDisk, dir.path(), later).unwrap();
                apply_while_away(dir.path(), vec![remove_topic(1)]).await;
            }
        }
        for _ in 0..2 {
            // Once it is known not to be this metadata's, it stays so.
            let node = Node::start(dir.path(), &[]).await;
            assert_eq!(partition_dirs(dir.path()), ["a-0.-stray"], "{case}");
            node.stop().await;
        }
    }
}

#[tokio::test]
async fn topic_configuration_reaches_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[("log.flush.before.ack", "false")]).await;
    node.create("a", 1, 1).await;
    let set = |name: &'static str, value: &str| {
        Record::from(ConfigRecord {
            resource_type: 2,
            resource_name: StrBytes::from_static_str("a"),
            name: StrBytes::from_static_str(name),
            value: Some(StrBytes::from_string(value.to_owned())),
            ..ConfigRecord::default()
        })
    };
    let partition = node.handles.partitions.get(&id(1, 0)).unwrap();
    node.produce(id(1, 0), &["x"]).await;
    assert_eq!(partition.view().flushed, Offset(0));
    node.apply(vec![set("flush.messages", "2")]).await;
    node.produce(id(1, 0), &["y"]).await;
    node.apply(vec![set("flush.before.ack", "true")]).await;
    node.produce(id(1, 0), &["z"]).await;
    assert_eq!(partition.view().flushed, Offset(3));
    node.stop().await;
}

#[tokio::test]
async fn producer_ids_are_given_out_once() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]).await;
    let ids = futures_util::future::join_all((0..10).map(|_| node.handles.producer_ids.next())).await;
    let ids: Vec<i64> = ids.into_iter().map(|id| id.unwrap().0).collect();
    assert_eq!(ids, (0..10).collect::<Vec<_>>());
    node.stop().await;
    let node = Node::start(dir.path(), &[]).await;
    let next = node.handles.producer_ids.next().await.unwrap().0;
    assert_eq!(next, 1000);
    node.stop().await;
}

const A: DirectoryId = Uuid::from_u128(0xa000);
const B: DirectoryId = Uuid::from_u128(0xb000);

#[tokio::test]
async fn a_directory_out_of_service_takes_only_itself_away() {
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    let mut node = Node::start_on(root.path(), &[(&a, Some(A)), (&b, Some(B))], &[]).await;
    node.create_in("t", 1, 4, directory_id::UNASSIGNED).await;
    // The broker reports where it has put them.
    let is_placed = |image: &Image| {
        let topic = image.topics.by_id(TopicId::from_u128(1)).unwrap();
        topic.partitions().all(|(_, partition)| [Some(A), Some(B)].contains(&partition.directory(ME)))
    };
    node.until(is_placed).await;
    let directories = node.directories(1);
    assert_eq!(directories.iter().filter(|id| **id == A).count(), 2, "{directories:?}");
    for partition in 0..4 {
        assert_eq!(node.produce(id(1, partition), &["x"]).await, 0);
    }
    node.stop().await;

    let mut node = Node::start_on(root.path(), &[(&a, Some(A)), (&b, None)], &[]).await;
    assert_eq!(node.handles.log_dirs.previous_epoch(), BrokerEpoch::UNKNOWN);
    for (partition, directory) in (0..4).zip(&directories) {
        let id = id(1, partition);
        match *directory {
            A => assert_eq!(node.produce(id, &["y"]).await, 1),
            _ => assert!(node.handles.partitions.get(&id).is_none(), "it was made anew"),
        }
    }
    // New partitions find a place.
    node.create_in("u", 2, 1, directory_id::UNASSIGNED).await;
    assert_eq!(node.produce(id(2, 0), &["x"]).await, 0);
    node.stop().await;

    let node = Node::start_on(root.path(), &[(&a, Some(A)), (&b, Some(B))], &[]).await;
    for (partition, directory) in (0..4).zip(&directories) {
        let next = if *directory == A { 2 } else { 1 };
        assert_eq!(node.produce(id(1, partition), &["z"]).await, next);
    }
    node.stop().await;
}

#[tokio::test]
async fn a_cordoned_directory_gets_no_new_partitions() {
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    let dirs = format!("{},{}", a.display(), b.display());
    let overrides = [("log.dirs", dirs.as_str()), ("cordoned.log.dirs", b.to_str().unwrap())];
    let mut node = Node::start_on(root.path(), &[(&a, Some(A)), (&b, Some(B))], &overrides).await;
    let cordoned =
        |image: &Image| image.brokers.get(ME).unwrap().cordoned_directories.clone().unwrap_or_default();
    assert_eq!(cordoned(&node.metadata.image()), [B]);
    node.create_in("t", 1, 3, directory_id::UNASSIGNED).await;
    assert_eq!((partition_dirs(&a).len(), partition_dirs(&b).len()), (3, 0));

    node.configure("cordoned.log.dirs", "*").await;
    node.until(|image| cordoned(image) == [A, B]).await;
    node.configure("cordoned.log.dirs", a.to_str().unwrap()).await;
    node.until(|image| cordoned(image) == [A]).await;
    node.create_in("u", 2, 1, directory_id::UNASSIGNED).await;
    assert_eq!((partition_dirs(&a).len(), partition_dirs(&b).len()), (3, 1));
    node.stop().await;
}

#[tokio::test]
async fn leaving_in_an_orderly_way_can_be_switched_off() {
    for (enabled, leaves) in [("true", true), ("false", false)] {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(dir.path(), &[("controlled.shutdown.enable", enabled)]).await;
        drop(node.broker.stop().await);
        assert_eq!(!node.metadata.image().brokers.is_active(ME), leaves);
        node.controller.shutdown().await;
    }
}

#[tokio::test]
async fn a_broker_starts_on_a_disk_without_a_free_byte_and_topics_can_be_deleted() {
    let sim = SimDisk::new();
    let dir = Path::new("/data");
    sim.create_dir_all(dir).unwrap();
    let start = async || {
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let overrides = [("log.segment.delete.delay.ms", "0")];
        Node::start_with(disk, dir, &[(dir, Some(DIRECTORY_ID))], &overrides).await
    };
    let mut node = start().await;
    node.create("kept", 1, 1).await;
    node.create("deleted", 2, 1).await;
    for topic in [1, 2] {
        node.produce(id(topic, 0), &["x", "y"]).await;
    }
    let ballast = vec![b'v'; 900_000];
    node.produce(id(2, 0), &[std::str::from_utf8(&ballast).unwrap()]).await;
    // It runs full, and stops in an orderly way.
    sim.set_capacity(Some(sim.used()));
    node.stop().await;

    let mut node = start().await;
    let refused = async |node: &Node| {
        let appends: Vec<(TopicIdPartition, Bytes)> = vec![(id(1, 0), records(&["z"]))];
        let answers = node.handles.partitions.produce(Some(Acks::All), Origin::Client, 30_000, appends).await;
        answers.all().await.pop().unwrap().is_err()
    };
    assert!(refused(&node).await);
    assert!(node.readable(id(1, 0)) > 0);
    node.delete(2).await;
    // The files go, it is seen that they have, and records are taken again.
    while refused(&node).await {
        tokio::task::yield_now().await;
    }
    node.stop().await;
    let node = start().await;
    assert!(node.readable(id(1, 0)) > 0);
    node.stop().await;
}
