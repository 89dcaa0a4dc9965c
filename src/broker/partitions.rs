//! The routing table: which partitions this broker hosts, where their views are, and which shard writes them.
//!
//! Reads take no lock. Must not know why a partition is hosted; the reconciler changes the table. Invariant: a partition is in the
//! table from before its shard takes it over until after its shard has let go of it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::oneshot;

use super::clock;
use super::directory::Directory;
use super::mailbox::{Message, ShardSender};
use super::messages::{
    Append, AppendAt, Appending, BeginVerification, Compact, DeleteRecords, DeleteRecordsError, Fetched,
    FollowerFetched, IsrAltered, Produce, ProduceError, Produced, Promote, Promoted,
};
use super::read_replicas::ReadReplicas;
use super::reply::{Gathered, gather};
use super::waiters::Waiters;
use crate::replica::Acks;
use crate::storage::log::producer_state::{ActiveProducer, Coordinated, FirstBatch, Guard};
use crate::storage::log::{Damage, Log, LogConfig, LogView, LogViews, Origin, Patch, Unfit};
use crate::types::{LeaderEpoch, NodeId, Offset, TopicIdPartition, TopicPartition};

/// What this broker is for a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Leader,
    Follower,
    /// The log directory is out of service.
    Offline,
}

/// Who leads a partition, as its shard knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    pub role: Role,
    pub leader: NodeId,
    pub leader_epoch: LeaderEpoch,
    /// Where the log ended when this broker became leader. While the high watermark is below, the end of the log is not known
    /// to consumers (OFFSET_NOT_AVAILABLE).
    pub epoch_start: Option<Offset>,
}

/// The copy of a partition in the directory to which it is being moved.
#[derive(Debug)]
pub struct FutureReplica {
    pub directory: Arc<Directory>,
    /// `None`: it has not been opened yet.
    views: Option<LogViews>,
}

impl FutureReplica {
    pub(super) fn new(directory: Arc<Directory>, log: &Log) -> FutureReplica {
        FutureReplica { directory, views: Some(log.views()) }
    }

    pub(super) fn found(directory: Arc<Directory>) -> FutureReplica {
        FutureReplica { directory, views: None }
    }

    /// The copy as it is now, if that is known.
    pub fn view(&self) -> Option<Arc<LogView>> {
        Some(self.views.as_ref()?.load_full())
    }
}

/// Where a partition lies, at one moment.
#[derive(Clone, Debug)]
pub struct Lies {
    /// The directory of its log.
    pub directory: Arc<Directory>,
    /// The copy that is to take the place of the log, while it is being moved.
    pub future: Option<Arc<FutureReplica>>,
}

/// A partition that this broker hosts, for readers.
#[derive(Debug)]
pub struct Partition {
    pub id: TopicIdPartition,
    pub name: TopicPartition,
    lies: ArcSwap<Lies>,
    /// The fetches that wait for this partition.
    pub waiters: Arc<Waiters>,
    /// Where else than here consumers may read; nowhere while this broker does not lead.
    pub read_replicas: ReadReplicas,
    views: LogViews,
    log_config: ArcSwap<LogConfig>,
    /// See [`Partition::cleaned`]; unknown when negative.
    cleaned: AtomicI64,
    leadership: ArcSwap<Leadership>,
    /// See [`Partition::rebuilds`].
    rebuilds: AtomicU32,
    /// See [`Partition::watches_followers`].
    watches_followers: AtomicBool,
    /// See [`Partition::counts_flushed`].
    counts_flushed: AtomicBool,
    /// The leader here sends to followers that are not in sync only while `leader.replication.throttled.rate` allows.
    is_throttled: AtomicBool,
}

