//! Property tests of leaders and followers together: three nodes over modelled logs, a network that delays and whose
//! connections drop, metadata that comes late, crashes that lose what is not flushed, and a controller that elects only
//! from the in-sync set. Whatever happens in whatever order, the laws in [`World::check`] hold, and once the faults
//! stop, everything converges. [`each_deliberate_fault_is_found`] shows that the laws bite.

use std::cell::RefCell;
use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::pair_events::{Event, NODES, events};
use super::*;
use crate::fault::{self, Fault};
use crate::storage::log::{EpochCache, EpochEntry};
use crate::types::MonotonicMs;

/// A record is its epoch and a number that no other has.
type Record = (LeaderEpoch, u64);

enum Role {
    None,
    Leader(Box<Leader>),
    Follower(Follower),
}

struct Node {
    id: NodeId,
    alive: bool,
    broker_epoch: BrokerEpoch,
    records: Vec<Record>,
    epochs: EpochCache,
    log_start: Offset,
    flushed: Offset,
    high_watermark: Offset,
    /// The epoch in which the node knows itself, and its high watermark when that was last looked at.
    epoch: LeaderEpoch,
    seen: (LeaderEpoch, Offset),
    role: Role,
    proposed: Option<AlterPartition>,
    /// Questions and answers under way between this node and its leader.
    questions: VecDeque<(NodeId, Wants)>,
    reports: VecDeque<(NodeId, FetchFrom)>,
    answers: VecDeque<(Wants, Reply)>,
}

#[derive(Clone, Debug)]
enum Reply {
    Fetch(Result<(Vec<Record>, Offset, Offset), Result<EpochEnd, Refusal>>),
    Bounds(Result<Bounds, Refusal>),
}

impl Node {
    fn end(&self) -> Offset {
        Offset(self.records.len() as i64)
    }

    fn position(&self) -> LogPosition {
        LogPosition {
            log_start: self.log_start,
            high_watermark: self.high_watermark,
            flushed: self.flushed,
            log_end: self.end(),
        }
    }

    fn follower_log(&self) -> FollowerLog {
        FollowerLog { position: self.position(), last_epoch: self.epochs.latest().map(|entry| entry.epoch) }
    }

    fn cut(&mut self, to: Offset) {
        self.records.truncate(to.0 as usize);
        self.epochs.truncate_from_end(to);
        self.flushed = self.flushed.min(to);
        self.high_watermark = self.high_watermark.min(to);
        self.log_start = self.log_start.min(to);
    }

    fn push(&mut self, record: Record) {
        self.epochs.assign(record.0, self.end());
        self.records.push(record);
    }
}

struct World {
    nodes: Vec<Node>,
    now: MonotonicMs,
    durable: bool,
    // The controller's state.
    leader: usize,
    leader_epoch: i32,
    partition_epoch: i32,
    isr: Vec<NodeId>,
    next_record: u64,
    next_broker_epoch: i64,
    /// By token: where the records of an append with acks=all ended, and the last of them.
    owed: Vec<(Offset, Record)>,
    acknowledged: Vec<(Offset, Record)>,
    happened: Happened,
    /// A leader took a follower for less far than the same process of it had told in this term.
    set_back: bool,
}

/// What happened in a world, to see that the laws were put to the test.
#[derive(Clone, Copy, Debug, Default)]
struct Happened {
    acknowledged: usize,
    elections: usize,
    cuts: usize,
    starts_over: usize,
    /// Answers that came too late to count.
    stale: usize,
}

impl World {
    fn new(durable: bool) -> World {
        let node = |id: usize| Node {
            id: NodeId(id as i32),
            alive: true,
            broker_epoch: BrokerEpoch(1),
            records: Vec::new(),
            epochs: EpochCache::from_entries(std::iter::empty::<EpochEntry>()),
            log_start: Offset::ZERO,
            flushed: Offset::ZERO,
            high_watermark: Offset::ZERO,
            epoch: LeaderEpoch::UNKNOWN,
            seen: (LeaderEpoch::UNKNOWN, Offset::ZERO),
            role: Role::None,
            proposed: None,
            questions: VecDeque::new(),
            reports: VecDeque::new(),
            answers: VecDeque::new(),
        };
        let mut world = World {
            nodes: (0..NODES).map(node).collect(),
            now: MonotonicMs(0),
            durable,
            leader: 0,
            leader_epoch: 0,
            partition_epoch: 0,
            isr: (0..NODES).map(|id| NodeId(id as i32)).collect(),
            next_record: 0,
            next_broker_epoch: 2,
            owed: Vec::new(),
            acknowledged: Vec::new(),
            happened: Happened::default(),
            set_back: false,
        };
        for node in 0..NODES {
            world.metadata(node);
        }
        world
    }

