//! The metadata log and its active controller. The log is linearizable; a proposal that was decided on an older image than it
//! meets is refused, and its decisions are taken anew. Who asks may never hear what became of it.
//!
//! The decisions are the product's, and so is the way in which they are gathered into batches. Must not know what brokers
//! make of it. Invariant: the log only grows, and the head is its fold.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::context::{Context, ControllerEvent, Event, Ms, note};
use super::network::{Body, Caller, Place};
use super::plan::Plan;
use crate::controller::ProposeError;
use crate::controller::deciding::{Command, Waiting, command, decide_all};
use crate::controller::raft_types::Batch;
use crate::metadata::alter_partition::{AlterPartitionReply, ProposedIsr, alter_partition};
use crate::metadata::brokers::{
    self, BrokerEpochError, Heartbeat, HeartbeatReply, RegisterBrokerError, Registration,
};
use crate::metadata::configs::ConfigRules;
use crate::metadata::elect_leaders::{ElectionType, elect_leaders};
use crate::metadata::election::ElectionDefaults;
use crate::metadata::features::{ELIGIBLE_LEADER_REPLICAS_VERSION, TRANSACTION_VERSION, bootstrap_records};
use crate::metadata::producer_ids::{AllocateProducerIdsError, ProducerIdBlock, allocate};
use crate::metadata::reassign::{Reassignment, reassign};
use crate::metadata::topics::{
    AssignDirectoriesReply, CreateTopicsOptions, NewTopic, TopicRef, assign_directories, create_topics,
    delete_topics,
};
use crate::metadata::unclean::LogEnds;
use crate::metadata::{Decision, Image, MetadataVersion, Record};
use crate::types::{BrokerEpoch, DirectoryId, NodeId, TopicIdPartition, TopicPartition};

const DEFAULTS: ElectionDefaults =
    ElectionDefaults { min_insync_replicas: 1, unclean_leader_election: false };
const BATCH_BYTES: usize = 1 << 20;
const TICK_MS: Ms = 100;

#[derive(Clone, Debug)]
pub enum Request {
    Register(Registration),
    Heartbeat(Heartbeat),
    Alter { leader: NodeId, epoch: BrokerEpoch, proposals: Vec<ProposedIsr> },
    Place { broker: NodeId, epoch: BrokerEpoch, placed: Vec<(TopicIdPartition, DirectoryId)> },
    ProducerIds { broker: NodeId, epoch: BrokerEpoch },
    Create(NewTopic),
    Delete(Arc<str>),
    Elect(TopicPartition),
    Reassign(Reassignment),
    Unregister(NodeId),
}

#[derive(Clone, Debug)]
pub enum Answer {
    Registered(Result<BrokerEpoch, RegisterBrokerError>),
    Heard(Result<HeartbeatReply, BrokerEpochError>),
    Altered(AlterPartitionReply),
    Placed,
    ProducerIds(Result<ProducerIdBlock, AllocateProducerIdsError>),
    Done,
    /// This controller does not lead, or the log did not take it. Nobody knows more.
    Failed,
}

/// Somebody waits for a decision.
struct Asked {
    caller: Caller,
    from: Place,
    call: u64,
    answer: oneshot::Receiver<Result<Answer, ProposeError>>,
}

/// A batch under way.
struct Proposed {
    batch: Batch,
    commands: Vec<Box<dyn Command>>,
}

pub struct Controller {
    /// The log.
    pub records: Vec<Record>,
    pub head: Arc<Image>,
    /// Another controller has another one.
    pub generation: u64,
    waiting: Waiting,
    asked: Vec<Asked>,
    proposed: Option<Proposed>,
    is_deciding: bool,
    /// When each broker was last heard, under which epoch.
    heard: BTreeMap<NodeId, (BrokerEpoch, Ms)>,
    offsets: BTreeMap<NodeId, i64>,
    session_ms: Ms,
}

impl Controller {
    pub fn new(plan: &Plan) -> Controller {
        let elr = i16::from(plan.has_elr);
        let mut levels = vec![(Arc::from(ELIGIBLE_LEADER_REPLICAS_VERSION), elr)];
        levels.extend(plan.transactions.map(|plan| (Arc::from(TRANSACTION_VERSION), plan.version)));
        let records = bootstrap_records(MetadataVersion::LATEST, &levels, 1).expect("a valid bootstrap");
        let mut head = Image::default();
        for record in &records {
            head.apply(record);
        }
        Controller {
            records,
            head: Arc::new(head),
            generation: 0,
            waiting: Waiting::new(),
            asked: Vec::new(),
            proposed: None,
            is_deciding: false,
            heard: BTreeMap::new(),
            offsets: BTreeMap::new(),
            session_ms: plan.session_ms,
        }
    }

