//! Which parts of a message are record bytes, that an encoder may keep by reference instead of copying.
//!
//! Knows the messages that carry records and nothing of how they are written.

use bytes::Bytes;
use std::any::Any;

use super::messages::{FetchResponse, ProduceRequest};

/// The record bytes of a message in the order in which they are encoded; none for messages without records.
pub fn of(message: &dyn Any) -> Vec<Bytes> {
    if let Some(fetch) = message.downcast_ref::<FetchResponse>() {
        let partitions = fetch.responses.iter().flat_map(|topic| &topic.partitions);
        let records = partitions.filter_map(|partition| partition.records.as_ref());
        return records.flat_map(|records| records.pieces().cloned()).collect();
    }
    if let Some(produce) = message.downcast_ref::<ProduceRequest>() {
        let partitions = produce.topic_data.iter().flat_map(|topic| &topic.partition_data);
        return partitions.filter_map(|partition| partition.records.clone()).collect();
    }
    Vec::new()
}
