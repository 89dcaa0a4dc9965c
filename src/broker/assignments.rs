//! Tells the cluster in which log directories partitions of this broker lie (AssignReplicasToDirs, KIP-858): one report after
//! the other, each until it is heard, so that what was said last is what holds.
//!
//! Must not know why a partition lies where it does. Invariants: reports reach the metadata in the order in which they come,
//! through one queue (`reconciler::Chore`); of a replica that is given up nothing is said here, for only `repairs` may take it
//! back.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::lifecycle::{Lifecycle, LifecycleError};
use crate::types::{DirectoryId, TopicIdPartition};

/// How long to wait before a report is made again that nobody has heard; twice as long each further time.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// In which directory a partition lies.
pub type Placed = (TopicIdPartition, DirectoryId);

/// What became of a report that somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The metadata says so.
    Placed,
    /// The replica is given up, and in no directory.
    GivenUp,
}

/// What is to be told.
#[derive(Debug)]
pub struct Report {
    pub placed: Vec<Placed>,
    heard: Option<oneshot::Sender<Heard>>,
}

impl Report {
    pub fn of(placed: Vec<Placed>) -> Report {
        Report { placed, heard: None }
    }

    /// The receiver breaks when the broker stops before.
    pub fn awaited(placed: Placed) -> (Report, oneshot::Receiver<Heard>) {
        let (heard, is_heard) = oneshot::channel();
        (Report { placed: vec![placed], heard: Some(heard) }, is_heard)
    }
}

/// Makes the reports.
pub async fn run(mut reports: mpsc::UnboundedReceiver<Report>, lifecycle: Lifecycle) {
    while let Some(Report { placed, heard }) = reports.recv().await {
        let mut wait = RETRY_MIN;
        let left_out = loop {
            match lifecycle.report_placement(placed.clone()).await {
                Ok(left_out) => break left_out,
                Err(LifecycleError::ShuttingDown) => return,
                Err(error) => {
                    tracing::warn!("Could not report in which log directories partitions are: {error}");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(RETRY_MAX);
                }
            }
        };
        if let Some(heard) = heard {
            // Who asked may have given up.
            let _ = heard.send(if left_out.is_empty() { Heard::Placed } else { Heard::GivenUp });
        }
    }
}
