//! This broker's place in the cluster: it registers, shows by heartbeats that it lives, is unfenced once it serves, and leaves
//! when it stops.
//!
//! A handle, cheap to clone; `beat` is the task behind it, which alone speaks with the active controller, one request at a
//! time: what a heartbeat says is never overtaken by an older one. Must not know partitions. Invariants: a broker is
//! unfenced only under the registration of this process, whose incarnation id no other process has; the lease is renewed by
//! answered heartbeats only.

mod beat;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OnceCell, watch};

use super::controller_channel::ControllerChannel;
use super::dynamic_config::DynamicConfig;
use super::lease::Lease;
use super::peer_silence::PeerSilence;
use super::reconciler::Reconciled;
use super::stall::{DiskWaits, StallLimits};
use crate::controller::{MetadataHandle, ProposeError};
use crate::metadata::brokers::{BrokerEpochError, Endpoint, Registration};
use crate::metadata::features::supported_features;
use crate::metadata::{Image, ImageVersion, topics};
use crate::types::{BrokerEpoch, DirectoryId, NodeId, TopicIdPartition, Uuid};

/// How long a controlled shutdown may take before the broker goes without.
const LEAVE_LIMIT: Duration = Duration::from_secs(30);
/// How long it may take while no controller answers at all.
const LEAVE_UNHEARD_LIMIT: Duration = Duration::from_secs(3);

/// What a broker says of itself when it registers.
#[derive(Clone, Debug)]
pub struct BrokerIdentity {
    pub id: NodeId,
    pub endpoints: Vec<Endpoint>,
    pub rack: Option<Arc<str>>,
    /// Its log directories that are in service.
    pub directories: Vec<(DirectoryId, PathBuf)>,
    /// See [`LogDirs::previous_epoch`](super::log_dirs::LogDirs::previous_epoch).
    pub previous_epoch: BrokerEpoch,
}

/// Why a broker is not part of the cluster.
#[derive(Debug, thiserror::Error)]
pub enum LifecycleError {
    #[error(transparent)]
    Metadata(#[from] ProposeError),
    #[error("the broker cannot register: {0}")]
    Refused(String),
    #[error("the broker could not register within initial.broker.registration.timeout.ms: {0}")]
    NoController(String),
    #[error(transparent)]
    Epoch(#[from] BrokerEpochError),
    #[error("the broker is shutting down")]
    ShuttingDown,
}

/// What the lifecycle works with.
#[derive(Clone, Debug)]
pub struct LifecycleParts {
    pub metadata: MetadataHandle,
    pub config: Arc<DynamicConfig>,
    /// With a connection of its own.
    pub channel: ControllerChannel,
    pub lease: Lease,
    pub silence: PeerSilence,
    /// What this broker has taken in of the metadata.
    pub reconciled: Reconciled,
    /// How long the disk keeps this broker waiting, and what is too long.
    pub waits: DiskWaits,
    pub stall_limits: StallLimits,
    /// Nobody watches this broker, so it speaks only when it has something to say.
    pub is_quiet: bool,
}

/// A registered broker.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    shared: Arc<Shared>,
    left: Arc<OnceCell<()>>,
}

#[derive(Debug)]
struct Shared {
    parts: LifecycleParts,
    identity: BrokerIdentity,
    incarnation: Uuid,
    epoch: AtomicI64,
    wants: Mutex<Wants>,
    /// There is something to say at once.
    wake: Notify,
    heard: watch::Sender<Heard>,
}

/// What the next heartbeat says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wants {
    is_ready: bool,
    is_leaving: bool,
    failed: Vec<DirectoryId>,
    /// Grows with each change.
    generation: u64,
}

/// What the active controller has answered so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Heard {
    /// The newest wants that a heartbeat said and that was answered.
    generation: u64,
    answers: u64,
    should_shut_down: bool,
    /// Why this process can no longer be the broker.
    ousted: Option<String>,
}

impl Lifecycle {
    /// Registers this process, as soon as a controller can be reached. The broker is fenced until
    /// [`unfence`](Self::unfence).
    pub async fn register(
        parts: LifecycleParts,
        identity: BrokerIdentity,
    ) -> Result<(Lifecycle, impl Future<Output = ()> + Send), LifecycleError> {
        let shared = Shared {
            parts,
            identity,
            incarnation: Uuid::new_v4(),
            epoch: AtomicI64::new(BrokerEpoch::UNKNOWN.0),
            wants: Mutex::default(),
            wake: Notify::new(),
            heard: watch::Sender::default(),
        };
        let shared = Arc::new(shared);
        beat::register_first(&shared).await?;
        let lifecycle = Lifecycle { shared: Arc::clone(&shared), left: Arc::default() };
        Ok((lifecycle, beat::run(shared)))
    }

    /// The epoch of this registration.
    pub fn epoch(&self) -> BrokerEpoch {
        self.shared.epoch()
    }

    /// Says that this broker has caught up and serves. Returns the version of the image that has it unfenced.
    pub async fn unfence(&self) -> Result<ImageVersion, LifecycleError> {
        self.shared.say(|wants| wants.is_ready = true).await?;
        let mut images = self.shared.parts.metadata.subscribe();
        let unfenced = images.wait_for(|image| {
            image
                .brokers
                .get(self.shared.identity.id)
                .is_some_and(|broker| broker.incarnation == self.shared.incarnation && !broker.fenced)
        });
        unfenced.await.map(|image| image.version).map_err(|_| LifecycleError::ShuttingDown)
    }

