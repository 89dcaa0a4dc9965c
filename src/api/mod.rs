//! Layer 4: one file per API, and the dispatch that `wire::api`'s table generates. The only place that chooses Kafka error
//! codes: what goes wrong below arrives as typed errors and leaves as a code and our own words.
//!
//! A handler is `async fn handle(&Arc<Api>, &Call, Request<..>)`, and gives back its response or an `Answer`. It may count
//! on its request's version being one that the table serves, on nothing else.

mod alteration;
mod authorized;
mod auto_topics;
mod call;
mod config_resource;
mod config_rules;
mod hosted;
mod produce_error;
mod refusal;
mod topic_view;

mod alter_configs;
mod api_versions;
mod create_partitions;
mod create_topics;
mod delete_records;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod describe_log_dirs;
mod describe_producers;
mod describe_quorum;
mod describe_topic_partitions;
mod fetch;
mod find_coordinator;
mod incremental_alter_configs;
mod init_producer_id;
mod list_config_resources;
mod list_offsets;
mod metadata;
mod offset_for_leader_epoch;
mod produce;
mod update_features;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::protocol::Encodable;

pub use call::{Answer, Call, Handled, ListenerInfo, ListenerRole, Reply, Request};
use fetch::FetchSessions;

use crate::broker::dynamic_config::DynamicConfig;
use crate::broker::log_dirs::LogDirs;
use crate::broker::loggers::Loggers;
use crate::broker::partitions::Partitions;
use crate::broker::producer_ids::ProducerIds;
use crate::broker::reconciler::Reconciled;
use crate::broker::start::BrokerHandles;
use crate::controller::MetadataHandle;
use crate::metadata::Image;
use crate::types::NodeId;
use crate::wire::api::ApiRow;
use crate::wire::frame::{self, FrameError, RequestFrame};

/// A fetch session that was used so recently is not pushed out by another of its kind; Kafka's fixed value.
const FETCH_SESSION_EVICTION_MS: i64 = 120_000;

/// Who this node is.
#[derive(Clone, Debug)]
pub struct Node {
    pub id: NodeId,
    /// 22 letters, as `storage random-uuid` makes them.
    pub cluster_id: Arc<str>,
}

/// What handlers work with; each takes the parts that it needs.
pub struct Api {
    node: Node,
    config: Arc<DynamicConfig>,
    metadata: MetadataHandle,
    partitions: Partitions,
    producer_ids: ProducerIds,
    reconciled: Reconciled,
    log_dirs: Arc<LogDirs>,
    loggers: Arc<Loggers>,
    fetch_sessions: FetchSessions,
    auto_topics: auto_topics::InFlight,
}

impl Api {
    pub fn new(
        node: Node,
        config: Arc<DynamicConfig>,
        metadata: MetadataHandle,
        broker: BrokerHandles,
        loggers: Arc<Loggers>,
    ) -> Api {
        let BrokerHandles { partitions, producer_ids, reconciled, log_dirs, .. } = broker;
        let settings = &config.latest().broker;
        let slots = usize::try_from(settings.max_incremental_fetch_session_cache_slots).unwrap_or(0);
        Api {
            node,
            config,
            metadata,
            partitions,
            producer_ids,
            reconciled,
            log_dirs,
            loggers,
            fetch_sessions: FetchSessions::new(slots, FETCH_SESSION_EVICTION_MS),
            auto_topics: auto_topics::InFlight::default(),
        }
    }

    /// The metadata as of now, once this node serves what it says or the time is over: a client that is told of a change
    /// may use it at once.
    async fn served_image(&self, most: Duration) -> Arc<Image> {
        let image = self.metadata.image();
        let mut reconciled = self.reconciled.clone();
        // Late or not, the change is made, which is what the client is told.
        let _ = tokio::time::timeout(most, reconciled.reached(image.version)).await;
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
