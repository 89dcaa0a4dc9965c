//! DeleteGroups (key 42). Ours because the crate stops at version 2.
//!
//! - 2: flexible. 3: a message with the error (KIP-1331).

messages! {
    message DeleteGroupsRequest (request 42, versions "0-3", flexible "2+") {
        groups_names: [string] "0+",
    }

    message DeleteGroupsResponse (response 42, versions "0-3", flexible "2+") {
        throttle_time_ms: int32 "0+",
        results: [DeletableGroupResult] "0+",
    }
    struct DeletableGroupResult {
        group_id: string "0+",
        error_code: int16 "0+",
        error_message: string "3+" nullable "3+" ignorable true = null,
    }
}

exchanges! { DeleteGroupsRequest => DeleteGroupsResponse }
