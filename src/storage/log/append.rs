//! Appending: as leader (validate, assign offsets) and as follower (take the offsets that are there). Must not know how
//! requests look.
//!
//! Invariant: either all batches of an append are in the log and in its indexes, or none is.

use std::cell::RefCell;
use std::io::{self, IoSlice};

use bytes::Bytes;
use thiserror::Error;

use super::producer_state::{Checked, Coordinated, ProducerError, SequencedBatch, Update};
use super::roll::Coming;
use super::txn_index::AbortedTxn;
use super::validate::{Rules, Validated, ValidationError, validate};
use super::{Log, LogError, Ruler};
use crate::fault::{self, Fault};
use crate::storage::disk;
use crate::types::{LeaderEpoch, Offset, TimestampMs};
use crate::wire::batch::{BatchError, BatchHeader, Batches, HEADER_LEN, PartialTail, TimestampType};
use crate::wire::compression::Scratch;

/// Who appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A producer.
    Client,
    /// A coordinator of this broker: its records and transaction markers.
    Coordinator,
    /// A follower that copies its leader.
    Replication,
}

/// What an append did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub first_offset: Offset,
    pub last_offset: Offset,
    /// The leader's timestamp when it sets the timestamps of the topic, else -1.
    pub log_append_time: TimestampMs,
    pub log_start: Offset,
    /// The batch was in the log already; the offsets are those of the first time.
    pub duplicate: bool,
}

