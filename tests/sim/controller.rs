//! One controller: the product's decisions on what it has applied of the metadata log, and its judgement of who lives. While it
//! takes itself for the active one it does a controller's duties; what is decided by it while another one leads goes to that
//! one. Who asks may never hear what became of it.
//!
//! Must not know what brokers make of it. Invariant: what it was not in office for when it was decided, it does not answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;

use super::context::{Context, ControllerEvent, Event, Ms, note};
use super::network::{Body, Caller, Place};
use super::quorum::Log;
use super::repairing::{Heard, Word};
use crate::controller::ProposeError;
use crate::controller::deciding::{Asked as Deciding, Command, Waiting, command_of, decide_all};
use crate::controller::duties::judgement;
use crate::controller::raft_types::Batch;
use crate::metadata::alter_partition::{AlterPartitionReply, ProposedIsr, alter_partition};
use crate::metadata::brokers::{
    self, BrokerEpochError, Heartbeat, HeartbeatReply, RegisterBrokerError, Registration,
};
use crate::metadata::configs::ConfigRules;
use crate::metadata::elect_leaders::{ElectionType, elect_leaders};
use crate::metadata::election::ElectionDefaults;
use crate::metadata::liveness::{Liveness, LivenessConfig, ProbeOutcome, TICK_MS, Verdict};
use crate::metadata::producer_ids::{AllocateProducerIdsError, ProducerIdBlock, allocate};
use crate::metadata::reassign::{Reassignment, reassign};
use crate::metadata::topics::{
    CreateTopicsOptions, NewTopic, TopicRef, create_topics, delete_topics, give_up_replicas, place_replicas,
    take_back_replicas,
};
use crate::metadata::unclean::LogEnds;
use crate::metadata::{Decision, Image, Record};
use crate::types::{BrokerEpoch, DirectoryId, MonotonicMs, NodeId, TopicIdPartition, TopicPartition};

const DEFAULTS: ElectionDefaults =
    ElectionDefaults { min_insync_replicas: 1, unclean_leader_election: false };
const BATCH_BYTES: usize = 1 << 20;
const PROBE_LIMIT_MS: Ms = 400;
/// A little more than the pause between two dials.
const REDIAL_MS: Ms = 31;
/// How long it takes to find out that there is still no other leader.
const AGAIN_MS: Ms = 50;

#[derive(Clone, Debug)]
pub enum Request {
    Register(Registration),
    /// With whom the broker waits for in vain, and for how long.
    Heartbeat(Heartbeat, Vec<(NodeId, i64)>),
    Alter {
        leader: NodeId,
        epoch: BrokerEpoch,
        proposals: Vec<ProposedIsr>,
    },
    Place {
        broker: NodeId,
        epoch: BrokerEpoch,
        placed: Vec<(TopicIdPartition, DirectoryId)>,
    },
    ProducerIds {
        broker: NodeId,
        epoch: BrokerEpoch,
    },
    /// Of damaged replicas.
    Repair {
        broker: NodeId,
        epoch: BrokerEpoch,
        word: Word,
    },
    Create(NewTopic),
    Delete(Arc<str>),
    Elect(TopicPartition),
    Reassign(Reassignment),
    Unregister(NodeId),
}

impl Request {
    /// Whether it is for the active controller to decide.
    fn is_for_office(&self) -> bool {
        matches!(self, Request::Register(_) | Request::Heartbeat(..) | Request::Alter { .. })
    }
}

#[derive(Clone, Debug)]
pub enum Answer {
    Registered(Result<BrokerEpoch, RegisterBrokerError>),
    Heard(Result<HeartbeatReply, BrokerEpochError>),
    Altered(AlterPartitionReply),
    Placed,
    ProducerIds(Result<ProducerIdBlock, AllocateProducerIdsError>),
    /// With the replicas that were given up.
    Repaired(Heard),
    Done,
    /// This controller is not the active one, as it knows.
    NotController,
    /// There was none in time. Nobody knows more.
    Failed,
}

