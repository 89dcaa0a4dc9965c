//! DescribeLogDirs (key 35). Ours because the crate stops at version 4.
//!
//! - 2: flexible. 3: an error code for the whole answer. 4: size and free space of the volume (KIP-827).
//!   5: whether a directory is cordoned, that is closed to new partitions (KIP-1066).

messages! {
    message DescribeLogDirsRequest (request 35, versions "1-5", flexible "2+") {
        /// None for all topics.
        topics: [DescribableLogDirTopic] "0+" nullable "0+",
    }
    struct DescribableLogDirTopic {
        topic: string "0+",
        partitions: [int32] "0+",
    }

    message DescribeLogDirsResponse (response 35, versions "1-5", flexible "2+") {
        throttle_time_ms: int32 "0+",
        error_code: int16 "3+" ignorable true,
        results: [DescribeLogDirsResult] "0+",
    }
    struct DescribeLogDirsResult {
        error_code: int16 "0+",
        /// The directory's absolute path.
        log_dir: string "0+",
        topics: [DescribeLogDirsTopic] "0+",
        total_bytes: int64 "4+" ignorable true = -1,
        usable_bytes: int64 "4+" ignorable true = -1,
        is_cordoned: bool "5+" ignorable true,
    }
    struct DescribeLogDirsTopic {
        name: string "0+",
        partitions: [DescribeLogDirsPartition] "0+",
    }
    struct DescribeLogDirsPartition {
        partition_index: int32 "0+",
        partition_size: int64 "0+",
        /// How far the log is behind the high watermark, or a future log behind the current one.
        offset_lag: int64 "0+",
        /// True for a log that is being moved here.
        is_future_key: bool "0+",
    }
}

exchanges! { DescribeLogDirsRequest => DescribeLogDirsResponse }
