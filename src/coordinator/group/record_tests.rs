//! Records of classic groups and of offsets are Kafka's, byte for byte: the bytes were written by Kafka 4.4's own classes. Those
//! of consumer groups are checked beside their group.

use bytes::Bytes;

use super::*;
use crate::coordinator::Encode;
use crate::types::Uuid;
use crate::wire::messages::groups::GroupMetadataMember;

fn bytes(hex: &str) -> Bytes {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits");
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn check(record: &Record, key: &str, value: &str) {
    let read =
        Record::decode(bytes(key), Some(bytes(value))).expect("a sound record").expect("of a known type");
    assert_eq!(*record, read);
    assert_eq!((bytes(key), Some(bytes(value))), record.encode().expect("bytes"), "{record:?}");
}

#[test]
fn classic_groups_are_stored_as_in_kafka() {
    let key = || GroupMetadataKey { group: "g1".into(), ..Default::default() };
    let member = GroupMetadataMember {
        member_id: "m1".into(),
        group_instance_id: Some("i1".into()),
        client_id: "c1".into(),
        client_host: "/h1".into(),
        rebalance_timeout: 60_000,
        session_timeout: 45_000,
        subscription: Bytes::from_static(&[1, 2]),
        assignment: Bytes::from_static(&[3]),
        ..Default::default()
    };
    let group = GroupMetadataValue {
        protocol_type: "consumer".into(),
        generation: 5,
        protocol: Some("range".into()),
        leader: Some("m1".into()),
        current_state_timestamp: 1_234_567,
        members: vec![member],
        ..Default::default()
    };
    check(
        &Record::GroupMetadata(key(), Some(group)),
        "000200026731",
        concat!(
            "00030008636f6e73756d657200000005000572616e676500026d31000000000012d687",
            "0000000100026d31000269310002633100032f68310000ea600000afc80000000201020000000103",
        ),
    );
    let empty =
        GroupMetadataValue { protocol: None, leader: None, current_state_timestamp: 9, ..Default::default() };
    check(
        &Record::GroupMetadata(key(), Some(empty)),
        "000200026731",
        "0003000000000000ffffffff000000000000000900000000",
    );
}

#[test]
fn offsets_are_stored_as_in_kafka() {
    let key = OffsetCommitKey { group: "g1".into(), topic: "foo".into(), partition: 2, ..Default::default() };
    let plain = OffsetCommitValue { offset: 100, commit_timestamp: 1_234_567, ..Default::default() };
    let full = OffsetCommitValue {
        leader_epoch: 7,
        metadata: "md".into(),
        topic_id: Uuid::from_u128(1),
        ..plain.clone()
    };
    let expiring = OffsetCommitValue { metadata: "md".into(), expire_timestamp: 2_345_678, ..plain.clone() };
    for (value, bytes) in [
        (
            full,
            concat!(
                "0004000000000000006400000007036d64000000000012d687",
                "01001000000000000000000000000000000001",
            ),
        ),
        (plain, "00040000000000000064ffffffff01000000000012d68700"),
        (expiring, "0001000000000000006400026d64000000000012d687000000000023cace"),
    ] {
        check(&Record::OffsetCommit(key.clone(), Some(value)), "0001000267310003666f6f00000002", bytes);
    }
}
