//! Markers for partitions that this broker leads: appended to their logs, and where a partition is itself the log of a
//! coordinator of groups, by way of that coordinator, which has offsets waiting for them.
//!
//! Must not know who wants them. Invariant: the answer comes when the marker is committed.

use futures_util::future::join_all;

use super::super::clock;
use super::super::coordinators::{CoordinatorError, Coordinators, Ending, Pending};
use super::super::messages::{Appending, ProduceError, Produced};
use super::super::partitions::Partitions;
use super::super::reply::Gathered;
use crate::coordinator::Producer;
use crate::coordinator::group::Groups;
use crate::metadata::Image;
use crate::replica::Acks;
use crate::storage::log::Origin;
use crate::storage::log::producer_state::{Coordinated, MarkerEpoch};
use crate::types::{LeaderEpoch, Offset, TopicIdPartition, TopicPartition};
use crate::wire::control::{EndTxnMarker, TxnResult};

/// One marker for one partition.
#[derive(Clone, Debug)]
pub struct MarkerWrite {
    pub partition: TopicPartition,
    pub producer: Producer,
    pub result: TxnResult,
    pub coordinator_epoch: i32,
    pub marker_epoch: MarkerEpoch,
}

/// Why a marker is not written.
#[derive(Debug, thiserror::Error)]
pub enum MarkerError {
    #[error("the partition is not on this broker")]
    NotHere,
    #[error(transparent)]
    Append(#[from] ProduceError),
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
}

/// Writes markers to what this broker leads. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MarkerWriter {
    pub partitions: Partitions,
    pub groups: Coordinators<Groups>,
}

impl MarkerWriter {
    /// Hands markers to their logs. Resolves when the shards and coordinators have them, which keeps the order in which
    /// they came.
    pub async fn write(&self, image: &Image, writes: &[MarkerWrite], timeout_ms: i64) -> Writing {
        let mut known = Vec::with_capacity(writes.len());
        let (mut appends, mut appended_for, mut of_groups) = (Vec::new(), Vec::new(), Vec::new());
        for (at, write) in writes.iter().enumerate() {
            known.push(None);
            let topic = image.topics.by_name(&write.partition.topic);
            let id = topic
                .map(|topic| TopicIdPartition { topic_id: topic.id, partition: write.partition.partition });
            match id.filter(|id| self.partitions.get(id).is_some()) {
                None => known[at] = Some(Err(MarkerError::NotHere)),
                Some(_) if *write.partition.topic == *self.groups.topic() => {
                    of_groups.push((at, self.end_offsets(write).await));
                }
                Some(id) => {
                    appended_for.push(at);
                    appends.push(appending(id, write));
                }
            }
        }
        let appended =
            self.partitions.append(Some(Acks::All), Origin::Coordinator, timeout_ms, appends).await;
        Writing { known, of_groups, appended_for, appended }
    }

    async fn end_offsets(&self, write: &MarkerWrite) -> Pending<()> {
        let MarkerWrite { producer, marker_epoch, .. } = *write;
        let ending = Ending { producer, marker: marker(write), marker_epoch };
        self.groups.end_transaction(write.partition.partition, ending).await
    }
}

/// Markers that are being written.
pub struct Writing {
    /// The answers that there are already, in the order of the markers.
    known: Vec<Option<Result<(), MarkerError>>>,
    of_groups: Vec<(usize, Pending<()>)>,
    appended_for: Vec<usize>,
    appended: Gathered<Result<Produced, ProduceError>>,
}

impl Writing {
    /// One answer for each marker, in their order, once they are committed.
    pub async fn answers(self) -> Vec<Result<(), MarkerError>> {
        let Writing { mut known, of_groups, appended_for, appended } = self;
        let by_groups = join_all(of_groups.into_iter().map(|(at, pending)| async move {
            (at, pending.answer().await.map_err(MarkerError::Coordinator))
        }));
        let (by_groups, by_logs) = tokio::join!(by_groups, appended.all());
        for (at, answer) in by_groups {
            known[at] = Some(answer);
        }
        for (at, answer) in appended_for.into_iter().zip(by_logs) {
            known[at] = Some(answer.map(|_| ()).map_err(MarkerError::Append));
        }
        // What shards drop answers by itself, so nothing is missing but while the broker stops.
        let lost = || Err(MarkerError::Append(ProduceError::ShuttingDown));
        known.into_iter().map(|answer| answer.unwrap_or_else(lost)).collect()
    }
}

fn marker(write: &MarkerWrite) -> EndTxnMarker {
    EndTxnMarker {
        result: write.result,
        coordinator_epoch: write.coordinator_epoch,
        timestamp: clock::wall(),
    }
}

fn appending(partition: TopicIdPartition, write: &MarkerWrite) -> Appending {
    let Producer { id, epoch } = write.producer;
    let records = marker(write).batch(id, epoch, Offset::ZERO, LeaderEpoch::UNKNOWN);
    let coordinated = Coordinated { marker_epoch: write.marker_epoch, ..Coordinated::default() };
    Appending { partition, records, coordinated }
}
