//! Requests about the cluster: elections, reassignments, registrations, producer ids, and what a controller takes from
//! brokers that forward for their clients.

use bytes::{BufMut, Bytes, BytesMut};
use floodmark::types::{ErrorCode, Uuid};
use floodmark::wire::api::ApiRow;
use floodmark::wire::frame::encode_request;
use floodmark::wire::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use floodmark::wire::messages::default_principal::DefaultPrincipalData;
use floodmark::wire::messages::elect_leaders_request::TopicPartitions;
use floodmark::wire::messages::list_partition_reassignments_request::ListPartitionReassignmentsTopics;
use floodmark::wire::messages::{
    AllocateProducerIdsRequest, AlterPartitionReassignmentsRequest, AssignReplicasToDirsRequest, BrokerId,
    CreateTopicsRequest, CreateTopicsResponse, DescribeClusterRequest, ElectLeadersRequest, EnvelopeRequest,
    EnvelopeResponse, ListPartitionReassignmentsRequest, MetadataRequest, UnregisterBrokerRequest,
    UnregisterControllerRequest, assign_replicas_to_dirs_request as assign,
};
use kafka_protocol::protocol::{Encodable, Request};

use super::client::{Client, decode_answer};
use super::harness::TestNode;
use super::requests::{assert_code, new_topic, text, topic_name};
use super::versions::metadata_request;

fn elect(kind: i8, topics: Option<&[(&str, &[i32])]>) -> ElectLeadersRequest {
    let partitions = topics.map(|topics| {
        let of = topics.iter().map(|(topic, partitions)| {
            TopicPartitions::default().with_topic(topic_name(topic)).with_partitions(partitions.to_vec())
        });
        of.collect()
    });
    ElectLeadersRequest::default()
        .with_election_type(kind)
        .with_topic_partitions(partitions)
        .with_timeout_ms(30_000)
}

#[tokio::test]
async fn elections_tell_where_they_are_not_needed() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 2).await;
    for version in 0..=2 {
        for kind in if version == 0 { vec![0] } else { vec![0, 1] } {
            let asked: &[(&str, &[i32])] = &[("t", &[0, 7]), ("missing", &[0])];
            let response = client.call(version, elect(kind, Some(asked))).await;
            assert_code(response.error_code, ErrorCode::None, "elections");
            let told: Vec<_> = response
                .replica_election_results
                .iter()
                .flat_map(|topic| topic.partition_result.iter().map(|p| (topic.topic.as_str(), p)))
                .map(|(topic, p)| (topic, p.partition_id, p.error_code, p.error_message.is_some()))
                .collect();
            let (not_needed, unknown) =
                (ErrorCode::ElectionNotNeeded.code(), ErrorCode::UnknownTopicOrPartition.code());
            assert_eq!(
                told,
                [("t", 0, not_needed, true), ("t", 7, unknown, true), ("missing", 0, unknown, true)]
            );
        }
        let all = client.call(version, elect(0, None)).await;
        assert!(all.replica_election_results.is_empty(), "no partition needs an election");
        let none = client.call(version, elect(0, Some(&[]))).await;
        assert!(none.replica_election_results.is_empty());
    }
    let unknown = client.call(2, elect(7, Some(&[("t", &[1])]))).await;
    assert_code(unknown.error_code, ErrorCode::InvalidRequest, "an unknown kind of election");
    let of_partition = &unknown.replica_election_results[0].partition_result[0];
    assert_code(of_partition.error_code, ErrorCode::InvalidRequest, "and of each partition");
    node.stop().await;
}

fn reassign(targets: &[(&str, i32, Option<&[i32]>)]) -> AlterPartitionReassignmentsRequest {
    let topics = targets.iter().map(|(topic, index, replicas)| {
        let replicas = replicas.map(|ids| ids.iter().copied().map(BrokerId).collect());
        let partition = ReassignablePartition::default().with_partition_index(*index).with_replicas(replicas);
        ReassignableTopic::default().with_name(topic_name(topic)).with_partitions(vec![partition])
    });
    AlterPartitionReassignmentsRequest::default().with_topics(topics.collect()).with_timeout_ms(30_000)
}

