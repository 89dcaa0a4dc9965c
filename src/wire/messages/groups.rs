//! The records of `__consumer_offsets` at Kafka 4.4's schemas: keys and values by record type. A key's first two bytes are
//! its type, a value's first two its version; both are put on and taken off by whoever knows the log
//! (`coordinator::group::record`).

messages! {
    /// An offset as brokers before 0.9 wrote it; read only.
    message LegacyOffsetCommitKey (record 0, versions "0", flexible "none") {
        group: string "0",
        topic: string "0",
        partition: int32 "0",
    }
    message LegacyOffsetCommitValue (record 0, versions "0", flexible "none") {
        offset: int64 "0",
        metadata: string "0",
        commit_timestamp: int64 "0",
    }

    /// The committed offset of a partition.
    message OffsetCommitKey (record 1, versions "0", flexible "none") {
        group: string "0",
        topic: string "0",
        partition: int32 "0",
    }
    message OffsetCommitValue (record 1, versions "0-4", flexible "4+") {
        offset: int64 "0+",
        leader_epoch: int32 "3+" ignorable true = -1,
        metadata: string "0+",
        commit_timestamp: int64 "0+",
        expire_timestamp: int64 "1" ignorable true = -1,
        topic_id: uuid "4+" tagged "4+" tag 0 ignorable true,
    }

    /// A classic group at the end of a rebalance.
    message GroupMetadataKey (record 2, versions "0", flexible "none") {
        group: string "0",
    }
    message GroupMetadataValue (record 2, versions "0-4", flexible "4+") {
        protocol_type: string "0+",
        generation: int32 "0+",
        protocol: string "0+" nullable "0+",
        leader: string "0+" nullable "0+",
        current_state_timestamp: int64 "2+" ignorable true = -1,
        members: [GroupMetadataMember] "0+",
    }
    struct GroupMetadataMember {
        member_id: string "0+",
        group_instance_id: string "3+" nullable "3+" ignorable true = null,
        client_id: string "0+",
        client_host: string "0+",
        rebalance_timeout: int32 "1+" ignorable true = -1,
        session_timeout: int32 "0+",
        subscription: bytes "0+",
        assignment: bytes "0+",
    }

    /// The epoch of a consumer group.
    message ConsumerGroupMetadataKey (record 3, versions "0", flexible "none") {
        group_id: string "0",
    }
    message ConsumerGroupMetadataValue (record 3, versions "0", flexible "0+") {
        epoch: int32 "0+",
        metadata_hash: int64 "0+" tagged "0+" tag 0 ignorable true,
    }

    /// What a consumer group knew of its topics, in Kafka 4.0; only deleted since.
    message ConsumerGroupPartitionMetadataKey (record 4, versions "0", flexible "none") {
        group_id: string "0",
    }
    message ConsumerGroupPartitionMetadataValue (record 4, versions "0", flexible "0+") {
        topics: [KnownTopic] "0+",
    }
    struct KnownTopic {
        topic_id: uuid "0+",
        topic_name: string "0+",
        num_partitions: int32 "0+",
        partition_metadata: [KnownPartition] "0+",
    }
    struct KnownPartition { partition: int32 "0+", racks: [string] "0+" }

    /// A member's subscription.
    message ConsumerGroupMemberMetadataKey (record 5, versions "0", flexible "none") {
        group_id: string "0",
        member_id: string "0",
    }
    message ConsumerGroupMemberMetadataValue (record 5, versions "0", flexible "0+") {
        instance_id: string "0+" nullable "0+",
        rack_id: string "0+" nullable "0+",
        client_id: string "0+",
        client_host: string "0+",
        subscribed_topic_names: [string] "0+",
        subscribed_topic_regex: string "0+" nullable "0+",
        rebalance_timeout_ms: int32 "0+" = -1,
        server_assignor: string "0+" nullable "0+",
        /// Null of a member that speaks the consumer protocol. Kafka writes that down: left out, it is an empty one.
        classic_member_metadata: StoredClassicMember "0+" nullable "0+" tagged "0+" tag 0,
    }
    /// What a member that speaks the classic protocol said when it joined a consumer group.
    struct StoredClassicMember {
        session_timeout_ms: int32 "0+",
        supported_protocols: [StoredClassicProtocol] "0+",
    }
    struct StoredClassicProtocol { name: string "0+", metadata: bytes "0+" }

    /// The epoch of a consumer group's target assignment.
    message ConsumerGroupTargetAssignmentMetadataKey (record 6, versions "0", flexible "none") {
        group_id: string "0",
    }
    message ConsumerGroupTargetAssignmentMetadataValue (record 6, versions "0", flexible "0+") {
        assignment_epoch: int32 "0+",
        assignment_timestamp: int64 "0+" tagged "0+" tag 0 ignorable true,
    }

    /// What a member is to have.
    message ConsumerGroupTargetAssignmentMemberKey (record 7, versions "0", flexible "none") {
        group_id: string "0",
        member_id: string "0",
    }
    message ConsumerGroupTargetAssignmentMemberValue (record 7, versions "0", flexible "0+") {
        topic_partitions: [TargetTopicPartitions] "0+",
    }
    struct TargetTopicPartitions { topic_id: uuid "0+", partitions: [int32] "0+" }

    /// What a member has.
    message ConsumerGroupCurrentMemberAssignmentKey (record 8, versions "0", flexible "none") {
        group_id: string "0",
        member_id: string "0",
    }
    message ConsumerGroupCurrentMemberAssignmentValue (record 8, versions "0", flexible "0+") {
        member_epoch: int32 "0+",
        previous_member_epoch: int32 "0+",
        state: int8 "0+",
        assigned_partitions: [CurrentTopicPartitions] "0+",
        partitions_pending_revocation: [CurrentTopicPartitions] "0+",
    }
    struct CurrentTopicPartitions {
        topic_id: uuid "0+",
        partitions: [int32] "0+",
        assignment_epochs: [int32] "0+" nullable "0+" tagged "0+" tag 0,
    }

    /// The topics that a regular expression matched.
    message ConsumerGroupRegularExpressionKey (record 16, versions "0", flexible "none") {
        group_id: string "0",
        regular_expression: string "0",
    }
    message ConsumerGroupRegularExpressionValue (record 16, versions "0", flexible "0+") {
        topics: [string] "0+",
        version: int64 "0+",
        timestamp: int64 "0+",
    }
}
