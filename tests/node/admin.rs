//! Admin requests: what they do and which codes they refuse with.

use floodmark::types::{ErrorCode, ProducerEpoch};
use floodmark::wire::batch_builder::BatchBuilder;
use floodmark::wire::messages::create_topics_request::CreatableReplicaAssignment;
use floodmark::wire::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use floodmark::wire::messages::delete_topics_request::DeleteTopicState;
use floodmark::wire::messages::describe_configs_request::DescribeConfigsResource;
use floodmark::wire::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use floodmark::wire::messages::update_features_request::FeatureUpdateKey;
use floodmark::wire::messages::*;

use super::client::Client;
use super::harness::TestNode;
use super::requests::{
    Named, assert_code, build, create_topic, fetch, fetch_request, new_topic, only_partition, produce,
    produce_ok, text, topic_name,
};
use super::versions::{create_partitions_request, metadata_request};

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

/// A key, an operation, a value.
type KeyChange<'a> = (&'a str, i8, Option<&'a str>);

/// Changes of one resource.
pub fn incremental(kind: i8, name: &str, changes: &[KeyChange<'_>]) -> IncrementalAlterConfigsRequest {
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

#[tokio::test]
async fn topics_are_refused_for_what_is_wrong_with_them() {
    let node = TestNode::start(&[]).await;
    let mut client = node.connect().await;
    create_topic(&mut client, "a.b", 1, &[]).await;
    let by_hand = |partition: i32, brokers: &[i32]| {
        CreatableReplicaAssignment::default()
            .with_partition_index(partition)
            .with_broker_ids(brokers.iter().copied().map(BrokerId).collect())
    };
    let with = |name: &str, assignments: Vec<CreatableReplicaAssignment>| {
        new_topic(name, -1, &[]).with_replication_factor(-1).with_assignments(assignments)
    };
    let refused = [
        (new_topic("a.b", 1, &[]), ErrorCode::TopicAlreadyExists),
        (new_topic("a_b", 1, &[]), ErrorCode::InvalidTopicException),
        (new_topic("", 1, &[]), ErrorCode::InvalidTopicException),
        (new_topic(".", 1, &[]), ErrorCode::InvalidTopicException),
        (new_topic("a b", 1, &[]), ErrorCode::InvalidTopicException),
        (new_topic(&"x".repeat(250), 1, &[]), ErrorCode::InvalidTopicException),
        (new_topic("c", 0, &[]), ErrorCode::InvalidPartitions),
        (new_topic("d", -2, &[]), ErrorCode::InvalidPartitions),
        (new_topic("e", 1, &[]).with_replication_factor(2), ErrorCode::InvalidReplicationFactor),
        (new_topic("f", 1, &[]).with_replication_factor(0), ErrorCode::InvalidReplicationFactor),
        (new_topic("g", 1, &[("no.such.key", "1")]), ErrorCode::InvalidConfig),
        (new_topic("h", 1, &[("retention.ms", "soon")]), ErrorCode::InvalidConfig),
        (with("i", vec![by_hand(0, &[9])]), ErrorCode::InvalidReplicaAssignment),
        (with("j", vec![by_hand(0, &[1, 1])]), ErrorCode::InvalidReplicaAssignment),
        (with("k", vec![by_hand(1, &[1])]), ErrorCode::InvalidReplicaAssignment),
        (with("l", vec![by_hand(0, &[1])]).with_num_partitions(1), ErrorCode::InvalidRequest),
        (with("m", vec![by_hand(0, &[1]), by_hand(1, &[1])]), ErrorCode::None),
        (new_topic("n", -1, &[]).with_replication_factor(-1), ErrorCode::None),
    ];
    let request = CreateTopicsRequest::default()
        .with_topics(refused.iter().map(|(topic, _)| topic.clone()).collect())
        .with_timeout_ms(30_000);
    let response = client.call(7, request).await;
    for (told, (topic, expected)) in response.topics.iter().zip(&refused) {
        assert_eq!(told.name, topic.name);
        assert_code(told.error_code, *expected, &topic.name);
        assert_eq!(told.error_message.is_some(), expected.is_error());
    }
    let twice = vec![new_topic("o", 1, &[]), new_topic("o", 1, &[])];
    let request = CreateTopicsRequest::default().with_topics(twice).with_timeout_ms(30_000);
    for told in client.call(7, request).await.topics {
        assert_code(told.error_code, ErrorCode::InvalidRequest, "named twice");
    }
    // Whoever is told that a topic is there can use it: every partition is led.
    for topic in ["m", "n"] {
        assert_eq!(produce_ok(&mut client, topic, 0, &["a"]).await, 0);
        assert_code(fetch(&mut client, topic, 0, 0).await.error_code, ErrorCode::None, topic);
    }
    node.stop().await;
}

#[tokio::test]
async fn partitions_grow_and_can_be_used_at_once() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    for (count, expected) in [
        (1, ErrorCode::InvalidPartitions),
        (0, ErrorCode::InvalidPartitions),
        (4, ErrorCode::None),
        (3, ErrorCode::InvalidPartitions),
    ] {
        let response = client.call(3, create_partitions_request("t", count)).await;
        assert_code(response.results[0].error_code, expected, "more partitions");
    }
    for partition in 0..4 {
        assert_code(fetch(&mut client, "t", partition, 0).await.error_code, ErrorCode::None, "new partition");
    }
    node.stop().await;
}

#[tokio::test]
async fn deleted_topics_are_gone_and_their_names_free() {
    let node = TestNode::start(&[]).await;
    let mut client = node.connect().await;
    let first = create_topic(&mut client, "t", 1, &[]).await;
    produce_ok(&mut client, "t", 0, &["a"]).await;
    delete_topic(&mut client, "t").await;
    let second = create_topic(&mut client, "t", 1, &[]).await;
    assert_ne!(first, second);
    assert_eq!(produce_ok(&mut client, "t", 0, &["b"]).await, 0);
    let gone = fetch_request(13, Named { name: "t", id: first }, &[(0, 0)]);
    let read = only_partition(client.call(13, gone).await);
    assert_code(read.error_code, ErrorCode::UnknownTopicId, "by the old id");

    let neither = DeleteTopicState::default().with_name(None);
    let both = DeleteTopicState::default().with_name(Some(topic_name("t"))).with_topic_id(second);
    let by_id = DeleteTopicState::default().with_name(None).with_topic_id(second);
    let request =
        DeleteTopicsRequest::default().with_topics(vec![neither, both, by_id]).with_timeout_ms(30_000);
    let response = client.call(6, request).await;
    let mut codes: Vec<_> = response.responses.iter().map(|topic| topic.error_code).collect();
    codes.sort_unstable();
    let invalid = ErrorCode::InvalidRequest.code();
    assert_eq!(codes, [0, invalid, invalid]);
    node.stop().await;

    let (node, mut client) = TestNode::with_topic(&[("delete.topic.enable", "false")], "t", 1).await;
    for (version, expected) in [(1, ErrorCode::InvalidRequest), (3, ErrorCode::TopicDeletionDisabled)] {
        let request =
            DeleteTopicsRequest::default().with_topic_names(vec![topic_name("t")]).with_timeout_ms(30_000);
        assert_code(client.call(version, request).await.responses[0].error_code, expected, "disabled");
    }
    node.stop().await;
}

/// What a topic's or broker's key is set to, and where from.
async fn described(client: &mut Client, kind: i8, name: &str, key: &str) -> (String, i8) {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configuration_keys(Some(vec![text(key)]));
    let response = client.call(4, DescribeConfigsRequest::default().with_resources(vec![resource])).await;
    let [result] = &response.results[..] else { panic!("one resource") };
    assert_code(result.error_code, ErrorCode::None, name);
    let [entry] = &result.configs[..] else { panic!("one key: {:?}", result.configs) };
    (entry.value.as_ref().map(ToString::to_string).unwrap_or_default(), entry.config_source)
}

#[tokio::test]
async fn configurations_change_key_by_key() {
    const TOPIC: i8 = 2;
    const BROKER: i8 = 4;
    let (set, delete, append, subtract) = (0, 1, 2, 3);
    let (from_topic, from_broker, from_default) = (1, 2, 5);
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    let steps: &[(&[KeyChange<'_>], &str, &str, i8)] = &[
        (&[("retention.ms", set, Some("5"))], "retention.ms", "5", from_topic),
        (&[("cleanup.policy", append, Some("compact"))], "cleanup.policy", "delete,compact", from_topic),
        (&[("cleanup.policy", subtract, Some("delete"))], "cleanup.policy", "compact", from_topic),
        (&[("retention.ms", delete, None)], "retention.ms", "604800000", from_default),
    ];
    for (changes, key, value, source) in steps {
        let response = client.call(1, incremental(TOPIC, "t", changes)).await;
        assert_code(response.responses[0].error_code, ErrorCode::None, key);
        assert_eq!(described(&mut client, TOPIC, "t", key).await, ((*value).to_owned(), *source));
    }
    // The other form forgets what it does not name.
    let config = alter_configs_request::AlterableConfig::default()
        .with_name(text("retention.ms"))
        .with_value(Some(text("9")));
    let resource = alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text("t"))
        .with_configs(vec![config]);
    client.call(2, AlterConfigsRequest::default().with_resources(vec![resource])).await;
    assert_eq!(described(&mut client, TOPIC, "t", "cleanup.policy").await.1, from_default);

    let refused: &[(i8, &str, &[KeyChange<'_>], ErrorCode)] = &[
        (TOPIC, "t", &[("retention.ms", append, Some("1"))], ErrorCode::InvalidConfig),
        (TOPIC, "t", &[("no.such.key", set, Some("1"))], ErrorCode::InvalidConfig),
        (TOPIC, "t", &[("retention.ms", set, None)], ErrorCode::InvalidRequest),
        (
            TOPIC,
            "t",
            &[("retention.ms", set, Some("1")), ("retention.ms", delete, None)],
            ErrorCode::InvalidRequest,
        ),
        (TOPIC, "missing", &[("retention.ms", set, Some("1"))], ErrorCode::UnknownTopicOrPartition),
        (BROKER, "2", &[("num.io.threads", set, Some("4"))], ErrorCode::InvalidRequest),
        (BROKER, "one", &[("num.io.threads", set, Some("4"))], ErrorCode::InvalidRequest),
        (1, "x", &[], ErrorCode::InvalidRequest),
    ];
    for (kind, name, changes, expected) in refused {
        let response = client.call(1, incremental(*kind, name, changes)).await;
        assert_code(response.responses[0].error_code, *expected, &format!("{name} {changes:?}"));
    }
    // What is only validated stays as it is.
    let only = incremental(TOPIC, "t", &[("retention.ms", set, Some("77"))]).with_validate_only(true);
    assert_code(client.call(1, only).await.responses[0].error_code, ErrorCode::None, "validate");
    assert_eq!(described(&mut client, TOPIC, "t", "retention.ms").await.0, "9");
    // One resource does not hold up another, and each answer stands in its place.
    let mut several = incremental(TOPIC, "missing", &[("retention.ms", set, Some("3"))]);
    several.resources.extend(incremental(8, "1", &[("root", set, Some("LOUD"))]).resources);
    several.resources.extend(incremental(TOPIC, "t", &[("retention.ms", set, Some("3"))]).resources);
    let codes: Vec<_> = client.call(1, several).await.responses.iter().map(|it| it.error_code).collect();
    let (unknown, invalid) = (ErrorCode::UnknownTopicOrPartition.code(), ErrorCode::InvalidConfig.code());
    assert_eq!(codes, [unknown, invalid, 0]);
    assert_eq!(described(&mut client, TOPIC, "t", "retention.ms").await.0, "3");

    set_broker_config(&mut client, "log.retention.ms", "8000").await;
    assert_eq!(
        described(&mut client, BROKER, "1", "log.retention.ms").await,
        ("8000".to_owned(), from_broker)
    );
    node.stop().await;
}

#[tokio::test]
async fn loggers_change_while_the_node_runs() {
    const LOGGER: i8 = 8;
    let node = TestNode::start(&[]).await;
    let mut client = node.connect().await;
    let name = "floodmark.server";
    let response = client.call(1, incremental(LOGGER, "1", &[(name, 0, Some("TRACE"))])).await;
    assert_code(response.responses[0].error_code, ErrorCode::None, name);
    assert_eq!(described(&mut client, LOGGER, "1", name).await.0, "TRACE");
    let response = client.call(1, incremental(LOGGER, "1", &[(name, 1, None)])).await;
    assert_code(response.responses[0].error_code, ErrorCode::None, name);
    assert_eq!(described(&mut client, LOGGER, "1", name).await.0, "INFO");
    for (key, operation, value, expected) in [
        (name, 2, Some("TRACE"), ErrorCode::InvalidRequest),
        ("no.such.logger", 0, Some("TRACE"), ErrorCode::InvalidConfig),
        ("root", 1, None, ErrorCode::InvalidRequest),
        ("root", 0, Some("LOUD"), ErrorCode::InvalidConfig),
    ] {
        let response = client.call(1, incremental(LOGGER, "1", &[(key, operation, value)])).await;
        assert_code(response.responses[0].error_code, expected, key);
    }
    node.stop().await;
}

#[tokio::test]
async fn resources_with_configurations_are_listed() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    client.call(1, incremental(32, "g", &[("consumer.session.timeout.ms", 0, Some("50000"))])).await;
    for (kinds, expected) in [
        (vec![2], vec![(2, "t")]),
        (vec![4], vec![(4, "1")]),
        (vec![8], vec![(8, "1")]),
        (vec![32], vec![(32, "g")]),
        (vec![16], vec![]),
    ] {
        let request = ListConfigResourcesRequest::default().with_resource_types(kinds);
        let response = client.call(1, request).await;
        let listed: Vec<_> = response
            .config_resources
            .iter()
            .map(|resource| (resource.resource_type, resource.resource_name.as_str()))
            .collect();
        assert_eq!(listed, expected);
    }
    let request = ListConfigResourcesRequest::default().with_resource_types(vec![99]);
    assert_code(client.call(1, request).await.error_code, ErrorCode::UnsupportedVersion, "type 99");
    node.stop().await;
}

#[tokio::test]
async fn the_cluster_describes_itself() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 3).await;
    let cluster = client.call(2, DescribeClusterRequest::default()).await;
    let [broker] = &cluster.brokers[..] else { panic!("one broker") };
    let address = node.broker_address();
    assert_eq!((broker.host.as_str(), broker.port), ("127.0.0.1", i32::from(address.port())));
    assert_eq!((cluster.controller_id.0, cluster.cluster_id.len()), (1, 22));
    let metadata = client.call(12, metadata_request(12, &["t"])).await;
    assert_eq!(metadata.cluster_id.as_ref(), Some(&cluster.cluster_id));

    // Page by page.
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let request = DescribeTopicPartitionsRequest::default()
            .with_topics(vec![
                describe_topic_partitions_request::TopicRequest::default().with_name(topic_name("t")),
            ])
            .with_response_partition_limit(2)
            .with_cursor(cursor);
        let response = client.call(0, request).await;
        seen.extend(response.topics[0].partitions.iter().map(|partition| partition.partition_index));
        let Some(next) = response.next_cursor else { break };
        cursor = Some(
            describe_topic_partitions_request::Cursor::default()
                .with_topic_name(next.topic_name)
                .with_partition_index(next.partition_index),
        );
    }
    assert_eq!(seen, [0, 1, 2]);

    produce_ok(&mut client, "t", 1, &["a"]).await;
    let dirs = client.call(5, DescribeLogDirsRequest { topics: None, ..Default::default() }).await;
    let [dir] = &dirs.results[..] else { panic!("one directory") };
    assert_eq!(dir.log_dir.as_str(), node.dir.path().to_str().unwrap());
    let sizes: Vec<_> =
        dir.topics[0].partitions.iter().map(|partition| partition.partition_size > 0).collect();
    assert_eq!(sizes, [false, true, false]);
    node.stop().await;
}