    fn config(&self) -> ReplicaConfig {
        ReplicaConfig {
            min_insync_replicas: 1,
            durable_acks: self.durable,
            lag_time_max_ms: 1000,
            unclean_election: false,
        }
    }

    fn registration(&self) -> Registration {
        let standing = |node: &Node| {
            let epoch = node.broker_epoch;
            let standing =
                if node.alive { BrokerStanding::Active(epoch) } else { BrokerStanding::Fenced(epoch) };
            (node.id, standing)
        };
        Registration {
            leader_epoch: LeaderEpoch(self.leader_epoch),
            partition_epoch: PartitionEpoch(self.partition_epoch),
            replicas: self.nodes.iter().map(standing).collect(),
            isr: self.isr.clone(),
        }
    }

    fn step(&mut self, event: &Event) -> Result<(), String> {
        match *event {
            Event::Append { records } => self.append(records),
            Event::Flush { node, all } => self.flush(node, all),
            Event::Send { node } => self.send(node),
            Event::Deliver { node, max_records } => self.deliver(node, max_records),
            Event::Report { node } => self.report(node),
            Event::DeliverReport { node } => self.deliver_report(node),
            Event::Answer { node } => self.answer(node)?,
            Event::Drop { node } => self.disconnect(node),
            Event::Crash { node } => self.crash(node),
            Event::Restart { node } => self.restart(node),
            Event::Elect { node } => self.elect(node),
            Event::Metadata { node } => self.metadata(node),
            Event::Alter { node, unknown } => self.alter(node, unknown),
            Event::Pass { ms } => self.pass(ms),
            Event::DeleteRecords => self.delete_records(),
        }
        self.check()
    }

    /// Carries out the effects of a leader.
    fn lead(&mut self, at: usize, out: Vec<Effect>) {
        for effect in out {
            match effect {
                Effect::HighWatermark(offset) => self.nodes[at].high_watermark = offset,
                Effect::Answer { token, result: Ok(()) } => {
                    self.acknowledged.push(self.owed[token.0 as usize]);
                }
                Effect::Answer { .. } => {}
                Effect::AlterPartition(alter) => self.nodes[at].proposed = Some(alter),
            }
        }
    }

    /// Carries out the effects of a follower; `records` came with the answer.
    fn follow(&mut self, at: usize, records: &[Record], out: Vec<FollowerEffect>) -> Result<(), String> {
        let now = self.now;
        let node = &mut self.nodes[at];
        if !matches!(node.role, Role::Follower(_)) {
            return Ok(());
        }
        let Role::Follower(mut follower) = std::mem::replace(&mut node.role, Role::None) else {
            return Ok(());
        };
        let mut effects = VecDeque::from(out);
        let mut more = Vec::new();
        while let Some(effect) = effects.pop_front() {
            match effect {
                FollowerEffect::Append { expected, up_to_epoch } => {
                    if expected != node.end() {
                        return Err("an append does not follow the log's end".into());
                    }
                    for record in records.iter().take_while(|record| record.0 <= up_to_epoch) {
                        node.push(*record);
                    }
                    let last = node.epochs.latest().map(|entry| entry.epoch);
                    follower.appended(Ok((node.end(), last)), now, &mut more);
                }
                FollowerEffect::Truncate { to } => {
                    self.happened.cuts += usize::from(to < node.end());
                    node.cut(to);
                    follower.truncated(Ok(node.follower_log()), now, &mut more);
                }
                FollowerEffect::StartAt { at } => {
                    // Model: what was deleted at the leader keeps its places, filled with nothing.
                    self.happened.starts_over += 1;
                    node.cut(Offset::ZERO);
                    node.records.resize(at.0 as usize, (LeaderEpoch::UNKNOWN, 0));
                    (node.log_start, node.flushed, node.high_watermark) = (at, at, at);
                    follower.truncated(Ok(node.follower_log()), now, &mut more);
                }
                FollowerEffect::HighWatermark(offset) => {
                    if offset > node.end() {
                        return Err("the high watermark passes the log's end".into());
                    }
                    node.high_watermark = offset;
                }
                FollowerEffect::LogStart(offset) => {
                    node.log_start = offset;
                    node.epochs.truncate_from_start(offset);
                }
                FollowerEffect::Stopped(why) => return Err(format!("stopped: {why:?}")),
            }
            effects.extend(more.drain(..));
        }
        node.role = Role::Follower(follower);
        Ok(())
    }

