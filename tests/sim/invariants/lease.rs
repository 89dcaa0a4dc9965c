//! No lease outlives an election: with acks=all nothing is acknowledged by a leader once another one has been elected uncleanly,
//! for nobody will have it. Of clean elections the replicas in sync take care.

use super::Broken;
use crate::metadata::Image;
use crate::types::{LeaderEpoch, NodeId, TopicIdPartition};

pub fn check(head: &Image, node: NodeId, id: TopicIdPartition, epoch: LeaderEpoch) -> Result<(), Broken> {
    let partition = head.topics.partition(id.topic_id, id.partition);
    let lossy = partition.map_or(LeaderEpoch::UNKNOWN, |partition| partition.lossy_epoch);
    if lossy > epoch {
        return Err(format!(
            "lease: {node} acknowledges in epoch {epoch} of {id:?}, which ended with {lossy}"
        ));
    }
    Ok(())
}
