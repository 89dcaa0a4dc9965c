//! What a node tells and does of a cluster in which another broker, that the test plays, has its part.

use floodmark::types::{ErrorCode, Uuid};
use floodmark::wire::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use floodmark::wire::messages::describe_topic_partitions_response::DescribeTopicPartitionsResponsePartition;
use floodmark::wire::messages::elect_leaders_request::TopicPartitions;
use floodmark::wire::messages::*;

use super::brokers::{Played, create_led_by, heartbeat};
use super::client::Client;
use super::harness::TestNode;
use super::log_dirs::alter;
use super::requests::{
    Named, assert_code, batch, by_name, fetch_request, list_offsets_request, new_topic, only_partition,
    produce_request, text, topic_name,
};

/// A node in rack a, and broker 2 in rack b.
async fn two() -> (TestNode, Client, Played, Client, i64) {
    let node = TestNode::start(&[("broker.rack", "a")]).await;
    let client = node.connect().await;
    let played = Played::new(&node).await;
    let mut controller = node.connect_to_controller().await;
    let epoch = played.join(&mut controller, 1).await;
    (node, client, played, controller, epoch)
}

pub fn ids(brokers: &[BrokerId]) -> Vec<i32> {
    brokers.iter().map(|id| id.0).collect()
}

pub async fn described(client: &mut Client) -> DescribeTopicPartitionsResponsePartition {
    let request =
        DescribeTopicPartitionsRequest::default().with_response_partition_limit(10).with_cursor(None);
    client.call(0, request).await.topics.remove(0).partitions.remove(0)
}

#[tokio::test]
async fn the_cluster_is_told_with_racks_and_with_who_is_fenced() {
    let (node, mut client, _played, mut controller, epoch) = two().await;
    let told = |fenced: bool| DescribeClusterRequest::default().with_include_fenced_brokers(fenced);
    let shown = |response: DescribeClusterResponse| {
        let brokers = response.brokers.iter();
        let shown = brokers
            .map(|broker| (broker.broker_id.0, broker.rack.as_ref().unwrap().to_string(), broker.is_fenced));
        shown.collect::<Vec<_>>()
    };
    let both = [(1, "a".to_owned(), false), (2, "b".to_owned(), false)];
    assert_eq!(shown(client.call(2, told(false)).await), both);

    let fence = BrokerHeartbeatRequest { want_fence: true, ..heartbeat(epoch) };
    assert!(controller.call(2, fence).await.is_fenced);
    assert_eq!(shown(client.call(2, told(false)).await), both[..1]);
    let fenced = [(1, "a".to_owned(), false), (2, "b".to_owned(), true)];
    assert_eq!(shown(client.call(2, told(true)).await), fenced);

    let unregister = UnregisterBrokerRequest::default().with_broker_id(BrokerId(2));
    assert_code(client.call(0, unregister).await.error_code, ErrorCode::None, "unregister");
    assert_eq!(shown(client.call(2, told(true)).await), both[..1]);
    node.stop().await;
}

#[tokio::test]
async fn who_comes_to_the_wrong_broker_is_told_the_right_one() {
    let (node, mut client, _played, _controller, _) = two().await;
    let id = create_led_by(&mut client, &[2, 1]).await;
    for version in [9, 10, 12, 13] {
        let topic = Named { name: "led", id };
        let request = produce_request(version, topic, -1, &[(0, batch(&["a"]))]);
        let response = client.call(version, request).await;
        let refused = &response.responses[0].partition_responses[0];
        assert_code(refused.error_code, ErrorCode::NotLeaderOrFollower, "produce");
        if version < 10 {
            assert!(response.node_endpoints.is_empty());
            continue;
        }
        assert_eq!((refused.current_leader.leader_id.0, refused.current_leader.leader_epoch), (2, 0));
        let [endpoint] = &response.node_endpoints[..] else { panic!("one leader") };
        assert_eq!((endpoint.node_id.0, endpoint.rack.clone()), (2, Some(text("b"))));
    }
    for (version, expected) in [(10, ErrorCode::NotLeaderOrFollower), (11, ErrorCode::None)] {
        let read = client.call(version, fetch_request(version, by_name("led"), &[(0, 0)])).await;
        assert_code(
            only_partition(read).error_code,
            expected,
            "consumers may read from a follower from 11 on",
        );
    }
    let mut old = fetch_request(16, Named { name: "led", id }, &[(0, 0)]);
    let follower = fetch_request::ReplicaState::default().with_replica_id(BrokerId(2));
    old.replica_state = follower;
    let response = client.call(16, old).await;
    assert_eq!(response.node_endpoints[0].node_id, 2);
    let refused = only_partition(response);
    assert_code(refused.error_code, ErrorCode::NotLeaderOrFollower, "a follower reads from the leader only");
    assert_eq!((refused.current_leader.leader_id, refused.current_leader.leader_epoch), (2, 0));

    for (replica_id, expected) in [(-1, ErrorCode::NotLeaderOrFollower), (-2, ErrorCode::None)] {
        for timestamp in [-1, -2, 5] {
            let request = ListOffsetsRequest { replica_id, ..list_offsets_request("led", 0, timestamp) };
            let listed = client.call(7, request).await;
            assert_code(listed.topics[0].partitions[0].error_code, expected, "offsets");
        }
    }
    let epoch = offset_for_leader_epoch_request::OffsetForLeaderTopic::default()
        .with_topic(topic_name("led"))
        .with_partitions(vec![Default::default()]);
    let request = OffsetForLeaderEpochRequest::default().with_topics(vec![epoch]);
    let told = client.call(4, request).await;
    assert_code(told.topics[0].partitions[0].error_code, ErrorCode::NotLeaderOrFollower, "epochs");
    node.stop().await;
}

