//! Fetch as a follower sends it. Each partition tells the offset below which the follower's log is on disk: a tagged field of
//! our own, which a leader of Kafka's ignores and a follower of Kafka's leaves out. The answer says, in another one, whether
//! the leader's high watermark waits for that offset. A third one counts how often the follower could not wait for an answer.

use anyhow::Result;
use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchRequest};
use kafka_protocol::protocol::buf::{ByteBuf, ByteBufMut};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Message, Request, VersionRange};

use super::FetchResponse;

use crate::types::Offset;

/// Far from the tags that Kafka gives out, which count from 0.
const TAG: i32 = 10_000;
const HURRIES_TAG: i32 = 10_001;

/// Tells the offset. Only versions with tagged fields (12 and later) carry it.
pub fn tell_flushed(partition: &mut FetchPartition, flushed: Offset) {
    let value = Bytes::copy_from_slice(&flushed.0.to_be_bytes());
    partition.unknown_tagged_fields.insert(TAG, value);
}

/// The offset, if the follower tells it.
pub fn told_flushed(partition: &FetchPartition) -> Option<Offset> {
    told(partition.unknown_tagged_fields.get(&TAG)?).map(Offset)
}

/// Tells how many hurries there were: whatever was asked when there were fewer is to be answered at once.
pub fn tell_hurries(request: &mut FetchRequest, count: i64) {
    request.unknown_tagged_fields.insert(HURRIES_TAG, Bytes::copy_from_slice(&count.to_be_bytes()));
}

/// How many there were, if the follower tells it.
pub fn told_hurries(request: &FetchRequest) -> Option<i64> {
    told(request.unknown_tagged_fields.get(&HURRIES_TAG)?)
}

fn told(value: &Bytes) -> Option<i64> {
    let bytes: [u8; 8] = value.as_ref().try_into().ok()?;
    Some(i64::from_be_bytes(bytes)).filter(|told| *told >= 0)
}

/// The crate's request with our response, whose records stay slices of the answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FollowerFetchRequest(pub FetchRequest);

impl Request for FollowerFetchRequest {
    const KEY: i16 = <FetchRequest as Request>::KEY;
    type Response = FetchResponse;
}

impl Message for FollowerFetchRequest {
    const VERSIONS: VersionRange = FetchRequest::VERSIONS;
    const DEPRECATED_VERSIONS: Option<VersionRange> = FetchRequest::DEPRECATED_VERSIONS;
}

impl HeaderVersion for FollowerFetchRequest {
    fn header_version(version: i16) -> i16 {
        FetchRequest::header_version(version)
    }
}

impl Encodable for FollowerFetchRequest {
    fn encode<B: ByteBufMut>(&self, buf: &mut B, version: i16) -> Result<()> {
        self.0.encode(buf, version)
    }

    fn compute_size(&self, version: i16) -> Result<usize> {
        self.0.compute_size(version)
    }
}

impl Decodable for FollowerFetchRequest {
    fn decode<B: ByteBuf>(buf: &mut B, version: i16) -> Result<Self> {
        FetchRequest::decode(buf, version).map(FollowerFetchRequest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::decode;
    use crate::wire::messages::FetchRequest;
    use crate::wire::messages::fetch_request::FetchTopic;

    #[test]
    fn it_survives_the_wire_and_nonsense_is_ignored() {
        let mut partition = FetchPartition::default();
        assert_eq!(told_flushed(&partition), None);
        tell_flushed(&mut partition, Offset(77));
        let topic = FetchTopic::default().with_partitions(vec![partition.clone()]);
        let mut request = FetchRequest::default().with_topics(vec![topic]);
        assert_eq!(told_hurries(&request), None);
        tell_hurries(&mut request, 3);
        let mut bytes = bytes::BytesMut::new();
        request.encode(&mut bytes, 18).unwrap();
        let decoded: FetchRequest = decode(bytes.freeze(), 18).unwrap();
        assert_eq!(told_flushed(&decoded.topics[0].partitions[0]), Some(Offset(77)));
        assert_eq!(told_hurries(&decoded), Some(3));
        for nonsense in [&b"\xff\xff\xff\xff\xff\xff\xff\xff"[..], b"\x01", b""] {
            partition.unknown_tagged_fields.insert(TAG, Bytes::copy_from_slice(nonsense));
            assert_eq!(told_flushed(&partition), None);
            request.unknown_tagged_fields.insert(HURRIES_TAG, Bytes::copy_from_slice(nonsense));
            assert_eq!(told_hurries(&request), None);
        }
    }
}
