//! Tests of the quorum's parts together: openraft's own suite on the store, crashes on a simulated disk, and whole nodes
//! that start, change things and start again.

mod suite;
mod node;
mod crash;
mod proposing;
mod rig;
mod many;
mod learners;
mod peers;
mod messages;
mod voting;
mod founding;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use std::collections::BTreeMap;

use crate::controller::{
    Controller, ControllerConfig, Member, MetadataHandle, SnapshotLimits, Timing, start,
};
use crate::metadata::{Image, MetadataVersion, Record};
use crate::storage::disk::{Disk, RealDisk};
use crate::types::{NodeId, Uuid};
use crate::wire::messages::StrBytes;
use crate::wire::messages::metadata::{FeatureLevelRecord, TopicRecord};

/// The record of a topic `t<nth>`.
fn topic(nth: u64) -> Record {
    let record = TopicRecord {
        name: StrBytes::from(format!("t{nth}")),
        topic_id: Uuid::from_u128(u128::from(nth) + 100),
        ..TopicRecord::default()
    };
    Record::Topic(record)
}

fn topics_in(image: &Image) -> Vec<String> {
    image.topics.iter().map(|topic| topic.name.to_string()).collect()
}

fn config(disk: Arc<dyn Disk>, dir: &Path) -> ControllerConfig {
    let feature = FeatureLevelRecord {
        name: StrBytes::from_static_str("metadata.version"),
        feature_level: MetadataVersion::MINIMUM.level(),
        ..FeatureLevelRecord::default()
    };
    ControllerConfig {
        node_id: NodeId(1),
        cluster_id: "test".into(),
        dir: dir.to_owned(),
        disk,
        me: Member::default(),
        voters: BTreeMap::from([(NodeId(1), Member::default())]),
        addresses: BTreeMap::new(),
        servers: Vec::new(),
        listener: None,
        joins_voters: false,
        segment_bytes: 1 << 20,
        snapshots: SnapshotLimits::default(),
        timing: Timing::default(),
        bootstrap_records: vec![Record::FeatureLevel(feature)],
    }
}

/// A directory of the real disk.
pub(super) fn real() -> (tempfile::TempDir, Arc<dyn Disk>) {
    (tempfile::tempdir().unwrap(), Arc::new(RealDisk))
}

pub(super) async fn run_node(disk: &Arc<dyn Disk>, dir: &Path) -> (MetadataHandle, Controller) {
    start(config(Arc::clone(disk), dir)).await.unwrap()
}

fn log_dir(dir: &Path) -> PathBuf {
    dir.join(crate::controller::METADATA_LOG_DIR)
}
