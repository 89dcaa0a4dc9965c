//! Looks now and then for segments that their topics keep no longer, and has the shards delete them.
//!
//! One partition after the other and a few segments at a time, so that no shard is held up; what must be read to tell is read
//! here. Must not know what makes a segment old. Invariant: a partition with nothing to delete costs its shard nothing.

use std::io;
use std::sync::mpsc;
use std::time::Duration;

use super::clock;
use super::partitions::{Partition, Partitions};
use crate::storage::log::LogConfig;

/// Keeps the thread going; it ends when this is dropped.
#[derive(Debug)]
pub struct Retention {
    _stop: mpsc::Sender<()>,
}

/// When retention looks.
#[derive(Clone, Copy, Debug)]
pub struct RetentionTimes {
    /// `log.initial.task.delay.ms`
    pub first_ms: i64,
    /// `log.retention.check.interval.ms`
    pub interval_ms: i64,
}

/// Starts the thread that looks after all partitions.
pub fn spawn(partitions: Partitions, times: RetentionTimes) -> io::Result<Retention> {
    let (stop, stopped) = mpsc::channel::<()>();
    let is_over = move |wait_ms: i64| {
        let wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0));
        !matches!(stopped.recv_timeout(wait), Err(mpsc::RecvTimeoutError::Timeout))
    };
    std::thread::Builder::new().name("retention".to_owned()).spawn(move || {
        let mut wait_ms = times.first_ms;
        while !is_over(wait_ms) {
            run(&partitions, |_| true, || is_over(0));
            wait_ms = times.interval_ms.max(1);
        }
    })?;
    Ok(Retention { _stop: stop })
}

/// Goes once through the partitions whose settings are `wanted`, until `is_over`. Blocks on shards and on the disk.
pub(super) fn run(partitions: &Partitions, wanted: impl Fn(&LogConfig) -> bool, is_over: impl Fn() -> bool) {
    for (id, partition) in &partitions.all() {
        let concerns = wanted(&partition.log_config()) && partition.directory().is_online();
        if !concerns || !is_due(partition) {
            continue;
        }
        // A shard that has ended drops the question.
        while partitions.retain(*id).blocking_recv().unwrap_or(false) {
            if is_over() {
                return;
            }
        }
        if is_over() {
            return;
        }
    }
}

fn is_due(partition: &Partition) -> bool {
    match partition.view().overdue(&partition.log_config(), clock::wall()) {
        Ok(count) => count > 0,
        Err(error) => {
            tracing::warn!(partition = %partition.name, "cannot tell which segments are old: {error}");
            false
        }
    }
}