/// Why nothing was appended.
#[derive(Debug, Error)]
pub enum AppendError {
    #[error(transparent)]
    Log(#[from] LogError),
    /// The leader refuses the batch.
    #[error(transparent)]
    Validation(#[from] ValidationError),
    /// The batch does not go with what its producer wrote before.
    #[error(transparent)]
    Producer(#[from] ProducerError),
    #[error("{size} bytes do not fit into a segment of {limit}")]
    LargerThanSegment { size: usize, limit: u32 },
    /// A follower got something else than batches.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A follower got batches that do not follow what it has.
    #[error("the first batch begins at {first}, the log ends at {log_end}")]
    OutOfOrder { first: Offset, log_end: Offset },
    /// A follower got no whole batch.
    #[error("there is no batch")]
    Empty,
}

/// A batch that is ready to be written.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub header: BatchHeader,
    /// The header's bytes.
    pub head: [u8; HEADER_LEN],
    /// The records.
    pub body: Bytes,
}

thread_local! {
    /// The buffers of the decompressor: one per shard rather than one per log.
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
}

impl Log {
    /// Appends the one batch in `records`, giving it the offsets from the log's end on and the leader's epoch. No
    /// transaction begins by it.
    pub fn append_as_leader(
        &mut self,
        records: &Bytes,
        epoch: LeaderEpoch,
        origin: Origin,
        now: TimestampMs,
    ) -> Result<Appended, AppendError> {
        self.append_coordinated(records, epoch, origin, Coordinated::default(), now)
    }

    /// The same for a batch about which the transaction coordinator has said something.
    pub fn append_coordinated(
        &mut self,
        records: &Bytes,
        epoch: LeaderEpoch,
        origin: Origin,
        coordinated: Coordinated,
        now: TimestampMs,
    ) -> Result<Appended, AppendError> {
        self.check_in_service()?;
        let rules = Rules::of(&self.config);
        let validated = SCRATCH.with_borrow_mut(|scratch| validate(records, &rules, origin, now, scratch))?;
        self.append_validated(validated, epoch, origin, coordinated, now)
    }

    /// The same for a batch that was validated by this log's rules already, possibly on another thread.
    pub fn append_validated(
        &mut self,
        validated: Validated,
        epoch: LeaderEpoch,
        origin: Origin,
        coordinated: Coordinated,
        now: TimestampMs,
    ) -> Result<Appended, AppendError> {
        self.check_in_service()?;
        let (header, body) = validated.place(self.ruler.log_end, epoch);
        let prepared = Prepared { header, head: header.encode(), body };
        let Prepared { header, body, .. } = &prepared;
        let (size, limit) = (header.size_in_bytes(), self.config.segment_bytes);
        if size > limit as usize {
            return Err(AppendError::LargerThanSegment { size, limit });
        }
        let update = match self.producers.check(header, body, origin, coordinated)? {
            Checked::Append(update) => update,
            Checked::Duplicate(batch) => return Ok(self.duplicate(&batch)),
        };
        let log_append_time = match header.timestamp_type() {
            TimestampType::LogAppendTime => header.max_timestamp,
            TimestampType::CreateTime => TimestampMs::NONE,
        };
        let appended = self.write(std::slice::from_ref(&prepared), &[update], now)?;
        Ok(Appended { log_append_time, ..appended })
    }

    /// Whether a producer sends a batch again that the log took.
    pub fn holds(&self, records: &[u8]) -> bool {
        BatchHeader::parse(records).is_ok_and(|header| self.producers.holds(&header))
    }

    fn duplicate(&self, batch: &SequencedBatch) -> Appended {
        Appended {
            first_offset: batch.first_offset(),
            last_offset: batch.last_offset,
            log_append_time: batch.timestamp,
            log_start: self.ruler.log_start,
            duplicate: true,
        }
    }

    /// Appends batches that have their offsets: a follower's copy of its leader's log, up to the first batch of an epoch later
    /// than `up_to_epoch`. A partial batch at the end is left out. What does not fit into one segment goes into several, and
    /// an error that comes after some of them is not told: the log has come farther, and the rest is asked for again.
    pub fn append_as_follower(
        &mut self,
        records: &Bytes,
        up_to_epoch: LeaderEpoch,
        now: TimestampMs,
    ) -> Result<Appended, AppendError> {
        self.check_in_service()?;
        let prepared = self.prepare_copies(records, up_to_epoch)?;
        let Some(first) = prepared.first() else { return Err(AppendError::Empty) };
        let (first_offset, start) = (first.header.base_offset, self.ruler.log_start);
        let starts_earlier = first_offset < self.ruler.log_end;
        if starts_earlier {
            self.start_over_at(first_offset, now)?;
        }
        let mut appended: Option<Appended> = None;
        let mut rest = prepared.as_slice();
        while !rest.is_empty() {
            let (fits, later) = rest.split_at(self.fitting(rest));
            rest = later;
            match self.write_copies(fits, now) {
                Ok(done) => appended = Some(done),
                Err(_) if appended.is_some() && self.failure.is_none() => break,
                Err(error) => {
                    if starts_earlier && self.failure.is_none() {
                        self.start_over_at(start, now)?;
                    }
                    return Err(error);
                }
            }
        }
        if starts_earlier {
            // What lies before the start of the leader's log came with the batch that the start lies in.
            self.epoch_changes.note_if(self.epochs.truncate_from_start(start));
            self.producers.on_log_start(start);
            let high_watermark = self.ruler.high_watermark.max(start);
            self.draw(Ruler { log_start: start, high_watermark, ..self.ruler });
        }
        let done = appended.ok_or(AppendError::Empty)?;
        Ok(Appended { first_offset, log_start: self.ruler.log_start, ..done })
    }

    fn prepare_copies(
        &self,
        records: &Bytes,
        up_to_epoch: LeaderEpoch,
    ) -> Result<Vec<Prepared>, AppendError> {
        let log_end = self.ruler.log_end;
        let (mut next, mut prepared) = (None, Vec::new());
        let mut epoch = self.epochs.latest().map_or(LeaderEpoch::UNKNOWN, |latest| latest.epoch);
        for batch in Batches::new(records, PartialTail::Ignore) {
            let batch = batch?;
            if batch.header.leader_epoch > up_to_epoch {
                break;
            }
            batch.check_crc()?;
            batch.header.check_ranges()?;
            let (first, found) = (batch.header.base_offset, batch.header.leader_epoch);
            if found != LeaderEpoch::UNKNOWN && found < epoch {
                // Epochs grow. This one, which no checksum covers, would take the later ones away.
                return Err(BatchError::LeaderEpoch { found, known: epoch }.into());
            }
            epoch = epoch.max(found);
            let follows = match next {
                None => first >= log_end || self.begins_within(&batch.header),
                Some(next) => first >= next,
            };
            if !follows {
                return Err(AppendError::OutOfOrder { first, log_end: next.unwrap_or(log_end) });
            }
            next = Some(batch.header.next_offset());
            let mut head = [0; HEADER_LEN];
            head.copy_from_slice(&batch.bytes[..HEADER_LEN]);
            let body = records.slice(batch.range.start + HEADER_LEN..batch.range.end);
            prepared.push(Prepared { header: batch.header, head, body });
        }
        Ok(prepared)
    }

    /// A log that is empty because it begins where the leader's does gets the batch in which that start lies.
    fn begins_within(&self, first: &BatchHeader) -> bool {
        let Ruler { log_start, log_end, .. } = self.ruler;
        log_start == log_end && first.next_offset() > log_end && self.active().size() == 0
    }

    /// Has an empty log begin elsewhere; its start on the ruler is put back after the append.
    fn start_over_at(&mut self, first: Offset, now: TimestampMs) -> Result<(), AppendError> {
        Ok(self.truncate_fully_and_start_at(first, now)?)
    }

    /// How many of the batches fit into one segment, at least one: a leader with larger segments may have larger batches.
    fn fitting(&self, batches: &[Prepared]) -> usize {
        let limit = self.config.segment_bytes as usize;
        let mut size = 0;
        let fits = batches.iter().take_while(|batch| {
            size += batch.header.size_in_bytes();
            size <= limit
        });
        fits.count().max(1)
    }

    fn write_copies(&mut self, batches: &[Prepared], now: TimestampMs) -> Result<Appended, AppendError> {
        let mut updates = Vec::new();
        for Prepared { header, body, .. } in batches {
            let checked = self.producers.check(header, body, Origin::Replication, Coordinated::default())?;
            if let Checked::Append(update) = checked
                && !fault::is_active(Fault::ForgetsProducers)
            {
                updates.push(update);
            }
        }
        self.write(batches, &updates, now)
    }

    /// Writes batches whose offsets follow the log's end; `updates` is what they change about their producers.
    fn write(
        &mut self,
        batches: &[Prepared],
        updates: &[Update],
        now: TimestampMs,
    ) -> Result<Appended, AppendError> {
        let (Some(first), Some(last)) = (batches.first(), batches.last()) else {
            return Err(AppendError::Empty);
        };
        let (first_offset, last_offset) = (first.header.base_offset, last.header.last_offset());
        let size: usize = batches.iter().map(|batch| batch.header.size_in_bytes()).sum();
        let max_timestamp = batches.iter().map(|batch| batch.header.max_timestamp).max();
        let max_timestamp = max_timestamp.unwrap_or(TimestampMs::NONE);
        let rolled = self.roll_for(Coming { size, first_offset, last_offset, max_timestamp }, now);
        self.or_full("roll", rolled)?;
        let position = self.active().size();
        let aborted = self.producers.aborted_by(updates);
        self.write_files(batches, &aborted)?;
        self.touched = true;
        let noted = self.note_batches(batches, position, now);
        self.or_poison("index", noted)?;
        if self.active().txn_index.count_in(aborted.len()) {
            self.dir_changes.note();
        }
        for &update in updates {
            self.producers.apply(update);
        }
        self.producers.advance_end(last_offset.plus(1));
        self.draw(Ruler { log_end: last_offset.plus(1), ..self.ruler });
        Ok(Appended {
            first_offset,
            last_offset,
            log_append_time: TimestampMs::NONE,
            log_start: self.ruler.log_start,
            duplicate: false,
        })
    }

    /// What the batches abort, and the batches in one vectored write. The index comes first, for it may need room that the
    /// batches do not. A full disk leaves the log as it was, any other failure takes it out of service.
    fn write_files(&mut self, batches: &[Prepared], aborted: &[AbortedTxn]) -> Result<(), LogError> {
        let segment = self.active().clone();
        let result = segment.txn_index.prepare(aborted).and_then(|()| match batches {
            [one] => segment.append(&[IoSlice::new(&one.head), IoSlice::new(&one.body)]),
            many => {
                let parts: Vec<IoSlice<'_>> = many
                    .iter()
                    .flat_map(|batch| [IoSlice::new(&batch.head), IoSlice::new(&batch.body)])
                    .collect();
                segment.append(&parts)
            }
        });
        match result {
            Err(error) if disk::is_full(&error) => {
                let undone = segment.undo_append();
                let undone =
                    undone.and_then(|()| if aborted.is_empty() { Ok(()) } else { segment.txn_index.undo() });
                self.or_poison("cutting a failed append", undone)?;
                Err(LogError::DiskFull)
            }
            result => self.or_poison("append", result),
        }
    }

    fn note_batches(&mut self, batches: &[Prepared], mut position: u64, now: TimestampMs) -> io::Result<()> {
        let segment = self.active().clone();
        let interval = u64::from(self.config.index_interval_bytes);
        for Prepared { header, head, body } in batches {
            self.active.first_timestamp.get_or_insert(header.max_timestamp);
            let due = self.active.bytes_since_index_entry > interval;
            segment.note_batch(header.last_offset(), header.newest_timestamp(), position, due)?;
            let size = header.size_in_bytes() as u64;
            position += size;
            self.active.bytes_since_index_entry =
                if due { size } else { self.active.bytes_since_index_entry + size };
            self.note_epoch(header.leader_epoch, header.base_offset);
            self.tail.push((header.base_offset, header.last_offset()), head, body, now);
        }
        Ok(())
    }
}
