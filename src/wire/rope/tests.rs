//! The rope against a plain buffer. If a new version of kafka-protocol writes records in another way than by one
//! `put_slice` of the payload, the counts of copied bytes here tell.

use super::{Rope, RopeWriter};
use crate::wire::api::ApiRow;
use crate::wire::frame;
use crate::wire::messages::fetch_response::{FetchResponse, FetchableTopicResponse, PartitionData};
use crate::wire::messages::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ResponseHeader;
use kafka_protocol::protocol::Encodable;
use kafka_protocol::protocol::buf::ByteBufMut;
use std::io::IoSlice;

const RECORDS_LEN: usize = 100_000;

/// Topics with records in one piece, in three pieces, none, empty, and too short for a segment of their own.
fn fetch_response(version: i16) -> FetchResponse {
    let records = Bytes::from(vec![7; RECORDS_LEN]);
    let partition = |partition_index, records: Option<Vec<Bytes>>| PartitionData {
        partition_index,
        records: records.map(Into::into),
        ..PartitionData::default()
    };
    let topic = |name: &'static str, partitions| FetchableTopicResponse {
        topic: name.into(),
        topic_id: uuid::Uuid::from_u128(7),
        partitions,
        ..FetchableTopicResponse::default()
    };
    let pieces = vec![records.clone(), records.slice(..RECORDS_LEN / 2), records.clone()];
    let responses = vec![
        topic("a", vec![partition(0, Some(vec![records.clone()])), partition(1, None)]),
        topic("b", vec![partition(0, Some(vec![])), partition(1, Some(pieces))]),
        topic("c", vec![partition(0, Some(vec![Bytes::from_static(b"short")]))]),
    ];
    FetchResponse { responses, error_code: i16::from(version >= 7), ..FetchResponse::default() }
}

fn plain(api: &ApiRow, version: i16, message: &impl Encodable) -> Bytes {
    let mut body = BytesMut::new();
    let header = ResponseHeader::default().with_correlation_id(77);
    header.encode(&mut body, api.response_header_version(version)).unwrap();
    message.encode(&mut body, version).unwrap();
    let mut frame = BytesMut::new();
    frame.put_i32(body.len() as i32);
    frame.put(body);
    frame.freeze()
}

#[test]
fn fetch_responses_keep_their_records_by_reference() {
    let api = ApiRow::of(1).unwrap();
    for version in api.min..=api.max {
        let response = fetch_response(version);
        let rope = frame::encode_response(api, version, 77, &response).unwrap();
        let own: Vec<&Bytes> = rope.segments().filter(|segment| segment.len() < RECORDS_LEN / 2).collect();
        assert_eq!(rope.segments().count() - own.len(), 4, "version {version}: records were copied");
        assert!(own.iter().map(|segment| segment.len()).sum::<usize>() < 600, "version {version}");
        let records = response.responses[0].partitions[0].records.as_ref().unwrap();
        let first = records.pieces().next().unwrap();
        assert!(rope.segments().any(|segment| segment.as_ptr() == first.as_ptr()), "version {version}");
        assert_eq!(rope.into_bytes(), plain(api, version, &response), "version {version}");
    }
}

#[test]
fn produce_requests_keep_their_records_by_reference() {
    let api = ApiRow::of(0).unwrap();
    let records = Bytes::from(vec![7; RECORDS_LEN]);
    let partition = PartitionProduceData::default().with_records(Some(records.clone()));
    let topic = TopicProduceData::default().with_partition_data(vec![partition]);
    let request = ProduceRequest::default().with_topic_data(vec![topic]);
    for version in api.min..=api.max {
        let rope = frame::encode_request(api, version, 1, None, &request).unwrap();
        assert!(rope.segments().any(|segment| segment.as_ptr() == records.as_ptr()), "version {version}");
        let parsed = frame::parse_request(rope.into_bytes().slice(4..)).unwrap();
        assert_eq!(frame::decode::<ProduceRequest>(parsed.body, version).unwrap(), request);
    }
}

#[test]
fn equal_bytes_at_another_place_are_copied() {
    let payload = Bytes::from(vec![1; 1000]);
    let mut writer = RopeWriter::new([payload.clone()]);
    writer.put_slice(&[1; 1000]);
    writer.put_slice(&payload);
    let rope = writer.finish();
    let shared: Vec<_> = rope.segments().map(|segment| segment.as_ptr() == payload.as_ptr()).collect();
    assert_eq!((rope.len(), &shared[..]), (2000, &[false, true][..]));
}

#[test]
fn gaps_are_filled_between_payloads() {
    let payloads = [Bytes::from(vec![1; 600]), Bytes::from(vec![2; 600])];
    let mut writer = RopeWriter::new(payloads.clone());
    let mut plain = BytesMut::new();
    fn write(buf: &mut impl ByteBufMut, payloads: &[Bytes; 2]) {
        let first = buf.put_gap(1);
        buf.put_slice(&payloads[0]);
        buf.put_u16(9);
        let second = buf.put_gap(3);
        buf.put_slice(&payloads[1]);
        let third = buf.put_gap(2);
        buf.gap_buf(second).copy_from_slice(b"mid");
        buf.gap_buf(third).copy_from_slice(b"in");
        buf.gap_buf(first)[0] = 5;
        buf.put_u8(4);
    }
    write(&mut writer, &payloads);
    write(&mut plain, &payloads);
    assert_eq!(writer.offset(), plain.len());
    assert_eq!(writer.finish().into_bytes(), plain);
}

#[test]
fn a_rope_is_read_in_pieces_of_any_size() {
    let bytes: Vec<u8> = (0..200).collect();
    for step in [1, 7, 50, 199, 200] {
        let mut rope = Rope::default();
        for part in [0..0, 0..50, 50..51, 51..200] {
            rope.push(Bytes::copy_from_slice(&bytes[part]));
        }
        assert_eq!(rope.slices().len(), 3);
        let mut read = Vec::new();
        while rope.has_remaining() {
            let mut slices = [IoSlice::new(&[]); 4];
            let filled = rope.chunks_vectored(&mut slices);
            let available: usize = slices[..filled].iter().map(|slice| slice.len()).sum();
            assert_eq!(available, rope.len());
            let piece = rope.copy_to_bytes(step.min(rope.len()));
            read.extend_from_slice(&piece);
        }
        assert_eq!(read, bytes);
        assert!(rope.is_empty());
    }
}
