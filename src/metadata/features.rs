//! Feature levels: what this build supports (one table), what the cluster has finalized, and the decisions that change
//! it. The level of `metadata.version` says which records and fields may be written.

mod update;

pub use update::{
    DecidingNode, FeatureUpdate, RefusedBecause, SupportingNode, UpdateFeaturesError, UpgradeType,
    add_min_insync_replicas, bootstrap_records, level_records, update_features,
};

use super::record::Record;
use crate::wire::messages::StrBytes;
use crate::wire::messages::metadata::FeatureLevelRecord;
use imbl::OrdMap;
use std::fmt;
use std::sync::Arc;

pub const METADATA_VERSION: &str = "metadata.version";
pub const KRAFT_VERSION: &str = "kraft.version";
pub const TRANSACTION_VERSION: &str = "transaction.version";
pub const GROUP_VERSION: &str = "group.version";
pub const ELIGIBLE_LEADER_REPLICAS_VERSION: &str = "eligible.leader.replicas.version";
pub const SHARE_VERSION: &str = "share.version";
pub const STREAMS_VERSION: &str = "streams.version";

/// The level of `metadata.version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MetadataVersion(i16);

/// Every metadata version: level, name, and whether it changed what the log may hold, so that going back below it
/// could lose something.
const METADATA_VERSIONS: &[(i16, &str, bool)] = &[
    (7, "3.3-IV3", true),
    (8, "3.4-IV0", true),
    (9, "3.5-IV0", false),
    (10, "3.5-IV1", false),
    (11, "3.5-IV2", true),
    (12, "3.6-IV0", false),
    (13, "3.6-IV1", true),
    (14, "3.6-IV2", true),
    (15, "3.7-IV0", true),
    (16, "3.7-IV1", false),
    (17, "3.7-IV2", true),
    (18, "3.7-IV3", false),
    (19, "3.7-IV4", false),
    (20, "3.8-IV0", false),
    (21, "3.9-IV0", false),
    (22, "4.0-IV0", false),
    (23, "4.0-IV1", true),
    (24, "4.0-IV2", false),
    (25, "4.0-IV3", false),
    (26, "4.1-IV0", false),
    (27, "4.1-IV1", false),
    (28, "4.2-IV0", false),
    (29, "4.2-IV1", false),
    (30, "4.3-IV0", true),
    (31, "4.4-IV0", false),
    (32, "4.4-IV1", true),
    (33, "4.4-IV2", true),
];

impl MetadataVersion {
    pub const V3_4_IV0: MetadataVersion = MetadataVersion(8);
    pub const V3_6_IV0: MetadataVersion = MetadataVersion(12);
    pub const V3_7_IV0: MetadataVersion = MetadataVersion(15);
    pub const V3_7_IV2: MetadataVersion = MetadataVersion(17);
    pub const V3_9_IV0: MetadataVersion = MetadataVersion(21);
    pub const V4_0_IV0: MetadataVersion = MetadataVersion(22);
    pub const V4_0_IV1: MetadataVersion = MetadataVersion(23);
    pub const V4_0_IV2: MetadataVersion = MetadataVersion(24);
    pub const V4_1_IV0: MetadataVersion = MetadataVersion(26);
    pub const V4_2_IV0: MetadataVersion = MetadataVersion(28);
    pub const V4_2_IV1: MetadataVersion = MetadataVersion(29);
    pub const V4_3_IV0: MetadataVersion = MetadataVersion(30);
    pub const V4_4_IV0: MetadataVersion = MetadataVersion(31);
    pub const V4_4_IV2: MetadataVersion = MetadataVersion(33);

    /// The oldest that is supported.
    pub const MINIMUM: MetadataVersion = MetadataVersion(7);
    /// What a new cluster gets, and the newest that is supported.
    pub const LATEST: MetadataVersion = MetadataVersion::V4_4_IV2;

