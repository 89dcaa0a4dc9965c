//! Transactional clients of both generations: they write to some partitions, commit an offset with it, and end the
//! transaction. They try again, give up, stand still for longer than a transaction may take, and come back as another.
//!
//! Must not know the cluster but by what its brokers say. Invariant: whoever has asked for a commit asks for nothing else in
//! that transaction.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::clients::Acknowledged;
use super::context::{Context, Event, Ms, note};
use super::invariants::{Broken, all_or_nothing};
use super::ledger::Ledger;
use super::network::{Ask, Asking, Body, Place, Told};
use super::node::WALL_BASE;
use super::plan::{TopicKind, TransactionPlan};
use crate::api::transactional::{Candidate, Transaction};
use crate::broker::coordinators::partition_of;
use crate::coordinator::Producer;
use crate::coordinator::group::command::{CommitOffsets, CommitPartition, CommitTopic, Identity};
use crate::coordinator::group::{self, Name};
use crate::coordinator::transaction::state::TransactionVersion;
use crate::coordinator::transaction::{AddPartitions, Command, EndTxn, InitProducerId, Refused, Reply};
use crate::metadata::Image;
use crate::metadata::topics::name::{CONSUMER_OFFSETS, TRANSACTION_STATE};
use crate::types::{
    ErrorCode, LeaderEpoch, NodeId, Offset, PartitionIndex, TimestampMs, TopicId, TopicIdPartition,
    TopicPartition,
};
use crate::wire::batch::BatchHeader;
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::control::TxnResult;

/// A client gives an attempt up after this.
const LIMIT_MS: Ms = 700;
const BACKOFF_MS: Ms = 25;
/// It gives up what it has tried for so long, and aborts.
const PATIENCE_MS: Ms = 2_500;
/// The groups for which clients commit offsets, each client for a partition of its own.
pub const GROUPS: [&str; 2] = ["group-a", "group-b"];

/// For which topic and partition a client commits offsets.
pub fn place_of(client: usize) -> (Name, TopicId, PartitionIndex) {
    ("inputs".into(), TopicId::nil(), PartitionIndex(client as i32))
}

/// The broker of a group's coordinator, as `image` has it.
pub fn coordinator_of(image: &Image, group: &str) -> Option<NodeId> {
    leader_of(image, CONSUMER_OFFSETS, group)
}

fn leader_of(image: &Image, topic: &str, key: &str) -> Option<NodeId> {
    let topic = image.topics.by_name(topic)?;
    let partition = partition_of(key, topic.partition_count());
    Some(topic.partition(partition)?.leader).filter(|leader| *leader != NodeId::NONE)
}

/// A part of a transaction.
#[derive(Debug)]
enum Work {
    /// The first generation names its partitions before it writes to them.
    Add(Vec<TopicPartition>),
    Write(Candidate, u32),
    CommitOffset,
}

#[derive(Debug)]
enum Step {
    /// Gets a producer id and an epoch; says which it has, or is another client of the same id.
    Init {
        is_same: bool,
    },
    Idle,
    Work,
    End,
}

/// What an answer comes to.
enum Outcome {
    /// With the producer to go on as, and where the records are.
    Done(Option<Producer>, Option<Offset>),
    /// To be tried again, maybe elsewhere.
    Again,
    /// Somebody else goes on with the transactional id.
    Fenced,
    /// This transaction cannot go on.
    Failed,
}

#[derive(Debug)]
pub struct Client {
    index: usize,
    id: String,
    raises_epoch: bool,
    timeout_ms: i32,
    producer: Option<Producer>,
    sequences: BTreeMap<TopicIdPartition, i32>,
    step: Step,
    /// The attempts at what is being done, and when it was begun.
    calls: Vec<u64>,
    asked_at: Ms,
    since: Ms,
    not_before: Ms,
    number: i64,
    txn: Option<usize>,
    todo: VecDeque<Work>,
    result: TxnResult,
    /// The epoch is of no use any more: nobody knows which records were written with it.
    is_worn: bool,
    /// Transactions that it was told have been committed.
    pub committed: u64,
}

impl Client {
    pub fn new(context: &mut Context, index: usize, plan: TransactionPlan) -> Client {
        Client {
            index,
            id: format!("client-{index}"),
            raises_epoch: !context.chance.permille(plan.first_generation),
            timeout_ms: plan.timeout_ms,
            producer: None,
            sequences: BTreeMap::new(),
            step: Step::Init { is_same: false },
            calls: Vec::new(),
            asked_at: 0,
            since: 0,
            not_before: 0,
            number: 0,
            txn: None,
            todo: VecDeque::new(),
            result: TxnResult::Commit,
            is_worn: false,
            committed: 0,
        }
    }

