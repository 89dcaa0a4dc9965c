//! One broker process: the product's shards, logs, checkpoints and reconciler, with what runs them in the product (threads,
//! tasks, timers) replaced by events.
//!
//! Must not know other nodes' state; it speaks to them through the network. Invariant: nothing of a process runs after its
//! life has ended.

mod calls;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, oneshot};

use super::context::{Context, Event, Ms, ProcessEvent, answers_to, note};
use super::controller::Request;
use super::coordination::Coordination;
use super::network::{Ask, Body, PeerAsk, PeerTold, Place, ProduceRefusal, ProduceRequest, Refused};
use super::repairing::{self, Heard, Repairing};
use super::replication::{Fetch, FetchAnswer, Here, Replication};
use crate::broker::checkpoints::Checkpoints;
use crate::broker::clock::Now;
use crate::broker::directory::Directory;
use crate::broker::dynamic_config::DynamicConfig;
use crate::broker::flusher::{Round, Synced};
use crate::broker::lease::Lease;
use crate::broker::log_dirs::{LogDirs, Retired};
use crate::broker::mailbox::{Mailbox, Message, ShardSender, mailbox};
use crate::broker::messages::{Append, IsrProposal, Produce, ProduceError, Produced};
use crate::broker::outbox::{Inlets, LeaderInlet, outlets};
use crate::broker::partitions::{Partitions, Role};
use crate::broker::reconciler::{Chore, Reconciler};
use crate::broker::reply::gather;
use crate::broker::shard::Shard;
use crate::config::Layers;
use crate::metadata::Image;
use crate::replica::Acks;
use crate::storage::checkpoint::MetaProperties;
use crate::storage::disk::Disk;
use crate::storage::log::producer_state::Coordinated;
use crate::storage::log::{AppendError, Budgets, Log, Origin};
use crate::storage::log_dir::{Claim, LogDir, LogDirError, Owner};
use crate::types::{
    BrokerEpoch, DirectoryId, LeaderEpoch, MonotonicMs, NodeId, Offset, TopicIdPartition, Uuid,
};
use crate::wire::messages::FetchRequest;

const POLL_MS: Ms = 250;
const CHECKPOINT_MS: Ms = 700;
const RETRY_MS: Ms = 400;
/// An append is not acknowledged after this.
const PRODUCE_LIMIT_MS: Ms = 1200;
/// So often nothing may come of the time that was waited for.
const DUE_TICKS_MAX: u32 = 300;
/// Syncs of one directory that run side by side.
const SYNC_THREADS: usize = 3;

type Catching = Pin<Box<dyn Future<Output = Reconciler>>>;

/// The reconciler, at rest or at work.
enum Reconciling {
    Idle(Reconciler),
    Busy(Catching),
    Moving,
}

type Answers = dyn Future<Output = Vec<Result<Produced, ProduceError>>>;

/// An append that is not answered yet.
struct Owed {
    producer: usize,
    attempt: u64,
    number: u64,
    connection: u64,
    /// For which partition, when all replicas in sync are waited for.
    of: Option<TopicIdPartition>,
    answers: Pin<Box<Answers>>,
}

enum Flushing {
    Waits(Round),
    Done(Synced),
}

/// What a call to the controllers is for.
#[derive(Debug)]
enum Call {
    Register,
    /// Sent at this time.
    Heartbeat(Ms),
    Alter(Vec<IsrProposal>),
    Place(Vec<(TopicIdPartition, DirectoryId)>),
    ProducerIds,
    /// Of damaged replicas.
    Repair(oneshot::Sender<Heard>),
}

/// What a process starts from.
pub struct Machine {
    pub me: NodeId,
    pub disk: Arc<dyn Disk>,
    pub paths: Vec<PathBuf>,
    /// Of directories that are formatted now.
    pub directory_ids: Vec<DirectoryId>,
    pub layers: Layers,
}

