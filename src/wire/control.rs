//! Control records: what brokers write into a log for readers to obey and applications never to see.
//!
//! Owns their keys and the value of the markers that end a transaction. The values of the Raft kinds belong to whoever
//! writes them. Invariant: a key of an unknown kind or newer version is read as far as this version knows it.

use std::borrow::Cow;

use bytes::Bytes;
use thiserror::Error;

use super::batch::{BatchHeader, NO_SEQUENCE, TimestampType};
use super::batch_builder::BatchBuilder;
use super::compression::{Compression, DecompressError, Scratch, decompress};
use super::records::{RecordError, Records};
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

/// A control batch holds a record or two; nobody writes one that expands to more.
const CONTROL_BODY_MAX: usize = 64 * 1024;

/// The kinds of control records, by the number in their key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlKind {
    Abort,
    Commit,
    LeaderChange,
    SnapshotHeader,
    SnapshotFooter,
    KRaftVersion,
    KRaftVoters,
    /// A kind of a later version: to be passed over.
    Unknown(i16),
}

impl ControlKind {
    pub fn id(self) -> i16 {
        match self {
            ControlKind::Abort => 0,
            ControlKind::Commit => 1,
            ControlKind::LeaderChange => 2,
            ControlKind::SnapshotHeader => 3,
            ControlKind::SnapshotFooter => 4,
            ControlKind::KRaftVersion => 5,
            ControlKind::KRaftVoters => 6,
            ControlKind::Unknown(id) => id,
        }
    }

    pub fn from_id(id: i16) -> ControlKind {
        match id {
            0 => ControlKind::Abort,
            1 => ControlKind::Commit,
            2 => ControlKind::LeaderChange,
            3 => ControlKind::SnapshotHeader,
            4 => ControlKind::SnapshotFooter,
            5 => ControlKind::KRaftVersion,
            6 => ControlKind::KRaftVoters,
            other => ControlKind::Unknown(other),
        }
    }

    /// The record key: version 0 and the kind.
    pub fn key(self) -> [u8; 4] {
        let [high, low] = self.id().to_be_bytes();
        [0, 0, high, low]
    }