    /// It has nothing open.
    pub fn is_at_rest(&self) -> bool {
        matches!(self.step, Step::Idle)
    }

    /// Whether this attempt counts yet.
    pub fn awaits(&self, call: u64) -> bool {
        self.calls.contains(&call)
    }

    fn go_to(&mut self, context: &Context, step: Step) {
        self.step = step;
        self.calls.clear();
        self.since = context.now;
    }

    /// Goes on, or tries again. `image` is what some broker knows of the cluster.
    pub fn act(&mut self, context: &mut Context, ledger: &mut Ledger, image: Option<&Image>) {
        let pause = context.chance.between(5, 40);
        context.after(pause, Event::Transactional(self.index));
        let Some(image) = image else { return };
        let is_waiting = !self.calls.is_empty() && context.now - self.asked_at < LIMIT_MS;
        if context.now < self.not_before || is_waiting {
            return;
        }
        let is_out_of_patience = context.now - self.since > PATIENCE_MS;
        match self.step {
            Step::Idle if context.rests => return,
            Step::Idle => self.begin(context, ledger, image),
            Step::Work if is_out_of_patience => {
                (self.is_worn, self.result) = (true, TxnResult::Abort);
                self.go_to(context, Step::End);
            }
            Step::End if is_out_of_patience => self.go_to(context, Step::Init { is_same: false }),
            _ => {}
        }
        self.send(context, ledger, image);
    }

    fn begin(&mut self, context: &mut Context, ledger: &mut Ledger, image: &Image) {
        let Some(producer) = self.producer.filter(|_| !context.chance.permille(60)) else {
            self.go_to(context, Step::Init { is_same: false });
            return;
        };
        let outputs = context.plan.topics.iter().find(|topic| topic.kind == TopicKind::Transactional);
        let outputs = outputs.expect("there is one").clone();
        let Some(topic) = image.topics.by_name(outputs.name) else { return };
        let topic_id = topic.id;
        self.number += 1;
        let txn = ledger.begin(self.index, self.number, producer);
        self.txn = Some(txn);
        self.todo.clear();
        for _ in 0..context.chance.between(1, 4) {
            let index = context.chance.below(outputs.partitions as usize) as i32;
            let id = TopicIdPartition { topic_id, partition: PartitionIndex(index) };
            let records = self.batch(context, producer, id);
            let crc = BatchHeader::parse(&records).expect("a header").crc;
            ledger.sends(txn, crc);
            let name = TopicPartition::new(outputs.name, index);
            self.todo.push_back(Work::Write(Candidate { id, name, records }, crc));
        }
        if context.chance.permille(500) {
            self.todo.push_back(Work::CommitOffset);
        }
        if !self.raises_epoch {
            let offsets = || TopicPartition::new(CONSUMER_OFFSETS, self.offsets_partition(image).0);
            let mut added: Vec<TopicPartition> = self
                .todo
                .iter()
                .map(|work| match work {
                    Work::Write(batch, _) => batch.name.clone(),
                    Work::Add(_) | Work::CommitOffset => offsets(),
                })
                .collect();
            added.sort();
            added.dedup();
            self.todo.push_front(Work::Add(added));
        }
        self.result = if context.chance.permille(750) { TxnResult::Commit } else { TxnResult::Abort };
        note!(context, "client {} begins {} as {producer:?}: {:?}", self.index, self.number, self.result);
        self.go_to(context, Step::Work);
    }

    fn batch(&mut self, context: &mut Context, producer: Producer, id: TopicIdPartition) -> Bytes {
        let sequence = self.sequences.entry(id).or_default();
        let mut builder =
            BatchBuilder::new().producer(producer.id, producer.epoch, *sequence).transactional(true);
        let count = context.chance.between(1, 2);
        for record in 0..count {
            let value = format!("{}-{}-{sequence}-{record}", self.index, self.number);
            builder.push(TimestampMs(WALL_BASE + context.now), None, Some(value.as_bytes()), &[]);
        }
        *sequence += count as i32;
        builder.build().expect("a batch")
    }

