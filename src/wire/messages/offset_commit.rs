//! OffsetCommit (key 8). Ours because the crate's request stops at version 9.
//!
//! - 5: no retention time. 6: leader epochs. 7: static members. 8: flexible. 9: member epochs (KIP-848). 10: topics by id.

messages! {
    message OffsetCommitRequest (request 8, versions "2-10", flexible "8+") {
        group_id: string "0+",
        /// The generation, or the epoch of a member of a consumer group; -1 from who is no member.
        generation_id_or_member_epoch: int32 "1+" ignorable true = -1,
        member_id: string "1+" ignorable true,
        group_instance_id: string "7+" nullable "7+" = null,
        /// -1 for that of the broker.
        retention_time_ms: int64 "2-4" ignorable true = -1,
        topics: [OffsetCommitRequestTopic] "0+",
    }
    struct OffsetCommitRequestTopic {
        name: string "0-9" ignorable true,
        topic_id: uuid "10+" ignorable true,
        partitions: [OffsetCommitRequestPartition] "0+",
    }
    struct OffsetCommitRequestPartition {
        partition_index: int32 "0+",
        committed_offset: int64 "0+",
        committed_leader_epoch: int32 "6+" ignorable true = -1,
        committed_metadata: string "0+" nullable "0+",
    }

    message OffsetCommitResponse (response 8, versions "2-10", flexible "8+") {
        throttle_time_ms: int32 "3+" ignorable true,
        topics: [OffsetCommitResponseTopic] "0+",
    }
    struct OffsetCommitResponseTopic {
        name: string "0-9" ignorable true,
        topic_id: uuid "10+" ignorable true,
        partitions: [OffsetCommitResponsePartition] "0+",
    }
    struct OffsetCommitResponsePartition {
        partition_index: int32 "0+",
        error_code: int16 "0+",
    }
}

exchanges! { OffsetCommitRequest => OffsetCommitResponse }
