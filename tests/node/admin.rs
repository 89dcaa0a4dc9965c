//! Admin requests: what they do and which codes they refuse with.

use floodmark::types::ErrorCode;
use floodmark::wire::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use floodmark::wire::messages::delete_topics_request::DeleteTopicState;
use floodmark::wire::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use floodmark::wire::messages::{DeleteRecordsRequest, DeleteTopicsRequest, IncrementalAlterConfigsRequest};

use super::client::Client;
use super::requests::{assert_code, text, topic_name};

pub fn delete_records_request(topic: &str, offset: i64) -> DeleteRecordsRequest {
    let partition = DeleteRecordsPartition::default().with_offset(offset);
    let topic = DeleteRecordsTopic::default().with_name(topic_name(topic)).with_partitions(vec![partition]);
    DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000)
}

/// Sets a property of broker 1.
pub async fn set_broker_config(client: &mut Client, key: &str, value: &str) {
    let request = incremental(4, "1", &[(key, 0, Some(value))]);
    assert_code(client.call(1, request).await.responses[0].error_code, ErrorCode::None, key);
}

/// Changes of one resource: key, operation, value.
pub fn incremental(
    kind: i8,
    name: &str,
    changes: &[(&str, i8, Option<&str>)],
) -> IncrementalAlterConfigsRequest {
    let configs = changes.iter().map(|(key, operation, value)| {
        AlterableConfig::default()
            .with_name(text(key))
            .with_config_operation(*operation)
            .with_value(value.map(text))
    });
    let resource = AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configs(configs.collect());
    IncrementalAlterConfigsRequest::default().with_resources(vec![resource])
}

pub async fn delete_topic(client: &mut Client, name: &str) {
    let topic = DeleteTopicState::default().with_name(Some(topic_name(name)));
    let request = DeleteTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000);
    assert_code(client.call(6, request).await.responses[0].error_code, ErrorCode::None, name);
}
