//! The simulated world: nodes, controller, network and clients, driven by one queue of events in one thread.
//!
//! Invariant: after every event the laws hold for what it has changed; everything is decided by the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::clients::{Consumer, Producer};
use super::context::{Context, Event, Ms, note};
use super::controller::Request;
use super::history::{self, History, PartitionHistory, read};
use super::invariants::{
    Broken, Invariants, Sight, all_or_nothing, committed_reads, lease, mended, progress, prompt, stable,
};
use super::members::{MEMBERS, Member};
use super::mishaps::Mishaps;
use super::network::{Body, Packet, Place, Told};
use super::node::Node;
use super::plan::{Plan, TopicKind, TopicPlan};
use super::quorum::{Going, Quorum};
use super::readers::{OFFSETS, OffsetReader, Reader};
use super::rot;
use super::transactional::Client;
use crate::broker::partitions::{Leadership, Partition, Role};
use crate::coordinator::group;
use crate::coordinator::group::reply::FetchedOffset;
use crate::metadata::Image;
use crate::metadata::liveness::ProbeOutcome;
use crate::metadata::topics::NewTopic;
use crate::storage::log::LogView;
use crate::types::{LeaderEpoch, MonotonicMs, NodeId, Offset, PartitionIndex, TopicIdPartition, Uuid};

/// How long the cluster may take to be whole again once nothing goes wrong any more.
const RECOVERY_MS: Ms = 30_000;
/// How often that is looked at.
const LOOK_MS: Ms = 250;
/// How long the cluster is watched once it is whole, and how often it is looked at.
const PROMPT_MS: Ms = 1_500;
const PROMPT_LOOK_MS: Ms = 20;

/// What came of a seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub hash: u64,
    pub events: u64,
    pub acknowledged: u64,
    pub elections: u64,
    /// Transactions whose end was told to their clients.
    pub transactions: u64,
    /// How often a partition of a group went from one member to another.
    pub takeovers: u64,
    /// How long the cluster took to be whole again.
    pub recovered_after: Ms,
}

/// What a process showed last.
struct Shown {
    life: u64,
    partition: Arc<Partition>,
    /// How often it had begun anew.
    rebuilds: u32,
    leadership: Leadership,
    view: Arc<LogView>,
}

pub struct World {
    pub context: Context,
    pub quorum: Quorum,
    pub nodes: Vec<Node>,
    pub producers: Vec<Producer>,
    consumers: Vec<Consumer>,
    pub transactional: Vec<Client>,
    pub readers: Vec<Reader>,
    offset_readers: Vec<OffsetReader>,
    pub members: Vec<Member>,
    pub history: History,
    invariants: Invariants,
    shown: BTreeMap<(NodeId, TopicIdPartition), Shown>,
    pub mishaps: Mishaps,
    /// Which replica was read last.
    scanned: Option<(NodeId, TopicIdPartition)>,
    /// The head of the metadata log that the laws have seen.
    checked: u64,
}

impl World {
    pub fn new(seed: u64, prints: bool) -> World {
        let plan = Plan::of(seed);
        let mut context = Context::new(seed, plan.clone(), prints);
        note!(context, "seed {seed}: {plan:?}");
        let nodes = (1..=plan.nodes).map(|id| Node::new(NodeId(id), &plan)).collect();
        let (mut producers, mut consumers) = (Vec::new(), Vec::new());
        let (mut transactional, mut readers) = (Vec::new(), Vec::new());
        for topic in &plan.topics {
            for partition in 0..topic.partitions {
                match topic.kind {
                    TopicKind::Plain => {}
                    TopicKind::Internal => continue,
                    TopicKind::Transactional => {
                        let (topic, partition) = (topic.name, PartitionIndex(partition));
                        readers.push(Reader { topic, partition, at: None });
                        continue;
                    }
                }
                for _ in 0..2 {
                    producers.push(Producer::new(&mut context, producers.len(), topic, partition));
                }
                consumers.push(Consumer::new(topic.name, partition));
            }
        }
        if let Some(of) = plan.transactions {
            for index in 0..of.clients {
                transactional.push(Client::new(&mut context, index, of));
            }
        }
        World {
            offset_readers: (0..transactional.len()).map(OffsetReader::new).collect(),
            members: plan
                .group
                .map_or(Vec::new(), |of| (0..of.members).map(|index| Member::new(index, of)).collect()),
            transactional,
            readers,
            quorum: Quorum::new(&plan),
            context,
            nodes,
            producers,
            consumers,
            history: History::default(),
            invariants: Invariants::new(!plan.lazy.is_empty()),
            shown: BTreeMap::new(),
            mishaps: Mishaps::default(),
            scanned: None,
            checked: 0,
        }
    }

