//! Every version of every API: a request over a socket gets an answer that decodes at its version. What a handler sets
//! and the version lacks would close the connection instead.

use bytes::{BufMut, BytesMut};
use floodmark::types::{ErrorCode, Uuid};
use floodmark::wire::api::{API_TABLE, ApiRow};
use floodmark::wire::messages::*;
use kafka_protocol::protocol::{Decodable, HeaderVersion};
use tokio::io::AsyncWriteExt;

use super::client::{Client, decode_answer, raw_frame};
use super::files::{VARIANTS, bytes};
use super::harness::TestNode;
use super::requests::{
    Named, assert_code, batch, fetch_request, list_offsets_request, new_topic, only_partition,
    produce_request, text, topic_name,
};

/// The frame of a golden request, with correlation id 7.
pub fn golden_request(row: &ApiRow, version: i16, variant: &str) -> Vec<u8> {
    let mut rest = BytesMut::new();
    // A null client id, and no tagged fields.
    rest.put_i16(-1);
    if row.request_header_version(version) == 2 {
        rest.put_u8(0);
    }
    rest.put_slice(&bytes(row, version, "request", variant));
    raw_frame(row.key, version, 7, &rest)
}

/// Sends golden requests, whose values make no sense to this node, and decodes what comes back.
async fn ask_golden<S: Decodable + HeaderVersion>(client: &mut Client, row: &ApiRow) {
    for version in row.min..=row.max {
        for variant in VARIANTS {
            client.stream.write_all(&golden_request(row, version, variant)).await.unwrap();
            let what = format!("{} version {version}{variant}", row.name);
            let answer = client.read_frame().await.unwrap_or_else(|| panic!("{what}: closed"));
            decode_answer::<S>(row, version, 7, answer);
        }
    }
}

macro_rules! define_ask_all {
    ($({ $key:literal, $name:ident, $min:literal..=$max:literal, flexible $flexible:tt, [$($listener:ident),+],
         advertised $advertised:literal, $request:path => $response:path, $($handler:ident)::+ })*) => {
        async fn ask_all(client: &mut Client, served: impl Fn(&ApiRow) -> bool) {
            $(
                let row = ApiRow::of($key).unwrap();
                // An empty produce with acks=0 is rightly not answered.
                if row.name != "Produce" && served(row) {
                    ask_golden::<$response>(client, row).await;
                }
            )*
        }
    };
}

floodmark::for_each_api!(define_ask_all);

#[tokio::test]
async fn every_golden_request_is_answered_at_its_version() {
    let node = TestNode::start(&[]).await;
    ask_all(&mut node.connect().await, |row| row.listeners.broker).await;
    ask_all(&mut node.connect_to_controller().await, |row| row.listeners.controller).await;
    node.stop().await;
}

#[tokio::test]
async fn produce_answers_at_every_version() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 2).await;
    let id = topic_id(&mut client, "t").await;
    for (expected, version) in (0..).zip(versions(0)) {
        let topic = Named { name: "t", id };
        let request = produce_request(version, topic, -1, &[(0, batch(&["a"])), (9, batch(&["b"]))]);
        let response = client.call(version, request).await;
        let [good, bad] = &response.responses[0].partition_responses[..] else { panic!("two partitions") };
        assert_eq!((good.error_code, good.base_offset), (0, expected), "version {version}");
        assert_code(bad.error_code, ErrorCode::UnknownTopicOrPartition, "a partition too many");

        let missing = Named { name: "missing", id: Uuid::from_u128(7) };
        let request = produce_request(version, missing, 1, &[(0, batch(&["a"]))]);
        let response = client.call(version, request).await;
        let unknown =
            if version >= 13 { ErrorCode::UnknownTopicId } else { ErrorCode::UnknownTopicOrPartition };
        let refused = &response.responses[0];
        assert_code(refused.partition_responses[0].error_code, unknown, "a topic too many");
        assert_eq!(refused.topic_id, if version >= 13 { missing.id } else { Uuid::nil() });

        // What is refused by the log has a message and record errors where the version has them.
        let mut corrupt = batch(&["a"]).to_vec();
        *corrupt.last_mut().unwrap() ^= 1;
        let request = produce_request(version, topic, -1, &[(0, corrupt.into())]);
        let refused = client.call(version, request).await.responses.remove(0).partition_responses.remove(0);
        assert_code(refused.error_code, ErrorCode::CorruptMessage, "a wrong checksum");
        assert_eq!(refused.error_message.is_some(), version >= 8);

        let request = produce_request(version, topic, 5, &[(0, batch(&["a"]))]);
        let refused = client.call(version, request).await.responses.remove(0).partition_responses.remove(0);
        assert_code(refused.error_code, ErrorCode::InvalidRequiredAcks, "acks=5");
    }
    node.stop().await;
}

