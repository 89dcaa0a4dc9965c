//! The types with which openraft is instantiated: what an entry of the metadata log carries, who is a member of the
//! quorum, and what applying an entry answers.
//!
//! Knows nothing of files or of what the records mean. Invariant: a batch holds records in Kafka's framing, each behind
//! its length, so that log, snapshots and peers pass it on without decoding it.

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::controller::snapshot::SnapshotFile;
use crate::fault::{self, Fault};
use crate::types::{DirectoryId, NodeId};

openraft::declare_raft_types!(
    /// The metadata quorum's instance of openraft.
    pub Quorum:
        D = Batch,
        R = Applied,
        NodeId = u64,
        Node = Member,
        Entry = openraft::Entry<Quorum>,
        SnapshotData = SnapshotFile,
);

pub type RaftNodeId = u64;
pub type Raft = openraft::Raft<Quorum>;
pub type Entry = openraft::Entry<Quorum>;
pub type LogId = openraft::LogId<RaftNodeId>;
pub type Vote = openraft::Vote<RaftNodeId>;
pub type Membership = openraft::Membership<RaftNodeId, Member>;
pub type StoredMembership = openraft::StoredMembership<RaftNodeId, Member>;
pub type SnapshotMeta = openraft::SnapshotMeta<RaftNodeId, Member>;
pub type StorageError = openraft::StorageError<RaftNodeId>;

/// openraft's number of a node. Node ids are checked to be non-negative where the configuration is read.
pub fn raft_id(node: NodeId) -> RaftNodeId {
    assert!(node.0 >= 0, "node id {node} is negative");
    node.0.unsigned_abs().into()
}

/// The node behind openraft's number.
pub fn node_id(id: RaftNodeId) -> NodeId {
    NodeId(i32::try_from(id).expect("the quorum's numbers come from node ids"))
}

/// The base of a batch that takes effect nowhere: no image has this version.
const NEVER: u64 = u64::MAX;

/// The records of one entry, and what they were decided on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The version of the image that the decisions saw. On any other version the entry changes nothing.
    pub base: u64,
    /// Drawn at random for each batch that is offered, so that whoever offered it finds it again; 0 in logs that have none.
    pub tag: u64,
    /// The only term in which it may be written, by the node that offers it, if what the active controller of that term knows
    /// went into it: the next one may have heard otherwise. Neither the log nor any message has this, for it is settled when
    /// the batch is written.
    #[serde(skip)]
    pub term: Option<u64>,
    /// Records in Kafka's framing, each behind its length (u32, big-endian).
    #[serde(serialize_with = "bytes_out", deserialize_with = "bytes_in")]
    pub records: Bytes,
}

impl Batch {
    /// It is written in the log of this term. One that was for another term stays without effect, whoever reads it.
    pub fn settle(&mut self, term: u64) {
        let is_over = self.term.take().is_some_and(|of| of != term);
        if is_over && !fault::is_active(Fault::TakesPastTerms) {
            self.base = NEVER;
        }
    }

    /// The records, one slice each; an error when a length does not fit.
    pub fn split(&self) -> Result<Vec<Bytes>, BatchError> {
        split_records(self.records.clone())
    }
}

/// The lengths in a batch contradict its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record's length does not fit the batch")]
pub struct BatchError;

/// Appends one framed record to a batch.
pub fn put_record(into: &mut BytesMut, record: &[u8]) {
    into.put_u32(u32::try_from(record.len()).expect("a metadata record is far below 4 GiB"));
    into.put_slice(record);
}

/// The records of a batch.
pub fn split_records(mut bytes: Bytes) -> Result<Vec<Bytes>, BatchError> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let Some(len) = bytes.first_chunk::<4>().map(|len| u32::from_be_bytes(*len) as usize) else {
            return Err(BatchError);
        };
        if bytes.len() - 4 < len {
            return Err(BatchError);
        }
        let mut record = bytes.split_to(4 + len);
        records.push(record.split_off(4));
    }
    Ok(records)
}

/// What applying an entry did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Applied {
    /// The records are in the image, which has this version now.
    Records { version: u64 },
    /// The batch was decided on another version than this one, or for a term that is over, and changed nothing.
    Stale { version: u64 },
    /// The entry carries no records: a leader's first entry, or a change of membership.
    Nothing,
}

/// A voter or learner of the quorum, as its peers know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The metadata directory of this incarnation (KIP-853), so that a node that lost its disk is not taken for itself.
    #[serde(serialize_with = "uuid_out", deserialize_with = "uuid_in")]
    pub directory_id: DirectoryId,
    /// Where its controller listeners are reached.
    pub endpoints: Vec<Endpoint>,
}

/// One address of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    pub listener: String,
    pub host: String,
    pub port: u16,
}

fn bytes_out<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(bytes)
}

fn bytes_in<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    Vec::<u8>::deserialize(from).map(Bytes::from)
}

fn uuid_out<S: Serializer>(id: &DirectoryId, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(id.as_bytes())
}

fn uuid_in<'de, D: Deserializer<'de>>(from: D) -> Result<DirectoryId, D::Error> {
    <[u8; 16]>::deserialize(from).map(DirectoryId::from_bytes)
}
