//! Raft's messages survive their way through bytes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::{Decodable, Encodable};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};
use openraft::{CommittedLeaderId, EntryPayload};

use crate::controller::raft_types::{
    Batch, Endpoint, Entry, LogId, Member, Membership, SnapshotMeta, StoredMembership, Vote,
};
use crate::controller::rpc::{self, Identity};
use crate::types::{DirectoryId, NodeId};
use crate::wire::frame::decode;

fn me() -> Identity {
    Identity { cluster_id: "c".to_owned(), node: NodeId(1), directory: DirectoryId::from_u128(7) }
}

fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(term, 2), index)
}

fn over_the_wire<T: Encodable + Decodable>(message: &T) -> T {
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes, 0).unwrap();
    decode(bytes.freeze(), 0).unwrap()
}

#[test]
fn votes() {
    for last_log_id in [None, Some(log_id(3, 4))] {
        let request = VoteRequest { vote: Vote::new(5, 2), last_log_id };
        let sent = over_the_wire(&rpc::vote_request(me().sender(Some(NodeId(3))), true, &request));
        assert_eq!(rpc::read_vote_request(&sent).unwrap(), request);
        assert!(sent.probe);
        assert_eq!((sent.sender.node_id, sent.sender.to), (1, 3));
        let response = VoteResponse { vote: Vote::new_committed(5, 2), vote_granted: true, last_log_id };
        let sent = over_the_wire(&rpc::vote_response(&response));
        assert_eq!(rpc::read_vote_response(&sent).unwrap(), response);
    }
}

#[test]
fn entries_and_answers() {
    let member = Member {
        directory_id: DirectoryId::from_u128(9),
        endpoints: vec![Endpoint { listener: "C".into(), host: "h".into(), port: 1 }],
    };
    let membership = Membership::new(vec![BTreeSet::from([1])], BTreeMap::from([(1, member)]));
    let payloads = [
        EntryPayload::Blank,
        EntryPayload::Normal(Batch { base: 3, tag: 8, term: None, records: Bytes::from_static(b"records") }),
        EntryPayload::Membership(membership.clone()),
    ];
    let entries = (5..).zip(payloads).map(|(index, payload)| Entry { log_id: log_id(2, index), payload });
    let request = AppendEntriesRequest {
        vote: Vote::new_committed(2, 2),
        prev_log_id: Some(log_id(1, 4)),
        entries: entries.collect(),
        leader_commit: None,
    };
    let sent = rpc::read_append_request(&over_the_wire(&rpc::append_request(me().sender(None), &request)));
    assert_eq!(format!("{:?}", sent.unwrap()), format!("{request:?}"));
    for response in [
        AppendEntriesResponse::Success,
        AppendEntriesResponse::PartialSuccess(None),
        AppendEntriesResponse::PartialSuccess(Some(log_id(1, 2))),
        AppendEntriesResponse::Conflict,
        AppendEntriesResponse::HigherVote(Vote::new(8, 1)),
    ] {
        let sent = over_the_wire(&rpc::append_response(&response));
        assert_eq!(rpc::read_append_response(&sent).unwrap(), response);
    }
    let meta = SnapshotMeta {
        last_log_id: Some(log_id(1, 9)),
        last_membership: StoredMembership::new(Some(log_id(1, 1)), membership),
        snapshot_id: "9-1".to_owned(),
    };
    let sent = over_the_wire(&rpc::snapshot_request(me().sender(None), Vote::new(1, 1), &meta, 77));
    assert_eq!(rpc::read_snapshot_meta(&sent).unwrap(), meta);
    assert_eq!((sent.size, sent.offset, sent.chunk.len()), (77, 0, 0));
}

#[test]
fn an_id_that_no_node_has_is_an_error() {
    let request = VoteRequest { vote: Vote::new(5, u64::MAX), last_log_id: None };
    let sent = rpc::vote_request(me().sender(None), false, &request);
    assert!(rpc::read_vote_request(&sent).is_err());
}
