//! Produce: v3-13
//!
//! Behaviour: each partition gets one record batch, which is checked, given offsets and appended; the answer leaves when
//! the append is durable here (acks=1) or on every in-sync replica (acks=-1). acks=0 is never answered; when one of its
//! appends fails, the connection is closed, which is how the producer learns of it. The first phase ends when the
//! shards have the batches, so a connection's appends are in the order of its requests and its next request begins.
//!
//! Version notes: 7 allows zstd; 8 tells which records are wrong (KIP-467); 10 tells the new leader (KIP-951); 12 belongs to
//! transactions of the second generation (KIP-890); 13 names topics by id.
//!
//! Where a transaction begins in a partition, its coordinator is asked first (`transactional`).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::hosted::current_leader;
use super::topic_view::{is_internal, text, topic_name};
use super::transactional::{self, Candidate};
use super::{Answer, Api, Call, Request, produce_error};
use crate::broker::messages::{Appending, ProduceError, Produced};
use crate::broker::partitions::Partition;
use crate::replica::Acks;
use crate::storage::log::Origin;
use crate::storage::log::producer_state::Coordinated;
use crate::types::{
    ErrorCode, NodeId, Offset, PartitionIndex, TopicId, TopicIdPartition, TopicPartition, Uuid,
};
use crate::wire::batch::BatchHeader;
use crate::wire::compression::Compression;
use crate::wire::messages::ProduceRequest;
use crate::wire::messages::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, ProduceResponse,
    TopicProduceResponse,
};

/// The client id with which Kafka's tools may write to internal topics.
const ADMIN_CLIENT: &str = "__admin_client";

const LOG_START: i16 = 5;
const ZSTD: i16 = 7;
const RECORD_ERRORS: i16 = 8;
const CURRENT_LEADER: i16 = 10;
const TOPIC_IDS: i16 = 13;

pub async fn handle(
    api: &Arc<Api>,
    call: &Call,
    request: Request<ProduceRequest>,
) -> Answer<ProduceResponse> {
    let may_write_internal = request.client_id.as_deref() == Some(ADMIN_CLIENT);
    let (version, request) = (request.version, request.body);
    let acks = match request.acks {
        0 => None,
        1 => Some(Acks::Leader),
        -1 => Some(Acks::All),
        _ => return refuse_all(version, &request, ErrorCode::InvalidRequiredAcks),
    };
    let transaction = match transactional::of_request(&request) {
        Ok(transaction) => transaction,
        Err(refused) => return refuse_all(version, &request, refused),
    };
    let wants_answer = acks.is_some();
    let timeout_ms = i64::from(request.timeout_ms);
    let (mut parts, appends) = sort(api, version, may_write_internal, request);
    let appends = match &transaction {
        None => appends.into_iter().map(plain).collect(),
        Some(transaction) => verified(api, version, transaction, &mut parts, appends).await,
    };
    let gathered = api.broker().partitions.append(acks, Origin::Client, timeout_ms, appends).await;
    let (api, listener) = (Arc::clone(api), Arc::clone(&call.listener));
    Answer::Later(Box::pin(async move {
        let mut results = gathered.all().await.into_iter();
        for part in &mut parts {
            if part.outcome.is_none() {
                let id = TopicIdPartition { topic_id: part.topic_id, partition: PartitionIndex(part.index) };
                let failed = |error| Failure::of(&error, || api.broker().partitions.get(&id));
                part.outcome = results.next().map(|result| result.map_err(failed));
            }
        }
        if !wants_answer {
            return match parts.iter().find_map(Part::failure) {
                None => Answer::Nothing,
                Some((part, failure)) => Answer::Close(format!(
                    "produce with acks=0 failed for {}-{}: {}",
                    part.topic, part.index, failure.error
                )),
            };
        }
        Answer::Now(respond(&api, &listener.name, version, parts))
    }))
}

/// One partition of the request, in its order.
struct Part {
    topic: String,
    topic_id: TopicId,
    index: i32,
    /// `None` while the shard has not answered.
    outcome: Option<Result<Produced, Failure>>,
}

/// What an append is refused with.
#[derive(Debug)]
struct Failure {
    error: ErrorCode,
    message: Option<String>,
    record_errors: Vec<(i32, Option<String>)>,
    /// Where the records are, when they were appended and not acknowledged.
    appended: Option<Produced>,
    log_start: Offset,
}

impl Failure {
    fn new(error: ErrorCode) -> Failure {
        let (message, record_errors, appended) = Default::default();
        Failure { error, message, record_errors, appended, log_start: Offset::UNKNOWN }
    }

    fn internal_topic() -> Failure {
        let message = Some("clients do not write to internal topics".to_owned());
        Failure { message, ..Failure::new(ErrorCode::InvalidTopicException) }
    }

