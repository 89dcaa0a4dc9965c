//! Groups of the classic protocol over sockets: every API in every version, what bad input is told, and what is left after a
//! restart.

use bytes::Bytes;
use floodmark::broker::coordinators::partition_of;
use floodmark::types::{ErrorCode, Uuid};
use floodmark::wire::api::ApiRow;
use floodmark::wire::messages::join_group_request::JoinGroupRequestProtocol;
use floodmark::wire::messages::leave_group_request::MemberIdentity;
use floodmark::wire::messages::offset_commit::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
};
use floodmark::wire::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use floodmark::wire::messages::offset_fetch::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics, OffsetFetchResponse,
};
use floodmark::wire::messages::sync_group_request::SyncGroupRequestAssignment;
use floodmark::wire::messages::txn_offset_commit::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic, TxnOffsetCommitResponse,
};
use floodmark::wire::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use floodmark::wire::messages::*;

use super::client::Client;
use super::harness::TestNode;
use super::requests::{assert_code, create_topic, text, topic_name};

const SETTINGS: &[(&str, &str)] =
    &[("offsets.topic.num.partitions", "3"), ("group.initial.rebalance.delay.ms", "0")];

pub fn versions(key: i16) -> std::ops::RangeInclusive<i16> {
    let row = ApiRow::of(key).unwrap();
    row.min..=row.max
}

pub fn group_id(id: &str) -> GroupId {
    GroupId(text(id))
}

/// A node with a topic `t` of two partitions and coordinators that serve; and the topic's id.
pub async fn node_with_groups(settings: &[(&str, &str)]) -> (TestNode, Client, Uuid) {
    let node = TestNode::start(&[SETTINGS, settings].concat()).await;
    let mut client = node.connect().await;
    let id = create_topic(&mut client, "t", 2, &[]).await;
    find_coordinator(&mut client, "g").await;
    serving(&mut client).await;
    (node, client, id)
}

/// Asks for the coordinator of a group until it is there.
async fn find_coordinator(client: &mut Client, group: &str) {
    let request = FindCoordinatorRequest::default().with_coordinator_keys(vec![text(group)]);
    loop {
        let found = client.call(6, request.clone()).await.coordinators.remove(0);
        if found.error_code == 0 {
            assert_eq!((found.node_id, found.host.as_str()), (BrokerId(1), "127.0.0.1"));
            return;
        }
        assert_code(found.error_code, ErrorCode::CoordinatorNotAvailable, "not yet");
    }
}

/// Waits until the coordinators of three groups, of all partitions, have read their logs.
async fn serving(client: &mut Client) {
    for group in ["a", "b", "c"] {
        let group = OffsetFetchRequestGroup { group_id: text(group), topics: None, ..Default::default() };
        let request = OffsetFetchRequest { groups: vec![group], ..Default::default() };
        while client.call(9, request.clone()).await.groups[0].error_code != 0 {}
    }
}

fn join_request(group: &str, member: &str) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(Bytes::from_static(b"subscription"));
    JoinGroupRequest::default()
        .with_group_id(group_id(group))
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(60_000)
        .with_member_id(text(member))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol])
}

fn sync_request(version: i16, group: &str, member: &str, generation: i32) -> SyncGroupRequest {
    let assigned = SyncGroupRequestAssignment::default()
        .with_member_id(text(member))
        .with_assignment(Bytes::from_static(b"assignment"));
    let request = SyncGroupRequest::default()
        .with_group_id(group_id(group))
        .with_member_id(text(member))
        .with_generation_id(generation)
        .with_assignments(vec![assigned]);
    if version >= 5 {
        request.with_protocol_type(Some(text("consumer"))).with_protocol_name(Some(text("range")))
    } else {
        request
    }
}

fn heartbeat_request(group: &str, member: &str, generation: i32) -> HeartbeatRequest {
    HeartbeatRequest::default()
        .with_group_id(group_id(group))
        .with_member_id(text(member))
        .with_generation_id(generation)
}

fn leave_request(version: i16, group: &str, member: &str) -> LeaveGroupRequest {
    let request = LeaveGroupRequest::default().with_group_id(group_id(group));
    if version >= 3 {
        request.with_members(vec![MemberIdentity::default().with_member_id(text(member))])
    } else {
        request.with_member_id(text(member))
    }
}

