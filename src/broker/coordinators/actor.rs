//! One coordinator in one term of its partition's leader: reads the log, then serves until an append fails, and begins anew.
//!
//! Must not know what is decided. Invariants: what the machine has decided is appended in that order, where the log is expected
//! to end; replies and effects leave in that order too, each when all that was appended before it is committed. After a
//! failure nothing of the machine is used any more.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use super::super::blocking::blocking;
use super::super::clock;
use super::super::dynamic_config::{DynamicConfig, Effective, texts};
use super::super::lease::Lease;
use super::super::messages::{ProduceError, Produced};
use super::super::partitions::{Partition, Partitions};
use super::batches::Batches;
use super::load::{LoadError, Loaded, load};
use super::shortage::Shortage;
use super::{CoordinatorError, Ending, Inner, Input, Reply};
use crate::coordinator::{Context, Machine, Now, Out, ReplyToken};
use crate::fault::{self, Fault};
use crate::metadata::Image;
use crate::metadata::configs::ConfigValues;
use crate::replica::AckError;
use crate::storage::log::producer_state::Coordinated;
use crate::storage::log::{AppendError, LogError};
use crate::types::{LeaderEpoch, MonotonicMs, Offset};

/// At most so many inputs make one append.
const DRAIN_MAX: usize = 256;
/// No input is taken while so many appends are not committed.
const IN_FLIGHT_MAX: usize = 128;
/// How often an actor that may not append looks whether it may.
const RETRY: Duration = Duration::from_millis(250);
/// How long it waits before it reads a log again that could not be read.
const LOAD_RETRY: Duration = Duration::from_secs(5);
/// Waking once a day for a deadline that is farther away costs nothing, and spares arithmetic at the end of time.
const SLEEP_MAX_MS: i64 = 86_400_000;

/// What an actor sees of its broker.
#[derive(Debug)]
pub struct Surroundings {
    pub images: watch::Receiver<Arc<Image>>,
    pub config: Arc<DynamicConfig>,
    pub partitions: Partitions,
    pub lease: Lease,
}

pub(super) struct Actor<M: Machine> {
    common: Arc<Inner<M>>,
    partition: Arc<Partition>,
    leader_epoch: LeaderEpoch,
    inbox: mpsc::Receiver<Input<M>>,
    surroundings: Surroundings,
    limits: Limits,
    shortage: Shortage,
}

/// What the configuration says of the log, computed again when its parts of the metadata have changed.
#[derive(Debug, Default)]
struct Limits {
    of: Option<(Arc<Effective>, Option<ConfigValues>)>,
    batch_bytes: usize,
}

/// Why a coordinator no longer serves.
enum End {
    /// The actor is over.
    Stopped,
    /// The machine cannot be used any more; who waited was told so.
    Lost(CoordinatorError),
}

type Acknowledged = Pin<Box<dyn Future<Output = Result<Produced, ProduceError>> + Send>>;

/// A coordinator that serves.
struct Live<M: Machine> {
    machine: M,
    image: Arc<Image>,
    /// Where the log ends when all that is in flight has been appended.
    log_end: Offset,
    next_token: u64,
    /// Requests that have not been replied to.
    waiting: HashMap<ReplyToken, Reply<M::Reply>>,
    /// Appends that are not committed, in their order.
    in_flight: VecDeque<InFlight<M>>,
}

/// An append, and what leaves when it is committed.
struct InFlight<M: Machine> {
    acknowledged: Acknowledged,
    has_records: bool,
    owed: Owed<M>,
}

/// What leaves together.
struct Owed<M: Machine> {
    replies: VecDeque<(MonotonicMs, Answer<M>)>,
    effects: Vec<M::Effect>,
}

/// A reply with whom it is for.
enum Answer<M: Machine> {
    Command(Reply<M::Reply>, M::Reply),
    EndTransaction(Reply<()>),
}

/// What one turn of the machine has led to so far.
struct Turn<M: Machine> {
    out: Out<M::Record, M::Reply, M::Effect>,
    batches: Batches,
    owed: Owed<M>,
    /// When replies are given up.
    give_up: MonotonicMs,
}

/// What an actor wakes up for.
enum Event {
    Acknowledged(Result<Produced, ProduceError>),
    Image,
    Inputs,
    Time,
}

