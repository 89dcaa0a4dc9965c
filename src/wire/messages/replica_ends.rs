//! Our own question to a broker: how far the logs of its replicas reach, whether they lead or follow. The active controller
//! asks before it elects a leader that may lack what was committed.

messages! {
    message ReplicaEndsRequest (request 30007, versions "0", flexible "0+") {
        topics: [ReplicaEndsTopic] "0+",
    }
    struct ReplicaEndsTopic {
        topic_id: uuid "0+",
        partitions: [int32] "0+",
    }

    /// Of the replicas that the broker has in service; the others are left out.
    message ReplicaEndsResponse (response 30007, versions "0", flexible "0+") {
        replicas: [ReplicaEnd] "0+",
    }
    struct ReplicaEnd {
        topic_id: uuid "0+",
        partition: int32 "0+",
        /// The leader epoch of the last record, -1 for an empty log.
        leader_epoch: int32 "0+" = -1,
        log_end: int64 "0+",
    }
}

exchanges! {
    ReplicaEndsRequest => ReplicaEndsResponse,
}
