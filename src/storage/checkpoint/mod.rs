//! The small files of a log directory and of its partitions, byte for byte as Kafka writes them. Each is replaced as a
//! whole and atomically. Must not know what is done with what they say.

mod clean_shutdown;
mod epochs;
mod lines;
mod meta_properties;
mod offset_files;
mod offsets;
mod partition_metadata;

use std::io;

pub use clean_shutdown::{CLEAN_SHUTDOWN_FILE, CleanShutdown, read_clean_shutdown, write_clean_shutdown};
pub use epochs::{read_epochs, write_epochs};
pub use meta_properties::{
    META_PROPERTIES_FILE, MetaProperties, is_cluster_id, read_meta_properties, write_meta_properties,
};
pub use offset_files::{Lowered, OffsetFiles, Offsets};
pub use offsets::{OffsetCheckpoint, read_offsets, write_offsets};
pub use partition_metadata::{PARTITION_METADATA_FILE, read_partition_metadata, write_partition_metadata};

/// The error for a file that says what cannot be.
fn malformed(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}