impl<M: Machine> Actor<M> {
    pub(super) fn new(
        common: Arc<Inner<M>>,
        partition: Arc<Partition>,
        leader_epoch: LeaderEpoch,
        inbox: mpsc::Receiver<Input<M>>,
        surroundings: Surroundings,
    ) -> Actor<M> {
        let (limits, shortage) = Default::default();
        Actor { common, partition, leader_epoch, inbox, surroundings, limits, shortage }
    }

    /// That others lead now is no error.
    fn tell_not_loaded(&self, error: &LoadError) {
        let name = &self.partition.name;
        match error {
            LoadError::Moved => tracing::debug!("The coordinator of {name} is not loaded: {error}"),
            _ => tracing::error!("Could not load the coordinator of {name}: {error}"),
        }
    }

    /// Coordinates until nobody can ask any more; ends earlier when it is aborted.
    pub(super) async fn run(mut self) {
        loop {
            let loaded = self.load();
            let Some(loaded) = self.refuse_until(CoordinatorError::Loading, loaded).await else { return };
            let lost = match loaded {
                Ok((machine, loaded)) => match self.serve(machine, loaded.end).await {
                    End::Stopped => return,
                    End::Lost(error) => error,
                },
                Err(error) => {
                    self.tell_not_loaded(&error);
                    let wait = Self::wait_to_load_again(error);
                    if self.refuse_until(CoordinatorError::NotHere, wait).await.is_none() {
                        return;
                    }
                    CoordinatorError::NotHere
                }
            };
            // Reading the log again and again while nothing may be appended to it would help nobody.
            let rest = self.shortage.take_rest();
            let writable = self.writable();
            let writable = async move {
                // What is asked there needs no room, so it does not tell.
                if let Some(rest) = rest {
                    clock::sleep(rest).await;
                }
                writable.await;
            };
            if self.refuse_until(lost, writable).await.is_none() {
                return;
            }
        }
    }

    /// Folds the log into a new machine.
    fn load(&self) -> impl Future<Output = Result<(M, Loaded), LoadError>> + Send + use<M> {
        let (common, partition, leader_epoch) =
            (self.common.clone(), self.partition.clone(), self.leader_epoch);
        let is_told = self.shortage.lasts();
        async move {
            let _turn = common.loads.acquire().await;
            let mut machine = (common.kind.make)(partition.id.partition);
            let chunk = common.kind.load_buffer_bytes;
            blocking(move || {
                let began = Instant::now();
                let loaded = load(&partition, leader_epoch, chunk, &mut machine)?;
                if loaded.records > 0 && !is_told {
                    let (records, took) = (loaded.records, began.elapsed());
                    tracing::info!(
                        "Coordinator of {} has read {records} records in {took:.0?}",
                        partition.name
                    );
                }
                Ok((machine, loaded))
            })
            .await
        }
    }

    /// What is wrong with bytes does not pass in this term; a disk may be read another time.
    async fn wait_to_load_again(error: LoadError) {
        match error {
            LoadError::Moved => clock::sleep(RETRY).await,
            LoadError::Read(_) => clock::sleep(LOAD_RETRY).await,
            LoadError::Batch(..) | LoadError::Record(..) => std::future::pending().await,
        }
    }

    /// Waits until the log takes appends and all that is in it is committed.
    fn writable(&self) -> impl Future<Output = ()> + Send + use<M> {
        let (partitions, partition) = (self.surroundings.partitions.clone(), self.partition.clone());
        let leader_epoch = self.leader_epoch;
        async move {
            loop {
                let end = partition.view().log_end;
                let asked = partitions.append_at(partition.id, leader_epoch, end, Vec::new()).await;
                if is_committed(&acknowledged(asked.all().await)).is_ok() {
                    return;
                }
                clock::sleep(RETRY).await;
            }
        }
    }

    /// Answers whoever asks with `error` until something is done; `None` when nobody can ask any more.
    async fn refuse_until<T>(
        &mut self,
        error: CoordinatorError,
        until: impl Future<Output = T>,
    ) -> Option<T> {
        let mut until = pin!(until);
        loop {
            tokio::select! {
                biased;
                done = &mut until => return Some(done),
                input = self.inbox.recv() => input?.refuse(error),
            }
        }
    }