    fn of(error: &ProduceError, partition: impl FnOnce() -> Option<Arc<Partition>>) -> Failure {
        let (code, record_errors) = produce_error::classify(error);
        let appended = match error {
            ProduceError::Ack(_, produced) => Some(*produced),
            _ => None,
        };
        let log_start = match appended {
            Some(produced) => produced.log_start,
            None if produce_error::tells_log_start(error) => {
                partition().map_or(Offset::UNKNOWN, |partition| partition.view().log_start)
            }
            None => Offset::UNKNOWN,
        };
        Failure { error: code, message: Some(error.to_string()), record_errors, appended, log_start }
    }
}

impl Part {
    fn failure(&self) -> Option<(&Part, &Failure)> {
        match &self.outcome {
            Some(Err(failure)) => Some((self, failure)),
            _ => None,
        }
    }
}

fn plain((partition, records): (TopicIdPartition, Bytes)) -> Appending {
    Appending { partition, records, coordinated: Coordinated::default() }
}

/// Asks the coordinator of the transaction, and sorts out what may not be appended.
async fn verified(
    api: &Api,
    version: i16,
    transaction: &transactional::Transaction,
    parts: &mut [Part],
    appends: Vec<(TopicIdPartition, Bytes)>,
) -> Vec<Appending> {
    let waiting = parts.iter_mut().filter(|part| part.outcome.is_none());
    let (waiting, batches): (Vec<&mut Part>, Vec<Candidate>) = waiting
        .zip(appends)
        .map(|(part, (id, records))| {
            let name = TopicPartition::new(part.topic.as_str(), part.index);
            (part, Candidate { id, name, records })
        })
        .unzip();
    let results = transactional::verify(api, version, transaction, &batches).await;
    let mut appends = Vec::with_capacity(batches.len());
    for ((part, batch), result) in waiting.into_iter().zip(batches).zip(results) {
        match result {
            Ok(coordinated) => {
                appends.push(Appending { partition: batch.id, records: batch.records, coordinated });
            }
            Err(refused) => {
                let message = Some(refused.message);
                part.outcome = Some(Err(Failure { message, ..Failure::new(refused.error) }));
            }
        }
    }
    appends
}

/// Sorts out what can be refused without the log; the rest, in the order of the parts without an outcome, is to be appended.
fn sort(
    api: &Api,
    version: i16,
    may_write_internal: bool,
    request: ProduceRequest,
) -> (Vec<Part>, Vec<(TopicIdPartition, Bytes)>) {
    let image = api.metadata.image();
    let (mut parts, mut appends) = (Vec::new(), Vec::new());
    for topic in request.topic_data {
        let found = if topic.topic_id.is_nil() {
            image.topics.by_name(topic.name.as_str())
        } else {
            image.topics.by_id(topic.topic_id)
        };
        let topic_id = found.map_or(topic.topic_id, |found| found.id);
        let name = found.map_or_else(|| topic.name.to_string(), |found| found.name.to_string());
        for partition in topic.partition_data {
            let index = PartitionIndex(partition.index);
            let id = TopicIdPartition { topic_id, partition: index };
            let refused = match found {
                Some(found) if is_internal(&found.name) && !may_write_internal => {
                    Some(Failure::internal_topic())
                }
                None if version >= TOPIC_IDS => Some(Failure::new(ErrorCode::UnknownTopicId)),
                None => Some(Failure::new(ErrorCode::UnknownTopicOrPartition)),
                Some(found) if found.partition(index).is_none() => {
                    Some(Failure::new(ErrorCode::UnknownTopicOrPartition))
                }
                Some(_) if api.broker().partitions.is_unserved(&id) => {
                    Some(Failure::new(ErrorCode::KafkaStorageError))
                }
                Some(_) => refuse_batch(version, partition.records.as_deref()).map(Failure::new),
            };
            match (refused, partition.records) {
                (None, Some(records)) => appends.push((id, records)),
                (refused, _) => {
                    let failure = refused.unwrap_or_else(|| Failure::new(ErrorCode::InvalidRecord));
                    let (topic, outcome) = (name.clone(), Some(Err(failure)));
                    parts.push(Part { topic, topic_id, index: index.0, outcome });
                    continue;
                }
            }
            parts.push(Part { topic: name.clone(), topic_id, index: index.0, outcome: None });
        }
    }
    (parts, appends)
}

/// What the version of the request does not allow: anything but batches of the current format, or zstd before version 7.
fn refuse_batch(version: i16, records: Option<&[u8]>) -> Option<ErrorCode> {
    let header = match records.map(BatchHeader::parse) {
        None => return Some(ErrorCode::InvalidRecord),
        // What is wrong with the batch is found, and told in full, where it is validated.
        Some(Err(_)) => return None,
        Some(Ok(header)) => header,
    };
    let zstd = header.compression() == Ok(Compression::Zstd);
    (zstd && version < ZSTD).then_some(ErrorCode::UnsupportedCompressionType)
}

