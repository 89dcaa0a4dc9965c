//! What a partition remembers of the producers that wrote to it with a producer id: their epoch, their last batches, and
//! their open transaction.
//!
//! Owns the rules of idempotence (sequences, duplicates, epochs) and the transactions of a partition, from which the
//! last stable offset follows. Knows no files, no clock, and no coordinator: whether a transaction may begin here is
//! decided by others. Invariants: `ongoing` holds exactly the transactions that `producers` say are open, by first
//! offset; the other producers are no more than the limit.
//!
//! When there are too many, those are forgotten that wrote longest ago, a sixteenth of them at a time, but none with an open
//! transaction. One that comes back is taken for an unknown one, as when it has expired. Replicas need not agree on whom they have
//! forgotten: a follower notes whatever its leader took.
//!
//! An append is checked first ([`ProducerState::check`]), which changes nothing, then written, then applied
//! ([`ProducerState::apply`]). What was written before, by a leader or in an earlier life, is only noted
//! ([`ProducerState::replay`]).

mod bound;
mod entry;
pub mod snapshot;
mod verification;

use std::collections::{BTreeMap, HashMap};

use thiserror::Error;

use super::append::Origin;
use super::txn_index::AbortedTxn;
use crate::fault::{self, Fault};
use crate::types::{Offset, ProducerEpoch, ProducerId, TimestampMs};
use crate::wire::batch::{BatchHeader, NO_SEQUENCE};
use crate::wire::control::{ControlError, EndTxnMarker, TxnResult};

use bound::Held;
pub use bound::ProducerBudget;
use entry::UNKNOWN_PRODUCER;
pub use entry::{ProducerEntry, SequencedBatch};
use verification::Verifications;
pub use verification::{FirstBatch, Guard};

/// Why a producer's batch is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProducerError {
    #[error("producer {producer_id} has epoch {current}, which fences epoch {epoch}")]
    Fenced { producer_id: ProducerId, epoch: ProducerEpoch, current: ProducerEpoch },
    #[error("producer {producer_id} sent sequence {sequence} after {last}")]
    OutOfOrderSequence { producer_id: ProducerId, sequence: i32, last: i32 },
    #[error("producer {producer_id} sent sequence {sequence} before {lowest}, which it asked to write first")]
    PastLowestSequence { producer_id: ProducerId, sequence: i32, lowest: i32 },
    #[error("producer {producer_id} wrote outside of its open transaction")]
    NotTransactional { producer_id: ProducerId },
    #[error("producer {producer_id} has no transaction of which this partition is known to be a part")]
    Unverified { producer_id: ProducerId },
    #[error(
        "a coordinator with epoch {epoch} tried to end a transaction of producer {producer_id}, one with {current} has before"
    )]
    CoordinatorFenced { producer_id: ProducerId, epoch: i32, current: i32 },
    #[error(transparent)]
    Marker(#[from] ControlError),
}

/// What a transaction marker's epoch must be, by the version of transactions that its coordinator speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MarkerEpoch {
    /// That of the transaction's records, or a later one: versions 0 and 1.
    #[default]
    SameOrLater,
    /// A later one: version 2 raises the epoch with each transaction (KIP-890). The same epoch again is let pass when no
    /// transaction is open, since then the marker is a repetition.
    Later,
}

/// Whether the partition is part of a transaction that the producer has open (KIP-890). Without this no transaction
/// begins here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verified {
    #[default]
    No,
    /// The coordinator has said so after the guard was given out.
    By(Guard),
    /// It is not wanted that coordinators are asked.
    Waived,
}

/// What the transaction coordinator has said about an append, as far as it was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coordinated {
    pub verified: Verified,
    /// Of a marker that it wrote.
    pub marker_epoch: MarkerEpoch,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// To be written, then handed to [`ProducerState::apply`].
    Append(Update),
    /// The batch is in the log already: this is where.
    Duplicate(SequencedBatch),
}

/// What a batch will change, once it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update(Change);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// No producer id, or a marker that compaction has removed.
    Nothing,
    Data {
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        batch: SequencedBatch,
        transactional: bool,
    },
    Marker {
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        offset: Offset,
        marker: EndTxnMarker,
    },
}

