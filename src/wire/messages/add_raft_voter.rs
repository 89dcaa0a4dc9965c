//! AddRaftVoter (key 80, KIP-853). Ours because the crate stops at version 0.
//!
//! - 1: whether the answer waits for the new voters to be committed (KIP-1186).

messages! {
    message AddRaftVoterRequest (request 80, versions "0-1", flexible "0+") {
        cluster_id: string "0+" nullable "0+",
        timeout_ms: int32 "0+",
        voter_id: int32 "0+",
        voter_directory_id: uuid "0+",
        listeners: [AddedVoterListener] "0+",
        ack_when_committed: bool "1+" = true,
    }
    struct AddedVoterListener {
        name: string "0+",
        host: string "0+",
        port: uint16 "0+",
    }

    message AddRaftVoterResponse (response 80, versions "0-1", flexible "0+") {
        throttle_time_ms: int32 "0+",
        error_code: int16 "0+",
        error_message: string "0+" nullable "0+" ignorable true,
    }
}

exchanges! { AddRaftVoterRequest => AddRaftVoterResponse }
