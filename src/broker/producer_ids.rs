//! Gives out producer ids from blocks that the controller allots to this broker.
//!
//! Must not know producers. Invariant: no id is given out twice; what is left of a block when the broker stops is lost.

use std::ops::Range;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::controller::{MetadataHandle, ProposeError};
use crate::metadata::producer_ids::{AllocateProducerIdsError, allocate};
use crate::types::{BrokerEpoch, NodeId, ProducerId};

/// Why there is no id.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProducerIdError {
    #[error(transparent)]
    Metadata(#[from] ProposeError),
    #[error(transparent)]
    Refused(#[from] AllocateProducerIdsError),
    #[error("the broker is shutting down")]
    ShuttingDown,
}

pub(crate) type Answer = oneshot::Sender<Result<ProducerId, ProducerIdError>>;

/// The handle; cheap to clone.
#[derive(Clone, Debug)]
pub struct ProducerIds(mpsc::Sender<Answer>);

impl ProducerIds {
    /// Ids from somewhere else.
    #[cfg(test)]
    pub(crate) fn asked(ask: mpsc::Sender<Answer>) -> ProducerIds {
        ProducerIds(ask)
    }

    /// The handle, and the task behind it, which ends with the last handle. `epoch` tells under which registration the broker
    /// is now.
    pub fn new(
        metadata: MetadataHandle,
        broker: NodeId,
        epoch: Arc<dyn Fn() -> BrokerEpoch + Send + Sync>,
    ) -> (ProducerIds, impl Future<Output = ()> + Send) {
        let (ask, asked) = mpsc::channel(64);
        (ProducerIds(ask), give_out(metadata, broker, epoch, asked))
    }

    /// An id that nobody has had.
    pub async fn next(&self) -> Result<ProducerId, ProducerIdError> {
        let (answer, answered) = oneshot::channel();
        self.0.send(answer).await.map_err(|_| ProducerIdError::ShuttingDown)?;
        answered.await.map_err(|_| ProducerIdError::ShuttingDown)?
    }
}

async fn give_out(
    metadata: MetadataHandle,
    broker: NodeId,
    epoch: Arc<dyn Fn() -> BrokerEpoch + Send + Sync>,
    mut asked: mpsc::Receiver<Answer>,
) {
    let mut block: Range<i64> = 0..0;
    while let Some(answer) = asked.recv().await {
        let id = match block.next() {
            Some(id) => Ok(ProducerId(id)),
            None => match new_block(&metadata, broker, epoch()).await {
                Ok(new) => {
                    block = new;
                    block.next().map(ProducerId).ok_or(AllocateProducerIdsError::Exhausted.into())
                }
                Err(error) => Err(error),
            },
        };
        // Nobody listens when the connection has gone away; the id is lost then.
        let _ = answer.send(id);
    }
}

async fn new_block(
    metadata: &MetadataHandle,
    broker: NodeId,
    epoch: BrokerEpoch,
) -> Result<Range<i64>, ProducerIdError> {
    let block = metadata.run(move |image| allocate(image, broker, epoch)).await??;
    Ok(block.first.0..block.first.0 + i64::from(block.size))
}
