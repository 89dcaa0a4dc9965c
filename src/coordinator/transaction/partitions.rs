//! Which partitions a transaction has: clients add those that they are going to write to, or the brokers that are written to
//! do it for them (KIP-890), or ask whether it was done.
//!
//! Invariant: a partition is in the record before anybody hears that it is in the transaction.

use super::state::{State, Transaction, TransactionVersion};
use super::{Context, Out, Producer, Refused, Transactions};
use crate::types::TopicPartition;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddPartitions {
    pub transactional_id: String,
    pub producer: Producer,
    pub partitions: Vec<TopicPartition>,
    /// What the client speaks.
    pub client_version: TransactionVersion,
}

/// Are these partitions in the transaction?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verify {
    pub transactional_id: String,
    pub producer: Producer,
    pub partitions: Vec<TopicPartition>,
}

impl Transactions {
    pub(super) fn add_partitions(
        &mut self,
        context: &Context<'_>,
        add: AddPartitions,
        out: &mut Out,
    ) -> Result<(), Refused> {
        let current = self.transactions.get(&add.transactional_id).ok_or(Refused::UnknownProducer)?;
        // First of all, for the producer may already be the one that comes after.
        if current.state.ending().is_some() {
            return Err(Refused::Concurrent);
        }
        check_producer(current, add.producer)?;
        let has_all = add.partitions.iter().all(|partition| current.partitions.contains(partition));
        if current.state == State::Ongoing && has_all {
            return Ok(());
        }
        let next = current.with_partitions(add.partitions, add.client_version, context.now.wall);
        self.put(context, &add.transactional_id, next, out);
        Ok(())
    }

    /// Those of the partitions that are not in the transaction.
    pub(super) fn verify(&self, verify: &Verify) -> Result<Vec<TopicPartition>, Refused> {
        let current = self.transactions.get(&verify.transactional_id).ok_or(Refused::UnknownProducer)?;
        check_producer(current, verify.producer)?;
        if current.state.ending().is_some() {
            return Err(Refused::Concurrent);
        }
        let missing = verify.partitions.iter().filter(|partition| !current.partitions.contains(partition));
        Ok(missing.cloned().collect())
    }
}

fn check_producer(current: &Transaction, producer: Producer) -> Result<(), Refused> {
    if current.producer_id != producer.id {
        return Err(Refused::UnknownProducer);
    }
    if current.epoch != producer.epoch {
        return Err(Refused::Fenced);
    }
    Ok(())
}
