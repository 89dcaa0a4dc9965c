//! Fetch: v4-18
//!
//! Behaviour: merges the request into its session, reads what there is below the bound of the reader (high watermark, last
//! stable offset, or log end for a follower), and waits up to `max_wait_ms` while that is less than `min_bytes` and
//! nothing has to be told. The first batch comes whole even when it is larger than the limits. What a client does not
//! know yet is read once; the wait costs nothing.
//!
//! Version notes: 5 adds the log start; 7 sessions (KIP-227); 9 the leader epoch (KIP-320); 12 the last fetched epoch, with
//! diverging epochs in answers (KIP-595); 13 topic ids; 15 moves the replica id into a tagged field; 16 tells the new
//! leader (KIP-951).
//!
//! A topic id that is not known here is UNKNOWN_TOPIC_ID. A session knows its topics by name as well: once the topic has gone
//! that is UNKNOWN_TOPIC_OR_PARTITION, and INCONSISTENT_TOPIC_ID when another topic has its name, whose partition is here.
//!
//! A follower reads to the log end, so one that is no replica of a partition is refused there, and so is the fetch of an
//! earlier registration of its broker (KIP-903). What it says of its log goes to the leader before the wait; in an
//! incremental session that is what the request names. A fetch of no bytes brings nothing and only tells.
//!
//! Consumers read from followers too (KIP-392), from version 11 on: up to the follower's own high watermark. A leader with a
//! `replica.selector.class` names the replica in the consumer's rack instead of reading.

mod read;
mod response;
pub(crate) mod session;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub use session::FetchSessions;

use super::{Api, Call, Request};
use crate::broker::clock;
use crate::broker::hurries;
use crate::broker::waiters::{Bound, FetchWaiter};
use crate::types::{BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId};
use crate::wire::messages::fetch_request::FetchTopic;
use crate::wire::messages::{FetchRequest, FetchResponse, TopicName, follower_fetch};
use read::{Limits, Nearby, Reading, Round};
use session::{FetchContext, FetchPartition, SessionRequest, TopicKey};

/// The first version that names topics by id.
const TOPIC_IDS: i16 = 13;
/// The first version in which a consumer tells its rack and may read from followers.
const FOLLOWER_FETCH: i16 = 11;
const READ_COMMITTED: i8 = 1;

pub async fn handle(api: &Arc<Api>, call: &Call, request: Request<FetchRequest>) -> FetchResponse {
    let (version, request) = (request.version, request.body);
    let replica = replica_of(&request);
    if replica != NodeId::NONE {
        api.broker().silence.fetches(replica);
    }
    let fresh_id = rand::random_range(1..=i32::MAX);
    let merge = session_request(version, &request, replica);
    let session = match api.broker().fetch_sessions.begin(merge, fresh_id, clock::wall()) {
        Ok(session) => session,
        Err(error) => return FetchResponse { error_code: error.code(), ..Default::default() },
    };
    let image = api.metadata.image();
    session.learn_names(|id| image.topics.by_id(id).map(|topic| Arc::clone(&topic.name)));
    let max_bytes = request.max_bytes.min(api.config.latest().broker.fetch_max_bytes).max(0);
    let reading = Reading {
        replica,
        leader_only: replica != NodeId::NONE || version < FOLLOWER_FETCH,
        replica_epoch: BrokerEpoch(request.replica_state.replica_epoch),
        throttle_exceeded: replica != NodeId::NONE && api.broker().throttle.exceeded_for_ms().is_some(),
        bound: bound(replica, request.isolation_level),
        committed_only: request.isolation_level == READ_COMMITTED,
        limits: Limits { max_bytes: usize::try_from(max_bytes).unwrap_or(0) },
    };
    let min_bytes = usize::try_from(request.min_bytes.min(max_bytes)).unwrap_or(0);
    let deadline = Instant::now() + Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let rack_aware = api.config.latest().broker.replica_selector_class.is_some();
    let rack = Some(request.rack_id.as_str()).filter(|rack| rack_aware && !rack.is_empty());
    let nearby =
        rack.filter(|_| !reading.leader_only).map(|rack| Nearby { rack, listener: &call.listener.name });
    // Anybody may claim to be some replica; what is remembered is bounded by the brokers that there are.
    let registered = image.brokers.get(replica).map(|broker| broker.epoch);
    drop(image);
    let is_follower = replica != NodeId::NONE && registered.is_some();
    let hurries = follower_fetch::told_hurries(&request).map(|count| (reading.replica_epoch, count));
    let hurries = hurries.filter(|_| is_follower && registered == Some(reading.replica_epoch));
    if let Some(count) = hurries {
        api.broker().hurries.heard(replica, count);
    }
    let patience = Patience { min_bytes, deadline, hurries };
    let round = gather(api, call, &session, reading, nearby, patience).await;
    api.broker().throttle.record(round.throttled_bytes());
    if is_follower && !session.partitions.is_empty() {
        // Its next fetch is due: a follower that hangs holds up what waits for all that are in sync.
        api.broker().silence.served(replica, clock::monotonic());
    }
    response::build(api, call, version, &session, round)
}

