//! How followers fetch and leaders serve them: the product's fetchers and serving code, with the requests as packets and the
//! connections as numbers.
//!
//! Must not know what an answer means for a partition. Invariant: an answer counts only on the connection on which it was asked
//! for. There are no sessions here, so each request names everything.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::sync::mpsc;

use super::context::{Context, Event, Ms, ProcessEvent};
use super::network::{Body, Place};
use super::plan::Plan;
use crate::api::fetch::session::{FetchContext, FetchPartition, FetchSessions, Told, TopicKey};
use crate::api::fetch::session_request;
use crate::broker::clock::Now;
use crate::broker::fetcher::core::{Call, FetcherConfig, LeaderFetcher};
use crate::broker::hurries::{Count, Hurries};
use crate::broker::mailbox::Message;
use crate::broker::messages::PartitionWants;
use crate::broker::outbox::LeaderInlet;
use crate::broker::partitions::{Partition, Partitions};
use crate::broker::peer_silence::PeerSilence;
use crate::broker::serving::{self, NotServed, ReadFrom, ReadRefused};
use crate::broker::waiters::Bound;
use crate::metadata::Image;
use crate::metadata::liveness::LONG_POLL_MS;
use crate::replica::FollowerFetch;
use crate::types::{
    BrokerEpoch, ErrorCode, LeaderEpoch, MonotonicMs, NodeId, Offset, PartitionIndex, TopicIdPartition,
};
use crate::wire::messages::fetch_request::FetchRequest;
use crate::wire::messages::fetch_response::{
    EpochEndOffset, FetchResponse, FetchableTopicResponse, PartitionData,
};
use crate::wire::messages::follower_fetch;
use crate::wire::messages::list_offsets_request::ListOffsetsRequest;
use crate::wire::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};

/// A request without an answer is given up, and with it the connection.
const LIMIT_MS: Ms = 1_200;
/// How long a fetch waits at the leader for something to tell.
const WAIT_MS: Ms = 500;
const RECONNECT_MS: Ms = 40;
const FETCH_VERSION: i16 = 18;
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
    sessions: FetchSessions,
    hurries: Hurries,
    /// From whom an answer or a fetch is due.
    pub silence: PeerSilence,
    /// Fetches that wait here for something to tell.
    waiting: BTreeMap<u64, (Fetch, FetchContext)>,
}

