//! Tests of what is asked of a leader, in which order, and what its answers lead to.

use bytes::Bytes;

use super::core::{Call, FetcherConfig, LeaderFetcher};
use crate::broker::messages::{Fetched, LeaderAnswer, PartitionWants};
use crate::replica::{Bounds, BoundsQuery, EpochEnd, FetchFrom, Refusal, Wants};
use crate::types::{
    BrokerEpoch, ErrorCode, LeaderEpoch, NodeId, Offset, PartitionIndex, TopicIdPartition, TopicPartition,
    Uuid,
};
use crate::wire::messages::fetch_response::{
    EpochEndOffset, FetchResponse, FetchableTopicResponse, PartitionData,
};
use crate::wire::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use crate::wire::messages::{FetchRequest, ListOffsetsRequest, follower_fetch};

const TOPIC: Uuid = Uuid::from_u128(7);
const EPOCH: BrokerEpoch = BrokerEpoch(40);

fn id(partition: i32) -> TopicIdPartition {
    TopicIdPartition { topic_id: TOPIC, partition: PartitionIndex(partition) }
}

fn from(offset: i64, flushed: i64) -> FetchFrom {
    FetchFrom {
        offset: Offset(offset),
        last_fetched_epoch: Some(LeaderEpoch(2)),
        log_start: Offset::ZERO,
        current_leader_epoch: LeaderEpoch(3),
        flushed: Offset(flushed),
        high_watermark: Offset::ZERO,
        cuts: 1,
    }
}

fn news(partition: i32, wants: Option<Wants>, is_word: bool) -> PartitionWants {
    let name = TopicPartition::new("t", partition);
    PartitionWants { id: id(partition), name, wants, throttled: false, is_word }
}

fn fetcher(lanes: usize, partitions: i32) -> LeaderFetcher {
    let config = FetcherConfig {
        lanes,
        wait_max_ms: 500,
        min_bytes: 1,
        partition_max_bytes: 1000,
        response_max_bytes: 10_000,
    };
    let mut fetcher = LeaderFetcher::new(NodeId(2), config);
    let all = (0..partitions).map(|partition| news(partition, Some(Wants::Fetch(from(0, 0))), false));
    fetcher.on_wants(all.collect());
    fetcher
}

fn next_fetch(fetcher: &mut LeaderFetcher) -> (usize, FetchRequest) {
    match fetcher.next_call(EPOCH, false) {
        Some(Call::Fetch { lane, request }) => (lane, request),
        other => panic!("{other:?}"),
    }
}

fn next_bounds(call: Option<Call>) -> ListOffsetsRequest {
    match call {
        Some(Call::Bounds(request)) => request,
        other => panic!("{other:?}"),
    }
}

fn named(request: &FetchRequest) -> Vec<(i32, i64)> {
    let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|partition| (partition.partition, partition.fetch_offset)).collect()
}

fn response(session_id: i32, partitions: Vec<PartitionData>) -> FetchResponse {
    let topic = FetchableTopicResponse { topic_id: TOPIC, partitions, ..Default::default() };
    FetchResponse { session_id, responses: vec![topic], ..Default::default() }
}

fn data(partition: i32, high_watermark: i64, records: &'static [u8]) -> PartitionData {
    PartitionData {
        partition_index: partition,
        high_watermark,
        log_start_offset: 0,
        records: Some(Bytes::from_static(records).into()),
        ..Default::default()
    }
}

#[test]
fn a_request_says_who_asks_and_what_is_flushed() {
    let mut fetcher = fetcher(1, 1);
    fetcher.on_wants(vec![news(0, Some(Wants::Fetch(from(9, 4))), false)]);
    let (_, request) = next_fetch(&mut fetcher);
    let state = &request.replica_state;
    assert_eq!((state.replica_id.0, state.replica_epoch), (2, 40));
    assert_eq!((request.session_id, request.session_epoch), (0, 0));
    assert_eq!((request.max_wait_ms, request.min_bytes, request.max_bytes), (500, 1, 10_000));
    let partition = &request.topics[0].partitions[0];
    assert_eq!((partition.fetch_offset, partition.last_fetched_epoch), (9, 2));
    assert_eq!((partition.current_leader_epoch, partition.partition_max_bytes), (3, 1000));
    assert_eq!(follower_fetch::told_flushed(partition), Some(Offset(4)));
}

