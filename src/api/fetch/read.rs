//! One round of reading over the partitions of a fetch: what is in memory is taken as it is, and when something must come
//! from disk, the whole round runs on a thread that may block.
//!
//! Invariant: the bytes of a round stay within its limit, save that its first batch comes whole.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::session::{FetchContext, FetchPartition, Key, TopicKey};
use crate::api::Api;
use crate::api::hosted::{Led, not_served_code};
use crate::broker::messages::FollowerFetched;
use crate::broker::partitions::Role;
use crate::broker::serving::{ReadFrom, ReadRefused, led_view, limit, read, replica_view};
use crate::broker::waiters::Bound;
use crate::metadata::Image;
use crate::replica::{EpochEnd, FollowerFetch};
use crate::storage::log::{AbortedTxn, Damage, LogView, ReadPlan};
use crate::types::{BrokerEpoch, ErrorCode, LeaderEpoch, NodeId, Offset, TopicIdPartition};
use crate::wire::batch::BatchHeader;

/// How much a round may read.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_bytes: usize,
}

/// What a fetch reads.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The broker that reads; `NONE` for a consumer.
    pub replica: NodeId,
    pub leader_only: bool,
    /// The registration under which it reads; unknown of a consumer, or of an older protocol.
    pub replica_epoch: BrokerEpoch,
    /// Leaders have sent as much to throttled replicas as they may.
    pub throttle_exceeded: bool,
    pub bound: Bound,
    /// The reader leaves aborted transactions out and must be told which they are.
    pub committed_only: bool,
    pub limits: Limits,
}

/// Where a consumer would rather read.
#[derive(Clone, Copy, Debug)]
pub struct Nearby<'a> {
    pub rack: &'a str,
    /// The listener through which it came.
    pub listener: &'a str,
}

impl Nearby<'_> {
    fn is_here(&self, image: &Image, broker: NodeId) -> bool {
        image.brokers.get(broker).is_some_and(|broker| {
            let reachable = !broker.fenced && broker.endpoint(self.listener).is_some();
            reachable && broker.rack.as_deref() == Some(self.rack)
        })
    }

    /// The replica to read from instead of this leader.
    fn replica(&self, api: &Api, image: &Image, led: &Led, from: Offset) -> Option<NodeId> {
        if led.leadership.role != Role::Leader || self.is_here(image, api.node.id) {
            return None;
        }
        led.partition.read_replicas.best(from, |broker| self.is_here(image, broker))
    }
}

/// What one partition gave.
#[derive(Debug)]
pub struct PartitionRead {
    pub id: Option<TopicIdPartition>,
    /// Its bytes count for the leaders' throttle.
    pub throttled: bool,
    pub result: Result<Data, ErrorCode>,
}

#[derive(Debug)]
pub struct Data {
    pub led: Led,
    pub view: Arc<LogView>,
    pub records: Vec<Bytes>,
    /// `None` unless asked for.
    pub aborted: Option<Vec<AbortedTxn>>,
    /// Where the reader's last epoch really ended, when its log differs from this one.
    pub diverging: Option<EpochEnd>,
    /// Where the reader should read instead; nothing was read then.
    pub preferred: Option<NodeId>,
    /// A follower must flush what it has appended, for the high watermark waits for that.
    pub counts_flushed: bool,
}

/// What all partitions gave, in the order of the request.
#[derive(Debug)]
pub struct Round {
    pub reads: Vec<PartitionRead>,
    pub bytes: usize,
    /// An error, a divergence or a better place to read, which do not wait for `min_bytes`.
    pub must_be_told: bool,
}

impl Reading {
    /// A follower that wants no records.
    fn only_tells(&self) -> bool {
        self.replica != NodeId::NONE && self.limits.max_bytes == 0
    }
}

impl Round {
    /// The bytes for throttled replicas.
    pub fn throttled_bytes(&self) -> usize {
        let throttled = self.reads.iter().filter(|read| read.throttled);
        let data = throttled.filter_map(|read| read.result.as_ref().ok());
        data.flat_map(|data| &data.records).map(Bytes::len).sum()
    }

    /// What leaders must hear of the fetch of a follower.
    pub fn fetched(&self, wanted: &[(Key, FetchPartition)], reading: Reading) -> Vec<FollowerFetched> {
        let reads = self.reads.iter().zip(wanted);
        let fetched = reads.filter_map(|(read, (_, wanted))| {
            let data = read.result.as_ref().ok()?;
            let partition = &data.led.partition;
            let is_of_interest = wanted.is_news || partition.watches_followers();
            // Where the logs diverge nobody knows yet how far the follower is.
            (is_of_interest && data.diverging.is_none()).then(|| FollowerFetched {
                id: partition.id,
                leader_epoch: data.led.leadership.leader_epoch,
                fetch: FollowerFetch {
                    follower: reading.replica,
                    broker_epoch: reading.replica_epoch,
                    fetch_offset: wanted.fetch_offset,
                    flushed_offset: wanted.flushed,
                    log_start: wanted.log_start_offset,
                },
            })
        });
        fetched.collect()
    }

