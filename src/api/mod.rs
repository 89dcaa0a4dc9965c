//! Layer 4: one file per API, and the dispatch that `wire::api`'s table generates. The only place that chooses Kafka error
//! codes: what goes wrong below arrives as typed errors and leaves as a code and our own words.
//!
//! A handler is `async fn handle(&Arc<Api>, &Call, Request<..>)`, and gives back its response or an `Answer`. It may count
//! on its request's version being one that the table serves, on nothing else.

mod alteration;
mod authorized;
mod auto_topics;
mod broker_part;
mod call;
mod commits;
mod config_resource;
mod config_rules;
mod creation_defaults;
pub(crate) mod coordination;
mod hosted;
pub(crate) mod produce_error;
mod raft_voters;
mod refusal;
mod topic_view;
pub(crate) mod transaction_coordination;
pub(crate) mod transactional;

mod add_offsets_to_txn;
pub(crate) mod add_partitions_to_txn;
mod add_raft_voter;
mod allocate_producer_ids;
mod alter_configs;
mod alter_partition;
mod alter_partition_reassignments;
mod alter_replica_log_dirs;
mod api_versions;
mod assign_replicas_to_dirs;
mod broker_heartbeat;
mod broker_registration;
mod consumer_group_describe;
mod consumer_group_heartbeat;
mod controller_registration;
mod create_partitions;
mod create_topics;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_producers;
mod describe_quorum;
mod describe_topic_partitions;
mod describe_transactions;
mod elect_leaders;
mod end_txn;
mod envelope;
pub(crate) mod fetch;
mod find_coordinator;
mod heartbeat;
mod incremental_alter_configs;
mod init_producer_id;
mod join_group;
mod leave_group;
mod list_config_resources;
mod list_groups;
mod list_offsets;
mod list_transactions;
mod list_partition_reassignments;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offset_for_leader_epoch;
mod produce;
mod remove_raft_voter;
mod raft;
mod readiness;
mod replica_ends;
mod sync_group;
mod txn_offset_commit;
mod unregister_broker;
mod unregister_controller;
mod update_features;
mod update_raft_voter;
pub(crate) mod write_txn_markers;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Buf, Bytes};
use kafka_protocol::protocol::Encodable;
use tokio::sync::SetOnce;

use broker_part::BrokerPart;
pub use call::{Answer, Call, ConnectionState, Handled, ListenerInfo, ListenerRole, Reply, Request};

use crate::broker::dynamic_config::DynamicConfig;
use crate::broker::loggers::Loggers;
use crate::broker::readiness::Readiness;
use crate::broker::start::BrokerHandles;
use crate::controller::duties::ActiveController;
use crate::controller::{MetadataHandle, RaftService};
use crate::metadata::Image;
use crate::types::NodeId;
use crate::wire::api::{ApiRow, READINESS};
use crate::wire::frame::{self, FrameError, RequestFrame};

/// Who this node is.
#[derive(Clone, Debug)]
pub struct Node {
    pub id: NodeId,
    /// A word, mostly 22 letters, as `storage random-uuid` makes them.
    pub cluster_id: Arc<str>,
}

/// What handlers work with; each takes the parts that it needs.
pub struct Api {
    node: Node,
    config: Arc<DynamicConfig>,
    metadata: MetadataHandle,
    active: ActiveController,
    raft: RaftService,
    loggers: Arc<Loggers>,
    auto_topics: auto_topics::InFlight,
    /// Empty on a node that is no broker, and until the broker is open: controllers are served before.
    broker: OnceLock<BrokerPart>,
    readiness: Readiness,
    /// Set from when on clients of broker listeners are served.
    serves: SetOnce<()>,
}

impl Api {
    /// What a member of the metadata quorum can answer. [`Api::open_broker`] adds the rest.
    pub fn new(
        node: Node,
        config: Arc<DynamicConfig>,
        metadata: MetadataHandle,
        active: ActiveController,
        raft: RaftService,
        loggers: Arc<Loggers>,
        readiness: Readiness,
    ) -> Api {
        let (auto_topics, broker, serves) = Default::default();
        Api { node, config, metadata, active, raft, loggers, auto_topics, broker, readiness, serves }
    }

    /// Adds what a broker can answer.
    pub fn open_broker(&self, handles: BrokerHandles) {
        let part = BrokerPart::new(handles, &self.config);
        assert!(self.broker.set(part).is_ok(), "a node has one broker");
    }

    /// From here on what comes through broker listeners is handled.
    pub fn serve_clients(&self) {
        assert!(self.serves.set(()).is_ok(), "a node opens once");
    }