    /// The version with this level, if there is one.
    pub fn from_level(level: i16) -> Option<MetadataVersion> {
        METADATA_VERSIONS.iter().any(|row| row.0 == level).then_some(MetadataVersion(level))
    }

    /// Reads `4.4-IV2`, or `4.4` and `4.4.1`, which mean the last version of release 4.4.
    pub fn from_name(name: &str) -> Option<MetadataVersion> {
        let release: Vec<&str> = name.splitn(3, '.').take(2).collect();
        let key = release.join(".");
        let matches = |row: &&(i16, &str, bool)| {
            row.1 == key || row.1.split_once('-').is_some_and(|(release, _)| release == key)
        };
        METADATA_VERSIONS.iter().rev().find(matches).map(|row| MetadataVersion(row.0))
    }

    pub fn level(self) -> i16 {
        self.0
    }

    /// The name, as in `4.4-IV2`.
    pub fn name(self) -> &'static str {
        METADATA_VERSIONS.iter().find(|row| row.0 == self.0).map_or("unknown", |row| row.1)
    }

    /// Whether going from this version down to `lower` could lose metadata.
    fn loses_metadata_down_to(self, lower: MetadataVersion) -> bool {
        METADATA_VERSIONS.iter().any(|row| row.2 && lower.0 < row.0 && row.0 <= self.0)
    }

    /// Controllers register (KIP-919).
    pub fn has_controller_registrations(self) -> bool {
        self >= MetadataVersion::V3_7_IV0
    }

    /// Controllers can be forgotten.
    pub fn may_unregister_controllers(self) -> bool {
        self >= MetadataVersion::V4_4_IV2
    }

    /// Partitions and brokers name log directories (KIP-858).
    pub fn has_directories(self) -> bool {
        self >= MetadataVersion::V3_7_IV2
    }

    /// Partitions may have eligible leader replicas (KIP-966).
    pub fn has_elr(self) -> bool {
        self >= MetadataVersion::V4_0_IV1
    }

    /// Brokers may name cordoned log directories.
    pub fn has_cordoned_directories(self) -> bool {
        self >= MetadataVersion::V4_3_IV0
    }

    /// Before this, taking a replica out of the ISR began a new leader epoch.
    pub fn keeps_leader_epoch_on_isr_shrink(self) -> bool {
        self >= MetadataVersion::V3_6_IV0
    }

    pub fn register_broker_record_version(self) -> i16 {
        match self {
            v if v.has_cordoned_directories() => 4,
            v if v.has_directories() => 3,
            v if v >= MetadataVersion::V3_4_IV0 => 2,
            _ => 1,
        }
    }

    pub fn partition_record_version(self) -> i16 {
        match self {
            v if v.has_elr() => 2,
            v if v.has_directories() => 1,
            _ => 0,
        }
    }
}

impl fmt::Display for MetadataVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A feature that this build knows, other than `metadata.version`.
#[derive(Debug)]
pub struct Feature {
    pub name: &'static str,
    /// The metadata version from which each level, beginning with 0, is what a new cluster gets.
    defaults_from: &'static [MetadataVersion],
    /// A level of this feature that needs a level of another one.
    needs: Option<(i16, &'static str, i16)>,
}

/// The features by name, except `metadata.version`.
pub const FEATURES: &[Feature] = &[
    Feature {
        name: ELIGIBLE_LEADER_REPLICAS_VERSION,
        defaults_from: &[MetadataVersion::MINIMUM, MetadataVersion::V4_1_IV0],
        needs: Some((1, METADATA_VERSION, MetadataVersion::V4_0_IV1.0)),
    },
    Feature {
        name: GROUP_VERSION,
        defaults_from: &[MetadataVersion::MINIMUM, MetadataVersion::V4_0_IV0],
        needs: None,
    },
    Feature {
        name: KRAFT_VERSION,
        defaults_from: &[MetadataVersion::MINIMUM, MetadataVersion::V3_9_IV0],
        needs: None,
    },
    Feature {
        name: SHARE_VERSION,
        defaults_from: &[MetadataVersion::MINIMUM, MetadataVersion::V4_2_IV0, MetadataVersion::V4_4_IV0],
        needs: None,
    },
    Feature {
        name: STREAMS_VERSION,
        defaults_from: &[MetadataVersion::MINIMUM, MetadataVersion::V4_2_IV1],
        needs: None,
    },
    Feature {
        name: TRANSACTION_VERSION,
        defaults_from: &[MetadataVersion::MINIMUM, MetadataVersion::V4_0_IV2, MetadataVersion::V4_0_IV2],
        needs: None,
    },
];

impl Feature {
    pub fn named(name: &str) -> Option<&'static Feature> {
        FEATURES.iter().find(|feature| feature.name == name)
    }

