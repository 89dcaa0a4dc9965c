//! THE table of served APIs: keys, names, versions, listeners, message types and handlers. Dispatch, ApiVersions, the
//! frames, the documentation and the golden tests are all made from it; an API that is not here is not served.
//!
//! Knows nothing of what a handler does: handler names are tokens that only `api` resolves.
//!
//! Invariant: rows are in the order of their keys, and every row's versions are within those of its message types
//! (both tested).

/// Which kinds of listener serve an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listeners {
    pub broker: bool,
    pub controller: bool,
}

/// A row of the table, without types: what can be known of an API at run time.
#[derive(Debug, PartialEq, Eq)]
pub struct ApiRow {
    pub key: i16,
    /// Kafka's name, such as `ListOffsets`.
    pub name: &'static str,
    /// Served versions, both inclusive.
    pub min: i16,
    pub max: i16,
    /// The first version with compact lengths and tagged fields; `None` if the API never became flexible.
    pub flexible_from: Option<i16>,
    pub listeners: Listeners,
    /// The lowest version that ApiVersions tells; below `min` only for Produce.
    pub advertised_min: i16,
}

impl ApiRow {
    /// The row of a served API.
    pub fn of(key: i16) -> Option<&'static ApiRow> {
        API_TABLE.binary_search_by_key(&key, |row| row.key).ok().map(|index| &API_TABLE[index])
    }

    /// Whether clients are told of the API: not of our own ones.
    pub fn is_told(&self) -> bool {
        !is_private(self.key)
    }

    pub fn serves(&self, version: i16) -> bool {
        (self.min..=self.max).contains(&version)
    }

    pub fn is_flexible(&self, version: i16) -> bool {
        self.flexible_from.is_some_and(|first| version >= first)
    }

    /// The version of the header of a request; none of the served APIs has the ancient header 0.
    pub fn request_header_version(&self, version: i16) -> i16 {
        if self.is_flexible(version) { 2 } else { 1 }
    }

    /// The version of the header of a response. That of ApiVersions stays 0, so that a client can read the refusal of
    /// a version that the broker does not know (KIP-511).
    pub fn response_header_version(&self, version: i16) -> i16 {
        i16::from(self.is_flexible(version) && self.key != API_VERSIONS)
    }
}

/// The key of ApiVersions, which has rules of its own in the frames.
pub const API_VERSIONS: i16 = 18;

/// The key of our own question whether a node serves, which is answered before it does.
pub const READINESS: i16 = 30_008;

/// From this key on APIs are our own: nodes and commands of Floodmark call each other by them, and nobody else is told of them.
const FIRST_PRIVATE: i16 = 30_000;

/// Whether an API is our own and not Kafka's.
pub fn is_private(key: i16) -> bool {
    key >= FIRST_PRIVATE
}

