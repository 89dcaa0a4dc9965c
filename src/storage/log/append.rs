//! Appending: as leader (validate, assign offsets) and as follower (take the offsets that are there). Must not know how
//! requests look.
//!
//! Invariant: either all batches of an append are in the log and in its indexes, or none is.

use std::io::{self, IoSlice};

use bytes::Bytes;
use thiserror::Error;

use super::roll::Coming;
use super::{Log, LogError, Ruler};
use crate::types::{LeaderEpoch, Offset, TimestampMs};
use crate::wire::batch::{self, BatchError, BatchHeader, Batches, HEADER_LEN, PartialTail};

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
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error("there is no batch")]
    Empty,
    #[error("{size} bytes do not fit into a segment of {limit}")]
    LargerThanSegment { size: usize, limit: u32 },
    /// A follower got batches that do not follow what it has.
    #[error("the first batch begins at {first}, the log ends at {log_end}")]
    OutOfOrder { first: Offset, log_end: Offset },
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

impl Log {
    /// Appends the batches in `records`, giving them the offsets from the log's end on and the leader's epoch.
    pub fn append_as_leader(
        &mut self,
        records: &Bytes,
        epoch: LeaderEpoch,
        _origin: Origin,
        now: TimestampMs,
    ) -> Result<Appended, AppendError> {
        self.check_in_service()?;
        let mut next = self.ruler.log_end;
        let mut prepared = Vec::with_capacity(1);
        for batch in Batches::new(records, PartialTail::Refuse) {
            let batch = batch?;
            batch.check_crc()?;
            let mut head = [0; HEADER_LEN];
            head.copy_from_slice(&batch.bytes[..HEADER_LEN]);
            batch::place(&mut head, next, epoch);
            let header = BatchHeader { base_offset: next, leader_epoch: epoch, ..batch.header };
            let body = records.slice(batch.range.start + HEADER_LEN..batch.range.end);
            next = header.next_offset();
            prepared.push(Prepared { header, head, body });
        }
        self.write(&prepared, now)
    }

    /// Appends batches that have their offsets: a follower's copy of its leader's log.
    pub fn append_as_follower(&mut self, records: &Bytes, now: TimestampMs) -> Result<Appended, AppendError> {
        self.check_in_service()?;
        let mut next = self.ruler.log_end;
        let mut prepared = Vec::new();
        for batch in Batches::new(records, PartialTail::Ignore) {
            let batch = batch?;
            batch.check_crc()?;
            if batch.header.base_offset < next {
                return Err(AppendError::OutOfOrder { first: batch.header.base_offset, log_end: next });
            }
            next = batch.header.next_offset();
            let mut head = [0; HEADER_LEN];
            head.copy_from_slice(&batch.bytes[..HEADER_LEN]);
            let body = records.slice(batch.range.start + HEADER_LEN..batch.range.end);
            prepared.push(Prepared { header: batch.header, head, body });
        }
        self.write(&prepared, now)
    }

    /// Writes batches whose offsets follow the log's end.
    fn write(&mut self, batches: &[Prepared], now: TimestampMs) -> Result<Appended, AppendError> {
        let (Some(first), Some(last)) = (batches.first(), batches.last()) else {
            return Err(AppendError::Empty);
        };
        let (first_offset, last_offset) = (first.header.base_offset, last.header.last_offset());
        let size: usize = batches.iter().map(|batch| batch.header.size_in_bytes()).sum();
        if size > self.config.segment_bytes as usize {
            return Err(AppendError::LargerThanSegment { size, limit: self.config.segment_bytes });
        }
        let max_timestamp = batches.iter().map(|batch| batch.header.max_timestamp).max();
        let max_timestamp = max_timestamp.unwrap_or(TimestampMs::NONE);
        let rolled = self.roll_for(Coming { size, first_offset, last_offset, max_timestamp }, now);
        self.or_full("roll", rolled)?;
        let mut position = self.active().size();
        self.write_files(batches)?;
        let noted = self.note_batches(batches, &mut position, now);
        self.or_poison("index", noted)?;
        self.draw(Ruler { log_end: last_offset.plus(1), ..self.ruler });
        Ok(Appended {
            first_offset,
            last_offset,
            log_append_time: TimestampMs::NONE,
            log_start: self.ruler.log_start,
            duplicate: false,
        })
    }

