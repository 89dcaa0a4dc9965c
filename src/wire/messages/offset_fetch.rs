//! OffsetFetch (key 9). Ours because the crate's request stops at version 9.
//!
//! - 2: all topics of a group, and an error code for the whole. 5: leader epochs. 6: flexible. 7: stable offsets only
//!   (KIP-447). 8: several groups. 9: who the member is (KIP-848). 10: topics by id.

messages! {
    message OffsetFetchRequest (request 9, versions "1-10", flexible "6+") {
        group_id: string "0-7",
        /// None for all.
        topics: [OffsetFetchRequestTopic] "0-7" nullable "2-7",
        groups: [OffsetFetchRequestGroup] "8+",
        require_stable: bool "7+",
    }
    struct OffsetFetchRequestTopic {
        name: string "0-7",
        partition_indexes: [int32] "0-7",
    }
    struct OffsetFetchRequestGroup {
        group_id: string "8+",
        member_id: string "9+" nullable "9+" ignorable true = null,
        member_epoch: int32 "9+" ignorable true = -1,
        /// None for all.
        topics: [OffsetFetchRequestTopics] "8+" nullable "8+",
    }
    struct OffsetFetchRequestTopics {
        name: string "8-9" ignorable true,
        topic_id: uuid "10+" ignorable true,
        partition_indexes: [int32] "8+",
    }

    message OffsetFetchResponse (response 9, versions "1-10", flexible "6+") {
        throttle_time_ms: int32 "3+" ignorable true,
        topics: [OffsetFetchResponseTopic] "0-7",
        error_code: int16 "2-7" ignorable true,
        groups: [OffsetFetchResponseGroup] "8+",
    }
    struct OffsetFetchResponseTopic {
        name: string "0-7",
        partitions: [OffsetFetchResponsePartition] "0-7",
    }
    struct OffsetFetchResponsePartition {
        partition_index: int32 "0-7",
        committed_offset: int64 "0-7",
        committed_leader_epoch: int32 "5-7" ignorable true = -1,
        metadata: string "0-7" nullable "0-7",
        error_code: int16 "0-7",
    }
    struct OffsetFetchResponseGroup {
        group_id: string "8+",
        topics: [OffsetFetchResponseTopics] "8+",
        error_code: int16 "8+",
    }
    struct OffsetFetchResponseTopics {
        name: string "8-9" ignorable true,
        topic_id: uuid "10+" ignorable true,
        partitions: [OffsetFetchResponsePartitions] "8+",
    }
    struct OffsetFetchResponsePartitions {
        partition_index: int32 "8+",
        committed_offset: int64 "8+",
        committed_leader_epoch: int32 "8+" ignorable true = -1,
        metadata: string "8+" nullable "8+",
        error_code: int16 "8+",
    }
}

exchanges! { OffsetFetchRequest => OffsetFetchResponse }
