//! A follower's questions as Kafka's requests. The other way round is in `answers`.
//!
//! Invariant: each partition is named as its shard wants it, nothing is added.

use super::core::FetcherConfig;
use crate::replica::{BoundsQuery, FetchFrom, PlannedFetch, Report};
use crate::types::{BrokerEpoch, LeaderEpoch, NodeId, TopicIdPartition, TopicPartition};
use crate::wire::messages::fetch_request::{
    FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState,
};
use crate::wire::messages::list_offsets_request::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
};
use crate::wire::messages::{BrokerId, StrBytes, follower_fetch};

/// The epoch of a request that has no session and wants none.
const NO_SESSION_EPOCH: i32 = -1;
/// The timestamps that ask for the ends of a log.
pub(super) const EARLIEST: i64 = -2;
pub(super) const LATEST: i64 = -1;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    pub node: NodeId,
    pub epoch: BrokerEpoch,
}

pub(super) fn fetch(asker: Asker, config: &FetcherConfig, planned: &PlannedFetch) -> FetchRequest {
    let mut forgotten: Vec<ForgottenTopic> = Vec::new();
    for id in &planned.forgotten {
        match forgotten.last_mut() {
            Some(last) if last.topic_id == id.topic_id => last.partitions.push(id.partition.0),
            _ => {
                let topic = ForgottenTopic::default().with_topic_id(id.topic_id);
                forgotten.push(topic.with_partitions(vec![id.partition.0]));
            }
        }
    }
    base(asker, planned.hurries)
        .with_max_wait_ms(config.wait_max_ms)
        .with_min_bytes(config.min_bytes)
        .with_max_bytes(i32::try_from(planned.max_bytes).unwrap_or(i32::MAX))
        .with_session_id(planned.session_id)
        .with_session_epoch(planned.session_epoch)
        .with_topics(topics(&planned.partitions, config.partition_max_bytes))
        .with_forgotten_topics_data(forgotten)
}

/// A fetch that brings nothing and is answered at once: it only tells.
pub(super) fn report(asker: Asker, report: &Report) -> FetchRequest {
    base(asker, report.hurries)
        .with_max_wait_ms(0)
        .with_min_bytes(0)
        .with_max_bytes(0)
        .with_session_epoch(NO_SESSION_EPOCH)
        .with_topics(topics(&report.flushed, 0))
}

fn base(asker: Asker, hurries: i64) -> FetchRequest {
    let state = ReplicaState::default();
    let state = state.with_replica_id(BrokerId(asker.node.0)).with_replica_epoch(asker.epoch.0);
    let mut request = FetchRequest::default().with_replica_state(state);
    follower_fetch::tell_hurries(&mut request, hurries);
    request
}

fn topics(partitions: &[(TopicIdPartition, FetchFrom)], max_bytes: i32) -> Vec<FetchTopic> {
    let mut topics: Vec<FetchTopic> = Vec::new();
    for (id, from) in partitions {
        let last_fetched = from.last_fetched_epoch.unwrap_or(LeaderEpoch::UNKNOWN);
        let mut partition = FetchPartition::default()
            .with_partition(id.partition.0)
            .with_current_leader_epoch(from.current_leader_epoch.0)
            .with_fetch_offset(from.offset.0)
            .with_last_fetched_epoch(last_fetched.0)
            .with_log_start_offset(from.log_start.0)
            .with_high_watermark(from.high_watermark.0)
            .with_partition_max_bytes(max_bytes);
        follower_fetch::tell_flushed(&mut partition, from.flushed);
        match topics.last_mut() {
            Some(last) if last.topic_id == id.topic_id => last.partitions.push(partition),
            _ => {
                let topic = FetchTopic::default().with_topic_id(id.topic_id);
                topics.push(topic.with_partitions(vec![partition]));
            }
        }
    }
    topics
}

/// Asks for one end of each partition's log.
pub(super) fn bounds<'a>(
    asker: Asker,
    timestamp: i64,
    queries: impl Iterator<Item = (&'a TopicPartition, &'a BoundsQuery)>,
) -> ListOffsetsRequest {
    let topics = queries.map(|(name, query)| ListOffsetsTopic {
        name: StrBytes::from_string(name.topic.to_string()),
        partitions: vec![ListOffsetsPartition {
            partition_index: name.partition.0,
            current_leader_epoch: query.current_leader_epoch.0,
            timestamp,
            ..Default::default()
        }],
        ..Default::default()
    });
    ListOffsetsRequest { replica_id: asker.node.0, topics: topics.collect(), ..Default::default() }
}