    async fn serve(&mut self, machine: M, log_end: Offset) -> End {
        let image = self.surroundings.images.borrow_and_update().clone();
        let (next_token, waiting, in_flight) = Default::default();
        let mut live = Live { machine, image, log_end, next_token, waiting, in_flight };
        // Nothing leaves before what was read is committed.
        let asked = self.append(log_end, Vec::new()).await;
        live.in_flight.push_back(InFlight { acknowledged: asked, has_records: false, owed: Owed::default() });
        let mut turn = self.turn(&live.image);
        let began = live.with_context(&mut turn, M::begin);
        if let Err(error) = began {
            return live.lose(error);
        }
        let mut inputs = Vec::new();
        loop {
            if let Err(error) = self.end_turn(turn, &mut live).await {
                return live.lose(error);
            }
            let event = self.wait(&mut live, &mut inputs).await;
            let Some(event) = event else { return End::Stopped };
            turn = self.turn(&live.image);
            if let Err(error) = self.deal_with(event, &mut inputs, &mut turn, &mut live) {
                return live.lose(error);
            }
        }
    }

    /// Waits for something to do. `None` when nobody can ask any more, or the node stops.
    async fn wait(&mut self, live: &mut Live<M>, inputs: &mut Vec<Input<M>>) -> Option<Event> {
        let wake_at = live.wakes_at();
        let has_room = live.in_flight.len() < IN_FLIGHT_MAX;
        tokio::select! {
            biased;
            done = first(&mut live.in_flight) => Some(Event::Acknowledged(done)),
            changed = self.surroundings.images.changed() => changed.ok().map(|()| Event::Image),
            count = self.inbox.recv_many(inputs, DRAIN_MAX), if has_room => (count > 0).then_some(Event::Inputs),
            () = sleep_until(wake_at) => Some(Event::Time),
        }
    }

    fn deal_with(
        &mut self,
        event: Event,
        inputs: &mut Vec<Input<M>>,
        turn: &mut Turn<M>,
        live: &mut Live<M>,
    ) -> Result<(), CoordinatorError> {
        match event {
            Event::Acknowledged(result) => self.acknowledged(&result, live),
            Event::Image => {
                live.image = self.surroundings.images.borrow_and_update().clone();
                live.with_context(turn, M::metadata_changed)
            }
            Event::Inputs => {
                if self.may_be_replaced(&live.image) {
                    inputs.drain(..).for_each(|input| input.refuse(CoordinatorError::NotHere));
                    return Err(CoordinatorError::NotHere);
                }
                inputs.drain(..).try_for_each(|input| live.take(input, turn))
            }
            Event::Time => {
                let now = clock::monotonic();
                for in_flight in &mut live.in_flight {
                    in_flight.owed.give_up(now);
                }
                let is_due = live.machine.next_deadline().is_some_and(|at| at <= now);
                if !is_due {
                    return Ok(());
                }
                live.with_context(turn, M::tick)
            }
        }
    }

    /// This broker has not heard for so long whether it is unfenced that another may coordinate by now.
    fn may_be_replaced(&self, image: &Image) -> bool {
        let id = self.partition.id;
        let registration = image.topics.partition(id.topic_id, id.partition);
        let is_alone = registration.is_some_and(|registration| registration.replicas.len() == 1);
        !is_alone && !self.surroundings.lease.holds(clock::monotonic())
    }

    fn acknowledged(
        &mut self,
        result: &Result<Produced, ProduceError>,
        live: &mut Live<M>,
    ) -> Result<(), CoordinatorError> {
        let Some(in_flight) = live.in_flight.pop_front() else { return Ok(()) };
        match is_committed(result) {
            Ok(()) => {
                if in_flight.has_records && self.shortage.over() {
                    tracing::info!("Coordinator of {} has room again", self.partition.name);
                }
                in_flight.owed.leave(&self.common, self.partition.id.partition);
                Ok(())
            }
            Err(error) => {
                let lost = CoordinatorError::of_append(error);
                if !is_full(error) || self.shortage.met() {
                    tracing::warn!("Coordinator of {} could not append: {error}", self.partition.name);
                }
                // What is wrong with one request is told to that alone. Where several are in the append nobody knows whose it
                // is, and all try again.
                let of_all = if lost.is_of_one_request() { CoordinatorError::NotHere } else { lost };
                let is_alone = in_flight.owed.replies.len() == 1;
                in_flight.owed.refuse(if is_alone { lost } else { of_all });
                Err(of_all)
            }
        }
    }