#[tokio::test]
async fn fetch_answers_at_every_version() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    let id = topic_id(&mut client, "t").await;
    let records = batch(&["a", "b"]);
    client.call(12, produce_request(12, Named { name: "t", id }, -1, &[(0, records.clone())])).await;
    for version in versions(1) {
        let topic = Named { name: "t", id };
        for isolation in [0, 1] {
            let request = fetch_request(version, topic, &[(0, 0)]).with_isolation_level(isolation);
            let read = only_partition(client.call(version, request).await);
            assert_code(read.error_code, ErrorCode::None, "fetch");
            assert_eq!(read.high_watermark, 2);
            assert_eq!(read.log_start_offset, if version >= 5 { 0 } else { -1 });
            assert_eq!(read.records.unwrap().into_bytes().len(), records.len());
            // Null would do too, but Kafka gives a reader of committed records an empty list.
            assert_eq!(read.aborted_transactions, (isolation == 1).then(Vec::new));
        }
        let read = only_partition(client.call(version, fetch_request(version, topic, &[(0, 3)])).await);
        assert_code(read.error_code, ErrorCode::OffsetOutOfRange, "beyond the end");
        let read = only_partition(client.call(version, fetch_request(version, topic, &[(1, 0)])).await);
        assert_code(read.error_code, ErrorCode::UnknownTopicOrPartition, "a partition too many");
        let missing = Named { name: "missing", id: Uuid::from_u128(7) };
        let read = only_partition(client.call(version, fetch_request(version, missing, &[(0, 0)])).await);
        let unknown =
            if version >= 13 { ErrorCode::UnknownTopicId } else { ErrorCode::UnknownTopicOrPartition };
        assert_code(read.error_code, unknown, "a topic too many");
        if version >= 9 {
            let mut request = fetch_request(version, topic, &[(0, 0)]);
            request.topics[0].partitions[0].current_leader_epoch = 9;
            let read = only_partition(client.call(version, request).await);
            assert_code(read.error_code, ErrorCode::UnknownLeaderEpoch, "an epoch of the future");
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn offsets_are_listed_at_every_version() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    super::requests::produce_ok(&mut client, "t", 0, &["a", "b", "c"]).await;
    // Timestamp, first version that has it, offset.
    let known = [
        (-1, 1, 3),
        (-2, 1, 0),
        (1_001, 1, 1),
        (9_999, 1, -1),
        (-3, 7, 2),
        (-4, 8, 0),
        (-5, 9, -1),
        (-6, 11, -1),
    ];
    for version in versions(2) {
        for (timestamp, first, offset) in known {
            let response = client.call(version, list_offsets_request("t", 0, timestamp)).await;
            let listed = &response.topics[0].partitions[0];
            if version < first {
                assert_code(listed.error_code, ErrorCode::UnsupportedVersion, "too early");
            } else {
                let what = format!("version {version}, timestamp {timestamp}");
                assert_eq!((listed.error_code, listed.offset), (0, offset), "{what}");
            }
        }
        let response = client.call(version, list_offsets_request("t", 0, -7)).await;
        assert_code(response.topics[0].partitions[0].error_code, ErrorCode::UnsupportedVersion, "-7");
        let response = client.call(version, list_offsets_request("missing", 0, -1)).await;
        let refused = &response.topics[0].partitions[0];
        assert_code(refused.error_code, ErrorCode::UnknownTopicOrPartition, "a topic too many");
    }
    node.stop().await;
}

#[tokio::test]
async fn topics_come_and_go_at_every_version() {
    let node = TestNode::start(&[("auto.create.topics.enable", "false")]).await;
    let mut client = node.connect().await;
    for version in versions(19) {
        for validate_only in [true, false] {
            let request = CreateTopicsRequest::default()
                .with_topics(vec![new_topic("t", 2, &[("retention.ms", "5000")]), new_topic("..", 1, &[])])
                .with_timeout_ms(30_000)
                .with_validate_only(validate_only);
            let response = client.call(version, request).await;
            let [created, refused] = &response.topics[..] else { panic!("two topics") };
            assert_code(created.error_code, ErrorCode::None, "create");
            assert_code(refused.error_code, ErrorCode::InvalidTopicException, "..");
            if version >= 5 {
                assert_eq!((created.num_partitions, created.replication_factor), (2, 1));
                let configs = created.configs.as_ref().unwrap();
                let retention = configs.iter().find(|config| config.name.as_str() == "retention.ms").unwrap();
                assert_eq!(retention.value.as_deref(), Some("5000"));
            }
        }
        metadata_at_every_version(&mut client).await;
        let more = create_partitions_request("t", 3);
        for version in versions(37) {
            let response = client.call(version, more.clone().with_validate_only(version < 3)).await;
            assert_code(response.results[0].error_code, ErrorCode::None, "more partitions");
            let response = client.call(version, create_partitions_request("missing", 3)).await;
            assert_code(response.results[0].error_code, ErrorCode::UnknownTopicOrPartition, "missing");
        }
        delete_at_every_version(&mut client).await;
    }
    node.stop().await;
}

pub fn create_partitions_request(topic: &str, count: i32) -> CreatePartitionsRequest {
    let topic = create_partitions_request::CreatePartitionsTopic::default()
        .with_name(topic_name(topic))
        .with_count(count)
        .with_assignments(None);
    CreatePartitionsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000)
}