/// How long there is to wait for records.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Fewer bytes are not enough before the deadline,
    min_bytes: usize,
    deadline: Instant,
    /// nor before a follower's next hurry.
    hurries: Option<hurries::Count>,
}

impl Patience {
    /// Waits for the bytes. False when that is over without them.
    async fn wait(self, api: &Api, follower: NodeId, waiter: &FetchWaiter) -> bool {
        let hurried = async {
            match self.hurries {
                Some(count) => api.broker().hurries.after(follower, count).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            enough = tokio::time::timeout_at(self.deadline, waiter.enough()) => enough.is_ok(),
            () = hurried => false,
        }
    }
}

/// Reads until there is enough, something has to be told, or the time is over.
async fn gather(
    api: &Arc<Api>,
    call: &Call,
    session: &FetchContext,
    reading: Reading,
    nearby: Option<Nearby<'_>>,
    patience: Patience,
) -> Round {
    let Patience { min_bytes, deadline, .. } = patience;
    let wanted = &session.partitions;
    let mut is_told = false;
    loop {
        let round = read::round(api, session, reading, nearby).await;
        if reading.replica != NodeId::NONE && !std::mem::replace(&mut is_told, true) {
            // What the follower has is known now, and must not wait with its fetch.
            api.broker().partitions.follower_fetched(round.fetched(wanted, reading));
        }
        if wanted.is_empty() || round.bytes >= min_bytes || round.must_be_told || Instant::now() >= deadline {
            return round;
        }
        call.only_waits();
        let mut waiter = FetchWaiter::new(min_bytes - round.bytes);
        for led in round.partitions() {
            waiter.register(&led.partition.waiters, reading.bound);
        }
        // Whoever moved the log before the waiter was registered did not see it.
        if round.is_outdated(reading.bound) {
            continue;
        }
        if !patience.wait(api, reading.replica, &waiter).await {
            return round;
        }
    }
}

/// The broker that fetches as a follower; `NONE` for consumers.
fn replica_of(request: &FetchRequest) -> NodeId {
    // Up to version 14 the field, from 15 on the tagged one; the other has its default of -1.
    NodeId(request.replica_id.0.max(request.replica_state.replica_id.0))
}

fn bound(replica: NodeId, isolation_level: i8) -> Bound {
    match isolation_level {
        _ if replica != NodeId::NONE => Bound::LogEnd,
        READ_COMMITTED => Bound::LastStable,
        _ => Bound::HighWatermark,
    }
}

pub(crate) fn session_request(version: i16, request: &FetchRequest, replica: NodeId) -> SessionRequest {
    let key = |name: &TopicName, id: TopicId| {
        if version >= TOPIC_IDS { TopicKey::Id(id) } else { TopicKey::Name(Arc::from(name.as_str())) }
    };
    let partitions = request.topics.iter().flat_map(|topic| {
        let key = key(&topic.topic, topic.topic_id);
        wanted(topic).map(move |(partition, wanted)| ((key.clone(), partition), wanted))
    });
    let forgotten = request.forgotten_topics_data.iter().flat_map(|topic| {
        let key = key(&topic.topic, topic.topic_id);
        topic.partitions.iter().map(move |&partition| (key.clone(), PartitionIndex(partition)))
    });
    SessionRequest {
        session_id: request.session_id,
        epoch: request.session_epoch,
        uses_topic_ids: version >= TOPIC_IDS,
        from_follower: replica != NodeId::NONE,
        partitions: partitions.collect(),
        forgotten: forgotten.collect(),
    }
}

fn wanted(topic: &FetchTopic) -> impl Iterator<Item = (PartitionIndex, FetchPartition)> {
    topic.partitions.iter().map(|partition| {
        let wanted = FetchPartition {
            current_leader_epoch: LeaderEpoch(partition.current_leader_epoch),
            fetch_offset: Offset(partition.fetch_offset),
            last_fetched_epoch: LeaderEpoch(partition.last_fetched_epoch),
            log_start_offset: Offset(partition.log_start_offset),
            max_bytes: partition.partition_max_bytes,
            flushed: follower_fetch::told_flushed(partition),
            is_news: true,
        };
        (PartitionIndex(partition.partition), wanted)
    })
}
