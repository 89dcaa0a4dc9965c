//! TxnOffsetCommit (key 28). Ours because the crate stops at version 5.
//!
//! - 2: leader epochs. 3: flexible, and who the member is (KIP-447). 6: topics by id (KIP-1319).

messages! {
    message TxnOffsetCommitRequest (request 28, versions "0-6", flexible "3+") {
        transactional_id: string "0+",
        group_id: string "0+",
        producer_id: int64 "0+",
        producer_epoch: int16 "0+",
        /// -1 from who is no member.
        generation_id_or_member_epoch: int32 "3+" = -1,
        member_id: string "3+",
        group_instance_id: string "3+" nullable "3+" = null,
        topics: [TxnOffsetCommitRequestTopic] "0+",
    }
    struct TxnOffsetCommitRequestTopic {
        name: string "0-5" ignorable true,
        topic_id: uuid "6+" ignorable true,
        partitions: [TxnOffsetCommitRequestPartition] "0+",
    }
    struct TxnOffsetCommitRequestPartition {
        partition_index: int32 "0+",
        committed_offset: int64 "0+",
        committed_leader_epoch: int32 "2+" ignorable true = -1,
        committed_metadata: string "0+" nullable "0+",
    }

    message TxnOffsetCommitResponse (response 28, versions "0-6", flexible "3+") {
        throttle_time_ms: int32 "0+",
        topics: [TxnOffsetCommitResponseTopic] "0+",
    }
    struct TxnOffsetCommitResponseTopic {
        name: string "0-5" ignorable true,
        topic_id: uuid "6+" ignorable true,
        partitions: [TxnOffsetCommitResponsePartition] "0+",
    }
    struct TxnOffsetCommitResponsePartition {
        partition_index: int32 "0+",
        error_code: int16 "0+",
    }
}

exchanges! { TxnOffsetCommitRequest => TxnOffsetCommitResponse }
