//! Blocks of producer ids: which ids are given away, and the decision to give a broker the next block. No id is ever
//! given twice.

use super::record::Record;
use super::{Decision, Image};
use crate::types::{BrokerEpoch, NodeId, ProducerId};
use crate::wire::messages::metadata::ProducerIdsRecord;

/// How many ids a block has.
pub const BLOCK_SIZE: i32 = 1000;

/// The first id that nobody has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProducerIds {
    /// The last block given, as its record says it; none when no block was given.
    last: Option<(NodeId, BrokerEpoch, ProducerId)>,
}

impl ProducerIds {
    /// The first id of the next block.
    pub fn next(&self) -> ProducerId {
        self.last.map_or(ProducerId(0), |(_, _, next)| next)
    }

    pub(super) fn apply(&mut self, record: &ProducerIdsRecord) {
        let next = ProducerId(record.next_producer_id);
        assert!(next >= self.next(), "producer id {next} was given away before");
        self.last = Some((NodeId(record.broker_id), BrokerEpoch(record.broker_epoch), next));
    }

    pub(super) fn to_records(self, records: &mut Vec<Record>) {
        records.extend(self.last.map(|(broker, epoch, next)| record(broker, epoch, next)));
    }
}

fn record(broker: NodeId, epoch: BrokerEpoch, next: ProducerId) -> Record {
    ProducerIdsRecord {
        broker_id: broker.0,
        broker_epoch: epoch.0,
        next_producer_id: next.0,
        ..ProducerIdsRecord::default()
    }
    .into()
}

/// Ids that belong to one broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerIdBlock {
    pub first: ProducerId,
    pub size: i32,
}

/// Why a broker gets no block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocateProducerIdsError {
    #[error("broker {0} is not registered")]
    BrokerNotRegistered(NodeId),
    #[error("broker {broker} has epoch {current}, not {given}")]
    StaleBrokerEpoch { broker: NodeId, given: BrokerEpoch, current: BrokerEpoch },
    #[error("all producer ids are given away")]
    Exhausted,
}

/// Gives `broker` the next block.
pub fn allocate(
    image: &Image,
    broker: NodeId,
    epoch: BrokerEpoch,
) -> Decision<Result<ProducerIdBlock, AllocateProducerIdsError>> {
    let Some(registration) = image.brokers.get(broker) else {
        return Decision::reply(Err(AllocateProducerIdsError::BrokerNotRegistered(broker)));
    };
    if registration.epoch != epoch {
        let current = registration.epoch;
        return Decision::reply(Err(AllocateProducerIdsError::StaleBrokerEpoch {
            broker,
            given: epoch,
            current,
        }));
    }
    let first = image.producer_ids.next();
    let Some(next) = first.0.checked_add(i64::from(BLOCK_SIZE)) else {
        return Decision::reply(Err(AllocateProducerIdsError::Exhausted));
    };
    let block = ProducerIdBlock { first, size: BLOCK_SIZE };
    Decision::new(vec![record(broker, epoch, ProducerId(next))], Ok(block))
}