    /// Begins, goes wrong for a while, and comes to rest.
    pub fn run(mut self) -> Result<Outcome, Broken> {
        for node in 1..=self.context.plan.nodes {
            self.context.after(0, Event::Start { node });
        }
        self.quorum.elect(&mut self.context, 0, Going::Unaware(0), 0);
        self.context.calm = true;
        self.run_until(|world| {
            world.quorum.log.head.brokers.iter().filter(|broker| broker.is_active()).count()
                == world.nodes.len()
        })?;
        self.create_topics();
        self.context.calm = false;
        for producer in 0..self.producers.len() {
            self.context.after(1, Event::Producer(producer));
        }
        for consumer in 0..self.consumers.len() {
            self.context.after(1, Event::Consumer(consumer));
        }
        for client in 0..self.transactional.len() {
            self.context.after(1, Event::Transactional(client));
            self.context.after(1, Event::Offsets(client));
        }
        for member in 0..self.members.len() {
            self.context.after(1, Event::Member(member));
        }
        for reader in 0..self.readers.len() {
            self.context.after(1, Event::Reader(reader));
        }
        if self.context.plan.has_rot() {
            self.context.after(1, Event::Scan);
        }
        self.context.after(500, Event::Mishap);
        let faults_end = self.context.now + self.context.plan.faults_ms;
        self.run_until(|world| world.context.now >= faults_end)?;
        note!(self.context, "calm");
        Mishaps::end_all(&mut self);
        let calm_since = self.context.now;
        self.run_until(|world| world.all_active() || world.context.now - calm_since > RECOVERY_MS)?;
        // Those whose making found too few brokers.
        self.create_topics();
        let before: Vec<u64> = self
            .producers
            .iter()
            .map(|producer| producer.acknowledged)
            .chain(self.transactional.iter().map(|client| client.committed))
            .chain([self.commits()])
            .collect();
        self.run_until_nothing_is_missing("progress", |world| progress::missing(world, &before))?;
        let well_since = self.context.now;
        while self.context.now < well_since + PROMPT_MS {
            let until = self.context.now + PROMPT_LOOK_MS;
            self.run_until(|world| world.context.now >= until)?;
            prompt::check(&self, well_since)?;
            prompt::check_lives(&self)?;
        }
        self.context.rests = true;
        self.run_until_nothing_is_missing("stable", stable::missing)?;
        if self.context.plan.has_rot() {
            self.run_until_nothing_is_missing("mended", mended::missing)?;
        }
        all_or_nothing::check_at_rest(&self.history.ledger)?;
        self.invariants.at_rest(&self.quorum.log.head)?;
        self.invariants.on_log(&self.quorum.log.records, &self.quorum.log.head)?;
        self.invariants.on_head(&self.quorum.log.head)?;
        let epochs = self.quorum.log.head.topics.iter().flat_map(|topic| topic.partitions());
        Ok(Outcome {
            hash: self.context.trace.hash(),
            events: self.context.trace.lines,
            acknowledged: self.history.acknowledgements,
            elections: epochs.map(|(_, partition)| u64::from(partition.leader_epoch.0.unsigned_abs())).sum(),
            transactions: self.history.ledger.txns.iter().filter(|txn| txn.told.is_some()).count() as u64,
            takeovers: self.invariants.owners.takeovers,
            recovered_after: self.context.now - calm_since,
        })
    }

