//! Which partitions of one leader go into the next Fetch: lanes, sessions, turns and the budget of bytes.
//!
//! Must not know what an answer means for a partition (that is the follower's) nor how requests are sent. Invariants: a
//! partition is in one lane, and a lane has at most one request under way, so no records come twice; the bytes that all
//! answers under way may bring stay within the budget, save that a leader sends one batch whatever its size; each request
//! names only what its session does not know yet (KIP-227).
//!
//! A lane's request may wait at the leader for records. What is flushed meanwhile must not wait with it, for it moves the
//! leader's high watermark: it goes ahead in a *report*, a fetch of no bytes and without a session. Nor must a partition that
//! the request does not ask for, as after an election: then the report is a *hurry* as well, and ends the wait.

use std::collections::{BTreeMap, BTreeSet};

use super::following::FetchFrom;
use crate::types::{Offset, TopicIdPartition};

/// The epoch of a session's first request, which names every partition.
const FULL: i32 = 0;
/// No session.
const NO_SESSION: i32 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanConfig {
    /// How many requests may be under way (`num.replica.fetchers`), at least one.
    pub lanes: usize,
    /// What one answer may bring (`replica.fetch.response.max.bytes`).
    pub response_max_bytes: usize,
    /// What all answers under way may bring.
    pub in_flight_max_bytes: usize,
}

/// A request to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFetch {
    pub lane: usize,
    pub session_id: i32,
    pub session_epoch: i32,
    /// What is new to the session, by turn.
    pub partitions: Vec<(TopicIdPartition, FetchFrom)>,
    /// What leaves the session.
    pub forgotten: Vec<TopicIdPartition>,
    pub max_bytes: usize,
    /// How many hurries there were before it.
    pub hurries: i64,
}

/// What cannot wait for the answers that are under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What is newly flushed.
    pub flushed: Vec<(TopicIdPartition, FetchFrom)>,
    /// How many hurries there were, with this one if it is one: requests with a lower count are to be answered at once.
    pub hurries: i64,
}

/// What became of a lane's request as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneAnswer {
    /// Answered, in this session; 0 when the leader keeps none.
    Session(i32),
    /// The leader does not know the session, or not like this: begin a new one.
    SessionLost,
}

#[derive(Debug)]
struct Member {
    lane: usize,
    /// Its key among the lane's turns.
    turn: u64,
    want: Option<FetchFrom>,
    throttled: bool,
    reported: Option<FetchFrom>,
}

impl Member {
    fn ready(&self, quota_exceeded: bool) -> Option<FetchFrom> {
        self.want.filter(|_| !(quota_exceeded && self.throttled))
    }
}

#[derive(Debug, Default)]
struct Lane {
    session_id: i32,
    session_epoch: i32,
    /// What the leader knows of the session's partitions: what the request under way asks for.
    told: BTreeMap<TopicIdPartition, FetchFrom>,
    /// The partitions by turn: whose records came last is at the end.
    turns: BTreeMap<u64, TopicIdPartition>,
    next_turn: u64,
    /// The partitions that may want something else than the leader was told.
    changed: BTreeSet<TopicIdPartition>,
    /// The partitions whose last question was answered with an error: the leader took no note of what it said.
    refused: BTreeSet<TopicIdPartition>,
    /// What the answer under way may bring.
    under_way: Option<usize>,
    /// A partition wants what the request under way does not ask for.
    is_late: bool,
    /// The next request begins a new session.
    begins: bool,
}

/// The plan for one leader.
#[derive(Debug)]
pub struct FetchPlan {
    config: PlanConfig,
    members: BTreeMap<TopicIdPartition, Member>,
    lanes: Vec<Lane>,
    /// The lane that may ask next, when it can.
    turn: usize,
    quota_was_exceeded: bool,
    /// The partitions that have flushed more since they were last looked at.
    reportable: BTreeSet<TopicIdPartition>,
    report_under_way: bool,
    /// Never less than before, whatever becomes of the connection: the leader compares.
    hurries: i64,
}

impl FetchPlan {
    pub fn new(config: PlanConfig) -> FetchPlan {
        let lanes = (0..config.lanes.max(1)).map(|_| Lane::default()).collect();
        FetchPlan {
            config,
            members: BTreeMap::new(),
            lanes,
            turn: 0,
            quota_was_exceeded: false,
            reportable: BTreeSet::new(),
            report_under_way: false,
            hurries: 0,
        }
    }

