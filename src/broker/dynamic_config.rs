//! This broker's configuration as the metadata has it at one moment: its own file under the cluster's defaults and what was
//! set for this broker.
//!
//! Pulled, not pushed: whoever holds an image asks for the configuration that goes with it, so a change is in force for
//! every request that sees it. Who sleeps is told that there is something to look at (`on_change`). Invariant: the layers are
//! computed again only when their part of the metadata changed.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::config::{BrokerConfig, Layers, Texts};
use crate::metadata::Image;
use crate::metadata::configs::{ConfigResource, ConfigValues, ResourceType};
use crate::metadata::election::ElectionDefaults;
use crate::types::NodeId;

/// The configuration at one moment.
#[derive(Debug)]
pub struct Effective {
    pub layers: Layers,
    pub broker: BrokerConfig,
    cluster: ConfigValues,
    own: ConfigValues,
}

impl Effective {
    /// What elections go by on topics that do not say otherwise.
    pub fn election_defaults(&self) -> ElectionDefaults {
        let topic = self.layers.topic_config(&Texts::new());
        ElectionDefaults {
            min_insync_replicas: topic.min_insync_replicas,
            unclean_leader_election: topic.unclean_leader_election_enable,
        }
    }
}

#[derive(Debug)]
pub struct DynamicConfig {
    own: ConfigResource,
    current: ArcSwap<Effective>,
    hearers: Hearers,
}

/// Who is told of changes.
#[derive(Default)]
struct Hearers(Mutex<Vec<Box<dyn Fn() + Send + Sync>>>);

impl fmt::Debug for Hearers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hearers").finish_non_exhaustive()
    }
}

impl DynamicConfig {
    /// `layers` are those of the node's own sources.
    pub fn new(node: NodeId, layers: Layers) -> DynamicConfig {
        let broker = layers.broker_config();
        let (cluster, own) = (ConfigValues::default(), ConfigValues::default());
        DynamicConfig {
            own: ConfigResource::new(ResourceType::Broker, node.to_string()),
            current: ArcSwap::from_pointee(Effective { layers, broker, cluster, own }),
            hearers: Hearers::default(),
        }
    }

    /// Has `hear` called after each change, by whoever saw it first, who does not wait. For those who sleep for long.
    pub fn on_change(&self, hear: impl Fn() + Send + Sync + 'static) {
        self.hearers.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(hear));
    }

    /// What was in force when somebody last looked at the metadata.
    pub fn latest(&self) -> Arc<Effective> {
        self.current.load_full()
    }

    /// What is in force with `image`.
    pub fn at(&self, image: &Image) -> Arc<Effective> {
        let current = self.current.load_full();
        let cluster = image.configs.get(&ConfigResource::cluster()).cloned().unwrap_or_default();
        let own = image.configs.get(&self.own).cloned().unwrap_or_default();
        if current.cluster == cluster && current.own == own {
            return current;
        }
        let layers = current.layers.with_dynamic(&texts(&cluster), &texts(&own));
        let broker = layers.broker_config();
        let changed = Arc::new(Effective { layers, broker, cluster, own });
        self.current.store(Arc::clone(&changed));
        for hear in self.hearers.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            hear();
        }
        changed
    }
}

/// Values of the metadata in the form in which the configuration takes them.
pub fn texts(values: &ConfigValues) -> Texts {
    values.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

/// What is set on a resource.
pub fn overrides(image: &Image, resource: &ConfigResource) -> Texts {
    image.configs.get(resource).map(texts).unwrap_or_default()
}