#[tokio::test]
async fn a_replica_of_another_broker_does_not_move_here() {
    let (node, mut client, _played, _controller, _) = two().await;
    create_led_by(&mut client, &[2]).await;
    let code = alter(&mut client, "led", 0, node.dir.path()).await;
    assert_code(code, ErrorCode::ReplicaNotAvailable, "led");
    let code = alter(&mut client, "led", 1, node.dir.path()).await;
    assert_code(code, ErrorCode::UnknownTopicOrPartition, "it has no partition 1");
    node.stop().await;
}

fn reassign(replicas: Option<&[i32]>, may_change_factor: bool) -> AlterPartitionReassignmentsRequest {
    let replicas = replicas.map(|ids| ids.iter().copied().map(BrokerId).collect());
    let partition = ReassignablePartition::default().with_partition_index(0).with_replicas(replicas);
    let topic = ReassignableTopic::default().with_name(topic_name("led")).with_partitions(vec![partition]);
    AlterPartitionReassignmentsRequest::default()
        .with_topics(vec![topic])
        .with_allow_replication_factor_change(may_change_factor)
        .with_timeout_ms(30_000)
}

#[tokio::test]
async fn leadership_and_replicas_move_as_far_as_brokers_live() {
    let (node, mut client, _played, mut controller, epoch) = two().await;
    create_led_by(&mut client, &[2, 1]).await;
    let fence = BrokerHeartbeatRequest { want_fence: true, ..heartbeat(epoch) };
    assert!(controller.call(2, fence).await.is_fenced);
    let shown = described(&mut client).await;
    assert_eq!((shown.leader_id.0, shown.leader_epoch), (1, 1));
    assert_eq!((ids(&shown.isr_nodes), ids(&shown.offline_replicas)), (vec![1], vec![2]));

    let elect = |kind: i8| {
        let partitions = TopicPartitions::default().with_topic(topic_name("led")).with_partitions(vec![0]);
        ElectLeadersRequest::default()
            .with_election_type(kind)
            .with_topic_partitions(Some(vec![partitions]))
            .with_timeout_ms(30_000)
    };
    for (kind, expected) in [(0, ErrorCode::PreferredLeaderNotAvailable), (1, ErrorCode::ElectionNotNeeded)] {
        let elected = client.call(2, elect(kind)).await;
        assert_code(elected.replica_election_results[0].partition_result[0].error_code, expected, "election");
    }

    let outcome = |response: AlterPartitionReassignmentsResponse| {
        ErrorCode::from_code(response.responses[0].partitions[0].error_code).unwrap()
    };
    let refused = client.call(1, reassign(Some(&[2]), false)).await;
    assert_eq!(outcome(refused), ErrorCode::InvalidReplicationFactor);
    // The broker that is to stay is not in sync, so the other one has to wait.
    assert_eq!(outcome(client.call(1, reassign(Some(&[2]), true)).await), ErrorCode::None);
    let ongoing = client.call(0, ListPartitionReassignmentsRequest::default().with_topics(None)).await;
    let ongoing = &ongoing.topics[0].partitions[0];
    assert_eq!((ids(&ongoing.replicas), ids(&ongoing.removing_replicas)), (vec![2, 1], vec![1]));
    assert!(ongoing.adding_replicas.is_empty());
    assert_eq!(outcome(client.call(0, reassign(None, true)).await), ErrorCode::None);
    assert_eq!(outcome(client.call(0, reassign(None, true)).await), ErrorCode::NoReassignmentInProgress);
    // Whoever is in sync can be left alone at once.
    assert_eq!(outcome(client.call(1, reassign(Some(&[1]), true)).await), ErrorCode::None);
    let shown = described(&mut client).await;
    assert_eq!((ids(&shown.replica_nodes), ids(&shown.isr_nodes)), (vec![1], vec![1]));
    let ongoing = client.call(0, ListPartitionReassignmentsRequest::default().with_topics(None)).await;
    assert!(ongoing.topics.is_empty());
    node.stop().await;
}

