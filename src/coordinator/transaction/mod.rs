//! The transaction coordinator: the transactional ids that hash to one partition of `__transaction_state`.
//!
//! It gives out producer ids and epochs, knows which partitions a transaction has written to, decides how it ends, and has
//! the markers written that say so in each of them. Kafka holds a change back until it is written and refuses what comes
//! meanwhile; here a change holds at once, what comes next stands on it, and all answers wait for the log. A decision to
//! end a transaction leaves as an effect once it is committed, so no marker is written that a later coordinator does not
//! know of.
//!
//! Must not know how markers travel, nor where producer ids come from: a command that needs a new one and has none
//! changes nothing and comes back ([`Reply::NeedsProducerId`]). Invariant: a transaction that is ending has its markers
//! under way, or their completion recorded.

mod end;
mod init;
mod partitions;
pub mod record;
pub mod state;
mod sweep;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod script;

use std::collections::BTreeMap;

use bytes::Bytes;

pub use end::EndTxn;
pub use init::InitProducerId;
pub use partitions::{AddPartitions, Verify};
use record::{Record, RecordError};
use state::{State, Transaction, TransactionVersion};

use super::{Context, Machine, Out as AnyOut, Producer, ReplyToken};
use crate::metadata::features::TRANSACTION_VERSION;
use crate::types::{MonotonicMs, Offset, ProducerId, TimestampMs, TopicPartition};
use crate::wire::control::TxnResult;

/// What requests ask of the coordinator.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    InitProducerId(InitProducerId),
    AddPartitions(AddPartitions),
    Verify(Verify),
    EndTxn(EndTxn),
    /// These partitions have their marker, or exist no more.
    MarkersWritten {
        transactional_id: String,
        producer: Producer,
        /// See [`Markers::started`].
        started: TimestampMs,
        partitions: Vec<TopicPartition>,
    },
    /// The producer id is here that aborting a transaction which took too long needs.
    AbortTimedOut {
        transactional_id: String,
        producer: Producer,
        fresh: Option<ProducerId>,
    },
    Describe(String),
    List(Filter),
}

/// The answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    InitProducerId(Result<Producer, Refused>),
    AddPartitions(Result<(), Refused>),
    /// Those of the partitions that are not in the transaction.
    Verify(Result<Vec<TopicPartition>, Refused>),
    /// The producer with which the client goes on; `None` in the first generation, where nothing changes.
    EndTxn(Result<Option<Producer>, Refused>),
    Described(Option<Box<Transaction>>),
    Listed(Vec<Listed>),
    Noted,
    /// Nothing was done: to be asked again with a fresh producer id.
    NeedsProducerId(Box<Command>),
}

/// What is to be done outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// To be written until each partition has it or exists no more, then told by [`Command::MarkersWritten`].
    Write(Markers),
    /// To be answered by [`Command::AbortTimedOut`] with a fresh id.
    NeedsProducerId { transactional_id: String, producer: Producer },
}

/// The markers of one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Markers {
    pub transactional_id: String,
    pub producer: Producer,
    /// When the transaction began: in the first generation the next one has the same producer.
    pub started: TimestampMs,
    pub result: TxnResult,
    pub version: TransactionVersion,
    pub partitions: Vec<TopicPartition>,
}

/// Why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the transactional id is not known, or has another producer id")]
    UnknownProducer,
    #[error("the producer has been fenced")]
    Fenced,
    #[error("the transaction before has not ended yet")]
    Concurrent,
    #[error("the state of the transaction does not allow this")]
    InvalidState,
}

/// Which transactional ids are listed. What is empty does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub producer_ids: Vec<ProducerId>,
    /// `None`: any. An empty list is met by none.
    pub states: Option<Vec<State>>,
    pub longer_than_ms: Option<i64>,
}

/// A transactional id in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub transactional_id: String,
    pub producer_id: ProducerId,
    pub state: State,
}

/// What the coordinator goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How often transactions are looked through for those that take too long.
    pub abort_interval_ms: i64,
    /// After how long without a change an id is forgotten ...
    pub expiration_ms: i64,
    /// ... and how often they are looked through for such.
    pub expire_interval_ms: i64,
}

type Out = AnyOut<Record, Reply, Effect>;

/// The transactional ids of one partition.
#[derive(Debug)]
pub struct Transactions {
    settings: Settings,
    transactions: BTreeMap<String, Transaction>,
    /// `None` before this is the coordinator.
    next_abort: Option<MonotonicMs>,
    next_expiration: Option<MonotonicMs>,
}

impl Transactions {
    pub fn new(settings: Settings) -> Transactions {
        Transactions { settings, transactions: BTreeMap::new(), next_abort: None, next_expiration: None }
    }

    /// Changes a transactional id, and writes that down.
    fn put(&mut self, context: &Context<'_>, transactional_id: &str, next: Transaction, out: &mut Out) {
        let value = Some(next.to_value(version_of(context)));
        out.record(Record { transactional_id: transactional_id.to_owned(), value });
        self.transactions.insert(transactional_id.to_owned(), next);
    }

    /// Changes a transactional id to one whose transaction is ending.
    fn put_ending(
        &mut self,
        context: &Context<'_>,
        transactional_id: &str,
        next: Transaction,
        out: &mut Out,
    ) {
        self.put(context, transactional_id, next, out);
        self.go_on_ending(context, transactional_id, out);
    }