async fn metadata_at_every_version(client: &mut Client) {
    for version in versions(3) {
        // Before version 1 there is no null: no topic means all of them.
        let all = MetadataRequest::default().with_topics((version == 0).then(Vec::new));
        let response = client.call(version, all).await;
        let names: Vec<_> = response.topics.iter().map(|topic| topic.name.clone().unwrap()).collect();
        assert_eq!(names, [topic_name("t")], "version {version}");
        assert_eq!(response.brokers.len(), 1);
        assert_eq!(response.topics[0].partitions.len(), 2);

        let named = metadata_request(version, &["t", "missing", ".."]);
        let response = client.call(version, named).await;
        let mut codes: Vec<_> = response.topics.iter().map(|topic| topic.error_code).collect();
        codes.sort_unstable();
        let expected =
            [ErrorCode::None, ErrorCode::UnknownTopicOrPartition, ErrorCode::InvalidTopicException];
        assert_eq!(codes, expected.map(ErrorCode::code), "version {version}");
    }
}

pub fn metadata_request(version: i16, names: &[&str]) -> MetadataRequest {
    let topics = names
        .iter()
        .map(|name| metadata_request::MetadataRequestTopic::default().with_name(Some(topic_name(name))));
    let request = MetadataRequest::default().with_topics(Some(topics.collect()));
    let request = if version >= 4 { request.with_allow_auto_topic_creation(false) } else { request };
    let request = if version >= 8 { request.with_include_topic_authorized_operations(true) } else { request };
    let on_cluster = (8..=10).contains(&version);
    if on_cluster { request.with_include_cluster_authorized_operations(true) } else { request }
}

