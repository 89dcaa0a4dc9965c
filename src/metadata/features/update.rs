//! The decisions on feature levels: what a new cluster starts with, and UpdateFeatures.

use super::{
    ELIGIBLE_LEADER_REPLICAS_VERSION, FEATURES, Feature, Features, KRAFT_VERSION, METADATA_VERSION,
    MetadataVersion, level_record,
};
use crate::metadata::configs::{ConfigResource, ResourceType, config_record};
use crate::metadata::election::MIN_INSYNC_REPLICAS;
use crate::metadata::record::Record;
use crate::metadata::{Decision, Image, ImageVersion};
use crate::types::NodeId;
use std::sync::Arc;

/// In which direction an update may go (KIP-584).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeType {
    Upgrade,
    SafeDowngrade,
    UnsafeDowngrade,
    Unknown,
}

/// One feature to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureUpdate {
    pub name: Arc<str>,
    pub level: i16,
    pub upgrade_type: UpgradeType,
}

/// Why feature levels stay as they are. One wrong update refuses all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("feature {feature} cannot be set to level {level}: {reason}")]
pub struct UpdateFeaturesError {
    pub feature: Arc<str>,
    pub level: i16,
    pub reason: RefusedBecause,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedBecause {
    #[error("the upgrade type is not known")]
    UnknownUpgradeType,
    #[error("a level is 0 or more")]
    Negative,
    /// Ends as Kafka's: clients' tests compare it.
    #[error("{node} does not support this feature.")]
    NotSupported { node: SupportingNode },
    #[error("{node} only supports levels {min} to {max}")]
    OutOfRange { node: SupportingNode, min: i16, max: i16 },
    #[error("it is a downgrade, which needs the upgrade type safe or unsafe downgrade")]
    DowngradeNotAllowed,
    #[error("it is an upgrade, but a downgrade was asked for")]
    NotADowngrade,
    #[error("going from metadata version {from} to {to} could lose metadata")]
    LosesMetadata { from: MetadataVersion, to: MetadataVersion },
    #[error("it needs {feature} at level {level}")]
    Needs { feature: &'static str, level: i16 },
    #[error("this feature cannot be changed here")]
    Fixed,
}

/// Whose support is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupportingNode {
    Controller(NodeId),
    Broker(NodeId),
}

impl std::fmt::Display for SupportingNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SupportingNode::Controller(id) => write!(f, "controller {id}"),
            SupportingNode::Broker(id) => write!(f, "broker {id}"),
        }
    }
}

/// The records with which a new cluster begins at `version`; `levels` are asked for instead of the defaults, and
/// `min_insync_replicas` is what the node's own settings say.
pub fn bootstrap_records(
    version: MetadataVersion,
    levels: &[(Arc<str>, i16)],
    min_insync_replicas: i32,
) -> Result<Vec<Record>, UpdateFeaturesError> {
    let mut records = level_records(version, levels)?;
    add_min_insync_replicas(&mut records, min_insync_replicas);
    Ok(records)
}

/// Eligible leader replicas need one min.insync.replicas for the whole cluster: a new one begins with it.
pub fn add_min_insync_replicas(records: &mut Vec<Record>, min_insync_replicas: i32) {
    let image = Image::from_snapshot(ImageVersion::default(), records.iter());
    let cluster = ConfigResource::cluster();
    if image.features.elr_is_enabled() && image.configs.value(&cluster, MIN_INSYNC_REPLICAS).is_none() {
        let value = min_insync_replicas.to_string();
        records.push(config_record(&cluster, MIN_INSYNC_REPLICAS, Some(&value)));
    }
}

/// The feature levels of a new cluster at `version`; `levels` are asked for instead of the defaults.
pub fn level_records(
    version: MetadataVersion,
    levels: &[(Arc<str>, i16)],
) -> Result<Vec<Record>, UpdateFeaturesError> {
    let mut features = Features { metadata_version: Some(version), ..Features::default() };
    // The quorum's own version is not in the log.
    for feature in FEATURES.iter().filter(|feature| feature.name != KRAFT_VERSION) {
        let asked = levels.iter().find(|(name, _)| **name == *feature.name).map(|(_, level)| *level);
        let level = asked.unwrap_or_else(|| feature.default_level(version));
        if level != 0 {
            features.finalized.insert(Arc::from(feature.name), level);
        }
    }
    for (name, level) in levels {
        let refused = |reason| UpdateFeaturesError { feature: Arc::clone(name), level: *level, reason };
        let node = SupportingNode::Controller(NodeId::NONE);
        if **name != *METADATA_VERSION {
            let Some(feature) = Feature::named(name) else {
                return Err(refused(RefusedBecause::NotSupported { node }));
            };
            within(*level, node, 0, feature.max_level()).map_err(refused)?;
        }
    }
    for (name, level) in &features.finalized {
        needs_met(name, *level, &features).map_err(|reason| UpdateFeaturesError {
            feature: Arc::clone(name),
            level: *level,
            reason,
        })?;
    }
    let mut records = Vec::new();
    features.to_records(&mut records);
    Ok(records)
}