    pub fn of_key(key: Option<&[u8]>) -> Result<ControlKind, ControlError> {
        match key {
            Some(&[v0, v1, k0, k1, ..]) if i16::from_be_bytes([v0, v1]) >= 0 => {
                Ok(ControlKind::from_id(i16::from_be_bytes([k0, k1])))
            }
            _ => Err(ControlError::Key),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ControlError {
    #[error("the key of a control record is malformed")]
    Key,
    #[error("a producer's control record is of kind {0:?}, which ends no transaction")]
    Kind(ControlKind),
    #[error("the value of a transaction marker is malformed")]
    Value,
    #[error("a control batch is compressed by an unknown codec")]
    Codec,
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TxnResult {
    Abort,
    Commit,
}

/// The marker that ends a producer's transaction in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTxnMarker {
    pub result: TxnResult,
    /// The epoch of the transaction coordinator that wrote it.
    pub coordinator_epoch: i32,
    pub timestamp: TimestampMs,
}

impl EndTxnMarker {
    /// Reads the marker of a producer's control batch; `None` when compaction has removed it.
    pub fn of_batch(header: &BatchHeader, body: &[u8]) -> Result<Option<EndTxnMarker>, ControlError> {
        let body = match header.compression().map_err(|_| ControlError::Codec)? {
            Compression::None => Cow::from(body),
            codec => Cow::from(decompress(codec, body, CONTROL_BODY_MAX, &mut Scratch::new())?),
        };
        let Some(record) = Records::new(&body, header.record_count).next().transpose()? else {
            return Ok(None);
        };
        let result = match ControlKind::of_key(record.key)? {
            ControlKind::Abort => TxnResult::Abort,
            ControlKind::Commit => TxnResult::Commit,
            other => return Err(ControlError::Kind(other)),
        };
        let timestamp = match header.timestamp_type() {
            TimestampType::LogAppendTime => header.max_timestamp,
            TimestampType::CreateTime => {
                TimestampMs(header.base_timestamp.0.wrapping_add(record.timestamp_delta))
            }
        };
        Ok(Some(EndTxnMarker { result, coordinator_epoch: coordinator_epoch(record.value)?, timestamp }))
    }

    /// A control batch of this marker for the log of a partition.
    pub fn batch(
        &self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        base_offset: Offset,
        leader_epoch: LeaderEpoch,
    ) -> Bytes {
        let kind = match self.result {
            TxnResult::Abort => ControlKind::Abort,
            TxnResult::Commit => ControlKind::Commit,
        };
        let [a, b, c, d] = self.coordinator_epoch.to_be_bytes();
        let mut builder = BatchBuilder::new()
            .base_offset(base_offset)
            .leader_epoch(leader_epoch)
            .producer(producer_id, producer_epoch, NO_SEQUENCE)
            .transactional(true)
            .control(true);
        builder.push(self.timestamp, Some(&kind.key()), Some(&[0, 0, a, b, c, d]), &[]);
        builder.build().expect("an uncompressed batch is always built")
    }
}

fn coordinator_epoch(value: Option<&[u8]>) -> Result<i32, ControlError> {
    match value {
        Some(&[v0, v1, a, b, c, d, ..]) if i16::from_be_bytes([v0, v1]) >= 0 => {
            Ok(i32::from_be_bytes([a, b, c, d]))
        }
        _ => Err(ControlError::Value),
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::{Batches, PartialTail};
    use super::*;

    fn read(bytes: &[u8]) -> Result<Option<EndTxnMarker>, ControlError> {
        let batch = Batches::new(bytes, PartialTail::Refuse).next().unwrap().unwrap();
        EndTxnMarker::of_batch(&batch.header, batch.body())
    }

    #[test]
    fn markers_come_back_as_they_were() {
        for result in [TxnResult::Abort, TxnResult::Commit] {
            let marker = EndTxnMarker { result, coordinator_epoch: 77, timestamp: TimestampMs(123) };
            let bytes = marker.batch(ProducerId(9), ProducerEpoch(2), Offset(40), LeaderEpoch(5));
            assert_eq!(read(&bytes), Ok(Some(marker)));
            let header = super::super::batch::BatchHeader::parse(&bytes).unwrap();
            assert!(header.is_control() && header.is_transactional() && header.check_crc(&bytes).is_ok());
            assert_eq!((header.base_offset, header.last_sequence()), (Offset(40), -1));
        }
    }

    #[test]
    fn what_is_no_marker_is_told() {
        let control = |key: &[u8], value: &[u8]| {
            let mut builder = BatchBuilder::new().control(true).compression(Compression::Lz4);
            builder.push(TimestampMs(1), Some(key), Some(value), &[]);
            read(&builder.build().unwrap())
        };
        let value = [0, 0, 0, 0, 0, 1];
        assert!(control(&[0, 0, 0, 1], &value).unwrap().is_some());
        assert!(control(&[0, 9, 0, 1, 5, 5], &[0, 9, 0, 0, 0, 1, 6]).unwrap().is_some());
        assert_eq!(control(&[0, 0, 0], &value), Err(ControlError::Key));
        assert_eq!(control(&[0xff, 0, 0, 1], &value), Err(ControlError::Key));
        assert_eq!(control(&[0, 0, 0, 2], &value), Err(ControlError::Kind(ControlKind::LeaderChange)));
        assert_eq!(control(&[0, 0, 0, 9], &value), Err(ControlError::Kind(ControlKind::Unknown(9))));
        assert_eq!(control(&[0, 0, 0, 0], &value[..5]), Err(ControlError::Value));
        assert_eq!(read(&BatchBuilder::new().control(true).build().unwrap()), Ok(None));
    }

    #[test]
    fn kinds_have_their_numbers() {
        for id in -1..9 {
            assert_eq!(ControlKind::from_id(id).id(), id);
        }
    }
}
