//! Layer 2: partition logs in Kafka's on-disk formats. Synchronous; files are touched only through `disk::Disk`, time and
//! random ids come as arguments. Nothing here knows topics' configuration, replication or the network.
//!
//! In reading order: `disk` (the seam to the operating system), its simulated twin `sim_disk` and `watched_disk`, which tells
//! of reads that fail, `checkpoint` (the small text files), `log` (one partition), `log_dir` (a directory of partitions).

pub mod disk;
pub mod sim_disk;
pub mod watched_disk;
#[cfg(test)]
mod disk_conformance;
pub mod checkpoint;
mod foreign;
pub mod log;
pub mod log_dir;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use foreign::Foreign;

/// Locks a mutex whose data is valid after every statement, so that a panic elsewhere does not make it unusable.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