    /// Another controller takes over: what was under way is lost, be it committed or not, and so is what the old one knew.
    pub fn take_over(&mut self, context: &mut Context, outages: Ms) {
        if let Some(proposed) = self.proposed.take()
            && context.chance.permille(500)
        {
            self.commit(context, &proposed.batch);
        }
        self.generation += 1;
        self.waiting.clear();
        self.asked.clear();
        self.is_deciding = false;
        self.heard = self.head.brokers.iter().map(|b| (b.id, (b.epoch, context.now + outages))).collect();
        self.offsets.clear();
        note!(context, "controller {} takes over", self.generation);
        let event = Event::Controller { generation: self.generation, what: ControllerEvent::Tick };
        context.after(outages + TICK_MS, event);
    }

    pub fn on(&mut self, context: &mut Context, what: ControllerEvent) {
        match what {
            ControllerEvent::Decide => self.decide(context),
            ControllerEvent::Commit => self.settle(context),
            ControllerEvent::Tick => self.tick(context),
        }
    }

    pub fn ask(&mut self, context: &mut Context, from: Place, caller: Caller, call: u64, request: Request) {
        self.note_contact(context, &request);
        let (command, answer) = self.command(context, request);
        self.waiting.push_back(command);
        self.asked.push(Asked { caller, from, call, answer });
        self.decide_soon(context);
    }

    fn note_contact(&mut self, context: &Context, request: &Request) {
        if let Request::Heartbeat(heartbeat) = request {
            let registered = self.head.brokers.get(heartbeat.id);
            if registered.is_some_and(|broker| broker.epoch == heartbeat.epoch) {
                self.heard.insert(heartbeat.id, (heartbeat.epoch, context.now));
                self.offsets.insert(heartbeat.id, heartbeat.metadata_offset.0);
            }
        }
    }