pub struct Process {
    pub me: NodeId,
    pub life: u64,
    pub partitions: Partitions,
    /// The newest metadata that has come here.
    pub image: Arc<Image>,
    pub epoch: Option<BrokerEpoch>,
    pub directories: Vec<Arc<Directory>>,
    /// Its shards have done something since that was last asked.
    pub has_worked: bool,
    /// It is on its way out.
    pub leaves: bool,
    /// It may end.
    pub may_end: bool,
    incarnation: Uuid,
    previous_epoch: BrokerEpoch,
    shards: Vec<Shard>,
    mailboxes: Vec<Mailbox>,
    senders: Vec<ShardSender>,
    leaders: mpsc::UnboundedReceiver<LeaderInlet>,
    asked: mpsc::UnboundedReceiver<Vec<IsrProposal>>,
    dirs: Arc<LogDirs>,
    checkpoints: Arc<Checkpoints>,
    reconciling: Reconciling,
    /// What the reconciler is catching up with, and has caught up with.
    seen: u64,
    caught_up: u64,
    chores: mpsc::UnboundedReceiver<Chore>,
    retired: Vec<(Ms, Vec<Retired>)>,
    flushing: BTreeMap<u64, (usize, Flushing)>,
    owed: Vec<Owed>,
    calls: BTreeMap<u64, Call>,
    /// In-sync sets to ask for once the answer to the last ones is there.
    proposals: Vec<IsrProposal>,
    pub replication: Replication,
    is_pumping: bool,
    ticks_at: Ms,
    /// So many times in a row something was due, and still was afterwards.
    due_ticks: u32,
    lease: Lease,
    /// The newest term of the controllers that it knows of, and which of them it asks.
    controller: (u64, usize),
    /// What has been acknowledged to producers with acks=all, and in which terms, since that was last asked.
    pub acknowledged: Vec<(TopicIdPartition, LeaderEpoch)>,
    /// What has been refused since that was last asked, in the order of the answers.
    pub refused: Vec<Refused>,
    /// Of seeds with transactions.
    pub coordination: Option<Coordination>,
    pub repairing: Repairing,
}

fn open_directory(machine: &Machine, at: usize) -> Result<LogDir, LogDirError> {
    let owner = Owner { cluster_id: "simulated".to_owned(), node_id: machine.me };
    let mut claim = Claim::take(machine.disk.clone(), &machine.paths[at])?;
    if claim.properties().is_none() {
        let Owner { cluster_id, node_id } = owner.clone();
        let directory_id = Some(machine.directory_ids[at]);
        claim.format(MetaProperties { cluster_id, node_id, directory_id })?;
    }
    claim.check(&owner)?;
    claim.open()
}

impl Process {
    /// Starts; `None` when the disk does not let it.
    pub fn start(context: &mut Context, machine: &Machine, image: Arc<Image>) -> Option<Process> {
        let me = machine.me;
        let life = context.unique();
        let (senders, mailboxes): (Vec<_>, Vec<_>) =
            (0..context.plan.shards).map(|_| mailbox(1 << 16)).unzip();
        let mut directories = Vec::new();
        for at in 0..machine.paths.len() {
            match open_directory(machine, at) {
                Ok(dir) => {
                    let index = directories.len();
                    directories.push(Arc::new(Directory::new(index, dir, senders.clone(), 0)));
                }
                Err(error) => {
                    note!(context, "{me} does not start: {error}");
                    return None;
                }
            }
        }
        let (outlets, inlets) = outlets();
        let lease = Lease::expired();
        let shard = |index| Shard::new(index, me, outlets.clone()).with_lease(lease.clone());
        let shards = (0..context.plan.shards).map(shard).collect();
        let partitions = Partitions::new(senders.clone());
        let budgets = Budgets::new(1 << 20, 1 << 14, 12);
        let dirs = LogDirs::scan(me, machine.disk.clone(), directories.clone(), Vec::new(), budgets);
        let dirs = Arc::new(dirs);
        let checkpoints = Arc::new(Checkpoints::new(partitions.clone(), dirs.clone()));
        let (chores_sender, chores) = mpsc::unbounded_channel();
        let config = Arc::new(DynamicConfig::new(me, machine.layers.clone()));
        let has_coordinators = context.plan.transactions.is_some();
        let coordination = has_coordinators.then(|| {
            Coordination::new((me, life), image.clone(), config.clone(), partitions.clone(), lease.clone())
        });
        let Inlets { leaders, proposals: asked, repairs } = inlets;
        let repairing = Repairing::new((me, life), image.clone(), partitions.clone(), repairs);
        let (reconciler, _) =
            Reconciler::new(me, config, partitions.clone(), dirs.clone(), checkpoints.clone(), chores_sender);
        let mut process = Process {
            me,
            life,
            partitions,
            image,
            epoch: None,
            has_worked: true,
            leaves: false,
            may_end: false,
            incarnation: Uuid::from_u128(0x1ca0_0000_0000 + u128::from(life)),
            previous_epoch: dirs.previous_epoch(),
            directories,
            shards,
            mailboxes,
            senders,
            leaders,
            asked,
            dirs,
            checkpoints,
            reconciling: Reconciling::Idle(reconciler),
            seen: 0,
            caught_up: 0,
            chores,
            retired: Vec::new(),
            flushing: BTreeMap::new(),
            owed: Vec::new(),
            calls: BTreeMap::new(),
            proposals: Vec::new(),
            replication: Replication::new(me, life, &context.plan),
            is_pumping: false,
            ticks_at: Ms::MAX,
            due_ticks: 0,
            lease,
            controller: (0, 0),
            acknowledged: Vec::new(),
            refused: Vec::new(),
            coordination,
            repairing,
        };
        note!(context, "{me} starts, life {life}, before {}", process.previous_epoch);
        process.register(context);
        process.after(context, POLL_MS, ProcessEvent::Poll);
        process.after(context, CHECKPOINT_MS, ProcessEvent::Checkpoint);
        Some(process)
    }

