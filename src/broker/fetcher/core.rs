//! What to ask one leader next, and whom its answers concern. Synchronous: a task moves its calls and answers over
//! connections, and the simulator does the same without one.
//!
//! Must not know connections, clocks or logs. Invariants: a lane asks nothing new before the shards have dealt with all of
//! its last answer, so no records come twice; what is under way when the connection breaks is asked for again.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::requests::{self, Asker};
use super::{answers, requests::EARLIEST, requests::LATEST};
use crate::broker::messages::{Fetched, LeaderAnswer, PartitionWants};
use crate::replica::{Bounds, BoundsQuery, FetchFrom, FetchPlan, LaneAnswer, PlanConfig, Refusal, Wants};
use crate::types::{BrokerEpoch, NodeId, Offset, PartitionIndex, TopicIdPartition, TopicPartition};
use crate::wire::messages::RecordBytes;
use crate::wire::messages::fetch_request::FetchRequest;
use crate::wire::messages::fetch_response::{FetchResponse, PartitionData};
use crate::wire::messages::list_offsets_request::ListOffsetsRequest;
use crate::wire::messages::list_offsets_response::ListOffsetsResponse;

/// The settings of the fetches from one leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetcherConfig {
    /// `num.replica.fetchers`
    pub lanes: usize,
    /// `replica.fetch.wait.max.ms`
    pub wait_max_ms: i32,
    /// `replica.fetch.min.bytes`
    pub min_bytes: i32,
    /// `replica.fetch.max.bytes`
    pub partition_max_bytes: i32,
    /// `replica.fetch.response.max.bytes`
    pub response_max_bytes: usize,
}

impl FetcherConfig {
    fn plan(&self) -> PlanConfig {
        PlanConfig {
            lanes: self.lanes,
            response_max_bytes: self.response_max_bytes,
            in_flight_max_bytes: self.response_max_bytes.saturating_mul(self.lanes.max(1)),
        }
    }
}

/// Something to ask the leader.
#[derive(Clone, Debug)]
pub enum Call {
    /// Records, which the leader may wait for.
    Fetch { lane: usize, request: FetchRequest },
    /// Only tells what is flushed, or that a fetch under way must not wait. To be answered with [`LeaderFetcher::on_report_answer`].
    Report(FetchRequest),
    /// One of two questions for the ends of logs, asked one after the other.
    Bounds(ListOffsetsRequest),
}

/// The questions for the ends of logs that are under way.
#[derive(Debug)]
struct BoundsAsked {
    queries: BTreeMap<TopicIdPartition, BoundsQuery>,
    starts: Option<HashMap<TopicPartition, Result<Offset, Refusal>>>,
}

/// The fetches from one leader.
#[derive(Debug)]
pub struct LeaderFetcher {
    asker: Asker,
    config: FetcherConfig,
    plan: FetchPlan,
    names: HashMap<TopicIdPartition, TopicPartition>,
    /// The partitions whose last answer is with their shards, and how many those are of each lane.
    dealt_with: HashMap<TopicIdPartition, usize>,
    open: Vec<usize>,
    bounds: BTreeMap<TopicIdPartition, BoundsQuery>,
    bounds_under_way: Option<BoundsAsked>,
    throttled: usize,
}

impl LeaderFetcher {
    /// Nothing to fetch yet, for the broker `me`.
    pub fn new(me: NodeId, config: FetcherConfig) -> LeaderFetcher {
        let asker = Asker { node: me, epoch: BrokerEpoch::UNKNOWN };
        LeaderFetcher {
            asker,
            config,
            plan: FetchPlan::new(config.plan()),
            names: HashMap::new(),
            dealt_with: HashMap::new(),
            open: vec![0; config.lanes.max(1)],
            bounds: BTreeMap::new(),
            bounds_under_way: None,
            throttled: 0,
        }
    }

    /// Whether some partition waits for the quota when that is exceeded.
    pub fn has_throttled(&self) -> bool {
        self.plan.has_throttled()
    }

    pub fn config(&self) -> FetcherConfig {
        self.config
    }

