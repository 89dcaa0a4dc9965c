//! Metadata: v0-13
//!
//! Behaviour: brokers that can be reached through the listener of the request, and the topics asked for by name or, from
//! version 12, by id; all topics for a null list, in version 0 for an empty one. Topics that do not exist are created
//! when the request and `auto.create.topics.enable` allow it; the answer says UNKNOWN_TOPIC_OR_PARTITION in the
//! meantime, to the same connection for 75 ms at least, and the client asks again. A broker that has just left is still
//! listed for a moment (`broker/departures`). The controller that is named is a broker that is alive: admin requests may
//! go to any.
//!
//! Version notes: 0 leaves out replicas that cannot be reached, with an error; 5 tells offline replicas; 6 tells
//! LISTENER_NOT_FOUND; 8 to 10 tell the operations allowed on the cluster, 8 on those on topics; 10 adds topic ids to
//! answers, 12 to requests.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::topic_view::{Showing, broker_ids, is_internal, text, topic_name};
use super::{Api, Call, Request, authorized, auto_topics};
use crate::broker::clock;
use crate::metadata::Image;
use crate::metadata::topics::{TopicImage, name as topic_names};
use crate::types::{ErrorCode, NodeId, Uuid};
use crate::wire::messages::MetadataRequest;
use crate::wire::messages::metadata_response::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};

pub async fn handle(api: &Arc<Api>, call: &Call, request: Request<MetadataRequest>) -> MetadataResponse {
    let (version, body) = (request.version, &request.body);
    if let Some(refused) = refuse(version, body) {
        return refused;
    }
    let image = api.metadata.image();
    let showing = Showing {
        image: &image,
        listener: &call.listener.name,
        error_on_unavailable: version == 0,
        names_missing_listeners: version >= 6,
    };
    let departed = api.broker().departures.look(&image, clock::monotonic());
    let mut topics = match &body.topics {
        Some(asked) if version > 0 || !asked.is_empty() => named_topics(api, call, &showing, version, body),
        _ => image.topics.iter().map(|topic| present(&showing, version, topic)).collect(),
    };
    if body.include_topic_authorized_operations {
        for topic in &mut topics {
            topic.topic_authorized_operations = authorized::on_topic();
        }
    }
    let on_cluster = if body.include_cluster_authorized_operations {
        authorized::on_cluster()
    } else {
        authorized::NOT_ASKED
    };
    MetadataResponse::default()
        .with_brokers(brokers(&showing, &departed))
        .with_cluster_id(Some(text(&api.node.cluster_id)))
        .with_controller_id(api.admin_node(&image).0.into())
        .with_topics(topics)
        .with_cluster_authorized_operations(on_cluster)
}

/// Before version 12 a topic has a name and no id; from then on one or the other. Kafka answers INVALID_REQUEST per topic.
fn refuse(version: i16, request: &MetadataRequest) -> Option<MetadataResponse> {
    let topics = request.topics.as_ref()?;
    let wrong = |topic: &crate::wire::messages::metadata_request::MetadataRequestTopic| {
        version < 12 && (topic.name.is_none() || !topic.topic_id.is_nil())
    };
    if !topics.iter().any(wrong) {
        return None;
    }
    let topics = topics.iter().map(|topic| {
        let mut refused = MetadataResponseTopic::default().with_error_code(ErrorCode::InvalidRequest.code());
        refused.name = Some(topic.name.clone().unwrap_or_default());
        refused.topic_id = topic.topic_id;
        refused
    });
    Some(MetadataResponse::default().with_topics(topics.collect()))
}

/// Those that are alive, or were until a moment ago.
fn brokers(showing: &Showing<'_>, departed: &[NodeId]) -> Vec<MetadataResponseBroker> {
    let listed =
        showing.image.brokers.iter().filter(|broker| !broker.fenced || departed.contains(&broker.id));
    listed
        .filter_map(|broker| {
            let endpoint = broker.endpoint(showing.listener)?;
            Some(
                MetadataResponseBroker::default()
                    .with_node_id(broker.id.0.into())
                    .with_host(text(&endpoint.host))
                    .with_port(i32::from(endpoint.port))
                    .with_rack(broker.rack.as_deref().map(text)),
            )
        })
        .collect()
}

