//! What compaction makes of one batch: it stays as it is, is written anew with fewer records, keeps only its header, or goes.
//! Pure. Must not know files or segments.
//!
//! Invariant: offsets, sequences and leader epochs of what stays are what they were.

use std::borrow::Cow;
use std::collections::HashMap;

use bytes::Bytes;
use thiserror::Error;

use super::super::txn_index::AbortedTxn;
use super::offset_map::OffsetMap;
use super::transactions::{Marker, Transactions};
use crate::types::{Offset, ProducerEpoch, ProducerId, TimestampMs};
use crate::wire::batch::{Batch, BatchError, BatchHeader, TimestampType};
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::compression::{
    CompressError, Compression, DecompressError, Scratch, UnknownCompression, decompress,
};
use crate::wire::control::ControlError;
use crate::wire::records::{Header, Record, RecordError, Records};

/// The most bytes that the records of one batch are expected to expand to; beyond it the batch is taken for damaged.
const EXPANSION_MAX: usize = i32::MAX as usize;

/// What is known of the last batches of each producer that is remembered.
pub type LastRecords = HashMap<ProducerId, LastRecord>;

/// Where a producer last wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRecord {
    /// `None` when it wrote nothing in its epoch: then a marker is the last that is known of it.
    pub offset: Option<Offset>,
    pub epoch: ProducerEpoch,
}

/// What decides about records.
#[derive(Debug)]
pub(super) struct Terms<'a> {
    pub map: &'a OffsetMap,
    /// The map knows the records below.
    pub mapped_upto: Offset,
    pub last_records: &'a LastRecords,
    pub now: TimestampMs,
    pub delete_retention_ms: i64,
}

/// What becomes of a batch.
#[derive(Debug)]
pub(super) enum Fate {
    Stays,
    /// With so many records less, all of them at most.
    Changes(BatchHeader, Bytes),
    Goes,
}

/// What becomes of a batch, and what belongs into the transaction index for it.
#[derive(Debug)]
pub(super) struct Judged {
    pub fate: Fate,
    pub aborted: Option<AbortedTxn>,
}

/// Why a batch cannot be read. It is left alone, and so is its log.
#[derive(Debug, Error)]
pub enum DamagedBatch {
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error(transparent)]
    Codec(#[from] UnknownCompression),
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Compress(#[from] CompressError),
}

/// The records of a batch, decompressed.
pub fn unpacked<'a>(batch: &Batch<'a>, scratch: &mut Scratch) -> Result<Cow<'a, [u8]>, DamagedBatch> {
    Ok(match batch.header.compression()? {
        Compression::None => Cow::from(batch.body()),
        codec => Cow::from(decompress(codec, batch.body(), EXPANSION_MAX, scratch)?),
    })
}

/// Walks over a control batch.
pub(super) fn pass_control(
    batch: &Batch<'_>,
    body: &[u8],
    transactions: &mut Transactions,
) -> Result<Marker, DamagedBatch> {
    let first = Records::new(body, batch.header.record_count).next().transpose()?;
    Ok(transactions.pass_control(&batch.header, first.map(|record| record.key))?)
}