fn refuse_all(version: i16, request: &ProduceRequest, error: ErrorCode) -> Answer<ProduceResponse> {
    if request.acks == 0 {
        return Answer::Close(format!("produce with acks=0 failed: {error}"));
    }
    let topics = request.topic_data.iter().map(|topic| {
        let partitions = topic.partition_data.iter().map(|partition| failed(version, partition.index, error));
        named(version, topic.name.as_str(), topic.topic_id).with_partition_responses(partitions.collect())
    });
    Answer::Now(ProduceResponse::default().with_responses(topics.collect()))
}

fn named(version: i16, name: &str, id: Uuid) -> TopicProduceResponse {
    if version >= TOPIC_IDS {
        TopicProduceResponse::default().with_topic_id(id)
    } else {
        TopicProduceResponse::default().with_name(topic_name(name))
    }
}

fn failed(version: i16, index: i32, error: ErrorCode) -> PartitionProduceResponse {
    let response = PartitionProduceResponse::default()
        .with_index(index)
        .with_error_code(error.code())
        .with_base_offset(-1)
        .with_log_append_time_ms(-1);
    if version >= LOG_START { response.with_log_start_offset(-1) } else { response }
}

fn respond(api: &Api, listener: &str, version: i16, parts: Vec<Part>) -> ProduceResponse {
    let image = api.metadata.image();
    let mut endpoints: BTreeMap<NodeId, NodeEndpoint> = BTreeMap::new();
    let mut topics: Vec<((String, TopicId), TopicProduceResponse)> = Vec::new();
    for part in parts {
        let id = TopicIdPartition { topic_id: part.topic_id, partition: PartitionIndex(part.index) };
        let response = match part.outcome {
            Some(Ok(produced)) => {
                let response = PartitionProduceResponse::default()
                    .with_index(part.index)
                    .with_base_offset(produced.base_offset.0)
                    .with_log_append_time_ms(produced.log_append_time.0);
                if version >= LOG_START {
                    response.with_log_start_offset(produced.log_start.0)
                } else {
                    response
                }
            }
            // A slot that is dropped answers by itself, so an outcome is missing only while the node stops.
            None => failed(version, part.index, ErrorCode::NotLeaderOrFollower),
            Some(Err(failure)) => {
                let mut response = failed(version, part.index, failure.error);
                if version >= LOG_START {
                    response.log_start_offset = failure.log_start.0;
                }
                if let Some(appended) = failure.appended {
                    response.base_offset = appended.base_offset.0;
                    response.log_append_time_ms = appended.log_append_time.0;
                }
                if version >= RECORD_ERRORS {
                    response.error_message = failure.message.as_deref().map(text);
                    response.record_errors = failure.record_errors.into_iter().map(record_error).collect();
                }
                if version >= CURRENT_LEADER && failure.error == ErrorCode::NotLeaderOrFollower {
                    tell_leader(&image, id, listener, &mut response, &mut endpoints);
                }
                response
            }
        };
        match topics.last_mut() {
            Some(((name, id), topic)) if *name == part.topic && *id == part.topic_id => {
                topic.partition_responses.push(response);
            }
            _ => {
                let topic = named(version, &part.topic, part.topic_id);
                let key = (part.topic, part.topic_id);
                topics.push((key, topic.with_partition_responses(vec![response])));
            }
        }
    }
    ProduceResponse::default()
        .with_responses(topics.into_iter().map(|(_, topic)| topic).collect())
        .with_node_endpoints(endpoints.into_values().collect())
}

fn record_error((index, message): (i32, Option<String>)) -> BatchIndexAndErrorMessage {
    BatchIndexAndErrorMessage::default()
        .with_batch_index(index)
        .with_batch_index_error_message(message.as_deref().map(text))
}

fn tell_leader(
    image: &crate::metadata::Image,
    id: TopicIdPartition,
    listener: &str,
    response: &mut PartitionProduceResponse,
    endpoints: &mut BTreeMap<NodeId, NodeEndpoint>,
) {
    let Some(leader) = current_leader(image, id, listener) else { return };
    response.current_leader =
        LeaderIdAndEpoch::default().with_leader_id(leader.id.0.into()).with_leader_epoch(leader.epoch.0);
    if let Some((host, port, rack)) = leader.endpoint {
        let endpoint = NodeEndpoint::default()
            .with_node_id(leader.id.0.into())
            .with_host(text(&host))
            .with_port(i32::from(port))
            .with_rack(rack.as_deref().map(text));
        endpoints.insert(leader.id, endpoint);
    }
}