impl Partition {
    pub fn new(
        id: TopicIdPartition,
        name: TopicPartition,
        directory: Arc<Directory>,
        log: &Log,
    ) -> Partition {
        let leadership = Leadership {
            role: Role::Follower,
            leader: NodeId::NONE,
            leader_epoch: LeaderEpoch::UNKNOWN,
            epoch_start: None,
        };
        let (waiters, leadership) = (Arc::default(), ArcSwap::from_pointee(leadership));
        let (views, log_config) = (log.views(), ArcSwap::new(log.config().clone()));
        let (rebuilds, watches_followers, counts_flushed, is_throttled) = Default::default();
        let read_replicas = ReadReplicas::default();
        Partition {
            id,
            name,
            lies: ArcSwap::from_pointee(Lies { directory, future: None }),
            waiters,
            read_replicas,
            views,
            log_config,
            cleaned: AtomicI64::new(Offset::UNKNOWN.0),
            leadership,
            rebuilds,
            watches_followers,
            counts_flushed,
            is_throttled,
        }
    }

    /// Where it lies now.
    pub fn lies(&self) -> Arc<Lies> {
        self.lies.load_full()
    }

    /// Where its log lies.
    pub fn directory(&self) -> Arc<Directory> {
        self.lies.load().directory.clone()
    }

    /// The copy that is to take the place of the log, while it is being moved.
    pub fn future(&self) -> Option<Arc<FutureReplica>> {
        self.lies.load().future.clone()
    }

    pub(super) fn set_future(&self, future: Option<FutureReplica>) {
        let future = future.map(Arc::new);
        self.lies.rcu(|lies| Lies { directory: lies.directory.clone(), future: future.clone() });
    }

    /// The copy in `directory` is the log now.
    pub(super) fn move_to(&self, directory: Arc<Directory>) {
        self.lies.store(Arc::new(Lies { directory, future: None }));
    }

    /// Whether this replica is listed in `leader.replication.throttled.replicas`.
    pub fn is_throttled(&self) -> bool {
        self.is_throttled.load(Ordering::Relaxed)
    }

    pub(super) fn set_throttled(&self, throttled: bool) {
        self.is_throttled.store(throttled, Ordering::Relaxed);
    }

    /// Whether the leader here wants to hear of every fetch of a follower, because one is not in sync. Otherwise only those
    /// that say something new matter to it.
    pub fn watches_followers(&self) -> bool {
        self.watches_followers.load(Ordering::Acquire)
    }

    pub(super) fn set_watches_followers(&self, watches: bool) {
        if self.watches_followers() != watches {
            self.watches_followers.store(watches, Ordering::Release);
        }
    }

    /// Whether the high watermark, while this broker leads, counts what followers have flushed (`flush.before.ack`). They are
    /// told, since their own setting may be another.
    pub fn counts_flushed(&self) -> bool {
        self.counts_flushed.load(Ordering::Acquire)
    }

    pub(super) fn set_counts_flushed(&self, counts: bool) {
        self.counts_flushed.store(counts, Ordering::Release);
    }

    /// The settings of the log as they are now.
    pub fn log_config(&self) -> Arc<LogConfig> {
        self.log_config.load_full()
    }

    pub(super) fn set_log_config(&self, config: Arc<LogConfig>) {
        self.log_config.store(config);
    }

    /// What is below was compacted; `None` when nothing was.
    pub fn cleaned(&self) -> Option<Offset> {
        Some(Offset(self.cleaned.load(Ordering::Acquire))).filter(|cleaned| *cleaned >= Offset::ZERO)
    }

    pub(super) fn set_cleaned(&self, upto: Option<Offset>) {
        self.cleaned.store(upto.unwrap_or(Offset::UNKNOWN).0, Ordering::Release);
    }

    /// How often this broker has begun to have the records from a leader again, for they were damaged.
    pub fn rebuilds(&self) -> u32 {
        self.rebuilds.load(Ordering::Acquire)
    }

    pub(super) fn note_rebuild(&self) {
        self.rebuilds.fetch_add(1, Ordering::AcqRel);
    }

