//! The drivers of coordinators: an actor for each partition of an internal topic that this broker leads. It folds the
//! partition's log into a [`Machine`], gives it commands and time, appends its records, and lets its replies go when they are
//! committed.
//!
//! Must not know what a coordinator decides, nor any error code. Invariants: a machine is the fold of its partition's log up to
//! where it has appended, for an append counts only where the log is expected to end; a reply leaves when everything that was
//! decided before it is committed; whoever asks is answered.
//!
//! In reading order: this file (how requests find the actor), `groups` (their kind), `placement`, `keeper` (which actors there are), `actor`, `load`,
//! `batches` and `shortage`.

mod actor;
mod batches;
pub mod groups;
mod keeper;
mod load;
mod placement;
mod shortage;
pub mod transactions;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, mpsc, oneshot};

use actor::Actor;
pub use actor::Surroundings;
pub use keeper::{Keeper, KeeperParts, Led};
pub use placement::{java_hash, partition_of};

use super::messages::ProduceError;
use super::partitions::Partition;
use crate::coordinator::{Machine, Producer};
use crate::replica::AckError;
use crate::storage::log::AppendError;
use crate::storage::log::producer_state::{MarkerEpoch, ProducerError};
use crate::storage::log::validate::ValidationError;
use crate::types::PartitionIndex;
use crate::wire::compression::Codec;
use crate::wire::control::EndTxnMarker;

/// Requests that may wait for one coordinator; more wait at their connections.
const MAILBOX_CAPACITY: usize = 1024;
/// Logs that are read at a time.
const LOADS_MAX: usize = 4;

/// Why a coordinator has not answered. After all but `Loading` nobody knows whether the request took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoordinatorError {
    #[error("the coordinator is not on this broker")]
    NotHere,
    #[error("the coordinator reads its log")]
    Loading,
    #[error("too few replicas of the coordinator's log are in sync")]
    NotEnoughReplicas,
    #[error("the replicas of the coordinator's log have not acknowledged in time")]
    TimedOut,
    #[error("what the coordinator decided is too large for its log")]
    TooLarge,
    #[error("the producer has a later epoch")]
    ProducerFenced,
    #[error("a later transaction coordinator has written a marker")]
    MarkerFenced,
    #[error("the coordinator's log has refused what the coordinator decided")]
    Failed,
}

impl CoordinatorError {
    /// Whether it says something of the request, and nothing of the coordinator.
    fn is_of_one_request(self) -> bool {
        match self {
            CoordinatorError::TooLarge
            | CoordinatorError::ProducerFenced
            | CoordinatorError::MarkerFenced
            | CoordinatorError::Failed => true,
            CoordinatorError::NotHere
            | CoordinatorError::Loading
            | CoordinatorError::NotEnoughReplicas
            | CoordinatorError::TimedOut => false,
        }
    }

    fn of_append(error: &ProduceError) -> CoordinatorError {
        match error {
            ProduceError::NotEnoughReplicas(_) => CoordinatorError::NotEnoughReplicas,
            ProduceError::NotHosted
            | ProduceError::NotLeader
            | ProduceError::Offline
            | ProduceError::Moved
            | ProduceError::ShuttingDown
            | ProduceError::Append(AppendError::Log(_))
            | ProduceError::Ack(AckError::NotLeader | AckError::NotEnoughReplicasAfterAppend, _) => {
                CoordinatorError::NotHere
            }
            ProduceError::Ack(AckError::TimedOut, _) => CoordinatorError::TimedOut,
            ProduceError::Append(
                AppendError::Validation(ValidationError::TooLarge { .. })
                | AppendError::LargerThanSegment { .. },
            ) => CoordinatorError::TooLarge,
            ProduceError::Append(AppendError::Producer(ProducerError::Fenced { .. })) => {
                CoordinatorError::ProducerFenced
            }
            ProduceError::Append(AppendError::Producer(ProducerError::CoordinatorFenced { .. })) => {
                CoordinatorError::MarkerFenced
            }
            ProduceError::Append(_) => CoordinatorError::Failed,
        }
    }
}

/// Makes the coordinator of a partition, with nothing folded yet.
pub type MakeMachine<M> = Box<dyn Fn(PartitionIndex) -> M + Send + Sync>;
/// Carries out an effect of the coordinator of a partition.
pub type OnEffect<M> = Box<dyn Fn(PartitionIndex, <M as Machine>::Effect) + Send + Sync>;

/// One kind of coordinators.
pub struct Kind<M: Machine> {
    /// The internal topic whose partitions are the coordinators' logs.
    pub topic: &'static str,
    pub make: MakeMachine<M>,
    pub on_effect: OnEffect<M>,
    /// How the log is compressed.
    pub codec: Codec,
    /// How long a reply may wait for its records to be committed.
    pub commit_timeout_ms: i64,
    /// How much of the log is read at a time.
    pub load_buffer_bytes: usize,
}