    fn append(&mut self, records: u8) {
        // Whoever believes to lead takes appends, also when it is so no longer.
        for at in 0..NODES {
            let (now, node) = (self.now, &mut self.nodes[at]);
            let Role::Leader(leader) = &mut node.role else { continue };
            if leader.check_append(Acks::All).is_err() {
                continue;
            }
            let epoch = node.epoch;
            for _ in 0..records {
                self.next_record += 1;
                node.epochs.assign(epoch, Offset(node.records.len() as i64));
                node.records.push((epoch, self.next_record));
            }
            let end = Offset(node.records.len() as i64);
            let mut out = Vec::new();
            let token = AckToken(self.owed.len() as u64);
            self.owed.push((end, (epoch, self.next_record)));
            leader.append_done(end, now, &mut out);
            leader.await_ack(token, Acks::All, end, now.plus(100_000), &mut out);
            self.lead(at, out);
        }
    }

    fn flush(&mut self, at: usize, all: bool) {
        let (now, node) = (self.now, &mut self.nodes[at]);
        let unflushed = node.end().since(node.flushed);
        node.flushed = if all { node.end() } else { node.flushed.plus(unflushed / 2) };
        let mut out = Vec::new();
        match &mut node.role {
            Role::Leader(leader) => leader.flushed(node.flushed, now, &mut out),
            Role::Follower(follower) => follower.flushed(node.flushed),
            Role::None => {}
        }
        self.lead(at, out);
    }

    fn send(&mut self, at: usize) {
        let (now, node) = (self.now, &mut self.nodes[at]);
        let Role::Follower(follower) = &node.role else { return };
        if node.questions.len() + node.answers.len() >= 3 {
            return;
        }
        match follower.wants(now) {
            Wants::Nothing { .. } => {}
            wants => node.questions.push_back((follower.leader(), wants)),
        }
    }

    fn report(&mut self, at: usize) {
        let (now, node) = (self.now, &mut self.nodes[at]);
        let Role::Follower(follower) = &node.role else { return };
        if let Wants::Fetch(fetch) = follower.wants(now)
            && node.reports.len() < 3
        {
            node.reports.push_back((follower.leader(), fetch));
        }
    }

    fn deliver_report(&mut self, from: usize) {
        let Some((leader, fetch)) = self.nodes[from].reports.pop_front() else { return };
        let at = leader.0 as usize;
        if self.nodes[at].alive {
            // Nobody cares for the answer.
            let _ = self.serve(at, from, &fetch, 0);
        }
    }

    fn deliver(&mut self, from: usize, max_records: usize) {
        let Some((leader, wants)) = self.nodes[from].questions.pop_front() else { return };
        let at = leader.0 as usize;
        if !self.nodes[at].alive {
            return self.disconnect(from);
        }
        let reply = match &wants {
            Wants::Fetch(fetch) => Reply::Fetch(self.serve(at, from, fetch, max_records)),
            Wants::Bounds(query) => {
                let node = &self.nodes[at];
                let bounds = Bounds { log_start: node.log_start, log_end: node.end() };
                Reply::Bounds(self.fence(at, query.current_leader_epoch).map(|()| bounds))
            }
            Wants::Nothing { .. } => return,
        };
        self.nodes[from].answers.push_back((wants, reply));
    }

    fn fence(&self, at: usize, asked: LeaderEpoch) -> Result<(), Refusal> {
        let node = &self.nodes[at];
        match asked.cmp(&node.epoch) {
            std::cmp::Ordering::Less => Err(Refusal::FencedLeaderEpoch),
            std::cmp::Ordering::Greater => Err(Refusal::UnknownLeaderEpoch),
            std::cmp::Ordering::Equal if matches!(node.role, Role::Leader(_)) => Ok(()),
            std::cmp::Ordering::Equal => Err(Refusal::NotLeader),
        }
    }

