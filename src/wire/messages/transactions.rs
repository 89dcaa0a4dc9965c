//! The records of `__transaction_state` at Kafka 4.4's schemas. A key's first two bytes are its type, a value's first two
//! its version; both are put on and taken off by whoever knows the log (`coordinator::transaction::record`).

messages! {
    /// A transactional id.
    message TransactionLogKey (record 0, versions "0", flexible "none") {
        transactional_id: string "0",
    }
    /// Its producer and its transaction.
    message TransactionLogValue (record 0, versions "0-1", flexible "1+") {
        producer_id: int64 "0+",
        previous_producer_id: int64 "1+" tagged "1+" tag 0 ignorable true = -1,
        next_producer_id: int64 "1+" tagged "1+" tag 1 ignorable true = -1,
        producer_epoch: int16 "0+",
        next_producer_epoch: int16 "1+" tagged "1+" tag 3 ignorable true = -1,
        transaction_timeout_ms: int32 "0+",
        transaction_status: int8 "0+",
        transaction_partitions: [StoredTopicPartitions] "0+" nullable "0+",
        transaction_last_update_timestamp_ms: int64 "0+",
        transaction_start_timestamp_ms: int64 "0+",
        client_transaction_version: int16 "1+" tagged "1+" tag 2 ignorable true,
    }
    struct StoredTopicPartitions {
        topic: string "0+",
        partition_ids: [int32] "0+",
    }
}