    fn all_active(&self) -> bool {
        self.nodes.iter().all(|node| self.quorum.log.head.brokers.is_active(node.me))
    }

    fn run_until(&mut self, mut done: impl FnMut(&mut World) -> bool) -> Result<(), Broken> {
        while !done(self) {
            let Some(event) = self.context.next_event() else {
                return Err("nothing happens any more".to_owned());
            };
            self.on(event)?;
        }
        Ok(())
    }

    /// Looks now and then for what is missing yet.
    fn run_until_nothing_is_missing(
        &mut self,
        law: &str,
        look: impl Fn(&World) -> Option<String>,
    ) -> Result<(), Broken> {
        let began = self.context.now;
        let (mut look_at, mut missing) = (began, String::new());
        self.run_until(|world| {
            if world.context.now < look_at {
                return false;
            }
            look_at = world.context.now + LOOK_MS;
            let found = look(world);
            missing = found.clone().unwrap_or_default();
            found.is_none() || world.context.now - began > RECOVERY_MS
        })?;
        match missing.is_empty() {
            true => Ok(()),
            false => Err(format!("{law}: {RECOVERY_MS} ms after the last fault {missing}")),
        }
    }

    fn create_topics(&mut self) {
        for topic in self.context.plan.topics.clone() {
            self.create(&topic);
        }
    }

    pub fn create(&mut self, topic: &TopicPlan) {
        let set = |key: &str, value: String| (Arc::from(key), Some(Arc::from(value)));
        let id = Uuid::from_u128(0x70_0000 + u128::from(self.context.unique()));
        if topic.kind != TopicKind::Plain {
            self.history.kinds.insert(id, topic.kind);
        }
        let cleanup = if topic.kind == TopicKind::Internal { "compact" } else { "delete" };
        self.ask(Request::Create(NewTopic {
            name: topic.name.into(),
            id,
            partitions: Some(topic.partitions),
            replication_factor: Some(topic.replication_factor),
            assignments: Vec::new(),
            configs: vec![
                set("min.insync.replicas", topic.min_insync_replicas.to_string()),
                // `segment.bytes` is at least a mebibyte, and what is below does not count.
                set("internal.segment.bytes", topic.segment_bytes.to_string()),
                set("index.interval.bytes", "200".to_owned()),
                set("file.delete.delay.ms", "1000".to_owned()),
                set("unclean.leader.election.enable", topic.is_unclean.to_string()),
                set("cleanup.policy", cleanup.to_owned()),
            ],
        }));
    }

    /// The administrator asks for something.
    pub fn ask(&mut self, request: Request) {
        self.quorum.ask(&mut self.context, request);
    }

    fn on(&mut self, event: Event) -> Result<(), Broken> {
        let touched = match &event {
            Event::Process { node, .. } | Event::Packet(Packet { to: Place::Node(node), .. }) => Some(*node),
            _ => None,
        };
        if let Some(node) = touched {
            let until = self.nodes[(node - 1) as usize].paused_until;
            if until > self.context.now {
                self.context.after(until - self.context.now, event);
                return Ok(());
            }
        }
        match event {
            Event::Packet(packet) => self.arrives(packet)?,
            Event::Process { node, life, what } => {
                self.nodes[(node - 1) as usize].on(&mut self.context, life, what);
                self.end_if_due(node);
            }
            Event::Start { node } => self.start(node),
            Event::Controller { at, what } => {
                self.quorum.on(&mut self.context, at, what);
                Mishaps::look(self, at);
            }
            Event::Producer(at) => {
                let image = self.some_image();
                self.producers[at].act(&mut self.context, &mut self.history, image.as_deref());
            }
            Event::Consumer(at) => self.consume(at)?,
            Event::Transactional(at) => {
                let image = self.some_image();
                let ledger = &mut self.history.ledger;
                self.transactional[at].act(&mut self.context, ledger, image.as_deref());
            }
            Event::Reader(at) => self.read_committed(at)?,
            Event::Member(at) => {
                let image = self.some_image();
                let owners = &self.invariants.owners;
                self.members[at].act(&mut self.context, owners, image.as_deref());
            }
            Event::Offsets(client) => {
                let pause = self.context.chance.between(20, 80);
                self.context.after(pause, Event::Offsets(client));
                if let Some(image) = self.some_image() {
                    let committed = self.history.ledger.committed_offset(client);
                    self.offset_readers[client].act(&mut self.context, &image, committed);
                }
            }
            Event::Scan => self.scan()?,
            Event::Mishap => Mishaps::next(self),
            Event::Mend(id) => Mishaps::mend(self, id),
        }
        let Some(node) = touched else { return self.check(&[]) };
        // Who looks is no reader.
        let disk = self.nodes[(node - 1) as usize].disk.clone();
        disk.spare(true);
        let changed = self.observe(node);
        disk.spare(false);
        self.check(&changed?)
    }