    /// The partitions that were read.
    pub fn partitions(&self) -> impl Iterator<Item = &Led> {
        self.reads.iter().filter_map(|read| read.result.as_ref().ok()).map(|data| &data.led)
    }

    /// Whether a log has moved on since it was read.
    pub fn is_outdated(&self, bound: Bound) -> bool {
        let data = self.reads.iter().filter_map(|read| read.result.as_ref().ok());
        data.into_iter().any(|data| {
            let now = data.led.partition.view();
            limit(&now, bound) != limit(&data.view, bound)
                || data.led.partition.leadership() != data.led.leadership
        })
    }
}

/// Reads every partition once.
pub async fn round(
    api: &Arc<Api>,
    session: &FetchContext,
    reading: Reading,
    nearby: Option<Nearby<'_>>,
) -> Round {
    let image = api.metadata.image();
    let located = session.partitions.iter().map(|(key, wanted)| {
        let id = identify(api, &image, session, key);
        Located::find(api, &image, id, *wanted, reading, nearby)
    });
    let located: Vec<Located> = located.collect();
    let warm = located.iter().all(|located| located.is_warm(reading));
    let read = move || read_all(located, reading);
    if warm {
        return read();
    }
    match tokio::task::spawn_blocking(read).await {
        Ok(round) => round,
        // The pool refuses work only while the process ends.
        Err(_) => Round { reads: Vec::new(), bytes: 0, must_be_told: true },
    }
}

/// The partition that a key stands for. By an id that a session has known, and that nobody has any more, a client asks for what
/// has gone, or for another topic than the one that has the name now.
fn identify(
    api: &Api,
    image: &Image,
    session: &FetchContext,
    key: &Key,
) -> Result<TopicIdPartition, ErrorCode> {
    let (topic, partition) = key;
    let topic = match topic {
        TopicKey::Name(name) => image.topics.by_name(name).ok_or(ErrorCode::UnknownTopicOrPartition),
        TopicKey::Id(id) => image.topics.by_id(*id).ok_or_else(|| match session.known_name(key) {
            None => ErrorCode::UnknownTopicId,
            Some(name) => api
                .hosted_by_name(image, &name, partition.0, LeaderEpoch::UNKNOWN)
                .map_or_else(|code| code, |_| ErrorCode::InconsistentTopicId),
        }),
    };
    topic.map(|topic| TopicIdPartition { topic_id: topic.id, partition: *partition })
}

/// A partition of the request with the state in which it will be read.
struct Located {
    id: Option<TopicIdPartition>,
    wanted: FetchPartition,
    found: Result<(Led, Arc<LogView>), ErrorCode>,
    preferred: Option<NodeId>,
    /// The follower is not in sync, and the partition is throttled.
    throttled: bool,
}

impl Located {
    fn find(
        api: &Api,
        image: &Image,
        id: Result<TopicIdPartition, ErrorCode>,
        wanted: FetchPartition,
        reading: Reading,
        nearby: Option<Nearby<'_>>,
    ) -> Located {
        let found = id.and_then(|id| {
            let epoch = wanted.current_leader_epoch;
            let found = api.hosted(image, id, epoch)?;
            let view_of = if reading.leader_only { led_view } else { replica_view };
            let (leadership, view) = view_of(&found.partition, epoch).map_err(not_served_code)?;
            check_replica(api, image, id, reading, epoch)?;
            Ok((Led { leadership, ..found }, view))
        });
        let preferred = nearby
            .zip(found.as_ref().ok())
            .and_then(|(nearby, (led, _))| nearby.replica(api, image, led, wanted.fetch_offset));
        // Who is in sync is never held up: its fetches are what producers wait for.
        let throttled = found
            .as_ref()
            .is_ok_and(|(led, _)| reading.replica != NodeId::NONE && led.partition.is_throttled())
            && id.is_ok_and(|id| {
                let partition = image.topics.partition(id.topic_id, id.partition);
                partition.is_some_and(|partition| !partition.isr.contains(&reading.replica))
            });
        Located { id: id.ok(), wanted, found, preferred, throttled }
    }

    /// Whether reading this needs no disk.
    fn is_warm(&self, reading: Reading) -> bool {
        let Ok((_, view)) = &self.found else { return true };
        if self.preferred.is_some() || reading.only_tells() || self.is_held_up(reading) {
            return true;
        }
        let upto = limit(view, reading.bound);
        match view.read(self.wanted.fetch_offset, 1, upto, true) {
            Ok(ReadPlan::Cold(_)) => false,
            Ok(ReadPlan::Ready(_)) => {
                !(reading.committed_only && view.may_have_aborted(self.wanted.fetch_offset))
            }
            Err(_) => true,
        }
    }

    fn is_held_up(&self, reading: Reading) -> bool {
        self.throttled && reading.throttle_exceeded
    }

