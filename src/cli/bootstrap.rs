//! The records with which a cluster begins. Formatting leaves them in `bootstrap.checkpoint`, in Kafka's snapshot format, so
//! that a directory which Kafka's own tool has formatted is as good; without the file a cluster begins with the newest
//! features.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::metadata::export::{ExportError, snapshot_file};
use crate::metadata::features::{UpdateFeaturesError, bootstrap_records};
use crate::metadata::record::RecordError;
use crate::metadata::{Image, ImageVersion, MetadataVersion, Record};
use crate::storage::disk::{Disk, read_file, write_file_atomically};
use crate::types::{LeaderEpoch, TimestampMs};
use crate::wire::batch::{BatchError, Batches, HEADER_LEN, PartialTail};
use crate::wire::records::{RecordError as FormatError, Records};

/// Kafka's name of the file.
const BOOTSTRAP_FILE: &str = "bootstrap.checkpoint";

/// When a new file of the metadata log is begun, and when a snapshot is taken: Kafka's defaults are for logs that hold far
/// more than changes of metadata, so ours are fixed and smaller.
pub const METADATA_SEGMENT_BYTES: u64 = 16 << 20;
pub const METADATA_SNAPSHOT_BYTES: u64 = 20 << 20;

#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    #[error("{path}: {error}", path = path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{path}: {error}", path = path.display())]
    Malformed { path: PathBuf, error: MalformedSnapshot },
    #[error(transparent)]
    Features(#[from] UpdateFeaturesError),
    #[error(transparent)]
    Export(#[from] ExportError),
}

/// What is wrong with a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum MalformedSnapshot {
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("a compressed batch, which metadata never is")]
    Compressed,
}

/// The records for a cluster whose first controller has this metadata directory.
pub fn read(
    disk: &dyn Disk,
    metadata_dir: &Path,
    min_insync_replicas: i32,
) -> Result<Vec<Record>, BootstrapError> {
    let path = metadata_dir.join(BOOTSTRAP_FILE);
    match read_file(disk, &path) {
        Ok(bytes) => {
            snapshot_records(&Bytes::from(bytes)).map_err(|error| BootstrapError::Malformed { path, error })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(bootstrap_records(MetadataVersion::LATEST, &[], min_insync_replicas)?)
        }
        Err(error) => Err(BootstrapError::Io { path, error }),
    }
}

/// Leaves the records for the first start.
pub fn write(disk: &dyn Disk, metadata_dir: &Path, records: &[Record]) -> Result<(), BootstrapError> {
    let image = Image::from_snapshot(ImageVersion::default(), records);
    let file = snapshot_file(&image, LeaderEpoch::ZERO, TimestampMs(0))?;
    let path = metadata_dir.join(BOOTSTRAP_FILE);
    write_file_atomically(disk, &path, &file.bytes).map_err(|error| BootstrapError::Io { path, error })
}

/// The metadata records in a snapshot file of Kafka's.
fn snapshot_records(bytes: &Bytes) -> Result<Vec<Record>, MalformedSnapshot> {
    let mut records = Vec::new();
    for batch in Batches::new(bytes, PartialTail::Refuse) {
        let batch = batch?;
        batch.check_crc()?;
        if batch.header.is_control() {
            continue;
        }
        if batch.header.compression().ok() != Some(crate::wire::compression::Compression::None) {
            return Err(MalformedSnapshot::Compressed);
        }
        for record in Records::new(&batch.bytes[HEADER_LEN..], batch.header.record_count) {
            let value = record?.value.unwrap_or_default();
            records.push(Record::decode(Bytes::copy_from_slice(value))?.0);
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::disk::RealDisk;

    #[test]
    fn what_formatting_leaves_is_what_the_first_start_finds() {
        let dir = tempfile::tempdir().unwrap();
        let records = bootstrap_records(MetadataVersion::from_name("4.0").unwrap(), &[], 1).unwrap();
        write(&RealDisk, dir.path(), &records).unwrap();
        assert_eq!(read(&RealDisk, dir.path(), 1).unwrap(), records);
        std::fs::write(dir.path().join(BOOTSTRAP_FILE), b"damaged").unwrap();
        assert!(read(&RealDisk, dir.path(), 1).is_err());
    }

    #[test]
    fn without_a_file_the_features_are_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let records = read(&RealDisk, dir.path(), 1).unwrap();
        assert_eq!(
            Image::from_snapshot(ImageVersion(0), &records).metadata_version(),
            MetadataVersion::LATEST
        );
    }
}
