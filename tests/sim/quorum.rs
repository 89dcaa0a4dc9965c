//! The metadata log and the controllers that have it. The log is linearizable: what is proposed in the newest term, on the
//! newest image, is taken once. How its leader is elected is not simulated, only what an election leaves behind: a leader that
//! has not applied everything yet, and one before it that does not know that it is none any more.
//!
//! Must not know what is decided. Invariant: the log only grows, and the head is its fold.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::context::{Context, ControllerEvent, Event, Ms, note};
use super::controller::{Controller, Request};
use super::network::{Body, Caller, Place};
use super::plan::Plan;
use crate::controller::raft_types::Batch;
use crate::metadata::features::{ELIGIBLE_LEADER_REPLICAS_VERSION, TRANSACTION_VERSION, bootstrap_records};
use crate::metadata::{Image, MetadataVersion, Record};
use crate::types::NodeId;

/// The log, and who may write to it.
pub struct Log {
    pub records: Vec<Record>,
    pub head: Arc<Image>,
    pub term: u64,
    /// The controller that leads in this term.
    pub leader: usize,
    /// The tags of the batches that were taken.
    taken: BTreeSet<u64>,
}

impl Log {
    fn new(plan: &Plan) -> Log {
        let elr = i16::from(plan.has_elr);
        let mut levels = vec![(Arc::from(ELIGIBLE_LEADER_REPLICAS_VERSION), elr)];
        levels.extend(plan.transactions.map(|plan| (Arc::from(TRANSACTION_VERSION), plan.version)));
        let records = bootstrap_records(MetadataVersion::LATEST, &levels, 1).expect("a valid bootstrap");
        let mut head = Image::default();
        for record in &records {
            head.apply(record);
        }
        Log { records, head: Arc::new(head), term: 0, leader: 0, taken: BTreeSet::new() }
    }

    /// Whether a batch that nobody has answered for is in the log.
    pub fn has_taken(&self, batch: &Batch) -> bool {
        self.taken.contains(&batch.tag)
    }

    /// Takes a batch, unless it was decided on another image, or by what somebody knew in another term.
    pub fn commit(&mut self, context: &mut Context, batch: &Batch) {
        if !self.fits(batch) {
            return;
        }
        self.taken.insert(batch.tag);
        let records = batch.split().expect("whole records");
        let records = records.into_iter().map(|bytes| Record::decode(bytes).expect("a record").0);
        self.append(context, records.collect());
    }

    /// Whether a batch that comes now takes effect.
    pub fn fits(&self, batch: &Batch) -> bool {
        let mut batch = batch.clone();
        batch.settle(self.term);
        batch.base == self.head.version.0
    }

    pub fn append(&mut self, context: &mut Context, records: Vec<Record>) {
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
        self.publish(context, self.leader);
    }

    /// A controller tells everybody else what there is, and who leads.
    fn publish(&self, context: &mut Context, from: usize) {
        let nodes = (1..=context.plan.nodes).map(Place::Node);
        let controllers = (0..context.plan.controllers).filter(|at| *at != from).map(Place::Controller);
        for to in nodes.chain(controllers).collect::<Vec<_>>() {
            let body = Body::Published { image: self.head.clone(), term: self.term, leader: self.leader };
            context.send(Place::Controller(from), to, body);
        }
    }
}

/// How a leader goes when another one comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Going {
    /// Its process ends: whoever waits for it never hears anything.
    Ends,
    /// It goes on as if nothing had happened for so long.
    Unaware(Ms),
}

pub struct Quorum {
    pub log: Log,
    pub controllers: Vec<Controller>,
}

impl Quorum {
    pub fn new(plan: &Plan) -> Quorum {
        let log = Log::new(plan);
        let controllers =
            (0..plan.controllers).map(|at| Controller::new(at, log.head.clone(), plan.session_ms)).collect();
        Quorum { log, controllers }
    }

    /// A controller begins to lead, after an outage.
    pub fn elect(&mut self, context: &mut Context, next: usize, going: Going, outage: Ms) {
        let old = self.log.leader;
        // What was under way may be in the log all the same.
        if let Some(batch) = self.controllers[old].under_way()
            && context.chance.permille(500)
        {
            self.log.commit(context, &batch);
        }
        self.log.term += 1;
        self.log.leader = next;
        let term = self.log.term;
        note!(context, "controller {next} leads in term {term}, {old} {going:?}");
        match going {
            Going::Ends => self.controllers[old].end(context),
            Going::Unaware(_) if old == next => self.controllers[old].resign(),
            Going::Unaware(ms) => {
                context.after(ms, Event::Controller { at: old, what: ControllerEvent::Resign(term) });
            }
        }
        let event = Event::Controller { at: next, what: ControllerEvent::Lead(term) };
        context.after(outage, event);
    }

    pub fn on(&mut self, context: &mut Context, at: usize, what: ControllerEvent) {
        let until = self.controllers[at].paused_until;
        if until > context.now {
            context.after(until - context.now, Event::Controller { at, what });
            return;
        }
        if matches!(what, ControllerEvent::Lead(term) if term == self.log.term) {
            self.log.publish(context, at);
        }
        self.controllers[at].on(context, &mut self.log, what);
    }

    /// A packet has come for a controller.
    pub fn arrives(&mut self, context: &mut Context, at: usize, from: Place, body: Body) {
        let until = self.controllers[at].paused_until;
        if until > context.now {
            let packet = super::network::Packet { from, to: Place::Controller(at), body };
            context.after(until - context.now, Event::Packet(packet));
            return;
        }
        self.controllers[at].arrives(context, from, body);
    }

    /// The administrator asks some node for something.
    pub fn ask(&mut self, context: &mut Context, request: Request) {
        let (call, at) = (context.unique(), context.chance.below(self.controllers.len()));
        self.controllers[at].ask(context, Place::Clients, Caller::Admin, call, request);
    }

    /// The process of this broker is gone, and its connections break.
    pub fn disconnected(&mut self, context: &mut Context, id: NodeId) {
        for controller in &mut self.controllers {
            controller.disconnected(context, id);
        }
    }
}