    fn arrives(&mut self, packet: Packet) -> Result<(), Broken> {
        let Packet { from, to, body } = packet;
        match (to, body) {
            (Place::Controller(at), body) => self.quorum.arrives(&mut self.context, at, from, body),
            (Place::Node(node), Body::Probe(probe)) => {
                let is_there = self.nodes[(node - 1) as usize].process.is_some();
                // A machine without power refuses nothing.
                if is_there || self.context.chance.permille(700) {
                    let outcome = if is_there { ProbeOutcome::Answered } else { ProbeOutcome::Refused };
                    self.context.send(to, from, Body::Probed { probe, outcome });
                }
            }
            (Place::Clients, Body::Produced { producer, attempt, result }) => {
                if let Err(refusal) = result {
                    note!(self.context, "producer {producer} is refused {attempt}: {refusal:?}");
                }
                let acknowledged = self.producers[producer].answered(&self.context, attempt, result);
                if let Some(acknowledged) = acknowledged {
                    let super::clients::Acknowledged { id, base, crc } = acknowledged;
                    note!(self.context, "acknowledged {crc:08x} at {base} of {id:?}");
                    let partition = self.quorum.log.head.topics.partition(id.topic_id, id.partition);
                    // Of a topic that is gone nobody shows any more what came last; and what was acknowledged before an unclean
                    // election may be lost.
                    if partition.is_some_and(|partition| partition.lossy_epoch == LeaderEpoch::UNKNOWN) {
                        let leads = self.leads(from, id);
                        self.invariants.on_acknowledged(&mut self.history, id, base, crc, leads)?;
                    }
                }
            }
            (Place::Clients, Body::Told { client, call, told }) => self.told(from, client, call, told)?,
            // On a connection that is gone nothing arrives any more.
            (Place::Node(_), Body::Ask(ask))
                if self.context.plan.keeps_order()
                    && ask.client < OFFSETS
                    && !self.transactional[ask.client].awaits(ask.call) => {}
            (Place::Node(_), Body::Ask(ask))
                if ask.client >= MEMBERS && !self.members[ask.client - MEMBERS].awaits(ask.call) => {}
            (Place::Node(_), Body::PeerAsk(ask))
                if self.context.plan.keeps_order() && !self.is_awaited(ask.node, ask.call) => {}
            (Place::Node(node), body) => {
                self.nodes[(node - 1) as usize].arrives(&mut self.context, body);
                self.end_if_due(node);
            }
            _ => {}
        }
        Ok(())
    }

    /// How many offsets members were told that they have committed.
    pub fn commits(&self) -> u64 {
        self.members.iter().map(|member| member.commits).sum()
    }

    fn is_awaited(&self, node: i32, call: u64) -> bool {
        let process = self.nodes[(node - 1) as usize].process.as_ref();
        let coordination = process.and_then(|process| process.coordination.as_ref());
        coordination.is_some_and(|coordination| coordination.awaits(call))
    }

