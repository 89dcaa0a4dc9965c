//! DescribeQuorum: v0-2 (KIP-595)
//!
//! Behaviour: the state of the metadata quorum as the node that leads it knows it. A broker asks the leader; a controller that
//! does not lead answers NOT_LEADER_OR_FOLLOWER. The log goes by Kafka's name, `__cluster_metadata` with its one partition.
//!
//! Version notes: 1 adds when a replica last fetched and was last caught up; 2 directory ids, messages and the addresses of
//! the voters.

use std::sync::Arc;

use super::raft_voters::{FORWARD_LIMIT, ask_leader};
use super::topic_view::{text, topic_name};
use super::{Answer, Api, Call, Request};
use crate::broker::clock;
use crate::controller::{QuorumStatus, ReplicaStatus};
use crate::types::ErrorCode;
use crate::wire::messages::DescribeQuorumRequest;
use crate::wire::messages::describe_quorum_response::{
    DescribeQuorumResponse, Listener, Node, PartitionData, ReplicaState, TopicData,
};

const TOPIC: &str = "__cluster_metadata";
const UNKNOWN: i64 = -1;

pub async fn handle(
    api: &Arc<Api>,
    call: &Call,
    request: Request<DescribeQuorumRequest>,
) -> Answer<DescribeQuorumResponse> {
    let (api, role) = (Arc::clone(api), call.listener.role);
    Answer::Later(Box::pin(async move {
        let Request { version, body, .. } = request;
        Answer::Now(match ask_leader(&api, role, version, &body, FORWARD_LIMIT, error_of).await {
            Some(answer) => answer,
            None => answer(&api, version, &body),
        })
    }))
}

/// The first error in an answer.
fn error_of(answer: &DescribeQuorumResponse) -> i16 {
    let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions).map(|it| it.error_code);
    std::iter::once(answer.error_code).chain(partitions).find(|code| *code != 0).unwrap_or(0)
}

fn answer(api: &Api, version: i16, request: &DescribeQuorumRequest) -> DescribeQuorumResponse {
    let status = api.metadata.quorum_status(clock::wall());
    let is_the_log = request.topics.iter().any(|topic| {
        topic.topic_name.as_str() == TOPIC && topic.partitions.iter().any(|it| it.partition_index == 0)
    });
    let leads = status.leader == Some(api.node.id);
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let known = topic.topic_name.as_str() == TOPIC && asked.partition_index == 0;
            let shown = PartitionData::default().with_partition_index(asked.partition_index);
            if !known {
                failed(version, shown, ErrorCode::UnknownTopicOrPartition)
            } else if leads {
                described(version, shown, &status)
            } else {
                failed(version, shown, ErrorCode::NotLeaderOrFollower)
            }
        });
        TopicData::default()
            .with_topic_name(topic_name(topic.topic_name.as_str()))
            .with_partitions(partitions.collect())
    });
    let response = DescribeQuorumResponse::default().with_topics(topics.collect());
    if version < 2 {
        return response;
    }
    let nodes = if is_the_log && leads { status.voters.iter().map(node).collect() } else { Vec::new() };
    response.with_nodes(nodes)
}

fn failed(version: i16, shown: PartitionData, error: ErrorCode) -> PartitionData {
    let shown = shown.with_error_code(error.code());
    if version >= 2 { shown.with_error_message(Some(text(error.name()))) } else { shown }
}

fn described(version: i16, shown: PartitionData, status: &QuorumStatus) -> PartitionData {
    let states = |replicas: &[ReplicaStatus]| replicas.iter().map(|it| state(version, it)).collect();
    // No error has the empty message, not the null that the schema would also allow: so it is in Kafka.
    shown
        .with_leader_id(status.leader.map_or(-1, |leader| leader.0).into())
        .with_leader_epoch(status.epoch)
        .with_high_watermark(status.high_watermark.0)
        .with_current_voters(states(&status.voters))
        .with_observers(states(&status.observers))
}

fn state(version: i16, replica: &ReplicaStatus) -> ReplicaState {
    let shown = ReplicaState::default()
        .with_replica_id(replica.node.0.into())
        .with_log_end_offset(replica.log_end.map_or(UNKNOWN, |end| end.0));
    let shown = if version >= 1 {
        shown
            .with_last_fetch_timestamp(replica.last_fetch.map_or(UNKNOWN, |at| at.0))
            .with_last_caught_up_timestamp(replica.last_caught_up.map_or(UNKNOWN, |at| at.0))
    } else {
        shown
    };
    if version >= 2 { shown.with_replica_directory_id(replica.directory_id) } else { shown }
}

fn node(replica: &ReplicaStatus) -> Node {
    let listeners = replica.endpoints.iter().map(|endpoint| {
        Listener::default()
            .with_name(text(&endpoint.listener))
            .with_host(text(&endpoint.host))
            .with_port(endpoint.port)
    });
    Node::default().with_node_id(replica.node.0.into()).with_listeners(listeners.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Offset;

    #[test]
    fn no_error_has_the_empty_message() {
        let status = QuorumStatus {
            leader: None,
            epoch: 1,
            high_watermark: Offset(1),
            voters: Vec::new(),
            observers: Vec::new(),
        };
        for version in 0..=2 {
            let shown = described(version, PartitionData::default(), &status);
            assert_eq!(
                (shown.error_code, shown.error_message.as_deref()),
                (0, Some("")),
                "version {version}"
            );
        }
    }
}