    fn read(self, reading: Reading, budget: usize, is_first: bool) -> PartitionRead {
        let (preferred, throttled) = (self.preferred, self.throttled);
        let is_held_up = self.is_held_up(reading);
        let (budget, is_first) = if is_held_up { (0, false) } else { (budget, is_first) };
        let result = self.found.and_then(|(led, view)| {
            if preferred.is_some() {
                let (records, aborted, diverging, counts_flushed) = Default::default();
                return Ok(Data { led, view, records, aborted, diverging, preferred, counts_flushed });
            }
            let max_bytes = usize::try_from(self.wanted.max_bytes).unwrap_or(0).min(budget);
            read_view(led, view, self.wanted, reading, max_bytes, is_first)
        });
        PartitionRead { id: self.id, throttled, result }
    }
}

/// Refuses a follower that the metadata does not name as one. One that tells its epoch may know newer metadata.
fn check_replica(
    api: &Api,
    image: &Image,
    id: TopicIdPartition,
    reading: Reading,
    epoch: LeaderEpoch,
) -> Result<(), ErrorCode> {
    let replica = reading.replica;
    if replica != NodeId::NONE && reading.replica_epoch != BrokerEpoch::UNKNOWN {
        let registered = image.brokers.get(replica).map(|broker| broker.epoch);
        if registered.is_some_and(|registered| reading.replica_epoch < registered) {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
    }
    let partition = image.topics.partition(id.topic_id, id.partition);
    let is_follower =
        replica != api.node.id && partition.is_some_and(|partition| partition.has_replica(replica));
    match epoch {
        _ if replica == NodeId::NONE || is_follower => Ok(()),
        LeaderEpoch::UNKNOWN => Err(ErrorCode::NotLeaderOrFollower),
        _ => Err(ErrorCode::UnknownLeaderEpoch),
    }
}

fn read_all(located: Vec<Located>, reading: Reading) -> Round {
    let mut round = Round { reads: Vec::with_capacity(located.len()), bytes: 0, must_be_told: false };
    for located in located {
        let budget = reading.limits.max_bytes.saturating_sub(round.bytes);
        let read = located.read(reading, budget, round.bytes == 0 && !reading.only_tells());
        match &read.result {
            Ok(data) => {
                round.bytes += data.records.iter().map(Bytes::len).sum::<usize>();
                round.must_be_told |= data.diverging.is_some() || data.preferred.is_some();
            }
            Err(_) => round.must_be_told = true,
        }
        round.reads.push(read);
    }
    round
}

fn read_view(
    led: Led,
    view: Arc<LogView>,
    wanted: FetchPartition,
    reading: Reading,
    max_bytes: usize,
    is_first: bool,
) -> Result<Data, ErrorCode> {
    let from = ReadFrom { offset: wanted.fetch_offset, last_fetched_epoch: wanted.last_fetched_epoch };
    let records = match read(&view, from, reading.bound, max_bytes, is_first) {
        Ok(records) => records,
        Err(ReadRefused::OutOfRange) => return Err(ErrorCode::OffsetOutOfRange),
        Err(ReadRefused::Io(error)) => return Err(unreadable(&led, &error)),
    };
    let aborted = reading.committed_only.then(Vec::new);
    let counts_flushed = reading.replica != NodeId::NONE && led.partition.counts_flushed();
    let (records, diverging) = (records.pieces, records.diverging);
    let mut data = Data { led, view, records, aborted, diverging, preferred: None, counts_flushed };
    if reading.committed_only && !data.records.is_empty() {
        data.aborted = Some(aborted_in(&data, wanted.fetch_offset)?);
    }
    Ok(data)
}

/// Of damage its shard tells, once. Where another replica is about to lead, the reader comes again; elsewhere it must know.
fn unreadable(led: &Led, error: &io::Error) -> ErrorCode {
    led.partition.note_unreadable(error);
    if Damage::of(error).is_none() {
        tracing::error!(partition = %led.partition.name, %error, "cannot read the log");
        return ErrorCode::KafkaStorageError;
    }
    let is_alone = led.partition.leadership().role == Role::Leader && led.partition.read_replicas.is_empty();
    if is_alone { ErrorCode::CorruptMessage } else { ErrorCode::KafkaStorageError }
}

/// The aborted transactions that overlap what was read.
fn aborted_in(data: &Data, from: Offset) -> Result<Vec<AbortedTxn>, ErrorCode> {
    let Some(end) = end_of(&data.records) else { return Ok(Vec::new()) };
    data.view.collect_aborted(from, end).map_err(|error| {
        tracing::error!(partition = %data.led.partition.name, %error, "cannot read the transaction index");
        ErrorCode::KafkaStorageError
    })
}

/// The offset after the last batch in `pieces`, whose batches may lie across pieces but whose headers do not.
fn end_of(pieces: &[Bytes]) -> Option<Offset> {
    let (mut end, mut rest_of_batch) = (None, 0);
    for piece in pieces {
        let mut at = rest_of_batch;
        while let Some(Ok(header)) = piece.get(at..).filter(|rest| !rest.is_empty()).map(BatchHeader::parse) {
            end = Some(header.next_offset());
            at += header.size_in_bytes();
        }
        rest_of_batch = at.saturating_sub(piece.len());
    }
    end
}
