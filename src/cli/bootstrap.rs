//! With what a cluster begins: its first records, and the voters of its quorum. Formatting leaves both where Kafka's own tool
//! leaves them, in a snapshot at offset 0 of the metadata log, so that a directory which that tool has formatted is as good;
//! without the file a cluster begins with the newest features.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::voters::{self, Voters};
use crate::controller::METADATA_LOG_DIR;
use crate::metadata::export::{ExportError, SnapshotQuorum, snapshot_file};
use crate::metadata::features::{UpdateFeaturesError, add_min_insync_replicas, level_records};
use crate::metadata::record::RecordError;
use crate::metadata::{Image, ImageVersion, MetadataVersion, Record};
use crate::storage::disk::{Disk, read_file, write_file_atomically};
use crate::types::{LeaderEpoch, TimestampMs};
use crate::wire::batch::{BatchError, Batches, HEADER_LEN, PartialTail};
use crate::wire::control::{ControlError, ControlKind};
use crate::wire::messages::codec;
use crate::wire::messages::snapshot::{KRaftVersionRecord, VotersRecord};
use crate::wire::records::{RecordError as FormatError, Records};

/// Kafka's name of the snapshot, in the directory of the metadata log.
const BOOTSTRAP_SNAPSHOT: &str = "00000000000000000000-0000000000.checkpoint";
/// Where the records were up to Kafka 4.3, beside the directory of the metadata log.
const OLD_BOOTSTRAP_FILE: &str = "bootstrap.checkpoint";

/// When a new file of the metadata log is begun. Kafka's default is for logs that hold far more than changes of metadata.
pub const METADATA_SEGMENT_BYTES: u64 = 16 << 20;

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
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("a control record cannot be read: {0}")]
    ControlValue(String),
    #[error("a compressed batch, which metadata never is")]
    Compressed,
}

/// With what a cluster begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bootstrap {
    pub records: Vec<Record>,
    /// The level of the feature kraft.version: 0 when the voters are those of the configuration.
    pub kraft_version: i16,
    /// The voters that the node was formatted with.
    pub voters: Option<Voters>,
}

/// What is in the metadata directory of a controller that starts for the first time.
pub fn read(
    disk: &dyn Disk,
    metadata_dir: &Path,
    min_insync_replicas: i32,
) -> Result<Bootstrap, BootstrapError> {
    let snapshot = metadata_dir.join(METADATA_LOG_DIR).join(BOOTSTRAP_SNAPSHOT);
    let mut bootstrap = read_snapshot(disk, snapshot)?.unwrap_or_default();
    if bootstrap.records.is_empty() {
        let old = read_snapshot(disk, metadata_dir.join(OLD_BOOTSTRAP_FILE))?;
        bootstrap.records = match old {
            Some(old) => old.records,
            None => level_records(MetadataVersion::LATEST, &[])?,
        };
    }
    add_min_insync_replicas(&mut bootstrap.records, min_insync_replicas);
    Ok(bootstrap)
}

/// Leaves it for the first start.
pub fn write(disk: &dyn Disk, metadata_dir: &Path, bootstrap: &Bootstrap) -> Result<(), BootstrapError> {
    let image = Image::from_snapshot(ImageVersion::default(), &bootstrap.records);
    let quorum = SnapshotQuorum {
        kraft_version: bootstrap.kraft_version,
        voters: bootstrap.voters.as_ref().map(voters::to_record),
    };
    let file = snapshot_file(&image, &quorum, LeaderEpoch::ZERO, TimestampMs(0))?;
    let dir = metadata_dir.join(METADATA_LOG_DIR);
    let path = dir.join(BOOTSTRAP_SNAPSHOT);
    let written = disk.create_dir_all(&dir).and_then(|()| {
        write_file_atomically(disk, &path, &file.bytes)?;
        disk.sync_dir(metadata_dir)
    });
    written.map_err(|error| BootstrapError::Io { path, error })
}

