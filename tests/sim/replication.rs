//! How followers fetch and leaders serve them: the product's fetchers and serving code, with the requests as packets and the
//! connections as numbers.
//!
//! Must not know what an answer means for a partition. Invariant: an answer counts only on the connection on which it was asked
//! for. There are no sessions here, so each request names everything.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::context::{Context, Event, Ms, ProcessEvent};
use super::network::{Body, Place};
use super::plan::Plan;
use crate::broker::fetcher::core::{Call, FetcherConfig, LeaderFetcher};
use crate::broker::mailbox::Message;
use crate::broker::messages::PartitionWants;
use crate::broker::outbox::Inlets;
use crate::broker::partitions::{Partition, Partitions};
use crate::broker::serving::{self, NotServed, ReadFrom, ReadRefused};
use crate::broker::waiters::Bound;
use crate::metadata::Image;
use crate::replica::FollowerFetch;
use crate::types::{BrokerEpoch, ErrorCode, LeaderEpoch, NodeId, Offset, PartitionIndex, TopicIdPartition};
use crate::wire::messages::fetch_request::{FetchPartition, FetchRequest};
use crate::wire::messages::fetch_response::{
    EpochEndOffset, FetchResponse, FetchableTopicResponse, PartitionData,
};
use crate::wire::messages::follower_fetch;
use crate::wire::messages::list_offsets_request::ListOffsetsRequest;
use crate::wire::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};

/// A request without an answer is given up, and with it the connection.
const LIMIT_MS: Ms = 700;
/// How long a fetch waits at the leader for something to tell.
const WAIT_MS: Ms = 150;
const RECONNECT_MS: Ms = 40;
/// In ListOffsets: the end of the log.
const LATEST: i64 = -1;

/// Which request of a connection this is: there is one of each at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    Records(usize),
    Report,
    Bounds,
}

#[derive(Clone, Debug)]
pub enum Question {
    Fetch(FetchRequest),
    Bounds(ListOffsetsRequest),
}

#[derive(Clone, Debug)]
pub enum Reply {
    Fetch(FetchResponse),
    Bounds(ListOffsetsResponse),
}

/// A request of a follower.
#[derive(Clone, Debug)]
pub struct Fetch {
    pub follower: i32,
    pub life: u64,
    pub connection: u64,
    /// Names the request for its answer.
    pub call: u64,
    pub lane: Lane,
    pub question: Question,
}

#[derive(Clone, Debug)]
pub struct FetchAnswer {
    pub leader: i32,
    pub life: u64,
    pub connection: u64,
    pub call: u64,
    pub lane: Lane,
    pub reply: Reply,
}

/// What is fetched from one leader.
struct Fetcher {
    core: LeaderFetcher,
    wants: mpsc::UnboundedReceiver<Vec<PartitionWants>>,
    connection: u64,
    /// Not before this moment is anything sent.
    not_before: Ms,
    /// The requests that are not answered yet, and since when.
    under_way: BTreeMap<Lane, (u64, Ms)>,
}

pub struct Replication {
    me: NodeId,
    life: u64,
    config: FetcherConfig,
    fetchers: BTreeMap<i32, Fetcher>,
    /// Fetches that wait here for something to tell.
    waiting: BTreeMap<u64, Fetch>,
}

impl Replication {
    pub fn new(me: NodeId, life: u64, plan: &Plan) -> Replication {
        let config = FetcherConfig {
            lanes: plan.fetch_lanes,
            wait_max_ms: WAIT_MS as i32,
            min_bytes: 1,
            partition_max_bytes: 2000,
            response_max_bytes: 4000,
        };
        Replication { me, life, config, fetchers: BTreeMap::new(), waiting: BTreeMap::new() }
    }

    fn after(&self, context: &mut Context, ms: Ms, what: ProcessEvent) {
        context.after(ms, Event::Process { node: self.me.0, life: self.life, what });
    }

    // The follower's side.

    /// Where the fetches from this leader stand, for who wonders why nothing comes.
    pub fn describe(&self, leader: i32) -> String {
        self.fetchers.get(&leader).map_or("nothing".to_owned(), |fetcher| {
            format!("{:?}, under way {:?}", fetcher.core, fetcher.under_way)
        })
    }

