//! OffsetForLeaderEpoch: v2-4 (KIP-101, KIP-320)
//!
//! Behaviour: the largest epoch of the log up to the one asked for, and the offset where it ends: where a log that went
//! another way since must be cut. -1 for both when nothing is known.
//!
//! Version notes: 3 tells followers from consumers, which makes no difference here: both see where epochs end.

use super::topic_view::topic_name;
use super::{Api, Call, Request};
use crate::types::{ErrorCode, LeaderEpoch, Offset};
use crate::wire::messages::OffsetForLeaderEpochRequest;
use crate::wire::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use crate::wire::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<OffsetForLeaderEpochRequest>,
) -> OffsetForLeaderEpochResponse {
    let topics = request.body.topics.iter().map(|topic| {
        let partitions =
            topic.partitions.iter().map(|partition| answer(api, topic.topic.as_str(), partition));
        OffsetForLeaderTopicResult::default()
            .with_topic(topic_name(topic.topic.as_str()))
            .with_partitions(partitions.collect())
    });
    OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
}

fn answer(api: &Api, topic: &str, asked: &OffsetForLeaderPartition) -> EpochEndOffset {
    let image = api.metadata.image();
    let led = api.led_by_name(&image, topic, asked.partition, LeaderEpoch(asked.current_leader_epoch));
    let (error, (epoch, end)) = match led {
        Err(error) => (error, (LeaderEpoch::UNKNOWN, Offset::UNKNOWN)),
        Ok(led) => {
            let end = led.partition.view().end_offset_for_epoch(LeaderEpoch(asked.leader_epoch));
            (ErrorCode::None, end.unwrap_or((LeaderEpoch::UNKNOWN, Offset::UNKNOWN)))
        }
    };
    EpochEndOffset::default()
        .with_error_code(error.code())
        .with_partition(asked.partition)
        .with_leader_epoch(epoch.0)
        .with_end_offset(end.0)
}
