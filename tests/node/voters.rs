//! Controllers that become voters of the metadata quorum and cease to be, as the tools and they themselves ask for it.

use floodmark::types::{ErrorCode, kafka_uuid};
use floodmark::wire::messages::add_raft_voter_request::AddedVoterListener;
use floodmark::wire::messages::describe_quorum_request::{PartitionData, TopicData};
use floodmark::wire::messages::*;

use super::client::Client;
use super::harness::TestNode;
use super::requests::{assert_code, text, topic_name};

async fn ask(client: &mut Client) -> DescribeQuorumResponse {
    let topic = TopicData::default()
        .with_topic_name(topic_name("__cluster_metadata"))
        .with_partitions(vec![PartitionData::default()]);
    client.call(2, DescribeQuorumRequest::default().with_topics(vec![topic])).await
}

/// The voters, each as `id@port directory`.
async fn voters(client: &mut Client) -> Vec<String> {
    let response = ask(client).await;
    let log = &response.topics[0].partitions[0];
    assert_code(log.error_code, ErrorCode::None, "describe");
    let port = |id: i32| {
        let node = response.nodes.iter().find(|node| node.node_id.0 == id).unwrap();
        node.listeners[0].port
    };
    let mut voters: Vec<String> = log
        .current_voters
        .iter()
        .map(|voter| {
            let (id, directory) = (voter.replica_id.0, kafka_uuid::format(voter.replica_directory_id));
            format!("{id}@{} {directory}", port(id))
        })
        .collect();
    voters.sort_unstable();
    voters
}

fn shown(id: i32, node: &TestNode) -> String {
    format!("{id}@{} {}", node.controller_address().port(), node.property("directory.id"))
}

async fn wait_for(client: &mut Client, expected: &[String]) {
    while voters(client).await != expected {
        tokio::task::yield_now().await;
    }
}

fn addition(node: &TestNode, id: i32) -> AddRaftVoterRequest {
    AddRaftVoterRequest {
        cluster_id: Some(text(&node.property("cluster.id"))),
        timeout_ms: 30_000,
        voter_id: id,
        voter_directory_id: kafka_uuid::parse(&node.property("directory.id")).unwrap(),
        listeners: vec![AddedVoterListener {
            name: text("CONTROLLER"),
            host: text("127.0.0.1"),
            port: node.controller_address().port(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn removal(node: &TestNode, id: i32) -> RemoveRaftVoterRequest {
    RemoveRaftVoterRequest::default()
        .with_cluster_id(None)
        .with_voter_id(id)
        .with_voter_directory_id(kafka_uuid::parse(&node.property("directory.id")).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controllers_are_made_voters_and_taken_out() {
    let one = TestNode::start(&[]).await;
    let mut client = one.connect().await;
    let two = TestNode::controller_beside(&one, "2", &[]).await;
    assert_eq!(voters(&mut client).await, [shown(1, &one)]);

    let elsewhere = AddRaftVoterRequest { cluster_id: Some(text("elsewhere")), ..addition(&two, 2) };
    let refused = client.call(1, elsewhere).await;
    assert_code(refused.error_code, ErrorCode::InconsistentClusterId, "another cluster");
    let nowhere = AddRaftVoterRequest { listeners: Vec::new(), ..addition(&two, 2) };
    assert_code(client.call(1, nowhere).await.error_code, ErrorCode::InvalidRequest, "no listener");
    let nobody = RemoveRaftVoterRequest::default().with_cluster_id(None).with_voter_id(1);
    assert_code(client.call(0, nobody).await.error_code, ErrorCode::InvalidRequest, "no directory");
    let refused = client.call(0, removal(&one, 1)).await;
    assert_code(refused.error_code, ErrorCode::VoterNotFound, "the last voter");
    assert_code(client.call(0, removal(&two, 2)).await.error_code, ErrorCode::VoterNotFound, "no voter");

    assert_code(client.call(1, addition(&two, 2)).await.error_code, ErrorCode::None, "added");
    assert_eq!(voters(&mut client).await, [shown(1, &one), shown(2, &two)]);
    assert_code(client.call(0, addition(&two, 2)).await.error_code, ErrorCode::DuplicateVoter, "again");

    // Controllers do not ask the leader for others; brokers do.
    for node in [&one, &two] {
        let mut controller = node.connect_to_controller().await;
        let code = ask(&mut controller).await.topics[0].partitions[0].error_code;
        let nobody = RemoveRaftVoterRequest::default().with_cluster_id(None);
        let refused = controller.call(0, nobody).await.error_code;
        if code == ErrorCode::None.code() {
            assert_code(refused, ErrorCode::InvalidRequest, "the leader looks at the request");
        } else {
            assert_code(code, ErrorCode::NotLeaderOrFollower, "describe");
            assert_code(refused, ErrorCode::NotLeaderOrFollower, "remove");
        }
    }
    let versions = ApiVersionsRequest {
        client_software_name: text("test"),
        client_software_version: text("1"),
        ..Default::default()
    };
    let finalized = client.call(4, versions).await.finalized_features;
    let level = finalized.iter().find(|feature| feature.name == text("kraft.version"));
    assert_eq!(level.map(|feature| feature.max_version_level), Some(1));

    assert_code(client.call(0, removal(&two, 2)).await.error_code, ErrorCode::None, "taken out");
    assert_eq!(voters(&mut client).await, [shown(1, &one)]);
    two.stop().await;
    one.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_joins_by_itself_and_tells_where_it_listens() {
    let one = TestNode::start(&[]).await;
    let mut client = one.connect().await;
    let joins = [("controller.quorum.auto.join.enable", "true")];
    let two = TestNode::controller_beside(&one, "2", &joins).await;
    wait_for(&mut client, &[shown(1, &one), shown(2, &two)]).await;
    // It gets another port, where the leader does not find it: so it asks.
    let before = two.controller_address();
    let two = two.restart().await;
    assert_ne!(two.controller_address(), before);
    wait_for(&mut client, &[shown(1, &one), shown(2, &two)]).await;
    two.stop().await;
    one.stop().await;
}

#[tokio::test]
async fn voters_of_the_configuration_have_no_directories_and_stay() {
    let node = TestNode::start(&[("controller.quorum.voters", "1@127.0.0.1:9093")]).await;
    let mut client = node.connect().await;
    let [voter] = &voters(&mut client).await[..] else { panic!("one voter") };
    assert_eq!(*voter, format!("1@{} AAAAAAAAAAAAAAAAAAAAAA", node.controller_address().port()));
    let refused = client.call(0, removal(&node, 1)).await;
    assert_code(refused.error_code, ErrorCode::UnsupportedVersion, "kraft.version 0");
    node.stop().await;
}
