//! The guard against lies about lengths, and its patience with messages that only look suspicious. `tests/wire.rs`
//! goes on with golden frames and measures memory.

use super::{DecodeError, MAX_ARRAY_LEN, decode};
use crate::wire::messages::{FetchRequest, MetadataRequest, ProduceRequest};
use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{SaslAuthenticateRequest, TopicName};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

fn encode(message: &impl Encodable, version: i16) -> Bytes {
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes, version).unwrap();
    bytes.freeze()
}

/// Announces as many elements as can be said, at every place of a small frame.
fn lie_everywhere<T: Decodable>(version: i16) {
    let lies: [&[u8]; 5] = [
        &[0x7f, 0xff, 0xff, 0xff],
        &[0x7f, 0xff],
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0x00, 0x40, 0x00, 0x00],
        &[0xff, 0xff, 0xff, 0x7f],
    ];
    for filler in [0u8, 1, 2, 0x7f, 0x80, 0xff] {
        for lie in lies {
            for at in 0..64 {
                let mut frame = vec![filler; 80];
                frame[at..at + lie.len()].copy_from_slice(lie);
                // What matters is that the process is still there; some of these frames are even valid.
                drop(decode::<T>(frame.into(), version));
            }
        }
    }
}

macro_rules! lie_to_all {
    ($({ $key:literal, $name:ident, $min:literal..=$max:literal, flexible $flexible:tt, [$($listener:ident),+],
         advertised $advertised:literal, $request:path => $response:path, $($handler:ident)::+ })*) => {
        $(for version in $min..=$max {
            lie_everywhere::<$request>(version);
            lie_everywhere::<$response>(version);
        })*
    };
}

#[test]
fn no_lie_about_a_length_gets_through() {
    crate::for_each_api!(lie_to_all);
}

fn produce(records: &Bytes) -> ProduceRequest {
    let partition = PartitionProduceData::default().with_index(i32::MAX).with_records(Some(records.clone()));
    let topic = TopicProduceData::default()
        .with_name(TopicName(StrBytes::from_static_str("t")))
        .with_partition_data(vec![partition.clone(), partition]);
    // A timeout that could be the length of a long array.
    ProduceRequest::default().with_timeout_ms(MAX_ARRAY_LEN as i32 + 7).with_topic_data(vec![topic])
}

#[test]
fn long_records_pass_and_stay_in_the_frame() {
    let records = Bytes::from(vec![0x81; 3 * MAX_ARRAY_LEN]);
    for version in [3, 8, 9, 12] {
        let frame = encode(&produce(&records), version);
        let decoded: ProduceRequest = decode(frame.clone(), version).unwrap();
        assert_eq!(decoded, produce(&records));
        let within = decoded.topic_data[0].partition_data[0].records.as_ref().unwrap();
        assert!(frame.as_ptr_range().contains(&within.as_ptr()), "version {version} copied the records");
    }
}

#[test]
fn numbers_that_look_like_lengths_are_left_alone() {
    let partition = FetchPartition::default().with_partition_max_bytes(MAX_ARRAY_LEN as i32 + 1);
    let topic = FetchTopic::default()
        .with_topic(TopicName(StrBytes::from_static_str("t")))
        .with_partitions(vec![partition; 20_000]);
    let request = FetchRequest::default().with_max_bytes(i32::MAX).with_topics(vec![topic]);
    for version in [11, 12] {
        let decoded: FetchRequest = decode(encode(&request, version), version).unwrap();
        assert_eq!(decoded, request);
    }
}

#[test]
fn unknown_tags_pass_with_their_values() {
    let request = SaslAuthenticateRequest::default()
        .with_unknown_tagged_field(16_000, Bytes::new())
        .with_unknown_tagged_field(300, Bytes::from_static(b"x"))
        .with_unknown_tagged_field(301, vec![5; 2 * MAX_ARRAY_LEN].into());
    assert_eq!(decode::<SaslAuthenticateRequest>(encode(&request, 2), 2).unwrap(), request);
}

#[test]
fn long_arrays_are_refused_before_they_are_read() {
    let topic =
        MetadataRequestTopic::default().with_name(Some(TopicName(StrBytes::from_static_str("a-topic"))));
    for version in [1, 9] {
        let request = |topics| MetadataRequest::default().with_topics(Some(vec![topic.clone(); topics]));
        assert!(decode::<MetadataRequest>(encode(&request(MAX_ARRAY_LEN), version), version).is_ok());
        let long = encode(&request(MAX_ARRAY_LEN + 1), version);
        let refused: Result<MetadataRequest, DecodeError> = decode(long, version);
        assert!(refused.is_err(), "version {version}");
    }
}

#[test]
fn a_long_array_does_not_hide_a_longer_one() {
    // Fetch version 7: the first array is beyond the limit. A guard that went on after some of its elements would read
    // what follows at the wrong place; the list of forgotten topics, far behind, would then escape it.
    let mut frame = BytesMut::new();
    frame.put_slice(&[0; 21]);
    frame.put_i32(-1);
    frame.put_i32(MAX_ARRAY_LEN as i32 + 1);
    for _ in 0..=MAX_ARRAY_LEN {
        frame.put_i16(0);
        frame.put_i32(0);
    }
    frame.put_i32(i32::MAX);
    assert!(decode::<FetchRequest>(frame.freeze(), 7).is_err());
}

#[test]
fn a_strange_boolean_does_not_hide_a_length() {
    // Metadata version 9 ends its topics with three booleans; version 12 has two and then tagged fields.
    for version in [9, 12] {
        let mut frame = BytesMut::from(&[2, 0][..]);
        frame.put_slice(&[0x80; 18]);
        frame.put_slice(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
        drop(decode::<MetadataRequest>(frame.freeze(), version));
    }
}

#[test]
fn too_many_parts_are_refused() {
    // 300 topics of 10 000 partitions each: every array is within the limit, the message is not.
    let partitions = vec![FetchPartition::default(); 10_000];
    let topic = FetchTopic::default().with_partitions(partitions);
    let request = FetchRequest::default().with_topics(vec![topic; 300]);
    let refused: Result<FetchRequest, DecodeError> = decode(encode(&request, 12), 12);
    assert_eq!(refused.unwrap_err().to_string(), "message has too many parts");
}