    /// A read of the log has failed. Damage is for its shard to deal with, the first time that it is found.
    pub fn note_unreadable(&self, error: &io::Error) {
        if let Some(damage) = Damage::of(error) {
            self.note_damage(damage);
        }
    }

    pub(super) fn note_damage(&self, damage: &Damage) {
        if !damage.is_known() {
            for shard in self.directory().shards() {
                shard.send_event(Message::Damaged(self.id, damage.clone()));
            }
        }
    }

    /// The log as it is now.
    pub fn view(&self) -> Arc<LogView> {
        self.views.load_full()
    }

    pub fn leadership(&self) -> Leadership {
        **self.leadership.load()
    }

    pub(super) fn set_leadership(&self, leadership: Leadership) {
        self.leadership.store(Arc::new(leadership));
    }

    /// This broker leads in another term. Whoever sees the term knows already whether its fetches matter: one that is served in
    /// it and not told would not be repeated.
    pub(super) fn begin_term(&self, leadership: Leadership, watches_followers: bool) {
        self.set_watches_followers(watches_followers);
        self.set_leadership(leadership);
    }
}

/// Partitions by id; a clone shares everything.
pub type Table = imbl::HashMap<TopicIdPartition, Arc<Partition>>;

/// The handle to everything that is hosted here. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Partitions {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    table: ArcSwap<Table>,
    /// Replicas of this broker whose logs could not be opened: their storage is out of service.
    unserved: ArcSwap<imbl::HashSet<TopicIdPartition>>,
    shards: Vec<ShardSender>,
}

impl Partitions {
    pub fn new(shards: Vec<ShardSender>) -> Partitions {
        Partitions {
            inner: Arc::new(Inner { table: ArcSwap::default(), unserved: ArcSwap::default(), shards }),
        }
    }

    pub fn get(&self, id: &TopicIdPartition) -> Option<Arc<Partition>> {
        self.inner.table.load().get(id).cloned()
    }

    /// Whether this broker has a replica whose log could not be opened.
    pub fn is_unserved(&self, id: &TopicIdPartition) -> bool {
        self.inner.unserved.load().contains(id)
    }