    /// One vectored write. A full disk leaves the log as it was, any other failure takes it out of service.
    fn write_files(&mut self, batches: &[Prepared]) -> Result<(), LogError> {
        let segment = self.active().clone();
        let result = match batches {
            [one] => segment.append(&[IoSlice::new(&one.head), IoSlice::new(&one.body)]),
            many => {
                let parts: Vec<IoSlice<'_>> = many
                    .iter()
                    .flat_map(|batch| [IoSlice::new(&batch.head), IoSlice::new(&batch.body)])
                    .collect();
                segment.append(&parts)
            }
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                self.or_poison("cutting a failed append", segment.undo_append())?;
                Err(LogError::DiskFull)
            }
            result => self.or_poison("append", result),
        }
    }

    fn note_batches(&mut self, batches: &[Prepared], position: &mut u64, now: TimestampMs) -> io::Result<()> {
        let segment = self.active().clone();
        let interval = u64::from(self.config.index_interval_bytes);
        for Prepared { header, head, body } in batches {
            self.active.first_timestamp.get_or_insert(header.max_timestamp);
            let due = self.active.bytes_since_index_entry > interval;
            segment.note_batch(header.last_offset(), header.max_timestamp, *position, due)?;
            let size = header.size_in_bytes() as u64;
            *position += size;
            self.active.bytes_since_index_entry =
                if due { size } else { self.active.bytes_since_index_entry + size };
            self.note_epoch(header.leader_epoch, header.base_offset);
            self.tail.push((header.base_offset, header.last_offset()), head, body, now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::storage::disk::RealDisk;
    use crate::storage::log::{LogConfig, OpenArgs, ReadPlan, TailBudget};
    use crate::types::{ProducerEpoch, ProducerId};
    use crate::wire::batch::{Attributes, MAGIC, NO_SEQUENCE};

    #[test]
    fn what_was_appended_is_read_hot_and_cold() {
        let dir = tempfile::tempdir().unwrap();
        let args = OpenArgs {
            recovery_point: Offset::ZERO,
            log_start: Offset::ZERO,
            clean_shutdown: true,
            now: TimestampMs(0),
            tail_budget: TailBudget::new(1 << 20, 1 << 20),
        };
        let dir = dir.path().join("topic-0");
        let config = Arc::new(LogConfig { segment_bytes: 400, ..LogConfig::default() });
        let mut log = Log::create(Arc::new(RealDisk), &dir, config, &args).unwrap();
        let mut header = BatchHeader {
            base_offset: Offset::ZERO,
            batch_length: 0,
            leader_epoch: LeaderEpoch(0),
            magic: MAGIC,
            crc: 0,
            attributes: Attributes::default(),
            last_offset_delta: 2,
            base_timestamp: TimestampMs(1000),
            max_timestamp: TimestampMs(1002),
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: NO_SEQUENCE,
            record_count: 3,
        };
        header.seal(&[7; 100]);
        let batch = Bytes::from([&header.encode()[..], &[7; 100]].concat());
        for round in 0..10 {
            let appended =
                log.append_as_leader(&batch, LeaderEpoch(0), Origin::Client, TimestampMs(0)).unwrap();
            assert_eq!(appended.first_offset, Offset(round * 3));
        }
        assert_eq!(log.view().segment_count(), 5);
        let view = log.view();
        let ReadPlan::Ready(hot) = view.read(Offset(0), 1 << 20, Offset(30), true).unwrap() else { panic!() };
        log.expire_tail(TimestampMs(1));
        let (mut from, mut cold) = (Offset(0), Vec::new());
        while from < log.log_end() {
            let ReadPlan::Cold(read) = view.read(from, 1 << 20, Offset(30), true).unwrap() else { panic!() };
            let bytes = read.run().unwrap();
            from = from.plus(Batches::new(&bytes, PartialTail::Refuse).count() as i64 * 3);
            cold.extend_from_slice(&bytes);
        }
        assert_eq!(hot.concat(), cold);
        log.flush().unwrap();
        assert_eq!(log.flushed(), Offset(30));
    }
}