    pub fn max_level(&self) -> i16 {
        (self.defaults_from.len() - 1) as i16
    }

    /// What a new cluster gets at `version`.
    pub fn default_level(&self, version: MetadataVersion) -> i16 {
        self.defaults_from.iter().filter(|from| **from <= version).count() as i16 - 1
    }
}

/// The lowest and highest level of every feature that this build supports, by name: what a broker registers with and
/// what ApiVersions tells.
pub fn supported_features() -> Vec<(&'static str, i16, i16)> {
    let mut features: Vec<_> = FEATURES.iter().map(|f| (f.name, 0, f.max_level())).collect();
    features.push((METADATA_VERSION, MetadataVersion::MINIMUM.0, MetadataVersion::LATEST.0));
    features.sort_unstable();
    features
}

/// The levels that the cluster has agreed on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Features {
    metadata_version: Option<MetadataVersion>,
    finalized: OrdMap<Arc<str>, i16>,
}

impl Features {
    /// None only in an image without any record.
    pub fn metadata_version(&self) -> Option<MetadataVersion> {
        self.metadata_version
    }

    /// The level of a feature; 0 is off.
    pub fn level(&self, name: &str) -> i16 {
        if name == METADATA_VERSION {
            return self.metadata_version.map_or(0, |version| version.0);
        }
        self.finalized.get(name).copied().unwrap_or(0)
    }

    /// Every finalized feature by name, `metadata.version` among them.
    pub fn finalized(&self) -> Vec<(Arc<str>, i16)> {
        let mut features: Vec<_> =
            self.finalized.iter().map(|(name, level)| (Arc::clone(name), *level)).collect();
        features.extend(self.metadata_version.map(|version| (Arc::from(METADATA_VERSION), version.0)));
        features.sort_unstable();
        features
    }

    pub fn elr_is_enabled(&self) -> bool {
        self.level(ELIGIBLE_LEADER_REPLICAS_VERSION) >= 1
    }

    pub(super) fn apply(&mut self, record: &FeatureLevelRecord) {
        match (&*record.name, record.feature_level) {
            (METADATA_VERSION, level) => {
                let version = MetadataVersion::from_level(level);
                assert!(version.is_some(), "metadata.version {level} is not supported by this build");
                self.metadata_version = version;
            }
            // The quorum keeps its own version; a record of it is a leftover of an old defect in Kafka.
            (KRAFT_VERSION, _) => {}
            (name, 0) => {
                self.finalized.remove(name);
            }
            (name, level) => {
                self.finalized.insert(Arc::from(name), level);
            }
        }
    }

    pub(super) fn to_records(&self, records: &mut Vec<Record>) {
        records.extend(self.metadata_version.map(|version| level_record(METADATA_VERSION, version.0)));
        records.extend(self.finalized.iter().map(|(name, level)| level_record(name, *level)));
    }
}

pub(crate) fn level_record(name: &str, level: i16) -> Record {
    FeatureLevelRecord {
        name: StrBytes::from_string(name.to_owned()),
        feature_level: level,
        ..FeatureLevelRecord::default()
    }
    .into()
}
