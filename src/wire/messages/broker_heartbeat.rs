//! BrokerHeartbeat (key 63). Ours because the crate stops at version 1.
//!
//! - 1: failed log directories (KIP-858). 2: cordoned log directories (KIP-1066).

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