/// Deletes the topic with the last version, and what is not there with the others.
async fn delete_at_every_version(client: &mut Client) {
    for version in versions(20) {
        let request = DeleteTopicsRequest::default().with_timeout_ms(30_000);
        let request = if version >= 6 {
            let by_name = delete_topics_request::DeleteTopicState::default().with_name(Some(topic_name("t")));
            let by_id = delete_topics_request::DeleteTopicState::default()
                .with_name(None)
                .with_topic_id(Uuid::from_u128(7));
            request.with_topics(vec![by_name, by_id])
        } else {
            request.with_topic_names(vec![topic_name("missing")])
        };
        let response = client.call(version, request).await;
        let codes: Vec<_> = response.responses.iter().map(|topic| topic.error_code).collect();
        let expected: &[ErrorCode] = if version >= 6 {
            &[ErrorCode::None, ErrorCode::UnknownTopicId]
        } else {
            &[ErrorCode::UnknownTopicOrPartition]
        };
        assert_eq!(codes, expected.iter().map(|code| code.code()).collect::<Vec<_>>(), "version {version}");
    }
}

#[tokio::test]
async fn configurations_are_told_and_changed_at_every_version() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    for version in versions(32) {
        for (kind, name) in
            [(2, "t"), (4, "1"), (4, ""), (8, "1"), (16, "m"), (32, "g"), (2, "missing"), (77, "")]
        {
            let resource = describe_configs_request::DescribeConfigsResource::default()
                .with_resource_type(kind)
                .with_resource_name(text(name))
                .with_configuration_keys(None);
            let request =
                DescribeConfigsRequest::default().with_resources(vec![resource]).with_include_synonyms(true);
            let request = if version >= 3 { request.with_include_documentation(true) } else { request };
            let response = client.call(version, request).await;
            let expected = match (kind, name) {
                (2, "missing") => ErrorCode::UnknownTopicOrPartition,
                (77, _) => ErrorCode::InvalidRequest,
                _ => ErrorCode::None,
            };
            assert_code(response.results[0].error_code, expected, name);
        }
    }
    for version in versions(33) {
        for (key, value, expected) in
            [("retention.ms", "5000", ErrorCode::None), ("retention.ms", "soon", ErrorCode::InvalidConfig)]
        {
            let config = alter_configs_request::AlterableConfig::default()
                .with_name(text(key))
                .with_value(Some(text(value)));
            let resource = alter_configs_request::AlterConfigsResource::default()
                .with_resource_type(2)
                .with_resource_name(text("t"))
                .with_configs(vec![config]);
            let response =
                client.call(version, AlterConfigsRequest::default().with_resources(vec![resource])).await;
            assert_code(response.responses[0].error_code, expected, value);
        }
    }
    for version in versions(44) {
        for (operation, expected) in
            [(0, ErrorCode::None), (1, ErrorCode::None), (9, ErrorCode::InvalidRequest)]
        {
            let config = incremental_alter_configs_request::AlterableConfig::default()
                .with_name(text("retention.ms"))
                .with_config_operation(operation)
                .with_value((operation != 1).then(|| text("5000")));
            let resource = incremental_alter_configs_request::AlterConfigsResource::default()
                .with_resource_type(2)
                .with_resource_name(text("t"))
                .with_configs(vec![config]);
            let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
            let response = client.call(version, request).await;
            assert_code(response.responses[0].error_code, expected, "incremental");
        }
    }
    for version in versions(74) {
        let response = client.call(version, ListConfigResourcesRequest::default()).await;
        assert_code(response.error_code, ErrorCode::None, "list");
        assert_eq!(response.config_resources.len(), if version == 0 { 0 } else { 3 });
    }
    node.stop().await;
}

