//! ListOffsets: v1-11
//!
//! Behaviour: the first offset whose record is at least as late as a timestamp, or one of the named offsets below. A consumer
//! sees nothing at or above the high watermark, or above the last stable offset when it reads committed records only. Only the
//! leader answers; to replica id -2 a follower does too.
//!
//! Version notes: 4 adds leader epochs; 5 knows OFFSET_NOT_AVAILABLE; 7 asks for the record with the latest timestamp (-3,
//! KIP-734); 8 for the start of the local log (-4); 9 for the end of what is in tiered storage (-5, KIP-1005); 11 for the
//! first offset that still has to go there (-6). There is no tiered storage, so -4 is the log start and -5 and -6 have
//! no offset.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use super::hosted::Led;
use super::{Api, Call, Request};
use crate::storage::log::LogView;
use crate::types::{ErrorCode, LeaderEpoch, Offset, TimestampMs};
use crate::wire::messages::ListOffsetsRequest;
use crate::wire::messages::list_offsets_request::ListOffsetsPartition;
use crate::wire::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

const CONSUMER: i32 = -1;
/// Somebody who looks at a replica, be it one that does not lead.
const DEBUGGER: i32 = -2;
const READ_COMMITTED: i8 = 1;
/// The first version that knows OFFSET_NOT_AVAILABLE.
const KNOWS_NOT_AVAILABLE: i16 = 5;

/// An offset with what goes with it; unknown where there is no such record.
#[derive(Clone, Copy, Debug)]
struct Listed {
    timestamp: TimestampMs,
    offset: Offset,
    epoch: LeaderEpoch,
}

const NOTHING: Listed =
    Listed { timestamp: TimestampMs::NONE, offset: Offset::UNKNOWN, epoch: LeaderEpoch::UNKNOWN };

pub async fn handle(api: &Arc<Api>, _: &Call, request: Request<ListOffsetsRequest>) -> ListOffsetsResponse {
    let (version, request) = (request.version, request.body);
    let needs_disk =
        |partition: &ListOffsetsPartition| partition.timestamp >= 0 || partition.timestamp == MAX_TIMESTAMP;
    let blocking = request.topics.iter().flat_map(|topic| &topic.partitions).any(needs_disk);
    let api = Arc::clone(api);
    let answer = move || respond(&api, version, &request);
    if !blocking {
        return answer();
    }
    // The pool refuses work only while the process ends, when nobody waits for an answer any more.
    tokio::task::spawn_blocking(answer).await.unwrap_or_default()
}

fn respond(api: &Api, version: i16, request: &ListOffsetsRequest) -> ListOffsetsResponse {
    let mut times: HashMap<(&str, i32), usize> = HashMap::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            *times.entry((topic.name.as_str(), partition.partition_index)).or_default() += 1;
        }
    }
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let twice = times[&(topic.name.as_str(), asked.partition_index)] > 1;
            let listed = if twice {
                Err(ErrorCode::InvalidRequest)
            } else {
                list(api, version, request, topic.name.as_str(), asked)
            };
            shown(version, asked.partition_index, listed)
        });
        ListOffsetsTopicResponse {
            name: topic.name.clone(),
            partitions: partitions.collect(),
            ..Default::default()
        }
    });
    ListOffsetsResponse { topics: topics.collect(), ..Default::default() }
}

fn shown(
    version: i16,
    partition_index: i32,
    listed: Result<Listed, ErrorCode>,
) -> ListOffsetsPartitionResponse {
    let (error, listed) = match listed {
        Ok(listed) => (ErrorCode::None, listed),
        Err(ErrorCode::OffsetNotAvailable) if version < KNOWS_NOT_AVAILABLE => {
            (ErrorCode::LeaderNotAvailable, NOTHING)
        }
        Err(error) => (error, NOTHING),
    };
    ListOffsetsPartitionResponse {
        partition_index,
        error_code: error.code(),
        timestamp: listed.timestamp.0,
        offset: listed.offset.0,
        leader_epoch: if version >= 4 { listed.epoch.0 } else { LeaderEpoch::UNKNOWN.0 },
        ..Default::default()
    }
}

/// The first version that has a named offset.
fn first_version(timestamp: i64) -> i16 {
    match timestamp {
        MAX_TIMESTAMP => 7,
        EARLIEST_LOCAL => 8,
        LATEST_TIERED => 9,
        EARLIEST_PENDING_UPLOAD => 11,
        _ => 1,
    }
}

fn list(
    api: &Api,
    version: i16,
    request: &ListOffsetsRequest,
    topic: &str,
    asked: &ListOffsetsPartition,
) -> Result<Listed, ErrorCode> {
    if version < first_version(asked.timestamp) || asked.timestamp < EARLIEST_PENDING_UPLOAD {
        return Err(ErrorCode::UnsupportedVersion);
    }
    let image = api.metadata.image();
    let epoch = LeaderEpoch(asked.current_leader_epoch);
    let led = if request.replica_id == DEBUGGER {
        api.hosted_by_name(&image, topic, asked.partition_index, epoch)?
    } else {
        api.led_by_name(&image, topic, asked.partition_index, epoch)?
    };
    let view = led.partition.view();
    let is_client = request.replica_id == CONSUMER;
    let bound = match request.isolation_level {
        _ if !is_client => view.log_end,
        READ_COMMITTED => view.last_stable,
        _ => view.high_watermark,
    };
    // Right after an election the high watermark may be older than what consumers have seen of the last leader.
    let behind = led.leadership.epoch_start.is_some_and(|start| start > view.high_watermark);
    let not_available = is_client && behind;
    match asked.timestamp {
        LATEST if not_available => Err(ErrorCode::OffsetNotAvailable),
        LATEST => Ok(Listed { offset: bound, epoch: led.leadership.leader_epoch, ..NOTHING }),
        EARLIEST | EARLIEST_LOCAL => {
            let epoch = view.epochs().epoch_of(view.log_start).unwrap_or(LeaderEpoch::UNKNOWN);
            Ok(Listed { offset: view.log_start, epoch, ..NOTHING })
        }
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => Ok(NOTHING),
        timestamp => match search(&led, &view, timestamp)? {
            Some(found) if found.offset < bound => Ok(found),
            _ if not_available => Err(ErrorCode::OffsetNotAvailable),
            _ => Ok(NOTHING),
        },
    }
}

fn search(led: &Led, view: &LogView, timestamp: i64) -> Result<Option<Listed>, ErrorCode> {
    let found = match timestamp {
        MAX_TIMESTAMP => view.max_timestamp(),
        timestamp => view.offset_for_timestamp(TimestampMs(timestamp)),
    };
    let found = found.map_err(|error: io::Error| {
        tracing::error!(partition = %led.partition.name, %error, "cannot search the log by time");
        ErrorCode::KafkaStorageError
    })?;
    Ok(found.map(|found| Listed {
        timestamp: found.timestamp,
        offset: found.offset,
        epoch: found.leader_epoch,
    }))
}