    /// A fetch, as a leader's driver serves it.
    fn serve(
        &mut self,
        at: usize,
        from: usize,
        fetch: &FetchFrom,
        max_records: usize,
    ) -> Result<(Vec<Record>, Offset, Offset), Result<EpochEnd, Refusal>> {
        self.fence(at, fetch.current_leader_epoch).map_err(Err)?;
        let broker_epoch = self.nodes[from].broker_epoch;
        let now = self.now;
        let node = &mut self.nodes[at];
        if let Some(last) = fetch.last_fetched_epoch {
            let known = node.epochs.end_offset_for(last, node.end());
            let (epoch, end) = known.ok_or(Err(Refusal::OffsetOutOfRange))?;
            if epoch < last || end < fetch.offset {
                return Err(Ok(EpochEnd { epoch, end }));
            }
        }
        if fetch.offset < node.log_start || fetch.offset > node.end() {
            return Err(Err(Refusal::OffsetOutOfRange));
        }
        let Role::Leader(leader) = &mut node.role else { return Err(Err(Refusal::NotLeader)) };
        let fetched = FollowerFetch {
            follower: NodeId(from as i32),
            broker_epoch,
            fetch_offset: fetch.offset,
            flushed_offset: Some(fetch.flushed),
            log_start: fetch.log_start,
        };
        let (mut out, before) = (Vec::new(), leader.known_of(fetched.follower));
        if leader.follower_fetched(&fetched, now, &mut out).is_err() {
            return Err(Err(Refusal::Other));
        }
        if let (Some(before), Some(after)) = (before, leader.known_of(fetched.follower)) {
            let is_set_back = after.1 < before.1 || after.2 < before.2;
            self.set_back |= before.0 == after.0 && is_set_back;
        }
        self.lead(at, out);
        let node = &self.nodes[at];
        let records = node.records[fetch.offset.0 as usize..].iter().take(max_records).copied().collect();
        Ok((records, node.high_watermark, node.log_start))
    }

    fn answer(&mut self, at: usize) -> Result<(), String> {
        let now = self.now;
        let node = &mut self.nodes[at];
        let Some((wants, reply)) = node.answers.pop_front() else { return Ok(()) };
        let Role::Follower(follower) = &mut node.role else { return Ok(()) };
        let (mut out, mut came) = (Vec::new(), Vec::new());
        match (wants, reply) {
            (Wants::Fetch(asked), Reply::Fetch(reply)) => {
                let answer = match reply {
                    Ok((records, high_watermark, log_start)) => {
                        came = records;
                        FetchAnswer::Agrees { has_records: !came.is_empty(), high_watermark, log_start }
                    }
                    Err(Ok(theirs)) => {
                        let end = Offset(node.records.len() as i64);
                        let ours = node.epochs.end_offset_for(theirs.epoch, end);
                        FetchAnswer::Diverges {
                            theirs,
                            ours: ours.map(|(epoch, end)| EpochEnd { epoch, end }),
                        }
                    }
                    Err(Err(refusal)) => FetchAnswer::Refused(refusal),
                };
                let stale = matches!(follower.wants(now), Wants::Fetch(from) if from.cuts != asked.cuts);
                self.happened.stale += usize::from(stale);
                follower.answered(&asked, answer, now, &mut out);
            }
            (Wants::Bounds(asked), Reply::Bounds(reply)) => follower.bounds(&asked, reply, now, &mut out),
            _ => return Ok(()),
        }
        self.follow(at, &came, out)
    }

    fn disconnect(&mut self, at: usize) {
        let (now, node) = (self.now, &mut self.nodes[at]);
        node.questions.clear();
        node.reports.clear();
        node.answers.clear();
        if let Role::Follower(follower) = &mut node.role {
            follower.disconnected(now);
        }
    }

    fn crash(&mut self, at: usize) {
        let durable = self.durable;
        let node = &mut self.nodes[at];
        if !std::mem::replace(&mut node.alive, false) {
            return;
        }
        if durable {
            node.cut(node.flushed);
        }
        node.role = Role::None;
        node.proposed = None;
        node.seen = (LeaderEpoch::UNKNOWN, Offset::ZERO);
        self.disconnect(at);
        // The controller takes it out of the in-sync set, unless nobody else is in it, and elects another leader.
        let id = NodeId(at as i32);
        if self.isr != [id] && self.isr.contains(&id) {
            self.isr.retain(|member| *member != id);
            self.partition_epoch += 1;
        }
        if self.leader == at
            && let Some(next) = self.isr.first()
        {
            self.elect(next.0 as usize);
        }
    }