/// Somebody waits for a decision.
struct Asked {
    caller: Caller,
    from: Place,
    call: u64,
    /// In which term this was asked for.
    term: Option<u64>,
    answer: oneshot::Receiver<Result<Answer, ProposeError>>,
}

/// A batch under way.
struct Proposed {
    batch: Batch,
    commands: Vec<Box<dyn Command>>,
}

/// What a controller knows by itself, which its decisions look at when they are taken.
#[derive(Default)]
struct Mind {
    now: MonotonicMs,
    /// The term in which it takes itself for the active one, and who lives as it judges it.
    office: Option<(u64, Liveness)>,
}

pub struct Controller {
    at: usize,
    /// What it has applied.
    image: Arc<Image>,
    mind: Arc<Mutex<Mind>>,
    /// The newest term that it knows of, and who leads in it.
    knows: (u64, usize),
    waiting: Waiting,
    asked: Vec<Asked>,
    proposed: Option<Proposed>,
    is_deciding: bool,
    /// The brokers that have a connection to it.
    present: BTreeSet<(NodeId, BrokerEpoch)>,
    probes: BTreeMap<u64, (NodeId, BrokerEpoch)>,
    pub paused_until: Ms,
    session_ms: Ms,
}

impl Controller {
    pub fn new(at: usize, image: Arc<Image>, session_ms: Ms) -> Controller {
        Controller {
            at,
            image,
            mind: Arc::default(),
            knows: (0, 0),
            waiting: Waiting::new(),
            asked: Vec::new(),
            proposed: None,
            is_deciding: false,
            present: BTreeSet::new(),
            probes: BTreeMap::new(),
            paused_until: 0,
            session_ms,
        }
    }

