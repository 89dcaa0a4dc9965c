//! The answer to a fetch: names in an incremental session only what is news to the client.

use std::collections::BTreeMap;

use super::read::{Data, PartitionRead, Round};
use super::session::{FetchContext, Key, NO_SESSION, Told, TopicKey};
use crate::api::hosted::{CurrentLeader, current_leader};
use crate::api::topic_view::text;
use crate::api::{Api, Call};
use crate::replica::EpochEnd;
use crate::storage::log::AbortedTxn;
use crate::types::{ErrorCode, NodeId, Offset, Uuid};
use crate::wire::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchResponse, FetchableTopicResponse, LeaderIdAndEpoch,
    NodeEndpoint, PartitionData,
};

/// The first version whose clients know KAFKA_STORAGE_ERROR.
const KNOWS_STORAGE_ERROR: i16 = 6;
/// The first version that tells who leads now (KIP-951).
const CURRENT_LEADER: i16 = 16;

pub fn build(api: &Api, call: &Call, version: i16, session: &FetchContext, round: Round) -> FetchResponse {
    let told: Vec<(&Key, Told)> =
        session.partitions.iter().map(|(key, _)| key).zip(round.reads.iter().map(told)).collect();
    let news = session.must_tell(&told);
    let session_id = if version >= 7 { session.session_id() } else { NO_SESSION };
    let mut response = FetchResponse { session_id, ..Default::default() };
    let mut endpoints = BTreeMap::new();
    let image = api.metadata.image();
    let parts = session.partitions.iter().zip(round.reads).zip(news);
    for (((key, _), read), _) in parts.filter(|(_, is_news)| *is_news) {
        let (topic, partition) = key;
        let leader = read.id.filter(|_| version >= CURRENT_LEADER && wants_leader(&read.result));
        let leader = leader.and_then(|id| current_leader(&image, id, &call.listener.name));
        let mut data = partition_data(version, partition.0, read.result);
        if let Some(leader) = leader {
            data.current_leader = LeaderIdAndEpoch {
                leader_id: leader.id.0,
                leader_epoch: leader.epoch.0,
                ..Default::default()
            };
            endpoints.extend(node_endpoint(leader));
        }
        push(&mut response.responses, topic, data);
    }
    response.node_endpoints = endpoints.into_values().collect();
    response
}

fn told(read: &PartitionRead) -> Told {
    match &read.result {
        Ok(data) => Told {
            error: ErrorCode::None,
            has_records: !data.records.is_empty(),
            high_watermark: data.view.high_watermark,
            log_start_offset: data.view.log_start,
            has_advice: data.diverging.is_some() || data.preferred.is_some(),
            counts_flushed: data.counts_flushed,
        },
        Err(error) => Told {
            error: *error,
            has_records: false,
            high_watermark: Offset::UNKNOWN,
            log_start_offset: Offset::UNKNOWN,
            has_advice: false,
            counts_flushed: false,
        },
    }
}

fn wants_leader(result: &Result<Data, ErrorCode>) -> bool {
    matches!(result, Err(ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch))
}

fn node_endpoint(leader: CurrentLeader) -> Option<(NodeId, NodeEndpoint)> {
    let (host, port, rack) = leader.endpoint?;
    let endpoint = NodeEndpoint {
        node_id: leader.id.0,
        host: text(&host),
        port: i32::from(port),
        rack: rack.as_deref().map(text),
        ..Default::default()
    };
    Some((leader.id, endpoint))
}

fn partition_data(version: i16, index: i32, result: Result<Data, ErrorCode>) -> PartitionData {
    let shown = PartitionData { partition_index: index, aborted_transactions: None, ..Default::default() };
    match result {
        Err(error) => {
            let known = error != ErrorCode::KafkaStorageError || version >= KNOWS_STORAGE_ERROR;
            let error = if known { error } else { ErrorCode::NotLeaderOrFollower };
            PartitionData {
                error_code: error.code(),
                high_watermark: Offset::UNKNOWN.0,
                records: Some(Default::default()),
                ..shown
            }
        }
        Ok(data) => PartitionData {
            high_watermark: data.view.high_watermark.0,
            last_stable_offset: data.view.last_stable.0,
            log_start_offset: data.view.log_start.0,
            preferred_read_replica: data.preferred.unwrap_or(NodeId::NONE).0,
            diverging_epoch: data.diverging.map(diverging).unwrap_or_default(),
            aborted_transactions: data
                .aborted
                .map(|aborted| aborted.iter().map(aborted_transaction).collect()),
            records: Some(data.records.into()),
            counts_flushed: data.counts_flushed,
            ..shown
        },
    }
}

fn diverging(EpochEnd { epoch, end }: EpochEnd) -> EpochEndOffset {
    EpochEndOffset { epoch: epoch.0, end_offset: end.0, ..Default::default() }
}

fn aborted_transaction(txn: &AbortedTxn) -> AbortedTransaction {
    AbortedTransaction {
        producer_id: txn.producer_id.0,
        first_offset: txn.first_offset.0,
        ..Default::default()
    }
}

/// Adds to the last topic if it is the same one, so that the order of the session is kept.
fn push(topics: &mut Vec<FetchableTopicResponse>, topic: &TopicKey, data: PartitionData) {
    let (name, id) = match topic {
        TopicKey::Name(name) => (text(name), Uuid::nil()),
        TopicKey::Id(id) => (text(""), *id),
    };
    match topics.last_mut() {
        Some(last) if last.topic == name && last.topic_id == id => last.partitions.push(data),
        _ => topics.push(FetchableTopicResponse {
            topic: name,
            topic_id: id,
            partitions: vec![data],
            ..Default::default()
        }),
    }
}
