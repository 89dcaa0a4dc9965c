//! What the active controller does for brokers: it registers them, takes their heartbeats and their changes of in-sync
//! sets, and watches who lives.
//!
//! [`ActiveController`] is a cheap handle, on every member of the quorum; it acts only while this node leads. Decisions are
//! those of `metadata`; what is not in the metadata (contacts, suspicions) is in [`Liveness`], made anew for each term.
//! `judgement` holds the decisions that take it, `watch` is the task that carries out its verdicts, `periodic` gives leadership back to preferred replicas from time to
//! time, `unclean` elects where nobody is left who has everything. Must not know sockets of clients, or error codes.
//!
//! Invariants: what is decided here takes effect in the term in which it was asked for, or never: the next controller may have
//! heard of whom this one condemns. A heartbeat is answered in the term in which it came: the lease that it renews is what the next
//! controller waits for.

pub(crate) mod judgement;
mod office;
mod periodic;
mod presence;
mod unclean;
mod watch;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

pub use office::Office;
pub use presence::Presence;

use crate::controller::deciding::ProposeError;
use crate::controller::proposer::MetadataHandle;
use crate::metadata::alter_partition::{AlterPartitionError, AlteredPartition, ProposedIsr, alter_partition};
use crate::metadata::brokers::{
    self, BrokerEpochError, Heartbeat, HeartbeatReply, RegisterBrokerError, Registration,
};
use crate::metadata::controllers::{self, RegisterControllerError};
use crate::metadata::election::ElectionDefaults;
use crate::metadata::liveness::{Liveness, LivenessConfig};
use crate::metadata::{Decision, Image, ImageVersion};
use crate::types::{BrokerEpoch, MonotonicMs, NodeId, TopicIdPartition};

/// What the configuration says of a controller's duties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DutySettings {
    pub defaults: ElectionDefaults,
    /// `broker.session.timeout.ms`
    pub session_ms: i64,
    /// The listener at which brokers are dialled.
    pub listener: Arc<str>,
    /// `leader.imbalance.check.interval.seconds`, if `auto.leader.rebalance.enable` is on.
    pub rebalance_interval: Option<Duration>,
    /// `unclean.leader.election.interval.ms`
    pub unclean_interval: Duration,
}

/// The settings that go with an image.
pub type SettingsSource = Arc<dyn Fn(&Image) -> DutySettings + Send + Sync>;

/// Why the active controller has not done what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DutyError<E> {
    #[error("this node is not the active controller")]
    NotController,
    #[error(transparent)]
    Metadata(#[from] ProposeError),
    #[error(transparent)]
    Refused(E),
}

/// What became of each proposal of a leader.
pub type AlteredPartitions = Vec<(TopicIdPartition, Result<AlteredPartition, AlterPartitionError>)>;

/// The handle.
#[derive(Clone)]
pub struct ActiveController {
    inner: Arc<Inner>,
}

struct Inner {
    metadata: MetadataHandle,
    office: Office,
    /// The broker in this process.
    me: Option<NodeId>,
    settings: SettingsSource,
    term: Mutex<Option<Term>>,
    /// Something happened that may call for a verdict.
    wake: Notify,
    started: Instant,
}

/// What is known in one term.
struct Term {
    number: u64,
    liveness: Liveness,
    /// The image that `liveness` has taken note of.
    seen: ImageVersion,
}

impl ActiveController {
    /// The handle, and the task that watches brokers and balances leaders while this node leads.
    pub fn new(
        metadata: MetadataHandle,
        office: Office,
        me: Option<NodeId>,
        settings: SettingsSource,
    ) -> (ActiveController, impl Future<Output = ()> + Send) {
        let (term, wake, started) = (Mutex::default(), Notify::new(), Instant::now());
        let inner = Arc::new(Inner { metadata, office, me, settings, term, wake, started });
        let controller = ActiveController { inner };
        let task = {
            let (watched, periodic, unclean) = (controller.clone(), controller.clone(), controller.clone());
            async move {
                tokio::join!(watch::run(watched), periodic::run(periodic), unclean::run(unclean));
            }
        };
        (controller, task)
    }

    /// Whether this node leads the quorum, as far as it knows.
    pub fn is_active(&self) -> bool {
        self.inner.term_number().is_some()
    }

    /// Whether it only believes so, perhaps: the quorum has been silent for long.
    pub fn is_cut_off(&self) -> bool {
        self.inner.metadata.is_cut_off()
    }

    /// Registers a broker process and gives it its epoch.
    pub async fn register_broker(
        &self,
        registration: Registration,
    ) -> Result<BrokerEpoch, DutyError<RegisterBrokerError>> {
        let inner = Arc::clone(&self.inner);
        self.run_in_office(move |image| {
            let defaults = (inner.settings)(image).defaults;
            inner.with_liveness(|liveness, now| {
                judgement::register(image, liveness, &registration, defaults, now)
            })
        })
        .await
    }

