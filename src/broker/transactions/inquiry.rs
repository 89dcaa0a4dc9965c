//! The question to a transaction's coordinator before it begins in a partition here: is the partition part of it, or, from
//! clients that leave that to the brokers, make it part of it (KIP-890).
//!
//! Must not know produce requests or error codes. Invariant: every partition that was asked for is in the answer as part of
//! the transaction, or has a reason why not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::answers;
use super::peers::Peers;
use crate::broker::coordinators::{Coordinators, partition_of};
use crate::coordinator::Producer;
use crate::coordinator::transaction::state::TransactionVersion;
use crate::coordinator::transaction::{AddPartitions, Command, Refused, Reply, Transactions, Verify};
use crate::metadata::Image;
use crate::types::{NodeId, PartitionIndex, TopicPartition};
use crate::wire::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use crate::wire::messages::{StrBytes, TopicName, TransactionalId};

/// What brokers speak that add partitions for their clients.
const ADDS_PARTITIONS: TransactionVersion = TransactionVersion(2);

/// A question about one transaction.
#[derive(Clone, Debug)]
pub struct Inquiry {
    pub transactional_id: String,
    pub producer: Producer,
    pub partitions: Vec<TopicPartition>,
    /// The partitions are to be added, not only looked for.
    pub adds: bool,
}

/// Why a partition is not part of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPart {
    #[error("the partition was not added to the transaction")]
    NotAdded,
    #[error("the producer has been fenced")]
    Fenced,
    #[error("the transactional id is not known, or has another producer id")]
    UnknownProducer,
    #[error("the transaction before has not ended yet")]
    Concurrent,
    #[error("the coordinator of the transaction could not be asked")]
    Unanswered,
    #[error("the coordinator of the transaction does not know the partition")]
    UnknownPartition,
    #[error("the coordinator of the transaction refuses")]
    Refused,
}

impl From<Refused> for NotPart {
    fn from(refused: Refused) -> NotPart {
        match refused {
            Refused::UnknownProducer => NotPart::UnknownProducer,
            Refused::Fenced => NotPart::Fenced,
            Refused::Concurrent => NotPart::Concurrent,
            Refused::InvalidState => NotPart::Refused,
        }
    }
}

/// Where a transaction's coordinator is.
struct Place {
    partition: PartitionIndex,
    broker: NodeId,
}

/// Asks coordinators, here and elsewhere. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TransactionInquiry {
    pub me: NodeId,
    pub images: watch::Receiver<Arc<Image>>,
    pub transactions: Coordinators<Transactions>,
    pub peers: Peers,
}

impl TransactionInquiry {
    /// The partitions that are not part of the transaction, and why.
    pub async fn ask(&self, inquiry: Inquiry, limit: Duration) -> Vec<(TopicPartition, NotPart)> {
        let partitions = inquiry.partitions.clone();
        let answer = match self.place(&inquiry.transactional_id) {
            Some(Place { partition, broker }) if broker == self.me => self.ask_here(partition, inquiry).await,
            Some(Place { broker, .. }) => self.ask_there(broker, inquiry, limit).await,
            None => Err(NotPart::Unanswered),
        };
        answer.unwrap_or_else(|reason| partitions.into_iter().map(|partition| (partition, reason)).collect())
    }

    fn place(&self, transactional_id: &str) -> Option<Place> {
        let image = self.images.borrow().clone();
        let topic = image.topics.by_name(self.transactions.topic())?;
        let partition = partition_of(transactional_id, topic.partition_count());
        let broker = topic.partition(partition)?.leader;
        (broker != NodeId::NONE).then_some(Place { partition, broker })
    }

    async fn ask_here(
        &self,
        coordinator: PartitionIndex,
        inquiry: Inquiry,
    ) -> Result<Vec<(TopicPartition, NotPart)>, NotPart> {
        let Inquiry { transactional_id, producer, partitions, adds } = inquiry;
        let command = if adds {
            let client_version = ADDS_PARTITIONS;
            Command::AddPartitions(AddPartitions { transactional_id, producer, partitions, client_version })
        } else {
            Command::Verify(Verify { transactional_id, producer, partitions })
        };
        let pending = self.transactions.ask(coordinator, command).await;
        match pending.answer().await {
            Ok(Reply::AddPartitions(added)) => Ok(added.map(|()| Vec::new())?),
            Ok(Reply::Verify(missing)) => {
                Ok(missing?.into_iter().map(|partition| (partition, NotPart::NotAdded)).collect())
            }
            Ok(_) => Err(NotPart::Refused),
            Err(_) => Err(NotPart::Unanswered),
        }
    }

    async fn ask_there(
        &self,
        broker: NodeId,
        inquiry: Inquiry,
        limit: Duration,
    ) -> Result<Vec<(TopicPartition, NotPart)>, NotPart> {
        match self.peers.call(broker, request(&inquiry), limit).await {
            Ok(response) => answers::not_part(&response),
            Err(error) => {
                tracing::debug!(%broker, "cannot ask for a transaction: {error}");
                Err(NotPart::Unanswered)
            }
        }
    }
}

fn request(inquiry: &Inquiry) -> AddPartitionsToTxnRequest {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for partition in &inquiry.partitions {
        topics.entry(&partition.topic).or_default().push(partition.partition.0);
    }
    let topics = topics.into_iter().map(|(name, partitions)| {
        let name = TopicName(StrBytes::from_string(name.to_owned()));
        AddPartitionsToTxnTopic::default().with_name(name).with_partitions(partitions)
    });
    let id = TransactionalId(StrBytes::from_string(inquiry.transactional_id.clone()));
    let transaction = AddPartitionsToTxnTransaction::default()
        .with_transactional_id(id)
        .with_producer_id(inquiry.producer.id.0.into())
        .with_producer_epoch(inquiry.producer.epoch.0)
        .with_verify_only(!inquiry.adds)
        .with_topics(topics.collect());
    AddPartitionsToTxnRequest::default().with_transactions(vec![transaction])
}
