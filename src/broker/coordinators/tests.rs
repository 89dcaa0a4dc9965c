//! Actors around a machine that adds numbers up, over shards with threads: what is answered when, and what is left after
//! another term, a failure, or an append that nobody knew of.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::num::ParseIntError;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use super::super::directory::Directory;
use super::super::dynamic_config::DynamicConfig;
use super::super::flusher::DEFAULT_THREADS;
use super::super::lease::Lease;
use super::super::mailbox::{Message, mailbox, spawn};
use super::super::messages::RoleSpec;
use super::super::outbox::outlets;
use super::super::partitions::{Partition, Partitions, Role};
use super::super::rig::{ME, Rig, id, lead, leave_free, new_host, open_dir, replica_config};
use super::super::shard::Shard;
use super::super::start_tests::layers;
use super::actor::{Actor, Surroundings};
use super::load::{LoadError, load};
use super::{CoordinatorError, Coordinators, Ending, Kind};
use crate::coordinator::{Context, Encode, Machine, Out, Producer, ReplyToken};
use crate::metadata::Image;
use crate::replica::Acks;
use crate::storage::disk::{Disk, RealDisk};
use crate::storage::log::producer_state::MarkerEpoch;
use crate::storage::log::{LogConfig, Origin};
use crate::storage::sim_disk::{FaultOn, SimDisk};
use crate::types::{
    LeaderEpoch, MonotonicMs, Offset, PartitionIndex, ProducerEpoch, ProducerId, TimestampMs,
    TopicIdPartition,
};
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::compression::{Codec, Compression};
use crate::wire::control::{EndTxnMarker, TxnResult};

const LOG: TopicIdPartition = id(1, 0);
const P: PartitionIndex = PartitionIndex(0);
const PRODUCER: Producer = Producer { id: ProducerId(7), epoch: ProducerEpoch(1) };

/// Sums by name, and numbers of open transactions.
#[derive(Default)]
struct Sums {
    sums: BTreeMap<String, i64>,
    open: BTreeMap<Producer, Vec<(String, i64)>>,
    sleeping: Vec<(MonotonicMs, ReplyToken)>,
    changes: i64,
}

