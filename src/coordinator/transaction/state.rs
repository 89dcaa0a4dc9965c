//! One transactional id: its producer, its transaction, and the ways from one state to the next.
//!
//! Knows no requests, replies or timers. Invariant: all but what is called soft is in the record, and the record gives it
//! back.

use std::collections::{BTreeMap, BTreeSet};

use super::record::{RecordError, Versioned};
use crate::types::{ProducerEpoch, ProducerId, TimestampMs, TopicPartition};
use crate::wire::control::TxnResult;
use crate::wire::messages::transactions::{StoredTopicPartitions, TransactionLogValue};

/// Where a transaction is, by the numbers of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    Empty,
    Ongoing,
    PrepareCommit,
    PrepareAbort,
    CompleteCommit,
    CompleteAbort,
}

impl State {
    pub const ALL: [State; 6] = [
        State::Empty,
        State::Ongoing,
        State::PrepareCommit,
        State::PrepareAbort,
        State::CompleteCommit,
        State::CompleteAbort,
    ];

    pub fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::Ongoing => "Ongoing",
            State::PrepareCommit => "PrepareCommit",
            State::PrepareAbort => "PrepareAbort",
            State::CompleteCommit => "CompleteCommit",
            State::CompleteAbort => "CompleteAbort",
        }
    }

    fn id(self) -> i8 {
        self as i8
    }

    pub fn from_id(id: i8) -> Option<State> {
        State::ALL.into_iter().find(|state| state.id() == id)
    }

    /// How the transaction ends, once that is decided and while its markers are written.
    pub fn ending(self) -> Option<TxnResult> {
        match self {
            State::PrepareCommit => Some(TxnResult::Commit),
            State::PrepareAbort => Some(TxnResult::Abort),
            _ => None,
        }
    }
}

/// The version of transactions (KIP-890), as the feature `transaction.version` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionVersion(pub i16);

impl TransactionVersion {
    /// The producer's epoch is raised with each transaction.
    pub fn raises_epoch(self) -> bool {
        self.0 >= 2
    }

    /// The version in which records are written.
    fn value_version(self) -> i16 {
        i16::from(self.0 >= 1)
    }
}

/// A transactional id.
#[derive(Clone, Debug, PartialEq)]
pub struct Transaction {
    pub producer_id: ProducerId,
    /// The id before the last change.
    pub previous_producer_id: ProducerId,
    /// The id that the producer goes on with, when the one that it has is used up with this transaction.
    pub next_producer_id: ProducerId,
    pub epoch: ProducerEpoch,
    /// The epoch before the present one if its owner may ask for that again. Soft.
    pub last_epoch: ProducerEpoch,
    pub timeout_ms: i32,
    pub state: State,
    pub partitions: BTreeSet<TopicPartition>,
    pub started: TimestampMs,
    pub updated: TimestampMs,
    /// What the client speaks that changed it last.
    pub client_version: TransactionVersion,
    /// The partitions whose marker is not known to be written, while the transaction ends. Soft.
    pub unmarked: BTreeSet<TopicPartition>,
}

/// The epoch that no client ever has is kept for fencing the one before.
const LAST_EPOCH: ProducerEpoch = ProducerEpoch(i16::MAX - 1);

/// Whether this is the last epoch of a producer id, so that the producer goes on with another.
pub fn is_exhausted(epoch: ProducerEpoch) -> bool {
    epoch >= LAST_EPOCH
}

impl Transaction {
    /// An id that nobody has used, before it gets its first epoch.
    pub fn new(producer_id: ProducerId, timeout_ms: i32, now: TimestampMs) -> Transaction {
        Transaction {
            producer_id,
            previous_producer_id: ProducerId::NONE,
            next_producer_id: ProducerId::NONE,
            epoch: ProducerEpoch::NONE,
            last_epoch: ProducerEpoch::NONE,
            timeout_ms,
            state: State::Empty,
            partitions: BTreeSet::new(),
            started: TimestampMs::NONE,
            updated: now,
            client_version: TransactionVersion::default(),
            unmarked: BTreeSet::new(),
        }
    }

    pub fn is_exhausted(&self) -> bool {
        is_exhausted(self.epoch)
    }

    /// Whether nothing is open or ending.
    pub fn is_at_rest(&self) -> bool {
        matches!(self.state, State::Empty | State::CompleteCommit | State::CompleteAbort)
    }

    /// The producer begins anew with this epoch, nothing open.
    pub fn initialized(
        &self,
        (producer_id, epoch): (ProducerId, ProducerEpoch),
        last_epoch: ProducerEpoch,
        timeout_ms: i32,
        now: TimestampMs,
    ) -> Transaction {
        Transaction {
            producer_id,
            epoch,
            last_epoch,
            timeout_ms,
            previous_producer_id: self.producer_id,
            state: State::Empty,
            partitions: BTreeSet::new(),
            started: TimestampMs::NONE,
            updated: now,
            ..self.clone()
        }
    }