    fn turn(&mut self, image: &Image) -> Turn<M> {
        let max = self.limits.batch_bytes(&self.surroundings.config, image, self.common.kind.topic);
        let batches = Batches::new(self.common.kind.codec, max, clock::wall());
        let give_up = clock::monotonic().plus(self.common.kind.commit_timeout_ms);
        Turn { out: Out::default(), batches, owed: Owed::default(), give_up }
    }

    /// Appends what the turn has decided, and has what it owes leave after it.
    async fn end_turn(&self, turn: Turn<M>, live: &mut Live<M>) -> Result<(), CoordinatorError> {
        let Turn { batches, owed, .. } = turn;
        if batches.is_empty() {
            match live.in_flight.back_mut() {
                Some(last) => last.owed.add(owed),
                None => owed.leave(&self.common, self.partition.id.partition),
            }
            return Ok(());
        }
        let (batches, records) = match batches.finish() {
            Ok(finished) => finished,
            Err(error) => {
                tracing::error!("Records of {} cannot be compressed: {error}", self.partition.name);
                owed.refuse(CoordinatorError::Failed);
                return Err(CoordinatorError::NotHere);
            }
        };
        let acknowledged = self.append(live.log_end, batches).await;
        live.log_end = live.log_end.plus(records);
        let owed = if fault::is_active(Fault::AnswersEarly) {
            let Owed { replies, effects } = owed;
            Owed { replies, effects: Vec::new() }.leave(&self.common, self.partition.id.partition);
            Owed { replies: VecDeque::new(), effects }
        } else {
            owed
        };
        live.in_flight.push_back(InFlight { acknowledged, has_records: true, owed });
        Ok(())
    }

    /// Resolves when the shard has the batches; what comes back resolves when they are committed, or are not appended.
    async fn append(&self, log_end: Offset, batches: Vec<(Bytes, Coordinated)>) -> Acknowledged {
        let (id, leader_epoch) = (self.partition.id, self.leader_epoch);
        let asked = self.surroundings.partitions.append_at(id, leader_epoch, log_end, batches).await;
        Box::pin(async move { acknowledged(asked.all().await) })
    }
}

impl<M: Machine> Live<M> {
    /// Has the machine do something, and takes over what comes of it.
    fn with_context(
        &mut self,
        turn: &mut Turn<M>,
        act: impl FnOnce(&mut M, &Context<'_>, &mut Out<M::Record, M::Reply, M::Effect>),
    ) -> Result<(), CoordinatorError> {
        let now = Now { monotonic: clock::monotonic(), wall: clock::wall() };
        let record_max = turn.batches.record_max();
        act(&mut self.machine, &Context { now, image: &self.image, record_max }, &mut turn.out);
        let Turn { out, batches, owed, give_up } = turn;
        for (token, reply) in out.replies.drain(..) {
            if let Some(asked) = self.waiting.remove(&token) {
                owed.replies.push_back((*give_up, Answer::Command(asked, reply)));
            }
        }
        owed.effects.append(&mut out.effects);
        batches.step(out.records.drain(..)).map_err(|error| {
            tracing::error!("A coordinator has decided what cannot be written: {error}");
            CoordinatorError::Failed
        })
    }

    fn take(&mut self, input: Input<M>, turn: &mut Turn<M>) -> Result<(), CoordinatorError> {
        match input {
            Input::Command(command, reply) => {
                let token = ReplyToken(self.next_token);
                self.next_token += 1;
                self.waiting.insert(token, reply);
                self.with_context(turn, |machine, context, out| machine.step(context, token, command, out))
            }
            Input::EndTransaction(Ending { producer, marker, marker_epoch }, reply) => {
                self.machine.replay_marker(producer, marker.result);
                turn.owed.replies.push_back((turn.give_up, Answer::EndTransaction(reply)));
                turn.batches.marker(producer, &marker, marker_epoch).map_err(|error| {
                    tracing::error!("A transaction marker cannot be written: {error}");
                    CoordinatorError::Failed
                })
            }
        }
    }

    /// When there is something to do although nothing comes.
    fn wakes_at(&self) -> Option<MonotonicMs> {
        let give_up = self.in_flight.iter().find_map(|in_flight| in_flight.owed.replies.front());
        let give_up = give_up.map(|(at, _)| *at);
        give_up.into_iter().chain(self.machine.next_deadline()).min()
    }

    /// Tells everybody who waits, and lets go of the machine.
    fn lose(self, error: CoordinatorError) -> End {
        for in_flight in self.in_flight {
            in_flight.owed.refuse(error);
        }
        for reply in self.waiting.into_values() {
            let _ = reply.send(Err(error));
        }
        End::Lost(error)
    }
}

impl<M: Machine> Default for Owed<M> {
    fn default() -> Owed<M> {
        Owed { replies: VecDeque::new(), effects: Vec::new() }
    }
}

impl<M: Machine> Owed<M> {
    fn add(&mut self, mut later: Owed<M>) {
        self.replies.append(&mut later.replies);
        self.effects.append(&mut later.effects);
    }

