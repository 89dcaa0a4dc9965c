//! How requests find the coordinator of a transaction, the producer ids that it needs, and the codes for what it refuses.

use super::Api;
use super::coordination::code_of;
use crate::broker::coordinators::{Coordinators, partition_of};
use crate::broker::producer_ids::ProducerIds;
use crate::coordinator::transaction::{Command, Refused, Reply, Transactions};
use crate::types::{ErrorCode, PartitionIndex, ProducerId};

impl Api {
    /// The partition of the topic of transactions that a transactional id belongs to.
    pub(super) fn transaction_partition(&self, transactional_id: &str) -> PartitionIndex {
        let image = self.metadata.image();
        let topic = image.topics.by_name(self.broker().transactions.topic());
        // Without the topic there is no coordinator to ask, whatever the number.
        partition_of(transactional_id, topic.map_or(1, |topic| topic.partition_count()))
    }

    /// Asks the coordinator of a transactional id, with a producer id if it turns out to need one.
    pub(super) async fn ask_transaction(
        &self,
        transactional_id: &str,
        command: Command,
    ) -> Result<Reply, ErrorCode> {
        let partition = self.transaction_partition(transactional_id);
        let broker = self.broker();
        ask(&broker.transactions, &broker.producer_ids, partition, command).await
    }

    /// An id that no producer has had.
    pub(super) async fn fresh_producer_id(&self) -> Result<ProducerId, ErrorCode> {
        fresh(&self.broker().producer_ids).await
    }
}

/// Asks the coordinator of a partition of the topic of transactions, with a producer id if it turns out to need one.
pub(crate) async fn ask(
    transactions: &Coordinators<Transactions>,
    producer_ids: &ProducerIds,
    partition: PartitionIndex,
    command: Command,
) -> Result<Reply, ErrorCode> {
    match transactions.ask(partition, command).await.answer().await.map_err(code_of)? {
        Reply::NeedsProducerId(command) => {
            let command = with_id(*command, fresh(producer_ids).await?);
            transactions.ask(partition, command).await.answer().await.map_err(code_of)
        }
        reply => Ok(reply),
    }
}

async fn fresh(producer_ids: &ProducerIds) -> Result<ProducerId, ErrorCode> {
    producer_ids.next().await.map_err(|error| {
        tracing::warn!(%error, "no producer id could be had");
        // Clients try again.
        ErrorCode::CoordinatorLoadInProgress
    })
}

fn with_id(mut command: Command, fresh: ProducerId) -> Command {
    match &mut command {
        Command::InitProducerId(init) => init.fresh = Some(fresh),
        Command::EndTxn(end) => end.fresh = Some(fresh),
        _ => {}
    }
    command
}

/// The code for what a coordinator refuses. PRODUCER_FENCED is not known to old clients.
pub(super) fn refused_code(refused: Refused, knows_fenced: bool) -> ErrorCode {
    match refused {
        Refused::UnknownProducer => ErrorCode::InvalidProducerIdMapping,
        Refused::Fenced if knows_fenced => ErrorCode::ProducerFenced,
        Refused::Fenced => ErrorCode::InvalidProducerEpoch,
        Refused::Concurrent => ErrorCode::ConcurrentTransactions,
        Refused::InvalidState => ErrorCode::InvalidTxnState,
    }
}