    pub fn after(&self, context: &mut Context, ms: Ms, what: ProcessEvent) {
        context.after(ms, Event::Process { node: self.me.0, life: self.life, what });
    }

    pub fn on(&mut self, context: &mut Context, now: Now, what: ProcessEvent) {
        match what {
            ProcessEvent::Pump => {
                self.is_pumping = false;
                self.pump(context, now);
            }
            ProcessEvent::Tick => {
                if self.ticks_at <= context.now {
                    self.ticks_at = Ms::MAX;
                    self.tell_all(|| Message::Tick);
                }
                self.pump(context, now);
                let is_due =
                    self.shards.iter().filter_map(Shard::next_deadline).any(|at| at.0 <= context.now);
                self.due_ticks = if is_due { self.due_ticks + 1 } else { 0 };
                assert!(self.due_ticks < DUE_TICKS_MAX, "progress: what is due on {} is never done", self.me);
            }
            ProcessEvent::Synced(round) => self.end_flush(context, round),
            ProcessEvent::Heartbeat => self.heartbeat(context),
            ProcessEvent::Register => self.register(context),
            ProcessEvent::Poll => {
                self.after(context, POLL_MS, ProcessEvent::Poll);
                let at = context.chance.below(context.plan.controllers);
                context.send(Place::Node(self.me.0), Place::Controller(at), Body::Poll);
                self.remove_retired(context);
                for directory in &self.directories {
                    directory.remove_doomed(now.monotonic);
                }
            }
            ProcessEvent::Retry => self.retry(context, now),
            ProcessEvent::Checkpoint => {
                self.after(context, CHECKPOINT_MS, ProcessEvent::Checkpoint);
                self.checkpoints.write_all();
            }
            ProcessEvent::CallTimeout(call) => self.give_up(context, call),
            ProcessEvent::Fetcher(leader) => self.replication.turn(context, leader, self.epoch),
            ProcessEvent::Coordinate | ProcessEvent::Repair => self.pump(context, now),
            ProcessEvent::PeerTimeout(call) => {
                self.repairing.give_up(call);
                if let Some(coordination) = &mut self.coordination {
                    coordination.give_up(call);
                }
            }
            ProcessEvent::FetchWait(fetch) => {
                let here = Here { partitions: &self.partitions, image: &self.image, now };
                self.replication.wait_is_over(context, fetch, here);
            }
        }
        self.wake(context);
    }

    fn tell_all(&self, message: impl Fn() -> Message) {
        for sender in &self.senders {
            sender.send_event(message());
        }
    }

    /// Has the shards look into their mailboxes.
    pub fn wake(&mut self, context: &mut Context) {
        if !self.is_pumping {
            self.is_pumping = true;
            let delay = context.chance.between(0, 1);
            self.after(context, delay, ProcessEvent::Pump);
        }
    }