    /// A client of a coordinator gets an answer.
    fn told(&mut self, from: Place, client: usize, call: u64, told: Told) -> Result<(), Broken> {
        if client < OFFSETS {
            let ledger = &mut self.history.ledger;
            let acknowledged = self.transactional[client].answered(&mut self.context, ledger, call, told)?;
            if let Some(super::clients::Acknowledged { id, base, crc }) = acknowledged {
                let leads = self.leads(from, id);
                self.invariants.on_acknowledged(&mut self.history, id, base, crc, leads)?;
            }
            return Ok(());
        }
        if client >= MEMBERS {
            let (member, owners) = (&mut self.members[client - MEMBERS], &mut self.invariants.owners);
            return member.answered(&mut self.context, owners, call, told);
        }
        let reader = &mut self.offset_readers[client - OFFSETS];
        if !reader.awaits(call) {
            return Ok(());
        }
        reader.answered();
        let (client, floor) = (reader.client, reader.floor);
        let Told::Group(Ok(group::Reply::FetchOffsets(Ok(topics))), term) = told else { return Ok(()) };
        let found = match topics.first().and_then(|topic| topic.partitions.first()) {
            Some((_, FetchedOffset::Offset { offset, .. })) => offset.0,
            Some((_, FetchedOffset::Unstable)) => return Ok(()),
            Some((_, FetchedOffset::None)) | None => -1,
        };
        note!(self.context, "the offset of client {client} is {found}, at least {floor}");
        self.invariants.offsets.check(&self.history.ledger, client, floor, term, found)
    }

    /// Whether a node shows that it leads a partition.
    fn leads(&self, node: Place, id: TopicIdPartition) -> bool {
        let Place::Node(node) = node else { return false };
        self.shown_by(NodeId(node), id).is_some_and(|(leadership, _)| leadership.role == Role::Leader)
    }

    /// Switches a node on.
    fn start(&mut self, node: i32) {
        rot::before_start(self, node);
        let head = self.quorum.log.head.clone();
        self.nodes[(node - 1) as usize].start(&mut self.context, &head);
    }

    /// A process that was let go, or is unknown to the cluster, ends.
    fn end_if_due(&mut self, node: i32) {
        let at = (node - 1) as usize;
        if self.nodes[at].process.as_ref().is_some_and(|process| process.may_end) {
            self.nodes[at].close(&mut self.context);
            self.ended(node);
            let delay = self.context.chance.between(100, 2_000);
            self.context.after(delay, Event::Start { node });
        }
    }

    /// The process of a node is gone: its connections break.
    pub fn ended(&mut self, node: i32) {
        let id = NodeId(node);
        self.invariants.on_end(id);
        self.shown.retain(|(of, _), _| *of != id);
        if self.context.chance.permille(700) {
            self.quorum.disconnected(&mut self.context, id);
        }
        for other in &mut self.nodes {
            other.lost_peer(&mut self.context, node);
        }
    }

    /// What some broker knows of the cluster.
    fn some_image(&mut self) -> Option<Arc<Image>> {
        let at = self.context.chance.below(self.nodes.len());
        let node = &self.nodes[at];
        let process = node.process.as_ref().filter(|_| node.paused_until <= self.context.now)?;
        Some(process.image.clone())
    }

