//! Messages whose golden files are here ahead of their handlers, as rows in the form of `src/wire/api.rs`. Who writes the
//! handler moves the row there.

macro_rules! for_each_api_ahead {
    ($callback:path) => {
        $callback! {
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
