//! Groups of the consumer protocol over sockets: heartbeats and descriptions in every version, and what bad input is told.

use floodmark::types::{ErrorCode, Uuid};
use floodmark::wire::messages::consumer_group_heartbeat_request::TopicPartitions;
use floodmark::wire::messages::*;

use super::client::Client;
use super::groups::{commit_request, committed, group_id, node_with_groups, versions};
use super::requests::{assert_code, text, topic_name};

/// A first heartbeat of a member that subscribes to the topic `t`.
fn join_request(group: &str, member: &str) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group_id(group))
        .with_member_id(text(member))
        .with_rebalance_timeout_ms(60_000)
        .with_subscribed_topic_names(Some(vec![topic_name("t")]))
        .with_topic_partitions(Some(Vec::new()))
}

fn beat_request(group: &str, member: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group_id(group))
        .with_member_id(text(member))
        .with_member_epoch(epoch)
        .with_rebalance_timeout_ms(-1)
        .with_topic_partitions(None)
        .with_subscribed_topic_names(None)
}

/// The partitions in an answer; `None` when it tells none.
fn assigned(response: &ConsumerGroupHeartbeatResponse, id: Uuid) -> Option<Vec<i32>> {
    let assignment = response.assignment.as_ref()?;
    assignment
        .topic_partitions
        .iter()
        .find(|topic| topic.topic_id == id)
        .map(|topic| topic.partitions.clone())
}

/// Joins, and reports what it has until it has both partitions; gives the member's id and epoch.
async fn become_member(client: &mut Client, version: i16, group: &str, id: Uuid) -> (String, i32) {
    let name = if version >= 1 { "of-its-own" } else { "" };
    let mut answer = client.call(version, join_request(group, name)).await;
    assert_code(answer.error_code, ErrorCode::None, "join");
    assert_eq!(answer.heartbeat_interval_ms, 5_000);
    let member = answer.member_id.clone().unwrap().to_string();
    assert_eq!(member == name, version >= 1, "{member}");
    while assigned(&answer, id).is_none_or(|partitions| partitions.len() < 2) {
        answer = client.call(version, beat_request(group, &member, answer.member_epoch)).await;
        assert_code(answer.error_code, ErrorCode::None, "heartbeat");
    }
    let owned = TopicPartitions::default().with_topic_id(id).with_partitions(vec![0, 1]);
    let request = beat_request(group, &member, answer.member_epoch).with_topic_partitions(Some(vec![owned]));
    let answer = client.call(version, request).await;
    assert_code(answer.error_code, ErrorCode::None, "it has them");
    (member, answer.member_epoch)
}

