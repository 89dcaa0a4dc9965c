//! The response of Fetch (key 1). Ours, though the crate has all its versions, because its records may be many pieces of
//! the log here: the crate's are one, for which they would have to be copied together.
//!
//! - 5: log start offset. 7: fetch sessions (KIP-227). 11: the replica to read from (KIP-392). 12: flexible, diverging
//!   epochs and the current leader (KIP-595). 13: topic ids for names (KIP-516). 16: the leaders' addresses (KIP-951).
//!
//! `counts_flushed` is ours alone: see `follower_fetch`.

messages! {
    message FetchResponse (response 1, versions "4-18", flexible "12+") {
        throttle_time_ms: int32 "1+" ignorable true,
        error_code: int16 "7+" ignorable true,
        session_id: int32 "7+",
        responses: [FetchableTopicResponse] "0+",
        node_endpoints: [NodeEndpoint] "16+" tagged "16+" tag 0 ignorable true,
    }
    struct FetchableTopicResponse {
        topic: string "0-12" ignorable true,
        topic_id: uuid "13+" ignorable true,
        partitions: [PartitionData] "0+",
    }
    struct PartitionData {
        partition_index: int32 "0+",
        error_code: int16 "0+",
        high_watermark: int64 "0+",
        last_stable_offset: int64 "4+" ignorable true = -1,
        log_start_offset: int64 "5+" ignorable true = -1,
        diverging_epoch: EpochEndOffset "12+" tagged "12+" tag 0 ignorable true,
        current_leader: LeaderIdAndEpoch "12+" tagged "12+" tag 1 ignorable true,
        snapshot_id: SnapshotId "12+" tagged "12+" tag 2 ignorable true,
        counts_flushed: bool "12+" tagged "12+" tag 10000 ignorable true,
        aborted_transactions: [AbortedTransaction] "4+" nullable "4+" ignorable true,
        preferred_read_replica: int32 "11+" = -1,
        records: records "0+" nullable "0+",
    }
    struct EpochEndOffset {
        epoch: int32 "12+" = -1,
        end_offset: int64 "12+" = -1,
    }
    struct LeaderIdAndEpoch {
        leader_id: int32 "12+" = -1,
        leader_epoch: int32 "12+" = -1,
    }
    struct SnapshotId {
        end_offset: int64 "0+" = -1,
        epoch: int32 "0+" = -1,
    }
    struct AbortedTransaction {
        producer_id: int64 "4+",
        first_offset: int64 "4+",
    }
    struct NodeEndpoint {
        node_id: int32 "16+",
        host: string "16+",
        port: int32 "16+",
        rack: string "16+" nullable "16+" = null,
    }
}