impl Update {
    fn producer_id(&self) -> Option<ProducerId> {
        match self.0 {
            Change::Nothing => None,
            Change::Data { producer_id, .. } | Change::Marker { producer_id, .. } => Some(producer_id),
        }
    }

    fn aborts(&self) -> bool {
        matches!(self.0, Change::Marker { marker, .. } if marker.result == TxnResult::Abort)
    }
}

/// A transaction that a marker has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedTxn {
    pub producer_id: ProducerId,
    pub first_offset: Offset,
    /// The offset of the marker.
    pub last_offset: Offset,
    pub result: TxnResult,
    /// Where the oldest other open transaction begins; after the marker when there is none.
    pub last_stable_offset: Offset,
}

impl CompletedTxn {
    /// The entry for the transaction index, which lists only what was aborted.
    pub fn aborted(&self) -> Option<AbortedTxn> {
        (self.result == TxnResult::Abort).then_some(AbortedTxn {
            producer_id: self.producer_id,
            first_offset: self.first_offset,
            last_offset: self.last_offset,
            last_stable_offset: self.last_stable_offset,
        })
    }
}

/// A producer as DescribeProducers shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveProducer {
    pub producer_id: ProducerId,
    pub epoch: ProducerEpoch,
    /// [`NO_SEQUENCE`] when it wrote nothing in this epoch.
    pub last_sequence: i32,
    pub last_timestamp: TimestampMs,
    /// -1 when no transaction of it has ended here.
    pub coordinator_epoch: i32,
    pub current_txn_first_offset: Option<Offset>,
}

/// The producers of one partition.
#[derive(Clone, Debug)]
pub struct ProducerState {
    producers: HashMap<ProducerId, ProducerEntry>,
    /// Open transactions by their first offset.
    ongoing: BTreeMap<Offset, ProducerId>,
    /// Ended ones by their first offset, with that of the marker, until the marker is replicated.
    unreplicated: BTreeMap<Offset, Offset>,
    verifications: Verifications,
    /// The offset up to which batches are accounted for.
    end: Offset,
    /// So many without an open transaction are remembered at most.
    limit: usize,
    held: Held,
    /// How many were forgotten because there were too many, since it was asked last.
    forgotten: usize,
}

impl Default for ProducerState {
    fn default() -> ProducerState {
        ProducerState::new(Offset::ZERO)
    }
}

impl ProducerState {
    /// No producers, for a log whose batches from `end` on are still to be noted.
    pub fn new(end: Offset) -> ProducerState {
        let (producers, ongoing, unreplicated, verifications, held) = Default::default();
        let (limit, forgotten) = (usize::MAX, 0);
        ProducerState { producers, ongoing, unreplicated, verifications, end, limit, held, forgotten }
    }

    /// Notes what a snapshot taken at the state's end holds, less the producers that have expired.
    pub fn with_snapshot(
        mut self,
        entries: Vec<(ProducerId, ProducerEntry)>,
        expired_before: TimestampMs,
    ) -> ProducerState {
        for (producer_id, mut entry) in entries {
            if entry.has_expired(expired_before) {
                continue;
            }
            if let Some(first) = entry.current_txn_first_offset {
                self.ongoing.insert(first, producer_id);
            }
            if entry.last_used == Offset::UNKNOWN {
                // Its last word was a marker, whose offset the file does not tell.
                entry.last_used = self.end.plus(-1);
            }
            self.producers.insert(producer_id, entry);
            self.note_idle();
        }
        self
    }

    /// The snapshot file's bytes, for the file named after [`ProducerState::end`].
    pub fn to_snapshot(&self) -> Vec<u8> {
        snapshot::encode(self.producers.iter().map(|(&id, entry)| (id, entry)))
    }

    /// The offset up to which batches are accounted for: where a snapshot of now would belong.
    pub fn end(&self) -> Offset {
        self.end
    }

    /// Notes that all batches below `end` are accounted for, also those without a producer id.
    pub fn advance_end(&mut self, end: Offset) {
        self.end = self.end.max(end);
    }

    pub fn len(&self) -> usize {
        self.producers.len()
    }