    fn group(&self) -> &'static str {
        GROUPS[self.index % GROUPS.len()]
    }

    fn offsets_partition(&self, image: &Image) -> PartitionIndex {
        let topic = image.topics.by_name(CONSUMER_OFFSETS);
        partition_of(self.group(), topic.map_or(1, |topic| topic.partition_count()))
    }

    fn send(&mut self, context: &mut Context, ledger: &mut Ledger, image: &Image) {
        let Some((leader, asking)) = self.asking(image) else { return };
        let is_end = matches!(self.step, Step::End);
        if let Some(txn) = self.txn.filter(|_| is_end) {
            ledger.txns[txn].asked = Some(self.result);
        }
        let call = context.unique();
        self.calls.push(call);
        self.asked_at = context.now;
        note!(
            context,
            "client {} asks {leader} as {call}, {:?}: {:?}",
            self.index,
            self.step,
            self.todo.front()
        );
        let body = Body::Ask(Box::new(Ask { client: self.index, call, asking }));
        context.straggle(Place::Clients, Place::Node(leader.0), &body, is_end);
        context.send(Place::Clients, Place::Node(leader.0), body);
    }

    /// What is to be asked now, and whom.
    fn asking(&self, image: &Image) -> Option<(NodeId, Asking)> {
        let transactional_id = self.id.clone();
        let client_version = TransactionVersion(if self.raises_epoch { 2 } else { 0 });
        let of_transaction = |command| {
            let transactional_id = self.id.clone();
            Some((
                leader_of(image, TRANSACTION_STATE, &self.id)?,
                Asking::Transaction { transactional_id, command },
            ))
        };
        match &self.step {
            Step::Idle => None,
            Step::Init { is_same } => of_transaction(Command::InitProducerId(InitProducerId {
                transactional_id,
                timeout_ms: self.timeout_ms,
                expected: self.producer.filter(|_| *is_same),
                fresh: None,
            })),
            Step::End => of_transaction(Command::EndTxn(EndTxn {
                transactional_id,
                producer: self.producer?,
                result: self.result,
                client_version,
                fresh: None,
            })),
            Step::Work => {
                let (producer, adds) = (self.producer?, self.raises_epoch);
                let transaction = Transaction { transactional_id: transactional_id.clone(), producer };
                match self.todo.front()? {
                    Work::Add(partitions) => of_transaction(Command::AddPartitions(AddPartitions {
                        transactional_id,
                        producer,
                        partitions: partitions.clone(),
                        client_version,
                    })),
                    Work::Write(batch, _) => {
                        let partition = image.topics.partition(batch.id.topic_id, batch.id.partition)?;
                        let leader = Some(partition.leader).filter(|leader| *leader != NodeId::NONE)?;
                        Some((leader, Asking::Produce { transaction, adds, batch: batch.clone() }))
                    }
                    Work::CommitOffset => {
                        let commit = self.commit();
                        let asking = Asking::CommitInTransaction { transaction, adds, commit };
                        Some((coordinator_of(image, self.group())?, asking))
                    }
                }
            }
        }
    }

    /// The offset that a transaction brings is its number.
    fn commit(&self) -> CommitOffsets {
        let (name, id, index) = place_of(self.index);
        let partition = CommitPartition {
            index,
            offset: Offset(self.number),
            leader_epoch: LeaderEpoch::UNKNOWN,
            metadata: "".into(),
        };
        CommitOffsets {
            group: self.group().into(),
            member: Identity::nobody(),
            knows_epochs: true,
            retention_ms: None,
            topics: vec![CommitTopic { name, id, partitions: vec![partition] }],
        }
    }

    /// An answer has come.
    pub fn answered(
        &mut self,
        context: &mut Context,
        ledger: &mut Ledger,
        call: u64,
        told: Told,
    ) -> Result<Option<Acknowledged>, Broken> {
        if !self.awaits(call) {
            return Ok(None);
        }
        note!(context, "client {} is told of {call}: {told:?}", self.index);
        match outcome(told) {
            Outcome::Done(producer, written) => self.done(context, ledger, producer, written),
            Outcome::Again => {
                self.not_before = context.now + BACKOFF_MS;
                // The next attempt need not wait for others.
                self.asked_at = context.now - LIMIT_MS;
                Ok(None)
            }
            Outcome::Fenced => {
                self.go_to(context, Step::Init { is_same: false });
                Ok(None)
            }
            Outcome::Failed if matches!(self.step, Step::Work) => {
                (self.is_worn, self.result) = (true, TxnResult::Abort);
                self.go_to(context, Step::End);
                Ok(None)
            }
            Outcome::Failed => {
                self.go_to(context, Step::Init { is_same: false });
                Ok(None)
            }
        }
    }

    fn done(
        &mut self,
        context: &mut Context,
        ledger: &mut Ledger,
        producer: Option<Producer>,
        written: Option<Offset>,
    ) -> Result<Option<Acknowledged>, Broken> {
        let mut acknowledged = None;
        match self.step {
            Step::Idle => {}
            Step::Init { .. } => {
                self.go_on_as(producer);
                self.go_to(context, Step::Idle);
            }
            Step::Work => {
                let (Some(txn), Some(work)) = (self.txn, self.todo.pop_front()) else { return Ok(None) };
                match work {
                    Work::Add(_) => {}
                    Work::CommitOffset => ledger.txns[txn].has_offset = true,
                    Work::Write(batch, crc) => {
                        ledger.txns[txn].acknowledged.insert(crc, batch.id);
                        let base = written.unwrap_or(Offset::UNKNOWN);
                        acknowledged = Some(Acknowledged { id: batch.id, base, crc });
                    }
                }
                let is_over = self.todo.is_empty();
                self.go_to(context, if is_over { Step::End } else { Step::Work });
                if context.chance.permille(50) && !context.calm {
                    // For longer than a transaction may take.
                    let more = context.chance.between(100, 1_500);
                    self.not_before = context.now + Ms::from(self.timeout_ms) + more;
                }
            }
            Step::End => {
                if let Some(txn) = self.txn.take() {
                    ledger.txns[txn].told = Some(self.result);
                    all_or_nothing::check(&ledger.txns[txn])?;
                }
                self.committed += u64::from(self.result == TxnResult::Commit);
                let is_worn = std::mem::take(&mut self.is_worn) || self.result == TxnResult::Abort;
                if producer.is_some() {
                    self.go_on_as(producer);
                }
                let is_worn = is_worn && !self.raises_epoch;
                self.go_to(context, if is_worn { Step::Init { is_same: true } } else { Step::Idle });
            }
        }
        Ok(acknowledged)
    }

    fn go_on_as(&mut self, producer: Option<Producer>) {
        self.producer = producer;
        self.is_worn = false;
        // Sequences begin again with each epoch.
        self.sequences.clear();
    }
}

