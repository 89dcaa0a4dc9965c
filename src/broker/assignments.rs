//! Tells the cluster in which log directories partitions of this broker lie (AssignReplicasToDirs, KIP-858): one report after
//! the other, each until it is heard, so that what was said last is what holds.
//!
//! A handle, cheap to clone; `run` is the task behind it. Must not know why a partition lies where it does. Invariant: reports
//! reach the metadata in the order in which they were made.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::lifecycle::{Lifecycle, LifecycleError};
use crate::types::{DirectoryId, TopicIdPartition};

/// How long to wait before a report is made again that nobody has heard; twice as long each further time.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// In which directory a partition lies.
pub type Placed = (TopicIdPartition, DirectoryId);

#[derive(Debug)]
struct Report {
    placed: Vec<Placed>,
    heard: Option<oneshot::Sender<()>>,
}

#[derive(Clone, Debug)]
pub struct Assignments(mpsc::UnboundedSender<Report>);

/// The reports to be made.
#[derive(Debug)]
pub struct Reports(mpsc::UnboundedReceiver<Report>);

pub fn assignments() -> (Assignments, Reports) {
    let (sender, reports) = mpsc::unbounded_channel();
    (Assignments(sender), Reports(reports))
}

impl Assignments {
    /// Has it told, some time.
    pub fn tell(&self, placed: Vec<Placed>) {
        let _ = self.0.send(Report { placed, heard: None });
    }

    /// Has it told, and waits until the metadata says so. False when the broker stops before.
    pub async fn tell_and_wait(&self, placed: Placed) -> bool {
        let (heard, is_heard) = oneshot::channel();
        let _ = self.0.send(Report { placed: vec![placed], heard: Some(heard) });
        is_heard.await.is_ok()
    }
}

/// Makes the reports.
pub async fn run(mut reports: Reports, lifecycle: Lifecycle) {
    while let Some(Report { placed, heard }) = reports.0.recv().await {
        let mut wait = RETRY_MIN;
        loop {
            match lifecycle.report_placement(placed.clone()).await {
                Ok(()) => break,
                Err(LifecycleError::ShuttingDown) => return,
                Err(error) => {
                    tracing::warn!("Could not report in which log directories partitions are: {error}");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(RETRY_MAX);
                }
            }
        }
        if let Some(heard) = heard {
            // Who asked may have given up.
            let _ = heard.send(());
        }
    }
}