/// The end of a producer's transaction.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    pub producer: Producer,
    pub marker: EndTxnMarker,
    /// What the marker's epoch must be.
    pub marker_epoch: MarkerEpoch,
}

/// What an actor is told.
enum Input<M: Machine> {
    Command(M::Command, Reply<M::Reply>),
    EndTransaction(Ending, Reply<()>),
}

type Reply<T> = oneshot::Sender<Result<T, CoordinatorError>>;

impl<M: Machine> Input<M> {
    fn refuse(self, error: CoordinatorError) {
        // Nobody listens when the connection has gone away.
        match self {
            Input::Command(_, reply) => drop(reply.send(Err(error))),
            Input::EndTransaction(_, reply) => drop(reply.send(Err(error))),
        }
    }
}

/// The answer of a coordinator, to come.
#[derive(Debug)]
pub struct Pending<T>(oneshot::Receiver<Result<T, CoordinatorError>>);

impl<T> Pending<T> {
    pub async fn answer(self) -> Result<T, CoordinatorError> {
        // An actor that ends has lost its partition.
        self.0.await.unwrap_or(Err(CoordinatorError::NotHere))
    }
}

type Senders<M> = imbl::OrdMap<PartitionIndex, mpsc::Sender<Input<M>>>;

/// The coordinators of one kind on this broker. Cheap to clone.
pub struct Coordinators<M: Machine> {
    inner: Arc<Inner<M>>,
}

struct Inner<M: Machine> {
    kind: Kind<M>,
    actors: ArcSwap<Senders<M>>,
    loads: Semaphore,
}

impl<M: Machine> Clone for Coordinators<M> {
    fn clone(&self) -> Coordinators<M> {
        Coordinators { inner: Arc::clone(&self.inner) }
    }
}

impl<M: Machine> std::fmt::Debug for Coordinators<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coordinators").field("topic", &self.inner.kind.topic).finish_non_exhaustive()
    }
}

impl<M: Machine> Coordinators<M> {
    /// None at first: the [`Keeper`] starts and stops them.
    pub fn new(kind: Kind<M>) -> Coordinators<M> {
        let (actors, loads) = (ArcSwap::default(), Semaphore::new(LOADS_MAX));
        Coordinators { inner: Arc::new(Inner { kind, actors, loads }) }
    }

    /// The internal topic whose partitions are the coordinators' logs.
    pub fn topic(&self) -> &'static str {
        self.inner.kind.topic
    }

    /// The partitions whose coordinators are here.
    pub fn partitions(&self) -> Vec<PartitionIndex> {
        self.inner.actors.load().keys().copied().collect()
    }

    /// Asks the coordinator of a partition. Resolves when it has room for the request, which keeps the order of a connection's
    /// requests.
    pub async fn ask(&self, partition: PartitionIndex, command: M::Command) -> Pending<M::Reply> {
        let (reply, pending) = oneshot::channel();
        self.send(partition, Input::Command(command, reply)).await;
        Pending(pending)
    }

    /// Ends a producer's transaction in a partition: writes the marker to its log and lets the coordinator know.
    pub async fn end_transaction(&self, partition: PartitionIndex, ending: Ending) -> Pending<()> {
        let (reply, pending) = oneshot::channel();
        self.send(partition, Input::EndTransaction(ending, reply)).await;
        Pending(pending)
    }

    async fn send(&self, partition: PartitionIndex, input: Input<M>) {
        let actor = self.inner.actors.load().get(&partition).cloned();
        // Without an actor the input is dropped, and with it the slot for the answer, which answers by itself.
        if let Some(actor) = actor {
            let _ = actor.send(input).await;
        }
    }

    /// Has requests find an actor for a partition that is led here, in the present term. It works while it is polled.
    pub fn begin(
        &self,
        partition: Arc<Partition>,
        surroundings: Surroundings,
    ) -> impl Future<Output = ()> + Send + use<M> {
        let (sender, inbox) = mpsc::channel(MAILBOX_CAPACITY);
        let (index, leader_epoch) = (partition.id.partition, partition.leadership().leader_epoch);
        let actor = Actor::new(self.inner.clone(), partition, leader_epoch, inbox, surroundings);
        self.update(|actors| drop(actors.insert(index, sender)));
        actor.run()
    }

    /// Requests no longer find the actor of a partition.
    pub fn end(&self, index: PartitionIndex) {
        self.update(|actors| drop(actors.remove(&index)));
    }

    /// Replaces the table of actors by what `change` makes of it. Only the keeper calls this, so changes do not race.
    fn update(&self, change: impl FnOnce(&mut Senders<M>)) {
        let mut actors = Senders::clone(&self.inner.actors.load());
        change(&mut actors);
        self.inner.actors.store(Arc::new(actors));
    }
}
