//! What a follower of ours adds to each partition of its Fetch: the offset below which its log is on disk. A tagged field of
//! our own, which a leader of Kafka's ignores and a follower of Kafka's leaves out.

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::FetchPartition;

use crate::types::Offset;

/// Far from the tags that Kafka gives out, which count from 0.
const TAG: i32 = 10_000;

/// Tells the offset. Only versions with tagged fields (12 and later) carry it.
pub fn tell(partition: &mut FetchPartition, flushed: Offset) {
    let value = Bytes::copy_from_slice(&flushed.0.to_be_bytes());
    partition.unknown_tagged_fields.insert(TAG, value);
}

/// The offset, if the follower tells it.
pub fn told(partition: &FetchPartition) -> Option<Offset> {
    let value = partition.unknown_tagged_fields.get(&TAG)?;
    let bytes: [u8; 8] = value.as_ref().try_into().ok()?;
    Some(Offset(i64::from_be_bytes(bytes))).filter(|offset| *offset >= Offset::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::decode;
    use crate::wire::messages::FetchRequest;
    use crate::wire::messages::fetch_request::FetchTopic;
    use kafka_protocol::protocol::Encodable as _;

    #[test]
    fn it_survives_the_wire_and_nonsense_is_ignored() {
        let mut partition = FetchPartition::default();
        assert_eq!(told(&partition), None);
        tell(&mut partition, Offset(77));
        let topic = FetchTopic::default().with_partitions(vec![partition.clone()]);
        let request = FetchRequest::default().with_topics(vec![topic]);
        let mut bytes = bytes::BytesMut::new();
        request.encode(&mut bytes, 18).unwrap();
        let decoded: FetchRequest = decode(bytes.freeze(), 18).unwrap();
        assert_eq!(told(&decoded.topics[0].partitions[0]), Some(Offset(77)));
        for nonsense in [&b"\xff\xff\xff\xff\xff\xff\xff\xff"[..], b"\x01", b""] {
            partition.unknown_tagged_fields.insert(TAG, Bytes::copy_from_slice(nonsense));
            assert_eq!(told(&partition), None);
        }
    }
}