/// Calls the macro `$callback` with all rows of the table:
///
/// ```text
/// { KEY, Name, MIN..=MAX, flexible FIRST, [listeners], advertised MIN, RequestType => ResponseType, handler path }
/// ```
///
/// `Name` is an identifier, the types are full paths, the handler's path is relative to `api`.
#[macro_export]
macro_rules! for_each_api {
    ($callback:path) => {
        $callback! {
            // Produce is told from version 0 on although 0-2 are refused: librdkafka takes a broker that does not
            // list them for one without compression (KAFKA-18659).
            { 0, Produce, 3..=13, flexible 9, [broker], advertised 0,
              $crate::wire::messages::ProduceRequest => $crate::wire::messages::ProduceResponse, produce::handle }
            // Controllers of Kafka's serve their metadata log by it; ours is not to be had that way.
            { 1, Fetch, 4..=18, flexible 12, [broker], advertised 4,
              $crate::wire::messages::FetchRequest => $crate::wire::messages::FetchResponse, fetch::handle }
            { 2, ListOffsets, 1..=11, flexible 6, [broker], advertised 1,
              $crate::wire::messages::ListOffsetsRequest => $crate::wire::messages::ListOffsetsResponse,
              list_offsets::handle }
            { 3, Metadata, 0..=13, flexible 9, [broker], advertised 0,
              $crate::wire::messages::MetadataRequest => $crate::wire::messages::MetadataResponse, metadata::handle }
            { 8, OffsetCommit, 2..=10, flexible 8, [broker], advertised 2,
              $crate::wire::messages::OffsetCommitRequest => $crate::wire::messages::OffsetCommitResponse,
              offset_commit::handle }
            { 9, OffsetFetch, 1..=10, flexible 6, [broker], advertised 1,
              $crate::wire::messages::OffsetFetchRequest => $crate::wire::messages::OffsetFetchResponse,
              offset_fetch::handle }
            { 10, FindCoordinator, 0..=6, flexible 3, [broker], advertised 0,
              $crate::wire::messages::FindCoordinatorRequest => $crate::wire::messages::FindCoordinatorResponse,
              find_coordinator::handle }
            { 11, JoinGroup, 0..=9, flexible 6, [broker], advertised 0,
              $crate::wire::messages::JoinGroupRequest => $crate::wire::messages::JoinGroupResponse,
              join_group::handle }
            { 12, Heartbeat, 0..=4, flexible 4, [broker], advertised 0,
              $crate::wire::messages::HeartbeatRequest => $crate::wire::messages::HeartbeatResponse,
              heartbeat::handle }
            { 13, LeaveGroup, 0..=5, flexible 4, [broker], advertised 0,
              $crate::wire::messages::LeaveGroupRequest => $crate::wire::messages::LeaveGroupResponse,
              leave_group::handle }
            { 14, SyncGroup, 0..=5, flexible 4, [broker], advertised 0,
              $crate::wire::messages::SyncGroupRequest => $crate::wire::messages::SyncGroupResponse,
              sync_group::handle }
            { 15, DescribeGroups, 0..=6, flexible 5, [broker], advertised 0,
              $crate::wire::messages::DescribeGroupsRequest => $crate::wire::messages::DescribeGroupsResponse,
              describe_groups::handle }
            { 16, ListGroups, 0..=5, flexible 3, [broker], advertised 0,
              $crate::wire::messages::ListGroupsRequest => $crate::wire::messages::ListGroupsResponse,
              list_groups::handle }
            { 18, ApiVersions, 0..=5, flexible 3, [broker, controller], advertised 0,
              $crate::wire::messages::ApiVersionsRequest => $crate::wire::messages::ApiVersionsResponse,
              api_versions::handle }
            { 19, CreateTopics, 2..=7, flexible 5, [broker, controller], advertised 2,
              $crate::wire::messages::CreateTopicsRequest => $crate::wire::messages::CreateTopicsResponse,
              create_topics::handle }
            { 20, DeleteTopics, 1..=6, flexible 4, [broker, controller], advertised 1,
              $crate::wire::messages::DeleteTopicsRequest => $crate::wire::messages::DeleteTopicsResponse,
              delete_topics::handle }
            { 21, DeleteRecords, 0..=2, flexible 2, [broker], advertised 0,
              $crate::wire::messages::DeleteRecordsRequest => $crate::wire::messages::DeleteRecordsResponse,
              delete_records::handle }
            // Version 6 (two-phase commit, KIP-939) is unstable in Kafka 4.4 and not served by it.
            { 22, InitProducerId, 0..=5, flexible 2, [broker], advertised 0,
              $crate::wire::messages::InitProducerIdRequest => $crate::wire::messages::InitProducerIdResponse,
              init_producer_id::handle }
            { 23, OffsetForLeaderEpoch, 2..=4, flexible 4, [broker], advertised 2,
              $crate::wire::messages::OffsetForLeaderEpochRequest
                  => $crate::wire::messages::OffsetForLeaderEpochResponse,
              offset_for_leader_epoch::handle }
            // From version 4 on of brokers, for several transactions.
            { 24, AddPartitionsToTxn, 0..=5, flexible 3, [broker], advertised 0,
              $crate::wire::messages::AddPartitionsToTxnRequest
                  => $crate::wire::messages::AddPartitionsToTxnResponse,
              add_partitions_to_txn::handle }
            { 25, AddOffsetsToTxn, 0..=4, flexible 3, [broker], advertised 0,
              $crate::wire::messages::AddOffsetsToTxnRequest => $crate::wire::messages::AddOffsetsToTxnResponse,
              add_offsets_to_txn::handle }
            { 26, EndTxn, 0..=5, flexible 3, [broker], advertised 0,
              $crate::wire::messages::EndTxnRequest => $crate::wire::messages::EndTxnResponse,
              end_txn::handle }
            { 27, WriteTxnMarkers, 1..=2, flexible 1, [broker], advertised 1,
              $crate::wire::messages::WriteTxnMarkersRequest => $crate::wire::messages::WriteTxnMarkersResponse,
              write_txn_markers::handle }
            { 28, TxnOffsetCommit, 0..=6, flexible 3, [broker], advertised 0,
              $crate::wire::messages::TxnOffsetCommitRequest => $crate::wire::messages::TxnOffsetCommitResponse,
              txn_offset_commit::handle }
            { 32, DescribeConfigs, 1..=4, flexible 4, [broker, controller], advertised 1,
              $crate::wire::messages::DescribeConfigsRequest => $crate::wire::messages::DescribeConfigsResponse,
              describe_configs::handle }
            { 33, AlterConfigs, 0..=2, flexible 2, [broker, controller], advertised 0,
              $crate::wire::messages::AlterConfigsRequest => $crate::wire::messages::AlterConfigsResponse,
              alter_configs::handle }
            { 34, AlterReplicaLogDirs, 1..=2, flexible 2, [broker], advertised 1,
              $crate::wire::messages::AlterReplicaLogDirsRequest
                  => $crate::wire::messages::AlterReplicaLogDirsResponse,
              alter_replica_log_dirs::handle }
            { 35, DescribeLogDirs, 1..=5, flexible 2, [broker], advertised 1,
              $crate::wire::messages::DescribeLogDirsRequest => $crate::wire::messages::DescribeLogDirsResponse,
              describe_log_dirs::handle }
            { 37, CreatePartitions, 0..=3, flexible 2, [broker, controller], advertised 0,
              $crate::wire::messages::CreatePartitionsRequest => $crate::wire::messages::CreatePartitionsResponse,
              create_partitions::handle }
            { 42, DeleteGroups, 0..=3, flexible 2, [broker], advertised 0,
              $crate::wire::messages::DeleteGroupsRequest => $crate::wire::messages::DeleteGroupsResponse,
              delete_groups::handle }
            { 43, ElectLeaders, 0..=2, flexible 2, [broker, controller], advertised 0,
              $crate::wire::messages::ElectLeadersRequest => $crate::wire::messages::ElectLeadersResponse,
              elect_leaders::handle }
            { 44, IncrementalAlterConfigs, 0..=1, flexible 1, [broker, controller], advertised 0,
              $crate::wire::messages::IncrementalAlterConfigsRequest
                  => $crate::wire::messages::IncrementalAlterConfigsResponse,
              incremental_alter_configs::handle }
            { 45, AlterPartitionReassignments, 0..=1, flexible 0, [broker, controller], advertised 0,
              $crate::wire::messages::AlterPartitionReassignmentsRequest
                  => $crate::wire::messages::AlterPartitionReassignmentsResponse,
              alter_partition_reassignments::handle }
            { 46, ListPartitionReassignments, 0..=0, flexible 0, [broker, controller], advertised 0,
              $crate::wire::messages::ListPartitionReassignmentsRequest
                  => $crate::wire::messages::ListPartitionReassignmentsResponse,
              list_partition_reassignments::handle }
            { 47, OffsetDelete, 0..=0, flexible never, [broker], advertised 0,
              $crate::wire::messages::OffsetDeleteRequest => $crate::wire::messages::OffsetDeleteResponse,
              offset_delete::handle }
            { 55, DescribeQuorum, 0..=2, flexible 0, [broker, controller], advertised 0,
              $crate::wire::messages::DescribeQuorumRequest => $crate::wire::messages::DescribeQuorumResponse,
              describe_quorum::handle }
            { 56, AlterPartition, 2..=3, flexible 0, [controller], advertised 2,
              $crate::wire::messages::AlterPartitionRequest => $crate::wire::messages::AlterPartitionResponse,
              alter_partition::handle }
            { 57, UpdateFeatures, 0..=2, flexible 0, [broker, controller], advertised 0,
              $crate::wire::messages::UpdateFeaturesRequest => $crate::wire::messages::UpdateFeaturesResponse,
              update_features::handle }
            { 58, Envelope, 0..=0, flexible 0, [controller], advertised 0,
              $crate::wire::messages::EnvelopeRequest => $crate::wire::messages::EnvelopeResponse,
              envelope::handle }
            { 60, DescribeCluster, 0..=2, flexible 0, [broker, controller], advertised 0,
              $crate::wire::messages::DescribeClusterRequest => $crate::wire::messages::DescribeClusterResponse,
              describe_cluster::handle }
            { 61, DescribeProducers, 0..=0, flexible 0, [broker], advertised 0,
              $crate::wire::messages::DescribeProducersRequest => $crate::wire::messages::DescribeProducersResponse,
              describe_producers::handle }
            { 62, BrokerRegistration, 0..=4, flexible 0, [controller], advertised 0,
              $crate::wire::messages::BrokerRegistrationRequest
                  => $crate::wire::messages::BrokerRegistrationResponse,
              broker_registration::handle }
            { 63, BrokerHeartbeat, 0..=2, flexible 0, [controller], advertised 0,
              $crate::wire::messages::BrokerHeartbeatRequest => $crate::wire::messages::BrokerHeartbeatResponse,
              broker_heartbeat::handle }
            { 64, UnregisterBroker, 0..=0, flexible 0, [broker, controller], advertised 0,
              $crate::wire::messages::UnregisterBrokerRequest
                  => $crate::wire::messages::UnregisterBrokerResponse,
              unregister_broker::handle }
            { 65, DescribeTransactions, 0..=0, flexible 0, [broker], advertised 0,
              $crate::wire::messages::DescribeTransactionsRequest
                  => $crate::wire::messages::DescribeTransactionsResponse,
              describe_transactions::handle }
            { 66, ListTransactions, 0..=2, flexible 0, [broker], advertised 0,
              $crate::wire::messages::ListTransactionsRequest
                  => $crate::wire::messages::ListTransactionsResponse,
              list_transactions::handle }
            { 67, AllocateProducerIds, 0..=0, flexible 0, [controller], advertised 0,
              $crate::wire::messages::AllocateProducerIdsRequest
                  => $crate::wire::messages::AllocateProducerIdsResponse,
              allocate_producer_ids::handle }
            { 68, ConsumerGroupHeartbeat, 0..=1, flexible 0, [broker], advertised 0,
              $crate::wire::messages::ConsumerGroupHeartbeatRequest
                  => $crate::wire::messages::ConsumerGroupHeartbeatResponse,
              consumer_group_heartbeat::handle }
            { 69, ConsumerGroupDescribe, 0..=1, flexible 0, [broker], advertised 0,
              $crate::wire::messages::ConsumerGroupDescribeRequest
                  => $crate::wire::messages::ConsumerGroupDescribeResponse,
              consumer_group_describe::handle }
            { 70, ControllerRegistration, 0..=0, flexible 0, [controller], advertised 0,
              $crate::wire::messages::ControllerRegistrationRequest
                  => $crate::wire::messages::ControllerRegistrationResponse,
              controller_registration::handle }
            { 73, AssignReplicasToDirs, 0..=0, flexible 0, [controller], advertised 0,
              $crate::wire::messages::AssignReplicasToDirsRequest
                  => $crate::wire::messages::AssignReplicasToDirsResponse,
              assign_replicas_to_dirs::handle }
            { 74, ListConfigResources, 0..=1, flexible 0, [broker], advertised 0,
              $crate::wire::messages::ListConfigResourcesRequest
                  => $crate::wire::messages::ListConfigResourcesResponse,
              list_config_resources::handle }
            { 75, DescribeTopicPartitions, 0..=0, flexible 0, [broker], advertised 0,
              $crate::wire::messages::DescribeTopicPartitionsRequest
                  => $crate::wire::messages::DescribeTopicPartitionsResponse,
              describe_topic_partitions::handle }
            { 80, AddRaftVoter, 0..=1, flexible 0, [broker, controller], advertised 0,
              $crate::wire::messages::AddRaftVoterRequest => $crate::wire::messages::AddRaftVoterResponse,
              add_raft_voter::handle }
            { 81, RemoveRaftVoter, 0..=0, flexible 0, [broker, controller], advertised 0,
              $crate::wire::messages::RemoveRaftVoterRequest => $crate::wire::messages::RemoveRaftVoterResponse,
              remove_raft_voter::handle }
            { 82, UpdateRaftVoter, 0..=0, flexible 0, [controller], advertised 0,
              $crate::wire::messages::UpdateRaftVoterRequest => $crate::wire::messages::UpdateRaftVoterResponse,
              update_raft_voter::handle }
            { 94, UnregisterController, 0..=0, flexible 0, [broker, controller], advertised 0,
              $crate::wire::messages::UnregisterControllerRequest
                  => $crate::wire::messages::UnregisterControllerResponse,
              unregister_controller::handle }
            // From here on our own, between the nodes of a cluster.
            { 30000, RaftVote, 0..=0, flexible 0, [controller], advertised 0,
              $crate::wire::messages::RaftVoteRequest => $crate::wire::messages::RaftVoteResponse,
              raft::vote }
            { 30001, RaftAppend, 0..=0, flexible 0, [controller], advertised 0,
              $crate::wire::messages::RaftAppendRequest => $crate::wire::messages::RaftAppendResponse,
              raft::append }
            { 30002, RaftSnapshot, 0..=0, flexible 0, [controller], advertised 0,
              $crate::wire::messages::RaftSnapshotRequest => $crate::wire::messages::RaftSnapshotResponse,
              raft::snapshot }
            { 30003, ObserverPoll, 0..=0, flexible 0, [controller], advertised 0,
              $crate::wire::messages::ObserverPollRequest => $crate::wire::messages::ObserverPollResponse,
              raft::observer_poll }
            { 30004, Propose, 0..=0, flexible 0, [controller], advertised 0,
              $crate::wire::messages::ProposeRequest => $crate::wire::messages::ProposeResponse,
              raft::propose }
            { 30005, Confirm, 0..=0, flexible 0, [controller], advertised 0,
              $crate::wire::messages::ConfirmRequest => $crate::wire::messages::ConfirmResponse,
              raft::confirm }
            { 30006, RaftFounding, 0..=0, flexible 0, [controller], advertised 0,
              $crate::wire::messages::RaftFoundingRequest => $crate::wire::messages::RaftFoundingResponse,
              raft::founding }
            { 30007, ReplicaEnds, 0..=0, flexible 0, [broker], advertised 0,
              $crate::wire::messages::ReplicaEndsRequest => $crate::wire::messages::ReplicaEndsResponse,
              replica_ends::handle }
            { 30008, Readiness, 0..=0, flexible 0, [broker, controller], advertised 0,
              $crate::wire::messages::ReadinessRequest => $crate::wire::messages::ReadinessResponse,
              readiness::handle }
        }
    };
}