    /// Waits until the request in a frame may begin: as long as the broker is not in service, clients find that nobody answers yet,
    /// as if the node did not accept their connections. Only whether it serves can be asked.
    pub async fn admit(&self, call: &Call, frame: &Bytes) {
        let is_question = || frame.as_ref().try_get_i16() == Ok(READINESS);
        if call.listener.role == ListenerRole::Controller || self.serves.initialized() || is_question() {
            return;
        }
        call.only_waits();
        self.serves.wait().await;
        call.is_in_work();
    }

    /// The broker of this node; for requests that only broker listeners serve.
    fn broker(&self) -> &BrokerPart {
        self.broker.get().expect("a broker listener answers nothing before the broker is open")
    }

    /// The metadata as of now, once this node serves what it says or the time is over: a client that is told of a change
    /// may use it at once.
    async fn served_image(&self, most: Duration) -> Arc<Image> {
        let image = self.metadata.image();
        if let Some(broker) = self.broker.get() {
            let mut reconciled = broker.reconciled.clone();
            // Late or not, the change is made, which is what the client is told.
            let _ = tokio::time::timeout(most, reconciled.reached(image.version)).await;
        }
        image
    }

    /// Handles one frame to the end of its first phase.
    pub async fn handle(self: &Arc<Self>, call: &Call, frame: Bytes) -> Handled {
        let frame = match frame::parse_request(frame) {
            Ok(frame) => frame,
            Err(FrameError::UnsupportedApiVersions { api, version: _, correlation_id }) => {
                let refused = api_versions::unsupported_version();
                return Handled::Done(encode(api, 0, correlation_id, &refused));
            }
            Err(error) => return Handled::Done(Reply::Close(error.to_string())),
        };
        if !call.serves(frame.api.listeners) {
            let reason = format!("{} request on listener {}", frame.api.name, call.listener.name);
            return Handled::Done(Reply::Close(reason));
        }
        let needs_broker = call.listener.role == ListenerRole::Broker && frame.api.key != READINESS;
        if needs_broker && self.broker.get().is_none() {
            return Handled::Done(Reply::Close("the broker is not open yet".to_owned()));
        }
        self.dispatch(call, frame).await
    }
}

macro_rules! dispatch {
    ($({ $key:literal, $name:ident, $min:literal..=$max:literal, flexible $flexible:tt, [$($listener:ident),+],
         advertised $advertised:literal, $request:path => $response:path, $($handler:ident)::+ })*) => {
        impl Api {
            async fn dispatch(self: &Arc<Self>, call: &Call, frame: RequestFrame) -> Handled {
                match frame.api.key {
                    $($key => {
                        let request = match Request::<$request>::decode(&frame) {
                            Ok(request) => request,
                            Err(malformed) => return Handled::Done(malformed),
                        };
                        // Boxed, so that a call's future is as large as its own handler's and not as the largest one's.
                        let answer = Box::pin($($handler)::+(self, call, request)).await;
                        finish::<$response>(&frame, answer.into())
                    })*
                    // `parse_request` accepts only keys of the table.
                    _ => Handled::Done(Reply::Close(format!("{} is not served", frame.api.name))),
                }
            }
        }
    };
}

crate::for_each_api!(dispatch);

/// Brings a handler's answer into its frame.
fn finish<R: Encodable + Send + 'static>(frame: &RequestFrame, answer: Answer<R>) -> Handled {
    let (api, version, correlation_id) = (frame.api, frame.version, frame.correlation_id);
    match answer {
        Answer::Later(later) => Handled::Later(Box::pin(async move {
            let mut answer = later.await;
            while let Answer::Later(later) = answer {
                answer = later.await;
            }
            reply(api, version, correlation_id, answer)
        })),
        answer => Handled::Done(reply(api, version, correlation_id, answer)),
    }
}

fn reply<R: Encodable + 'static>(
    api: &'static ApiRow,
    version: i16,
    correlation_id: i32,
    answer: Answer<R>,
) -> Reply {
    match answer {
        Answer::Now(response) => encode(api, version, correlation_id, &response),
        Answer::Nothing => Reply::Nothing,
        Answer::Close(reason) => Reply::Close(reason),
        Answer::Later(_) => Reply::Close("an answer that never comes".to_owned()),
    }
}

fn encode<R: Encodable + 'static>(
    api: &'static ApiRow,
    version: i16,
    correlation_id: i32,
    response: &R,
) -> Reply {
    match frame::encode_response(api, version, correlation_id, response) {
        Ok(rope) => Reply::Send(rope),
        Err(error) => {
            // A handler has set what its version lacks: a defect, which a test of every version must find.
            tracing::error!(%error, "cannot answer");
            Reply::Close(error.to_string())
        }
    }
}