#[tokio::test]
async fn producers_and_their_ids() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let given = client.call(4, InitProducerIdRequest::default().with_transactional_id(None)).await;
        assert_eq!((given.error_code, given.producer_epoch), (0, 0));
        ids.push(given.producer_id.0);
    }
    ids.dedup();
    assert_eq!(ids.len(), 3, "every producer has its own");
    let half = InitProducerIdRequest::default().with_transactional_id(None).with_producer_id(ProducerId(7));
    assert_code(client.call(4, half).await.error_code, ErrorCode::InvalidRequest, "an id without an epoch");

    let records = build(
        BatchBuilder::new().producer(floodmark::types::ProducerId(ids[0]), ProducerEpoch(0), 0),
        &["a", "b"],
    );
    assert_code(produce(&mut client, "t", 0, records).await.error_code, ErrorCode::None, "idempotent");
    let topic = describe_producers_request::TopicRequest::default()
        .with_name(topic_name("t"))
        .with_partition_indexes(vec![0]);
    let response = client.call(0, DescribeProducersRequest::default().with_topics(vec![topic])).await;
    let [producer] = &response.topics[0].partitions[0].active_producers[..] else { panic!("one producer") };
    let told = (producer.producer_id.0, producer.producer_epoch, producer.last_sequence);
    assert_eq!(told, (ids[0], 0, 1));
    assert_eq!(producer.current_txn_start_offset, -1);
    node.stop().await;
}