    /// Nothing is remembered, so that nothing can be lost by forgetting.
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty() && self.unreplicated.is_empty() && self.verifications.is_empty()
    }

    pub fn get(&self, producer_id: ProducerId) -> Option<&ProducerEntry> {
        self.producers.get(&producer_id)
    }

    /// All producers, by id.
    pub fn active_producers(&self) -> Vec<ActiveProducer> {
        let mut active: Vec<_> =
            self.producers.iter().map(|(&producer_id, entry)| entry.describe(producer_id)).collect();
        active.sort_by_key(|producer| producer.producer_id);
        active
    }

    /// Whether the producer has a transaction open in this epoch.
    pub fn has_open_transaction(&self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool {
        self.get(producer_id).is_some_and(|e| e.current_txn_first_offset.is_some() && e.epoch == epoch)
    }

    /// The coordinator is going to be asked whether the producer may begin a transaction here. `None`: it has one open.
    pub fn begin_verification(
        &mut self,
        batch: &FirstBatch,
        now: TimestampMs,
    ) -> Result<Option<Guard>, ProducerError> {
        let FirstBatch { producer_id, epoch, .. } = *batch;
        match self.get(producer_id) {
            _ if fault::is_active(Fault::TakesLateRecords) => Ok(None),
            Some(entry) if epoch < entry.epoch => {
                Err(ProducerError::Fenced { producer_id, epoch, current: entry.epoch })
            }
            _ if self.has_open_transaction(producer_id, epoch) => Ok(None),
            _ => Ok(Some(self.verifications.begin(batch, now))),
        }
    }

    /// Goes on as `state`, which was made of the log anew.
    pub fn become_state(&mut self, state: ProducerState) {
        *self = ProducerState {
            verifications: self.verifications.restart(),
            limit: self.limit,
            held: std::mem::take(&mut self.held),
            forgotten: self.forgotten + state.forgotten,
            ..state
        };
        self.keep_bound();
    }

    fn shrink(&mut self) {
        if self.producers.len() < self.producers.capacity() / 4 {
            self.producers.shrink_to_fit();
        }
    }

    fn may_begin(&self, producer_id: ProducerId, verified: Verified) -> bool {
        match verified {
            Verified::No => false,
            Verified::By(guard) => self.verifications.holds(producer_id, guard),
            Verified::Waived => true,
        }
    }

    /// Whether the batch is one of the last that its producer wrote.
    pub fn holds(&self, header: &BatchHeader) -> bool {
        let entry = self.producers.get(&header.producer_id);
        entry.is_some_and(|entry| !header.is_control() && entry.find_duplicate(header).is_some())
    }

    /// Checks a batch that has its offsets but is not written yet. `body` holds its records.
    pub fn check(
        &self,
        header: &BatchHeader,
        body: &[u8],
        origin: Origin,
        coordinated: Coordinated,
    ) -> Result<Checked, ProducerError> {
        let change = change_of(header, body)?;
        let entry = self.producers.get(&header.producer_id);
        match &change {
            Change::Data { transactional, .. } if origin != Origin::Replication => {
                let entry = entry.unwrap_or(&UNKNOWN_PRODUCER);
                if origin == Origin::Client
                    && let Some(duplicate) = entry.find_duplicate(header)
                {
                    return Ok(Checked::Duplicate(duplicate));
                }
                let takes_late = *transactional && fault::is_active(Fault::TakesLateRecords);
                if !takes_late {
                    check_epoch(header, entry)?;
                }
                let open = entry.current_txn_first_offset.is_some() && header.producer_epoch == entry.epoch;
                if *transactional
                    && !(open || takes_late)
                    && !self.may_begin(header.producer_id, coordinated.verified)
                {
                    return Err(ProducerError::Unverified { producer_id: header.producer_id });
                }
                if origin == Origin::Client {
                    self.check_verified_sequence(header, entry)?;
                    check_sequence(header, entry)?;
                }
                if entry.current_txn_first_offset.is_some() && !transactional {
                    return Err(ProducerError::NotTransactional { producer_id: header.producer_id });
                }
            }
            Change::Marker { marker, .. } if origin != Origin::Replication => {
                let entry = entry.unwrap_or(&UNKNOWN_PRODUCER);
                check_marker(header, marker, entry, coordinated.marker_epoch)?;
            }
            _ => {}
        }
        Ok(Checked::Append(Update(change)))
    }

    /// While a producer is being asked about, its batches are written in order, whichever of them is verified first.
    fn check_verified_sequence(
        &self,
        header: &BatchHeader,
        entry: &ProducerEntry,
    ) -> Result<(), ProducerError> {
        let BatchHeader { producer_id, base_sequence: sequence, .. } = *header;
        let Some(verification) = self.verifications.get(producer_id) else { return Ok(()) };
        if verification.raises_epoch && sequence != 0 && entry.last_batch().is_none() {
            return Err(ProducerError::OutOfOrderSequence { producer_id, sequence, last: NO_SEQUENCE });
        }
        let lowest = verification.lowest_sequence;
        if sequence > lowest {
            return Err(ProducerError::PastLowestSequence { producer_id, sequence, lowest });
        }
        Ok(())
    }

    /// Notes a batch that was written. A marker may have ended a transaction, which then counts as unstable until
    /// the marker is below the high watermark.
    pub fn apply(&mut self, update: Update) -> Option<CompletedTxn> {
        match update.0 {
            Change::Nothing => None,
            Change::Data { producer_id, epoch, batch, transactional } => {
                let entry = self.producers.entry(producer_id).or_insert(ProducerEntry::EMPTY);
                entry.push(epoch, batch);
                if transactional {
                    self.verifications.begun(producer_id);
                }
                if transactional && entry.current_txn_first_offset.is_none() {
                    entry.current_txn_first_offset = Some(batch.first_offset());
                    self.ongoing.insert(batch.first_offset(), producer_id);
                }
                self.note_idle();
                self.advance_end(batch.last_offset.plus(1));
                None
            }
            Change::Marker { producer_id, epoch, offset, marker } => {
                let entry = self.producers.entry(producer_id).or_insert(ProducerEntry::EMPTY);
                let first_offset = entry.end_transaction(epoch, offset, &marker);
                if let Some(first_offset) = &first_offset {
                    self.ongoing.remove(first_offset);
                }
                self.note_idle();
                self.verifications.ended(producer_id, epoch);
                self.advance_end(offset.plus(1));
                let first_offset = first_offset?;
                self.unreplicated.insert(first_offset, offset);
                Some(CompletedTxn {
                    producer_id,
                    first_offset,
                    last_offset: offset,
                    result: marker.result,
                    last_stable_offset: self.first_undecided_offset().unwrap_or(offset.plus(1)),
                })
            }
        }
    }

    /// What [`ProducerState::apply`] will say of `updates` when they are applied in turn: the transactions that they abort.
    pub fn aborted_by(&self, updates: &[Update]) -> Vec<AbortedTxn> {
        if !updates.iter().any(Update::aborts) {
            return Vec::new();
        }
        let mut ahead = ProducerState { ongoing: self.ongoing.clone(), ..ProducerState::new(self.end) };
        for producer_id in updates.iter().filter_map(Update::producer_id) {
            if let Some(entry) = self.get(producer_id) {
                ahead.producers.insert(producer_id, entry.clone());
            }
        }
        updates.iter().filter_map(|&update| ahead.apply(update)?.aborted()).collect()
    }

    /// Notes a batch of the log, or of the leader's: it was checked when it was first written.
    pub fn replay(
        &mut self,
        header: &BatchHeader,
        body: &[u8],
    ) -> Result<Option<CompletedTxn>, ControlError> {
        let change = change_of(header, body)?;
        let completed = self.apply(Update(change));
        self.advance_end(header.next_offset());
        Ok(completed)
    }

    /// Where the oldest transaction begins that is open, or ended by a marker that is not replicated: the last stable
    /// offset, were the high watermark no bound.
    pub fn first_unstable_offset(&self) -> Option<Offset> {
        let unreplicated = self.unreplicated.keys().next().copied();
        unreplicated.into_iter().chain(self.first_undecided_offset()).min()
    }

    /// Where the oldest open transaction begins.
    pub fn first_undecided_offset(&self) -> Option<Offset> {
        self.ongoing.keys().next().copied()
    }

    /// When the producer of the oldest open transaction wrote last: a transaction left hanging shows by it.
    pub fn oldest_open_transaction(&self) -> Option<TimestampMs> {
        let producer_id = self.ongoing.values().next()?;
        self.get(*producer_id).map(|entry| entry.last_timestamp)
    }

    /// The high watermark has moved to `offset`: transactions whose marker is below are stable.
    pub fn on_high_watermark(&mut self, offset: Offset) {
        self.unreplicated.retain(|_, marker| *marker >= offset);
    }

    /// The log now starts at `offset`.
    pub fn on_log_start(&mut self, offset: Offset) {
        self.on_high_watermark(offset);
        self.advance_end(offset);
    }

    /// Forgets the producers that wrote last at or before `expired_before` and have no transaction open; returns how
    /// many those are.
    pub fn expire(&mut self, expired_before: TimestampMs) -> usize {
        let before = self.producers.len();
        self.producers.retain(|_, entry| !entry.has_expired(expired_before));
        self.verifications.expire(expired_before);
        self.shrink();
        let expired = before - self.producers.len();
        self.keep_bound();
        expired
    }
}

