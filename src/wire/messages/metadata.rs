//! Kafka's metadata records at their 4.4 schemas, by record type. They are what the Raft log and its snapshots hold;
//! which version of each is written is `metadata::record`'s to know.

messages! {
    /// A broker process has joined; `broker_epoch` identifies this registration.
    message RegisterBrokerRecord (metadata 0, versions "0-4", flexible "0+") {
        broker_id: int32 "0+",
        is_migrating_zk_broker: bool "2+",
        incarnation_id: uuid "0+",
        broker_epoch: int64 "0+",
        end_points: [BrokerEndpoint] "0+",
        features: [BrokerFeature] "0+",
        rack: string "0+" nullable "0+",
        fenced: bool "0+" = true,
        in_controlled_shutdown: bool "1+",
        log_dirs: [uuid] "3+" tagged "3+" tag 0,
        cordoned_log_dirs: [uuid] "4+" nullable "4+" tagged "4+" tag 1 = null,
    }
    /// Where a broker listens.
    struct BrokerEndpoint {
        name: string "0+",
        host: string "0+",
        port: uint16 "0+",
        security_protocol: int16 "0+",
    }
    /// The levels of a feature that a broker supports.
    struct BrokerFeature {
        name: string "0+",
        min_supported_version: int16 "0+",
        max_supported_version: int16 "0+",
    }

    /// A broker is gone for good.
    message UnregisterBrokerRecord (metadata 1, versions "0", flexible "0+") {
        broker_id: int32 "0+",
        broker_epoch: int64 "0+",
    }

    /// A topic exists.
    message TopicRecord (metadata 2, versions "0", flexible "0+") {
        name: string "0+",
        topic_id: uuid "0+",
    }

    /// A partition as it was created, or as a snapshot finds it.
    message PartitionRecord (metadata 3, versions "0-2", flexible "0+") {
        partition_id: int32 "0+" = -1,
        topic_id: uuid "0+",
        replicas: [int32] "0+",
        isr: [int32] "0+",
        removing_replicas: [int32] "0+",
        adding_replicas: [int32] "0+",
        leader: int32 "0+" = -1,
        /// 0 recovered, 1 recovering from an unclean election.
        leader_recovery_state: int8 "0+" tagged "0+" tag 0,
        leader_epoch: int32 "0+" = -1,
        partition_epoch: int32 "0+" = -1,
        /// The log directory of each replica, in the order of `replicas`.
        directories: [uuid] "1+",
        eligible_leader_replicas: [int32] "2+" nullable "2+" tagged "2+" tag 1 = null,
        last_known_elr: [int32] "2+" nullable "2+" tagged "2+" tag 2 = null,
        /// Ours alone: the epoch of the last leader that was elected uncleanly; in Kafka's log that is known from the changes.
        lossy_epoch: int32 "0+" tagged "0+" tag 10000 = -1,
    }

    /// One configuration value of a resource; a null value removes it.
    message ConfigRecord (metadata 4, versions "0", flexible "0+") {
        resource_type: int8 "0+",
        resource_name: string "0+",
        name: string "0+",
        value: string "0+" nullable "0+",
    }

    /// What changed in a partition; fields at their default did not.
    message PartitionChangeRecord (metadata 5, versions "0-2", flexible "0+") {
        partition_id: int32 "0+" = -1,
        topic_id: uuid "0+",
        isr: [int32] "0+" nullable "0+" tagged "0+" tag 0 = null,
        /// -1 none, -2 as before.
        leader: int32 "0+" tagged "0+" tag 1 = -2,
        replicas: [int32] "0+" nullable "0+" tagged "0+" tag 2 = null,
        removing_replicas: [int32] "0+" nullable "0+" tagged "0+" tag 3 = null,
        adding_replicas: [int32] "0+" nullable "0+" tagged "0+" tag 4 = null,
        /// -1 as before, 0 recovered, 1 recovering from an unclean election.
        leader_recovery_state: int8 "0+" tagged "0+" tag 5 = -1,
        directories: [uuid] "1+" nullable "1+" tagged "1+" tag 8 = null,
        eligible_leader_replicas: [int32] "2+" nullable "2+" tagged "2+" tag 6 = null,
        last_known_elr: [int32] "2+" nullable "2+" tagged "2+" tag 7 = null,
    }

    /// A broker is no longer to lead or be in sync (written before metadata.version 3.3-IV3).
    message FenceBrokerRecord (metadata 7, versions "0", flexible "0+") {
        id: int32 "0+",
        epoch: int64 "0+",
    }

    /// A broker may serve again (written before metadata.version 3.3-IV3).
    message UnfenceBrokerRecord (metadata 8, versions "0", flexible "0+") {
        id: int32 "0+",
        epoch: int64 "0+",
    }

    /// A topic and all its partitions are gone.
    message RemoveTopicRecord (metadata 9, versions "0", flexible "0+") {
        topic_id: uuid "0+",
    }

    /// A delegation token as it now stands.
    message DelegationTokenRecord (metadata 10, versions "0", flexible "0+") {
        owner: string "0+",
        requester: string "0+",
        renewers: [string] "0+",
        issue_timestamp: int64 "0+",
        max_timestamp: int64 "0+",
        expiration_timestamp: int64 "0+",
        token_id: string "0+",
    }

    /// The SCRAM credential of a user for one mechanism.
    message UserScramCredentialRecord (metadata 11, versions "0", flexible "0+") {
        name: string "0+",
        mechanism: int8 "0+",
        salt: bytes "0+",
        stored_key: bytes "0+",
        server_key: bytes "0+",
        iterations: int32 "0+",
    }

    /// The finalized level of a feature; 0 is off.
    message FeatureLevelRecord (metadata 12, versions "0", flexible "0+") {
        name: string "0+",
        feature_level: int16 "0+",
    }

    /// One quota value of an entity.
    message ClientQuotaRecord (metadata 14, versions "0", flexible "0+") {
        entity: [EntityData] "0+",
        key: string "0+",
        value: float64 "0+",
        remove: bool "0+",
    }
    /// One part of a quota entity: user, client-id or ip; a null name is the default.
    struct EntityData {
        entity_type: string "0+",
        entity_name: string "0+" nullable "0+",
    }

    /// Producer ids below `next_producer_id` are given away.
    message ProducerIdsRecord (metadata 15, versions "0", flexible "0+") {
        broker_id: int32 "0+",
        broker_epoch: int64 "0+" = -1,
        next_producer_id: int64 "0+",
    }

    /// What changed in a registration; fields at their default did not.
    message BrokerRegistrationChangeRecord (metadata 17, versions "0-3", flexible "0+") {
        broker_id: int32 "0+",
        broker_epoch: int64 "0+",
        /// -1 unfenced, 0 as before, 1 fenced.
        fenced: int8 "0+" tagged "0+" tag 0,
        /// 0 as before, 1 shutting down.
        in_controlled_shutdown: int8 "1+" tagged "1+" tag 1,
        log_dirs: [uuid] "2+" tagged "2+" tag 2,
        cordoned_log_dirs: [uuid] "3+" nullable "3+" tagged "3+" tag 3 = null,
    }

    /// One ACL.
    message AccessControlEntryRecord (metadata 18, versions "0", flexible "0+") {
        id: uuid "0+",
        resource_type: int8 "0+",
        resource_name: string "0+",
        pattern_type: int8 "0+",
        principal: string "0+",
        host: string "0+",
        operation: int8 "0+",
        permission_type: int8 "0+",
    }

    /// An ACL is gone.
    message RemoveAccessControlEntryRecord (metadata 19, versions "0", flexible "0+") {
        id: uuid "0+",
    }

    /// Nothing; shows that the log moves.
    message NoOpRecord (metadata 20, versions "0", flexible "0+") {}

    /// Where a migration from ZooKeeper stood; only old logs hold it.
    message ZkMigrationStateRecord (metadata 21, versions "0", flexible "0+") {
        zk_migration_state: int8 "0+",
    }

    /// A SCRAM credential is gone.
    message RemoveUserScramCredentialRecord (metadata 22, versions "0", flexible "0+") {
        name: string "0+",
        mechanism: int8 "0+",
    }

    /// The records up to the matching end take effect together.
    message BeginTransactionRecord (metadata 23, versions "0", flexible "0+") {
        name: string "0+" nullable "0+" tagged "0+" tag 0 = null,
    }

    /// The records since the begin take effect.
    message EndTransactionRecord (metadata 24, versions "0", flexible "0+") {}

    /// The records since the begin never happened.
    message AbortTransactionRecord (metadata 25, versions "0", flexible "0+") {
        reason: string "0+" nullable "0+" tagged "0+" tag 0 = null,
    }

    /// A delegation token is gone.
    message RemoveDelegationTokenRecord (metadata 26, versions "0", flexible "0+") {
        token_id: string "0+",
    }

    /// A controller process has joined.
    message RegisterControllerRecord (metadata 27, versions "0", flexible "0+") {
        controller_id: int32 "0+",
        incarnation_id: uuid "0+",
        zk_migration_ready: bool "0+",
        end_points: [ControllerEndpoint] "0+",
        features: [ControllerFeature] "0+",
    }
    /// Where a controller listens.
    struct ControllerEndpoint {
        name: string "0+",
        host: string "0+",
        port: uint16 "0+",
        security_protocol: int16 "0+",
    }
    /// The levels of a feature that a controller supports.
    struct ControllerFeature {
        name: string "0+",
        min_supported_version: int16 "0+",
        max_supported_version: int16 "0+",
    }

    /// Eligible leader replicas of a topic, or of all when the name is empty, are forgotten.
    message ClearElrRecord (metadata 28, versions "0", flexible "0+") {
        topic_name: string "0+",
    }

    /// A controller is gone for good.
    message UnregisterControllerRecord (metadata 29, versions "0", flexible "0+") {
        controller_id: int32 "0+",
    }
}