#[tokio::test]
async fn topics_that_clients_ask_for_come_into_being() {
    let node = TestNode::start(&[("num.partitions", "3")]).await;
    let mut client = node.connect().await;
    let asked = || metadata_request(12, &["wanted"]).with_allow_auto_topic_creation(true);
    let began = std::time::Instant::now();
    let first = client.call(12, asked()).await;
    assert_code(first.topics[0].error_code, ErrorCode::UnknownTopicOrPartition, "not yet");
    let topic = loop {
        let topic = client.call(12, asked()).await.topics.remove(0);
        if topic.error_code == 0 {
            break topic;
        }
    };
    assert_eq!(topic.partitions.len(), 3);
    // Who looks twice in a row is told the same twice, however soon the topic is there.
    assert!(
        began.elapsed() >= std::time::Duration::from_millis(70),
        "the topic has appeared under the first questions"
    );
    let refused = metadata_request(12, &["a/b"]).with_allow_auto_topic_creation(true);
    let refused = client.call(12, refused).await;
    assert_code(refused.topics[0].error_code, ErrorCode::InvalidTopicException, "no name");
    let forbidden = client.call(12, metadata_request(12, &["unwanted"])).await;
    assert_code(forbidden.topics[0].error_code, ErrorCode::UnknownTopicOrPartition, "not allowed");
    node.stop().await;
}