    /// Other settings from now on. What is under way is forgotten, as by [`FetchPlan::disconnected`].
    pub fn configure(&mut self, config: PlanConfig) {
        let before = std::mem::replace(self, FetchPlan::new(config));
        self.hurries = before.hurries;
        for (partition, member) in before.members {
            self.set(partition, member.want, member.throttled);
        }
    }

    /// The lane in which the partition is.
    pub fn lane_of(&self, partition: TopicIdPartition) -> Option<usize> {
        self.members.get(&partition).map(|member| member.lane)
    }

    /// What the partition wants now; `None`: it stays, but has nothing to ask. `throttled` when it may not fetch while the
    /// quota is exceeded: it is listed as throttled and not in sync.
    pub fn set(&mut self, partition: TopicIdPartition, want: Option<FetchFrom>, throttled: bool) {
        if let Some(member) = self.members.get_mut(&partition) {
            let flushed = |want: Option<FetchFrom>| want.map(|want| want.flushed);
            if flushed(want) > flushed(member.want) {
                self.reportable.insert(partition);
            }
            (member.want, member.throttled) = (want, throttled);
            let ready = member.ready(self.quota_was_exceeded);
            self.lanes[member.lane].change(partition, ready);
            return;
        }
        let emptiest = (0..self.lanes.len()).min_by_key(|lane| self.lanes[*lane].turns.len());
        let at = emptiest.unwrap_or(0);
        let lane = &mut self.lanes[at];
        let turn = lane.take_turn(partition);
        let member = Member { lane: at, turn, want, throttled, reported: None };
        lane.change(partition, member.ready(self.quota_was_exceeded));
        self.members.insert(partition, member);
    }

    /// The partition has another leader, or none. Its session hears of it by the next request.
    pub fn remove(&mut self, partition: TopicIdPartition) {
        if let Some(member) = self.members.remove(&partition) {
            let lane = &mut self.lanes[member.lane];
            lane.turns.remove(&member.turn);
            lane.changed.insert(partition);
            self.reportable.remove(&partition);
        }
    }

    pub fn contains(&self, partition: TopicIdPartition) -> bool {
        self.members.contains_key(&partition)
    }

    pub fn is_throttled(&self, partition: TopicIdPartition) -> bool {
        self.members.get(&partition).is_some_and(|member| member.throttled)
    }