    /// Takes a heartbeat, with whom that broker waits for in vain and for how many milliseconds.
    pub async fn heartbeat(
        &self,
        heartbeat: Heartbeat,
        silent: Vec<(NodeId, i64)>,
    ) -> Result<HeartbeatReply, DutyError<BrokerEpochError>> {
        let inner = Arc::clone(&self.inner);
        let term = inner.term_number();
        let image = inner.metadata.image();
        let hear = |liveness: &mut Liveness, now| judgement::hear(&image, liveness, &heartbeat, &silent, now);
        if inner.with_liveness(hear) == Some(true) {
            inner.wake.notify_one();
        }
        let decided = self.run_in_office(move |image| {
            let defaults = (inner.settings)(image).defaults;
            inner.with_liveness(|liveness, now| {
                judgement::heartbeat(image, liveness, &heartbeat, defaults, now)
            })
        });
        let reply = decided.await?;
        // Another controller may have confirmed what this one decided, and knows nothing of the lease. This one was not in office
        // any more when it asked the other.
        if self.inner.term_number() == term { Ok(reply) } else { Err(DutyError::NotController) }
    }

    /// Judges what the broker `leader` wants its partitions to be.
    pub async fn alter_partitions(
        &self,
        leader: NodeId,
        epoch: BrokerEpoch,
        proposals: Vec<ProposedIsr>,
    ) -> Result<AlteredPartitions, DutyError<BrokerEpochError>> {
        let inner = Arc::clone(&self.inner);
        self.run(move |image| {
            alter_partition(image, leader, epoch, &proposals, (inner.settings)(image).defaults)
        })
        .await
    }

    /// Notes where a controller listens and what it supports.
    pub async fn register_controller(
        &self,
        registration: controllers::Registration,
    ) -> Result<(), DutyError<RegisterControllerError>> {
        self.run(move |image| controllers::register(image, &registration)).await
    }

    /// Forgets a broker.
    pub async fn unregister(&self, id: NodeId) -> Result<(), DutyError<BrokerEpochError>> {
        let inner = Arc::clone(&self.inner);
        self.run(move |image| brokers::unregister(image, id, (inner.settings)(image).defaults)).await
    }

    /// A connection over which this broker speaks is open for as long as what this gives is kept.
    pub fn presence(&self, id: NodeId, epoch: BrokerEpoch) -> Option<Presence> {
        Presence::new(&self.inner, id, epoch)
    }

    async fn run<R: Send + 'static, E: Send + 'static>(
        &self,
        mut decide: impl FnMut(&Image) -> Decision<Result<R, E>> + Send + 'static,
    ) -> Result<R, DutyError<E>> {
        self.run_in_office(move |image| Some(decide(image))).await
    }

    /// The same for a decision that may find that this node does not lead any more.
    async fn run_in_office<R: Send + 'static, E: Send + 'static>(
        &self,
        mut decide: impl FnMut(&Image) -> Option<Decision<Result<R, E>>> + Send + 'static,
    ) -> Result<R, DutyError<E>> {
        let Some(term) = self.inner.term_number() else { return Err(DutyError::NotController) };
        let inner = Arc::clone(&self.inner);
        let decided = self.inner.metadata.run_in_term(term, move |image| {
            let is_in_office = inner.term_number() == Some(term);
            match is_in_office.then(|| decide(image)).flatten() {
                Some(decision) => decision.map(|reply| reply.map_err(DutyError::Refused)),
                None => Decision::reply(Err(DutyError::NotController)),
            }
        });
        match decided.await {
            Ok(reply) => reply,
            Err(ProposeError::NotLeader { .. }) => Err(DutyError::NotController),
            Err(error) => Err(DutyError::Metadata(error)),
        }
    }
}

impl std::fmt::Debug for ActiveController {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActiveController").field("term", &self.inner.term_number()).finish_non_exhaustive()
    }
}

impl Inner {
    fn term_number(&self) -> Option<u64> {
        self.office.term()
    }

    fn now(&self) -> MonotonicMs {
        MonotonicMs(i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    /// Looks at the contacts of this term, brought up to the newest image; none while this node does not lead.
    fn with_liveness<R>(&self, act: impl FnOnce(&mut Liveness, MonotonicMs) -> R) -> Option<R> {
        let mut term = self.lock();
        let number = self.term_number();
        let image = self.metadata.image();
        let now = self.now();
        let Some(number) = number else {
            *term = None;
            return None;
        };
        let current = match term.take() {
            Some(mut current) if current.number == number => {
                if current.seen != image.version {
                    current.liveness.configure(self.config(&image));
                    current.liveness.follow(&image.brokers, now);
                    current.seen = image.version;
                }
                current
            }
            _ => {
                self.wake.notify_one();
                let liveness = Liveness::new(self.config(&image), self.me, &image.brokers, now);
                Term { number, liveness, seen: image.version }
            }
        };
        Some(act(&mut term.insert(current).liveness, now))
    }

    fn settings_now(&self) -> DutySettings {
        (self.settings)(&self.metadata.image())
    }

    fn config(&self, image: &Image) -> LivenessConfig {
        LivenessConfig::new((self.settings)(image).session_ms)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Term>> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