    /// One step of each shard, and what follows from it.
    fn pump(&mut self, context: &mut Context, now: Now) {
        let mut worked = false;
        for (shard, mailbox) in self.shards.iter_mut().zip(&mut self.mailboxes) {
            let mut batch = Vec::new();
            mailbox.drain(&mut batch);
            if !batch.is_empty() {
                worked = true;
                shard.step(&mut batch, now);
            }
        }
        worked |= self.reconcile(context);
        worked |= self.coordinate(context);
        worked |= self.repair(context);
        self.has_worked |= worked;
        if !worked {
            return;
        }
        self.begin_flushes(context);
        self.answer_producers(context);
        while let Ok(mut proposals) = self.asked.try_recv() {
            self.proposals.append(&mut proposals);
        }
        self.propose(context);
        self.replication.take_wants(context, &mut self.leaders, self.epoch);
        let here = Here { partitions: &self.partitions, image: &self.image, now };
        self.replication.serve_waiting(context, here);
        let deadline = self.shards.iter().filter_map(Shard::next_deadline).map(|at| at.0).min();
        if let Some(at) = deadline.filter(|at| *at < self.ticks_at) {
            self.ticks_at = at.max(context.now + 1);
            self.after(context, self.ticks_at - context.now, ProcessEvent::Tick);
        }
        self.wake(context);
    }

    pub fn holds_lease(&self, now: MonotonicMs) -> bool {
        self.lease.holds(now)
    }

    /// The writer's side of a log here, once its shard has it.
    pub fn log_of(&self, id: &TopicIdPartition) -> Option<&Log> {
        self.shards.iter().find_map(|shard| shard.log(id))
    }

    // The metadata.

    pub fn learn(&mut self, image: &Arc<Image>) {
        if image.version > self.image.version {
            self.image = image.clone();
            self.repairing.learn(image);
            if let Some(coordination) = &self.coordination {
                coordination.learn(image);
            }
        }
    }

    pub fn learn_of(&mut self, term: u64, leader: usize) {
        if term > self.controller.0 {
            self.controller = (term, leader);
        }
    }

    /// Moves the reconciler on.
    fn reconcile(&mut self, context: &mut Context) -> bool {
        let mut moved = false;
        let may_begin = self.epoch.is_some_and(|epoch| self.image.version.0 as i64 > epoch.0);
        loop {
            match std::mem::replace(&mut self.reconciling, Reconciling::Moving) {
                Reconciling::Idle(mut reconciler) if may_begin && self.image.version.0 > self.seen => {
                    let image = self.image.clone();
                    self.seen = image.version.0;
                    moved = true;
                    // Letting go of a partition waits for its syncs, which here only end when somebody ends them.
                    self.end_flushes(context);
                    self.reconciling = Reconciling::Busy(Box::pin(async move {
                        reconciler.catch_up(image).await;
                        reconciler
                    }));
                }
                Reconciling::Busy(mut catching) => {
                    moved = true;
                    self.end_flushes(context);
                    let mut task = std::task::Context::from_waker(Waker::noop());
                    match catching.as_mut().poll(&mut task) {
                        Poll::Ready(reconciler) => {
                            self.reconciling = Reconciling::Idle(reconciler);
                            self.caught_up = self.seen;
                            if let Some(coordination) = &mut self.coordination {
                                coordination.keep(context);
                            }
                            self.after(context, RETRY_MS, ProcessEvent::Retry);
                        }
                        Poll::Pending => {
                            self.reconciling = Reconciling::Busy(catching);
                            self.wake(context);
                            break;
                        }
                    }
                }
                other => {
                    self.reconciling = other;
                    break;
                }
            }
        }
        while let Ok(chore) = self.chores.try_recv() {
            match chore {
                Chore::ReportPlacement(report) => self.report_placement(context, report.placed),
                Chore::Remove { retired, delay_ms } => {
                    self.retired.push((context.now + delay_ms.min(3_000), retired));
                }
            }
        }
        moved
    }

    /// Tries again what could not be opened.
    fn retry(&mut self, context: &mut Context, now: Now) {
        self.reconciling = match std::mem::replace(&mut self.reconciling, Reconciling::Moving) {
            Reconciling::Idle(mut reconciler) if reconciler.has_failed() => {
                Reconciling::Busy(Box::pin(async move {
                    reconciler.retry().await;
                    reconciler
                }))
            }
            other => other,
        };
        self.pump(context, now);
    }