    /// Whether some partition must wait while the quota is exceeded.
    pub fn has_throttled(&self) -> bool {
        self.members.values().any(|member| member.throttled && member.want.is_some())
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The next request, if a lane is free, has something to ask, and the budget allows an answer. `may_ask` holds back a lane
    /// whose last answer is not dealt with yet.
    pub fn next(&mut self, quota_exceeded: bool, may_ask: impl Fn(usize) -> bool) -> Option<PlannedFetch> {
        let under_way: usize = self.lanes.iter().filter_map(|lane| lane.under_way).sum();
        let left = self.config.in_flight_max_bytes.saturating_sub(under_way);
        let max_bytes = self.config.response_max_bytes.min(left);
        if max_bytes == 0 {
            return None;
        }
        if std::mem::replace(&mut self.quota_was_exceeded, quota_exceeded) != quota_exceeded {
            for (partition, member) in self.members.iter().filter(|(_, member)| member.throttled) {
                self.lanes[member.lane].changed.insert(*partition);
            }
        }
        let count = self.lanes.len();
        for step in 0..count {
            let at = (self.turn + step) % count;
            if self.lanes[at].under_way.is_some() || !may_ask(at) {
                continue;
            }
            if let Some(planned) = self.plan_lane(at, max_bytes, quota_exceeded) {
                self.turn = (at + 1) % count;
                return Some(planned);
            }
        }
        None
    }

    fn plan_lane(&mut self, at: usize, max_bytes: usize, quota_exceeded: bool) -> Option<PlannedFetch> {
        let (lane, members) = (&mut self.lanes[at], &self.members);
        if std::mem::take(&mut lane.begins) {
            lane.begin_session();
        }
        // Who left and came back may be in another lane now: here it is to be forgotten.
        let of_here = |member: &&Member| member.lane == at;
        let ready =
            |partition: &TopicIdPartition| members.get(partition).filter(of_here)?.ready(quota_exceeded);
        let (partitions, forgotten) = if lane.session_epoch == FULL {
            let turns = lane.turns.values();
            let all: Vec<_> = turns.filter_map(|partition| Some((*partition, ready(partition)?))).collect();
            (all, Vec::new())
        } else {
            let is_news = |(partition, from): &(TopicIdPartition, FetchFrom)| {
                lane.told.get(partition) != Some(from) || lane.refused.contains(partition)
            };
            let changed = lane.changed.iter();
            let news = changed.filter_map(|partition| Some((*partition, ready(partition)?))).filter(is_news);
            let is_forgotten = |partition: &&TopicIdPartition| {
                lane.told.contains_key(*partition) && ready(partition).is_none()
            };
            (news.collect(), lane.changed.iter().filter(is_forgotten).copied().collect())
        };
        if partitions.is_empty() && lane.told.len() == forgotten.len() {
            return None; // the session waits; what it still holds is forgotten by its next request
        }
        lane.changed.clear();
        lane.refused.clear();
        lane.told.extend(partitions.iter().copied());
        for partition in &forgotten {
            lane.told.remove(partition);
        }
        (lane.under_way, lane.is_late) = (Some(max_bytes), false);
        let (session_id, session_epoch, hurries) = (lane.session_id, lane.session_epoch, self.hurries);
        Some(PlannedFetch { lane: at, session_id, session_epoch, partitions, forgotten, max_bytes, hurries })
    }

    /// What the lane's request under way asks of the partition: the question that an answer is to.
    pub fn asked(&self, lane: usize, partition: TopicIdPartition) -> Option<&FetchFrom> {
        self.lanes[lane].told.get(&partition)
    }

    /// The lane's answer says that the partition was not served. The next request names it also when it asks for the same.
    pub fn refused(&mut self, lane: usize, partition: TopicIdPartition) {
        let lane = &mut self.lanes[lane];
        lane.refused.insert(partition);
        lane.changed.insert(partition);
    }

    /// The lane's request is answered; records came for `served`, whose turn is over.
    pub fn answered(&mut self, lane: usize, answer: LaneAnswer, served: &BTreeSet<TopicIdPartition>) {
        let lane = &mut self.lanes[lane];
        lane.under_way = None;
        match answer {
            // The leader takes turns by itself in a session.
            LaneAnswer::Session(id) if id != NO_SESSION => {
                lane.session_id = id;
                lane.session_epoch = lane.session_epoch.checked_add(1).unwrap_or(1);
            }
            LaneAnswer::Session(_) | LaneAnswer::SessionLost => {
                lane.begin_session();
                for partition in served {
                    if let Some(member) = self.members.get_mut(partition) {
                        lane.turns.remove(&member.turn);
                        member.turn = lane.take_turn(*partition);
                    }
                }
            }
        }
    }

    /// What is newly flushed of partitions whose request is under way, and whether such a request must end: a fetch of no
    /// bytes, without session, answered at once. One at a time; a leader that does not count flushed offsets needs none.
    pub fn report(&mut self) -> Option<Report> {
        if self.report_under_way {
            return None;
        }
        let mut is_hurry = false;
        for lane in &mut self.lanes {
            is_hurry |= std::mem::take(&mut lane.is_late) && lane.under_way.is_some();
        }
        self.hurries += i64::from(is_hurry);
        let flushed = self.take_flushed();
        self.report_under_way = is_hurry || !flushed.is_empty();
        self.report_under_way.then_some(Report { flushed, hurries: self.hurries })
    }

    fn take_flushed(&mut self) -> Vec<(TopicIdPartition, FetchFrom)> {
        let mut report = Vec::new();
        for partition in std::mem::take(&mut self.reportable) {
            let Some(member) = self.members.get_mut(&partition) else { continue };
            let lane = &self.lanes[member.lane];
            let (Some(want), Some(told)) = (member.want, lane.told.get(&partition)) else { continue };
            let reported = member.reported.filter(|reported| reported.cuts == want.cuts);
            let known = reported.map_or(Offset::ZERO, |reported| reported.flushed).max(told.flushed);
            if lane.under_way.is_some() && told.cuts == want.cuts && want.flushed > known {
                member.reported = Some(want);
                report.push((partition, want));
            }
        }
        report
    }

    /// The report is answered.
    pub fn report_done(&mut self) {
        self.report_under_way = false;
    }

    /// Who asks is another one from now on, for its broker has registered anew: the leaders hear it with each partition.
    pub fn begin_sessions(&mut self) {
        for lane in &mut self.lanes {
            lane.begins = true;
        }
    }

    /// The connection is lost, and with it all that was under way.
    pub fn disconnected(&mut self) {
        self.report_under_way = false;
        for lane in &mut self.lanes {
            lane.under_way = None;
            lane.begin_session();
        }
        for member in self.members.values_mut() {
            member.reported = None;
        }
    }
}

impl Lane {
    /// The next request names everything. It still carries the id of the old session, so that the leader drops that.
    fn begin_session(&mut self) {
        self.session_epoch = FULL;
        self.told.clear();
        self.refused.clear();
    }

