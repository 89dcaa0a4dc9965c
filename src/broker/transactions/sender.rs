//! Carries the markers of transactions that end to the leaders of their partitions, wherever those are and through every
//! change of them, and tells the coordinators what is written. Gets the producer ids that coordinators need by themselves.
//!
//! Decides nothing. Invariants: a task for each transaction that ends, which is over when all its partitions have their
//! marker or are gone, or its coordinator is no longer here; the next coordinator begins anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinSet;

use super::answers::{Written, written};
use super::markers::{MarkerError, MarkerWrite, MarkerWriter};
use super::peers::Peers;
use crate::broker::coordinators::transactions::Effects;
use crate::broker::coordinators::{CoordinatorError, Coordinators};
use crate::broker::messages::ProduceError;
use crate::broker::partitions::{Partitions, Role};
use crate::broker::producer_ids::ProducerIds;
use crate::controller::MetadataHandle;
use crate::coordinator::transaction::{Command, Effect, Markers, Transactions};
use crate::metadata::Image;
use crate::storage::log::AppendError;
use crate::storage::log::producer_state::{MarkerEpoch, ProducerError};
use crate::types::{LeaderEpoch, NodeId, PartitionIndex, TopicIdPartition, TopicPartition};
use crate::wire::control::TxnResult;
use crate::wire::messages::WriteTxnMarkersRequest;
use crate::wire::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};

/// How long one attempt may take.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// The pause after an attempt that left something; each further one is twice as long, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What markers are carried with.
#[derive(Clone, Debug)]
pub struct MarkerSender {
    pub me: NodeId,
    pub metadata: MetadataHandle,
    pub partitions: Partitions,
    pub transactions: Coordinators<Transactions>,
    pub writer: MarkerWriter,
    pub peers: Peers,
    pub producer_ids: ProducerIds,
}