/// The code of the one member, wherever the version tells it.
fn left(response: &LeaveGroupResponse) -> i16 {
    response.members.first().map_or(response.error_code, |member| member.error_code)
}

/// Joins and synchronises as the only member; gives its id and the generation.
async fn become_member(client: &mut Client, group: &str) -> (String, i32) {
    let refused = client.call(9, join_request(group, "")).await;
    assert_code(refused.error_code, ErrorCode::MemberIdRequired, "first");
    let joined = client.call(9, join_request(group, refused.member_id.as_str())).await;
    assert_code(joined.error_code, ErrorCode::None, "join");
    let (member, generation) = (joined.member_id.to_string(), joined.generation_id);
    let synced = client.call(5, sync_request(5, group, &member, generation)).await;
    assert_code(synced.error_code, ErrorCode::None, "sync");
    (member, generation)
}

/// An offset for one partition of the topic `t`.
pub fn commit_request(
    version: i16,
    group: &str,
    id: Uuid,
    partition: i32,
    offset: i64,
) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition {
        partition_index: partition,
        committed_offset: offset,
        committed_leader_epoch: 0,
        committed_metadata: Some(text("note")),
        ..Default::default()
    };
    let named = if version >= 10 {
        OffsetCommitRequestTopic { topic_id: id, ..Default::default() }
    } else {
        OffsetCommitRequestTopic { name: text("t"), ..Default::default() }
    };
    let topic = OffsetCommitRequestTopic { partitions: vec![partition], ..named };
    OffsetCommitRequest { group_id: text(group), topics: vec![topic], ..Default::default() }
}

pub fn committed(response: &OffsetCommitResponse) -> i16 {
    response.topics[0].partitions[0].error_code
}

/// Asks for partitions of the topic `t`, or for all that the group has.
fn fetch_request(version: i16, group: &str, id: Uuid, partitions: Option<&[i32]>) -> OffsetFetchRequest {
    if version < 8 {
        let topic = |partitions: &[i32]| OffsetFetchRequestTopic {
            name: text("t"),
            partition_indexes: partitions.to_vec(),
            ..Default::default()
        };
        let topics = partitions.map(|partitions| vec![topic(partitions)]);
        return OffsetFetchRequest { group_id: text(group), topics, ..Default::default() };
    }
    let topic = |partitions: &[i32]| OffsetFetchRequestTopics {
        name: text("t"),
        topic_id: id,
        partition_indexes: partitions.to_vec(),
        ..Default::default()
    };
    let topics = partitions.map(|partitions| vec![topic(partitions)]);
    let group = OffsetFetchRequestGroup { group_id: text(group), topics, ..Default::default() };
    OffsetFetchRequest { groups: vec![group], ..Default::default() }
}

/// Partition, offset, text and code of all that was fetched of one group; and the code of the whole.
fn fetched(response: &OffsetFetchResponse) -> (Vec<(i32, i64, String, i16)>, i16) {
    let old = response.topics.iter().flat_map(|topic| &topic.partitions).map(|partition| {
        let metadata = partition.metadata.as_deref().unwrap_or("null").to_owned();
        (partition.partition_index, partition.committed_offset, metadata, partition.error_code)
    });
    let new = response.groups.iter().flat_map(|group| &group.topics).flat_map(|topic| &topic.partitions);
    let new = new.map(|partition| {
        let metadata = partition.metadata.as_deref().unwrap_or("null").to_owned();
        (partition.partition_index, partition.committed_offset, metadata, partition.error_code)
    });
    let code = response.groups.first().map_or(response.error_code, |group| group.error_code);
    (old.chain(new).collect(), code)
}