    /// The partition wants this now, or nothing.
    fn change(&mut self, partition: TopicIdPartition, want: Option<FetchFrom>) {
        self.changed.insert(partition);
        let asks = |from: &FetchFrom| (from.offset, from.current_leader_epoch, from.cuts);
        let is_asked = want.is_none_or(|want| self.told.get(&partition).map(asks) == Some(asks(&want)));
        self.is_late |= self.under_way.is_some() && !is_asked;
    }

    fn take_turn(&mut self, partition: TopicIdPartition) -> u64 {
        let turn = self.next_turn;
        self.next_turn += 1;
        self.turns.insert(turn, partition);
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{LeaderEpoch, PartitionIndex, Uuid};

    const CONFIG: PlanConfig = PlanConfig { lanes: 1, response_max_bytes: 100, in_flight_max_bytes: 150 };

    fn partition(index: i32) -> TopicIdPartition {
        TopicIdPartition { topic_id: Uuid::from_u128(7), partition: PartitionIndex(index) }
    }

    fn from(offset: i64, flushed: i64) -> FetchFrom {
        FetchFrom {
            offset: Offset(offset),
            last_fetched_epoch: None,
            log_start: Offset::ZERO,
            current_leader_epoch: LeaderEpoch(1),
            flushed: Offset(flushed),
            high_watermark: Offset::ZERO,
            cuts: 0,
        }
    }

    fn plan(lanes: usize, partitions: i32) -> FetchPlan {
        let mut plan = FetchPlan::new(PlanConfig { lanes, ..CONFIG });
        for index in 0..partitions {
            plan.set(partition(index), Some(from(0, 0)), false);
        }
        plan
    }

    fn next(plan: &mut FetchPlan, quota_exceeded: bool) -> Option<PlannedFetch> {
        plan.next(quota_exceeded, |_| true)
    }

    fn named(planned: &PlannedFetch) -> Vec<i32> {
        planned.partitions.iter().map(|(partition, _)| partition.partition.0).collect()
    }

    fn done(plan: &mut FetchPlan, lane: usize, served: &[i32]) {
        let served = served.iter().map(|index| partition(*index)).collect();
        plan.answered(lane, LaneAnswer::Session(9), &served);
    }

    #[test]
    fn a_session_hears_only_what_changed() {
        let mut plan = plan(1, 3);
        let first = next(&mut plan, false).expect("a request");
        assert_eq!((first.session_id, first.session_epoch, named(&first)), (0, 0, vec![0, 1, 2]));
        assert_eq!(next(&mut plan, false), None);
        done(&mut plan, 0, &[1]);
        plan.set(partition(1), Some(from(5, 0)), false);
        plan.set(partition(2), None, false);
        let second = next(&mut plan, false).expect("a request");
        assert_eq!((second.session_id, second.session_epoch, named(&second)), (9, 1, vec![1]));
        assert_eq!(second.forgotten, [partition(2)]);
        assert_eq!(plan.asked(0, partition(1)), Some(&from(5, 0)));
        done(&mut plan, 0, &[]);
        // Nothing has changed: the session is asked as it is.
        let third = next(&mut plan, false).expect("a request");
        assert!(third.partitions.is_empty() && third.forgotten.is_empty());
        plan.answered(0, LaneAnswer::SessionLost, &BTreeSet::new());
        let fourth = next(&mut plan, false).expect("a request");
        assert_eq!((fourth.session_id, fourth.session_epoch, named(&fourth)), (9, 0, vec![0, 1]));
        plan.disconnected();
        plan.remove(partition(0));
        assert_eq!(named(&next(&mut plan, false).expect("a request")), [1]);
    }

    /// A session remembers the question, but who leads has heard of it only when it was served.
    #[test]
    fn who_was_refused_is_named_again() {
        let mut plan = plan(1, 3);
        next(&mut plan, false).expect("a request");
        plan.refused(0, partition(1));
        plan.refused(0, partition(2));
        done(&mut plan, 0, &[]);
        plan.set(partition(2), None, false);
        let second = next(&mut plan, false).expect("a request");
        assert_eq!((named(&second), second.forgotten), (vec![1], vec![partition(2)]));
        done(&mut plan, 0, &[]);
        plan.set(partition(2), Some(from(0, 0)), false);
        assert_eq!(named(&next(&mut plan, false).expect("a request")), [2]);
        done(&mut plan, 0, &[]);
        assert!(named(&next(&mut plan, false).expect("a request")).is_empty());
    }

    #[test]
    fn a_lane_whose_answer_is_not_dealt_with_asks_nothing() {
        let mut plan = plan(2, 2);
        assert_eq!(plan.next(false, |lane| lane != 0).map(|planned| planned.lane), Some(1));
        assert_eq!(plan.next(false, |lane| lane != 0), None);
        assert_eq!(plan.next(false, |_| true).map(|planned| planned.lane), Some(0));
    }

    #[test]
    fn who_left_while_it_was_asked_for_is_forgotten_next() {
        let mut plan = plan(1, 2);
        next(&mut plan, false).expect("a request");
        plan.remove(partition(0));
        done(&mut plan, 0, &[]);
        let second = next(&mut plan, false).expect("a request");
        assert_eq!((named(&second), second.forgotten), (vec![], vec![partition(0)]));
        done(&mut plan, 0, &[]);
        // The last one leaves, and another comes in its place.
        plan.remove(partition(1));
        assert_eq!(next(&mut plan, false), None);
        plan.set(partition(2), Some(from(0, 0)), false);
        let third = next(&mut plan, false).expect("a request");
        assert_eq!((named(&third), third.forgotten), (vec![2], vec![partition(1)]));
    }

    /// A partition that leaves and comes back is put into the emptiest lane, which may be another.
    #[test]
    fn who_comes_back_into_another_lane_leaves_the_first() {
        let mut plan = plan(2, 4);
        let before = [next(&mut plan, false), next(&mut plan, false)]
            .map(|planned| named(&planned.expect("a request")));
        assert_eq!(before, [vec![0, 2], vec![1, 3]]);
        plan.remove(partition(2));
        plan.remove(partition(1));
        plan.remove(partition(3));
        plan.set(partition(2), Some(from(5, 5)), false);
        assert_eq!((plan.lane_of(partition(0)), plan.lane_of(partition(2))), (Some(0), Some(1)));
        done(&mut plan, 0, &[]);
        done(&mut plan, 1, &[]);
        let (first, second) = (next(&mut plan, false), next(&mut plan, false));
        let (first, second) = (first.expect("a request"), second.expect("a request"));
        assert_eq!((named(&first), first.forgotten), (vec![], vec![partition(2)]));
        assert_eq!((named(&second), second.forgotten), (vec![2], vec![partition(1), partition(3)]));
    }

    #[test]
    fn who_was_served_comes_last() {
        let mut plan = plan(1, 3);
        next(&mut plan, false).expect("a request");
        plan.answered(0, LaneAnswer::Session(0), &BTreeSet::from([partition(0)]));
        // Without a session every request names everything.
        assert_eq!(named(&next(&mut plan, false).expect("a request")), [1, 2, 0]);
    }

    #[test]
    fn lanes_share_the_partitions_and_the_budget() {
        let mut plan = plan(3, 4);
        let (first, second) =
            (next(&mut plan, false).expect("a request"), next(&mut plan, false).expect("a request"));
        assert_eq!((named(&first), first.max_bytes), (vec![0, 3], 100));
        assert_eq!((named(&second), second.max_bytes), (vec![1], 50));
        assert_eq!(next(&mut plan, false), None, "the budget is used up");
        done(&mut plan, 0, &[]);
        // The lane that has not asked yet comes first.
        assert_eq!(named(&next(&mut plan, false).expect("a request")), [2]);
    }

    #[test]
    fn the_throttled_wait_while_the_quota_is_exceeded() {
        let mut plan = plan(1, 2);
        plan.set(partition(0), Some(from(0, 0)), true);
        assert_eq!(named(&next(&mut plan, true).expect("a request")), [1]);
        done(&mut plan, 0, &[]);
        assert_eq!(named(&next(&mut plan, false).expect("a request")), [0]);
        done(&mut plan, 0, &[]);
        assert_eq!(next(&mut plan, true).expect("a request").forgotten, [partition(0)]);
    }

    #[test]
    fn what_is_flushed_does_not_wait_for_the_request_under_way() {
        let mut plan = plan(1, 2);
        assert_eq!(plan.report(), None, "the request will tell");
        plan.set(partition(0), Some(from(10, 4)), false);
        next(&mut plan, false).expect("a request");
        assert_eq!(plan.report(), None);
        plan.set(partition(0), Some(from(10, 10)), false);
        let report = |index, at| Some(Report { flushed: vec![(partition(index), from(at, at))], hurries: 0 });
        assert_eq!(plan.report(), report(0, 10));
        plan.set(partition(1), Some(from(0, 3)), false);
        assert_eq!(plan.report(), None, "one at a time");
        plan.report_done();
        let flushed = vec![(partition(1), from(0, 3))];
        assert_eq!(plan.report(), Some(Report { flushed, hurries: 0 }));
    }

    /// In a session leaders hear only of partitions that are named, and count as in sync only whose registration they know.
    #[test]
    fn who_has_registered_anew_names_everything_when_the_answer_is_there() {
        let mut plan = plan(1, 2);
        next(&mut plan, false).expect("a request");
        plan.begin_sessions();
        assert_eq!(plan.asked(0, partition(1)), Some(&from(0, 0)), "an answer to it is one");
        done(&mut plan, 0, &[]);
        let second = next(&mut plan, false).expect("a request");
        assert_eq!((second.session_id, second.session_epoch, named(&second)), (9, 0, vec![0, 1]));
        done(&mut plan, 0, &[]);
        assert!(named(&next(&mut plan, false).expect("a request")).is_empty());
    }

    /// It may wait for half a second, and what is acknowledged with it.
    #[test]
    fn who_comes_while_a_request_waits_has_it_answered() {
        let mut plan = plan(2, 2);
        let hurry = |hurries| Some(Report { flushed: Vec::new(), hurries });
        for _ in 0..2 {
            assert_eq!(next(&mut plan, false).expect("a request").hurries, 0);
        }
        // Who leaves, or is told more of the same, is in no hurry.
        plan.set(partition(1), None, false);
        plan.set(partition(0), Some(FetchFrom { high_watermark: Offset(1), ..from(0, 0) }), false);
        assert_eq!(plan.report(), None);
        for (index, want) in [(2, from(0, 0)), (0, from(5, 0)), (0, FetchFrom { cuts: 1, ..from(5, 0) })] {
            let before = plan.hurries;
            plan.set(partition(index), Some(want), false);
            assert_eq!(plan.report(), hurry(before + 1));
            assert_eq!(plan.report(), None);
            plan.report_done();
            assert_eq!(plan.report(), None, "once is enough");
        }
        // Both answers are there: the next requests ask for all, and are not themselves from before.
        done(&mut plan, 0, &[]);
        done(&mut plan, 1, &[]);
        plan.set(partition(3), Some(from(0, 0)), false);
        assert_eq!(plan.report(), None, "no request waits");
        assert_eq!(next(&mut plan, false).expect("a request").hurries, 3);
        // The leader compares over connections and settings.
        plan.disconnected();
        plan.configure(CONFIG);
        next(&mut plan, false).expect("a request");
        plan.set(partition(4), Some(from(0, 0)), true);
        assert_eq!(plan.report(), hurry(4));
    }

    #[test]
    fn the_throttled_are_in_no_hurry_while_the_quota_is_exceeded() {
        let mut plan = plan(1, 1);
        next(&mut plan, true).expect("a request");
        plan.set(partition(1), Some(from(0, 0)), true);
        assert_eq!(plan.report(), None);
    }
}