#[tokio::test]
async fn the_rest_answers_at_every_version() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    super::requests::produce_ok(&mut client, "t", 0, &["a", "b"]).await;
    for version in versions(18) {
        let request = ApiVersionsRequest {
            client_software_name: text("test"),
            client_software_version: text("1"),
            ..Default::default()
        };
        let response = client.call(version, request).await;
        assert_code(response.error_code, ErrorCode::None, "versions");
        let served = API_TABLE.iter().filter(|row| row.listeners.broker && row.is_told()).count();
        assert_eq!(response.api_keys.len(), served);
        assert_eq!(response.finalized_features.is_empty(), version < 3);
    }
    for version in versions(21) {
        for (offset, expected) in [(1, ErrorCode::None), (9, ErrorCode::OffsetOutOfRange)] {
            let response = client.call(version, super::admin::delete_records_request("t", offset)).await;
            assert_code(response.topics[0].partitions[0].error_code, expected, "delete records");
        }
    }
    for version in versions(22) {
        let response =
            client.call(version, InitProducerIdRequest::default().with_transactional_id(None)).await;
        assert_code(response.error_code, ErrorCode::None, "producer id");
        assert!(response.producer_id.0 >= 0 && response.producer_epoch == 0);
        let transactional = InitProducerIdRequest::default()
            .with_transactional_id(Some(TransactionalId(text("x"))))
            .with_transaction_timeout_ms(1_000);
        let response = client.call(version, transactional).await;
        assert_code(response.error_code, ErrorCode::NotCoordinator, "transactional id");
    }
    for version in versions(23) {
        let partition =
            offset_for_leader_epoch_request::OffsetForLeaderPartition::default().with_leader_epoch(0);
        let topic = offset_for_leader_epoch_request::OffsetForLeaderTopic::default()
            .with_topic(topic_name("t"))
            .with_partitions(vec![partition]);
        let request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
        let request = if version >= 3 { request.with_replica_id(BrokerId(-2)) } else { request };
        let response = client.call(version, request).await;
        let told = &response.topics[0].partitions[0];
        assert_eq!((told.error_code, told.leader_epoch, told.end_offset), (0, 0, 2), "version {version}");
    }
    for version in versions(35) {
        let response =
            client.call(version, DescribeLogDirsRequest { topics: None, ..Default::default() }).await;
        assert_eq!(response.results[0].topics[0].partitions.len(), 1);
        assert!(response.results[0].topics[0].partitions[0].partition_size > 0);
        assert_eq!(response.results[0].total_bytes > 0, version >= 4);
    }
    for version in versions(55) {
        let log = describe_quorum_request::TopicData::default()
            .with_topic_name(topic_name("__cluster_metadata"))
            .with_partitions(vec![describe_quorum_request::PartitionData::default()]);
        let response = client.call(version, DescribeQuorumRequest::default().with_topics(vec![log])).await;
        let told = &response.topics[0].partitions[0];
        assert_eq!((told.error_code, told.leader_id.0, told.current_voters.len()), (0, 1, 1));
    }
    for version in versions(57) {
        let update = update_features_request::FeatureUpdateKey::default()
            .with_feature(text("no.such.feature"))
            .with_max_version_level(9);
        let response =
            client.call(version, UpdateFeaturesRequest::default().with_feature_updates(vec![update])).await;
        assert!(ErrorCode::from_code(response.error_code).unwrap().is_error());
    }
    for version in versions(60) {
        let response = client.call(version, DescribeClusterRequest::default()).await;
        assert_code(response.error_code, ErrorCode::None, "cluster");
        assert_eq!(response.brokers.len(), 1);
    }
    for version in versions(61) {
        let topic = describe_producers_request::TopicRequest::default()
            .with_name(topic_name("t"))
            .with_partition_indexes(vec![0, 1]);
        let response =
            client.call(version, DescribeProducersRequest::default().with_topics(vec![topic])).await;
        let codes: Vec<_> =
            response.topics[0].partitions.iter().map(|partition| partition.error_code).collect();
        assert_eq!(codes, [0, ErrorCode::UnknownTopicOrPartition.code()]);
    }
    for version in versions(75) {
        let request =
            DescribeTopicPartitionsRequest::default().with_response_partition_limit(10).with_cursor(None);
        let response = client.call(version, request).await;
        assert_eq!(response.topics.len(), 1);
    }
    node.stop().await;
}

fn versions(key: i16) -> std::ops::RangeInclusive<i16> {
    let row = ApiRow::of(key).unwrap();
    row.min..=row.max
}

async fn topic_id(client: &mut Client, name: &str) -> Uuid {
    client.call(12, metadata_request(12, &[name])).await.topics[0].topic_id
}