#[derive(Clone)]
enum Sum {
    Add(&'static str, i64),
    AddInTransaction(&'static str, i64),
    Get(&'static str),
    /// Adds nothing, in a record of this size.
    Large(usize),
    /// Replied to by the next tick.
    Sleep,
    /// How often the metadata has changed.
    Changes,
}

#[derive(Debug)]
struct Number(String, i64, usize);

impl Encode for Number {
    type Error = Infallible;

    fn encode(&self) -> Result<(Bytes, Option<Bytes>), Infallible> {
        let value = format!("{}{}", " ".repeat(self.2), self.1);
        Ok((self.0.clone().into(), Some(value.into())))
    }
}

type Outs = Out<Number, i64, i64>;

impl Sums {
    fn add(&mut self, producer: Option<Producer>, name: String, number: i64) {
        match producer {
            None => *self.sums.entry(name).or_default() += number,
            Some(producer) => self.open.entry(producer).or_default().push((name, number)),
        }
    }

    fn get(&self, name: &str) -> i64 {
        self.sums.get(name).copied().unwrap_or_default()
    }
}

impl Machine for Sums {
    type Command = Sum;
    type Record = Number;
    type Reply = i64;
    type Effect = i64;
    type Malformed = ParseIntError;

    fn replay(
        &mut self,
        _: Offset,
        producer: Option<Producer>,
        key: Bytes,
        value: Option<Bytes>,
    ) -> Result<(), ParseIntError> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        self.add(producer, text(&key), text(&value.unwrap_or_default()).parse()?);
        Ok(())
    }

    fn replay_marker(&mut self, producer: Producer, result: TxnResult) {
        for (name, number) in self.open.remove(&producer).unwrap_or_default() {
            if result == TxnResult::Commit {
                self.add(None, name, number);
            }
        }
    }

    fn begin(&mut self, _: &Context<'_>, _: &mut Outs) {}

    fn step(&mut self, context: &Context<'_>, token: ReplyToken, command: Sum, out: &mut Outs) {
        match command {
            Sum::Add(name, number) => {
                self.add(None, name.to_owned(), number);
                out.record(Number(name.to_owned(), number, 0));
                out.reply(token, self.get(name));
                out.effect(number);
            }
            Sum::AddInTransaction(name, number) => {
                self.add(Some(PRODUCER), name.to_owned(), number);
                out.record_of(PRODUCER, Number(name.to_owned(), number, 0));
                out.reply(token, self.get(name));
            }
            Sum::Get(name) => out.reply(token, self.get(name)),
            Sum::Large(size) => {
                out.record(Number("large".to_owned(), 0, size));
                out.reply(token, 0);
            }
            Sum::Sleep => self.sleeping.push((context.now.monotonic, token)),
            Sum::Changes => out.reply(token, self.changes),
        }
    }

    fn metadata_changed(&mut self, _: &Context<'_>, _: &mut Outs) {
        self.changes += 1;
    }

    fn tick(&mut self, _: &Context<'_>, out: &mut Outs) {
        for (_, token) in self.sleeping.drain(..) {
            out.reply(token, -1);
        }
    }

    fn next_deadline(&self) -> Option<MonotonicMs> {
        self.sleeping.iter().map(|(at, _)| *at).min()
    }
}

/// A broker with one partition and its coordinator.
struct Bench {
    partitions: Partitions,
    directory: Arc<Directory>,
    partition: Arc<Partition>,
    images: watch::Sender<Arc<Image>>,
    effects: mpsc::UnboundedReceiver<i64>,
    coordinators: Coordinators<Sums>,
    /// When the log was read.
    loads: Arc<Mutex<Vec<Instant>>>,
    _dir: tempfile::TempDir,
}

impl Bench {
    async fn new() -> Bench {
        Bench::with(DEFAULT_THREADS, 30_000, 1, Codec::NONE).await
    }

    /// Without threads that flush, the test does it.
    async fn with(flushers: usize, timeout_ms: i64, min_isr: usize, codec: Codec) -> Bench {
        Bench::on(Arc::new(RealDisk), flushers, timeout_ms, min_isr, codec).await
    }

    async fn on(
        disk: Arc<dyn Disk>,
        flushers: usize,
        timeout_ms: i64,
        min_isr: usize,
        codec: Codec,
    ) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let (sender, mailbox) = mailbox(100);
        let directory =
            Arc::new(Directory::new(0, open_dir(&disk, dir.path()), vec![sender.clone()], flushers));
        let partitions = Partitions::new(vec![sender]);
        spawn(0, Shard::new(0, ME, outlets().0), mailbox).unwrap();
        let mut host = new_host(&directory, LOG, LogConfig::default(), lead(1, &[1]));
        host.config.leader.min_insync_replicas = min_isr;
        let partition = host.partition.clone();
        partitions.update(|table| drop(table.insert(LOG, partition.clone())));
        partitions.shard_of(&LOG).send(Message::Host(Box::new(host))).await;
        let (effect_sender, effects) = mpsc::unbounded_channel();
        let loads: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let noted = loads.clone();
        let kind = Kind {
            topic: "sums",
            make: Box::new(move |_| {
                noted.lock().unwrap().push(Instant::now());
                Sums::default()
            }),
            on_effect: Box::new(move |_, effect| effect_sender.send(effect).unwrap_or(())),
            codec,
            commit_timeout_ms: timeout_ms,
            load_buffer_bytes: 200,
        };
        let images = watch::channel(Arc::new(Image::default())).0;
        let coordinators = Coordinators::new(kind);
        let bench =
            Bench { partitions, directory, partition, images, effects, coordinators, loads, _dir: dir };
        bench.lead(1).await;
        bench
    }

    /// A coordinator of the term that the shard is in by then.
    async fn lead(&self, epoch: i32) {
        self.assume(lead(epoch, &[1])).await;
        assert_eq!(self.partition.leadership().role, Role::Leader);
        self.start(epoch);
    }

    async fn assume(&self, role: RoleSpec) {
        self.partitions.shard_of(&LOG).send(Message::Assume(LOG, role)).await;
        self.partitions.fence().await;
    }

    fn start(&self, epoch: i32) {
        let (sender, inbox) = mpsc::channel(10);
        let surroundings = Surroundings {
            images: self.images.subscribe(),
            config: Arc::new(DynamicConfig::new(ME, layers(&[]))),
            partitions: self.partitions.clone(),
            lease: Lease::forever(),
        };
        let common = self.coordinators.inner.clone();
        let actor = Actor::new(common, self.partition.clone(), LeaderEpoch(epoch), inbox, surroundings);
        tokio::spawn(actor.run());
        self.coordinators.update(|actors| drop(actors.insert(P, sender)));
    }

    /// Asks until the log has been read.
    async fn ask(&self, command: Sum) -> Result<i64, CoordinatorError> {
        loop {
            match self.coordinators.ask(P, command.clone()).await.answer().await {
                Err(CoordinatorError::Loading) => tokio::task::yield_now().await,
                answer => return answer,
            }
        }
    }

    /// Asks until the coordinator serves.
    async fn insist(&self, command: Sum) -> i64 {
        loop {
            match self.ask(command.clone()).await {
                Ok(answer) => return answer,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }

    /// Appends without the coordinator's knowledge.
    async fn meddle(&self, key: &str, value: &str) {
        let mut builder = BatchBuilder::new();
        builder.push(TimestampMs(1), Some(key.as_bytes()), Some(value.as_bytes()), &[]);
        let appends = vec![(LOG, builder.build().unwrap())];
        let produced = self.partitions.produce(Some(Acks::All), Origin::Client, 30_000, appends).await;
        produced.all().await.pop().unwrap().unwrap();
    }

    async fn end_transaction(&self, result: TxnResult) -> Result<(), CoordinatorError> {
        let marker = EndTxnMarker { result, coordinator_epoch: 1, timestamp: TimestampMs(1) };
        let ending = Ending { producer: PRODUCER, marker, marker_epoch: MarkerEpoch::SameOrLater };
        self.coordinators.end_transaction(P, ending).await.answer().await
    }
}

/// Another broker can read it, and is to lead.
#[test]
fn a_log_that_the_disk_cannot_read_takes_its_directory_out_of_service() {
    let disk = SimDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut rig = Rig::new(shared.clone(), Path::new("/data"));
    rig.host(LOG, LogConfig::default(), lead(1, &[1]));
    let mut builder = BatchBuilder::new();
    builder.push(TimestampMs(1), Some(b"a"), Some(b"4"), &[]);
    let _ = rig.produce(Some(Acks::All), vec![(LOG, builder.build().unwrap())]);
    rig.flush();
    drop(rig);
    disk.kill();
    // Nothing of it is in memory.
    let mut rig = Rig::new(shared, Path::new("/data"));
    let partition = rig.host_again(LOG, LogConfig::default(), lead(2, &[1]));
    let read = || load(&partition, LeaderEpoch(2), 200, &mut Sums::default());
    assert_eq!(read().unwrap().records, 1);
    disk.fail(FaultOn::Read, ".log", 0, io::ErrorKind::Other, Some(1));
    assert!(matches!(read(), Err(LoadError::Read(_))));
    assert!(!rig.directory.is_online());
    rig.pump();
    assert_eq!(partition.leadership().role, Role::Offline);
}

#[tokio::test]
async fn what_was_answered_is_there_in_the_next_term() {
    for codec in [Codec::NONE, Codec::from(Compression::Zstd)] {
        let mut bench = Bench::with(DEFAULT_THREADS, 30_000, 1, codec).await;
        assert_eq!(bench.ask(Sum::Add("a", 0)).await, Ok(0));
        let mut pending = Vec::new();
        for number in 1..=100 {
            pending.push(bench.coordinators.ask(P, Sum::Add("a", number)).await);
        }
        let mut sum = 0;
        for (number, pending) in (1..=100).zip(pending) {
            sum += number;
            assert_eq!(pending.answer().await, Ok(sum));
        }
        for number in 0..=100 {
            assert_eq!(bench.effects.recv().await, Some(number));
        }
        bench.lead(2).await;
        assert_eq!(bench.ask(Sum::Get("a")).await, Ok(5050));
        assert_eq!(bench.partition.view().log_end, Offset(101));
    }
}

/// What is still in memory is not always in one piece.
#[tokio::test]
async fn batches_of_every_size_are_there_in_the_next_term() {
    let bench = Bench::new().await;
    let mut sum = 0;
    for size in [1, 900, 1_100, 3_000, 5_000, 100_000] {
        assert_eq!(bench.ask(Sum::Large(size)).await, Ok(0));
        sum += 1;
        assert_eq!(bench.ask(Sum::Add("a", 1)).await, Ok(sum));
    }
    bench.lead(2).await;
    assert_eq!(bench.ask(Sum::Get("a")).await, Ok(sum));
}

#[tokio::test]
async fn nothing_is_answered_before_it_is_committed() {
    let mut bench = Bench::with(0, 30_000, 1, Codec::NONE).await;
    assert_eq!(bench.ask(Sum::Get("a")).await, Ok(0));
    let add = bench.coordinators.ask(P, Sum::Add("a", 1)).await;
    let get = bench.coordinators.ask(P, Sum::Get("a")).await;
    while bench.partition.view().log_end < Offset(1) {
        tokio::task::yield_now().await;
    }
    // The sleeper has been replied to, so what was asked before it has been dealt with.
    let sleep = bench.coordinators.ask(P, Sum::Sleep).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(bench.effects.try_recv().is_err());
    let mut answers = Box::pin(futures_util::future::join3(add.answer(), get.answer(), sleep.answer()));
    assert!(futures_util::poll!(answers.as_mut()).is_pending());
    bench.directory.flush.take(1).unwrap().run(&bench.directory);
    assert_eq!(answers.await, (Ok(1), Ok(1), Ok(-1)));
    assert_eq!(bench.effects.recv().await, Some(1));
}

#[tokio::test]
async fn who_waits_too_long_is_told() {
    let bench = Bench::with(0, 0, 1, Codec::NONE).await;
    assert_eq!(bench.insist(Sum::Get("a")).await, 0);
    assert_eq!(bench.ask(Sum::Add("a", 1)).await, Err(CoordinatorError::TimedOut));
    // The coordinator lives on.
    let answer = loop {
        while let Some(round) = bench.directory.flush.take(1) {
            round.run(&bench.directory);
        }
        if let Ok(answer) = bench.ask(Sum::Get("a")).await {
            break answer;
        }
    };
    assert_eq!(answer, 1);
}

#[tokio::test]
async fn an_append_that_nobody_knew_of_is_read() {
    let bench = Bench::new().await;
    assert_eq!(bench.ask(Sum::Add("a", 1)).await, Ok(1));
    bench.meddle("a", "10").await;
    let sleeping = bench.coordinators.ask(P, Sum::Sleep).await;
    assert_eq!(sleeping.answer().await, Ok(-1));
    assert_eq!(bench.ask(Sum::Add("a", 100)).await, Err(CoordinatorError::NotHere));
    assert_eq!(bench.insist(Sum::Get("a")).await, 11);
    assert_eq!(bench.ask(Sum::Add("a", 1_000)).await, Ok(1_011));
}

#[tokio::test]
async fn transactions_end_where_their_coordinator_hears_of_it() {
    let bench = Bench::new().await;
    assert_eq!(bench.ask(Sum::AddInTransaction("a", 1)).await, Ok(0));
    assert_eq!(bench.end_transaction(TxnResult::Abort).await, Ok(()));
    assert_eq!(bench.ask(Sum::AddInTransaction("a", 10)).await, Ok(0));
    assert_eq!(bench.ask(Sum::Add("a", 100)).await, Ok(100));
    assert_eq!(bench.end_transaction(TxnResult::Commit).await, Ok(()));
    assert_eq!(bench.ask(Sum::Get("a")).await, Ok(110));
    assert_eq!(bench.ask(Sum::AddInTransaction("a", 1_000)).await, Ok(110));
    bench.lead(2).await;
    assert_eq!(bench.ask(Sum::Get("a")).await, Ok(110));
    assert_eq!(bench.end_transaction(TxnResult::Commit).await, Ok(()));
    assert_eq!(bench.ask(Sum::Get("a")).await, Ok(1_110));
}

#[tokio::test]
async fn what_is_too_large_harms_nobody_else() {
    let bench = Bench::new().await;
    assert_eq!(bench.ask(Sum::Add("a", 1)).await, Ok(1));
    assert_eq!(bench.ask(Sum::Large(2 << 20)).await, Err(CoordinatorError::TooLarge));
    assert_eq!(bench.insist(Sum::Add("a", 1)).await, 2);
    // In one append with others it cannot be told apart: all are to try again, and nobody hears what is not its own.
    let large = bench.coordinators.ask(P, Sum::Large(2 << 20)).await;
    let small = bench.coordinators.ask(P, Sum::Add("a", 1)).await;
    assert_eq!(large.answer().await, Err(CoordinatorError::NotHere));
    assert_eq!(small.answer().await, Err(CoordinatorError::NotHere));
    assert_eq!(bench.insist(Sum::Add("a", 1)).await, 3);
}

#[tokio::test]
async fn without_enough_replicas_it_waits_for_them() {
    let bench = Bench::with(DEFAULT_THREADS, 30_000, 2, Codec::NONE).await;
    bench.assume(lead(2, &[1, 2])).await;
    bench.start(2);
    // One replica is in sync, and two are wanted.
    bench.assume(super::super::rig::lead_of(&[1, 2], 3, &[1])).await;
    bench.start(3);
    assert_eq!(bench.ask(Sum::Add("a", 1)).await, Err(CoordinatorError::NotEnoughReplicas));
    assert_eq!(bench.ask(Sum::Get("a")).await, Err(CoordinatorError::NotEnoughReplicas));
    let config = LogConfig::default();
    let settings = replica_config(&config);
    bench.partitions.shard_of(&LOG).send(Message::Configure(LOG, Arc::new(config), settings)).await;
    assert_eq!(bench.insist(Sum::Add("a", 5)).await, 5);
}

/// Each time the machine is lost, and with it what was under way.
#[tokio::test]
async fn without_room_the_log_is_read_again_later_and_later() {
    let disk = SimDisk::new();
    let bench = Bench::on(Arc::new(disk.clone()), DEFAULT_THREADS, 30_000, 1, Codec::NONE).await;
    assert_eq!(bench.ask(Sum::Add("a", 1)).await, Ok(1));
    leave_free(&disk, 0);
    bench.loads.lock().unwrap().clear();
    let began = Instant::now();
    while bench.loads.lock().unwrap().len() < 2 {
        assert_eq!(bench.ask(Sum::Add("a", 100)).await, Err(CoordinatorError::NotHere));
        tokio::task::yield_now().await;
    }
    let loads = bench.loads.lock().unwrap().clone();
    assert!(loads[0] - began >= Duration::from_millis(250));
    assert!(loads[1] - loads[0] >= Duration::from_millis(500));
    assert!(bench.directory.is_online());
    leave_free(&disk, 1 << 20);
    assert_eq!(bench.insist(Sum::Add("a", 10)).await, 11);
    assert_eq!(bench.partition.view().log_end, Offset(2));
}

#[tokio::test]
async fn a_term_that_is_over_is_not_served() {
    let bench = Bench::new().await;
    assert_eq!(bench.ask(Sum::Add("a", 1)).await, Ok(1));
    bench.assume(lead(2, &[1])).await;
    assert_eq!(bench.ask(Sum::Add("a", 2)).await, Err(CoordinatorError::NotHere));
    assert_eq!(bench.partition.view().log_end, Offset(1));
    assert!(bench.coordinators.ask(PartitionIndex(9), Sum::Get("a")).await.answer().await.is_err());
}

#[tokio::test]
async fn a_log_that_cannot_be_read_is_not_served() {
    let bench = Bench::new().await;
    assert_eq!(bench.ask(Sum::Add("a", 1)).await, Ok(1));
    bench.meddle("a", "no number").await;
    bench.lead(2).await;
    assert_eq!(bench.ask(Sum::Get("a")).await, Err(CoordinatorError::NotHere));
}

#[tokio::test]
async fn it_hears_of_the_metadata() {
    let bench = Bench::new().await;
    assert_eq!(bench.ask(Sum::Changes).await, Ok(0));
    bench.images.send_replace(Arc::new(Image::default()));
    assert_eq!(bench.ask(Sum::Changes).await, Ok(1));
}
