//! The rules of the schema form on a message made for the purpose, and byte for byte against the kafka-protocol crate.

use super::codec::{Kind, Schema, Versions};
use super::fetch_response as ours;
use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::{self as theirs, CreateTopicsRequest};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Message};

messages! {
    /// Every kind of field.
    message Sample (request 99, versions "0-3", flexible "2+") {
        name: string "0+",
        note: string "0+" nullable "1+" = "none yet",
        rack: string "1+" nullable "1+" ignorable true = null,
        epoch: int32 "1+" = -1,
        ids: [uuid] "0+",
        parts: [Part] "0+" nullable "2+",
        late: int64 "3+" tagged "3+" tag 1 = 7,
        list: [int32] "2+" nullable "2+" tagged "2+" tag 0 = null,
        one: Part "3+" nullable "3+" = null,
        data: bytes "0+",
        ratio: float64 "0+",
    }
    struct Part {
        index: int8 "0+",
        port: uint16 "2+",
        flag: bool "0+" = true,
    }
}

fn full() -> Sample {
    Sample {
        name: "topic".into(),
        note: None,
        rack: Some("r1".into()),
        epoch: 4,
        ids: vec![uuid::Uuid::from_u128(5)],
        parts: Some(vec![Part { index: -3, port: 65535, ..Part::default() }]),
        late: 8,
        list: Some(vec![1, -1]),
        one: Some(Part::default()),
        data: Bytes::from_static(b"xyz"),
        ratio: 1.5,
        unknown_tagged_fields: [(9, Bytes::from_static(b"new"))].into(),
    }
}

fn encode<M: Encodable>(message: &M, version: i16) -> anyhow::Result<BytesMut> {
    let mut buf = BytesMut::new();
    message.encode(&mut buf, version)?;
    assert_eq!(message.compute_size(version)?, buf.len());
    Ok(buf)
}

fn round_trip<M: Encodable + Decodable + PartialEq + std::fmt::Debug>(message: &M, version: i16) {
    let mut bytes = encode(message, version).unwrap().freeze();
    assert_eq!(&M::decode(&mut bytes, version).unwrap(), message);
    assert!(!bytes.has_remaining());
}

#[test]
fn a_message_survives_every_version_that_has_its_fields() {
    round_trip(&full(), 3);
    for version in 0..=3 {
        round_trip(&Sample::default(), version);
    }
}

#[test]
fn a_field_that_the_version_lacks_is_refused_unless_ignorable() {
    let rack = Sample { rack: Some("r1".into()), ..Sample::default() };
    assert!(encode(&rack, 0).is_ok());
    let epoch = Sample { epoch: 0, ..Sample::default() };
    assert_eq!(
        encode(&epoch, 0).unwrap_err().to_string(),
        "field epoch is set, but version 0 does not have it"
    );
    let null = Sample { note: None, ..Sample::default() };
    assert_eq!(encode(&null, 0).unwrap_err().to_string(), "field note must not be null in version 0");
    let tagged = Sample { unknown_tagged_fields: full().unknown_tagged_fields, ..Sample::default() };
    assert!(encode(&tagged, 1).is_err());
    assert_eq!(encode(&full(), 4).unwrap_err().to_string(), "Sample has no version 4");
}

#[test]
fn the_row_of_a_message() {
    assert_eq!((Sample::KEY, Sample::NAME, Sample::KIND), (99, "Sample", Kind::Request));
    assert_eq!((Sample::VERSIONS.min, Sample::VERSIONS.max), (0, 3));
    assert_eq!((Sample::header_version(1), Sample::header_version(2)), (1, 2));
    assert_eq!(Sample::default().note.as_deref(), Some("none yet"));
    assert_eq!(Sample::default().parts, Some(vec![]));
    assert!(!Versions::NONE.contains(0));
    assert!(Versions::parse("2-4").contains(4) && !Versions::parse("2").contains(3));
}

#[test]
fn truncated_and_lying_input_is_an_error() {
    let bytes = encode(&full(), 3).unwrap().freeze();
    for length in 0..bytes.len() {
        assert!(Sample::decode(&mut bytes.slice(..length), 3).is_err(), "cut at {length}");
    }
    // A name of two bytes, a note of none, then 2^31 - 1 ids.
    let mut lie = Bytes::from_static(&[0, 1, b'a', 0, 0, 0x7f, 0xff, 0xff, 0xff]);
    assert!(Sample::decode(&mut lie, 0).is_err());
}

mod twins {
    //! One of Kafka's messages in our form, to compare with the crate's.
    messages! {
        message CreateTopics (request 19, versions "2-7", flexible "5+") {
            topics: [CreatableTopic] "0+",
            timeout_ms: int32 "0+" = 60000,
            validate_only: bool "1+" ignorable false,
        }
        struct CreatableTopic {
            name: string "0+",
            num_partitions: int32 "0+",
            replication_factor: int16 "0+",
            assignments: [CreatableReplicaAssignment] "0+",
            configs: [CreatableTopicConfig] "0+",
        }
        struct CreatableReplicaAssignment { partition_index: int32 "0+", broker_ids: [int32] "0+" }
        struct CreatableTopicConfig { name: string "0+", value: string "0+" nullable "0+" }
    }
}

#[test]
fn bytes_equal_those_of_the_crate() {
    let ours = twins::CreateTopics {
        topics: vec![twins::CreatableTopic {
            name: "t".into(),
            num_partitions: -1,
            replication_factor: -1,
            assignments: vec![twins::CreatableReplicaAssignment {
                partition_index: 0,
                broker_ids: vec![1, 2],
                ..Default::default()
            }],
            configs: vec![twins::CreatableTopicConfig {
                name: "k".into(),
                value: None,
                ..Default::default()
            }],
            ..Default::default()
        }],
        validate_only: true,
        ..Default::default()
    };
    for version in 2..=7 {
        let bytes = encode(&ours, version).unwrap().freeze();
        let theirs = CreateTopicsRequest::decode(&mut bytes.clone(), version).unwrap();
        assert_eq!(encode(&theirs, version).unwrap(), bytes);
    }
}

#[test]
fn tagged_fields_equal_those_of_the_crate() {
    let partition = ours::PartitionData {
        diverging_epoch: ours::EpochEndOffset { epoch: 3, end_offset: 300, ..Default::default() },
        current_leader: ours::LeaderIdAndEpoch { leader_id: 1, leader_epoch: 7, ..Default::default() },
        aborted_transactions: None,
        records: Some(vec![Bytes::from_static(b"bat"), Bytes::from_static(b"ch")].into()),
        unknown_tagged_fields: [(40, Bytes::from_static(b"later"))].into(),
        ..Default::default()
    };
    let mut response = ours::FetchResponse {
        responses: vec![ours::FetchableTopicResponse {
            topic: "t".into(),
            partitions: vec![partition],
            ..Default::default()
        }],
        ..Default::default()
    };
    for version in 12..=18 {
        let topic = if version < 13 { "t" } else { "" };
        response.responses[0].topic = topic.into();
        if version >= 16 {
            response.node_endpoints = vec![ours::NodeEndpoint { host: "h".into(), ..Default::default() }];
        }
        let bytes = encode(&response, version).unwrap().freeze();
        let theirs = theirs::FetchResponse::decode(&mut bytes.clone(), version).unwrap();
        assert_eq!(encode(&theirs, version).unwrap(), bytes);
        assert_eq!(ours::FetchResponse::decode(&mut bytes.clone(), version).unwrap(), response);
    }
}