    /// Has the missing markers written; when there are none, the transaction is complete.
    fn go_on_ending(&mut self, context: &Context<'_>, transactional_id: &str, out: &mut Out) {
        let Some(ending) = self.transactions.get(transactional_id) else { return };
        let Some(result) = ending.state.ending() else { return };
        if ending.unmarked.is_empty() {
            if let Some(completed) = ending.completed(context.now.wall) {
                self.put(context, transactional_id, completed, out);
            }
            return;
        }
        out.effect(Effect::Write(Markers {
            transactional_id: transactional_id.to_owned(),
            producer: ending.producer(),
            started: ending.started,
            result,
            version: ending.client_version,
            partitions: ending.unmarked.iter().cloned().collect(),
        }));
    }

    fn markers_written(
        &mut self,
        context: &Context<'_>,
        transactional_id: &str,
        of: (Producer, TimestampMs),
        partitions: &[TopicPartition],
        out: &mut Out,
    ) {
        let Some(ending) = self.transactions.get_mut(transactional_id) else { return };
        // What comes late is of a transaction that has ended, or of one that another coordinator ended.
        if (ending.producer(), ending.started) != of || ending.state.ending().is_none() {
            return;
        }
        for partition in partitions {
            ending.unmarked.remove(partition);
        }
        if ending.unmarked.is_empty() {
            self.go_on_ending(context, transactional_id, out);
        }
    }

    fn list(&self, filter: &Filter, now: TimestampMs) -> Vec<Listed> {
        let ids = self.transactions.iter().filter(|(_, transaction)| {
            let Filter { producer_ids, states, longer_than_ms } = filter;
            (producer_ids.is_empty() || producer_ids.contains(&transaction.producer_id))
                && states.as_ref().is_none_or(|states| states.contains(&transaction.state))
                && longer_than_ms.is_none_or(|ms| now.0.saturating_sub(transaction.started.0) > ms)
        });
        let listed = ids.map(|(transactional_id, transaction)| Listed {
            transactional_id: transactional_id.clone(),
            producer_id: transaction.producer_id,
            state: transaction.state,
        });
        listed.collect()
    }
}

impl Transaction {
    fn producer(&self) -> Producer {
        Producer { id: self.producer_id, epoch: self.epoch }
    }
}

/// The version of transactions that the cluster is at.
fn version_of(context: &Context<'_>) -> TransactionVersion {
    TransactionVersion(context.image.features.level(TRANSACTION_VERSION))
}

impl Machine for Transactions {
    type Command = Command;
    type Record = Record;
    type Reply = Reply;
    type Effect = Effect;
    type Malformed = RecordError;

    fn replay(
        &mut self,
        _: Offset,
        _: Option<Producer>,
        key: Bytes,
        value: Option<Bytes>,
    ) -> Result<(), RecordError> {
        // What a later version wrote is passed over, as Kafka does.
        let Some(Record { transactional_id, value }) = Record::decode(key, value)? else { return Ok(()) };
        match value {
            Some(stored) => {
                let transaction = Transaction::from_value(&stored.value)?;
                self.transactions.insert(transactional_id, transaction);
            }
            None => {
                self.transactions.remove(&transactional_id);
            }
        }
        Ok(())
    }

    /// Nobody writes to this log in transactions.
    fn replay_marker(&mut self, _: Producer, _: TxnResult) {}

    fn begin(&mut self, context: &Context<'_>, out: &mut Out) {
        let Settings { abort_interval_ms, expire_interval_ms, .. } = self.settings;
        self.next_abort = Some(context.now.monotonic.plus(abort_interval_ms));
        self.next_expiration = Some(context.now.monotonic.plus(expire_interval_ms));
        let ending = self.transactions.iter().filter(|(_, transaction)| transaction.state.ending().is_some());
        for id in ending.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.go_on_ending(context, &id, out);
        }
    }

    fn step(&mut self, context: &Context<'_>, token: ReplyToken, command: Command, out: &mut Out) {
        let reply = match command {
            Command::InitProducerId(init) => self.init_producer_id(context, init, out),
            Command::AddPartitions(add) => Reply::AddPartitions(self.add_partitions(context, add, out)),
            Command::Verify(verify) => Reply::Verify(self.verify(&verify)),
            Command::EndTxn(end) => self.end_txn(context, end, out),
            Command::MarkersWritten { transactional_id, producer, started, partitions } => {
                self.markers_written(context, &transactional_id, (producer, started), &partitions, out);
                Reply::Noted
            }
            Command::AbortTimedOut { transactional_id, producer, fresh } => {
                self.abort_timed_out(context, &transactional_id, producer, fresh, out);
                Reply::Noted
            }
            Command::Describe(id) => Reply::Described(self.transactions.get(&id).cloned().map(Box::new)),
            Command::List(filter) => Reply::Listed(self.list(&filter, context.now.wall)),
        };
        out.reply(token, reply);
    }

    fn metadata_changed(&mut self, _: &Context<'_>, _: &mut Out) {}

    fn tick(&mut self, context: &Context<'_>, out: &mut Out) {
        self.sweep(context, out);
    }

    fn next_deadline(&self) -> Option<MonotonicMs> {
        self.next_abort.into_iter().chain(self.next_expiration).min()
    }
}