    /// These partitions belong to the transaction too, which begins if none is open.
    pub fn with_partitions(
        &self,
        added: impl IntoIterator<Item = TopicPartition>,
        client_version: TransactionVersion,
        now: TimestampMs,
    ) -> Transaction {
        let started = if self.is_at_rest() { now } else { self.started };
        let mut next = Transaction {
            previous_producer_id: self.producer_id,
            state: State::Ongoing,
            started,
            updated: now,
            client_version,
            ..self.clone()
        };
        next.partitions.extend(added);
        next
    }

    /// The outcome is decided; the markers are to be written.
    pub fn ending(
        &self,
        result: TxnResult,
        client_version: TransactionVersion,
        next_producer_id: ProducerId,
        now: TimestampMs,
    ) -> Transaction {
        let state = match result {
            TxnResult::Commit => State::PrepareCommit,
            TxnResult::Abort => State::PrepareAbort,
        };
        let (epoch, last_epoch) = if client_version.raises_epoch() {
            (ProducerEpoch(self.epoch.0.saturating_add(1)), self.epoch)
        } else {
            (self.epoch, self.last_epoch)
        };
        Transaction {
            epoch,
            last_epoch,
            next_producer_id,
            previous_producer_id: self.producer_id,
            state,
            // What was never begun is aborted as if it had begun now.
            started: if self.is_at_rest() { now } else { self.started },
            updated: now,
            client_version,
            unmarked: self.partitions.clone(),
            ..self.clone()
        }
    }

    /// All markers are written. `None` unless it is ending.
    pub fn completed(&self, now: TimestampMs) -> Option<Transaction> {
        let state = match self.state.ending()? {
            TxnResult::Commit => State::CompleteCommit,
            TxnResult::Abort => State::CompleteAbort,
        };
        let (producer_id, epoch) = self.producer_after();
        Some(Transaction {
            producer_id,
            epoch,
            previous_producer_id: self.producer_id,
            next_producer_id: ProducerId::NONE,
            state,
            partitions: BTreeSet::new(),
            unmarked: BTreeSet::new(),
            updated: now,
            ..self.clone()
        })
    }

    /// The producer and epoch with which the client goes on when this has ended.
    pub fn producer_after(&self) -> (ProducerId, ProducerEpoch) {
        if self.client_version.raises_epoch() && self.next_producer_id != ProducerId::NONE {
            (self.next_producer_id, ProducerEpoch(0))
        } else {
            (self.producer_id, self.epoch)
        }
    }

    /// As it is written down while the cluster is at this version of transactions.
    pub fn to_value(&self, version: TransactionVersion) -> Versioned {
        let partitions = (self.state != State::Empty).then(|| by_topic(&self.partitions));
        let value = TransactionLogValue {
            producer_id: self.producer_id.0,
            previous_producer_id: self.previous_producer_id.0,
            next_producer_id: self.next_producer_id.0,
            producer_epoch: self.epoch.0,
            transaction_timeout_ms: self.timeout_ms,
            transaction_status: self.state.id(),
            transaction_partitions: partitions,
            transaction_last_update_timestamp_ms: self.updated.0,
            transaction_start_timestamp_ms: self.started.0,
            client_transaction_version: self.client_version.0,
            ..TransactionLogValue::default()
        };
        Versioned { version: version.value_version(), value }
    }

    /// From its record.
    pub fn from_value(value: &TransactionLogValue) -> Result<Transaction, RecordError> {
        let state =
            State::from_id(value.transaction_status).ok_or(RecordError::State(value.transaction_status))?;
        let topics = value.transaction_partitions.iter().flatten();
        let partitions: BTreeSet<_> = topics
            .flat_map(|topic| {
                topic.partition_ids.iter().map(|id| TopicPartition::new(topic.topic.as_str(), *id))
            })
            .collect();
        let unmarked = if state.ending().is_some() { partitions.clone() } else { BTreeSet::new() };
        Ok(Transaction {
            producer_id: ProducerId(value.producer_id),
            previous_producer_id: ProducerId(value.previous_producer_id),
            next_producer_id: ProducerId(value.next_producer_id),
            epoch: ProducerEpoch(value.producer_epoch),
            last_epoch: ProducerEpoch::NONE,
            timeout_ms: value.transaction_timeout_ms,
            state,
            partitions,
            started: TimestampMs(value.transaction_start_timestamp_ms),
            updated: TimestampMs(value.transaction_last_update_timestamp_ms),
            client_version: TransactionVersion(value.client_transaction_version),
            unmarked,
        })
    }
}

fn by_topic(partitions: &BTreeSet<TopicPartition>) -> Vec<StoredTopicPartitions> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for partition in partitions {
        topics.entry(&partition.topic).or_default().push(partition.partition.0);
    }
    let stored = topics.into_iter().map(|(topic, partition_ids)| StoredTopicPartitions {
        topic: topic.to_owned().into(),
        partition_ids,
        ..StoredTopicPartitions::default()
    });
    stored.collect()
}