#[tokio::test]
async fn a_member_of_a_consumer_group_comes_and_goes_at_every_version() {
    let (node, mut client, id) = node_with_groups(&[]).await;
    for version in versions(68) {
        let group = format!("group-{version}");
        let (member, epoch) = become_member(&mut client, version, &group, id).await;
        for describe in versions(69) {
            let request = ConsumerGroupDescribeRequest::default()
                .with_group_ids([&*group, "missing", ""].map(group_id).to_vec())
                .with_include_authorized_operations(true);
            let response = client.call(describe, request).await;
            let [shown, missing, unnamed] = &response.groups[..] else { panic!("three groups") };
            assert_eq!((shown.error_code, shown.group_state.as_str()), (0, "Stable"));
            assert_eq!((shown.assignor_name.as_str(), shown.members.len()), ("uniform", 1));
            assert!(shown.authorized_operations > 0);
            let of_member = &shown.members[0];
            assert_eq!((of_member.member_id.as_str(), of_member.member_epoch), (&*member, epoch));
            assert_eq!(
                (of_member.client_id.as_str(), of_member.client_host.as_str()),
                ("test", "/127.0.0.1")
            );
            let topics = &of_member.assignment.topic_partitions;
            assert_eq!((topics[0].topic_name.0.as_str(), &*topics[0].partitions), ("t", &[0, 1][..]));
            assert_eq!(of_member.assignment, of_member.target_assignment);
            assert_eq!(of_member.member_type, if describe >= 1 { 1 } else { -1 });
            assert_code(missing.error_code, ErrorCode::GroupIdNotFound, "missing");
            assert_code(unnamed.error_code, ErrorCode::InvalidGroupId, "no group id");
        }
        for (epoch, expected) in [(epoch, ErrorCode::None), (epoch + 1, ErrorCode::StaleMemberEpoch)] {
            let mut request = commit_request(10, &group, id, 0, 7);
            (request.member_id, request.generation_id_or_member_epoch) = (text(&member), epoch);
            assert_code(committed(&client.call(10, request).await), expected, "commit");
        }
        let listed =
            client.call(5, ListGroupsRequest::default().with_types_filter(vec![text("consumer")])).await;
        let shown = listed.groups.iter().find(|shown| shown.group_id.0.as_str() == group).unwrap();
        assert_eq!((shown.group_state.as_str(), shown.group_type.as_str()), ("Stable", "consumer"));
        let left = client.call(version, beat_request(&group, &member, -1)).await;
        assert_eq!((left.error_code, left.member_epoch), (0, -1));
        let gone = client.call(version, beat_request(&group, &member, epoch)).await;
        assert_code(gone.error_code, ErrorCode::UnknownMemberId, "gone");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_wrong_heartbeat_is_told_so() {
    let (node, mut client, id) = node_with_groups(&[]).await;
    let (member, epoch) = become_member(&mut client, 1, "g", id).await;
    let join = || join_request("g", "m");
    let wrong = [
        (join_request("", "m"), ErrorCode::InvalidRequest),
        (join_request("g", ""), ErrorCode::InvalidRequest),
        (join().with_instance_id(Some(text(""))), ErrorCode::InvalidRequest),
        (join().with_rack_id(Some(text(""))), ErrorCode::InvalidRequest),
        (join().with_rebalance_timeout_ms(-1), ErrorCode::InvalidRequest),
        (join().with_topic_partitions(None), ErrorCode::InvalidRequest),
        (join().with_subscribed_topic_names(None), ErrorCode::InvalidRequest),
        (join().with_server_assignor(Some(text("odd"))), ErrorCode::UnsupportedAssignor),
        (join().with_subscribed_topic_regex(Some(text("(["))), ErrorCode::InvalidRegularExpression),
        (beat_request("g", "m", -2), ErrorCode::InvalidRequest),
        (beat_request("g", "m", -3), ErrorCode::InvalidRequest),
        (beat_request("g", "nobody", 1), ErrorCode::UnknownMemberId),
        (beat_request("g", &member, epoch + 1), ErrorCode::FencedMemberEpoch),
        (beat_request("missing", "m", 1), ErrorCode::GroupIdNotFound),
        (beat_request("g", &member, epoch), ErrorCode::None),
    ];
    for (request, expected) in wrong {
        let what = format!("{request:?}");
        let answer = client.call(1, request).await;
        assert_code(answer.error_code, expected, &what);
        assert_eq!(answer.error_message.is_some(), expected != ErrorCode::None, "{what}");
    }
    node.stop().await;
}

#[tokio::test]
async fn the_consumer_protocol_can_be_off() {
    let off = [("group.coordinator.rebalance.protocols", "classic")];
    let (node, mut client, _) = node_with_groups(&off).await;
    let answer = client.call(1, join_request("g", "m")).await;
    assert_code(answer.error_code, ErrorCode::UnsupportedVersion, "heartbeat");
    assert_eq!(answer.error_message, None);
    let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group_id("g")]);
    let response = client.call(1, request).await;
    assert_code(response.groups[0].error_code, ErrorCode::UnsupportedVersion, "describe");
    node.stop().await;
}