    fn consume(&mut self, at: usize) -> Result<(), Broken> {
        let pause = self.context.chance.between(20, 80);
        self.context.after(pause, Event::Consumer(at));
        let Some(image) = self.some_image() else { return Ok(()) };
        let Some((leader, id, from)) = self.consumers[at].wants(&image) else { return Ok(()) };
        let Some(node) = usize::try_from(leader.0 - 1).ok().and_then(|at| self.nodes.get(at)) else {
            return Ok(());
        };
        let Some(process) = node.process.as_ref().filter(|_| node.paused_until <= self.context.now) else {
            return Ok(());
        };
        let Some(partition) = process.partitions.get(&id) else { return Ok(()) };
        let view = partition.view();
        // What no law could look at, for it is damaged, is read later.
        let known = self.history.partitions.get(&id).map_or(Offset::ZERO, PartitionHistory::end);
        let upto = view.high_watermark.min(known);
        if partition.leadership().role != Role::Leader || from >= upto {
            return Ok(());
        }
        let got = match read(&view, from, upto, false) {
            Ok(got) => got,
            Err(unread) => return unread.of(&partition),
        };
        if !self.invariants.is_current(&self.quorum.log.head, id, partition.leadership().leader_epoch) {
            return Ok(());
        }
        self.invariants.on_consumed(&self.history, id, &got)?;
        if let Some(last) = got.last() {
            self.consumers[at].at = Some((id, last.next));
        }
        Ok(())
    }

    fn read_committed(&mut self, at: usize) -> Result<(), Broken> {
        let pause = self.context.chance.between(20, 80);
        self.context.after(pause, Event::Reader(at));
        let Some(image) = self.some_image() else { return Ok(()) };
        let Some((leader, id, from)) = self.readers[at].wants(&image) else { return Ok(()) };
        let Some((leadership, view)) = self.shown_by(leader, id) else { return Ok(()) };
        let is_paused = self.nodes[(leader.0 - 1) as usize].paused_until > self.context.now;
        if is_paused || leadership.role != Role::Leader || from >= view.last_stable {
            return Ok(());
        }
        let entries = match read(&view, from, view.last_stable, false) {
            Ok(entries) => entries,
            Err(unread) => {
                let partition = self.shown.get(&(leader, id)).map(|shown| shown.partition.clone());
                return partition.map_or(Ok(()), |partition| unread.of(&partition));
            }
        };
        let Some(read) = Reader::read(&view, from, &entries) else { return Ok(()) };
        let Some(tail) = history::entries(&view, from, view.log_end) else { return Ok(()) };
        committed_reads::check(&self.history.ledger, id, &read, &tail)?;
        if let Some(last) = entries.last() {
            self.readers[at].at = Some((id, last.next));
        }
        Ok(())
    }

    /// Somebody reads some of a replica's records, whoever leads, and where they lie.
    fn scan(&mut self) -> Result<(), Broken> {
        let pause = if self.context.calm { 10 } else { self.context.chance.between(20, 80) };
        self.context.after(pause, Event::Scan);
        let after = self.scanned.take().map_or(Bound::Unbounded, Bound::Excluded);
        let Some(((node, id), shown)) = self.shown.range((after, Bound::Unbounded)).next() else {
            return Ok(());
        };
        self.scanned = Some((*node, *id));
        let is_paused = self.nodes[(node.0 - 1) as usize].paused_until > self.context.now;
        let epoch = shown.leadership.leader_epoch;
        if is_paused || !self.invariants.is_current(&self.quorum.log.head, *id, epoch) {
            return Ok(());
        }
        let (view, known) = (shown.partition.view(), self.history.partitions.get(id));
        let upto = view.high_watermark.min(known.map_or(Offset::ZERO, PartitionHistory::end));
        let from = if self.context.calm || view.log_start >= upto {
            view.log_start
        } else {
            Offset(self.context.chance.between(view.log_start.0, upto.0 - 1))
        };
        match read(&view, from, upto, true) {
            Ok(got) => self.invariants.on_consumed(&self.history, *id, &got),
            Err(unread) => unread.of(&shown.partition),
        }
    }

    /// Where the consumers of a partition are.
    pub fn consumed(&self, id: TopicIdPartition) -> Option<Offset> {
        let mut at = self.consumers.iter().filter_map(|consumer| consumer.at).filter(|(of, _)| *of == id);
        at.next().map(|(_, offset)| offset)
    }