/// The topics that the request lists, each once; ids count when there is one that is not nil.
fn named_topics(
    api: &Arc<Api>,
    call: &Call,
    showing: &Showing<'_>,
    version: i16,
    request: &MetadataRequest,
) -> Vec<MetadataResponseTopic> {
    let asked = request.topics.as_deref().unwrap_or_default();
    let ids: BTreeSet<Uuid> = asked.iter().map(|topic| topic.topic_id).filter(|id| !id.is_nil()).collect();
    if !ids.is_empty() {
        return ids
            .into_iter()
            .map(|id| match showing.image.topics.by_id(id) {
                Some(topic) => present(showing, version, topic),
                None => unknown_id(id),
            })
            .collect();
    }
    let names: BTreeSet<&str> =
        asked.iter().filter_map(|topic| topic.name.as_ref().map(|name| name.as_str())).collect();
    let (now, awaited) = (clock::monotonic(), &call.connection.awaited);
    let (found, missing): (Vec<&str>, Vec<&str>) = names
        .into_iter()
        .partition(|name| showing.image.topics.by_name(name).is_some() && !awaited.hides(name, now));
    let mut topics: Vec<MetadataResponseTopic> = found
        .into_iter()
        .filter_map(|name| Some(present(showing, version, showing.image.topics.by_name(name)?)))
        .collect();
    let creatable: Vec<&str> =
        missing.iter().copied().filter(|name| topic_names::validate(name).is_ok()).collect();
    if request.allow_auto_topic_creation && api.config.at(showing.image).broker.auto_create_topics_enable {
        let absent: Vec<&str> =
            creatable.iter().copied().filter(|name| showing.image.topics.by_name(name).is_none()).collect();
        awaited.told(&absent, now);
        auto_topics::create(api, &absent);
    }
    topics.extend(missing.into_iter().map(|name| {
        let error = if creatable.contains(&name) {
            ErrorCode::UnknownTopicOrPartition
        } else {
            ErrorCode::InvalidTopicException
        };
        MetadataResponseTopic::default()
            .with_error_code(error.code())
            .with_name(Some(topic_name(name)))
            .with_is_internal(is_internal(name))
    }));
    topics
}

fn unknown_id(id: Uuid) -> MetadataResponseTopic {
    MetadataResponseTopic::default()
        .with_error_code(ErrorCode::UnknownTopicId.code())
        .with_name(None)
        .with_topic_id(id)
}

fn present(showing: &Showing<'_>, version: i16, topic: &TopicImage) -> MetadataResponseTopic {
    let partitions = topic.partitions().map(|(index, partition)| {
        let state = showing.partition(partition);
        let shown = MetadataResponsePartition::default()
            .with_error_code(state.error.code())
            .with_partition_index(index.0)
            .with_leader_id(state.leader.0.into())
            .with_replica_nodes(broker_ids(&state.replicas))
            .with_isr_nodes(broker_ids(&state.isr));
        let shown =
            if version >= 5 { shown.with_offline_replicas(broker_ids(&state.offline)) } else { shown };
        if version >= 7 { shown.with_leader_epoch(partition.leader_epoch.0) } else { shown }
    });
    let shown = MetadataResponseTopic::default()
        .with_name(Some(topic_name(&topic.name)))
        .with_is_internal(is_internal(&topic.name))
        .with_partitions(partitions.collect());
    if version >= 10 { shown.with_topic_id(topic.id) } else { shown }
}

impl Api {
    /// The node that clients are told to send admin requests to: the active controller when it is a broker too, else any
    /// broker that is alive.
    pub(super) fn admin_node(&self, image: &Image) -> NodeId {
        let leader = self.metadata.leader();
        let is_alive = |id: &NodeId| image.brokers.get(*id).is_some_and(|broker| !broker.fenced);
        let first = || image.brokers.iter().map(|broker| broker.id).find(is_alive);
        leader.filter(is_alive).or_else(first).unwrap_or(NodeId::NONE)
    }
}