/// What `header` would change. The body matters for control batches only.
fn change_of(header: &BatchHeader, body: &[u8]) -> Result<Change, ControlError> {
    let BatchHeader { producer_id, producer_epoch: epoch, base_offset: offset, .. } = *header;
    if !header.has_producer_id() {
        return Ok(Change::Nothing);
    }
    if header.is_control() {
        return Ok(match EndTxnMarker::of_batch(header, body)? {
            Some(marker) => Change::Marker { producer_id, epoch, offset, marker },
            None => Change::Nothing,
        });
    }
    let batch = SequencedBatch {
        last_sequence: header.last_sequence(),
        last_offset: header.last_offset(),
        offset_delta: header.last_offset_delta,
        timestamp: header.max_timestamp,
    };
    Ok(Change::Data { producer_id, epoch, batch, transactional: header.is_transactional() })
}

fn check_epoch(header: &BatchHeader, entry: &ProducerEntry) -> Result<(), ProducerError> {
    if header.producer_epoch < entry.epoch {
        return Err(fenced(header, entry));
    }
    Ok(())
}

fn fenced(header: &BatchHeader, entry: &ProducerEntry) -> ProducerError {
    ProducerError::Fenced {
        producer_id: header.producer_id,
        epoch: header.producer_epoch,
        current: entry.epoch,
    }
}

