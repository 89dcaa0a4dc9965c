//! Leaders' answers in a follower's words: Kafka's error codes end here.

use crate::replica::{EpochEnd, LaneAnswer, Refusal};
use crate::types::{ErrorCode, LeaderEpoch, Offset};
use crate::wire::messages::fetch_response::{FetchResponse, PartitionData};

/// Whether the request as a whole was served, in which session.
pub(super) fn lane_answer(response: &FetchResponse) -> LaneAnswer {
    if response.error_code == ErrorCode::None.code() {
        LaneAnswer::Session(response.session_id)
    } else {
        LaneAnswer::SessionLost
    }
}

pub(super) fn refusal(code: i16) -> Option<Refusal> {
    match ErrorCode::from_code(code) {
        Some(ErrorCode::None) => None,
        Some(ErrorCode::OffsetOutOfRange) => Some(Refusal::OffsetOutOfRange),
        Some(ErrorCode::FencedLeaderEpoch) => Some(Refusal::FencedLeaderEpoch),
        Some(ErrorCode::UnknownLeaderEpoch) => Some(Refusal::UnknownLeaderEpoch),
        Some(ErrorCode::NotLeaderOrFollower) => Some(Refusal::NotLeader),
        Some(ErrorCode::UnknownTopicOrPartition) => Some(Refusal::UnknownTopicOrPartition),
        Some(ErrorCode::UnknownTopicId) => Some(Refusal::UnknownTopicId),
        Some(ErrorCode::InconsistentTopicId) => Some(Refusal::InconsistentTopicId),
        Some(ErrorCode::KafkaStorageError) => Some(Refusal::StorageError),
        _ => Some(Refusal::Other),
    }
}

/// Where the logs part, if the leader says that they do.
pub(super) fn diverging(data: &PartitionData) -> Option<EpochEnd> {
    let EpochEnd { epoch, end } = EpochEnd {
        epoch: LeaderEpoch(data.diverging_epoch.epoch),
        end: Offset(data.diverging_epoch.end_offset),
    };
    (epoch != LeaderEpoch::UNKNOWN || end != Offset::UNKNOWN).then_some(EpochEnd { epoch, end })
}