#[test]
fn a_lane_asks_again_when_the_shards_have_dealt_with_its_answer() {
    let mut fetcher = fetcher(1, 3);
    next_fetch(&mut fetcher);
    let fetched =
        fetcher.on_fetch_answer(0, response(5, vec![data(0, 0, b"x"), data(1, 0, b"y"), data(2, 0, b"")]));
    assert_eq!(fetched.iter().map(|fetched| fetched.id).collect::<Vec<_>>(), [id(0), id(1)]);
    assert!(fetcher.next_call(EPOCH, false).is_none());
    // News that came before the answer was dealt with is no word of it.
    fetcher.on_wants(vec![news(0, Some(Wants::Fetch(from(0, 0))), false)]);
    fetcher.on_wants(vec![news(0, Some(Wants::Fetch(from(4, 0))), true)]);
    assert!(fetcher.next_call(EPOCH, false).is_none());
    // A partition that leaves owes nothing.
    fetcher.on_wants(vec![news(1, None, false)]);
    let (_, request) = next_fetch(&mut fetcher);
    assert_eq!((request.session_id, request.session_epoch, named(&request)), (5, 1, vec![(0, 4)]));
    assert_eq!(request.forgotten_topics_data[0].partitions, [1]);
    assert_eq!(fetcher.partitions(), 2);
}

#[test]
fn an_answer_without_news_concerns_no_shard() {
    // The leader waits for the disk, and not all of the log is there.
    let waits = |offset| {
        let mut fetcher = fetcher(1, 1);
        fetcher.on_wants(vec![news(0, Some(Wants::Fetch(from(offset, 5))), false)]);
        next_fetch(&mut fetcher);
        let answer = PartitionData { counts_flushed: true, ..data(0, 0, b"") };
        !fetcher.on_fetch_answer(0, response(5, vec![answer])).is_empty()
    };
    assert!(waits(6) && !waits(5));
    let mut fetcher = fetcher(1, 1);
    fetcher.on_wants(vec![news(
        0,
        Some(Wants::Fetch(FetchFrom { high_watermark: Offset(3), ..from(5, 5) })),
        false,
    )]);
    for (high_watermark, told) in [(3, false), (9, true), (4, true)] {
        next_fetch(&mut fetcher);
        let fetched = fetcher.on_fetch_answer(0, response(5, vec![data(0, high_watermark, b"")]));
        assert_eq!(!fetched.is_empty(), told, "{high_watermark}");
        fetcher.on_wants(vec![news(
            0,
            Some(Wants::Fetch(FetchFrom { high_watermark: Offset(3), ..from(5, 5) })),
            true,
        )]);
    }
    // It never had the partition 8, and the session says nothing of partition 0: nothing is new.
    next_fetch(&mut fetcher);
    assert!(fetcher.on_fetch_answer(0, response(5, vec![data(8, 9, b"x")])).is_empty());
}

#[test]
fn a_broker_that_has_registered_anew_says_so_of_each_partition() {
    let mut fetcher = fetcher(1, 2);
    next_fetch(&mut fetcher);
    fetcher.on_fetch_answer(0, response(5, Vec::new()));
    assert!(named(&next_fetch(&mut fetcher).1).is_empty());
    fetcher.on_fetch_answer(0, response(5, Vec::new()));
    let Some(Call::Fetch { request, .. }) = fetcher.next_call(BrokerEpoch(EPOCH.0 + 1), false) else {
        panic!("no fetch")
    };
    assert_eq!(named(&request), [(0, 0), (1, 0)]);
    assert_eq!(request.replica_state.replica_epoch, EPOCH.0 + 1);
}

#[test]
fn what_is_flushed_goes_ahead_of_a_fetch_that_waits() {
    let mut fetcher = fetcher(1, 2);
    next_fetch(&mut fetcher);
    fetcher.on_wants(vec![news(0, Some(Wants::Fetch(from(0, 0))), false)]);
    assert!(fetcher.next_call(EPOCH, false).is_none());
    let fetched = fetcher.on_fetch_answer(0, response(5, vec![data(0, 0, b"x")]));
    assert_eq!(fetched.len(), 1);
    fetcher.on_wants(vec![news(0, Some(Wants::Fetch(from(7, 0))), true)]);
    next_fetch(&mut fetcher);
    fetcher.on_wants(vec![news(0, Some(Wants::Fetch(from(7, 7))), false)]);
    let Some(Call::Report(report)) = fetcher.next_call(EPOCH, false) else { panic!("no report") };
    assert_eq!((report.session_epoch, report.max_wait_ms, report.max_bytes), (-1, 0, 0));
    assert_eq!(named(&report), [(0, 7)]);
    assert_eq!(follower_fetch::told_flushed(&report.topics[0].partitions[0]), Some(Offset(7)));
    assert!(fetcher.next_call(EPOCH, false).is_none());
    fetcher.on_report_answer();
}

