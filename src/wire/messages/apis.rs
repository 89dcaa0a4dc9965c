//! The message types of the served APIs under one roof: the crate's where it has all served versions, else ours. So
//! the rest of the broker imports every message from `wire::messages` and does not see whose it is.

macro_rules! from_the_crate {
    ($($module:ident :: $message:ident),* $(,)?) => {
        $(pub use kafka_protocol::messages::{$module, $message};)*
    };
}

from_the_crate! {
    produce_request::ProduceRequest, produce_response::ProduceResponse,
    fetch_request::FetchRequest,
    metadata_request::MetadataRequest, metadata_response::MetadataResponse,
    find_coordinator_request::FindCoordinatorRequest, find_coordinator_response::FindCoordinatorResponse,
    create_topics_request::CreateTopicsRequest, create_topics_response::CreateTopicsResponse,
    delete_topics_request::DeleteTopicsRequest, delete_topics_response::DeleteTopicsResponse,
    delete_records_request::DeleteRecordsRequest, delete_records_response::DeleteRecordsResponse,
    add_partitions_to_txn_request::AddPartitionsToTxnRequest,
    add_partitions_to_txn_response::AddPartitionsToTxnResponse,
    add_offsets_to_txn_request::AddOffsetsToTxnRequest, add_offsets_to_txn_response::AddOffsetsToTxnResponse,
    end_txn_request::EndTxnRequest, end_txn_response::EndTxnResponse,
    describe_transactions_request::DescribeTransactionsRequest,
    describe_transactions_response::DescribeTransactionsResponse,
    list_transactions_request::ListTransactionsRequest, list_transactions_response::ListTransactionsResponse,
    init_producer_id_request::InitProducerIdRequest, init_producer_id_response::InitProducerIdResponse,
    offset_for_leader_epoch_request::OffsetForLeaderEpochRequest,
    offset_for_leader_epoch_response::OffsetForLeaderEpochResponse,
    describe_configs_request::DescribeConfigsRequest, describe_configs_response::DescribeConfigsResponse,
    alter_configs_request::AlterConfigsRequest, alter_configs_response::AlterConfigsResponse,
    create_partitions_request::CreatePartitionsRequest, create_partitions_response::CreatePartitionsResponse,
    incremental_alter_configs_request::IncrementalAlterConfigsRequest,
    incremental_alter_configs_response::IncrementalAlterConfigsResponse,
    describe_quorum_request::DescribeQuorumRequest, describe_quorum_response::DescribeQuorumResponse,
    update_features_request::UpdateFeaturesRequest, update_features_response::UpdateFeaturesResponse,
    describe_cluster_request::DescribeClusterRequest, describe_cluster_response::DescribeClusterResponse,
    describe_producers_request::DescribeProducersRequest, describe_producers_response::DescribeProducersResponse,
    list_config_resources_request::ListConfigResourcesRequest,
    list_config_resources_response::ListConfigResourcesResponse,
    describe_topic_partitions_request::DescribeTopicPartitionsRequest,
    describe_topic_partitions_response::DescribeTopicPartitionsResponse,
    elect_leaders_request::ElectLeadersRequest, elect_leaders_response::ElectLeadersResponse,
    alter_partition_reassignments_request::AlterPartitionReassignmentsRequest,
    alter_partition_reassignments_response::AlterPartitionReassignmentsResponse,
    list_partition_reassignments_request::ListPartitionReassignmentsRequest,
    list_partition_reassignments_response::ListPartitionReassignmentsResponse,
    alter_replica_log_dirs_request::AlterReplicaLogDirsRequest,
    alter_replica_log_dirs_response::AlterReplicaLogDirsResponse,
    alter_partition_request::AlterPartitionRequest, alter_partition_response::AlterPartitionResponse,
    envelope_request::EnvelopeRequest, envelope_response::EnvelopeResponse,
    broker_registration_request::BrokerRegistrationRequest,
    broker_registration_response::BrokerRegistrationResponse,
    unregister_broker_request::UnregisterBrokerRequest, unregister_broker_response::UnregisterBrokerResponse,
    allocate_producer_ids_request::AllocateProducerIdsRequest,
    allocate_producer_ids_response::AllocateProducerIdsResponse,
    controller_registration_request::ControllerRegistrationRequest,
    controller_registration_response::ControllerRegistrationResponse,
    assign_replicas_to_dirs_request::AssignReplicasToDirsRequest,
    assign_replicas_to_dirs_response::AssignReplicasToDirsResponse,
    remove_raft_voter_request::RemoveRaftVoterRequest, remove_raft_voter_response::RemoveRaftVoterResponse,
    join_group_request::JoinGroupRequest, join_group_response::JoinGroupResponse,
    sync_group_request::SyncGroupRequest, sync_group_response::SyncGroupResponse,
    heartbeat_request::HeartbeatRequest, heartbeat_response::HeartbeatResponse,
    leave_group_request::LeaveGroupRequest, leave_group_response::LeaveGroupResponse,
    list_groups_request::ListGroupsRequest, list_groups_response::ListGroupsResponse,
    describe_groups_request::DescribeGroupsRequest, describe_groups_response::DescribeGroupsResponse,
    consumer_group_heartbeat_request::ConsumerGroupHeartbeatRequest,
    consumer_group_heartbeat_response::ConsumerGroupHeartbeatResponse,
    consumer_group_describe_request::ConsumerGroupDescribeRequest,
    consumer_group_describe_response::ConsumerGroupDescribeResponse,
    offset_delete_request::OffsetDeleteRequest, offset_delete_response::OffsetDeleteResponse,
    update_raft_voter_request::UpdateRaftVoterRequest, update_raft_voter_response::UpdateRaftVoterResponse,
}

