//! Messages whose golden files are here ahead of their handlers, as rows in the form of `src/wire/api.rs`. Who writes the
//! handler moves the row there.

macro_rules! for_each_api_ahead {
    ($callback:path) => {
        $callback! {
            { 43, ElectLeaders, 0..=2, flexible 2, [broker, controller], advertised 0,
              floodmark::wire::messages::ElectLeadersRequest => floodmark::wire::messages::ElectLeadersResponse,
              elect_leaders::handle }
            { 45, AlterPartitionReassignments, 0..=1, flexible 0, [broker, controller], advertised 0,
              floodmark::wire::messages::AlterPartitionReassignmentsRequest
                  => floodmark::wire::messages::AlterPartitionReassignmentsResponse,
              alter_partition_reassignments::handle }
            { 46, ListPartitionReassignments, 0..=0, flexible 0, [broker, controller], advertised 0,
              floodmark::wire::messages::ListPartitionReassignmentsRequest
                  => floodmark::wire::messages::ListPartitionReassignmentsResponse,
              list_partition_reassignments::handle }
            { 56, AlterPartition, 2..=3, flexible 0, [controller], advertised 2,
              floodmark::wire::messages::AlterPartitionRequest => floodmark::wire::messages::AlterPartitionResponse,
              alter_partition::handle }
            { 58, Envelope, 0..=0, flexible 0, [controller], advertised 0,
              floodmark::wire::messages::EnvelopeRequest => floodmark::wire::messages::EnvelopeResponse,
              envelope::handle }
            { 62, BrokerRegistration, 0..=4, flexible 0, [controller], advertised 0,
              floodmark::wire::messages::BrokerRegistrationRequest
                  => floodmark::wire::messages::BrokerRegistrationResponse,
              broker_registration::handle }
            { 63, BrokerHeartbeat, 0..=2, flexible 0, [controller], advertised 0,
              floodmark::wire::messages::BrokerHeartbeatRequest => floodmark::wire::messages::BrokerHeartbeatResponse,
              broker_heartbeat::handle }
            { 64, UnregisterBroker, 0..=0, flexible 0, [broker, controller], advertised 0,
              floodmark::wire::messages::UnregisterBrokerRequest
                  => floodmark::wire::messages::UnregisterBrokerResponse,
              unregister_broker::handle }
            { 67, AllocateProducerIds, 0..=0, flexible 0, [controller], advertised 0,
              floodmark::wire::messages::AllocateProducerIdsRequest
                  => floodmark::wire::messages::AllocateProducerIdsResponse,
              allocate_producer_ids::handle }
            { 70, ControllerRegistration, 0..=0, flexible 0, [controller], advertised 0,
              floodmark::wire::messages::ControllerRegistrationRequest
                  => floodmark::wire::messages::ControllerRegistrationResponse,
              controller_registration::handle }
            { 73, AssignReplicasToDirs, 0..=0, flexible 0, [controller], advertised 0,
              floodmark::wire::messages::AssignReplicasToDirsRequest
                  => floodmark::wire::messages::AssignReplicasToDirsResponse,
              assign_replicas_to_dirs::handle }
            { 80, AddRaftVoter, 0..=1, flexible 0, [broker, controller], advertised 0,
              floodmark::wire::messages::AddRaftVoterRequest => floodmark::wire::messages::AddRaftVoterResponse,
              add_raft_voter::handle }
            { 81, RemoveRaftVoter, 0..=0, flexible 0, [broker, controller], advertised 0,
              floodmark::wire::messages::RemoveRaftVoterRequest => floodmark::wire::messages::RemoveRaftVoterResponse,
              remove_raft_voter::handle }
            { 82, UpdateRaftVoter, 0..=0, flexible 0, [controller], advertised 0,
              floodmark::wire::messages::UpdateRaftVoterRequest => floodmark::wire::messages::UpdateRaftVoterResponse,
              update_raft_voter::handle }
        }
    };
}

pub(crate) use for_each_api_ahead;