impl MarkerSender {
    /// Does what coordinators want for as long as they live.
    pub async fn run(self, mut effects: Effects) {
        let sender = Arc::new(self);
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                effect = effects.recv() => {
                    let Some((coordinator, effect)) = effect else { return };
                    let sender = Arc::clone(&sender);
                    tasks.spawn(async move { sender.carry_out(coordinator, effect).await });
                }
                Some(_) = tasks.join_next() => {}
            }
        }
    }

    async fn carry_out(&self, coordinator: PartitionIndex, effect: Effect) {
        match effect {
            Effect::Write(markers) => {
                if let Some(epoch) = self.term(coordinator) {
                    self.deliver(coordinator, epoch, markers).await;
                }
            }
            Effect::NeedsProducerId { transactional_id, producer } => match self.producer_ids.next().await {
                Ok(fresh) => {
                    let fresh = Some(fresh);
                    let command = Command::AbortTimedOut { transactional_id, producer, fresh };
                    // Without an answer the coordinator is another one, which finds the same by itself.
                    let _ = self.transactions.ask(coordinator, command).await.answer().await;
                }
                // The coordinator asks again when it looks the next time.
                Err(error) => tracing::warn!(%error, "no producer id could be had"),
            },
        }
    }

    /// The term in which this broker coordinates; `None` when it does not.
    fn term(&self, coordinator: PartitionIndex) -> Option<LeaderEpoch> {
        let image = self.metadata.image();
        let topic = image.topics.by_name(self.transactions.topic())?;
        let id = TopicIdPartition { topic_id: topic.id, partition: coordinator };
        let leadership = self.partitions.get(&id)?.leadership();
        (leadership.role == Role::Leader).then_some(leadership.leader_epoch)
    }

    async fn deliver(&self, coordinator: PartitionIndex, epoch: LeaderEpoch, markers: Markers) {
        let mut missing: BTreeSet<TopicPartition> = markers.partitions.iter().cloned().collect();
        let mut pause = FIRST_PAUSE;
        while self.term(coordinator) == Some(epoch) {
            let image = self.metadata.image();
            let (mut done, by_leader) = sort(&image, &missing);
            let attempts = by_leader
                .iter()
                .map(|(leader, partitions)| self.attempt(&image, *leader, partitions, &markers, epoch));
            for (partition, outcome) in join_all(attempts).await.into_iter().flatten() {
                match outcome {
                    Written::Done => done.push(partition),
                    Written::Later => {}
                    Written::Fenced => {
                        let id = &markers.transactional_id;
                        tracing::warn!("{partition} refuses the marker of transaction {id}: it is fenced");
                        return;
                    }
                }
            }
            if !done.is_empty() {
                for partition in &done {
                    missing.remove(partition);
                }
                let Markers { transactional_id, producer, .. } = markers.clone();
                let command = Command::MarkersWritten { transactional_id, producer, partitions: done };
                if self.transactions.ask(coordinator, command).await.answer().await.is_err() {
                    // Another coordinator, or the same one that begins anew, has them written once more.
                    return;
                }
            }
            if missing.is_empty() {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn attempt(
        &self,
        image: &Image,
        leader: NodeId,
        partitions: &[TopicPartition],
        markers: &Markers,
        epoch: LeaderEpoch,
    ) -> Vec<(TopicPartition, Written)> {
        if leader == self.me {
            let marker_epoch =
                if markers.version.raises_epoch() { MarkerEpoch::Later } else { MarkerEpoch::SameOrLater };
            let write = |partition: &TopicPartition| MarkerWrite {
                partition: partition.clone(),
                producer: markers.producer,
                result: markers.result,
                coordinator_epoch: epoch.0,
                marker_epoch,
            };
            let writes: Vec<_> = partitions.iter().map(write).collect();
            let limit = i64::try_from(WRITE_LIMIT.as_millis()).unwrap_or(i64::MAX);
            let answers = self.writer.write(image, &writes, limit).await;
            return partitions.iter().cloned().zip(answers.iter().map(outcome)).collect();
        }
        match self.peers.call(leader, &request(partitions, markers, epoch), WRITE_LIMIT).await {
            Ok(response) => written(&response),
            Err(error) => {
                tracing::debug!(%leader, "markers are not written yet: {error}");
                Vec::new()
            }
        }
    }
}

/// The partitions that are gone, and the others by their leader. Those without one wait.
fn sort(
    image: &Image,
    missing: &BTreeSet<TopicPartition>,
) -> (Vec<TopicPartition>, BTreeMap<NodeId, Vec<TopicPartition>>) {
    let (mut gone, mut by_leader) = (Vec::new(), BTreeMap::<NodeId, Vec<TopicPartition>>::new());
    for name in missing {
        let topic = image.topics.by_name(&name.topic);
        match topic.and_then(|topic| topic.partition(name.partition)) {
            None => gone.push(name.clone()),
            Some(partition) if partition.leader == NodeId::NONE => {}
            Some(partition) => by_leader.entry(partition.leader).or_default().push(name.clone()),
        }
    }
    (gone, by_leader)
}

fn outcome(answer: &Result<(), MarkerError>) -> Written {
    match answer {
        Ok(()) => Written::Done,
        Err(MarkerError::Append(ProduceError::Append(AppendError::Producer(
            ProducerError::Fenced { .. } | ProducerError::CoordinatorFenced { .. },
        ))))
        | Err(MarkerError::Coordinator(CoordinatorError::ProducerFenced | CoordinatorError::MarkerFenced)) => {
            Written::Fenced
        }
        Err(_) => Written::Later,
    }
}

fn request(partitions: &[TopicPartition], markers: &Markers, epoch: LeaderEpoch) -> WriteTxnMarkersRequest {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for partition in partitions {
        topics.entry(&partition.topic).or_default().push(partition.partition.0);
    }
    let topics = topics.into_iter().map(|(name, partition_indexes)| WritableTxnMarkerTopic {
        name: name.to_owned().into(),
        partition_indexes,
        ..Default::default()
    });
    let marker = WritableTxnMarker {
        producer_id: markers.producer.id.0,
        producer_epoch: markers.producer.epoch.0,
        transaction_result: markers.result == TxnResult::Commit,
        topics: topics.collect(),
        coordinator_epoch: epoch.0,
        transaction_version: i8::try_from(markers.version.0).unwrap_or(0),
        ..Default::default()
    };
    WriteTxnMarkersRequest { markers: vec![marker], ..Default::default() }
}
