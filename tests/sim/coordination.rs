//! The coordinators of one process: the product's machines, drivers, sender of markers and inquiry, with what keeps and
//! carries them replaced by events: which actors there are, tasks, and the connections to other brokers.
//!
//! Must not know clients. Invariant: a process's tasks end with it.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use super::context::{Context, Event, Ms, ProcessEvent};
use super::handlers::Handlers;
use super::network::{Ask, Body, PeerAsk, PeerAsking, PeerTold, Place};
use super::tasks::Tasks;
use crate::broker::coordinators::transactions::Effects;
use crate::broker::coordinators::{self, Coordinators, Led, Surroundings};
use crate::broker::dynamic_config::DynamicConfig;
use crate::broker::lease::Lease;
use crate::broker::partitions::Partitions;
use crate::broker::producer_ids::{Answer, ProducerIds};
use crate::broker::transactions::{Carried, MarkerSender, MarkerWriter, Peers, TransactionInquiry};
use crate::coordinator::Machine;
use crate::coordinator::group::Groups;
use crate::coordinator::transaction::{Effect, Transactions};
use crate::metadata::Image;
use crate::metadata::producer_ids::ProducerIdBlock;
use crate::types::{LeaderEpoch, MonotonicMs, NodeId, PartitionIndex, ProducerId, TopicIdPartition};

/// A call to another broker is given up after this, and with it the connection.
const PEER_LIMIT_MS: Ms = 500;
/// How soon partitions are looked at again that will be led here.
const LOOK_AGAIN_MS: Ms = 300;

/// The actors of one kind.
struct Kept<M: Machine> {
    coordinators: Coordinators<M>,
    running: BTreeMap<PartitionIndex, (TopicIdPartition, LeaderEpoch, u64)>,
}

/// An answer, and where it goes.
type Addressed = (Place, Body);

pub struct Coordination {
    me: NodeId,
    life: u64,
    tasks: Tasks,
    images: watch::Sender<Arc<Image>>,
    config: Arc<DynamicConfig>,
    partitions: Partitions,
    lease: Lease,
    transactions: Kept<Transactions>,
    groups: Kept<Groups>,
    handlers: Handlers,
    effects: Effects,
    sender: Arc<MarkerSender>,
    /// The task that delivers the markers of a transactional id.
    deliveries: BTreeMap<(PartitionIndex, String), u64>,
    carried: mpsc::UnboundedReceiver<Carried>,
    calls: BTreeMap<u64, oneshot::Sender<Box<dyn Any + Send>>>,
    answer: mpsc::UnboundedSender<Addressed>,
    answers: mpsc::UnboundedReceiver<Addressed>,
    ids: Range<i64>,
    ids_asked: mpsc::Receiver<Answer>,
    ids_owed: Vec<Answer>,
    is_asking_for_ids: bool,
    look_at: Ms,
    wakes_at: MonotonicMs,
}

/// What a turn leads to beside packets.
#[derive(Debug, Default)]
pub struct Turn {
    pub has_worked: bool,
    /// A block of producer ids is needed.
    pub needs_ids: bool,
    /// The next turn is due then although nothing happens.
    pub wakes_in: Option<Ms>,
}