    fn mind(&self) -> MutexGuard<'_, Mind> {
        self.mind.lock().expect("one thread")
    }

    fn term(&self) -> Option<u64> {
        self.mind().office.as_ref().map(|(term, _)| *term)
    }

    fn with_liveness<R>(&self, act: impl FnOnce(&mut Liveness, MonotonicMs) -> R) -> Option<R> {
        let mut mind = self.mind();
        let now = mind.now;
        mind.office.as_mut().map(|(_, liveness)| act(liveness, now))
    }

    /// What it has proposed and not heard of.
    pub fn under_way(&self) -> Option<Batch> {
        self.proposed.as_ref().map(|proposed| proposed.batch.clone())
    }

    /// Its process ends, and another one begins with the same log.
    pub fn end(&mut self, context: &Context) {
        let fresh = Controller::new(self.at, self.image.clone(), self.session_ms);
        let (knows, paused_until) = (self.knows, context.now.min(self.paused_until));
        *self = Controller { knows, paused_until, ..fresh };
    }

    pub fn resign(&mut self) {
        self.mind().office = None;
    }

    fn learn(&mut self, context: &Context, image: &Arc<Image>) {
        if image.version > self.image.version {
            self.image = image.clone();
            let now = MonotonicMs(context.now);
            self.with_liveness(|liveness, _| liveness.follow(&image.brokers, now));
        }
    }

    fn learn_of(&mut self, term: u64, leader: usize) {
        if term > self.knows.0 {
            self.knows = (term, leader);
            if self.term().is_some_and(|own| own < term) {
                self.resign();
            }
        }
    }

    pub fn on(&mut self, context: &mut Context, log: &mut Log, what: ControllerEvent) {
        self.mind().now = MonotonicMs(context.now);
        match what {
            ControllerEvent::Decide => self.decide(context),
            ControllerEvent::Commit => self.settle(context, log),
            ControllerEvent::Lead(term) if term == log.term => self.lead(context, log),
            ControllerEvent::Apply => self.learn(context, &log.head),
            ControllerEvent::Resign(term) => self.learn_of(term, log.leader),
            ControllerEvent::Tick(term) if self.term() == Some(term) => {
                self.after(context, TICK_MS, ControllerEvent::Tick(term));
                self.judge(context);
            }
            ControllerEvent::Judge => self.judge(context),
            ControllerEvent::ProbeTimeout(probe) => self.probed(context, probe, ProbeOutcome::Unanswered),
            ControllerEvent::Lead(_) | ControllerEvent::Tick(_) => {}
        }
    }

    fn after(&self, context: &mut Context, ms: Ms, what: ControllerEvent) {
        context.after(ms, Event::Controller { at: self.at, what });
    }

    /// It is elected: it has all that is committed, and applies it in a moment.
    fn lead(&mut self, context: &mut Context, log: &Log) {
        let now = MonotonicMs(context.now);
        self.knows = (log.term, self.at);
        let config = LivenessConfig::new(self.session_ms);
        let liveness = Liveness::new(config, None, &self.image.brokers, now);
        self.mind().office = Some((log.term, liveness));
        self.probes.clear();
        let delay = context.chance.between(0, 15);
        self.after(context, delay, ControllerEvent::Apply);
        self.after(context, 0, ControllerEvent::Tick(log.term));
    }

    pub fn arrives(&mut self, context: &mut Context, from: Place, body: Body) {
        self.mind().now = MonotonicMs(context.now);
        match body {
            Body::Call { caller, call, request } => self.ask(context, from, caller, call, request),
            Body::Poll => {
                let (term, leader) = self.knows;
                let body = Body::Published { image: self.image.clone(), term, leader };
                context.send(Place::Controller(self.at), from, body);
            }
            Body::Published { image, term, leader } => {
                self.learn(context, &image);
                self.learn_of(term, leader);
            }
            Body::Probed { probe, outcome } => self.probed(context, probe, outcome),
            Body::Closed(id, epoch) if self.present.remove(&(id, epoch)) => {
                self.with_liveness(|liveness, now| liveness.disconnected(id, epoch, now));
                self.after(context, 0, ControllerEvent::Judge);
            }
            _ => {}
        }
    }

    pub fn ask(&mut self, context: &mut Context, from: Place, caller: Caller, call: u64, request: Request) {
        if let Request::Heartbeat(heartbeat, silent) = &request {
            self.hear(context, heartbeat, silent);
        }
        let term = self.term();
        let (command, answer) = self.command(context, request, term);
        self.waiting.push_back(command);
        self.asked.push(Asked { caller, from, call, term, answer });
        self.decide_soon(context);
    }

    fn hear(&mut self, context: &mut Context, heartbeat: &Heartbeat, silent: &[(NodeId, i64)]) {
        let (id, epoch, image) = (heartbeat.id, heartbeat.epoch, self.image.clone());
        let is_odd =
            self.with_liveness(|liveness, now| judgement::hear(&image, liveness, heartbeat, silent, now));
        if brokers::check_epoch(&image, id, epoch).is_ok() && self.present.insert((id, epoch)) {
            self.with_liveness(|liveness, _| liveness.connected(id, epoch));
        }
        if is_odd == Some(true) {
            self.after(context, 0, ControllerEvent::Judge);
        }
    }

    fn command(&self, context: &mut Context, request: Request, term: Option<u64>) -> Deciding<Answer> {
        let mind = self.mind.clone();
        let seed = context.chance.next();
        let bound = term.filter(|_| request.is_for_office());
        command_of(bound, move |image: &Image| {
            let mut mind = mind.lock().expect("one thread");
            let now = mind.now;
            let liveness = mind.office.as_mut().filter(|(now, _)| Some(*now) == term);
            decide(image, request.clone(), liveness.map(|(_, liveness)| liveness), now, seed)
                .unwrap_or_else(|| Decision::reply(Answer::NotController))
        })
    }

    fn decide_soon(&mut self, context: &mut Context) {
        if !self.is_deciding && self.proposed.is_none() {
            self.is_deciding = true;
            let delay = context.chance.between(0, 2);
            self.after(context, delay, ControllerEvent::Decide);
        }
    }

    fn decide(&mut self, context: &mut Context) {
        self.is_deciding = false;
        if self.proposed.is_some() || self.waiting.is_empty() {
            return;
        }
        let (mut batch, commands) = decide_all(&self.image, &mut self.waiting, BATCH_BYTES);
        batch.tag = context.unique();
        self.proposed = Some(Proposed { batch, commands });
        let slow = !context.calm && context.chance.permille(15);
        let delay = if slow { context.chance.between(50, 800) } else { context.chance.between(1, 5) };
        self.after(context, delay, ControllerEvent::Commit);
    }

    /// Whether what it offers reaches the controller that leads.
    fn reaches_leader(&self, log: &Log) -> bool {
        match self.term() {
            Some(term) => term == log.term,
            None => self.knows == (log.term, log.leader),
        }
    }

    /// The log takes the batch under way, or does not.
    fn settle(&mut self, context: &mut Context, log: &mut Log) {
        let Some(Proposed { batch, mut commands }) = self.proposed.take() else { return };
        if !self.reaches_leader(log) {
            commands.retain(|command| !command.is_abandoned());
            if !commands.is_empty() {
                self.proposed = Some(Proposed { batch, commands });
                self.after(context, AGAIN_MS, ControllerEvent::Commit);
                return;
            }
        }
        // Somebody else may have come first.
        if !context.calm && context.chance.permille(10) {
            let record = Record::NoOp(Default::default());
            log.append(context, vec![record]);
        }
        let is_taken = log.has_taken(&batch);
        if !is_taken && !log.fits(&batch) {
            for command in commands.into_iter().rev() {
                self.waiting.push_front(command);
            }
            note!(context, "stale: {} of {}", batch.base, log.head.version);
            self.learn(context, &log.head);
        } else {
            if !is_taken {
                log.commit(context, &batch);
            }
            self.learn(context, &log.head);
            for command in commands {
                command.answer(Ok(()));
            }
            self.send_answers(context);
        }
        if !self.waiting.is_empty() {
            self.decide_soon(context);
        }
    }

    fn send_answers(&mut self, context: &mut Context) {
        let (mut still, term) = (Vec::new(), self.term());
        for mut asked in std::mem::take(&mut self.asked) {
            let answer = match asked.answer.try_recv() {
                // As in the product: another controller knows nothing of the lease.
                Ok(Ok(Answer::Heard(Ok(_)))) if asked.term != term => Answer::NotController,
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Answer::Failed,
                Err(oneshot::error::TryRecvError::Empty) => {
                    still.push(asked);
                    continue;
                }
                Err(oneshot::error::TryRecvError::Closed) => Answer::Failed,
            };
            let (caller, call, image) = (asked.caller, asked.call, self.image.clone());
            let body = Body::Answer { caller, call, image, answer };
            context.send(Place::Controller(self.at), asked.from, body);
        }
        self.asked = still;
    }

    /// Has those dialled who may be gone, and fences whom this controller condemns.
    fn judge(&mut self, context: &mut Context) {
        let Some(term) = self.term() else { return };
        for verdict in self.with_liveness(Liveness::tick).unwrap_or_default() {
            match verdict {
                Verdict::Probe(id, epoch) => {
                    let probe = context.unique();
                    self.probes.insert(probe, (id, epoch));
                    context.send(Place::Controller(self.at), Place::Node(id.0), Body::Probe(probe));
                    self.after(context, PROBE_LIMIT_MS, ControllerEvent::ProbeTimeout(probe));
                }
                Verdict::Fence(id, epoch, cause) => {
                    note!(context, "broker {id} is to be fenced: {cause}");
                    let mind = self.mind.clone();
                    let (command, _) = command_of(Some(term), move |image: &Image| {
                        let mind = mind.lock().expect("one thread");
                        match &mind.office {
                            Some((now, liveness)) if *now == term => {
                                judgement::fence(image, liveness, (id, epoch), DEFAULTS, mind.now)
                            }
                            _ => Decision::reply(false),
                        }
                    });
                    self.waiting.push_back(Box::new(Kept(command)));
                }
            }
        }
        if !self.waiting.is_empty() {
            self.decide_soon(context);
        }
    }

    /// A probe has found something.
    fn probed(&mut self, context: &mut Context, probe: u64, outcome: ProbeOutcome) {
        let Some((id, epoch)) = self.probes.remove(&probe) else { return };
        note!(context, "broker {id} is probed: {outcome:?}");
        self.with_liveness(|liveness, now| liveness.probed(id, epoch, outcome, now));
        self.after(context, 0, ControllerEvent::Judge);
        if outcome == ProbeOutcome::Refused {
            self.after(context, REDIAL_MS, ControllerEvent::Judge);
        }
    }

    /// The process of this broker is gone, and its connections break.
    pub fn disconnected(&mut self, context: &mut Context, id: NodeId) {
        let gone: Vec<_> = self.present.extract_if(.., |(of, _)| *of == id).collect();
        for (id, epoch) in gone {
            let now = MonotonicMs(context.now);
            self.with_liveness(|liveness, _| liveness.disconnected(id, epoch, now));
        }
        self.after(context, 0, ControllerEvent::Judge);
    }
}