fn outcome(told: Told) -> Outcome {
    match told {
        Told::Transaction(Ok(reply)) => match reply {
            Reply::InitProducerId(Ok(producer)) => Outcome::Done(Some(producer), None),
            Reply::AddPartitions(Ok(())) => Outcome::Done(None, None),
            Reply::EndTxn(Ok(producer)) => Outcome::Done(producer, None),
            Reply::InitProducerId(Err(refused))
            | Reply::AddPartitions(Err(refused))
            | Reply::EndTxn(Err(refused)) => match refused {
                Refused::Concurrent => Outcome::Again,
                Refused::Fenced | Refused::UnknownProducer => Outcome::Fenced,
                Refused::InvalidState => Outcome::Failed,
            },
            _ => Outcome::Failed,
        },
        Told::Group(Ok(group::Reply::CommitOffsetsInTransaction(committed)), _) => match committed {
            Ok(_) => Outcome::Done(None, None),
            Err(group::reply::CommitError::ProducerFenced) => Outcome::Fenced,
            Err(_) => Outcome::Failed,
        },
        Told::Group(Ok(_), _) => Outcome::Failed,
        Told::Produced(Ok(produced)) => Outcome::Done(None, Some(produced.base_offset)),
        Told::Transaction(Err(error)) | Told::Group(Err(error), _) | Told::Produced(Err(error)) => of(error),
    }
}

fn of(error: ErrorCode) -> Outcome {
    match error {
        ErrorCode::InvalidProducerEpoch | ErrorCode::ProducerFenced | ErrorCode::InvalidProducerIdMapping => {
            Outcome::Fenced
        }
        ErrorCode::NotCoordinator
        | ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::ConcurrentTransactions
        | ErrorCode::NotLeaderOrFollower
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::NotEnoughReplicasAfterAppend
        | ErrorCode::RequestTimedOut
        | ErrorCode::KafkaStorageError
        | ErrorCode::UnknownTopicOrPartition
        | ErrorCode::UnknownTopicId => Outcome::Again,
        _ => Outcome::Failed,
    }
}
