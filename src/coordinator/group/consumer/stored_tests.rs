//! The records and what classic members carry are Kafka's, byte for byte: the bytes were written by Kafka 4.4's own classes
//! (GroupCoordinatorRecordHelpers, GroupCoordinatorRecordSerde, ConsumerProtocol).

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::super::record::Record;
use super::super::embedded::{assignment, encode_assignment, subscription};
use super::super::member::{Classic, MemberState};
use super::*;
use crate::coordinator::Encode;
use crate::types::Uuid;

fn bytes(hex: &str) -> Bytes {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits");
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// Kafka's bytes are read as the record, and the record is written as Kafka's bytes.
fn check(record: &Record, key: &str, value: Option<&str>) {
    let value = value.map(bytes);
    let read = Record::decode(bytes(key), value.clone()).expect("a sound record").expect("of a known type");
    assert_eq!(*record, read);
    assert_eq!((bytes(key), value), record.encode().expect("bytes"), "{record:?}");
}

fn group() -> ConsumerGroup {
    ConsumerGroup::new("g1".into())
}

fn owned(topics: &[(u128, &[(i32, i32)])]) -> Owned {
    let partitions =
        |list: &[(i32, i32)]| list.iter().map(|(index, epoch)| (PartitionIndex(*index), *epoch)).collect();
    topics.iter().map(|(topic, list)| (Uuid::from_u128(*topic), partitions(list))).collect()
}

fn member() -> Member {
    Member {
        epoch: 7,
        previous_epoch: 6,
        state: MemberState::UnrevokedPartitions,
        instance_id: Some("i1".into()),
        rack: Some("r1".into()),
        client_id: "c1".into(),
        client_host: "/h1".into(),
        rebalance_timeout_ms: 60_000,
        topics: ["foo".into(), "bar".into()].into(),
        regex: Some("ba.*".into()),
        assignor: Some("range".into()),
        assigned: owned(&[(1, &[(0, 5), (1, 6)]), (2, &[(3, 7)])]),
        revoking: owned(&[(2, &[(2, 4)])]),
        classic: None,
    }
}

#[test]
fn members_are_stored_as_in_kafka() {
    let (group, id) = (group(), Name::from("m1"));
    check(
        &group.member_record(&id, &member()),
        "00050002673100026d31",
        Some("0000036931037231036331042f6831030462617204666f6f0562612e2a0000ea600672616e676501000100"),
    );
    check(&group.member_tombstone(&id), "00050002673100026d31", None);
    check(
        &group.current_record(&id, &member()),
        "00080002673100026d31",
        Some(concat!(
            "000000000007000000060103000000000000000000000000000000010300000000000000010100090300000005",
            "000000060000000000000000000000000000000202000000030100050200000007020000000000000000000000",
            "00000000020200000002010005020000000400",
        )),
    );
    check(&group.current_tombstone(&id), "00080002673100026d31", None);
    let classic = Member {
        client_id: "c2".into(),
        client_host: "/h2".into(),
        rebalance_timeout_ms: 30_000,
        topics: ["foo".into()].into(),
        classic: Some(Classic {
            session_timeout_ms: 45_000,
            protocols: vec![
                ("range".into(), Bytes::from_static(&[1, 2, 3])),
                ("sticky".into(), Bytes::from_static(&[4])),
            ],
        }),
        ..Member::new()
    };
    check(
        &group.member_record(&"m2".into(), &classic),
        "00050002673100026d32",
        Some(concat!(
            "00000000036332042f68320204666f6f01000075300001001c010000afc8",
            "030672616e6765040102030007737469636b7902040000"
        )),
    );
}

#[test]
fn the_rest_of_a_group_is_stored_as_in_kafka() {
    let (group, id, regex) = (group(), Name::from("m1"), Name::from("ba.*"));
    let target: Assignment = BTreeMap::from([
        (Uuid::from_u128(1), [PartitionIndex(0), PartitionIndex(1)].into()),
        (Uuid::from_u128(2), [PartitionIndex(3)].into()),
    ]);
    check(
        &group.target_record(&id, &target),
        "00070002673100026d31",
        Some(concat!(
            "000003000000000000000000000000000000010300000000000000010000",
            "00000000000000000000000000000202000000030000",
        )),
    );
    check(&group.target_tombstone(&id), "00070002673100026d31", None);
    let epoch = group.target_epoch_record(9, TimestampMs(1_234_567));
    check(&epoch, "000600026731", Some("000000000009010008000000000012d687"));
    check(&group.target_epoch_tombstone(), "000600026731", None);
    let epoch = group.epoch_record(9, -8_548_373_369_631_246_783);
    check(&epoch, "000300026731", Some("000000000009010008895e13b627b87641"));
    check(&group.epoch_tombstone(), "000300026731", None);
    check(&group.partition_metadata_tombstone(), "000400026731", None);
    let topics = ["bar".into(), "baz".into()].into();
    let resolved = Resolved { topics, version: 77, at: TimestampMs(1_234_567) };
    check(
        &group.regex_record(&regex, &resolved),
        "001000026731000462612e2a",
        Some("000003046261720462617a000000000000004d000000000012d68700"),
    );
    check(&group.regex_tombstone(&regex), "001000026731000462612e2a", None);
}

#[test]
fn what_classic_members_carry_is_as_in_kafka() {
    let indexes = |list: &[i32]| list.iter().copied().map(PartitionIndex).collect::<Vec<_>>();
    let assigned = vec![(Name::from("foo"), indexes(&[0, 2])), (Name::from("bar"), indexes(&[1]))];
    let subscriptions = [
        "00000000000200036261720003666f6f0000000109",
        concat!(
            "00010000000200036261720003666f6f0000000109000000020003626172",
            "00000001000000010003666f6f000000020000000000000002",
        ),
        concat!(
            "00020000000200036261720003666f6f0000000109000000020003626172",
            "00000001000000010003666f6f00000002000000000000000200000005",
        ),
        concat!(
            "00030000000200036261720003666f6f0000000109000000020003626172",
            "00000001000000010003666f6f0000000200000000000000020000000500027231",
        ),
    ];
    for (version, metadata) in subscriptions.into_iter().enumerate() {
        let metadata = bytes(metadata);
        let read = subscription(&metadata).expect("a subscription");
        assert_eq!(["bar", "foo"].map(Name::from).to_vec(), read.topics);
        assert_eq!((version > 2).then(|| Name::from("r1")), read.rack);
        let owned = vec![(Name::from("bar"), indexes(&[1])), (Name::from("foo"), indexes(&[0, 2]))];
        assert_eq!(if version > 0 { owned } else { Vec::new() }, read.owned);

        let kafkas = bytes(&format!(
            "{version:04x}{}",
            "000000020003666f6f00000002000000000000000200036261720000000100000001ffffffff"
        ));
        assert_eq!(kafkas, encode_assignment(&assigned, &metadata));
        assert_eq!((assigned.clone(), false), assignment(&kafkas).expect("an assignment"));
    }
    // A version that is not known yet is read as the latest one.
    let mut newer = bytes(subscriptions[3]).to_vec();
    newer[1] = 9;
    assert_eq!(2, subscription(&newer.into()).expect("a subscription").topics.len());
    for malformed in ["", "00", "ffff00000000", "000000000002", "00037fffffff"] {
        assert!(subscription(&bytes(malformed)).is_err(), "{malformed}");
        assert!(assignment(&bytes(malformed)).is_err(), "{malformed}");
    }
}