#[test]
fn refusals_and_divergence_are_told_in_a_followers_words() {
    let mut fetcher = fetcher(1, 4);
    next_fetch(&mut fetcher);
    let refused =
        |partition, code: ErrorCode| PartitionData { error_code: code.code(), ..data(partition, -1, b"") };
    let diverging = PartitionData {
        diverging_epoch: EpochEndOffset { epoch: 1, end_offset: 6, ..Default::default() },
        ..data(3, 9, b"")
    };
    let partitions = vec![
        refused(0, ErrorCode::FencedLeaderEpoch),
        refused(1, ErrorCode::OffsetOutOfRange),
        refused(2, ErrorCode::TopicAuthorizationFailed),
        diverging,
    ];
    let told: Vec<String> = fetcher
        .on_fetch_answer(0, response(0, partitions))
        .into_iter()
        .map(|Fetched { answer, .. }| match answer {
            LeaderAnswer::Refused { refusal, .. } => format!("{refusal:?}"),
            LeaderAnswer::Diverges { theirs, .. } => format!("{theirs:?}"),
            other => panic!("{other:?}"),
        })
        .collect();
    let theirs = EpochEnd { epoch: LeaderEpoch(1), end: Offset(6) };
    assert_eq!(told, ["FencedLeaderEpoch", "OffsetOutOfRange", "Other", &format!("{theirs:?}")]);
}

/// Who leads took no note of what a refused question said, and of a session that says nothing it hears nothing.
#[test]
fn what_was_refused_is_asked_by_name_again() {
    let mut fetcher = fetcher(1, 2);
    next_fetch(&mut fetcher);
    let refused = PartitionData { error_code: ErrorCode::NotLeaderOrFollower.code(), ..data(1, -1, b"") };
    fetcher.on_fetch_answer(0, response(5, vec![data(0, 0, b""), refused]));
    fetcher.on_wants(vec![news(1, Some(Wants::Fetch(from(0, 0))), true)]);
    assert_eq!(named(&next_fetch(&mut fetcher).1), [(1, 0)]);
    fetcher.on_fetch_answer(0, response(5, vec![data(1, 0, b"")]));
    assert_eq!(named(&next_fetch(&mut fetcher).1), []);
}

#[test]
fn a_session_that_is_lost_begins_anew_and_so_does_one_after_a_break() {
    let mut fetcher = fetcher(1, 1);
    next_fetch(&mut fetcher);
    fetcher.on_fetch_answer(0, response(5, vec![data(0, 0, b"")]));
    let (_, request) = next_fetch(&mut fetcher);
    assert_eq!((request.session_id, request.session_epoch, named(&request)), (5, 1, vec![]));
    let lost = FetchResponse { error_code: ErrorCode::FetchSessionIdNotFound.code(), ..Default::default() };
    assert!(fetcher.on_fetch_answer(0, lost).is_empty());
    let (_, request) = next_fetch(&mut fetcher);
    assert_eq!((request.session_epoch, named(&request)), (0, vec![(0, 0)]));
    fetcher.on_disconnect();
    let (_, request) = next_fetch(&mut fetcher);
    assert_eq!((request.session_epoch, named(&request)), (0, vec![(0, 0)]));
}