    fn leave(self, common: &Inner<M>, partition: crate::types::PartitionIndex) {
        // Nobody listens when the connection has gone away.
        for (_, answer) in self.replies {
            match answer {
                Answer::Command(asked, reply) => drop(asked.send(Ok(reply))),
                Answer::EndTransaction(asked) => drop(asked.send(Ok(()))),
            }
        }
        for effect in self.effects {
            (common.kind.on_effect)(partition, effect);
        }
    }

    fn refuse(self, error: CoordinatorError) {
        self.replies.into_iter().for_each(|(_, answer)| answer.refuse(error));
    }

    /// Tells those whose time is over; what they asked for may be committed yet.
    fn give_up(&mut self, now: MonotonicMs) {
        while let Some((_, answer)) = self.replies.pop_front_if(|(at, _)| *at <= now) {
            answer.refuse(CoordinatorError::TimedOut);
        }
    }
}

impl<M: Machine> Answer<M> {
    fn refuse(self, error: CoordinatorError) {
        match self {
            Answer::Command(asked, _) => drop(asked.send(Err(error))),
            Answer::EndTransaction(asked) => drop(asked.send(Err(error))),
        }
    }
}

impl Limits {
    /// The largest batch that the log takes.
    fn batch_bytes(&mut self, config: &DynamicConfig, image: &Image, topic: &str) -> usize {
        let effective = config.at(image);
        let values = image.configs.topic(topic);
        let is_known = self
            .of
            .as_ref()
            .is_some_and(|(known, of_topic)| Arc::ptr_eq(known, &effective) && of_topic.as_ref() == values);
        if !is_known {
            let own = values.map(texts).unwrap_or_default();
            let max = effective.layers.topic_config(&own).max_message_bytes;
            self.batch_bytes = usize::try_from(max).unwrap_or(0);
            self.of = Some((effective, values.cloned()));
        }
        self.batch_bytes
    }
}

/// The one answer that was asked for.
fn acknowledged(mut answers: Vec<Result<Produced, ProduceError>>) -> Result<Produced, ProduceError> {
    answers.pop().unwrap_or(Err(ProduceError::ShuttingDown))
}

/// Fewer replicas in sync after the append are none the worse for it: the high watermark has passed it.
fn is_committed(result: &Result<Produced, ProduceError>) -> Result<(), &ProduceError> {
    match result {
        Ok(_) | Err(ProduceError::Ack(AckError::NotEnoughReplicasAfterAppend, _)) => Ok(()),
        Err(error) => Err(error),
    }
}

fn is_full(error: &ProduceError) -> bool {
    matches!(error, ProduceError::Append(AppendError::Log(LogError::DiskFull)))
}

/// The outcome of the oldest append.
async fn first<M: Machine>(in_flight: &mut VecDeque<InFlight<M>>) -> Result<Produced, ProduceError> {
    match in_flight.front_mut() {
        Some(oldest) => oldest.acknowledged.as_mut().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<MonotonicMs>) {
    match at {
        Some(at) => {
            let ms = at.since(clock::monotonic()).clamp(0, SLEEP_MAX_MS);
            clock::sleep(Duration::from_millis(ms.unsigned_abs())).await;
        }
        None => std::future::pending().await,
    }
}