#[tokio::test]
async fn reassignments_are_refused_one_by_one() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 2).await;
    for version in 0..=1 {
        let request = reassign(&[
            ("t", 0, Some(&[1])),
            ("t", 0, Some(&[1, 9])),
            ("t", 0, Some(&[])),
            ("t", 0, Some(&[1, 1])),
            ("t", 1, None),
            ("t", 5, Some(&[1])),
            ("missing", 0, Some(&[1])),
        ]);
        let response = client.call(version, request).await;
        assert_code(response.error_code, ErrorCode::None, "the request as a whole");
        let told: Vec<_> = response.responses.iter().map(|topic| &topic.partitions[0]).collect();
        let codes: Vec<_> = told.iter().map(|p| ErrorCode::from_code(p.error_code).unwrap()).collect();
        assert_eq!(
            codes,
            [
                ErrorCode::None,
                ErrorCode::InvalidReplicaAssignment,
                ErrorCode::InvalidReplicaAssignment,
                ErrorCode::InvalidReplicaAssignment,
                ErrorCode::NoReassignmentInProgress,
                ErrorCode::UnknownTopicOrPartition,
                ErrorCode::UnknownTopicOrPartition,
            ]
        );
        assert!(told.iter().all(|p| p.error_message.is_some() == (p.error_code != 0)));
    }
    for topics in [None, Some(vec![("t", vec![0, 1, 7]), ("missing", vec![0])])] {
        let topics = topics.map(|topics| {
            let of = topics.into_iter().map(|(topic, indexes)| {
                ListPartitionReassignmentsTopics::default()
                    .with_name(topic_name(topic))
                    .with_partition_indexes(indexes)
            });
            of.collect()
        });
        let request = ListPartitionReassignmentsRequest::default().with_topics(topics);
        let response = client.call(0, request).await;
        assert_code(response.error_code, ErrorCode::None, "list");
        assert!(response.topics.is_empty() && response.error_message.is_none());
    }
    node.stop().await;
}

async fn broker_epoch(controller: &mut Client) -> i64 {
    // Epochs are told to nobody, so the test looks for the one that is taken.
    for epoch in 0..1_000 {
        let request =
            AllocateProducerIdsRequest::default().with_broker_id(BrokerId(1)).with_broker_epoch(epoch);
        if controller.call(0, request).await.error_code == 0 {
            return epoch;
        }
    }
    panic!("no epoch is broker 1's");
}

#[tokio::test]
async fn brokers_name_their_epoch() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    let topic_id = client.call(12, metadata_request(12, &["t"])).await.topics[0].topic_id;
    let mut controller = node.connect_to_controller().await;
    let epoch = broker_epoch(&mut controller).await;
    let allocate = |broker: i32, epoch: i64| {
        AllocateProducerIdsRequest::default().with_broker_id(BrokerId(broker)).with_broker_epoch(epoch)
    };
    let first = controller.call(0, allocate(1, epoch)).await;
    let second = controller.call(0, allocate(1, epoch)).await;
    assert_eq!(first.producer_id_len, 1_000);
    assert_eq!(second.producer_id_start.0, first.producer_id_start.0 + 1_000);
    for (broker, epoch) in [(1, epoch + 1), (9, epoch)] {
        let refused = controller.call(0, allocate(broker, epoch)).await;
        assert_code(refused.error_code, ErrorCode::StaleBrokerEpoch, "another epoch");
    }

    let request = |epoch: i64| {
        let topic = |id: Uuid, partitions: &[i32]| {
            let partitions =
                partitions.iter().map(|index| assign::PartitionData::default().with_partition_index(*index));
            assign::TopicData::default().with_topic_id(id).with_partitions(partitions.collect())
        };
        let directory = assign::DirectoryData::default()
            .with_id(Uuid::from_u128(1_000))
            .with_topics(vec![topic(Uuid::from_u128(7), &[0]), topic(topic_id, &[3])]);
        AssignReplicasToDirsRequest::default()
            .with_broker_id(BrokerId(1))
            .with_broker_epoch(epoch)
            .with_directories(vec![directory])
    };
    let refused = controller.call(0, request(epoch + 1)).await;
    assert_code(refused.error_code, ErrorCode::StaleBrokerEpoch, "another epoch");
    assert!(refused.directories.is_empty());
    let told = controller.call(0, request(epoch)).await;
    assert_code(told.error_code, ErrorCode::None, "the broker's own epoch");
    let codes: Vec<_> =
        told.directories[0].topics.iter().map(|topic| topic.partitions[0].error_code).collect();
    assert_eq!(codes, [ErrorCode::UnknownTopicId.code(), ErrorCode::UnknownTopicOrPartition.code()]);
    node.stop().await;
}