    fn restart(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if std::mem::replace(&mut node.alive, true) {
            return;
        }
        node.broker_epoch = BrokerEpoch(self.next_broker_epoch);
        node.epoch = LeaderEpoch::UNKNOWN;
        self.next_broker_epoch += 1;
        if self.leader == at {
            self.leader_epoch += 1;
            self.partition_epoch += 1;
        }
    }

    fn elect(&mut self, at: usize) {
        if self.nodes[at].alive && self.isr.contains(&NodeId(at as i32)) {
            self.leader = at;
            self.leader_epoch += 1;
            self.partition_epoch += 1;
        }
    }

    fn metadata(&mut self, at: usize) {
        let (registration, config, now) = (self.registration(), self.config(), self.now);
        let term = Term {
            leader: NodeId(self.leader as i32),
            leader_epoch: registration.leader_epoch,
            lossy_epoch: LeaderEpoch::UNKNOWN,
            may_lack_committed: false,
        };
        let leads = self.leader == at;
        let node = &mut self.nodes[at];
        if !node.alive {
            return;
        }
        let known = std::mem::replace(&mut node.epoch, registration.leader_epoch);
        let (mut out, mut effects) = (Vec::new(), Vec::new());
        match &mut node.role {
            Role::Leader(leader) if leads => {
                if known < registration.leader_epoch {
                    node.epochs.assign(registration.leader_epoch, Offset(node.records.len() as i64));
                }
                leader.registration(&registration, now, &mut out);
            }
            Role::Follower(follower) if !leads => {
                // The connection to the same leader stays, with what is under way on it.
                if follower.leader() != term.leader {
                    node.questions.clear();
                    node.reports.clear();
                    node.answers.clear();
                }
                follower.term(term, &mut effects);
            }
            role if leads => {
                *role = Role::None;
                node.questions.clear();
                node.reports.clear();
                node.answers.clear();
                node.epochs.assign(registration.leader_epoch, Offset(node.records.len() as i64));
                let log = node.position();
                node.role =
                    Role::Leader(Box::new(Leader::new(node.id, &registration, log, config, now, &mut out)));
            }
            role => {
                if let Role::Leader(leader) = std::mem::replace(role, Role::None) {
                    leader.resign(&mut out);
                }
                node.proposed = None;
                let config = FollowerConfig { backoff_max_ms: 200 };
                node.role = Role::Follower(Follower::new(term, node.follower_log(), config, &mut effects));
            }
        }
        self.lead(at, out);
        self.follow(at, &[], effects).expect("a follower that begins a term");
    }

    fn alter(&mut self, at: usize, unknown: bool) {
        let now = self.now;
        let Some(alter) = self.nodes[at].proposed.take() else { return };
        let current = alter.leader_epoch.0 == self.leader_epoch
            && alter.partition_epoch.0 == self.partition_epoch
            && self.leader == at;
        let eligible = alter.isr.iter().all(|(member, epoch)| {
            let node = &self.nodes[member.0 as usize];
            node.alive && (*epoch == BrokerEpoch::UNKNOWN || *epoch == node.broker_epoch)
        });
        let outcome = if !current {
            AlterOutcome::Superseded
        } else if !eligible {
            AlterOutcome::Refused
        } else {
            self.isr = alter.isr.iter().map(|(member, _)| *member).collect();
            self.partition_epoch += 1;
            AlterOutcome::Applied {
                leader_epoch: LeaderEpoch(self.leader_epoch),
                partition_epoch: PartitionEpoch(self.partition_epoch),
                isr: self.isr.clone(),
            }
        };
        let outcome = if unknown { AlterOutcome::Unknown } else { outcome };
        let mut out = Vec::new();
        if let Role::Leader(leader) = &mut self.nodes[at].role {
            leader.alter_done(alter.partition_epoch, outcome, now, &mut out);
        }
        self.lead(at, out);
    }

    fn pass(&mut self, ms: i64) {
        self.now = self.now.plus(ms);
        for at in 0..NODES {
            let mut out = Vec::new();
            if let Role::Leader(leader) = &mut self.nodes[at].role {
                leader.tick(self.now, &mut out);
            }
            self.lead(at, out);
        }
    }

    fn delete_records(&mut self) {
        let node = &mut self.nodes[self.leader];
        if let Role::Leader(leader) = &mut node.role {
            let mut out = Vec::new();
            node.log_start = node.high_watermark;
            node.epochs.truncate_from_start(node.log_start);
            leader.log_start_moved(node.log_start, &mut out);
            self.lead(self.leader, out);
        }
    }

