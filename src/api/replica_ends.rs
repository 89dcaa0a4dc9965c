//! ReplicaEnds: v0, our own
//!
//! Behaviour: the end of each replica's log that is in service here, and the leader epoch of its last record. Whether the
//! replica leads makes no difference: it is asked when nobody does.
//!
//! Version notes: none yet.

use super::{Api, Call, Request};
use crate::broker::partitions::Role;
use crate::types::{LeaderEpoch, PartitionIndex, TopicIdPartition};
use crate::wire::messages::replica_ends::ReplicaEnd;
use crate::wire::messages::{ReplicaEndsRequest, ReplicaEndsResponse};

pub async fn handle(api: &Api, _: &Call, request: Request<ReplicaEndsRequest>) -> ReplicaEndsResponse {
    let topics = request.body.topics.iter();
    let asked = topics.flat_map(|topic| topic.partitions.iter().map(|index| (topic.topic_id, *index)));
    let end = |(topic_id, index)| {
        let id = TopicIdPartition { topic_id, partition: PartitionIndex(index) };
        let partition = api.broker().partitions.get(&id)?;
        if partition.leadership().role == Role::Offline {
            return None;
        }
        let view = partition.view();
        let leader_epoch = view.epochs().latest().map_or(LeaderEpoch::UNKNOWN, |last| last.epoch).0;
        Some(ReplicaEnd {
            topic_id,
            partition: index,
            leader_epoch,
            log_end: view.log_end.0,
            ..Default::default()
        })
    };
    ReplicaEndsResponse { replicas: asked.filter_map(end).collect(), ..Default::default() }
}
