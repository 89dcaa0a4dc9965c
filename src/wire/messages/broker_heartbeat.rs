//! BrokerHeartbeat (key 63). Ours because the crate stops at version 1.
//!
//! - 1: failed log directories (KIP-858). 2: cordoned log directories (KIP-1066).

use crate::types::NodeId;

messages! {
    message BrokerHeartbeatRequest (request 63, versions "0-2", flexible "0+") {
        broker_id: int32 "0+",
        broker_epoch: int64 "0+" = -1,
        /// How far the broker has read the metadata log.
        current_metadata_offset: int64 "0+",
        want_fence: bool "0+",
        want_shut_down: bool "0+",
        offline_log_dirs: [uuid] "1+" tagged "1+" tag 0,
        /// Null before the broker knows its directories.
        cordoned_log_dirs: [uuid] "2+" nullable "2+" tagged "2+" tag 1 = null,
    }

    message BrokerHeartbeatResponse (response 63, versions "0-2", flexible "0+") {
        throttle_time_ms: int32 "0+",
        error_code: int16 "0+",
        is_caught_up: bool "0+",
        is_fenced: bool "0+" = true,
        should_shut_down: bool "0+",
    }
}

exchanges! { BrokerHeartbeatRequest => BrokerHeartbeatResponse }

/// The tag of a field that only our brokers send: for whom the sender waits in vain. Kafka's controllers skip it.
const SILENT_BROKERS: i32 = 10_000;
/// A broker's id and for how many milliseconds it has been silent, 32 bits each.
const SILENT_LEN: usize = 8;

impl BrokerHeartbeatRequest {
    /// The brokers for which the sender waits in vain, and for how many milliseconds it has.
    pub fn silent_brokers(&self) -> Vec<(NodeId, i64)> {
        let bytes = self.unknown_tagged_fields.get(&SILENT_BROKERS).map_or(&[][..], |bytes| bytes);
        let (pairs, _) = bytes.as_chunks::<SILENT_LEN>();
        let int =
            |bytes: &[u8]| bytes.iter().fold(0_u32, |int, byte| int << 8 | u32::from(*byte)).cast_signed();
        pairs.iter().map(|pair| (NodeId(int(&pair[..4])), i64::from(int(&pair[4..])))).collect()
    }

    pub fn set_silent_brokers(&mut self, silent: &[(NodeId, i64)]) {
        let mut bytes = Vec::with_capacity(silent.len() * SILENT_LEN);
        for (id, silent_ms) in silent {
            bytes.extend(id.0.to_be_bytes());
            bytes.extend(i32::try_from(*silent_ms).unwrap_or(i32::MAX).to_be_bytes());
        }
        if bytes.is_empty() {
            self.unknown_tagged_fields.remove(&SILENT_BROKERS);
        } else {
            self.unknown_tagged_fields.insert(SILENT_BROKERS, bytes.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::decode;
    use kafka_protocol::protocol::Encodable;

    #[test]
    fn silent_brokers_travel_in_every_version() {
        let silent = [(NodeId(7), 1_500), (NodeId(0x0102_0304), i64::MAX)];
        for version in 0..=2 {
            let mut request = BrokerHeartbeatRequest::default();
            request.set_silent_brokers(&silent);
            let mut bytes = bytes::BytesMut::new();
            request.encode(&mut bytes, version).unwrap();
            let read: BrokerHeartbeatRequest = decode(bytes.freeze(), version).unwrap();
            assert_eq!(
                read.silent_brokers(),
                [(NodeId(7), 1_500), (NodeId(0x0102_0304), i64::from(i32::MAX))]
            );
            request.set_silent_brokers(&[]);
            assert_eq!(request, BrokerHeartbeatRequest::default());
        }
    }

    #[test]
    fn what_is_no_pair_is_left_out() {
        let mut request = BrokerHeartbeatRequest::default();
        request.unknown_tagged_fields.insert(SILENT_BROKERS, vec![0; 11].into());
        assert_eq!(request.silent_brokers(), [(NodeId(0), 0)]);
    }
}
