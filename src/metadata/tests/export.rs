//! A snapshot file holds the image's records between a header and a footer, at consecutive offsets, and folds back.

use super::Cluster;
use crate::metadata::brokers::Known;
use crate::metadata::configs::ConfigRules;
use crate::metadata::topics::{CreateTopicsOptions, NewTopic, create_topics};
use crate::metadata::{Decision, Image, Record, brokers, election, export, features};
use crate::types::{BrokerEpoch, LeaderEpoch, NodeId, TimestampMs, Uuid};
use crate::wire::batch::{Batches, PartialTail};
use crate::wire::control::ControlKind;
use crate::wire::records::Records;
use bytes::Bytes;

/// A cluster of one broker with a topic of many partitions.
fn image() -> Image {
    let mut cluster = Cluster::default();
    let defaults = election::ElectionDefaults::default();
    let bootstrap = features::bootstrap_records(features::MetadataVersion::LATEST, &[], 1).unwrap();
    cluster.commit(Decision::new(bootstrap, ()));
    let features = features::supported_features();
    let registration = brokers::Registration {
        id: NodeId(1),
        incarnation: Uuid::from_u128(7),
        endpoints: vec![],
        features: features.into_iter().map(|(name, min, max)| (name.into(), (min, max))).collect(),
        rack: None,
        directories: vec![Uuid::from_u128(1000)],
        previous_epoch: BrokerEpoch::UNKNOWN,
    };
    let decision = brokers::register(&cluster.image, &registration, false, defaults);
    cluster.commit(decision).0.unwrap();
    let heartbeat = brokers::Heartbeat {
        id: NodeId(1),
        epoch: cluster.image.brokers.get(NodeId(1)).unwrap().epoch,
        metadata_offset: cluster.image.version.offset(),
        want_fence: false,
        want_shutdown: false,
        offline_directories: vec![],
        cordoned_directories: None,
    };
    let decision = brokers::heartbeat(&cluster.image, &heartbeat, Known::default(), defaults);
    cluster.commit(decision).0.unwrap();
    let topic = NewTopic {
        name: "orders".into(),
        id: Uuid::from_u128(5),
        partitions: Some(9000),
        configs: vec![("retention.ms".into(), Some("1000".into()))],
        ..NewTopic::default()
    };
    let options = CreateTopicsOptions {
        default_partitions: 1,
        default_replication_factor: 1,
        validate_only: false,
        seed: 0,
    };
    let rules = ConfigRules { is_list: &|_, _| false, default: &|_, _| None, validate: &|_, _| Ok(()) };
    let decision = create_topics(&cluster.image, &[topic], options, &rules);
    cluster.commit(decision).0.unwrap();
    cluster.image
}

#[test]
fn a_snapshot_file_folds_back() {
    let image = image();
    let quorum = export::SnapshotQuorum::default();
    let file =
        export::snapshot_file(&image, &quorum, LeaderEpoch(3), TimestampMs(1_700_000_000_000)).unwrap();
    assert_eq!(file.name, format!("{:020}-0000000003.checkpoint", image.version.0));
    let (mut next, mut kinds, mut records) = (0, Vec::new(), Vec::new());
    for batch in Batches::new(&file.bytes, PartialTail::Refuse) {
        let batch = batch.unwrap();
        batch.check_crc().unwrap();
        assert_eq!((batch.header.base_offset.0, batch.header.leader_epoch), (next, LeaderEpoch(3)));
        next = batch.header.next_offset().0;
        for record in Records::new(batch.body(), batch.header.record_count) {
            let record = record.unwrap();
            if batch.header.is_control() {
                kinds.push(ControlKind::of_key(record.key).unwrap());
            } else {
                assert_eq!(record.key, None);
                records.push(Record::decode(Bytes::copy_from_slice(record.value.unwrap())).unwrap().0);
            }
        }
    }
    assert_eq!(kinds, [ControlKind::SnapshotHeader, ControlKind::SnapshotFooter]);
    assert_eq!(records, image.to_records());
    assert_eq!(Image::from_snapshot(image.version, &records), image);
}

#[test]
fn an_image_as_lines() {
    let mut image = Image::default();
    for record in features::bootstrap_records(features::MetadataVersion::LATEST, &[], 1).unwrap() {
        image.apply(&record);
    }
    let lines = export::image_as_json(&image).unwrap().join("\n");
    expect_test::expect![[r#"
        {"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"metadata.version","featureLevel":33}}
        {"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"eligible.leader.replicas.version","featureLevel":1}}
        {"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"group.version","featureLevel":1}}
        {"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"share.version","featureLevel":2}}
        {"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"streams.version","featureLevel":1}}
        {"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"transaction.version","featureLevel":2}}
        {"type":"CONFIG_RECORD","version":0,"data":{"resourceType":4,"resourceName":"","name":"min.insync.replicas","value":"1"}}"#]].assert_eq(&lines);
    let frame = Bytes::from_static(&[1, 20, 0, 0]);
    assert_eq!(export::frame_as_json(frame).unwrap(), r#"{"type":"NO_OP_RECORD","version":0,"data":{}}"#);
}
