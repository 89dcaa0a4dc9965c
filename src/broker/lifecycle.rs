//! This broker's place in the cluster: it registers, is unfenced once it serves, and leaves when it stops.
//!
//! Must not know partitions. Invariant: a broker is unfenced only under the registration of this process, whose incarnation
//! id no other process has.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::dynamic_config::DynamicConfig;
use crate::controller::{MetadataHandle, ProposeError};
use crate::metadata::brokers::{
    self, BrokerEpochError, Endpoint, Heartbeat, HeartbeatReply, RegisterBrokerError, Registration,
};
use crate::metadata::election::ElectionDefaults;
use crate::metadata::features::supported_features;
use crate::metadata::{Image, ImageVersion, topics};
use crate::types::{BrokerEpoch, DirectoryId, NodeId, TopicIdPartition, Uuid};

/// How long a controlled shutdown may take before the broker goes without.
const LEAVE_LIMIT: Duration = Duration::from_secs(10);

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
    Refused(#[from] RegisterBrokerError),
    #[error(transparent)]
    Epoch(#[from] BrokerEpochError),
}

/// A registered broker.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    metadata: MetadataHandle,
    config: Arc<DynamicConfig>,
    id: NodeId,
    epoch: BrokerEpoch,
    directories: Arc<[(DirectoryId, PathBuf)]>,
    /// Once set, every heartbeat says so: one that does not would bring a broker back that has been let go.
    leaving: Arc<AtomicBool>,
}

impl Lifecycle {
    /// Registers this process. The broker is fenced until [`unfence`](Self::unfence).
    pub async fn register(
        metadata: MetadataHandle,
        config: Arc<DynamicConfig>,
        identity: BrokerIdentity,
    ) -> Result<Lifecycle, LifecycleError> {
        let BrokerIdentity { id, endpoints, rack, directories, previous_epoch } = identity;
        let features: BTreeMap<Arc<str>, (i16, i16)> =
            supported_features().into_iter().map(|(name, min, max)| (Arc::from(name), (min, max))).collect();
        let incarnation = Uuid::new_v4();
        let named: Arc<[(DirectoryId, PathBuf)]> = directories.into();
        let directories = named.iter().map(|(id, _)| *id).collect();
        let registration =
            Registration { id, incarnation, endpoints, features, rack, directories, previous_epoch };
        let settings = config.clone();
        // The quorum is this process, so no other can be alive under this id.
        let decide = move |image: &Image| {
            brokers::register(image, &registration, false, election_defaults(&settings, image))
        };
        let epoch = metadata.run(decide).await??;
        let leaving = Arc::default();
        Ok(Lifecycle { metadata, config, id, epoch, directories: named, leaving })
    }

    /// The epoch of this registration.
    pub fn epoch(&self) -> BrokerEpoch {
        self.epoch
    }

    /// Says that this broker has caught up and serves. Returns the version of the image that has it unfenced.
    pub async fn unfence(&self) -> Result<ImageVersion, LifecycleError> {
        self.heartbeat(Vec::new()).await?;
        Ok(self.metadata.image().version)
    }

    /// Says that log directories have failed.
    pub async fn report_failed_directories(&self, failed: Vec<DirectoryId>) -> Result<(), LifecycleError> {
        self.heartbeat(failed).await.map(drop)
    }

    /// Says which log directories take new partitions, now and whenever that changes. Only once the broker is unfenced.
    pub async fn follow_cordons(self) {
        let mut images = self.metadata.subscribe();
        let mut said: Option<Vec<DirectoryId>> = None;
        loop {
            let image = images.borrow_and_update().clone();
            let now = cordoned(&self.directories, &self.config, &image);
            if said.as_ref() != Some(&now) {
                match self.heartbeat(Vec::new()).await {
                    Ok(_) => said = Some(now),
                    Err(error) => tracing::warn!("Could not tell of cordoned log directories: {error}"),
                }
            }
            if images.changed().await.is_err() {
                return;
            }
        }
    }

    /// Says in which log directories partitions of this broker are.
    pub async fn report_placement(
        &self,
        placed: Vec<(TopicIdPartition, DirectoryId)>,
    ) -> Result<(), LifecycleError> {
        let (id, epoch) = (self.id, self.epoch);
        let config = Arc::clone(&self.config);
        let decide = move |image: &Image| {
            topics::assign_directories(image, id, epoch, &placed, election_defaults(&config, image))
        };
        // A partition that is gone by now needs no directory.
        self.metadata.run(decide).await??;
        Ok(())
    }

    /// Leaves in an orderly way, unless `controlled.shutdown.enable` is off: whoever can takes over the partitions that this broker leads. Returns when the broker may stop; after
    /// a while that is without having been let go.
    pub async fn leave(&self) {
        if !self.config.at(&self.metadata.image()).broker.controlled_shutdown_enable {
            return;
        }
        self.leaving.store(true, Ordering::Release);
        let leaving = async {
            loop {
                let seen = self.metadata.image().version;
                if self.heartbeat(Vec::new()).await?.should_shut_down {
                    return Ok::<_, LifecycleError>(());
                }
                let moved = self.metadata.changed(seen);
                // Others may still have to catch up, which no image tells of.
                let _ = tokio::time::timeout(Duration::from_millis(100), moved).await;
            }
        };
        match tokio::time::timeout(LEAVE_LIMIT, leaving).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("Controlled shutdown failed: {error}"),
            Err(_) => tracing::warn!("Controlled shutdown took too long"),
        }
    }

    async fn heartbeat(
        &self,
        offline_directories: Vec<DirectoryId>,
    ) -> Result<HeartbeatReply, LifecycleError> {
        let (id, epoch, config) = (self.id, self.epoch, self.config.clone());
        let (directories, leaving) = (self.directories.clone(), self.leaving.clone());
        let decide = move |image: &Image| {
            let heartbeat = Heartbeat {
                id,
                epoch,
                metadata_offset: image.version.offset().plus(-1),
                want_fence: false,
                // Read where heartbeats are in one order, so that none from before `leave` is decided after it.
                want_shutdown: leaving.load(Ordering::Acquire),
                offline_directories: offline_directories.clone(),
                cordoned_directories: Some(cordoned(&directories, &config, image)),
            };
            let defaults = election_defaults(&config, image);
            // Every other broker follows the same log; with a quorum of one there is no other.
            brokers::heartbeat(image, &heartbeat, true, defaults)
        };
        Ok(self.metadata.run(decide).await??)
    }
}

/// The directories that take no new partitions, as `cordoned.log.dirs` is set in `image`.
fn cordoned(
    directories: &[(DirectoryId, PathBuf)],
    config: &DynamicConfig,
    image: &Image,
) -> Vec<DirectoryId> {
    let config = config.at(image);
    let cordoned = directories.iter().filter(|(_, path)| config.broker.cordons(path));
    cordoned.map(|(id, _)| *id).collect()
}

/// What elections go by on topics that do not say otherwise.
fn election_defaults(config: &DynamicConfig, image: &Image) -> ElectionDefaults {
    config.at(image).election_defaults()
}
