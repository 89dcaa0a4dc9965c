//! `.kafka_cleanshutdown` in a log directory: it was closed in an orderly way, by the broker registration with this epoch.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::storage::disk::{Disk, read_file, write_file_atomically};
use crate::types::BrokerEpoch;

pub const CLEAN_SHUTDOWN_FILE: &str = ".kafka_cleanshutdown";

/// The marker of a directory that was closed in an orderly way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanShutdown {
    /// Unknown when the marker is of a version that did not hold it.
    pub broker_epoch: BrokerEpoch,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    version: i32,
    broker_epoch: Option<i64>,
}

pub fn write_clean_shutdown(disk: &dyn Disk, dir: &Path, broker_epoch: BrokerEpoch) -> io::Result<()> {
    let content = serde_json::to_vec(&Content { version: 0, broker_epoch: Some(broker_epoch.0) })?;
    write_file_atomically(disk, &dir.join(CLEAN_SHUTDOWN_FILE), &content)
}

/// The marker of the directory `dir`; `None` when there is none. One that cannot be read still counts, without an epoch.
pub fn read_clean_shutdown(disk: &dyn Disk, dir: &Path) -> io::Result<Option<CleanShutdown>> {
    let bytes = match read_file(disk, &dir.join(CLEAN_SHUTDOWN_FILE)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let epoch = serde_json::from_slice::<Content>(&bytes).ok().and_then(|content| content.broker_epoch);
    Ok(Some(CleanShutdown { broker_epoch: epoch.map_or(BrokerEpoch::UNKNOWN, BrokerEpoch) }))
}