/// What is decided. `None`: it is the active controller's to decide, and this one is not.
fn decide(
    image: &Image,
    request: Request,
    liveness: Option<&mut Liveness>,
    now: MonotonicMs,
    seed: u64,
) -> Option<Decision<Answer>> {
    Some(match request {
        Request::Register(registration) => {
            judgement::register(image, liveness?, &registration, DEFAULTS, now).map(Answer::Registered)
        }
        Request::Heartbeat(heartbeat, _) => {
            judgement::heartbeat(image, liveness?, &heartbeat, DEFAULTS, now).map(Answer::Heard)
        }
        Request::Alter { leader, epoch, proposals } => {
            liveness?;
            alter_partition(image, leader, epoch, &proposals, DEFAULTS).map(Answer::Altered)
        }
        // Any node decides on these.
        Request::Place { broker, epoch, placed } => {
            place_replicas(image, broker, epoch, &placed, DEFAULTS).map(|_| Answer::Placed)
        }
        Request::ProducerIds { broker, epoch } => allocate(image, broker, epoch).map(Answer::ProducerIds),
        Request::Repair { broker, epoch, word: Word::TakeBack(rebuilt) } => {
            take_back_replicas(image, broker, epoch, &rebuilt, DEFAULTS)
                .map(|taken| Answer::Repaired(taken.ok().map(|()| Vec::new())))
        }
        Request::Repair { broker, epoch, word: Word::GiveUp(damaged) } => {
            give_up_replicas(image, broker, epoch, &damaged, DEFAULTS)
                .map(|given_up| Answer::Repaired(given_up.ok()))
        }
        Request::Create(topic) => create(image, topic, seed),
        Request::Delete(name) => delete_topics(image, &[TopicRef::Name(name)]).map(|_| Answer::Done),
        Request::Elect(partition) => {
            elect_leaders(image, ElectionType::Preferred, Some(&[partition]), &LogEnds::new(), DEFAULTS)
                .map(|_| Answer::Done)
        }
        Request::Reassign(reassignment) => {
            reassign(image, &[reassignment], true, DEFAULTS).map(|_| Answer::Done)
        }
        Request::Unregister(id) => brokers::unregister(image, id, DEFAULTS).map(|_| Answer::Done),
    })
}

/// A command for whose answer nobody waits.
struct Kept(Box<dyn Command>);

impl Command for Kept {
    fn decide(&mut self, image: &Image) -> Vec<Record> {
        self.0.decide(image)
    }

    fn term(&self) -> Option<u64> {
        self.0.term()
    }

    fn is_abandoned(&self) -> bool {
        false
    }

    fn answer(self: Box<Self>, outcome: Result<(), ProposeError>) {
        self.0.answer(outcome);
    }
}

fn create(image: &Image, topic: NewTopic, seed: u64) -> Decision<Answer> {
    let rules = ConfigRules { is_list: &|_, _| false, default: &|_, _| None, validate: &|_, _| Ok(()) };
    let options = CreateTopicsOptions {
        default_partitions: 1,
        default_replication_factor: 3,
        validate_only: false,
        seed,
    };
    create_topics(image, &[topic], options, &rules).map(|_| Answer::Done)
}
