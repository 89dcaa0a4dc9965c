//! The control records in a snapshot of Kafka's metadata log: those that frame it, and those of the quorum (KIP-853).

messages! {
    /// A leader's term begins.
    message LeaderChangeMessage (data 0, versions "0-1", flexible "0+") {
        version: int16 "0+",
        leader_id: int32 "0+",
        voters: [LeaderChangeVoter] "0+",
        granting_voters: [LeaderChangeVoter] "0+",
    }

    struct LeaderChangeVoter {
        voter_id: int32 "0+",
        voter_directory_id: uuid "1+" ignorable true,
    }

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

    /// The level of the feature kraft.version; without this record it is 0, and the voters are not in the log.
    message KRaftVersionRecord (record 5, versions "0", flexible "0+") {
        version: int16 "0+",
        k_raft_version: int16 "0+",
    }

    /// The voters of the quorum.
    message VotersRecord (record 6, versions "0", flexible "0+") {
        version: int16 "0+",
        voters: [SnapshotVoter] "0+",
    }

    struct SnapshotVoter {
        voter_id: int32 "0+",
        voter_directory_id: uuid "0+",
        endpoints: [SnapshotVoterEndpoint] "0+",
        k_raft_version_feature: SnapshotVoterFeature "0+",
    }

    struct SnapshotVoterEndpoint {
        name: string "0+",
        host: string "0+",
        port: uint16 "0+",
    }

    /// The levels of kraft.version that a voter supports.
    struct SnapshotVoterFeature {
        min_supported_version: int16 "0+",
        max_supported_version: int16 "0+",
    }
}
