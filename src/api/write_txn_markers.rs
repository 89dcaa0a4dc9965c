//! WriteTxnMarkers: v1-2
//!
//! Behaviour: a transaction coordinator has each partition's leader append the marker that ends a producer's transaction
//! there; the answer leaves when the markers are committed. A marker that was written before is written again and changes
//! nothing. A producer of a later epoch refuses the marker with INVALID_PRODUCER_EPOCH, a coordinator of a later epoch
//! with TRANSACTION_COORDINATOR_FENCED. In the partitions of groups it is their coordinators that write the markers.
//!
//! Version notes: 2 tells the version of transactions, which decides what a marker's epoch must be; without it the rule of
//! the first generation holds.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::coordination::code_of;
use super::{Api, Call, Request, produce_error};
use crate::broker::clock;
use crate::broker::coordinators::{CoordinatorError, Ending};
use crate::broker::messages::Appending;
use crate::coordinator::Producer;
use crate::metadata::Image;
use crate::replica::Acks;
use crate::storage::log::Origin;
use crate::storage::log::producer_state::{Coordinated, MarkerEpoch};
use crate::types::{
    ErrorCode, LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicIdPartition,
};
use crate::wire::control::{EndTxnMarker, TxnResult};
use crate::wire::messages::WriteTxnMarkersRequest;
use crate::wire::messages::write_txn_markers_request::WritableTxnMarker;
use crate::wire::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
};

/// From this version of transactions on each transaction has an epoch of its own.
const RAISES_EPOCH: i8 = 2;

/// One partition of one marker.
struct Part {
    producer_id: i64,
    topic: String,
    partition: i32,
    /// `None` while it is being appended.
    outcome: Option<ErrorCode>,
}

pub async fn handle(
    api: &Arc<Api>,
    _: &Call,
    request: Request<WriteTxnMarkersRequest>,
) -> WriteTxnMarkersResponse {
    let timeout_ms = i64::from(api.config.latest().broker.request_timeout_ms);
    let Sorted { mut parts, appends, groups } = sort(&api.metadata.image(), api, &request.body.markers);
    let partitions = &api.broker().partitions;
    let appended = partitions.append(Some(Acks::All), Origin::Coordinator, timeout_ms, appends).await;
    let mut told = Vec::with_capacity(groups.len());
    for (part, partition, ending) in groups {
        told.push((part, api.broker().groups.end_transaction(partition, ending).await));
    }
    for (part, pending) in told {
        parts[part].outcome = Some(pending.answer().await.map_or_else(group_code, |()| ErrorCode::None));
    }
    let waiting = parts.iter_mut().filter(|part| part.outcome.is_none());
    for (part, result) in waiting.zip(appended.all().await) {
        part.outcome = Some(match result {
            Ok(_) => ErrorCode::None,
            Err(error) => produce_error::classify(&error).0,
        });
    }
    respond(parts)
}

/// A transaction coordinator looks for the partition's leader, and knows nothing of coordinators of groups.
fn group_code(error: CoordinatorError) -> ErrorCode {
    match code_of(error) {
        ErrorCode::NotCoordinator
        | ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::CoordinatorNotAvailable => ErrorCode::NotLeaderOrFollower,
        code => code,
    }
}

/// The request, sorted by who writes the markers.
#[derive(Default)]
struct Sorted {
    /// In the order of the request.
    parts: Vec<Part>,
    /// For the logs that are here.
    appends: Vec<Appending>,
    /// For the coordinators of groups, which have to hear of the end of what was committed in the transaction: the place among
    /// the parts, and the partition.
    groups: Vec<(usize, PartitionIndex, Ending)>,
}

fn sort(image: &Image, api: &Api, markers: &[WritableTxnMarker]) -> Sorted {
    let mut sorted = Sorted::default();
    for marker in markers {
        for topic in &marker.topics {
            let found = image.topics.by_name(topic.name.as_str());
            let is_of_groups = topic.name.as_str() == api.broker().groups.topic();
            for &index in &topic.partition_indexes {
                let partition = PartitionIndex(index);
                let id = found.map(|found| TopicIdPartition { topic_id: found.id, partition });
                let here = id.filter(|id| api.broker().partitions.get(id).is_some());
                match here {
                    Some(_) if is_of_groups => {
                        sorted.groups.push((sorted.parts.len(), partition, ending(marker)));
                    }
                    Some(id) => sorted.appends.push(appending(id, marker)),
                    None => {}
                }
                // Whatever a coordinator says will stand in its place.
                let awaits_log = here.is_some() && !is_of_groups;
                sorted.parts.push(Part {
                    producer_id: marker.producer_id,
                    topic: topic.name.to_string(),
                    partition: index,
                    outcome: (!awaits_log).then_some(ErrorCode::UnknownTopicOrPartition),
                });
            }
        }
    }
    sorted
}

fn ending(marker: &WritableTxnMarker) -> Ending {
    let result = if marker.transaction_result { TxnResult::Commit } else { TxnResult::Abort };
    let end = EndTxnMarker { result, coordinator_epoch: marker.coordinator_epoch, timestamp: clock::wall() };
    let marker_epoch = match marker.transaction_version {
        RAISES_EPOCH.. => MarkerEpoch::Later,
        _ => MarkerEpoch::SameOrLater,
    };
    let producer =
        Producer { id: ProducerId(marker.producer_id), epoch: ProducerEpoch(marker.producer_epoch) };
    Ending { producer, marker: end, marker_epoch }
}

fn appending(partition: TopicIdPartition, marker: &WritableTxnMarker) -> Appending {
    let Ending { producer, marker, marker_epoch } = ending(marker);
    let records = marker.batch(producer.id, producer.epoch, Offset::ZERO, LeaderEpoch::UNKNOWN);
    Appending { partition, records, coordinated: Coordinated { marker_epoch, ..Coordinated::default() } }
}

/// One result for each producer: a coordinator looks for its answers by the producer's id.
fn respond(parts: Vec<Part>) -> WriteTxnMarkersResponse {
    let mut producers: Vec<(i64, BTreeMap<String, Vec<WritableTxnMarkerPartitionResult>>)> = Vec::new();
    let mut places: HashMap<i64, usize> = HashMap::new();
    for part in parts {
        let place = *places.entry(part.producer_id).or_insert_with(|| {
            producers.push((part.producer_id, BTreeMap::new()));
            producers.len() - 1
        });
        producers[place].1.entry(part.topic).or_default().push(WritableTxnMarkerPartitionResult {
            partition_index: part.partition,
            // A slot that is dropped answers by itself, so an outcome is missing only while the node stops.
            error_code: part.outcome.unwrap_or(ErrorCode::NotLeaderOrFollower).code(),
            ..Default::default()
        });
    }
    let markers = producers.into_iter().map(|(producer_id, topics)| {
        let topics = topics.into_iter().map(|(name, partitions)| WritableTxnMarkerTopicResult {
            name: name.into(),
            partitions,
            ..Default::default()
        });
        WritableTxnMarkerResult { producer_id, topics: topics.collect(), ..Default::default() }
    });
    WriteTxnMarkersResponse { markers: markers.collect(), ..Default::default() }
}
