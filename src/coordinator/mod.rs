//! Layer 2, pure: what the coordinators decide. A coordinator lives on the leader of a partition of an internal topic, and
//! that partition is its log: commands and the time come in, records and replies go out, and a driver appends the
//! records and holds the replies back until they are committed.
//!
//! This module sees no bytes of requests, no files, clocks or threads. Invariant: what is to survive a change of the
//! coordinator is in the records, and folding them gives it.

pub mod group;
pub mod transaction;

use std::convert::Infallible;
use std::error::Error;

use bytes::Bytes;

use crate::metadata::Image;
use crate::types::{MonotonicMs, Offset, ProducerEpoch, ProducerId, TimestampMs};
use crate::wire::control::TxnResult;

/// Names a request that waits for its reply. The driver gets it back once, with the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplyToken(pub u64);

/// The time at which a step happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For deadlines.
    pub monotonic: MonotonicMs,
    /// For what is written down.
    pub wall: TimestampMs,
}

/// What a step may look at beside the coordinator's own state.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub now: Now,
    pub image: &'a Image,
    /// How large a record may be, key and value together, so that the log takes it.
    pub record_max: usize,
}

/// The producer whose open transaction a record is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Producer {
    pub id: ProducerId,
    pub epoch: ProducerEpoch,
}

/// A record to append.
#[derive(Clone, Debug, PartialEq)]
pub struct Write<R> {
    pub record: R,
    /// None outside transactions.
    pub producer: Option<Producer>,
}

/// What a step leads to: records `R`, replies `P`, and effects `E`, which are things to do outside the coordinator.
#[derive(Debug)]
pub struct Out<R, P, E = Infallible> {
    /// To append, in this order.
    pub records: Vec<Write<R>>,
    /// To answer once all records up to here are committed, those of earlier steps too.
    pub replies: Vec<(ReplyToken, P)>,
    /// To do once all records up to here are committed.
    pub effects: Vec<E>,
}

impl<R, P, E> Default for Out<R, P, E> {
    fn default() -> Out<R, P, E> {
        Out { records: Vec::new(), replies: Vec::new(), effects: Vec::new() }
    }
}

impl<R, P, E> Out<R, P, E> {
    pub fn record(&mut self, record: R) {
        self.records.push(Write { record, producer: None });
    }

    /// A record that counts once the producer's transaction is committed.
    pub fn record_of(&mut self, producer: Producer, record: R) {
        self.records.push(Write { record, producer: Some(producer) });
    }

    pub fn reply(&mut self, token: ReplyToken, reply: P) {
        self.replies.push((token, reply));
    }

    pub fn effect(&mut self, effect: E) {
        self.effects.push(effect);
    }
}

/// A record as bytes.
pub trait Encode {
    type Error: Error + Send + Sync + 'static;

    /// Key and value; no value is a tombstone.
    fn encode(&self) -> Result<(Bytes, Option<Bytes>), Self::Error>;

    /// Whether it is larger than that. One that cannot be encoded is not for this to tell.
    fn exceeds(&self, max: usize) -> bool {
        let size = |(key, value): (Bytes, Option<Bytes>)| key.len() + value.map_or(0, |value| value.len());
        max < usize::MAX && self.encode().is_ok_and(|encoded| size(encoded) > max)
    }
}

/// A coordinator: the state that one partition of an internal topic folds into, and the steps that it takes.
///
/// A step changes the state at once and never fails half way. When an append fails, the driver drops the machine and
/// folds a new one from the log, so nothing is ever undone in here.
pub trait Machine: Send + 'static {
    /// What requests ask for, with all that is random in it.
    type Command: Send + 'static;
    type Record: Encode + Send + 'static;
    type Reply: Send + 'static;
    type Effect: Send + 'static;
    /// A record that cannot be read.
    type Malformed: Error + Send + Sync + 'static;

    /// Takes in a record of the log, one of an open transaction if it has a producer.
    fn replay(
        &mut self,
        offset: Offset,
        producer: Option<Producer>,
        key: Bytes,
        value: Option<Bytes>,
    ) -> Result<(), Self::Malformed>;

    /// Takes in the end of a producer's transaction: of the log, or just appended to it.
    fn replay_marker(&mut self, producer: Producer, result: TxnResult);

    /// The log is folded and this is the coordinator from now on: what is not in the records starts.
    fn begin(&mut self, context: &Context<'_>, out: &mut Out<Self::Record, Self::Reply, Self::Effect>);

    /// Takes a command. The token is replied to once, in this step or in a later one.
    fn step(
        &mut self,
        context: &Context<'_>,
        token: ReplyToken,
        command: Self::Command,
        out: &mut Out<Self::Record, Self::Reply, Self::Effect>,
    );

    /// The image is another one than in the step before.
    fn metadata_changed(
        &mut self,
        context: &Context<'_>,
        out: &mut Out<Self::Record, Self::Reply, Self::Effect>,
    );

    /// Does what is due.
    fn tick(&mut self, context: &Context<'_>, out: &mut Out<Self::Record, Self::Reply, Self::Effect>);

    /// When the next `tick` is due.
    fn next_deadline(&self) -> Option<MonotonicMs>;
}
