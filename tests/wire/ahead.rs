//! Messages whose golden files are here ahead of their handlers, as rows in the form of `src/wire/api.rs`. Who writes the
//! handler moves the row there.

macro_rules! for_each_api_ahead {
    ($callback:path) => {
        $callback! {
            { 56, AlterPartition, 2..=3, flexible 0, [controller], advertised 2,
              floodmark::wire::messages::AlterPartitionRequest => floodmark::wire::messages::AlterPartitionResponse,
              alter_partition::handle }
            { 62, BrokerRegistration, 0..=4, flexible 0, [controller], advertised 0,
              floodmark::wire::messages::BrokerRegistrationRequest
                  => floodmark::wire::messages::BrokerRegistrationResponse,
              broker_registration::handle }
            { 63, BrokerHeartbeat, 0..=2, flexible 0, [controller], advertised 0,
              floodmark::wire::messages::BrokerHeartbeatRequest => floodmark::wire::messages::BrokerHeartbeatResponse,
              broker_heartbeat::handle }
            { 70, ControllerRegistration, 0..=0, flexible 0, [controller], advertised 0,
              floodmark::wire::messages::ControllerRegistrationRequest
                  => floodmark::wire::messages::ControllerRegistrationResponse,
              controller_registration::handle }
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