#[tokio::test]
async fn who_is_not_registered_is_not_unregistered() {
    let node = TestNode::start(&[]).await;
    for mut client in [node.connect().await, node.connect_to_controller().await] {
        let request = UnregisterBrokerRequest::default().with_broker_id(BrokerId(9));
        let refused = client.call(0, request).await;
        assert_code(refused.error_code, ErrorCode::BrokerIdNotRegistered, "a broker that nobody knows");
    }
    node.stop().await;
}

#[tokio::test]
async fn the_active_controller_stays_registered() {
    let node = TestNode::start(&[]).await;
    for mut client in [node.connect().await, node.connect_to_controller().await] {
        for (controller_id, expected) in
            [(1, ErrorCode::InvalidRequest), (9, ErrorCode::ControllerIdNotRegistered)]
        {
            let request = UnregisterControllerRequest { controller_id, ..Default::default() };
            assert_code(client.call(0, request).await.error_code, expected, "controller");
        }
    }
    node.stop().await;
}

fn principal() -> Bytes {
    let data = DefaultPrincipalData {
        principal_type: text("User"),
        name: text("alice"),
        ..DefaultPrincipalData::default()
    };
    let mut bytes = BytesMut::new();
    bytes.put_i16(0);
    data.encode(&mut bytes, 0).unwrap();
    bytes.freeze()
}

/// The request in an envelope, with its header and without its length.
fn inner<R: Request + 'static>(version: i16, request: &R) -> Bytes {
    let row = ApiRow::of(R::KEY).unwrap();
    encode_request(row, version, 77, Some(text("inner")), request).unwrap().into_bytes().split_off(4)
}

fn envelope(request: Bytes, principal: Bytes, address: &'static [u8]) -> EnvelopeRequest {
    EnvelopeRequest::default()
        .with_request_data(request)
        .with_request_principal(Some(principal))
        .with_client_host_address(Bytes::from_static(address))
}

#[tokio::test]
async fn a_forwarded_request_is_answered_in_its_own_frame() {
    let node = TestNode::start(&[]).await;
    let mut controller = node.connect_to_controller().await;
    let create =
        CreateTopicsRequest::default().with_topics(vec![new_topic("t", 2, &[])]).with_timeout_ms(30_000);
    for expected in [ErrorCode::None, ErrorCode::TopicAlreadyExists] {
        let request = envelope(inner(7, &create), principal(), &[127, 0, 0, 1]);
        let response = controller.call(0, request).await;
        assert_code(response.error_code, ErrorCode::None, "the envelope");
        let row = ApiRow::of(19).unwrap();
        let created: CreateTopicsResponse = decode_answer(row, 7, 77, response.response_data.unwrap());
        assert_code(created.topics[0].error_code, expected, "what was in it");
    }
    let mut client = node.connect().await;
    assert_eq!(client.call(12, metadata_request(12, &["t"])).await.topics[0].partitions.len(), 2);
    node.stop().await;
}

#[tokio::test]
async fn an_envelope_that_cannot_be_opened_is_refused() {
    let node = TestNode::start(&[]).await;
    let mut controller = node.connect_to_controller().await;
    let create = inner(7, &CreateTopicsRequest::default());
    let unknown_version = {
        let mut bytes = BytesMut::from(&create[..]);
        bytes[3] = 99;
        bytes.freeze()
    };
    let home: &[u8] = &[127, 0, 0, 1];
    let bad = [
        (create.clone(), Bytes::new(), home, ErrorCode::PrincipalDeserializationFailure),
        (
            create.clone(),
            Bytes::from_static(&[0, 1, 1, 1, 0, 0]),
            home,
            ErrorCode::PrincipalDeserializationFailure,
        ),
        (create.clone(), principal(), &[127, 0, 0], ErrorCode::InvalidRequest),
        (Bytes::from_static(b"no header"), principal(), home, ErrorCode::UnsupportedVersion),
        (unknown_version, principal(), home, ErrorCode::UnsupportedVersion),
        (create.slice(..create.len() - 2), principal(), home, ErrorCode::UnsupportedVersion),
        (inner(2, &DescribeClusterRequest::default()), principal(), home, ErrorCode::InvalidRequest),
        (inner(12, &MetadataRequest::default()), principal(), home, ErrorCode::InvalidRequest),
        (inner(0, &EnvelopeRequest::default()), principal(), home, ErrorCode::InvalidRequest),
    ];
    for (request, principal, address, expected) in bad {
        let response: EnvelopeResponse = controller.call(0, envelope(request, principal, address)).await;
        assert_code(response.error_code, expected, "an envelope");
        assert!(response.response_data.is_none());
    }
    node.stop().await;
}