    fn check(&mut self) -> Result<(), String> {
        if self.set_back {
            return Err("a follower is set back by what it told before".into());
        }
        for node in &mut self.nodes {
            if node.alive {
                let now = (node.epoch, node.high_watermark);
                if now.0 == node.seen.0 && now.1 < node.seen.1 {
                    return Err(format!("the high watermark of {} falls within an epoch", node.id));
                }
                node.seen = now;
                if node.high_watermark > node.end() || node.log_start > node.high_watermark {
                    return Err("the ruler is broken".into());
                }
            }
        }
        for one in &self.nodes {
            for other in &self.nodes {
                let from = one.log_start.max(other.log_start).0 as usize;
                let upto = one.high_watermark.min(other.high_watermark).0 as usize;
                if from < upto && one.records[from..upto] != other.records[from..upto] {
                    return Err(format!("{} and {} differ below the high watermark", one.id, other.id));
                }
            }
        }
        for (end, record) in &self.acknowledged {
            for member in &self.isr {
                let node = &self.nodes[member.0 as usize];
                let at = (end.0 - 1) as usize;
                if *end > node.log_start && node.records.get(at) != Some(record) {
                    return Err(format!("in-sync {member} lost the acknowledged record at {at}"));
                }
            }
        }
        Ok(())
    }

    /// No more faults: everything comes to rest with equal logs and a full in-sync set.
    fn converge(&mut self) -> Result<(), String> {
        for at in 0..NODES {
            self.restart(at);
        }
        if !self.isr.contains(&NodeId(self.leader as i32)) {
            self.elect(self.isr[0].0 as usize);
        }
        for _ in 0..400 {
            for at in 0..NODES {
                for event in [
                    Event::Metadata { node: at },
                    Event::Send { node: at },
                    Event::Deliver { node: at, max_records: 10 },
                    Event::Answer { node: at },
                    Event::Flush { node: at, all: true },
                    Event::Alter { node: at, unknown: false },
                ] {
                    self.step(&event)?;
                }
            }
            self.step(&Event::Pass { ms: 10 })?;
            let leader = &self.nodes[self.leader];
            let from = self.nodes.iter().map(|node| node.log_start.0).max().unwrap_or(0) as usize;
            let rests = |node: &Node| {
                node.records.get(from..) == leader.records.get(from..) && node.high_watermark == leader.end()
            };
            if self.isr.len() == NODES && self.nodes.iter().all(rests) {
                return Ok(());
            }
        }
        Err("the replicas do not converge".into())
    }
}

fn run(durable: bool, events: &[Event]) -> Result<Happened, TestCaseError> {
    let mut world = World::new(durable);
    for event in events {
        world.step(event).map_err(TestCaseError::fail)?;
    }
    world.converge().map_err(TestCaseError::fail)?;
    let (acknowledged, elections) = (world.acknowledged.len(), world.leader_epoch as usize);
    Ok(Happened { acknowledged, elections, ..world.happened })
}

proptest! {
    #![proptest_config(Config { cases: 200, ..Config::default() })]
    #[test]
    fn what_is_acknowledged_stays_and_replicas_converge(durable in any::<bool>(), events in events()) {
        run(durable, &events)?;
    }
}

/// Always the same cases.
fn runner(cases: u32) -> TestRunner {
    let config = Config { cases, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

#[test]
fn the_laws_are_put_to_the_test() {
    let all = RefCell::new(Happened::default());
    let outcome = runner(150).run(&(any::<bool>(), events()), |(durable, events)| {
        let happened = run(durable, &events)?;
        let mut all = all.borrow_mut();
        all.acknowledged += happened.acknowledged;
        all.elections += happened.elections;
        all.cuts += happened.cuts;
        all.starts_over += happened.starts_over;
        all.stale += happened.stale;
        Ok(())
    });
    outcome.expect("the laws hold");
    let all = all.into_inner();
    assert!(all.acknowledged > 100 && all.elections > 100, "{all:?}");
    assert!(all.cuts > 10 && all.starts_over > 0 && all.stale > 10, "{all:?}");
}

#[test]
fn each_deliberate_fault_is_found() {
    for fault in Fault::OF_FOLLOWER.into_iter().chain(Fault::OF_PAIR) {
        let strategy = (any::<bool>(), events());
        let test = |(durable, events): (bool, Vec<Event>)| run(durable, &events).map(drop);
        let found = fault::with(fault, || runner(2000).run(&strategy, test));
        assert!(found.is_err(), "{fault:?} is not found");
    }
}