    /// Hears what the shards want from leaders.
    pub fn take_wants(&mut self, context: &mut Context, inlets: &mut Inlets, epoch: Option<BrokerEpoch>) {
        while let Ok(inlet) = inlets.leaders.try_recv() {
            let fetcher = Fetcher {
                core: LeaderFetcher::new(self.me, self.config),
                wants: inlet.wants,
                connection: context.unique(),
                not_before: 0,
                under_way: BTreeMap::new(),
            };
            self.fetchers.insert(inlet.leader.0, fetcher);
        }
        let mut turned = Vec::new();
        for (leader, fetcher) in &mut self.fetchers {
            while let Ok(news) = fetcher.wants.try_recv() {
                fetcher.core.on_wants(news);
                turned.push(*leader);
            }
        }
        for leader in turned {
            self.turn(context, leader, epoch);
        }
    }

    /// Sends what can be sent to this leader.
    pub fn turn(&mut self, context: &mut Context, leader: i32, epoch: Option<BrokerEpoch>) {
        let now = context.now;
        let Some(fetcher) = self.fetchers.get_mut(&leader) else { return };
        if fetcher.under_way.values().any(|(_, at)| now - at >= LIMIT_MS) {
            self.disconnect(context, leader);
            return;
        }
        if now < fetcher.not_before {
            return;
        }
        let mut questions = Vec::new();
        while let Some(call) = fetcher.core.next_call(epoch.unwrap_or(BrokerEpoch::UNKNOWN), false) {
            questions.push(match call {
                Call::Fetch { lane, request } => (Lane::Records(lane), Question::Fetch(request)),
                Call::Report(request) => (Lane::Report, Question::Fetch(request)),
                Call::Bounds(request) => (Lane::Bounds, Question::Bounds(request)),
            });
        }
        for (lane, question) in questions {
            self.question(context, leader, lane, question);
        }
    }

    fn question(&mut self, context: &mut Context, leader: i32, lane: Lane, question: Question) {
        let Some(fetcher) = self.fetchers.get_mut(&leader) else { return };
        let call = context.unique();
        fetcher.under_way.insert(lane, (call, context.now));
        let connection = fetcher.connection;
        let fetch = Fetch { follower: self.me.0, life: self.life, connection, call, lane, question };
        context.send(Place::Node(self.me.0), Place::Node(leader), Body::Fetch(fetch));
        self.after(context, LIMIT_MS, ProcessEvent::Fetcher(leader));
    }

    /// The connection to this leader is gone.
    pub fn disconnect(&mut self, context: &mut Context, leader: i32) {
        let Some(fetcher) = self.fetchers.get_mut(&leader) else { return };
        fetcher.connection = context.unique();
        fetcher.core.on_disconnect();
        fetcher.under_way.clear();
        fetcher.not_before = context.now + RECONNECT_MS;
        self.after(context, RECONNECT_MS, ProcessEvent::Fetcher(leader));
    }

    /// An answer has come; what it says is for the shards.
    pub fn fetched(
        &mut self,
        context: &mut Context,
        answer: FetchAnswer,
        partitions: &Partitions,
        epoch: Option<BrokerEpoch>,
    ) {
        let leader = answer.leader;
        let Some(fetcher) = self.fetchers.get_mut(&leader) else { return };
        // On a connection each answer comes once, and says to what.
        let is_due = fetcher.under_way.get(&answer.lane).is_some_and(|(call, _)| *call == answer.call);
        if answer.connection != fetcher.connection || !is_due {
            return;
        }
        fetcher.under_way.remove(&answer.lane);
        let fetched = match (answer.lane, answer.reply) {
            (Lane::Records(lane), Reply::Fetch(response)) => fetcher.core.on_fetch_answer(lane, response),
            (Lane::Bounds, Reply::Bounds(response)) => fetcher.core.on_bounds_answer(&response),
            _ => {
                fetcher.core.on_report_answer();
                Vec::new()
            }
        };
        let next = if answer.lane == Lane::Bounds { fetcher.core.next_bounds() } else { None };
        for fetched in fetched {
            partitions.shard_of(&fetched.id).send_event(Message::Fetched(vec![fetched]));
        }
        if let Some(request) = next {
            self.question(context, leader, Lane::Bounds, Question::Bounds(request));
        }
        self.turn(context, leader, epoch);
    }

