//! The clients: producers that retry, and consumers that read on. Must not know the cluster but by what its brokers say.
//!
//! Invariant: an idempotent producer sends its batches in order and gives none up.

use std::collections::VecDeque;

use bytes::Bytes;

use super::context::{Context, Event, Ms, note};
use super::history::{History, Sent};
use super::network::{Body, Place, ProduceRefusal, ProduceRequest};
use super::node::WALL_BASE;
use super::plan::TopicPlan;
use crate::broker::messages::Produced;
use crate::metadata::Image;
use crate::replica::Acks;
use crate::types::TopicId;
use crate::types::{
    NodeId, Offset, PartitionIndex, ProducerEpoch, ProducerId, TimestampMs, TopicIdPartition,
};
use crate::wire::batch::BatchHeader;
use crate::wire::batch_builder::BatchBuilder;

/// A producer gives an attempt up after this.
const LIMIT_MS: Ms = 1500;
const BACKOFF_MS: Ms = 30;

#[derive(Clone, Copy, Debug)]
struct Attempt {
    id: u64,
    of: TopicIdPartition,
    at: Ms,
    connection: u64,
}

/// A batch that is not acknowledged yet.
#[derive(Debug)]
struct Pending {
    number: u64,
    crc: u32,
    records: Bytes,
    /// Its attempts, oldest first.
    attempts: Vec<Attempt>,
    failed: bool,
}

#[derive(Debug)]
pub struct Producer {
    index: usize,
    topic: &'static str,
    partition: PartitionIndex,
    is_idempotent: bool,
    acks: Acks,
    /// So many batches from the oldest that is not acknowledged on may be under way.
    in_flight: u64,
    number: u64,
    sequence: i32,
    pending: VecDeque<Pending>,
    leader: Option<i32>,
    /// Answers on an earlier connection are lost: so those that count come in the order of the batches.
    connection: u64,
    /// Nothing is sent before.
    not_before: Ms,
    /// Batches acknowledged.
    pub acknowledged: u64,
    /// The topic in which one of them was. Before that a leader would take any sequence for the first, so that one batch at
    /// a time is sent.
    known_in: Option<TopicId>,
}

impl std::fmt::Display for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Producer { index, topic, partition, number, is_idempotent, leader, .. } = self;
        let waiting = self.pending.len();
        write!(
            f,
            "{index} to {topic}-{partition}, number {number}, idempotent {is_idempotent}, leader {leader:?}, "
        )?;
        write!(f, "{waiting} waiting")
    }
}

/// What an acknowledgement says.
pub struct Acknowledged {
    pub id: TopicIdPartition,
    pub base: Offset,
    pub crc: u32,
}

impl Producer {
    pub fn new(context: &mut Context, index: usize, topic: &TopicPlan, partition: i32) -> Producer {
        // Where records are lost on purpose, what came before a batch may be missing for ever.
        let may_order = context.plan.has_idempotence && !topic.is_unclean;
        let is_idempotent = may_order && context.chance.permille(600);
        let acks = if is_idempotent || context.chance.permille(800) { Acks::All } else { Acks::Leader };
        Producer {
            index,
            topic: topic.name,
            partition: PartitionIndex(partition),
            is_idempotent,
            acks,
            in_flight: context.chance.below(3) as u64 + 1,
            number: 0,
            sequence: 0,
            pending: VecDeque::new(),
            leader: None,
            connection: 0,
            not_before: 0,
            acknowledged: 0,
            known_in: None,
        }
    }

    /// Makes batches and sends what is due. `image` is what some broker knows of the cluster.
    pub fn act(&mut self, context: &mut Context, history: &mut History, image: Option<&Image>) {
        let pause = context.chance.between(5, 45);
        context.after(pause, Event::Producer(self.index));
        if context.now < self.not_before {
            return;
        }
        let (now, last) = (context.now, |pending: &Pending| pending.attempts.last().copied());
        let late =
            self.pending.iter().any(|pending| last(pending).is_some_and(|last| now - last.at > LIMIT_MS));
        let again = late || self.pending.iter().any(|pending| pending.failed);
        if again {
            self.leader = None;
        }
        let Some(image) = image else { return };
        let Some(topic) = image.topics.by_name(self.topic) else { return };
        let Some(partition) = topic.partition(self.partition) else { return };
        let id = TopicIdPartition { topic_id: topic.id, partition: self.partition };
        let leader = *self.leader.get_or_insert(partition.leader.0);
        if leader == NodeId::NONE.0 {
            self.leader = None;
            return;
        }
        let is_known = !self.is_idempotent || self.known_in == Some(id.topic_id);
        let window = if is_known { self.in_flight } else { 1 };
        if again {
            context.reconnect(self.index);
            self.connection += 1;
            // Whatever is under way is sent again, in order: its answers are lost with the connection.
            for at in 0..self.pending.len().min(usize::try_from(window).unwrap_or(1)) {
                self.send(context, at, id, leader);
            }
        } else if let Some(at) = self.unsent(window) {
            self.send(context, at, id, leader);
        } else if self.pending.front().is_none_or(|oldest| self.number - oldest.number < window) {
            self.make_batch(context, history);
            self.send(context, self.pending.len() - 1, id, leader);
        }
    }