    fn remove_retired(&mut self, context: &Context) {
        let due = self.retired.extract_if(.., |(at, _)| *at <= context.now);
        for (_, retired) in due {
            self.dirs.remove(&retired);
        }
    }

    // Flushes.

    fn begin_flushes(&mut self, context: &mut Context) {
        for index in 0..self.directories.len() {
            let directory = self.directories[index].clone();
            while self.flushing.values().filter(|(of, _)| *of == index).count() < SYNC_THREADS {
                let Some(round) = directory.flush.take(SYNC_THREADS) else { break };
                let id = context.unique();
                let slow = if context.slow.contains(&self.me.0) { 60 } else { 1 };
                let delay = context.chance.between(0, context.plan.sync_max_ms * slow);
                // What a sync makes durable is what was written when it began, and maybe what came later.
                let flushing = if context.chance.permille(500) {
                    let synced = round.sync(&directory);
                    Flushing::Done(synced)
                } else {
                    Flushing::Waits(round)
                };
                self.after(context, delay, ProcessEvent::Synced(id));
                self.flushing.insert(id, (index, flushing));
            }
        }
    }

    fn end_flush(&mut self, context: &mut Context, id: u64) {
        match self.flushing.remove(&id) {
            Some((index, Flushing::Waits(round))) => {
                round.sync(&self.directories[index]).report(&self.directories[index]);
                self.begin_flushes(context);
            }
            Some((index, Flushing::Done(synced))) => {
                synced.report(&self.directories[index]);
                self.begin_flushes(context);
            }
            None => {}
        }
    }

    fn end_flushes(&mut self, context: &mut Context) {
        let rounds: Vec<u64> = self.flushing.keys().copied().collect();
        for id in rounds {
            self.end_flush(context, id);
        }
    }

    // Clients.

    pub fn produce(&mut self, context: &mut Context, request: ProduceRequest, now: Now) {
        let (mut replies, gathered) = gather(1, || Err(ProduceError::ShuttingDown));
        let Some(reply) = replies.pop() else { return };
        let ProduceRequest { producer, attempt, number, connection, partition, acks, records } = request;
        let of = (acks == Acks::All).then_some(partition);
        let produce = Produce {
            acks: Some(acks),
            origin: Origin::Client,
            deadline: now.monotonic.plus(PRODUCE_LIMIT_MS),
            appends: vec![Append { partition, records, coordinated: Coordinated::default(), reply }],
        };
        let sent = self.partitions.shard_of(&partition).send(Message::Produce(produce));
        sent.now_or_never().expect("there is room in the mailbox");
        let answers = Box::pin(gathered.all());
        self.owed.push(Owed { producer, attempt, number, connection, of, answers });
        self.wake(context);
    }

    fn answer_producers(&mut self, context: &mut Context) {
        let mut task = std::task::Context::from_waker(Waker::noop());
        let from = Place::Node(self.me.0);
        // On a connection an answer waits for those to the requests before.
        let mut held_up = BTreeSet::new();
        self.owed.retain_mut(|owed| {
            let Owed { producer, attempt, number, connection, of, answers } = owed;
            if held_up.contains(producer) {
                return true;
            }
            let Poll::Ready(mut answers) = answers.as_mut().poll(&mut task) else {
                held_up.insert(*producer);
                return true;
            };
            let answer = answers.pop().expect("one answer");
            // What is in the log and not acknowledged in time was not turned away.
            let is_taken = matches!(answer, Ok(_) | Err(ProduceError::Ack(..)));
            let result = answer.map_err(|error| refusal(&error));
            let led = of.filter(|_| result.is_ok()).and_then(|id| self.partitions.get(&id));
            if let Some(partition) = led.filter(|led| led.leadership().role == Role::Leader) {
                self.acknowledged.push((partition.id, partition.leadership().leader_epoch));
            }
            let (producer, attempt) = (*producer, *attempt);
            if let Err(why) = result
                && !is_taken
            {
                self.refused.push(Refused { producer, number: *number, connection: *connection, why });
            }
            let body = Body::Produced { producer, attempt, result };
            context.send_in_order(answers_to(producer, self.me), from, Place::Clients, body);
            false
        });
    }

    // Coordinators.