    /// Says that log directories have failed.
    pub async fn report_failed_directories(&self, failed: Vec<DirectoryId>) -> Result<(), LifecycleError> {
        self.shared.say(|wants| wants.failed = failed).await
    }

    /// Says in which log directories partitions of this broker are, or are about to be. Comes with those of which it cannot be
    /// said, for they are given up.
    pub async fn report_placement(
        &self,
        placed: Vec<(TopicIdPartition, DirectoryId)>,
    ) -> Result<Vec<TopicIdPartition>, LifecycleError> {
        let (id, epoch) = (self.shared.identity.id, self.epoch());
        let config = Arc::clone(&self.shared.parts.config);
        // A partition that is gone by now needs no directory.
        let decide = move |image: &Image| {
            topics::place_replicas(image, id, epoch, &placed, config.at(image).election_defaults())
        };
        Ok(self.shared.parts.metadata.run(decide).await??)
    }

    /// Says that replicas that were given up are whole again, in these log directories.
    pub async fn take_back(
        &self,
        rebuilt: Vec<(TopicIdPartition, DirectoryId)>,
    ) -> Result<(), LifecycleError> {
        let (id, epoch) = (self.shared.identity.id, self.epoch());
        let config = Arc::clone(&self.shared.parts.config);
        let decide = move |image: &Image| {
            topics::take_back_replicas(image, id, epoch, &rebuilt, config.at(image).election_defaults())
        };
        Ok(self.shared.parts.metadata.run(decide).await??)
    }

    /// Has the cluster do without replicas of this broker; comes with those that it can do without.
    pub async fn give_up(&self, ids: Vec<TopicIdPartition>) -> Result<Vec<TopicIdPartition>, LifecycleError> {
        let (id, epoch) = (self.shared.identity.id, self.epoch());
        let config = Arc::clone(&self.shared.parts.config);
        let decide = move |image: &Image| {
            topics::give_up_replicas(image, id, epoch, &ids, config.at(image).election_defaults())
        };
        Ok(self.shared.parts.metadata.run(decide).await??)
    }

    /// Resolves, with the reason, when this process can no longer be the broker.
    pub async fn ousted(&self) -> String {
        let mut heard = self.shared.heard.subscribe();
        match heard.wait_for(|heard| heard.ousted.is_some()).await {
            Ok(heard) => heard.ousted.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }

    /// Leaves in an orderly way, unless `controlled.shutdown.enable` is off: whoever can takes over the partitions that this
    /// broker leads. Returns when the broker may stop; after a while that is without having been let go. It is tried once: who
    /// asks again has the same answer.
    pub async fn leave(&self) {
        self.left.get_or_init(|| self.try_to_leave()).await;
    }

    async fn try_to_leave(&self) {
        let shared = &self.shared;
        if !shared.parts.config.at(&shared.parts.metadata.image()).broker.controlled_shutdown_enable {
            return;
        }
        let mut heard = shared.heard.subscribe();
        let mut answers = heard.borrow_and_update().answers;
        shared.change(|wants| wants.is_leaving = true);
        let let_go = async {
            loop {
                let next = heard.wait_for(|heard| {
                    heard.should_shut_down || heard.ousted.is_some() || heard.answers > answers
                });
                match tokio::time::timeout(LEAVE_UNHEARD_LIMIT, next).await {
                    Ok(Ok(heard)) if heard.should_shut_down => return Ok(()),
                    Ok(Ok(heard)) if heard.ousted.is_none() => answers = heard.answers,
                    Ok(_) => return Err("another process is the broker"),
                    Err(_) => return Err("no controller answers"),
                }
            }
        };
        match tokio::time::timeout(LEAVE_LIMIT, let_go).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => tracing::warn!("Controlled shutdown failed: {why}"),
            Err(_) => tracing::warn!("Controlled shutdown took too long"),
        }
    }
}

impl Shared {
    fn epoch(&self) -> BrokerEpoch {
        BrokerEpoch(self.epoch.load(Ordering::Acquire))
    }

    fn registration(&self, previous_epoch: BrokerEpoch) -> Registration {
        let features: BTreeMap<Arc<str>, (i16, i16)> =
            supported_features().into_iter().map(|(name, min, max)| (Arc::from(name), (min, max))).collect();
        let failed = self.wants().failed.clone();
        let directories = self.identity.directories.iter().map(|(id, _)| *id);
        Registration {
            id: self.identity.id,
            incarnation: self.incarnation,
            endpoints: self.identity.endpoints.clone(),
            features,
            rack: self.identity.rack.clone(),
            directories: directories.filter(|id| !failed.contains(id)).collect(),
            previous_epoch,
        }
    }

    /// Changes what heartbeats say, and says it at once. Gives the generation of the change.
    fn change(&self, change: impl FnOnce(&mut Wants)) -> u64 {
        let mut wants = self.wants();
        change(&mut wants);
        wants.generation += 1;
        self.wake.notify_one();
        wants.generation
    }

    /// The same, and waits until the active controller has heard it.
    async fn say(&self, change: impl FnOnce(&mut Wants)) -> Result<(), LifecycleError> {
        let generation = self.change(change);
        let mut heard = self.heard.subscribe();
        let heard = heard.wait_for(|heard| heard.generation >= generation || heard.ousted.is_some()).await;
        match heard.as_ref().map(|heard| heard.ousted.clone()) {
            Ok(None) => Ok(()),
            Ok(Some(why)) => Err(LifecycleError::Refused(why)),
            Err(_) => Err(LifecycleError::ShuttingDown),
        }
    }

    fn wants(&self) -> MutexGuard<'_, Wants> {
        self.wants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