    /// Looks at what a process shows, and returns where it has changed.
    fn observe(&mut self, node: i32) -> Result<Vec<TopicIdPartition>, Broken> {
        let Some(process) = &mut self.nodes[(node - 1) as usize].process else { return Ok(Vec::new()) };
        if !std::mem::take(&mut process.has_worked) {
            return Ok(Vec::new());
        }
        let (me, life) = (process.me, process.life);
        let mut partitions: Vec<_> = process.partitions.all().into_iter().collect();
        partitions.sort_unstable_by_key(|(id, _)| *id);
        if self.shown.keys().filter(|(of, _)| *of == me).count() > partitions.len() {
            let here: BTreeSet<TopicIdPartition> = partitions.iter().map(|(id, _)| *id).collect();
            for (key, _) in self.shown.extract_if(.., |(of, id), _| *of == me && !here.contains(id)) {
                self.invariants.on_gone(me, key.1);
            }
        }
        for (id, epoch) in std::mem::take(&mut process.acknowledged) {
            lease::check(&self.quorum.log.head, me, id, epoch)?;
        }
        for refused in std::mem::take(&mut process.refused) {
            self.invariants.on_refused(life, refused)?;
        }
        let mut changed = Vec::new();
        for (id, partition) in partitions {
            let (leadership, view) = (partition.leadership(), partition.view());
            let before = self.shown.get(&(me, id));
            if before.is_some_and(|shown| {
                shown.life == life && shown.leadership == leadership && Arc::ptr_eq(&shown.view, &view)
            }) {
                continue;
            }
            let rebuilds = partition.rebuilds();
            let is_same =
                |shown: &Shown| Arc::ptr_eq(&shown.partition, &partition) && shown.rebuilds == rebuilds;
            if before.is_some_and(|shown| !is_same(shown)) {
                // The replica went away and came back as another one, or is damaged and has its records anew.
                self.invariants.on_gone(me, id);
            }
            changed.push(id);
            let (role, epoch) = (leadership.role, leadership.leader_epoch);
            let (flushed, high, end) = (view.flushed, view.high_watermark, view.log_end);
            let (topic, index) = (id.topic_id.as_u128(), id.partition);
            note!(self.context, "{node} {topic:x}-{index} {role:?} {epoch}: {high} {flushed} {end}");
            let sight = Sight { node: me, life, id, leadership, view: &view };
            self.invariants.on_sight(&mut self.history, &self.quorum.log.head, &sight)?;
            if partition.directory().is_online() {
                let dir = partition.directory().path().join(partition.name.to_string());
                self.invariants.on_disk(&self.nodes[(node - 1) as usize].disk, &dir, &sight)?;
            }
            let process = self.nodes[(node - 1) as usize].process.as_ref();
            if let Some(log) = process.and_then(|process| process.log_of(&id)) {
                self.invariants.on_log_of(log, &sight)?;
            }
            self.shown.insert((me, id), Shown { life, partition, rebuilds, leadership, view });
        }
        Ok(changed)
    }

    /// The laws that tie the metadata to what the processes show.
    fn check(&mut self, changed: &[TopicIdPartition]) -> Result<(), Broken> {
        let head = &self.quorum.log.head;
        let is_new = self.checked != head.version.0;
        if changed.is_empty() && !is_new {
            return Ok(());
        }
        if head.version.0 / 100 != self.checked / 100 {
            self.invariants.on_head(head)?;
        }
        self.checked = head.version.0;
        if is_new {
            self.invariants.on_fenced(head, &self.nodes, MonotonicMs(self.context.now))?;
        }
        let concerned = self.shown.iter().filter(|((_, id), _)| is_new || changed.contains(id));
        for ((node, id), shown) in concerned {
            let Shown { life, leadership, view, .. } = shown;
            let sight = Sight { node: *node, life: *life, id: *id, leadership: *leadership, view };
            self.invariants.on_in_sync(&self.history, head, &sight)?;
        }
        Ok(())
    }

    /// What a live process shows of a partition.
    pub fn shown_by(&self, node: NodeId, id: TopicIdPartition) -> Option<(Leadership, Arc<LogView>)> {
        self.shown.get(&(node, id)).map(|shown| (shown.leadership, shown.view.clone()))
    }
}
