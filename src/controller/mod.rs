//! Layer 3: the metadata quorum. The only place that names openraft.
//!
//! The cluster's metadata is the fold of a Raft log. Decisions come in through [`MetadataHandle`] (`proposer`), are run on
//! the newest image (`deciding`), and go as one batch of Kafka's metadata records into one entry of the log; when it is
//! committed, `state_machine` applies it and publishes the image, and the answers leave.
//!
//! In reading order: `raft_types` (what openraft is instantiated with), `deciding` and `proposer`, `state_machine`,
//! `snapshot` and `snapshot_keeper`, then the log: `raft_store` (what openraft calls), `log_thread` (who writes, with `ballast`),
//! `log_files` with `log_segment`, `frame`, `codec` and `hard_state` (what is on disk). Then the other members: `rpc`
//! (messages), `peers` (where they are), `network` (how openraft calls them), `service` (what they ask of this one, with
//! `receiving` for snapshots), `observers` and `learners` (the leader's side of those without a vote), `observer` (their own
//! side), `pace` with `pulse` (when to beat and when to elect), `founding` (how a quorum of nodes begins that formatted themselves), `forward` (the way of decisions to the leader), `voters` with
//! `voter_set` and `upkeep` (how the voters change). `start`
//! puts it together; `quorum` tells how it is; `dump` reads a directory from outside; `duties` is what the leader does for
//! brokers.

pub mod raft_types;
pub(crate) mod deciding;
mod proposer;
mod state_machine;
mod snapshot;
mod snapshot_keeper;
mod raft_store;
mod log_thread;
mod ballast;
mod log_files;
mod log_segment;
mod frame;
mod codec;
mod hard_state;
mod rpc;
mod peers;
mod network;
mod observers;
mod learners;
mod observer;
mod receiving;
mod service;
mod pulse;
pub mod founding;
mod pace;
mod forward;
mod quorum;
mod voter_set;
mod voters;
mod upkeep;
mod start;
pub mod dump;
pub mod duties;
#[cfg(test)]
mod tests;

pub use deciding::ProposeError;
pub use proposer::{MetadataHandle, MetadataLog};
pub use quorum::{Leadership, QuorumStatus, QuorumView, ReplicaStatus};
pub use raft_types::{Endpoint, Member};
pub use service::RaftService;
pub use snapshot_keeper::SnapshotLimits;
pub use start::{Controller, ControllerConfig, METADATA_LOG_DIR, StartError, Timing, start};
pub use voter_set::{ChangeRefused, VoterChange};
pub use voters::{ChangeVotersError, Voters};