    /// The first batch that was not sent on this connection, for there was less room for batches under way.
    fn unsent(&self, window: u64) -> Option<usize> {
        let is_sent = |pending: &Pending| {
            pending.attempts.last().is_some_and(|attempt| attempt.connection == self.connection)
        };
        let window = usize::try_from(window).unwrap_or(1);
        self.pending.iter().take(window).position(|pending| !is_sent(pending))
    }

    /// Since when the oldest batch that is not acknowledged is under way.
    pub fn waits_since(&self) -> Option<Ms> {
        self.pending.front()?.attempts.first().map(|attempt| attempt.at)
    }

    fn make_batch(&mut self, context: &mut Context, history: &mut History) {
        let mut builder = BatchBuilder::new();
        if self.is_idempotent {
            let id = ProducerId(1000 + self.index as i64);
            builder = builder.producer(id, ProducerEpoch(0), self.sequence);
        }
        let count = context.chance.between(1, 3);
        for record in 0..count {
            let padding = "x".repeat(context.chance.below(60));
            let value = format!("{}-{}-{record}-{padding}", self.index, self.number);
            builder.push(TimestampMs(WALL_BASE + context.now), None, Some(value.as_bytes()), &[]);
        }
        let records = builder.build().expect("a batch");
        let crc = BatchHeader::parse(&records).expect("a header").crc;
        let sent = Sent { is_idempotent: self.is_idempotent, producer: self.index, number: self.number };
        history.sent.insert(crc, sent);
        self.sequence += count as i32;
        let (number, attempts) = (self.number, Vec::new());
        self.pending.push_back(Pending { number, crc, records, attempts, failed: false });
        self.number += 1;
    }

    fn send(&mut self, context: &mut Context, at: usize, id: TopicIdPartition, leader: i32) {
        let attempt = context.unique();
        let pending = &mut self.pending[at];
        let (of, at, connection) = (id, context.now, self.connection);
        pending.attempts.push(Attempt { id: attempt, of, at, connection });
        pending.failed = false;
        let request = ProduceRequest {
            producer: self.index,
            attempt,
            number: pending.number,
            connection,
            partition: id,
            acks: self.acks,
            records: pending.records.clone(),
        };
        let (index, number, acks) = (self.index, pending.number, self.acks);
        note!(
            context,
            "producer {index} sends {number} to {leader} as {attempt}, {acks:?}, {:08x}",
            pending.crc
        );
        // As on a connection, one after the other.
        context.send_in_order(self.index, Place::Clients, Place::Node(leader), Body::Produce(request));
    }

    /// An answer has come.
    pub fn answered(
        &mut self,
        context: &Context,
        attempt: u64,
        result: Result<Produced, ProduceRefusal>,
    ) -> Option<Acknowledged> {
        let mut pending = self.pending.iter().enumerate();
        let (at, Attempt { of: id, connection, .. }) = pending.find_map(|(at, pending)| {
            let made = pending.attempts.iter().find(|made| made.id == attempt)?;
            Some((at, *made))
        })?;
        if connection != self.connection {
            return None;
        }
        let pending = &mut self.pending[at];
        match result {
            Ok(produced) => {
                let crc = pending.crc;
                // Those before it in an idempotent producer's order are in the log as well, whatever was answered.
                let first = if self.is_idempotent { 0 } else { at };
                self.pending.drain(first..=at);
                self.known_in = Some(id.topic_id);
                self.acknowledged += 1;
                let acknowledged = Acknowledged { id, base: produced.base_offset, crc };
                (self.acks == Acks::All).then_some(acknowledged)
            }
            Err(ProduceRefusal::Never) => panic!("producer {} is refused for good", self.index),
            Err(_) if pending.attempts.last().is_some_and(|last| last.id == attempt) => {
                pending.failed = true;
                self.not_before = context.now + BACKOFF_MS;
                None
            }
            Err(_) => None,
        }
    }
}

#[derive(Debug)]
pub struct Consumer {
    pub topic: &'static str,
    pub partition: PartitionIndex,
    /// What it reads and where it goes on.
    pub at: Option<(TopicIdPartition, Offset)>,
}

impl Consumer {
    pub fn new(topic: &'static str, partition: i32) -> Consumer {
        Consumer { topic, partition: PartitionIndex(partition), at: None }
    }

    /// Who leads what it reads, as `image` has it, and from where on it wants to read.
    pub fn wants(&mut self, image: &Image) -> Option<(NodeId, TopicIdPartition, Offset)> {
        let topic = image.topics.by_name(self.topic)?;
        let id = TopicIdPartition { topic_id: topic.id, partition: self.partition };
        let leader = topic.partition(self.partition)?.leader;
        let (at, offset) = *self.at.get_or_insert((id, Offset::ZERO));
        if at != id {
            self.at = Some((id, Offset::ZERO));
        }
        Some((leader, id, if at == id { offset } else { Offset::ZERO }))
    }
}