impl Terms<'_> {
    /// Judges a batch. `ends_segment` says that it is what tells where the segment ends, and must not go.
    pub fn judge(
        &self,
        batch: &Batch<'_>,
        ends_segment: bool,
        transactions: &mut Transactions,
        scratch: &mut Scratch,
    ) -> Result<Judged, DamagedBatch> {
        let header = &batch.header;
        let must_stay = ends_segment || self.is_last_of_producer(header);
        if !header.is_control() {
            let is_aborted = transactions.pass_records(header);
            let fate = if is_aborted {
                self.empty(header, must_stay)
            } else {
                self.sieve(batch, must_stay, scratch)?
            };
            return Ok(Judged { fate, aborted: None });
        }
        let body = unpacked(batch, scratch)?;
        let Marker { is_needless, aborted } = pass_control(batch, &body, transactions)?;
        let horizon = header.delete_horizon();
        let fate = if header.record_count == 0 || (is_needless && horizon.is_some_and(|at| at <= self.now)) {
            self.empty(header, must_stay)
        } else if is_needless && horizon.is_none() {
            let records = Records::new(&body, header.record_count).collect::<Result<Vec<_>, _>>()?;
            self.rewritten(header, &records, Some(self.horizon()))?
        } else {
            Fate::Stays
        };
        Ok(Judged { fate, aborted })
    }

    /// Sequences, and that there was a producer, are known from its last batch.
    fn is_last_of_producer(&self, header: &BatchHeader) -> bool {
        if !header.has_producer_id() {
            return false;
        }
        self.last_records.get(&header.producer_id).is_some_and(|last| match last.offset {
            Some(offset) => header.last_offset() == offset,
            None => header.is_control() && header.producer_epoch == last.epoch,
        })
    }

    fn empty(&self, header: &BatchHeader, must_stay: bool) -> Fate {
        match (must_stay, header.record_count) {
            (false, _) => Fate::Goes,
            (true, 0) => Fate::Stays,
            (true, _) => Fate::Changes(header.emptied(), Bytes::new()),
        }
    }

    fn sieve(&self, batch: &Batch<'_>, must_stay: bool, scratch: &mut Scratch) -> Result<Fate, DamagedBatch> {
        let header = &batch.header;
        let body = unpacked(batch, scratch)?;
        let mut kept = Vec::new();
        for record in Records::new(&body, header.record_count) {
            let record = record?;
            if self.keeps(header, &record) {
                kept.push(record);
            }
        }
        if kept.is_empty() {
            return Ok(self.empty(header, must_stay));
        }
        let has_tombstones = kept.iter().any(|record| record.value.is_none());
        let sets_horizon = has_tombstones && header.delete_horizon().is_none();
        if kept.len() == header.record_count as usize && !sets_horizon {
            return Ok(Fate::Stays);
        }
        let horizon = if sets_horizon { Some(self.horizon()) } else { header.delete_horizon() };
        self.rewritten(header, &kept, horizon)
    }

    fn keeps(&self, header: &BatchHeader, record: &Record<'_>) -> bool {
        let offset = header.base_offset.plus(i64::from(record.offset_delta));
        if offset >= self.mapped_upto {
            return true;
        }
        // Such a record came before the topic was compacted: nothing can ask for it.
        let Some(key) = record.key else { return false };
        let is_last = self.map.get(key).is_none_or(|last| offset >= last);
        is_last && (record.value.is_some() || header.delete_horizon().is_none_or(|at| self.now < at))
    }

    /// When what is to be deleted has been there long enough.
    fn horizon(&self) -> TimestampMs {
        TimestampMs(self.now.0.saturating_add(self.delete_retention_ms))
    }

    fn rewritten(
        &self,
        header: &BatchHeader,
        records: &[Record<'_>],
        horizon: Option<TimestampMs>,
    ) -> Result<Fate, DamagedBatch> {
        let mut builder = BatchBuilder::new()
            .base_offset(header.base_offset)
            .leader_epoch(header.leader_epoch)
            .producer(header.producer_id, header.producer_epoch, header.base_sequence)
            .transactional(header.is_transactional())
            .control(header.is_control())
            .compression(header.compression()?);
        if let Some(horizon) = horizon {
            builder = builder.delete_horizon(horizon);
        }
        if header.timestamp_type() == TimestampType::LogAppendTime {
            builder = builder.log_append_time(header.max_timestamp);
        }
        for record in records {
            let timestamp = match header.timestamp_type() {
                TimestampType::LogAppendTime => header.max_timestamp,
                TimestampType::CreateTime => {
                    TimestampMs(header.base_timestamp.0.wrapping_add(record.timestamp_delta))
                }
            };
            let headers: Vec<Header<'_>> = record.headers.clone().collect();
            builder.push_at(record.offset_delta, timestamp, record.key, record.value, &headers);
        }
        let (header, body) = builder.ending_at(header.last_offset_delta).build_parts()?;
        Ok(Fate::Changes(header, body))
    }
}