    // The leader's side.

    pub fn serve(&mut self, context: &mut Context, fetch: Fetch, partitions: &Partitions, image: &Image) {
        let (reply, has_news) = reply(&fetch, partitions, image, true);
        if has_news || !matches!(fetch.lane, Lane::Records(_)) {
            self.answer(context, &fetch, reply);
        } else {
            let id = context.unique();
            self.waiting.insert(id, fetch);
            self.after(context, WAIT_MS, ProcessEvent::FetchWait(id));
        }
    }

    /// Looks at the waiting fetches again: the logs may have moved.
    pub fn serve_waiting(&mut self, context: &mut Context, partitions: &Partitions, image: &Image) {
        for (id, fetch) in std::mem::take(&mut self.waiting) {
            let (reply, has_news) = reply(&fetch, partitions, image, false);
            if has_news {
                self.answer(context, &fetch, reply);
            } else {
                self.waiting.insert(id, fetch);
            }
        }
    }

    pub fn wait_is_over(&mut self, context: &mut Context, id: u64, partitions: &Partitions, image: &Image) {
        if let Some(fetch) = self.waiting.remove(&id) {
            let (reply, _) = reply(&fetch, partitions, image, false);
            self.answer(context, &fetch, reply);
        }
    }

    fn answer(&self, context: &mut Context, fetch: &Fetch, reply: Reply) {
        let Fetch { follower, life, connection, call, lane, .. } = *fetch;
        let answer = FetchAnswer { leader: self.me.0, life, connection, call, lane, reply };
        context.send(Place::Node(self.me.0), Place::Node(follower), Body::Fetched(answer));
    }
}

/// What the leader says, and whether some of it must not wait. `tells`: it hears of the fetch.
fn reply(fetch: &Fetch, partitions: &Partitions, image: &Image, tells: bool) -> (Reply, bool) {
    match &fetch.question {
        Question::Fetch(request) => {
            let (response, has_news) = fetch_reply(request, partitions, image, tells);
            (Reply::Fetch(response), has_news)
        }
        Question::Bounds(request) => (Reply::Bounds(bounds_reply(request, partitions, image)), true),
    }
}

fn fetch_reply(
    request: &FetchRequest,
    partitions: &Partitions,
    image: &Image,
    tells: bool,
) -> (FetchResponse, bool) {
    let (mut has_news, mut left) = (false, usize::try_from(request.max_bytes).unwrap_or(0));
    let mut responses = Vec::new();
    for topic in &request.topics {
        let mut answers = Vec::new();
        for wanted in &topic.partitions {
            let id =
                TopicIdPartition { topic_id: topic.topic_id, partition: PartitionIndex(wanted.partition) };
            let data = match read(request, id, wanted, left, partitions, image, tells) {
                Ok(data) => data,
                Err(error) => PartitionData { error_code: error.code(), ..PartitionData::default() },
            };
            let size =
                data.records.as_ref().map_or(0, |records| records.pieces().map(bytes::Bytes::len).sum());
            left = left.saturating_sub(size);
            has_news |= size > 0
                || data.error_code != ErrorCode::None.code()
                || data.diverging_epoch.epoch >= 0
                || data.high_watermark > wanted.high_watermark;
            answers.push(PartitionData { partition_index: wanted.partition, ..data });
        }
        let topic_id = topic.topic_id;
        responses.push(FetchableTopicResponse { topic_id, partitions: answers, ..Default::default() });
    }
    (FetchResponse { responses, ..FetchResponse::default() }, has_news)
}

