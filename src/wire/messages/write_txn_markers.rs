//! WriteTxnMarkers (key 27). Ours because the crate stops at version 1.
//!
//! - 1: flexible. 2: the version of transactions by which a marker's epoch is judged (KIP-1228).

messages! {
    message WriteTxnMarkersRequest (request 27, versions "1-2", flexible "1+") {
        markers: [WritableTxnMarker] "0+",
    }
    struct WritableTxnMarker {
        producer_id: int64 "0+",
        producer_epoch: int16 "0+",
        /// True to commit, false to abort.
        transaction_result: bool "0+",
        topics: [WritableTxnMarkerTopic] "0+",
        coordinator_epoch: int32 "0+",
        transaction_version: int8 "2+" ignorable true,
    }
    struct WritableTxnMarkerTopic {
        name: string "0+",
        partition_indexes: [int32] "0+",
    }

    message WriteTxnMarkersResponse (response 27, versions "1-2", flexible "1+") {
        markers: [WritableTxnMarkerResult] "0+",
    }
    struct WritableTxnMarkerResult {
        producer_id: int64 "0+",
        topics: [WritableTxnMarkerTopicResult] "0+",
    }
    struct WritableTxnMarkerTopicResult {
        name: string "0+",
        partitions: [WritableTxnMarkerPartitionResult] "0+",
    }
    struct WritableTxnMarkerPartitionResult {
        partition_index: int32 "0+",
        error_code: int16 "0+",
    }
}

exchanges! { WriteTxnMarkersRequest => WriteTxnMarkersResponse }