macro_rules! api_table {
    ($({ $key:literal, $name:ident, $min:literal..=$max:literal, flexible $flexible:tt, [$($listener:ident),+],
         advertised $advertised:literal, $request:path => $response:path, $($handler:ident)::+ })*) => {
        /// Every served API, in the order of the keys.
        pub static API_TABLE: &[ApiRow] = &[$(ApiRow {
            key: $key,
            name: stringify!($name),
            min: $min,
            max: $max,
            flexible_from: api_table!(@flexible $flexible),
            listeners: Listeners {
                broker: $(api_table!(@is_broker $listener))||+,
                controller: $(api_table!(@is_controller $listener))||+,
            },
            advertised_min: $advertised,
        },)*];
    };
    (@flexible never) => { None };
    (@flexible $first:literal) => { Some($first) };
    (@is_broker broker) => { true };
    (@is_broker controller) => { false };
    (@is_controller controller) => { true };
    (@is_controller broker) => { false };
}

crate::for_each_api!(api_table);

#[cfg(test)]
mod tests {
    use super::{API_TABLE, API_VERSIONS, ApiRow};
    use kafka_protocol::protocol::{HeaderVersion, Message, Request};

    #[test]
    fn rows_are_in_the_order_of_their_keys() {
        assert!(API_TABLE.windows(2).all(|pair| pair[0].key < pair[1].key));
        assert_eq!(ApiRow::of(API_VERSIONS).map(|row| row.name), Some("ApiVersions"));
        assert_eq!(ApiRow::of(4), None);
    }

    macro_rules! check_types {
        ($({ $key:literal, $name:ident, $min:literal..=$max:literal, flexible $flexible:tt, [$($listener:ident),+],
             advertised $advertised:literal, $request:path => $response:path, $($handler:ident)::+ })*) => {
            $(check_row::<$request, $response>($key);)*
        };
    }

    fn check_row<R: Request, S: Message + HeaderVersion>(key: i16) {
        let row = ApiRow::of(key).unwrap();
        assert_eq!(R::KEY, key, "{}", row.name);
        for versions in [R::VERSIONS, S::VERSIONS] {
            assert!(versions.min <= row.min && row.max <= versions.max, "{}: {versions}", row.name);
        }
        for version in row.min..=row.max {
            assert_eq!(row.request_header_version(version), R::header_version(version), "{}", row.name);
            assert_eq!(row.response_header_version(version), S::header_version(version), "{}", row.name);
        }
    }

    #[test]
    fn rows_agree_with_their_message_types() {
        crate::for_each_api!(check_types);
    }
}