#[tokio::test]
async fn documentation_comes_when_it_is_asked_for_and_is_null_otherwise() {
    let node = TestNode::start(&[]).await;
    let mut client = node.connect().await;
    create_topic(&mut client, "t", 1, &[]).await;
    for (version, kind, name) in [(3, 2, "t"), (4, 2, "t"), (4, 4, "1"), (4, 8, "1")] {
        for asked in [true, false] {
            let resource =
                DescribeConfigsResource::default().with_resource_type(kind).with_resource_name(text(name));
            let request = DescribeConfigsRequest::default()
                .with_resources(vec![resource.with_configuration_keys(None)])
                .with_include_documentation(asked);
            let response = client.call(version, request).await;
            let entries = &response.results[0].configs;
            assert!(!entries.is_empty(), "{kind}");
            // Loggers have none.
            let has = asked && kind != 8;
            assert!(
                entries.iter().all(|entry| entry.documentation.is_some() == has),
                "{kind}, asked: {asked}"
            );
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn a_resource_without_a_name_is_a_default_of_brokers_alone() {
    let node = TestNode::start(&[]).await;
    let mut client = node.connect().await;
    for (kind, key, value, expected) in [
        (2, "retention.ms", "1000", ErrorCode::InvalidRequest),
        (4, "log.retention.ms", "1000", ErrorCode::None),
        (16, "interval.ms", "1000", ErrorCode::InvalidRequest),
        (32, "consumer.session.timeout.ms", "1", ErrorCode::InvalidRequest),
    ] {
        let request = incremental(kind, "", &[(key, 0, Some(value))]);
        assert_code(client.call(1, request).await.responses[0].error_code, expected, key);
    }
    node.stop().await;
}

#[tokio::test]
async fn an_internal_topic_is_the_coordinators_whoever_names_it_first() {
    let settings = [
        ("num.partitions", "1"),
        ("offsets.topic.num.partitions", "3"),
        ("offsets.topic.replication.factor", "1"),
        ("transaction.state.log.num.partitions", "2"),
        ("transaction.state.log.replication.factor", "1"),
    ];
    let node = TestNode::start(&settings).await;
    let mut client = node.connect().await;
    for (name, partitions) in [("__consumer_offsets", 3), ("__transaction_state", 2)] {
        let topic = loop {
            let asked = metadata_request(12, &[name]).with_allow_auto_topic_creation(true);
            let topic = client.call(12, asked).await.topics.remove(0);
            if topic.error_code == 0 {
                break topic;
            }
        };
        assert_eq!(topic.partitions.len(), partitions, "{name}");
        // Kept by time, it would lose what coordinators know.
        assert_eq!(described(&mut client, 2, name, "cleanup.policy").await.0, "compact", "{name}");
    }
    node.stop().await;
}

#[tokio::test]
async fn features_are_checked_before_they_change() {
    let node = TestNode::start(&[]).await;
    let mut client = node.connect().await;
    for (feature, level, upgrade_type, expected) in [
        ("no.such.feature", 1, 1, ErrorCode::InvalidUpdateVersion),
        ("metadata.version", 9_999, 1, ErrorCode::InvalidUpdateVersion),
        ("metadata.version", 7, 1, ErrorCode::InvalidUpdateVersion),
        ("group.version", 1, 9, ErrorCode::InvalidRequest),
        ("group.version", 1, 1, ErrorCode::None),
    ] {
        let update = FeatureUpdateKey::default()
            .with_feature(text(feature))
            .with_max_version_level(level)
            .with_upgrade_type(upgrade_type);
        let request = UpdateFeaturesRequest::default()
            .with_feature_updates(vec![update])
            .with_timeout_ms(30_000)
            .with_validate_only(true);
        assert_code(client.call(2, request).await.error_code, expected, feature);
    }
    node.stop().await;
}