/// What this broker knows when it serves.
#[derive(Clone, Copy)]
pub struct Here<'a> {
    pub partitions: &'a Partitions,
    pub image: &'a Image,
    pub now: Now,
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
        let sessions = FetchSessions::new(plan.fetch_sessions, 1_000);
        let hurries = Hurries::default();
        let (fetchers, silence, waiting) = Default::default();
        Replication { me, life, config, fetchers, sessions, hurries, silence, waiting }
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
    pub fn take_wants(
        &mut self,
        context: &mut Context,
        leaders: &mut mpsc::UnboundedReceiver<LeaderInlet>,
        epoch: Option<BrokerEpoch>,
    ) {
        while let Ok(inlet) = leaders.try_recv() {
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
            let fetcher = self.fetchers.get(&leader);
            if fetcher.is_none_or(|fetcher| fetcher.core.is_idle() && fetcher.under_way.is_empty()) {
                self.silence.answered(NodeId(leader));
            }
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
        // The answer may rightly take as long as the leader lets a fetch wait.
        let longer = if matches!(lane, Lane::Records(_)) { (WAIT_MS - LONG_POLL_MS).max(0) } else { 0 };
        self.silence.asked(NodeId(leader), MonotonicMs(context.now + longer));
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
        self.silence.answered(NodeId(leader));
        if !fetcher.under_way.is_empty() {
            self.silence.asked(NodeId(leader), MonotonicMs(context.now));
        }
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

    pub fn serve(&mut self, context: &mut Context, fetch: Fetch, here: Here<'_>) {
        let request = match &fetch.question {
            Question::Fetch(request) => request,
            Question::Bounds(request) => {
                let reply = bounds_reply(request, here);
                return self.answer(context, &fetch, Reply::Bounds(reply));
            }
        };
        let follower = request.replica_state.replica_id;
        self.silence.fetches(NodeId(follower.0));
        let merge = session_request(FETCH_VERSION, request, NodeId(follower.0));
        let fresh_id = context.unique() as i32;
        let session = match self.sessions.begin(merge, fresh_id, here.now.wall) {
            Ok(session) => session,
            Err(error) => {
                let refused = FetchResponse { error_code: error.code(), ..FetchResponse::default() };
                return self.answer(context, &fetch, Reply::Fetch(refused));
            }
        };
        let count = hurries_of(request);
        self.hurries.heard(NodeId(follower.0), count);
        let round = round(request, &session, here, true);
        if round.must_be_told || request.max_wait_ms == 0 || self.is_hurried(request) {
            let reply = response(&session, round);
            self.answer(context, &fetch, Reply::Fetch(reply));
        } else {
            let id = context.unique();
            self.waiting.insert(id, (fetch, session));
            self.after(context, WAIT_MS, ProcessEvent::FetchWait(id));
        }
        // Those from before this one's hurry.
        self.serve_waiting(context, here);
    }

    /// Whether the follower no longer waits for this.
    fn is_hurried(&self, request: &FetchRequest) -> bool {
        let follower = NodeId(request.replica_state.replica_id.0);
        self.hurries.after(follower, hurries_of(request)).now_or_never().is_some()
    }

    /// Looks at the waiting fetches again: the logs may have moved.
    pub fn serve_waiting(&mut self, context: &mut Context, here: Here<'_>) {
        let waiting: Vec<u64> = self.waiting.keys().copied().collect();
        for id in waiting {
            self.serve_again(context, id, here, false);
        }
    }

    pub fn wait_is_over(&mut self, context: &mut Context, id: u64, here: Here<'_>) {
        self.serve_again(context, id, here, true);
    }

    fn serve_again(&mut self, context: &mut Context, id: u64, here: Here<'_>, is_over: bool) {
        let Some((fetch, session)) = self.waiting.get(&id) else { return };
        let Question::Fetch(request) = &fetch.question else { return };
        let round = round(request, session, here, false);
        if round.must_be_told || is_over || self.is_hurried(request) {
            let reply = response(session, round);
            if let Some((fetch, _)) = self.waiting.remove(&id) {
                self.answer(context, &fetch, Reply::Fetch(reply));
            }
        }
    }

    fn answer(&self, context: &mut Context, fetch: &Fetch, reply: Reply) {
        let Fetch { follower, life, connection, call, lane, .. } = *fetch;
        if matches!(fetch.question, Question::Fetch(_)) {
            // Its next fetch is due.
            self.silence.served(NodeId(follower), MonotonicMs(context.now));
        }
        let answer = FetchAnswer { leader: self.me.0, life, connection, call, lane, reply };
        context.send(Place::Node(self.me.0), Place::Node(follower), Body::Fetched(answer));
    }
}

fn hurries_of(request: &FetchRequest) -> Count {
    let count = follower_fetch::told_hurries(request).expect("our followers tell it");
    (BrokerEpoch(request.replica_state.replica_epoch), count)
}

/// What was read for one fetch.
struct Round {
    read: Vec<PartitionData>,
    must_be_told: bool,
}

/// Reads all partitions of a session; `tells`: their leaders hear of the fetch.
fn round(request: &FetchRequest, session: &FetchContext, here: Here<'_>, tells: bool) -> Round {
    let mut left = usize::try_from(request.max_bytes).unwrap_or(0);
    let mut round = Round { read: Vec::new(), must_be_told: false };
    for ((topic, partition), wanted) in &session.partitions {
        let TopicKey::Id(topic_id) = topic else { panic!("followers name topics by id") };
        let id = TopicIdPartition { topic_id: *topic_id, partition: *partition };
        let data = match read(request, id, wanted, left, here, tells) {
            Ok(data) => data,
            Err(error) => PartitionData {
                error_code: error.code(),
                high_watermark: Offset::UNKNOWN.0,
                ..PartitionData::default()
            },
        };
        let size = size_of(&data);
        left = left.saturating_sub(size);
        round.must_be_told |=
            size > 0 || data.error_code != ErrorCode::None.code() || data.diverging_epoch.epoch >= 0;
        round.read.push(PartitionData { partition_index: partition.0, ..data });
    }
    round
}

fn size_of(data: &PartitionData) -> usize {
    data.records.as_ref().map_or(0, |records| records.pieces().map(bytes::Bytes::len).sum())
}

/// Names what is new to the session.
fn response(session: &FetchContext, round: Round) -> FetchResponse {
    let told = session.partitions.iter().zip(&round.read).map(|((key, _), data)| {
        let told = Told {
            error: ErrorCode::from_code(data.error_code).unwrap_or(ErrorCode::UnknownServerError),
            has_records: size_of(data) > 0,
            high_watermark: Offset(data.high_watermark),
            log_start_offset: Offset(data.log_start_offset),
            has_advice: data.diverging_epoch.epoch >= 0,
            counts_flushed: data.counts_flushed,
        };
        (key, told)
    });
    let news = session.must_tell(&told.collect::<Vec<_>>());
    let mut answer = FetchResponse { session_id: session.session_id(), ..FetchResponse::default() };
    for ((((topic, _), _), data), _) in
        session.partitions.iter().zip(round.read).zip(news).filter(|(_, is_news)| *is_news)
    {
        let TopicKey::Id(topic_id) = *topic else { continue };
        let partitions = vec![data];
        answer.responses.push(FetchableTopicResponse { topic_id, partitions, ..Default::default() });
    }
    answer
}

fn read(
    request: &FetchRequest,
    id: TopicIdPartition,
    wanted: &FetchPartition,
    max_bytes: usize,
    here: Here<'_>,
    tells: bool,
) -> Result<PartitionData, ErrorCode> {
    let state = &request.replica_state;
    let epoch = wanted.current_leader_epoch;
    let partition = led(id, epoch, state.replica_id.0, here)?;
    let (leadership, view) = serving::led_view(&partition, epoch).map_err(code)?;
    let from = ReadFrom { offset: wanted.fetch_offset, last_fetched_epoch: wanted.last_fetched_epoch };
    let records = serving::read(&view, from, Bound::LogEnd, max_bytes, max_bytes > 0);
    let records = records.map_err(|error| match error {
        ReadRefused::OutOfRange => ErrorCode::OffsetOutOfRange,
        ReadRefused::Io(error) => {
            partition.note_unreadable(&error);
            ErrorCode::KafkaStorageError
        }
    })?;
    let fetch = FollowerFetch {
        follower: NodeId(state.replica_id.0),
        broker_epoch: BrokerEpoch(state.replica_epoch),
        fetch_offset: wanted.fetch_offset,
        flushed_offset: wanted.flushed,
        log_start: wanted.log_start_offset,
    };
    let is_of_interest = tells && (wanted.is_news || partition.watches_followers());
    if is_of_interest && let Some(fetched) = serving::fetched(&partition, &leadership, &records, fetch) {
        here.partitions.follower_fetched(vec![fetched]);
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

fn bounds_reply(request: &ListOffsetsRequest, here: Here<'_>) -> ListOffsetsResponse {
    let topics = request.topics.iter().map(|topic| {
        let found = here.image.topics.by_name(&topic.name);
        let answers = topic.partitions.iter().map(|wanted| {
            let epoch = LeaderEpoch(wanted.current_leader_epoch);
            let offset = found.ok_or(ErrorCode::UnknownTopicOrPartition).and_then(|found| {
                let partition = PartitionIndex(wanted.partition_index);
                let id = TopicIdPartition { topic_id: found.id, partition };
                let partition = led(id, epoch, request.replica_id, here)?;
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
    here: Here<'_>,
) -> Result<Arc<Partition>, ErrorCode> {
    let topic = here.image.topics.by_id(id.topic_id).ok_or(ErrorCode::UnknownTopicId)?;
    let registration = topic.partition(id.partition).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if !registration.has_replica(NodeId(follower)) {
        let knows = epoch != LeaderEpoch::UNKNOWN;
        return Err(if knows { ErrorCode::UnknownLeaderEpoch } else { ErrorCode::NotLeaderOrFollower });
    }
    here.partitions.get(&id).ok_or(ErrorCode::NotLeaderOrFollower)
}

pub fn code(not_served: NotServed) -> ErrorCode {
    match not_served {
        NotServed::NotLeader => ErrorCode::NotLeaderOrFollower,
        NotServed::Offline => ErrorCode::KafkaStorageError,
        NotServed::FencedLeaderEpoch => ErrorCode::FencedLeaderEpoch,
        NotServed::UnknownLeaderEpoch => ErrorCode::UnknownLeaderEpoch,
    }
}