#[test]
fn the_ends_of_a_log_are_two_questions_and_survive_a_break() {
    let mut fetcher = fetcher(1, 1);
    let query = BoundsQuery { current_leader_epoch: LeaderEpoch(3), cuts: 1 };
    fetcher.on_wants(vec![news(0, Some(Wants::Bounds(query)), false)]);
    let first = next_bounds(fetcher.next_call(EPOCH, false));
    assert_eq!((first.replica_id, first.topics[0].partitions[0].timestamp), (2, -2));
    fetcher.on_disconnect();
    next_bounds(fetcher.next_call(EPOCH, false));
    let answer = |offset, error: ErrorCode| ListOffsetsResponse {
        topics: vec![ListOffsetsTopicResponse {
            name: "t".into(),
            partitions: vec![ListOffsetsPartitionResponse {
                partition_index: 0,
                offset,
                error_code: error.code(),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    assert!(fetcher.on_bounds_answer(&answer(4, ErrorCode::None)).is_empty());
    let second = fetcher.next_bounds().expect("the second question");
    assert_eq!(second.topics[0].partitions[0].timestamp, -1);
    let told = fetcher.on_bounds_answer(&answer(9, ErrorCode::None));
    let LeaderAnswer::Bounds { asked, bounds } = &told[0].answer else { panic!("{told:?}") };
    assert_eq!((*asked, *bounds), (query, Ok(Bounds { log_start: Offset(4), log_end: Offset(9) })));
    assert!(fetcher.next_call(EPOCH, false).is_none() && fetcher.next_bounds().is_none());
    // An error of one of them is the answer.
    fetcher.on_wants(vec![news(0, Some(Wants::Bounds(query)), true)]);
    next_bounds(fetcher.next_call(EPOCH, false));
    fetcher.on_bounds_answer(&answer(-1, ErrorCode::NotLeaderOrFollower));
    let told = fetcher.on_bounds_answer(&answer(9, ErrorCode::None));
    let LeaderAnswer::Bounds { bounds, .. } = &told[0].answer else { panic!("{told:?}") };
    assert_eq!(*bounds, Err(Refusal::NotLeader));
}

#[test]
fn lanes_share_the_partitions_and_nobody_left_is_idle() {
    let mut fetcher = fetcher(2, 4);
    let (first, second) = (next_fetch(&mut fetcher), next_fetch(&mut fetcher));
    assert_eq!((first.0, named(&first.1)), (0, vec![(0, 0), (2, 0)]));
    assert_eq!((second.0, named(&second.1)), (1, vec![(1, 0), (3, 0)]));
    fetcher.on_wants((0..4).map(|partition| news(partition, None, false)).collect());
    assert!(fetcher.is_idle());
    assert!(fetcher.on_fetch_answer(0, response(5, vec![data(0, 0, b"x")])).len() <= 1);
    assert!(fetcher.next_call(EPOCH, false).is_none());
}

/// Its session with the leader still has the partition where it was before.
#[test]
fn a_partition_that_came_back_into_another_lane_is_only_heard_there() {
    let mut fetcher = fetcher(2, 2);
    next_fetch(&mut fetcher);
    next_fetch(&mut fetcher);
    fetcher.on_wants(vec![news(0, None, false), news(2, Some(Wants::Fetch(from(0, 0))), false)]);
    fetcher.on_wants(vec![news(1, None, false), news(0, Some(Wants::Fetch(from(0, 0))), false)]);
    // Lane 0 has partition 2 now, and lane 1 partition 0.
    assert!(fetcher.on_fetch_answer(0, response(5, vec![data(0, 0, b"x")])).is_empty());
    fetcher.on_fetch_answer(1, response(6, vec![data(1, 0, b"y")]));
    let (first, second) = (next_fetch(&mut fetcher), next_fetch(&mut fetcher));
    assert_eq!((first.0, named(&first.1)), (0, vec![(2, 0)]));
    assert_eq!((second.0, named(&second.1)), (1, vec![(0, 0)]));
    let told = fetcher.on_fetch_answer(1, response(6, vec![data(0, 0, b"x")]));
    assert_eq!(told.len(), 1);
    assert!(fetcher.on_fetch_answer(0, response(5, vec![data(0, 0, b"x")])).is_empty());
    assert_eq!(next_fetch(&mut fetcher).0, 0);
    assert!(fetcher.next_call(EPOCH, false).is_none(), "lane 1 waits for word");
    fetcher.on_wants(vec![news(0, Some(Wants::Fetch(from(1, 0))), true)]);
    assert_eq!(next_fetch(&mut fetcher).0, 1);
}

#[test]
fn other_settings_keep_the_partitions_and_what_their_shards_owe() {
    let mut fetcher = fetcher(1, 2);
    next_fetch(&mut fetcher);
    fetcher.on_fetch_answer(0, response(5, vec![data(1, 0, b"x")]));
    fetcher.configure(FetcherConfig { lanes: 2, ..fetcher.config() });
    assert_eq!(named(&next_fetch(&mut fetcher).1), [(0, 0)]);
    assert!(fetcher.next_call(EPOCH, false).is_none());
    fetcher.on_wants(vec![news(1, Some(Wants::Fetch(from(3, 0))), true)]);
    assert_eq!(named(&next_fetch(&mut fetcher).1), [(1, 3)]);
}