#[tokio::test]
async fn eligible_replicas_are_told_while_too_few_are_in_sync() {
    let (node, mut client, _played, mut controller, epoch) = two().await;
    create_led_by(&mut client, &[2, 1]).await;
    let min_isr = super::admin::incremental(2, "led", &[("min.insync.replicas", 0, Some("2"))]);
    assert_code(
        client.call(1, min_isr).await.responses[0].error_code,
        ErrorCode::None,
        "min.insync.replicas",
    );
    // Those of another topic need not wait for it any more: a broker is not fenced where that takes more than it gives.
    let wide = new_topic("wide", 2, &[]).with_replication_factor(2);
    let wide = CreateTopicsRequest::default().with_topics(vec![wide]).with_timeout_ms(30_000);
    assert_code(client.call(7, wide).await.topics[0].error_code, ErrorCode::None, "two replicas");
    let fence = BrokerHeartbeatRequest { want_fence: true, ..heartbeat(epoch) };
    assert!(controller.call(2, fence).await.is_fenced);
    let shown = described(&mut client).await;
    let eligible = |shown: &DescribeTopicPartitionsResponsePartition| {
        (ids(shown.eligible_leader_replicas.as_ref().unwrap()), ids(shown.last_known_elr.as_ref().unwrap()))
    };
    assert_eq!((ids(&shown.isr_nodes), eligible(&shown)), (vec![1], (vec![2], vec![])));
    let refused = client.call(12, produce_request(12, by_name("led"), -1, &[(0, batch(&["a"]))])).await;
    let refused = &refused.responses[0].partition_responses[0];
    assert_code(refused.error_code, ErrorCode::NotEnoughReplicas, "acks=all");
    let taken = client.call(12, produce_request(12, by_name("led"), 1, &[(0, batch(&["a"]))])).await;
    assert_code(taken.responses[0].partition_responses[0].error_code, ErrorCode::None, "acks=1");
    // Another minimum: nobody is known to be eligible.
    let min_isr = super::admin::incremental(2, "led", &[("min.insync.replicas", 0, Some("1"))]);
    assert_code(
        client.call(1, min_isr).await.responses[0].error_code,
        ErrorCode::None,
        "min.insync.replicas",
    );
    assert_eq!(eligible(&described(&mut client).await), (vec![], vec![]));
    node.stop().await;
}

#[tokio::test]
async fn topics_are_spread_over_the_brokers_that_there_are() {
    let (node, mut client, _played, _controller, _) = two().await;
    let create = |name: &str, factor: i16| {
        let topic = new_topic(name, 4, &[]).with_replication_factor(factor);
        CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000)
    };
    let created = client.call(7, create("wide", 2)).await;
    assert_code(created.topics[0].error_code, ErrorCode::None, "two replicas");
    assert_eq!(created.topics[0].replication_factor, 2);
    assert_ne!(created.topics[0].topic_id, Uuid::nil());
    let told = client.call(12, super::versions::metadata_request(12, &["wide"])).await;
    let mut leaders: Vec<_> = told.topics[0].partitions.iter().map(|p| p.leader_id.0).collect();
    leaders.sort_unstable();
    assert_eq!(leaders, [1, 1, 2, 2]);
    let refused = client.call(7, create("wider", 3)).await;
    assert_code(refused.topics[0].error_code, ErrorCode::InvalidReplicationFactor, "three replicas");
    node.stop().await;
}