#[tokio::test]
async fn coordinators_are_found_at_every_version() {
    let node = TestNode::start(SETTINGS).await;
    let mut client = node.connect().await;
    let request = |version: i16, kind: i8, key: &str| {
        let request = FindCoordinatorRequest::default();
        let request = if version >= 1 { request.with_key_type(kind) } else { request };
        if version >= 4 {
            request.with_coordinator_keys(vec![text(key), text("other")])
        } else {
            request.with_key(text(key))
        }
    };
    let code = |response: &FindCoordinatorResponse| {
        response.coordinators.first().map_or(response.error_code, |found| found.error_code)
    };
    // The topic is not there yet: the first request makes it.
    find_coordinator(&mut client, "g").await;
    for version in versions(10) {
        let found = client.call(version, request(version, 0, "g")).await;
        assert_code(code(&found), ErrorCode::None, "g");
        let port = found.coordinators.first().map_or(found.port, |found| found.port);
        assert_eq!(port, i32::from(node.broker_address().port()), "version {version}");
        if version >= 4 {
            assert_eq!(found.coordinators.len(), 2);
        }
        if version >= 1 {
            let refused = client.call(version, request(version, 9, "g")).await;
            assert_code(code(&refused), ErrorCode::InvalidRequest, "a type that does not exist");
            // No API of share groups is announced, so nobody is to try again.
            let share = client.call(version, request(version, 2, "g:AAAAAAAAAAEAAAAAAAAAAg:0")).await;
            assert_code(code(&share), ErrorCode::InvalidRequest, "a share group");
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn a_member_comes_and_goes_at_every_version() {
    let (node, mut client, _) = node_with_groups(&[]).await;
    for version in versions(11) {
        let group = format!("group-{version}");
        let mut joined = client.call(version, join_request(&group, "")).await;
        if version >= 4 {
            assert_code(joined.error_code, ErrorCode::MemberIdRequired, "first");
            assert_eq!(joined.generation_id, -1);
            joined = client.call(version, join_request(&group, joined.member_id.as_str())).await;
        }
        assert_code(joined.error_code, ErrorCode::None, &group);
        let member = joined.member_id.to_string();
        assert!(member.starts_with("test-"), "{member}");
        assert_eq!((joined.leader.as_str(), joined.generation_id), (&*member, 1));
        assert_eq!(joined.protocol_name.as_deref(), Some("range"));
        assert_eq!(joined.protocol_type.as_deref(), (version >= 7).then_some("consumer"));
        assert_eq!(joined.members[0].metadata, "subscription");
        let sync = version.min(*versions(14).end());
        let synced = client.call(sync, sync_request(sync, &group, &member, 1)).await;
        assert_eq!((synced.error_code, synced.assignment), (0, Bytes::from_static(b"assignment")));
        assert_eq!(synced.protocol_name.is_some(), sync >= 5);
        let beat = version.min(*versions(12).end());
        let beats = client.call(beat, heartbeat_request(&group, &member, 1)).await;
        assert_code(beats.error_code, ErrorCode::None, "heartbeat");
        let leave = version.min(*versions(13).end());
        let response = client.call(leave, leave_request(leave, &group, "nobody")).await;
        assert_code(left(&response), ErrorCode::UnknownMemberId, "who is no member");
        let response = client.call(leave, leave_request(leave, &group, &member)).await;
        assert_code(left(&response), ErrorCode::None, "leave");
        assert_eq!(response.members.len(), usize::from(leave >= 3));
        let beats = client.call(beat, heartbeat_request(&group, &member, 1)).await;
        assert_code(beats.error_code, ErrorCode::UnknownMemberId, "gone");
    }
    node.stop().await;
}

#[tokio::test]
async fn who_asks_wrongly_is_told_so() {
    let (node, mut client, _) = node_with_groups(&[]).await;
    let (member, generation) = become_member(&mut client, "g").await;

    let code = client.call(9, join_request("", "")).await.error_code;
    assert_code(code, ErrorCode::InvalidGroupId, "no group id");
    for timeout in [0, 5_999, 1_800_001, -1] {
        let request = join_request("g", "").with_session_timeout_ms(timeout);
        assert_code(client.call(9, request).await.error_code, ErrorCode::InvalidSessionTimeout, "session");
    }
    let code = client.call(9, join_request("g", "nobody")).await.error_code;
    assert_code(code, ErrorCode::UnknownMemberId, "an id that was not given");
    let request = join_request("g", "").with_protocol_type(text("connect"));
    assert_code(client.call(9, request).await.error_code, ErrorCode::InconsistentGroupProtocol, "type");
    let request = join_request("new", "").with_protocols(Vec::new());
    assert_code(client.call(9, request).await.error_code, ErrorCode::InconsistentGroupProtocol, "none");

    let code = client.call(5, sync_request(5, "", &member, generation)).await.error_code;
    assert_code(code, ErrorCode::InvalidGroupId, "no group id");
    let code = client.call(5, sync_request(4, "g", &member, generation)).await.error_code;
    assert_code(code, ErrorCode::InconsistentGroupProtocol, "no protocol");
    let request = sync_request(5, "g", &member, generation).with_protocol_name(Some(text("other")));
    assert_code(client.call(5, request).await.error_code, ErrorCode::InconsistentGroupProtocol, "another");
    let code = client.call(5, sync_request(5, "g", &member, generation + 1)).await.error_code;
    assert_code(code, ErrorCode::IllegalGeneration, "generation");
    let code = client.call(5, sync_request(5, "g", "nobody", generation)).await.error_code;
    assert_code(code, ErrorCode::UnknownMemberId, "nobody");

    for (group, member, generation, expected) in [
        ("", &*member, generation, ErrorCode::InvalidGroupId),
        ("missing", &member, generation, ErrorCode::UnknownMemberId),
        ("g", "nobody", generation, ErrorCode::UnknownMemberId),
        ("g", &member, generation + 1, ErrorCode::IllegalGeneration),
        ("g", &member, generation, ErrorCode::None),
    ] {
        let code = client.call(4, heartbeat_request(group, member, generation)).await.error_code;
        assert_code(code, expected, group);
    }
    let code = client.call(5, leave_request(5, "", &member)).await.error_code;
    assert_code(code, ErrorCode::InvalidGroupId, "no group id");
    let response = client.call(5, leave_request(5, "missing", &member)).await;
    assert_code(left(&response), ErrorCode::UnknownMemberId, "a group that does not exist");
    node.stop().await;
}

#[tokio::test]
async fn offsets_are_committed_and_fetched_at_every_version() {
    let (node, mut client, id) = node_with_groups(&[("offset.metadata.max.bytes", "10")]).await;
    for version in versions(8) {
        let offset = i64::from(version) * 10;
        let response = client.call(version, commit_request(version, "g", id, 1, offset)).await;
        assert_code(committed(&response), ErrorCode::None, "commit");
        let topic = &response.topics[0];
        assert_eq!(
            (topic.name.as_str(), topic.topic_id),
            if version >= 10 { ("", id) } else { ("t", Uuid::nil()) }
        );
        for fetch in versions(9) {
            let response = client.call(fetch, fetch_request(fetch, "g", id, Some(&[0, 1]))).await;
            let expected = vec![(0, -1, String::new(), 0), (1, offset, "note".to_owned(), 0)];
            assert_eq!(fetched(&response), (expected.clone(), 0), "versions {version} and {fetch}");
            if fetch >= 2 {
                let response = client.call(fetch, fetch_request(fetch, "g", id, None)).await;
                assert_eq!(fetched(&response), (expected[1..].to_vec(), 0), "all, version {fetch}");
                let response = client.call(fetch, fetch_request(fetch, "missing", id, None)).await;
                assert_eq!(fetched(&response), (Vec::new(), 0), "a group that does not exist");
            }
        }
        // The group id may be empty here.
        let response = client.call(version, commit_request(version, "", id, 0, 1)).await;
        assert_code(committed(&response), ErrorCode::None, "the empty group");

        let response = client.call(version, commit_request(version, "g", id, 2, 1)).await;
        assert_code(committed(&response), ErrorCode::UnknownTopicOrPartition, "a partition too many");
        let mut request = commit_request(version, "g", Uuid::from_u128(7), 0, 1);
        let (name, expected) = if version >= 10 {
            ("", ErrorCode::UnknownTopicId)
        } else {
            ("missing", ErrorCode::UnknownTopicOrPartition)
        };
        request.topics[0].name = text(name);
        assert_code(committed(&client.call(version, request).await), expected, "a topic too many");
        let mut request = commit_request(version, "g", id, 0, 1);
        request.topics[0].partitions[0].committed_metadata = Some(text("longer than it may be"));
        let response = client.call(version, request).await;
        assert_code(committed(&response), ErrorCode::OffsetMetadataTooLarge, "a long text");

        let mut request = commit_request(version, "missing", id, 0, 1);
        request.generation_id_or_member_epoch = 5;
        request.member_id = text("nobody");
        let expected = if version >= 9 { ErrorCode::GroupIdNotFound } else { ErrorCode::IllegalGeneration };
        assert_code(committed(&client.call(version, request).await), expected, "a member of no group");
    }
    node.stop().await;
}

#[tokio::test]
async fn members_commit_under_their_generation() {
    let (node, mut client, id) = node_with_groups(&[]).await;
    let (member, generation) = become_member(&mut client, "g").await;
    for (member, generation, expected) in [
        ("", -1, ErrorCode::UnknownMemberId),
        ("nobody", generation, ErrorCode::UnknownMemberId),
        (&*member, generation + 1, ErrorCode::IllegalGeneration),
        (&member, generation, ErrorCode::None),
    ] {
        let mut request = commit_request(10, "g", id, 0, 7);
        request.generation_id_or_member_epoch = generation;
        request.member_id = text(member);
        assert_code(committed(&client.call(10, request).await), expected, member);
    }
    node.stop().await;
}

#[tokio::test]
async fn several_groups_are_fetched_at_once() {
    let (node, mut client, id) = node_with_groups(&[]).await;
    for (group, offset) in [("a", 1), ("b", 2), ("c", 3)] {
        client.call(10, commit_request(10, group, id, 0, offset)).await;
    }
    let mut request = fetch_request(10, "a", id, Some(&[0]));
    for group in ["b", "c"] {
        request.groups.extend(fetch_request(10, group, id, None).groups);
    }
    // An id that no topic has.
    let unknown = fetch_request(10, "c", Uuid::from_u128(7), Some(&[0, 5]));
    request.groups.extend(unknown.groups);
    let response = client.call(10, request).await;
    let seen: Vec<_> = response
        .groups
        .iter()
        .map(|group| {
            let partitions = group.topics.iter().flat_map(|topic| &topic.partitions);
            let offsets: Vec<_> =
                partitions.map(|partition| (partition.committed_offset, partition.error_code)).collect();
            (group.group_id.as_str(), group.error_code, offsets)
        })
        .collect();
    let unknown = ErrorCode::UnknownTopicId.code();
    let expected = [
        ("a", 0, vec![(1, 0)]),
        ("b", 0, vec![(2, 0)]),
        ("c", 0, vec![(3, 0)]),
        ("c", 0, vec![(-1, unknown), (-1, unknown)]),
    ];
    assert_eq!(seen, expected);
    assert!(response.groups.iter().take(3).all(|group| group.topics[0].topic_id == id));
    node.stop().await;
}

#[tokio::test]
async fn groups_are_listed_and_described_at_every_version() {
    let (node, mut client, id) = node_with_groups(&[]).await;
    let (member, _) = become_member(&mut client, "live").await;
    client.call(10, commit_request(10, "simple", id, 0, 1)).await;
    for version in versions(16) {
        let response = client.call(version, ListGroupsRequest::default()).await;
        assert_code(response.error_code, ErrorCode::None, "list");
        let mut seen: Vec<_> = response
            .groups
            .iter()
            .map(|group| {
                (
                    group.group_id.as_str(),
                    group.protocol_type.as_str(),
                    group.group_state.as_str(),
                    group.group_type.as_str(),
                )
            })
            .collect();
        seen.sort_unstable();
        let state = |state| if version >= 4 { state } else { "" };
        let kind = if version >= 5 { "classic" } else { "" };
        let expected = [("live", "consumer", state("Stable"), kind), ("simple", "", state("Empty"), kind)];
        assert_eq!(seen, expected, "version {version}");
        if version >= 4 {
            let request = ListGroupsRequest::default().with_states_filter(vec![text("stable"), text("odd")]);
            assert_eq!(client.call(version, request).await.groups.len(), 1);
        }
        if version >= 5 {
            for (kind, count) in [("CLASSIC", 2), ("consumer", 0), ("odd", 0)] {
                let request = ListGroupsRequest::default().with_types_filter(vec![text(kind)]);
                assert_eq!(client.call(version, request).await.groups.len(), count, "{kind}");
            }
        }
    }
    for version in versions(15) {
        let groups = ["live", "simple", "missing", "live"].map(group_id).to_vec();
        let request = DescribeGroupsRequest::default().with_groups(groups);
        let request = if version >= 3 { request.with_include_authorized_operations(true) } else { request };
        let response = client.call(version, request).await;
        let seen: Vec<_> = response
            .groups
            .iter()
            .map(|group| {
                (
                    group.group_id.0.as_str(),
                    group.group_state.as_str(),
                    group.protocol_data.as_str(),
                    group.members.len(),
                )
            })
            .collect();
        let live = ("live", "Stable", "range", 1);
        assert_eq!(seen, [live, ("simple", "Empty", "", 0), ("missing", "Dead", "", 0), live]);
        let shown = &response.groups[0].members[0];
        assert_eq!((shown.member_id.as_str(), shown.client_id.as_str()), (&*member, "test"));
        assert_eq!(shown.client_host.as_str(), "/127.0.0.1");
        assert_eq!(
            (&*shown.member_metadata, &*shown.member_assignment),
            (&b"subscription"[..], &b"assignment"[..])
        );
        assert_eq!(response.groups[0].authorized_operations > 0, version >= 3);
        let missing = &response.groups[2];
        let expected = if version >= 6 { ErrorCode::GroupIdNotFound } else { ErrorCode::None };
        assert_code(missing.error_code, expected, "missing");
        assert_eq!(missing.error_message.is_some(), version >= 6);
    }
    node.stop().await;
}

#[tokio::test]
async fn groups_and_their_offsets_are_deleted() {
    let (node, mut client, id) = node_with_groups(&[]).await;
    let (member, _) = become_member(&mut client, "live").await;
    for version in versions(42) {
        client.call(10, commit_request(10, "simple", id, 0, 1)).await;
        let groups_names = ["simple", "live", "missing", "simple"].map(text).to_vec();
        let request = DeleteGroupsRequest { groups_names, ..Default::default() };
        let response = client.call(version, request).await;
        let seen: Vec<_> =
            response.results.iter().map(|result| (result.group_id.as_str(), result.error_code)).collect();
        let expected = [
            ("simple", 0),
            ("live", ErrorCode::NonEmptyGroup.code()),
            ("missing", ErrorCode::GroupIdNotFound.code()),
        ];
        assert_eq!(seen, expected, "version {version}");
        let response = client.call(10, fetch_request(10, "simple", id, None)).await;
        assert_eq!(fetched(&response), (Vec::new(), 0));
    }
    let delete = |group: &str, topic: &str, partitions: &[i32]| {
        let partitions = partitions
            .iter()
            .map(|index| OffsetDeleteRequestPartition::default().with_partition_index(*index))
            .collect();
        let topic =
            OffsetDeleteRequestTopic::default().with_name(topic_name(topic)).with_partitions(partitions);
        OffsetDeleteRequest::default().with_group_id(group_id(group)).with_topics(vec![topic])
    };
    client.call(10, commit_request(10, "simple", id, 0, 1)).await;
    let response = client.call(0, delete("simple", "t", &[0, 9])).await;
    let codes: Vec<_> =
        response.topics[0].partitions.iter().map(|told| (told.partition_index, told.error_code)).collect();
    assert_eq!(codes, [(9, ErrorCode::UnknownTopicOrPartition.code()), (0, 0)]);
    for (group, topic, expected) in [
        ("", "t", ErrorCode::InvalidGroupId),
        ("missing", "t", ErrorCode::GroupIdNotFound),
        ("live", "missing", ErrorCode::None),
    ] {
        let response = client.call(0, delete(group, topic, &[0])).await;
        assert_code(response.error_code, expected, group);
        for told in response.topics.iter().flat_map(|topic| &topic.partitions) {
            assert_code(told.error_code, ErrorCode::UnknownTopicOrPartition, topic);
        }
    }
    // What a member reads cannot be told from its metadata, so all of the topics are taken for read.
    let response = client.call(0, delete("live", "t", &[0])).await;
    assert_code(response.topics[0].partitions[0].error_code, ErrorCode::GroupSubscribedToTopic, "live");
    client.call(5, leave_request(5, "live", &member)).await;
    node.stop().await;
}

#[tokio::test]
async fn a_restart_keeps_groups_members_and_offsets() {
    let (node, mut client, id) = node_with_groups(&[]).await;
    let (member, generation) = become_member(&mut client, "g").await;
    let mut commit = commit_request(10, "g", id, 0, 42);
    (commit.generation_id_or_member_epoch, commit.member_id) = (generation, text(&member));
    assert_code(committed(&client.call(10, commit).await), ErrorCode::None, "commit");
    let node = node.restart().await;
    let mut client = node.connect().await;
    find_coordinator(&mut client, "g").await;
    serving(&mut client).await;
    let response = client.call(10, fetch_request(10, "g", id, Some(&[0]))).await;
    assert_eq!(fetched(&response), (vec![(0, 42, "note".to_owned(), 0)], 0));
    let code = client.call(4, heartbeat_request("g", &member, generation)).await.error_code;
    assert_code(code, ErrorCode::None, "the member goes on");
    let synced = client.call(5, sync_request(5, "g", &member, generation)).await;
    assert_eq!((synced.error_code, synced.assignment), (0, Bytes::from_static(b"assignment")));
    node.stop().await;
}

#[tokio::test]
async fn offsets_of_a_transaction_count_when_it_is_committed() {
    let waived = [("transaction.partition.verification.enable", "false")];
    let (node, mut client, id) = node_with_groups(&waived).await;
    client.call(10, commit_request(10, "g", id, 0, 1)).await;
    let request = |version: i16, group: &str, offset: i64| {
        let partition = TxnOffsetCommitRequestPartition {
            committed_offset: offset,
            committed_metadata: Some(text("txn")),
            ..Default::default()
        };
        let topic = TxnOffsetCommitRequestTopic {
            name: if version >= 6 { text("") } else { text("t") },
            topic_id: if version >= 6 { id } else { Uuid::nil() },
            partitions: vec![partition],
            ..Default::default()
        };
        TxnOffsetCommitRequest {
            transactional_id: text("x"),
            group_id: text(group),
            producer_id: 7,
            producer_epoch: 0,
            topics: vec![topic],
            ..Default::default()
        }
    };
    let code = |response: &TxnOffsetCommitResponse| response.topics[0].partitions[0].error_code;
    let unstable = (0, -1, String::new(), ErrorCode::UnstableOffsetCommit.code());
    let mut known = (0, 1, "note".to_owned(), 0);
    for (version, commits) in [(0, true), (1, false), (2, true), (3, false), (4, true)] {
        let offset = 100 + i64::from(version);
        assert_code(
            code(&client.call(version, request(version, "g", offset)).await),
            ErrorCode::None,
            "commit",
        );
        let refused = client.call(version, request(version, "", offset)).await;
        assert_code(code(&refused), ErrorCode::InvalidGroupId, "no group id");
        for (stable, expected) in [(true, &unstable), (false, &known)] {
            let mut fetch = fetch_request(10, "g", id, Some(&[0]));
            fetch.require_stable = stable;
            assert_eq!(
                fetched(&client.call(10, fetch).await),
                (vec![expected.clone()], 0),
                "version {version}"
            );
        }
        assert_code(end_transaction(&mut client, "g", commits).await, ErrorCode::None, "marker");
        if commits {
            known = (0, offset, "txn".to_owned(), 0);
        }
        let mut fetch = fetch_request(10, "g", id, Some(&[0]));
        fetch.require_stable = true;
        assert_eq!(fetched(&client.call(10, fetch).await), (vec![known.clone()], 0), "version {version}");
    }
    // From version 5 on the transaction coordinator has to be asked, which there is none.
    for version in [5, 6] {
        let response = client.call(version, request(version, "g", 1)).await;
        assert_code(code(&response), ErrorCode::CoordinatorLoadInProgress, "no coordinator");
    }
    // A new coordinator reads the same from the log.
    let node = node.restart().await;
    let mut client = node.connect().await;
    find_coordinator(&mut client, "g").await;
    serving(&mut client).await;
    let response = client.call(10, fetch_request(10, "g", id, Some(&[0]))).await;
    assert_eq!(fetched(&response), (vec![known], 0));
    node.stop().await;
}

/// Writes the marker that ends the transaction of producer 7 in the partition of a group.
async fn end_transaction(client: &mut Client, group: &str, commits: bool) -> i16 {
    let topic = WritableTxnMarkerTopic {
        name: text("__consumer_offsets"),
        partition_indexes: vec![partition_of(group, 3).0],
        ..Default::default()
    };
    let marker = WritableTxnMarker {
        producer_id: 7,
        producer_epoch: 0,
        transaction_result: commits,
        topics: vec![topic],
        ..Default::default()
    };
    let response =
        client.call(1, WriteTxnMarkersRequest { markers: vec![marker], ..Default::default() }).await;
    response.markers[0].topics[0].partitions[0].error_code
}
