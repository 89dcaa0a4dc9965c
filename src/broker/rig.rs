//! One shard without threads, for tests: messages, flush rounds and time move when the test says so.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;

use super::checkpoints::Checkpoints;
use super::clock::Now;
use super::directory::Directory;
use super::log_dirs::LogDirs;
use super::mailbox::{Mailbox, Message, mailbox};
use super::messages::{FollowerSettings, Host, ProduceError, Produced, ReplicaSettings, RoleSpec};
use super::outbox::{Inlets, outlets};
use super::partitions::{Partition, Partitions};
use super::reply::Gathered;
use super::shard::Shard;
use crate::replica::{Acks, BrokerStanding, FollowerConfig, Registration, ReplicaConfig, Term};
use crate::storage::checkpoint::MetaProperties;
use crate::storage::disk::{Disk, OpenMode};
use crate::storage::log::{Budgets, Log, LogConfig, OpenArgs, Origin, ReadPlan};
use crate::storage::log_dir::{Claim, LogDir, Owner};
use crate::storage::sim_disk::SimDisk;
use crate::types::{
    BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch, PartitionIndex, TimestampMs, TopicIdPartition,
    TopicPartition, Uuid,
};
use crate::wire::batch_builder::BatchBuilder;

pub(super) const ME: NodeId = NodeId(1);
pub(super) const DIRECTORY_ID: Uuid = Uuid::from_u128(0x1234_5678_9abc_def0);

pub(super) struct Rig {
    pub(super) shard: Shard,
    mailbox: Mailbox,
    pub(super) inlets: Inlets,
    pub(super) partitions: Partitions,
    pub(super) directory: Arc<Directory>,
    disk: Arc<dyn Disk>,
    pub(super) now: Now,
}

pub(super) const fn id(topic: u128, partition: i32) -> TopicIdPartition {
    TopicIdPartition { topic_id: Uuid::from_u128(topic), partition: PartitionIndex(partition) }
}

pub(super) fn records(values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.push(TimestampMs(1000), None, Some(value.as_bytes()), &[]);
    }
    builder.build().expect("a batch")
}

pub(super) fn lead(leader_epoch: i32, isr: &[i32]) -> RoleSpec {
    lead_of(isr, leader_epoch, isr)
}

/// The same, of replicas that need not be in sync.
pub(super) fn lead_of(replicas: &[i32], leader_epoch: i32, isr: &[i32]) -> RoleSpec {
    RoleSpec::Lead(Registration {
        leader_epoch: LeaderEpoch(leader_epoch),
        partition_epoch: PartitionEpoch(leader_epoch),
        replicas: replicas.iter().map(|id| (NodeId(*id), BrokerStanding::Active(BrokerEpoch(1)))).collect(),
        isr: isr.iter().map(|id| NodeId(*id)).collect(),
    })
}

pub(super) fn follow(leader: i32, leader_epoch: i32) -> RoleSpec {
    RoleSpec::Follow(Term {
        leader: NodeId(leader),
        leader_epoch: LeaderEpoch(leader_epoch),
        lossy_epoch: LeaderEpoch::UNKNOWN,
        may_lack_committed: false,
    })
}

pub(super) fn replica_config(config: &LogConfig) -> ReplicaSettings {
    let durable_acks = config.flush_before_ack;
    ReplicaSettings {
        leader_throttled: false,
        leader: ReplicaConfig {
            min_insync_replicas: 1,
            durable_acks,
            lag_time_max_ms: 30_000,
            unclean_election: false,
        },
        follower: FollowerSettings {
            core: FollowerConfig { backoff_max_ms: 1000 },
            may_lack_committed: !durable_acks,
            throttled: false,
        },
    }
}

/// A log directory, formatted when it is new.
pub(super) fn open_dir(disk: &Arc<dyn Disk>, path: &Path) -> LogDir {
    open_dir_with_id(disk, path, DIRECTORY_ID)
}

pub(super) fn open_dir_with_id(disk: &Arc<dyn Disk>, path: &Path, id: Uuid) -> LogDir {
    let mut claim = Claim::take(disk.clone(), path).expect("a claim");
    let owner = Owner { cluster_id: "test".to_owned(), node_id: ME };
    if claim.properties().is_none() {
        let Owner { cluster_id, node_id } = owner.clone();
        let properties = MetaProperties { cluster_id, node_id, directory_id: Some(id) };
        claim.format(properties).expect("formatted");
    }
    claim.check(&owner).expect("ours");
    claim.open().expect("a log directory")
}

/// A new log and what goes with it.
pub(super) fn new_host(
    directory: &Arc<Directory>,
    id: TopicIdPartition,
    config: LogConfig,
    role: RoleSpec,
) -> Host {
    let name = TopicPartition::new(format!("topic{}", id.topic_id.as_u128()), id.partition.0);
    let args = OpenArgs {
        recovery_point: Offset::ZERO,
        log_start: Offset::ZERO,
        clean_shutdown: true,
        now: TimestampMs(1_000_000),
        budgets: Budgets::new(1 << 20, 1 << 20, 100),
        unchecked: Arc::default(),
    };
    let dir = directory.path().join(name.to_string());
    let replica = replica_config(&config);
    let log = Log::create(directory.dir().disk(), &dir, Arc::new(config), &args).expect("a log");
    let partition = Arc::new(Partition::new(id, name, directory.clone(), &log));
    Host { partition, log, config: replica, role }
}

