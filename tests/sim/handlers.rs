//! What a broker does for a request about transactions or groups: the handlers' ways through the product, less the frames.
//!
//! Must not know who asks. Invariant: nobody is told that something is done before the product has said so.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::network::{Asking, PeerAsking, PeerTold, Told};
use crate::api::add_partitions_to_txn as add_partitions;
use crate::api::coordination::code_of;
use crate::api::transactional::{Candidate, Transaction, verify_once};
use crate::api::{produce_error, transaction_coordination, write_txn_markers};
use crate::broker::coordinators::{Coordinators, partition_of};
use crate::broker::messages::{Appending, Produced};
use crate::broker::partitions::Partitions;
use crate::broker::producer_ids::ProducerIds;
use crate::broker::transactions::{Inquiry, MarkerWriter, NotPart, TransactionInquiry};
use crate::coordinator::Machine;
use crate::coordinator::group::command::CommitOffsets;
use crate::coordinator::group::{self, Command, Groups};
use crate::coordinator::transaction::Transactions;
use crate::metadata::Image;
use crate::replica::Acks;
use crate::storage::log::Origin;
use crate::types::{ErrorCode, LeaderEpoch, PartitionIndex, TopicIdPartition, TopicPartition};
use crate::wire::messages::WriteTxnMarkersResponse as Written;
use crate::wire::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnResponse, AddPartitionsToTxnResult,
};

/// How long a broker waits for another, and for replicas.
const LIMIT: Duration = Duration::from_millis(1_200);
/// The version in which brokers ask each other.
const OF_BROKERS: i16 = 5;

/// The version of Produce that clients of each generation speak.
fn produce_version(adds: bool) -> i16 {
    if adds { 12 } else { 11 }
}

/// What handlers work with.
#[derive(Clone)]
pub struct Handlers {
    pub partitions: Partitions,
    pub transactions: Coordinators<Transactions>,
    pub groups: Coordinators<Groups>,
    pub inquiry: TransactionInquiry,
    pub markers: MarkerWriter,
    pub producer_ids: ProducerIds,
}

impl Handlers {
    /// Deals with a request of a client.
    pub async fn tell(self, image: Arc<Image>, asking: Asking) -> Told {
        match asking {
            Asking::Transaction { transactional_id, command } => {
                let at = index_of(&image, &self.transactions, &transactional_id);
                let asked =
                    transaction_coordination::ask(&self.transactions, &self.producer_ids, at, command);
                Told::Transaction(asked.await)
            }
            Asking::Group { group, command } => {
                let at = index_of(&image, &self.groups, &group);
                let told = self.ask_group(at, command).await;
                Told::Group(told, self.term_of(&image, at))
            }
            Asking::CommitInTransaction { transaction, adds, commit } => {
                let at = index_of(&image, &self.groups, &commit.group);
                let told = self.commit(&transaction, adds, at, commit).await;
                Told::Group(told, self.term_of(&image, at))
            }
            Asking::Produce { transaction, adds, batch } => {
                Told::Produced(self.produce(&transaction, adds, batch).await)
            }
        }
    }

    async fn ask_group(&self, at: PartitionIndex, command: Command) -> Result<group::Reply, ErrorCode> {
        self.groups.ask(at, command).await.answer().await.map_err(code_of)
    }

    /// The term in which this broker leads the partition of a group's coordinator now.
    fn term_of(&self, image: &Image, at: PartitionIndex) -> LeaderEpoch {
        let topic = image.topics.by_name(self.groups.topic());
        let id = topic.map(|topic| TopicIdPartition { topic_id: topic.id, partition: at });
        let partition = id.and_then(|id| self.partitions.get(&id));
        partition.map_or(LeaderEpoch::UNKNOWN, |partition| partition.leadership().leader_epoch)
    }