/// Eligible leader replicas need one min.insync.replicas for all brokers: the cluster gets one if it has none, and
/// single brokers lose theirs.
fn one_min_isr_for_all(image: &Image, min_insync_replicas: i32) -> Vec<Record> {
    let mut records = Vec::new();
    if image.configs.value(&ConfigResource::cluster(), MIN_INSYNC_REPLICAS).is_none() {
        let value = min_insync_replicas.to_string();
        records.push(config_record(&ConfigResource::cluster(), MIN_INSYNC_REPLICAS, Some(&value)));
    }
    let of_one_broker =
        |resource: &ConfigResource| resource.kind == ResourceType::Broker && !resource.name.is_empty();
    let single = image
        .configs
        .iter()
        .filter(|(resource, values)| of_one_broker(resource) && values.contains_key(MIN_INSYNC_REPLICAS));
    records.extend(single.map(|(resource, _)| config_record(resource, MIN_INSYNC_REPLICAS, None)));
    records
}

/// The node that decides, and what it knows beside the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecidingNode {
    pub id: NodeId,
    /// The level of kraft.version, which the quorum keeps.
    pub kraft_version: i16,
    /// What its own settings say.
    pub min_insync_replicas: i32,
}

/// Changes the levels of features, all or none. A higher kraft.version is allowed here, and nothing else.
pub fn update_features(
    image: &Image,
    node: DecidingNode,
    updates: &[FeatureUpdate],
    validate_only: bool,
) -> Decision<Result<(), UpdateFeaturesError>> {
    // A dependency may be met by another update of the same request.
    let mut proposed = image.features.clone();
    for update in updates {
        if *update.name == *METADATA_VERSION {
            proposed.metadata_version = MetadataVersion::from_level(update.level);
        } else {
            proposed.finalized.insert(Arc::clone(&update.name), update.level);
        }
    }
    let mut records = Vec::new();
    let enables_elr =
        |update: &FeatureUpdate| *update.name == *ELIGIBLE_LEADER_REPLICAS_VERSION && update.level > 0;
    if updates.iter().any(enables_elr) {
        records = one_min_isr_for_all(image, node.min_insync_replicas);
    }
    for update in updates {
        match decide_one(image, node, update, &proposed) {
            Ok(record) => records.extend(record),
            Err(reason) => {
                let (feature, level) = (Arc::clone(&update.name), update.level);
                return Decision::reply(Err(UpdateFeaturesError { feature, level, reason }));
            }
        }
    }
    if validate_only {
        records.clear();
    }
    Decision::new(records, Ok(()))
}

fn decide_one(
    image: &Image,
    node: DecidingNode,
    update: &FeatureUpdate,
    proposed: &Features,
) -> Result<Option<Record>, RefusedBecause> {
    if update.upgrade_type == UpgradeType::Unknown {
        return Err(RefusedBecause::UnknownUpgradeType);
    }
    if update.level < 0 {
        return Err(RefusedBecause::Negative);
    }
    supported_everywhere(image, node.id, &update.name, update.level)?;
    let current = match &*update.name {
        KRAFT_VERSION => node.kraft_version,
        name => image.features.level(name),
    };
    if update.level < current && update.upgrade_type == UpgradeType::Upgrade {
        return Err(RefusedBecause::DowngradeNotAllowed);
    }
    if update.level > current && update.upgrade_type != UpgradeType::Upgrade {
        return Err(RefusedBecause::NotADowngrade);
    }
    match &*update.name {
        METADATA_VERSION => {
            let (from, to) = (image.metadata_version(), MetadataVersion(update.level));
            if from.loses_metadata_down_to(to) {
                return Err(RefusedBecause::LosesMetadata { from, to });
            }
        }
        // The quorum keeps it; to change it is the caller's to do.
        KRAFT_VERSION if update.level >= current => return Ok(None),
        KRAFT_VERSION => return Err(RefusedBecause::Fixed),
        name => needs_met(name, update.level, proposed)?,
    }
    Ok(Some(level_record(&update.name, update.level)))
}

/// Every registered node must support a level before it is finalized.
fn supported_everywhere(
    image: &Image,
    controller: NodeId,
    name: &str,
    level: i16,
) -> Result<(), RefusedBecause> {
    let node = SupportingNode::Controller(controller);
    let (min, max) = match Feature::named(name) {
        Some(feature) => (0, feature.max_level()),
        None if name == METADATA_VERSION => (MetadataVersion::MINIMUM.0, MetadataVersion::LATEST.0),
        None => return Err(RefusedBecause::NotSupported { node }),
    };
    within(level, node, min, max)?;
    for broker in image.brokers.iter() {
        let node = SupportingNode::Broker(broker.id);
        match broker.features.get(name) {
            Some(&(min, max)) => within(level, node, min, max)?,
            None if level != 0 => return Err(RefusedBecause::NotSupported { node }),
            None => {}
        }
    }
    for (id, registration) in image.controllers.iter().filter(|(id, _)| *id != controller) {
        let node = SupportingNode::Controller(id);
        match registration.features.iter().find(|feature| &*feature.name == name) {
            Some(feature) => {
                within(level, node, feature.min_supported_version, feature.max_supported_version)?;
            }
            None if level != 0 => return Err(RefusedBecause::NotSupported { node }),
            None => {}
        }
    }
    Ok(())
}

/// Level 0 turns a feature off, which everybody can whose range begins with it.
fn within(level: i16, node: SupportingNode, min: i16, max: i16) -> Result<(), RefusedBecause> {
    if (min..=max).contains(&level) { Ok(()) } else { Err(RefusedBecause::OutOfRange { node, min, max }) }
}

fn needs_met(name: &str, level: i16, features: &Features) -> Result<(), RefusedBecause> {
    let Some((from_level, feature, needed)) = Feature::named(name).and_then(|feature| feature.needs) else {
        return Ok(());
    };
    if level >= from_level && features.level(feature) < needed {
        return Err(RefusedBecause::Needs { feature, level: needed });
    }
    Ok(())
}