fn read(
    request: &FetchRequest,
    id: TopicIdPartition,
    wanted: &FetchPartition,
    max_bytes: usize,
    partitions: &Partitions,
    image: &Image,
    tells: bool,
) -> Result<PartitionData, ErrorCode> {
    let state = &request.replica_state;
    let epoch = LeaderEpoch(wanted.current_leader_epoch);
    let partition = led(id, epoch, state.replica_id.0, partitions, image)?;
    let (leadership, view) = serving::led_view(&partition, epoch).map_err(code)?;
    let from = ReadFrom {
        offset: Offset(wanted.fetch_offset),
        last_fetched_epoch: LeaderEpoch(wanted.last_fetched_epoch),
    };
    let records = serving::read(&view, from, Bound::LogEnd, max_bytes, max_bytes > 0);
    let records = records.map_err(|error| match error {
        ReadRefused::OutOfRange => ErrorCode::OffsetOutOfRange,
        ReadRefused::Io(_) => ErrorCode::KafkaStorageError,
    })?;
    let told = FollowerFetch {
        follower: NodeId(state.replica_id.0),
        broker_epoch: BrokerEpoch(state.replica_epoch),
        fetch_offset: Offset(wanted.fetch_offset),
        flushed_offset: follower_fetch::told_flushed(wanted),
        log_start: Offset(wanted.log_start_offset),
    };
    if tells && let Some(fetched) = serving::fetched(&partition, &leadership, &records, told) {
        partitions.shard_of(&id).send_event(Message::FollowerFetched(vec![fetched]));
    }
    let mut data = PartitionData {
        high_watermark: view.high_watermark.0,
        log_start_offset: view.log_start.0,
        counts_flushed: partition.counts_flushed(),
        ..PartitionData::default()
    };
    match records.diverging {
        Some(theirs) => {
            let (epoch, end_offset) = (theirs.epoch.0, theirs.end.0);
            data.diverging_epoch = EpochEndOffset { epoch, end_offset, ..Default::default() };
        }
        None => data.records = Some(records.pieces.into()),
    }
    Ok(data)
}

fn bounds_reply(request: &ListOffsetsRequest, partitions: &Partitions, image: &Image) -> ListOffsetsResponse {
    let topics = request.topics.iter().map(|topic| {
        let found = image.topics.by_name(&topic.name);
        let answers = topic.partitions.iter().map(|wanted| {
            let epoch = LeaderEpoch(wanted.current_leader_epoch);
            let offset = found.ok_or(ErrorCode::UnknownTopicOrPartition).and_then(|found| {
                let partition = PartitionIndex(wanted.partition_index);
                let id = TopicIdPartition { topic_id: found.id, partition };
                let partition = led(id, epoch, request.replica_id, partitions, image)?;
                let (_, view) = serving::led_view(&partition, epoch).map_err(code)?;
                Ok(if wanted.timestamp == LATEST { view.log_end } else { view.log_start })
            });
            ListOffsetsPartitionResponse {
                partition_index: wanted.partition_index,
                error_code: offset.err().unwrap_or(ErrorCode::None).code(),
                offset: offset.unwrap_or(Offset::UNKNOWN).0,
                ..Default::default()
            }
        });
        ListOffsetsTopicResponse {
            name: topic.name.clone(),
            partitions: answers.collect(),
            ..Default::default()
        }
    });
    ListOffsetsResponse { topics: topics.collect(), ..Default::default() }
}

/// The partition, if it is hosted here and the metadata names the follower as a replica.
fn led(
    id: TopicIdPartition,
    epoch: LeaderEpoch,
    follower: i32,
    partitions: &Partitions,
    image: &Image,
) -> Result<Arc<Partition>, ErrorCode> {
    let topic = image.topics.by_id(id.topic_id).ok_or(ErrorCode::UnknownTopicId)?;
    let registration = topic.partition(id.partition).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if !registration.has_replica(NodeId(follower)) {
        let knows = epoch != LeaderEpoch::UNKNOWN;
        return Err(if knows { ErrorCode::UnknownLeaderEpoch } else { ErrorCode::NotLeaderOrFollower });
    }
    partitions.get(&id).ok_or(ErrorCode::NotLeaderOrFollower)
}

fn code(not_served: NotServed) -> ErrorCode {
    match not_served {
        NotServed::NotLeader => ErrorCode::NotLeaderOrFollower,
        NotServed::Offline => ErrorCode::KafkaStorageError,
        NotServed::FencedLeaderEpoch => ErrorCode::FencedLeaderEpoch,
        NotServed::UnknownLeaderEpoch => ErrorCode::UnknownLeaderEpoch,
    }
}
