//! WriteTxnMarkers: v1-2
//!
//! Behaviour: a transaction coordinator has each partition's leader append the marker that ends a producer's transaction
//! there; the answer leaves when the markers are committed. A marker that was written before is written again and changes
//! nothing. A producer of a later epoch refuses the marker with INVALID_PRODUCER_EPOCH, a coordinator of a later epoch
//! with TRANSACTION_COORDINATOR_FENCED. A partition of `__consumer_offsets` gets its marker from the coordinator of its groups,
//! which has offsets waiting for it.
//!
//! Version notes: 2 tells the version of transactions, which decides what a marker's epoch must be; without it the rule of
//! the first generation holds.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Answer, Api, Call, Request, produce_error};
use crate::broker::coordinators::CoordinatorError;
use crate::broker::transactions::{MarkerError, MarkerWrite};
use crate::coordinator::Producer;
use crate::storage::log::producer_state::MarkerEpoch;
use crate::types::{ErrorCode, ProducerEpoch, ProducerId, TopicPartition};
use crate::wire::control::TxnResult;
use crate::wire::messages::WriteTxnMarkersRequest;
use crate::wire::messages::write_txn_markers_request::WritableTxnMarker;
use crate::wire::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
};

/// From this version of transactions on each transaction has an epoch of its own.
const RAISES_EPOCH: i8 = 2;

pub async fn handle(
    api: &Arc<Api>,
    _: &Call,
    request: Request<WriteTxnMarkersRequest>,
) -> Answer<WriteTxnMarkersResponse> {
    let timeout_ms = i64::from(api.config.latest().broker.request_timeout_ms);
    let image = api.metadata.image();
    let writes: Vec<MarkerWrite> = request.body.markers.iter().flat_map(writes).collect();
    let writing = api.broker().markers.write(&image, &writes, timeout_ms).await;
    // The next markers of the connection do not wait until these are committed.
    Answer::Later(Box::pin(async move { Answer::Now(respond(&writes, &writing.answers().await)) }))
}

pub(crate) fn writes(marker: &WritableTxnMarker) -> impl Iterator<Item = MarkerWrite> {
    let result = if marker.transaction_result { TxnResult::Commit } else { TxnResult::Abort };
    let producer =
        Producer { id: ProducerId(marker.producer_id), epoch: ProducerEpoch(marker.producer_epoch) };
    let coordinator_epoch = marker.coordinator_epoch;
    let marker_epoch = match marker.transaction_version {
        RAISES_EPOCH.. => MarkerEpoch::Later,
        _ => MarkerEpoch::SameOrLater,
    };
    let partitions = marker.topics.iter().flat_map(|topic| {
        topic.partition_indexes.iter().map(|&index| TopicPartition::new(topic.name.as_str(), index))
    });
    partitions.map(move |partition| MarkerWrite {
        partition,
        producer,
        result,
        coordinator_epoch,
        marker_epoch,
    })
}

/// The codes of which a coordinator knows that it should try again, or not.
fn code(written: &Result<(), MarkerError>) -> ErrorCode {
    match written {
        Ok(()) => ErrorCode::None,
        Err(MarkerError::NotHere) => ErrorCode::UnknownTopicOrPartition,
        Err(MarkerError::Append(error)) => produce_error::classify(error).0,
        Err(MarkerError::Coordinator(error)) => match error {
            CoordinatorError::NotHere | CoordinatorError::Loading => ErrorCode::NotLeaderOrFollower,
            CoordinatorError::NotEnoughReplicas => ErrorCode::NotEnoughReplicas,
            CoordinatorError::TimedOut => ErrorCode::RequestTimedOut,
            CoordinatorError::ProducerFenced => ErrorCode::InvalidProducerEpoch,
            CoordinatorError::MarkerFenced => ErrorCode::TransactionCoordinatorFenced,
            CoordinatorError::TooLarge | CoordinatorError::Failed => ErrorCode::UnknownServerError,
        },
    }
}

/// One result for each producer: a coordinator looks for its answers by the producer's id.
pub(crate) fn respond(
    writes: &[MarkerWrite],
    written: &[Result<(), MarkerError>],
) -> WriteTxnMarkersResponse {
    let mut producers: Vec<(ProducerId, BTreeMap<&str, Vec<WritableTxnMarkerPartitionResult>>)> = Vec::new();
    let mut places: HashMap<ProducerId, usize> = HashMap::new();
    for (write, written) in writes.iter().zip(written) {
        let producer_id = write.producer.id;
        let place = *places.entry(producer_id).or_insert_with(|| {
            producers.push((producer_id, BTreeMap::new()));
            producers.len() - 1
        });
        let TopicPartition { topic, partition } = &write.partition;
        producers[place].1.entry(topic).or_default().push(WritableTxnMarkerPartitionResult {
            partition_index: partition.0,
            error_code: code(written).code(),
            ..Default::default()
        });
    }
    let markers = producers.into_iter().map(|(producer_id, topics)| {
        let topics = topics.into_iter().map(|(name, partitions)| WritableTxnMarkerTopicResult {
            name: name.to_owned().into(),
            partitions,
            ..Default::default()
        });
        WritableTxnMarkerResult { producer_id: producer_id.0, topics: topics.collect(), ..Default::default() }
    });
    WriteTxnMarkersResponse { markers: markers.collect(), ..Default::default() }
}