fn read_snapshot(disk: &dyn Disk, path: PathBuf) -> Result<Option<Bootstrap>, BootstrapError> {
    match read_file(disk, &path) {
        Ok(bytes) => {
            parse(&Bytes::from(bytes)).map(Some).map_err(|error| BootstrapError::Malformed { path, error })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(BootstrapError::Io { path, error }),
    }
}

/// What a snapshot file of Kafka's says.
fn parse(bytes: &Bytes) -> Result<Bootstrap, MalformedSnapshot> {
    let mut bootstrap = Bootstrap::default();
    for batch in Batches::new(bytes, PartialTail::Refuse) {
        let batch = batch?;
        batch.check_crc()?;
        if batch.header.compression().ok() != Some(crate::wire::compression::Compression::None) {
            return Err(MalformedSnapshot::Compressed);
        }
        for record in Records::new(&batch.bytes[HEADER_LEN..], batch.header.record_count) {
            let record = record?;
            let value = Bytes::copy_from_slice(record.value.unwrap_or_default());
            if !batch.header.is_control() {
                bootstrap.records.push(Record::decode(value)?.0);
                continue;
            }
            match ControlKind::of_key(record.key)? {
                ControlKind::KRaftVersion => {
                    bootstrap.kraft_version = control_value::<KRaftVersionRecord>(value)?.k_raft_version;
                }
                ControlKind::KRaftVoters => {
                    bootstrap.voters = Some(voters::of_record(&control_value::<VotersRecord>(value)?));
                }
                _ => {}
            }
        }
    }
    Ok(bootstrap)
}

fn control_value<M: codec::Schema>(mut value: Bytes) -> Result<M, MalformedSnapshot> {
    codec::decode_message(&mut value, 0).map_err(|error| MalformedSnapshot::ControlValue(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::disk::RealDisk;
    use crate::types::NodeId;

    const VOTERS: &str = "1@h:1:MvDxzVmcRsaTz33bUuRU6A,2@[::1]:2:JEXY6aqzQY-32P5TStzaFg";

    fn bootstrap() -> Bootstrap {
        let records = level_records(MetadataVersion::from_name("4.0").unwrap(), &[]).unwrap();
        let voters = Some(voters::parse(VOTERS, "CONTROLLER").unwrap());
        Bootstrap { records, kraft_version: 1, voters }
    }

    #[test]
    fn what_formatting_leaves_is_what_the_first_start_finds() {
        let dir = tempfile::tempdir().unwrap();
        for quorum in [(1, bootstrap().voters), (1, None), (0, None)] {
            let written = Bootstrap { kraft_version: quorum.0, voters: quorum.1, ..bootstrap() };
            write(&RealDisk, dir.path(), &written).unwrap();
            assert_eq!(read(&RealDisk, dir.path(), 1).unwrap(), written);
        }
        std::fs::write(dir.path().join(METADATA_LOG_DIR).join(BOOTSTRAP_SNAPSHOT), b"damaged").unwrap();
        assert!(read(&RealDisk, dir.path(), 1).is_err());
    }

    #[test]
    fn without_a_file_the_features_are_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let Bootstrap { records, kraft_version, voters } = read(&RealDisk, dir.path(), 1).unwrap();
        assert_eq!(
            Image::from_snapshot(ImageVersion(0), &records).metadata_version(),
            MetadataVersion::LATEST
        );
        assert_eq!((kraft_version, voters), (0, None));
    }

    #[test]
    fn the_records_of_an_older_kafka_are_beside_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let image = Image::from_snapshot(ImageVersion(0), &bootstrap().records);
        let file = snapshot_file(&image, &SnapshotQuorum::default(), LeaderEpoch::ZERO, TimestampMs(0));
        std::fs::write(dir.path().join(OLD_BOOTSTRAP_FILE), file.unwrap().bytes).unwrap();
        assert_eq!(read(&RealDisk, dir.path(), 1).unwrap().records, bootstrap().records);
        // It left the voters where they still are.
        write(&RealDisk, dir.path(), &Bootstrap { records: Vec::new(), ..bootstrap() }).unwrap();
        assert_eq!(read(&RealDisk, dir.path(), 1).unwrap(), bootstrap());
    }

    #[test]
    fn what_kafkas_own_tool_has_written_is_read() {
        let snapshot = include_bytes!("../../testdata/kafka-4.4-format/dynamic.checkpoint");
        let bootstrap = parse(&Bytes::from_static(snapshot)).unwrap();
        assert_eq!(bootstrap.records, level_records(MetadataVersion::LATEST, &[]).unwrap());
        // Java writes IPv6 addresses in full.
        let mut expected = voters::parse(VOTERS, "CONTROLLER").unwrap();
        expected.get_mut(&NodeId(2)).unwrap().endpoints[0].host = "0:0:0:0:0:0:0:1".into();
        assert_eq!((bootstrap.kraft_version, bootstrap.voters), (1, Some(expected)));
        let snapshot = include_bytes!("../../testdata/kafka-4.4-format/no-initial-controllers.checkpoint");
        let bootstrap = parse(&Bytes::from_static(snapshot)).unwrap();
        assert_eq!((bootstrap.kraft_version, bootstrap.voters), (1, None));
    }
}