    async fn commit(
        &self,
        transaction: &Transaction,
        adds: bool,
        at: PartitionIndex,
        commit: CommitOffsets,
    ) -> Result<group::Reply, ErrorCode> {
        let Transaction { transactional_id, producer } = transaction.clone();
        let mut since = None;
        if !adds {
            let count = Command::CountEnds(producer.id);
            let group::Reply::CountEnds(ended) = self.ask_group(at, count).await? else {
                return Err(ErrorCode::UnknownServerError);
            };
            since = Some(ended);
        }
        let partitions = vec![TopicPartition { topic: self.groups.topic().into(), partition: at }];
        let inquiry = Inquiry { transactional_id, producer, partitions, adds };
        if let Some((_, reason)) = self.inquiry.ask(inquiry, LIMIT).await.into_iter().next() {
            return Err(match reason {
                NotPart::NotAdded => ErrorCode::TransactionAbortable,
                NotPart::Fenced => ErrorCode::InvalidProducerEpoch,
                NotPart::UnknownProducer => ErrorCode::InvalidProducerIdMapping,
                NotPart::Concurrent => ErrorCode::ConcurrentTransactions,
                NotPart::Unanswered => ErrorCode::CoordinatorLoadInProgress,
                NotPart::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
                NotPart::Refused => ErrorCode::InvalidTxnState,
            });
        }
        self.ask_group(at, Command::CommitOffsetsInTransaction { producer, since, commit }).await
    }

    async fn produce(
        &self,
        transaction: &Transaction,
        adds: bool,
        batch: Candidate,
    ) -> Result<Produced, ErrorCode> {
        let parts = (&self.partitions, &self.inquiry);
        let batches = [batch.clone()];
        let verified = verify_once(parts, produce_version(adds), transaction, &batches, LIMIT).await;
        let coordinated =
            verified.into_iter().next().expect("one answer").map_err(|refused| refused.error)?;
        let Candidate { id: partition, records, .. } = batch;
        let appending = vec![Appending { partition, records, coordinated }];
        let limit_ms = LIMIT.as_millis() as i64;
        let appended = self.partitions.append(Some(Acks::All), Origin::Client, limit_ms, appending).await;
        let answer = appended.all().await.pop().expect("one answer");
        answer.map_err(|error| produce_error::classify(&error).0)
    }

    /// Deals with a request of another broker.
    pub async fn tell_peer(self, image: Arc<Image>, asking: PeerAsking) -> PeerTold {
        match asking {
            PeerAsking::Markers(request) => PeerTold::Markers(self.write_markers(&image, request).await),
            PeerAsking::Partitions(request) => {
                let each = request.transactions.iter().map(|transaction| async {
                    let partitions = add_partitions::partitions_of(&transaction.topics);
                    let id = transaction.transactional_id.as_str();
                    let at = index_of(&image, &self.transactions, id);
                    let command = add_partitions::command(OF_BROKERS, transaction, partitions.clone());
                    let ids = &self.producer_ids;
                    let reply = transaction_coordination::ask(&self.transactions, ids, at, command).await;
                    let missing = reply.and_then(|reply| add_partitions::missing(OF_BROKERS, reply));
                    AddPartitionsToTxnResult::default()
                        .with_transactional_id(transaction.transactional_id.clone())
                        .with_topic_results(add_partitions::by_topic(add_partitions::codes(
                            partitions, &missing,
                        )))
                });
                let results = join_all(each).await;
                PeerTold::Partitions(
                    AddPartitionsToTxnResponse::default().with_results_by_transaction(results),
                )
            }
        }
    }

    async fn write_markers(
        &self,
        image: &Image,
        request: crate::wire::messages::WriteTxnMarkersRequest,
    ) -> Written {
        let writes: Vec<_> = request.markers.iter().flat_map(write_txn_markers::writes).collect();
        let writing = self.markers.write(image, &writes, LIMIT.as_millis() as i64).await;
        write_txn_markers::respond(&writes, &writing.answers().await)
    }
}

fn index_of<M: Machine>(image: &Image, coordinators: &Coordinators<M>, key: &str) -> PartitionIndex {
    let topic = image.topics.by_name(coordinators.topic());
    partition_of(key, topic.map_or(1, |topic| topic.partition_count()))
}