impl Rig {
    pub(super) fn new(disk: Arc<dyn Disk>, dir: &Path) -> Rig {
        Rig::on_node(ME, disk, dir)
    }

    pub(super) fn on_node(me: NodeId, disk: Arc<dyn Disk>, dir: &Path) -> Rig {
        let (sender, mailbox) = mailbox(100);
        let directory = Directory::new(0, open_dir(&disk, dir), vec![sender.clone()], 0);
        let now = Now { wall: TimestampMs(1_000_000), monotonic: super::clock::monotonic() };
        let (outlets, inlets) = outlets();
        Rig {
            shard: Shard::new(0, me, outlets),
            mailbox,
            inlets,
            partitions: Partitions::new(vec![sender]),
            directory: Arc::new(directory),
            disk,
            now,
        }
    }

    /// Opens a log that is there already, as after a restart, and hands it to the shard.
    pub(super) fn host_again(
        &mut self,
        id: TopicIdPartition,
        config: LogConfig,
        role: RoleSpec,
    ) -> Arc<Partition> {
        let listing = self.directory.dir().list().expect("a listing");
        let name = TopicPartition::new(format!("topic{}", id.topic_id.as_u128()), id.partition.0);
        let found = listing.partitions.iter().find(|found| found.partition == name).expect("its directory");
        let (replica, config) = (replica_config(&config), Arc::new(config));
        let budget = Budgets::new(1 << 20, 1 << 20, 100);
        let log = self.directory.dir().open_log(found, config, self.now.wall, budget).expect("a log");
        let partition = Arc::new(Partition::new(id, name, self.directory.clone(), &log));
        self.partitions.update(|table| {
            table.insert(id, partition.clone());
        });
        let host = Host { partition: partition.clone(), log, config: replica, role };
        self.tell(Message::Host(Box::new(host)));
        partition
    }

    /// Creates a log and hands it to the shard.
    pub(super) fn host(&mut self, id: TopicIdPartition, config: LogConfig, role: RoleSpec) -> Arc<Partition> {
        let host = new_host(&self.directory, id, config, role);
        let partition = host.partition.clone();
        self.partitions.update(|table| {
            table.insert(id, partition.clone());
        });
        self.tell(Message::Host(Box::new(host)));
        partition
    }

    pub(super) fn tell(&mut self, message: Message) {
        self.shard.step(&mut vec![message], self.now);
    }

    pub(super) fn produce(
        &mut self,
        acks: Option<Acks>,
        appends: Vec<(TopicIdPartition, Bytes)>,
    ) -> Gathered<Result<Produced, ProduceError>> {
        let sent = self.partitions.produce(acks, Origin::Client, 30_000, appends);
        let gathered = sent.now_or_never().expect("there is room in the mailbox");
        self.pump();
        gathered
    }

    /// Lets the shard deal with what is in its mailbox.
    pub(super) fn pump(&mut self) {
        let mut batch = Vec::new();
        self.mailbox.drain(&mut batch);
        self.shard.step(&mut batch, self.now);
    }

    /// Runs flush rounds until nothing waits. Returns how many there were.
    pub(super) fn flush(&mut self) -> usize {
        let mut rounds = 0;
        while let Some(round) = self.directory.flush.take(1) {
            round.run(&self.directory);
            self.pump();
            rounds += 1;
        }
        rounds
    }

    pub(super) fn checkpoints(&self) -> Checkpoints {
        let (directories, budget) = (vec![self.directory.clone()], Budgets::new(1 << 20, 1 << 20, 100));
        let dirs = LogDirs::scan(ME, self.disk.clone(), directories, Vec::new(), budget);
        Checkpoints::new(self.partitions.clone(), Arc::new(dirs))
    }

    pub(super) fn pass(&mut self, ms: i64) {
        self.now.wall.0 += ms;
        self.now.monotonic.0 += ms;
        self.tell(Message::Tick);
    }
}

/// Fills the disk so that so many bytes of it are free.
pub(super) fn leave_free(disk: &SimDisk, bytes: u64) {
    const CAPACITY: u64 = 1 << 24;
    let filler = disk.open(Path::new("/filler"), OpenMode::Truncate).expect("a file");
    filler.set_len(CAPACITY - disk.used() - bytes).expect("filled");
    disk.set_capacity(Some(CAPACITY));
}

/// The bytes that a consumer may read.
pub(super) fn readable(partition: &Partition) -> usize {
    let view = partition.view();
    match view.read(view.log_start, usize::MAX >> 1, view.high_watermark, true).expect("in range") {
        ReadPlan::Ready(parts) => parts.iter().map(Bytes::len).sum(),
        ReadPlan::Cold(read) => read.run().expect("readable").len(),
    }
}