    fn command(
        &self,
        context: &mut Context,
        request: Request,
    ) -> (Box<dyn Command>, oneshot::Receiver<Result<Answer, ProposeError>>) {
        let (now, session_ms, heard) = (context.now, self.session_ms, self.heard.clone());
        let offsets = self.offsets.clone();
        let seed = context.chance.next();
        command(move |image: &Image| match request.clone() {
            Request::Register(registration) => {
                let existing = image.brokers.get(registration.id);
                let lives = existing.filter(|broker| !broker.fenced).is_some_and(|broker| {
                    heard
                        .get(&broker.id)
                        .is_some_and(|(epoch, at)| *epoch == broker.epoch && now - at < session_ms)
                });
                brokers::register(image, &registration, lives, DEFAULTS).map(Answer::Registered)
            }
            Request::Heartbeat(heartbeat) => {
                let mut others =
                    image.brokers.iter().filter(|other| other.id != heartbeat.id && other.is_active());
                let caught_up = others.all(|other| {
                    offsets.get(&other.id).is_some_and(|offset| *offset >= image.version.offset().0 - 1)
                });
                brokers::heartbeat(image, &heartbeat, caught_up, DEFAULTS).map(Answer::Heard)
            }
            Request::Alter { leader, epoch, proposals } => {
                alter_partition(image, leader, epoch, &proposals, DEFAULTS).map(Answer::Altered)
            }
            Request::Place { broker, epoch, placed } => {
                assign_directories(image, broker, epoch, &placed, DEFAULTS)
                    .map(|_: AssignDirectoriesReply| Answer::Placed)
            }
            Request::ProducerIds { broker, epoch } => allocate(image, broker, epoch).map(Answer::ProducerIds),
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

    fn decide_soon(&mut self, context: &mut Context) {
        if !self.is_deciding && self.proposed.is_none() {
            self.is_deciding = true;
            let event = Event::Controller { generation: self.generation, what: ControllerEvent::Decide };
            let delay = context.chance.between(0, 2);
            context.after(delay, event);
        }
    }

    fn decide(&mut self, context: &mut Context) {
        self.is_deciding = false;
        if self.proposed.is_some() || self.waiting.is_empty() {
            return;
        }
        let (batch, commands) = decide_all(&self.head, &mut self.waiting, BATCH_BYTES);
        self.proposed = Some(Proposed { batch, commands });
        let slow = !context.calm && context.chance.permille(15);
        let delay = if slow { context.chance.between(50, 800) } else { context.chance.between(1, 5) };
        let event = Event::Controller { generation: self.generation, what: ControllerEvent::Commit };
        context.after(delay, event);
    }

    /// The log takes the batch under way, or does not.
    fn settle(&mut self, context: &mut Context) {
        let Some(Proposed { batch, commands }) = self.proposed.take() else { return };
        // Somebody else may have come first: a proposal of a controller before this one, or of another node.
        if !context.calm && context.chance.permille(10) {
            let record = Record::NoOp(Default::default());
            self.append(context, vec![record]);
        }
        if !batch.records.is_empty() && batch.base != self.head.version.0 {
            for command in commands.into_iter().rev() {
                self.waiting.push_front(command);
            }
            note!(context, "stale: {} of {}", batch.base, self.head.version);
        } else {
            self.commit(context, &batch);
            for command in commands {
                command.answer(Ok(()));
            }
            self.send_answers(context);
        }
        if !self.waiting.is_empty() {
            self.decide_soon(context);
        }
    }

    fn commit(&mut self, context: &mut Context, batch: &Batch) {
        if batch.base != self.head.version.0 {
            return;
        }
        let records = batch.split().expect("whole records");
        let records = records.into_iter().map(|bytes| Record::decode(bytes).expect("a record").0);
        self.append(context, records.collect());
    }

    fn append(&mut self, context: &mut Context, records: Vec<Record>) {
        if records.is_empty() {
            return;
        }
        let mut head = Image::clone(&self.head);
        for record in &records {
            head.apply(record);
            note!(context, "log {} {record:?}", head.version);
        }
        self.records.extend(records);
        self.head = Arc::new(head);
        for node in 1..=context.plan.nodes {
            context.send(Place::Controllers, Place::Node(node), Body::Published);
        }
    }

    fn send_answers(&mut self, context: &mut Context) {
        let mut still = Vec::new();
        for mut asked in std::mem::take(&mut self.asked) {
            let answer = match asked.answer.try_recv() {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Answer::Failed,
                Err(oneshot::error::TryRecvError::Empty) => {
                    still.push(asked);
                    continue;
                }
                Err(oneshot::error::TryRecvError::Closed) => Answer::Failed,
            };
            let body = Body::Answer { caller: asked.caller, call: asked.call, answer };
            context.send(Place::Controllers, asked.from, body);
        }
        self.asked = still;
    }

    /// Fences who has been silent for too long.
    fn tick(&mut self, context: &mut Context) {
        let event = Event::Controller { generation: self.generation, what: ControllerEvent::Tick };
        context.after(TICK_MS, event);
        for broker in self.head.brokers.iter().filter(|broker| !broker.fenced) {
            let (epoch, at) = *self.heard.entry(broker.id).or_insert((broker.epoch, context.now));
            if epoch != broker.epoch {
                self.heard.insert(broker.id, (broker.epoch, context.now));
            } else if context.now - at >= self.session_ms {
                let (id, epoch) = (broker.id, broker.epoch);
                note!(context, "broker {id} is silent");
                let (command, _) = command(move |image: &Image| brokers::fence(image, id, epoch, DEFAULTS));
                self.waiting.push_back(kept(command));
            }
        }
        if !self.waiting.is_empty() {
            self.decide_soon(context);
        }
    }

    /// The process of this broker is gone, and refuses connections.
    pub fn refused(&mut self, context: &mut Context, id: NodeId) {
        if let Some(broker) = self.head.brokers.get(id).filter(|broker| !broker.fenced) {
            let epoch = broker.epoch;
            note!(context, "broker {id} refuses connections");
            let (command, _) = command(move |image: &Image| brokers::fence(image, id, epoch, DEFAULTS));
            self.waiting.push_back(kept(command));
            self.decide_soon(context);
        }
    }
}

/// A command for whose answer nobody waits.
struct Kept(Box<dyn Command>);

fn kept(command: Box<dyn Command>) -> Box<dyn Command> {
    Box::new(Kept(command))
}

impl Command for Kept {
    fn decide(&mut self, image: &Image) -> Vec<Record> {
        self.0.decide(image)
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