    /// Other settings from now on; all that was under way is lost.
    pub fn configure(&mut self, config: FetcherConfig) {
        self.on_disconnect();
        self.config = config;
        self.plan.configure(config.plan());
        self.open = vec![0; config.lanes.max(1)];
        for (id, lane) in &mut self.dealt_with {
            *lane = self.plan.lane_of(*id).unwrap_or(0);
            self.open[*lane] += 1;
        }
    }

    /// No partition is followed here: there is nothing to ask, and no connection is needed.
    pub fn is_idle(&self) -> bool {
        self.plan.is_empty()
    }

    /// How many partitions follow this leader.
    pub fn partitions(&self) -> usize {
        self.names.len()
    }

    /// What followers want now, as their shards say.
    pub fn on_wants(&mut self, news: Vec<PartitionWants>) {
        for PartitionWants { id, name, wants, throttled, is_word } in news {
            if is_word || wants.is_none() {
                self.close(id);
            }
            match wants {
                None => {
                    self.plan.remove(id);
                    self.bounds.remove(&id);
                    self.names.remove(&id);
                    continue;
                }
                Some(Wants::Fetch(from)) => {
                    self.bounds.remove(&id);
                    self.plan.set(id, Some(from), throttled);
                }
                Some(Wants::Bounds(query)) => {
                    self.bounds.insert(id, query);
                    self.plan.set(id, None, throttled);
                }
                Some(Wants::Nothing { .. }) => {
                    self.bounds.remove(&id);
                    self.plan.set(id, None, throttled);
                }
            }
            self.names.entry(id).or_insert(name);
        }
    }

    /// How many fetches may be under way.
    pub fn lanes(&self) -> usize {
        self.open.len()
    }

    /// The next thing to ask under this registration of the broker; call it until there is nothing.
    pub fn next_call(&mut self, epoch: BrokerEpoch, quota_exceeded: bool) -> Option<Call> {
        if std::mem::replace(&mut self.asker.epoch, epoch) != epoch {
            self.plan.begin_sessions();
        }
        if let Some(report) = self.plan.report() {
            return Some(Call::Report(requests::report(self.asker, &report)));
        }
        if self.bounds_under_way.is_none() && !self.bounds.is_empty() {
            let queries = std::mem::take(&mut self.bounds);
            let asked = BoundsAsked { queries, starts: None };
            let request = self.bounds_request(EARLIEST, &asked);
            self.bounds_under_way = Some(asked);
            return Some(Call::Bounds(request));
        }
        let open = &self.open;
        let planned = self.plan.next(quota_exceeded, |lane| open[lane] == 0)?;
        let request = requests::fetch(self.asker, &self.config, &planned);
        Some(Call::Fetch { lane: planned.lane, request })
    }

    /// The leader's answer to the lane's fetch: what shards must be told.
    pub fn on_fetch_answer(&mut self, lane: usize, response: FetchResponse) -> Vec<Fetched> {
        let lane_answer = answers::lane_answer(&response);
        let (mut fetched, mut served) = (Vec::new(), BTreeSet::new());
        if lane_answer != LaneAnswer::SessionLost {
            for topic in response.responses {
                for data in topic.partitions {
                    let partition = PartitionIndex(data.partition_index);
                    let id = TopicIdPartition { topic_id: topic.topic_id, partition };
                    // An answer to what was not asked concerns nobody, nor one to a lane in which the partition was before.
                    let is_here = self.plan.lane_of(id) == Some(lane);
                    let asked = self.plan.asked(lane, id).copied();
                    let Some(asked) = asked.filter(|_| is_here) else { continue };
                    if answers::refusal(data.error_code).is_some() {
                        self.plan.refused(lane, id);
                    }
                    let bytes = data.records.as_ref().map_or(0, RecordBytes::len);
                    if bytes > 0 {
                        served.insert(id);
                    }
                    if self.plan.is_throttled(id) {
                        self.throttled += bytes;
                    }
                    if let Some(answer) = partition_answer(asked, data) {
                        self.open(lane, id);
                        fetched.push(Fetched { id, answer });
                    }
                }
            }
        }
        self.plan.answered(lane, lane_answer, &served);
        fetched
    }

