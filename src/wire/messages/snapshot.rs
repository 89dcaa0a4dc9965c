//! The control records that frame a snapshot of Kafka's metadata log.

messages! {
    /// Opens a snapshot.
    message SnapshotHeaderRecord (record 3, versions "0", flexible "0+") {
        version: int16 "0+",
        /// When the last record that the snapshot stands for was appended.
        last_contained_log_timestamp: int64 "0+",
    }

    /// Closes a snapshot; one without it is not whole.
    message SnapshotFooterRecord (record 4, versions "0", flexible "0+") {
        version: int16 "0+",
    }
}