impl Coordination {
    pub fn new(
        (me, life): (NodeId, u64),
        image: Arc<Image>,
        config: Arc<DynamicConfig>,
        partitions: Partitions,
        lease: Lease,
    ) -> Coordination {
        let images = watch::Sender::new(image);
        let groups = Coordinators::new(coordinators::groups::kind(config.clone()));
        let (kind, effects) = coordinators::transactions::kind(config.clone());
        let transactions = Coordinators::new(kind);
        let (carrier, carried) = mpsc::unbounded_channel();
        let peers = Peers::simulated(carrier);
        let (answer, answers) = mpsc::unbounded_channel();
        let (ask_id, ids_asked) = mpsc::channel(1 << 10);
        let producer_ids = ProducerIds::asked(ask_id);
        let markers = MarkerWriter { partitions: partitions.clone(), groups: groups.clone() };
        let here = (me, images.subscribe(), partitions.clone());
        let sender = MarkerSender::new(
            here,
            transactions.clone(),
            markers.clone(),
            peers.clone(),
            producer_ids.clone(),
        );
        let inquiry =
            TransactionInquiry { me, images: images.subscribe(), transactions: transactions.clone(), peers };
        let handlers = Handlers {
            partitions: partitions.clone(),
            transactions: transactions.clone(),
            groups: groups.clone(),
            inquiry,
            markers,
            producer_ids,
        };
        Coordination {
            me,
            life,
            tasks: Tasks::default(),
            images,
            config,
            partitions,
            lease,
            transactions: Kept { coordinators: transactions, running: BTreeMap::new() },
            groups: Kept { coordinators: groups, running: BTreeMap::new() },
            handlers,
            effects,
            sender: Arc::new(sender),
            deliveries: BTreeMap::new(),
            carried,
            calls: BTreeMap::new(),
            answer,
            answers,
            ids: 0..0,
            ids_asked,
            ids_owed: Vec::new(),
            is_asking_for_ids: false,
            look_at: Ms::MAX,
            wakes_at: MonotonicMs(i64::MAX),
        }
    }

    pub fn learn(&self, image: &Arc<Image>) {
        self.images.send_replace(image.clone());
    }

    /// The reconciler has caught up, or some time has passed: the actors are those of what is led here now.
    pub fn keep(&mut self, context: &Context) {
        let image = self.images.borrow().clone();
        let surroundings = || Surroundings {
            images: self.images.subscribe(),
            config: self.config.clone(),
            partitions: self.partitions.clone(),
            lease: self.lease.clone(),
        };
        let is_complete = self.transactions.keep(&image, &mut self.tasks, self.me, surroundings)
            & self.groups.keep(&image, &mut self.tasks, self.me, surroundings);
        self.look_at = if is_complete { Ms::MAX } else { context.now + LOOK_AGAIN_MS };
    }

    /// Has everything go on that can.
    pub fn turn(&mut self, context: &mut Context) -> Turn {
        let now = MonotonicMs(context.now);
        if self.look_at <= context.now {
            self.keep(context);
        }
        let mut turn = Turn::default();
        loop {
            let has_worked = self.tasks.run(now) | self.take_effects() | self.give_ids();
            turn.has_worked |= has_worked;
            if !has_worked {
                break;
            }
        }
        self.carry(context);
        while let Ok((to, body)) = self.answers.try_recv() {
            context.send(Place::Node(self.me.0), to, body);
        }
        if !self.ids_owed.is_empty() && !self.is_asking_for_ids {
            self.is_asking_for_ids = true;
            turn.needs_ids = true;
        }
        let look_at = MonotonicMs(self.look_at);
        let wakes_at = self.tasks.wakes_at().into_iter().chain([look_at]).min().unwrap_or(look_at);
        if wakes_at < self.wakes_at || self.wakes_at <= now {
            self.wakes_at = wakes_at;
            turn.wakes_in = Some(wakes_at.0.saturating_sub(context.now)).filter(|ms| *ms < Ms::MAX / 2);
        }
        turn
    }

    fn take_effects(&mut self) -> bool {
        let mut has_some = false;
        while let Ok((coordinator, effect)) = self.effects.try_recv() {
            has_some = true;
            let sender = self.sender.clone();
            match effect {
                Effect::Write(markers) => {
                    let key = (coordinator, markers.transactional_id.clone());
                    if let Some(before) = self.deliveries.remove(&key) {
                        self.tasks.end(before);
                    }
                    let task = self.tasks.begin(async move { sender.write(coordinator, markers).await });
                    self.deliveries.insert(key, task);
                }
                Effect::NeedsProducerId { transactional_id, producer } => {
                    self.tasks
                        .begin(async move { sender.supply(coordinator, transactional_id, producer).await });
                }
            }
        }
        if has_some {
            self.deliveries.retain(|_, task| self.tasks.is_running(*task));
        }
        has_some
    }

    // Producer ids.