// Ours, under the crate's module names too.
pub use super::add_raft_voter::{self as add_raft_voter_request, AddRaftVoterRequest};
pub use super::add_raft_voter::{self as add_raft_voter_response, AddRaftVoterResponse};
pub use super::api_versions::{self as api_versions_request, ApiVersionsRequest};
pub use super::api_versions::{self as api_versions_response, ApiVersionsResponse};
pub use super::broker_heartbeat::{self as broker_heartbeat_request, BrokerHeartbeatRequest};
pub use super::broker_heartbeat::{self as broker_heartbeat_response, BrokerHeartbeatResponse};
pub use super::delete_groups::{DeleteGroupsRequest, DeleteGroupsResponse};
pub use super::describe_log_dirs::{self as describe_log_dirs_request, DescribeLogDirsRequest};
pub use super::describe_log_dirs::{self as describe_log_dirs_response, DescribeLogDirsResponse};
pub use super::fetch_response::FetchResponse;
pub use super::list_offsets::{self as list_offsets_request, ListOffsetsRequest};
pub use super::list_offsets::{self as list_offsets_response, ListOffsetsResponse};
pub use super::offset_commit::{OffsetCommitRequest, OffsetCommitResponse};
pub use super::offset_fetch::{OffsetFetchRequest, OffsetFetchResponse};
pub use super::txn_offset_commit::{TxnOffsetCommitRequest, TxnOffsetCommitResponse};
pub use super::unregister_controller::{UnregisterControllerRequest, UnregisterControllerResponse};
pub use super::write_txn_markers::{self as write_txn_markers_request, WriteTxnMarkersRequest};
pub use super::write_txn_markers::{self as write_txn_markers_response, WriteTxnMarkersResponse};

pub use super::readiness::{ReadinessRequest, ReadinessResponse};
pub use super::replica_ends::{ReplicaEndsRequest, ReplicaEndsResponse};

pub use super::raft::{
    ConfirmRequest, ConfirmResponse, ObserverPollRequest, ObserverPollResponse, ProposeRequest,
    ProposeResponse, RaftAppendRequest, RaftAppendResponse, RaftFoundingRequest, RaftFoundingResponse,
    RaftSnapshotRequest, RaftSnapshotResponse, RaftVoteRequest, RaftVoteResponse,
};

pub use kafka_protocol::messages::{BrokerId, GroupId, ProducerId, TopicName, TransactionalId};