    fn coordinate(&mut self, context: &mut Context) -> bool {
        let Some(coordination) = &mut self.coordination else { return false };
        let turn = coordination.turn(context);
        if let Some(ms) = turn.wakes_in {
            self.after(context, ms, ProcessEvent::Coordinate);
        }
        if turn.needs_ids {
            let epoch = self.epoch.unwrap_or(BrokerEpoch::UNKNOWN);
            self.call(context, Call::ProducerIds, Request::ProducerIds { broker: self.me, epoch });
        }
        turn.has_worked
    }

    pub fn asks(&mut self, ask: Ask) {
        if let Some(coordination) = &mut self.coordination {
            coordination.asks(ask);
        }
    }

    pub fn peer_asks(&mut self, ask: PeerAsk) {
        if let Some(coordination) = &mut self.coordination {
            coordination.peer_asks(ask);
        }
    }

    pub fn peer_told(&mut self, call: u64, told: PeerTold) {
        if let Some(coordination) = &mut self.coordination {
            coordination.told(call, told);
        }
    }

    // Damage.

    fn repair(&mut self, context: &mut Context) -> bool {
        let turn = self.repairing.turn(context);
        if let Some(ms) = turn.wakes_in {
            self.after(context, ms, ProcessEvent::Repair);
        }
        for (word, heard) in turn.tellings {
            let epoch = self.epoch.unwrap_or(BrokerEpoch::UNKNOWN);
            let request = Request::Repair { broker: self.me, epoch, word };
            self.call(context, Call::Repair(heard), request);
        }
        turn.has_worked
    }

    /// Another broker asks for records in place of damaged ones.
    pub fn give_records(&self, context: &mut Context, (node, call): (i32, u64), request: &FetchRequest) {
        let response = repairing::records(request, &self.partitions);
        context.send(Place::Node(self.me.0), Place::Node(node), Body::Records { call, response });
    }

    // Replication.

    pub fn serve(&mut self, context: &mut Context, fetch: Fetch, now: Now) {
        let here = Here { partitions: &self.partitions, image: &self.image, now };
        self.replication.serve(context, fetch, here);
    }

    /// Somebody asks for records to be deleted.
    pub fn delete_records(&mut self, context: &mut Context, id: TopicIdPartition, upto: Offset) {
        let deleting = self.partitions.delete_records(PRODUCE_LIMIT_MS, vec![(id, Some(upto))]);
        // Nobody waits for the answer.
        drop(deleting.now_or_never().expect("there is room in the mailbox"));
        self.wake(context);
    }

    pub fn fetched(&mut self, context: &mut Context, answer: FetchAnswer) {
        self.replication.fetched(context, answer, &self.partitions, self.epoch);
    }

    // The end.

    /// Flushes and closes everything in an orderly way.
    pub fn close(&mut self, context: &mut Context, now: Now) {
        self.end_flushes(context);
        let partitions = self.partitions.clone();
        let mut closing: Pin<Box<dyn Future<Output = _>>> = Box::pin(async move { partitions.close().await });
        let mut task = std::task::Context::from_waker(Waker::noop());
        let logs = loop {
            match closing.as_mut().poll(&mut task) {
                Poll::Ready(logs) => break logs,
                Poll::Pending => self.pump(context, now),
            }
        };
        for (partition, mut log) in logs {
            if let Err(error) = log.close()
                && partition.directory().is_online()
            {
                partition.directory().fail("close", &error);
            }
        }
        self.answer_producers(context);
        self.checkpoints.write_all();
        if let Some(epoch) = self.epoch {
            let dirs = self.dirs.clone();
            self.checkpoints.write_clean_shutdown(epoch, |directory| !dirs.has_unrecovered(directory));
        }
    }
}

fn refusal(error: &ProduceError) -> ProduceRefusal {
    match error {
        ProduceError::NotHosted
        | ProduceError::NotLeader
        | ProduceError::Offline
        | ProduceError::NotEnoughReplicas(_)
        | ProduceError::Ack(..)
        | ProduceError::ShuttingDown
        | ProduceError::Append(AppendError::Log(_)) => ProduceRefusal::Again,
        ProduceError::Append(AppendError::Producer(_)) => ProduceRefusal::OutOfOrder,
        ProduceError::Append(_) | ProduceError::Moved => ProduceRefusal::Never,
    }
}