    fn give_ids(&mut self) -> bool {
        while let Ok(asked) = self.ids_asked.try_recv() {
            self.ids_owed.push(asked);
        }
        let mut has_some = false;
        while !self.ids_owed.is_empty()
            && let Some(id) = self.ids.next()
        {
            has_some = true;
            let _ = self.ids_owed.remove(0).send(Ok(ProducerId(id)));
        }
        has_some
    }

    /// The controller has given a block, or not.
    pub fn take_ids(&mut self, block: Option<ProducerIdBlock>) {
        self.is_asking_for_ids = false;
        if let Some(block) = block {
            self.ids = block.first.0..block.first.0 + i64::from(block.size);
        } else {
            // Whoever waits is told that there is none.
            self.ids_owed.clear();
        }
    }

    // Other brokers.

    fn carry(&mut self, context: &mut Context) {
        while let Ok(Carried { broker, request, answer }) = self.carried.try_recv() {
            let asking = match request.downcast() {
                Ok(markers) => PeerAsking::Markers(*markers),
                Err(request) => PeerAsking::Partitions(*request.downcast().expect("one of two requests")),
            };
            let call = context.unique();
            self.calls.insert(call, answer);
            let node = self.me.0;
            let body = Body::PeerAsk(PeerAsk { node, call, asking });
            context.straggle(Place::Node(node), Place::Node(broker.0), &body, false);
            context.send(Place::Node(node), Place::Node(broker.0), body);
            let what = ProcessEvent::PeerTimeout(call);
            context.after(PEER_LIMIT_MS, Event::Process { node, life: self.life, what });
        }
    }

    /// Whether this call of a broker still waits for its answer.
    pub fn awaits(&self, call: u64) -> bool {
        self.calls.contains_key(&call)
    }

    /// Nobody has answered this call: its connection breaks.
    pub fn give_up(&mut self, call: u64) {
        self.calls.remove(&call);
    }

    pub fn told(&mut self, call: u64, told: PeerTold) {
        let Some(answer) = self.calls.remove(&call) else { return };
        let told: Box<dyn Any + Send> = match told {
            PeerTold::Markers(response) => Box::new(response),
            PeerTold::Partitions(response) => Box::new(response),
        };
        let _ = answer.send(told);
    }

    pub fn peer_asks(&mut self, ask: PeerAsk) {
        let PeerAsk { node, call, asking } = ask;
        let (handlers, image, answers) = self.for_handler();
        self.tasks.begin(async move {
            let told = handlers.tell_peer(image, asking).await;
            let _ = answers.send((Place::Node(node), Body::PeerTold { call, told }));
        });
    }

    // Clients.

    pub fn asks(&mut self, ask: Ask) {
        let Ask { client, call, asking } = ask;
        let (handlers, image, answers) = self.for_handler();
        self.tasks.begin(async move {
            let told = handlers.tell(image, asking).await;
            let _ = answers.send((Place::Clients, Body::Told { client, call, told }));
        });
    }

    fn for_handler(&self) -> (Handlers, Arc<Image>, mpsc::UnboundedSender<Addressed>) {
        (self.handlers.clone(), self.images.borrow().clone(), self.answer.clone())
    }
}

impl<M: Machine> Kept<M> {
    /// False when there are partitions that will be led here.
    fn keep(
        &mut self,
        image: &Image,
        tasks: &mut Tasks,
        me: NodeId,
        surroundings: impl Fn() -> Surroundings,
    ) -> bool {
        let topic = self.coordinators.topic();
        let Led { led, is_complete } = Led::of(image, topic, &surroundings().partitions, me);
        let is_over = |index: &PartitionIndex, running: &mut (TopicIdPartition, LeaderEpoch, u64)| {
            let partition =
                led.get(index).map(|partition| (partition.id, partition.leadership().leader_epoch));
            partition != Some((running.0, running.1))
        };
        for (index, (_, _, task)) in self.running.extract_if(.., is_over) {
            self.coordinators.end(index);
            tasks.end(task);
        }
        for (index, partition) in led {
            self.running.entry(index).or_insert_with(|| {
                let (id, epoch) = (partition.id, partition.leadership().leader_epoch);
                (id, epoch, tasks.begin(self.coordinators.begin(partition, surroundings())))
            });
        }
        is_complete
    }
}
