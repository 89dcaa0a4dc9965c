//! Golden bytes of our own messages, which Kafka has no classes for: nodes of two versions must understand each other, so
//! they change only with a new version. `UPDATE_EXPECT=1` writes those of messages that are new.

use std::fs;
use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use floodmark::types::Uuid;
use floodmark::wire::api::ApiRow;
use floodmark::wire::messages::raft::{Founder, Leader, RaftEntry, Sender};
use floodmark::wire::messages::replica_ends::{ReplicaEnd, ReplicaEndsTopic};
use floodmark::wire::messages::*;
use kafka_protocol::protocol::{Encodable, Request};

use super::files::{directory, hex_file};

fn sender() -> Sender {
    Sender {
        cluster_id: StrBytes::from_static_str("cluster"),
        node_id: 1,
        directory_id: Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
        to: 2,
        to_directory: Uuid::from_u128(0x1112_1314_1516_1718_191a_1b1c_1d1e_1f20),
        ..Sender::default()
    }
}

fn leader() -> Leader {
    Leader { node_id: 3, host: StrBytes::from_static_str("host"), port: 9093, ..Leader::default() }
}

fn text(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.chunks(32).map(|line| line.join(" ") + "\n").collect()
}

fn check<R: Request>(kind: &str, variant: &str, message: &impl Encodable) {
    let row = ApiRow::of(R::KEY).unwrap();
    assert!(!row.is_told());
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes, 0).unwrap();
    let path: PathBuf = directory().join(hex_file(row, 0, kind, variant));
    if std::env::var_os("UPDATE_EXPECT").is_some() && !path.exists() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text(&bytes)).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text(&bytes), committed, "{}", path.display());
}

fn check_both<R: Request<Response: Default> + Default>(request: &R, response: &R::Response) {
    check::<R>("request", "", request);
    check::<R>("request", ".nulls", &R::default());
    check::<R>("response", "", response);
    check::<R>("response", ".nulls", &R::Response::default());
}

fn bytes(of: &'static [u8]) -> Bytes {
    Bytes::from_static(of)
}

#[test]
fn votes_and_entries_are_encoded_as_before() {
    check_both(
        &RaftVoteRequest {
            sender: sender(),
            probe: true,
            vote: bytes(b"vote"),
            last_log_id: bytes(b"log id"),
            ..Default::default()
        },
        &RaftVoteResponse {
            refusal: 1,
            granted: true,
            vote: bytes(b"vote"),
            last_log_id: bytes(b"log id"),
            ..Default::default()
        },
    );
    let entry = RaftEntry { index: 7, entry: bytes(b"entry"), ..Default::default() };
    check_both(
        &RaftAppendRequest {
            sender: sender(),
            vote: bytes(b"vote"),
            previous: bytes(b"previous"),
            committed: bytes(b"committed"),
            entries: vec![entry.clone(), entry],
            ..Default::default()
        },
        &RaftAppendResponse {
            refusal: 2,
            outcome: 1,
            log_id: bytes(b"log id"),
            vote: bytes(b"vote"),
            ..Default::default()
        },
    );
    check_both(
        &RaftSnapshotRequest {
            sender: sender(),
            vote: bytes(b"vote"),
            snapshot_id: StrBytes::from_static_str("snapshot"),
            last_log_id: bytes(b"log id"),
            membership: bytes(b"membership"),
            size: 1_000_000,
            offset: 500_000,
            chunk: bytes(b"chunk"),
            ..Default::default()
        },
        &RaftSnapshotResponse {
            refusal: 3,
            next_offset: 500_005,
            installed: true,
            vote: bytes(b"vote"),
            ..Default::default()
        },
    );
}

#[test]
fn polls_and_proposals_are_encoded_as_before() {
    check_both(
        &ObserverPollRequest {
            sender: sender(),
            answered: 9,
            answer: bytes(b"answer"),
            max_wait_ms: 1_000,
            ends: true,
            ..Default::default()
        },
        &ObserverPollResponse {
            refusal: 4,
            leads: true,
            leader: leader(),
            message_id: 10,
            kind: 1,
            message: bytes(b"message"),
            ..Default::default()
        },
    );
    check_both(
        &ProposeRequest {
            sender: sender(),
            base: 11,
            tag: 12,
            records: bytes(b"records"),
            ..Default::default()
        },
        &ProposeResponse { refusal: 5, leader: leader(), outcome: 2, version: 13, ..Default::default() },
    );
    check_both(
        &ConfirmRequest { sender: sender(), ..Default::default() },
        &ConfirmResponse { refusal: 6, leader: leader(), outcome: 3, version: 14, ..Default::default() },
    );
    let topic =
        ReplicaEndsTopic { topic_id: Uuid::from_u128(18), partitions: vec![19, 20], ..Default::default() };
    let end = ReplicaEnd {
        topic_id: Uuid::from_u128(21),
        partition: 22,
        leader_epoch: 23,
        log_end: 24,
        ..Default::default()
    };
    check_both(
        &ReplicaEndsRequest { topics: vec![topic], ..Default::default() },
        &ReplicaEndsResponse { replicas: vec![end], ..Default::default() },
    );
    check_both(
        &ReadinessRequest::default(),
        &ReadinessResponse {
            node_id: 25,
            cluster_id: StrBytes::from_static_str("cluster"),
            leader: 26,
            not_ready: Some(StrBytes::from_static_str("reason")),
            ..Default::default()
        },
    );
    let founder = Founder { node_id: 15, directory_id: Uuid::from_u128(16), ..Default::default() };
    check_both(
        &RaftFoundingRequest { sender: sender(), ..Default::default() },
        &RaftFoundingResponse {
            refusal: 7,
            state: 2,
            directory_id: Uuid::from_u128(17),
            founders: vec![founder],
            ..Default::default()
        },
    );
}