    /// How many bytes came for throttled partitions since this was last asked.
    pub fn take_throttled(&mut self) -> usize {
        std::mem::take(&mut self.throttled)
    }

    /// The leader has heard a report.
    pub fn on_report_answer(&mut self) {
        self.plan.report_done();
    }

    /// The leader's answer to a question for the ends of logs. The next question may be owed: see [`Self::next_bounds`].
    pub fn on_bounds_answer(&mut self, response: &ListOffsetsResponse) -> Vec<Fetched> {
        let Some(mut asked) = self.bounds_under_way.take() else { return Vec::new() };
        let ends: HashMap<TopicPartition, Result<Offset, Refusal>> = response
            .topics
            .iter()
            .flat_map(|topic| {
                topic.partitions.iter().map(|data| {
                    let name = TopicPartition::new(topic.name.as_str(), data.partition_index);
                    (name, answers::refusal(data.error_code).map_or(Ok(Offset(data.offset)), Err))
                })
            })
            .collect();
        let Some(starts) = asked.starts.take() else {
            asked.starts = Some(ends);
            self.bounds_under_way = Some(asked);
            return Vec::new();
        };
        let end_of = |ends: &HashMap<_, _>, name| ends.get(name).copied().unwrap_or(Err(Refusal::Other));
        let queries = asked.queries.into_iter();
        let answered = queries.filter_map(|(id, query)| {
            let name = self.names.get(&id)?;
            let bounds = end_of(&starts, name)
                .and_then(|log_start| end_of(&ends, name).map(|log_end| Bounds { log_start, log_end }));
            Some(Fetched { id, answer: LeaderAnswer::Bounds { asked: query, bounds } })
        });
        answered.collect()
    }

    /// The second question for the ends of logs, when the first is answered.
    pub fn next_bounds(&self) -> Option<ListOffsetsRequest> {
        let asked = self.bounds_under_way.as_ref()?;
        asked.starts.is_some().then(|| self.bounds_request(LATEST, asked))
    }

    /// All that was under way is lost, and will be asked for again.
    pub fn on_disconnect(&mut self) {
        self.plan.disconnected();
        if let Some(asked) = self.bounds_under_way.take() {
            for (id, query) in asked.queries {
                if self.plan.contains(id) {
                    self.bounds.entry(id).or_insert(query);
                }
            }
        }
    }

    fn bounds_request(&self, timestamp: i64, asked: &BoundsAsked) -> ListOffsetsRequest {
        let named = asked.queries.iter().filter_map(|(id, query)| Some((self.names.get(id)?, query)));
        requests::bounds(self.asker, timestamp, named)
    }

    /// The partition's answer goes to its shard, which will send word. One that has left meanwhile sends none.
    fn open(&mut self, lane: usize, id: TopicIdPartition) {
        if let Entry::Vacant(vacant) = self.dealt_with.entry(id)
            && self.plan.contains(id)
        {
            vacant.insert(lane);
            self.open[lane] += 1;
        }
    }

    fn close(&mut self, id: TopicIdPartition) {
        if let Some(lane) = self.dealt_with.remove(&id) {
            self.open[lane] -= 1;
        }
    }
}

/// What the shard must be told of an answer; `None` when the answer says nothing that the follower does not know.
fn partition_answer(asked: FetchFrom, data: PartitionData) -> Option<LeaderAnswer> {
    if let Some(refusal) = answers::refusal(data.error_code) {
        return Some(LeaderAnswer::Refused { asked, refusal });
    }
    if let Some(theirs) = answers::diverging(&data) {
        return Some(LeaderAnswer::Diverges { asked, theirs });
    }
    let (high_watermark, log_start) = (Offset(data.high_watermark), Offset(data.log_start_offset));
    let records = data.records.map(crate::wire::messages::RecordBytes::into_bytes).unwrap_or_default();
    let is_news = !records.is_empty()
        || high_watermark.min(asked.offset) > asked.high_watermark
        || log_start.min(asked.high_watermark) > asked.log_start
        || (data.counts_flushed && asked.flushed < asked.offset);
    let counts_flushed = data.counts_flushed;
    is_news.then_some(LeaderAnswer::Records { asked, records, high_watermark, log_start, counts_flushed })
}
