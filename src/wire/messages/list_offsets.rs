//! ListOffsets (key 2). Ours because the crate stops at version 10.
//!
//! - 2: isolation level, throttle time. 4: leader epochs. 6: flexible. 7: timestamp -3, the largest timestamp
//!   (KIP-734). 8: -4, the local log's start (KIP-405). 9: -5, the last tiered offset (KIP-1005). 10: a timeout for
//!   reads of remote storage (KIP-1075). 11: -6, the earliest offset that is yet to be uploaded (KIP-1023).

messages! {
    message ListOffsetsRequest (request 2, versions "1-11", flexible "6+") {
        /// The broker that asks, -1 for a consumer.
        replica_id: int32 "0+",
        isolation_level: int8 "2+",
        topics: [ListOffsetsTopic] "0+",
        timeout_ms: int32 "10+" ignorable true,
    }
    struct ListOffsetsTopic {
        name: string "0+",
        partitions: [ListOffsetsPartition] "0+",
    }
    struct ListOffsetsPartition {
        partition_index: int32 "0+",
        current_leader_epoch: int32 "4+" ignorable true = -1,
        timestamp: int64 "0+",
    }

    message ListOffsetsResponse (response 2, versions "1-11", flexible "6+") {
        throttle_time_ms: int32 "2+" ignorable true,
        topics: [ListOffsetsTopicResponse] "0+",
    }
    struct ListOffsetsTopicResponse {
        name: string "0+",
        partitions: [ListOffsetsPartitionResponse] "0+",
    }
    struct ListOffsetsPartitionResponse {
        partition_index: int32 "0+",
        error_code: int16 "0+",
        timestamp: int64 "1+" = -1,
        offset: int64 "1+" = -1,
        leader_epoch: int32 "4+" = -1,
    }
}

exchanges! { ListOffsetsRequest => ListOffsetsResponse }
