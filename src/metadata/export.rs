//! The metadata in forms for other programs: as a snapshot file of Kafka's metadata log (`OFFSET-EPOCH.checkpoint`), which
//! Kafka's tools read, and as lines of JSON. It writes what the image says and changes nothing.

use super::image::Image;
use super::record::{Record, RecordError};
use crate::types::{LeaderEpoch, Offset, TimestampMs};
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::control::ControlKind;
use crate::wire::messages::codec::{self, Schema};
use crate::wire::messages::snapshot::{
    KRaftVersionRecord, SnapshotFooterRecord, SnapshotHeaderRecord, VotersRecord,
};
use bytes::{BufMut, Bytes, BytesMut};

/// When a batch of a snapshot is full; Kafka reads batches of up to 8 MiB.
const BATCH_BYTES: usize = 512 * 1024;

/// A snapshot file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFile {
    /// What Kafka calls it: the offset after the last record that it stands for, and that record's epoch.
    pub name: String,
    pub bytes: Bytes,
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("a batch cannot be built: {0}")]
    Batch(String),
}

/// What a snapshot says about the quorum itself (KIP-853).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SnapshotQuorum {
    /// The level of the feature kraft.version: 0 for voters that the configuration names.
    pub kraft_version: i16,
    /// Only from level 1 on, and not even there when the quorum is to be found.
    pub voters: Option<VotersRecord>,
}

/// The image as a snapshot file of Kafka's: `epoch` and `timestamp` are those of the last record in it.
pub fn snapshot_file(
    image: &Image,
    quorum: &SnapshotQuorum,
    epoch: LeaderEpoch,
    timestamp: TimestampMs,
) -> Result<SnapshotFile, ExportError> {
    let mut writer = Writer { bytes: BytesMut::new(), next: Offset::ZERO, epoch, timestamp };
    let last_contained_log_timestamp = timestamp.0;
    let header = SnapshotHeaderRecord { last_contained_log_timestamp, ..SnapshotHeaderRecord::default() };
    let mut opening = vec![control(ControlKind::SnapshotHeader, &header)?];
    if quorum.kraft_version > 0 {
        let version = KRaftVersionRecord { k_raft_version: quorum.kraft_version, ..Default::default() };
        opening.push(control(ControlKind::KRaftVersion, &version)?);
        if let Some(voters) = &quorum.voters {
            opening.push(control(ControlKind::KRaftVoters, voters)?);
        }
    }
    writer.control_batch(&opening)?;
    writer.records(image)?;
    writer.control_batch(&[control(ControlKind::SnapshotFooter, &SnapshotFooterRecord::default())?])?;
    let name = format!("{:020}-{:010}.checkpoint", image.version.0, epoch.0);
    Ok(SnapshotFile { name, bytes: writer.bytes.freeze() })
}

/// A control record and its value.
fn control<M: Schema>(kind: ControlKind, message: &M) -> Result<(ControlKind, BytesMut), ExportError> {
    let mut value = BytesMut::new();
    codec::encode_message(message, &mut value, 0).map_err(RecordError::malformed)?;
    Ok((kind, value))
}

struct Writer {
    bytes: BytesMut,
    next: Offset,
    epoch: LeaderEpoch,
    timestamp: TimestampMs,
}

impl Writer {
    fn batch(&self) -> BatchBuilder {
        BatchBuilder::new().base_offset(self.next).leader_epoch(self.epoch)
    }

    fn control_batch(&mut self, records: &[(ControlKind, BytesMut)]) -> Result<(), ExportError> {
        let mut batch = self.batch().control(true);
        for (kind, value) in records {
            batch.push(self.timestamp, Some(&kind.key()), Some(value), &[]);
        }
        self.append(batch)
    }

    fn records(&mut self, image: &Image) -> Result<(), ExportError> {
        let version = image.metadata_version();
        let mut batch = self.batch();
        for record in image.to_records() {
            if batch.size_in_bytes() >= BATCH_BYTES {
                self.append(std::mem::take(&mut batch))?;
                batch = self.batch();
            }
            batch.push(self.timestamp, None, Some(&record.encode(version)?), &[]);
        }
        if batch.record_count() > 0 {
            self.append(batch)?;
        }
        Ok(())
    }

    fn append(&mut self, batch: BatchBuilder) -> Result<(), ExportError> {
        self.next = self.next.plus(i64::from(batch.record_count()));
        let built = batch.build().map_err(|error| ExportError::Batch(error.to_string()))?;
        self.bytes.put(built);
        Ok(())
    }
}

/// The records that the image folds from, a line of JSON for each.
pub fn image_as_json(image: &Image) -> Result<Vec<String>, RecordError> {
    let version = image.metadata_version();
    let line = |record: Record| Ok(record.to_json(record.version_under(version))?.to_string());
    image.to_records().into_iter().map(line).collect()
}

/// A framed record of the log as a line of JSON.
pub fn frame_as_json(frame: Bytes) -> Result<String, RecordError> {
    let (record, version) = Record::decode(frame)?;
    Ok(record.to_json(version)?.to_string())
}