    /// Notes which replicas cannot be served, and which can or are gone. Only the reconciler calls this.
    pub fn note_unserved<'a>(
        &self,
        unserved: impl Iterator<Item = &'a TopicIdPartition>,
        others: impl Iterator<Item = &'a TopicIdPartition>,
    ) {
        let mut all = imbl::HashSet::clone(&self.inner.unserved.load());
        for id in others {
            all.remove(id);
        }
        all.extend(unserved.copied());
        self.inner.unserved.store(Arc::new(all));
    }

    /// Everything that is hosted, as of now.
    pub fn all(&self) -> Table {
        Table::clone(&self.inner.table.load())
    }

    /// Appends to several partitions. Resolves when all shards have accepted their part, which keeps the order of a
    /// connection's requests; the answers, in the order of `appends`, come when they come.
    pub async fn produce(
        &self,
        acks: Option<Acks>,
        origin: Origin,
        timeout_ms: i64,
        appends: Vec<(TopicIdPartition, Bytes)>,
    ) -> Gathered<Result<Produced, ProduceError>> {
        let appends = appends.into_iter().map(|(partition, records)| {
            let coordinated = Coordinated::default();
            Appending { partition, records, coordinated }
        });
        self.append(acks, origin, timeout_ms, appends.collect()).await
    }

    /// The same for batches about which a transaction coordinator has said something.
    pub async fn append(
        &self,
        acks: Option<Acks>,
        origin: Origin,
        timeout_ms: i64,
        appends: Vec<Appending>,
    ) -> Gathered<Result<Produced, ProduceError>> {
        let (replies, gathered) = gather(appends.len(), || Err(ProduceError::ShuttingDown));
        let deadline = clock::monotonic().plus(timeout_ms);
        let appends = appends.into_iter().zip(replies).map(|(appending, reply)| {
            let Appending { partition, records, coordinated } = appending;
            (partition, Append { partition, records, coordinated, reply })
        });
        for (shard, appends) in self.by_shard(appends) {
            shard.send(Message::Produce(Produce { acks, origin, deadline, appends })).await;
        }
        gathered
    }

    /// Appends what a coordinator has decided where it believes that the log ends, see [`AppendAt`]. Resolves when the shard
    /// has accepted it; the answer comes when it is committed.
    pub async fn append_at(
        &self,
        partition: TopicIdPartition,
        leader_epoch: LeaderEpoch,
        log_end: Offset,
        batches: Vec<(Bytes, Coordinated)>,
    ) -> Gathered<Result<Produced, ProduceError>> {
        let (mut replies, gathered) = gather(1, || Err(ProduceError::ShuttingDown));
        if let Some(reply) = replies.pop() {
            let append = AppendAt { partition, leader_epoch, log_end, batches, reply };
            self.shard_of(&partition).send(Message::AppendAt(append)).await;
        }
        gathered
    }

    /// Tells the leaders of partitions that a coordinator is going to be asked about these batches. The answers, in the order
    /// of `batches`, are what the appends have to show; `None`: the transaction has begun there.
    pub async fn begin_verifications(
        &self,
        batches: Vec<(TopicIdPartition, FirstBatch)>,
    ) -> Vec<Result<Option<Guard>, ProduceError>> {
        let (replies, gathered) = gather(batches.len(), || Err(ProduceError::ShuttingDown));
        for ((partition, batch), reply) in batches.into_iter().zip(replies) {
            let message = Message::BeginVerification(BeginVerification { partition, batch, reply });
            self.shard_of(&partition).send(message).await;
        }
        gathered.all().await
    }

    /// Deletes records below an offset (`None`: the high watermark); answers with the low watermark.
    pub async fn delete_records(
        &self,
        timeout_ms: i64,
        deletes: Vec<(TopicIdPartition, Option<Offset>)>,
    ) -> Gathered<Result<Offset, DeleteRecordsError>> {
        let (replies, gathered) = gather(deletes.len(), || Err(DeleteRecordsError::ShuttingDown));
        let deadline = clock::monotonic().plus(timeout_ms);
        for ((partition, upto), reply) in deletes.into_iter().zip(replies) {
            let message = Message::DeleteRecords(DeleteRecords { partition, upto, deadline, reply });
            self.shard_of(&partition).send(message).await;
        }
        gathered
    }

    /// The producers that the replica of a partition here remembers; `None` when there is none.
    pub async fn active_producers(&self, id: TopicIdPartition) -> Option<Vec<ActiveProducer>> {
        let (reply, producers) = oneshot::channel();
        self.shard_of(&id).send(Message::Producers(id, reply)).await;
        producers.await.ok().flatten()
    }

    /// Has a partition delete some of the segments that it keeps no longer; resolves to whether there are more.
    pub(super) fn retain(&self, id: TopicIdPartition) -> oneshot::Receiver<bool> {
        let (reply, more) = oneshot::channel();
        self.shard_of(&id).send_event(Message::Retain(id, reply));
        more
    }

    /// Tells the shard of a partition something about its compaction.
    pub(super) fn compact(&self, id: TopicIdPartition, compact: Compact) {
        self.shard_of(&id).send_event(Message::Compact(id, Box::new(compact)));
    }

    /// Has what another replica has written over what is damaged.
    pub(super) async fn mend(&self, id: TopicIdPartition, patch: Patch) -> Result<(), Unfit> {
        let (reply, mended) = oneshot::channel();
        self.shard_of(&id).send_event(Message::Mend(id, Box::new(patch), reply));
        mended.await.unwrap_or(Err(Unfit::Gone))
    }

    /// Has a copy take the place of a partition's log. `None`: the shard has ended, and the copy with it.
    pub(super) async fn promote(
        &self,
        promote: impl FnOnce(oneshot::Sender<Promoted>) -> Promote,
    ) -> Option<Promoted> {
        let (reply, promoted) = oneshot::channel();
        let promote = promote(reply);
        let id = promote.partition.id;
        self.shard_of(&id).send(Message::Promote(id, Box::new(promote))).await;
        promoted.await.ok()
    }

    /// Waits until the shard of a partition has dealt with what it was sent before.
    pub(super) async fn settled(&self, id: &TopicIdPartition) {
        let (reply, reached) = oneshot::channel();
        self.shard_of(id).send(Message::Fence(reply)).await;
        // A shard that has ended has dealt with all that it ever will.
        let _ = reached.await;
    }

    /// Waits until every shard has dealt with what it was sent before.
    pub(super) async fn fence(&self) {
        let fences = self.inner.shards.iter().map(|shard| async {
            let (reply, reached) = oneshot::channel();
            shard.send(Message::Fence(reply)).await;
            // A shard that has ended has dealt with all that it ever will.
            let _ = reached.await;
        });
        futures_util::future::join_all(fences).await;
    }

    /// Tells the shards what leaders said to their followers. Bounded by what fetches may bring.
    pub fn fetched(&self, fetched: Vec<Fetched>) {
        self.tell(fetched.into_iter().map(|fetched| (fetched.id, fetched)), Message::Fetched);
    }

    /// Tells the shards of followers' fetches. Bounded by the requests under way.
    pub fn follower_fetched(&self, fetches: Vec<FollowerFetched>) {
        self.tell(fetches.into_iter().map(|fetched| (fetched.id, fetched)), Message::FollowerFetched);
    }

    /// Tells the shards what became of their proposals.
    pub fn isr_altered(&self, altered: Vec<IsrAltered>) {
        self.tell(altered.into_iter().map(|altered| (altered.id, altered)), Message::IsrAltered);
    }

    fn tell<T>(
        &self,
        parts: impl Iterator<Item = (TopicIdPartition, T)>,
        message: impl Fn(Vec<T>) -> Message,
    ) {
        for (shard, parts) in self.by_shard(parts) {
            shard.send_event(message(parts));
        }
    }

    /// The shard that writes a partition: always the same one.
    pub(crate) fn shard_of(&self, partition: &TopicIdPartition) -> &ShardSender {
        &self.inner.shards[self.shard_index(partition)]
    }

    /// Has every shard flush its logs and give them back; nothing is appended afterwards. Requests that still wait are answered.
    pub async fn close(&self) -> Vec<(Arc<Partition>, Log)> {
        let closing = self.inner.shards.iter().map(|shard| async {
            let (done, closed) = oneshot::channel();
            shard.send(Message::Close(done)).await;
            closed.await.unwrap_or_default()
        });
        futures_util::future::join_all(closing).await.into_iter().flatten().collect()
    }

    /// Replaces the table by what `change` makes of it. Only the reconciler calls this, so changes do not race.
    pub fn update(&self, change: impl FnOnce(&mut Table)) {
        let mut table = self.all();
        change(&mut table);
        self.inner.table.store(Arc::new(table));
    }

    fn shard_index(&self, partition: &TopicIdPartition) -> usize {
        let mut hasher = DefaultHasher::new();
        partition.hash(&mut hasher);
        (hasher.finish() % self.inner.shards.len() as u64) as usize
    }

    /// Sorts parts of a request by shard; shards that get nothing are left out.
    fn by_shard<T>(
        &self,
        parts: impl Iterator<Item = (TopicIdPartition, T)>,
    ) -> impl Iterator<Item = (&ShardSender, Vec<T>)> {
        let mut sorted: Vec<Vec<T>> =
            std::iter::repeat_with(Vec::new).take(self.inner.shards.len()).collect();
        for (partition, part) in parts {
            sorted[self.shard_index(&partition)].push(part);
        }
        self.inner.shards.iter().zip(sorted).filter(|(_, parts)| !parts.is_empty())
    }
}