/// A producer that is not known, or no longer, may begin with any sequence: its earlier records may have been deleted.
fn check_sequence(header: &BatchHeader, entry: &ProducerEntry) -> Result<(), ProducerError> {
    let sequence = header.base_sequence;
    let last = if header.producer_epoch == entry.epoch { entry.last_sequence() } else { NO_SEQUENCE };
    let follows = i64::from(sequence) == i64::from(last) + 1 || (sequence == 0 && last == i32::MAX);
    if entry.epoch == ProducerEpoch::NONE || follows {
        return Ok(());
    }
    Err(ProducerError::OutOfOrderSequence { producer_id: header.producer_id, sequence, last })
}

fn check_marker(
    header: &BatchHeader,
    marker: &EndTxnMarker,
    entry: &ProducerEntry,
    marker_epoch: MarkerEpoch,
) -> Result<(), ProducerError> {
    check_epoch(header, entry)?;
    let same = header.producer_epoch == entry.epoch;
    // The last epoch of all cannot be raised any more.
    let is_last = header.producer_epoch == ProducerEpoch(i16::MAX);
    let is_open = entry.current_txn_first_offset.is_some();
    if marker_epoch == MarkerEpoch::Later && same && is_open && !is_last {
        return Err(fenced(header, entry));
    }
    if entry.coordinator_epoch > marker.coordinator_epoch {
        return Err(ProducerError::CoordinatorFenced {
            producer_id: header.producer_id,
            epoch: marker.coordinator_epoch,
            current: entry.coordinator_epoch,
        });
    }
    Ok(())
}

#[cfg(test)]
mod bound_tests;
#[cfg(test)]
mod tests;
