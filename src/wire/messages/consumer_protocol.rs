//! What consumers of the classic protocol say to each other inside of JoinGroup and SyncGroup, at Kafka 4.4's schemas. The
//! group coordinator reads and writes it for the members of a consumer group that speak the classic protocol. Each is
//! preceded by its version, an int16.

messages! {
    /// A member's subscription: the metadata of its protocols.
    message ConsumerProtocolSubscription (data 0, versions "0-3", flexible "none") {
        topics: [string] "0+",
        user_data: bytes "0+" nullable "0+" = null,
        owned_partitions: [ConsumerProtocolPartitions] "1+" ignorable true,
        generation_id: int32 "2+" ignorable true = -1,
        rack_id: string "3+" nullable "3+" ignorable true = null,
    }

    /// What a member is assigned.
    message ConsumerProtocolAssignment (data 0, versions "0-3", flexible "none") {
        assigned_partitions: [ConsumerProtocolPartitions] "0+",
        user_data: bytes "0+" nullable "0+" = null,
    }

    struct ConsumerProtocolPartitions { topic: string "0+", partitions: [int32] "0+" }
}
