//! The byte form of the quorum's own things (votes, log ids, memberships, entries) and the checked frame in which files
//! hold them. Big-endian, as Kafka's formats are.
//!
//! Knows no files. Invariant: `decode(encode(x)) == x`, and no input makes a decoder panic or allocate more than the
//! input's own length warrants.

use bytes::{Buf, BufMut, Bytes, BytesMut, TryGetError};
use openraft::{CommittedLeaderId, EntryPayload, LeaderId};
use std::collections::{BTreeMap, BTreeSet};

use crate::controller::raft_types::{
    Batch, Endpoint, Entry, LogId, Member, Membership, RaftNodeId, StoredMembership, Vote,
};
use crate::types::DirectoryId;

/// Bytes that are not what an encoder of this file writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("it ends too early")]
    TooShort,
    #[error("{0} bytes follow its end")]
    TooLong(usize),
    #[error("unknown kind {0}")]
    UnknownKind(u8),
    #[error("a name is not UTF-8")]
    NotUtf8,
    #[error("{0} is no node id")]
    NotANode(u64),
}

impl From<TryGetError> for DecodeError {
    fn from(_: TryGetError) -> Self {
        DecodeError::TooShort
    }
}

const KIND_BLANK: u8 = 0;
const KIND_RECORDS: u8 = 1;
const KIND_MEMBERSHIP: u8 = 2;
const KIND_TAGGED_RECORDS: u8 = 3;

/// The bytes of an entry without its index, which the frame carries.
pub fn put_entry(into: &mut BytesMut, entry: &Entry) {
    into.put_u64(entry.log_id.leader_id.term);
    into.put_u64(entry.log_id.leader_id.node_id);
    match &entry.payload {
        EntryPayload::Blank => into.put_u8(KIND_BLANK),
        EntryPayload::Normal(batch) => {
            into.put_u8(if batch.tag == 0 { KIND_RECORDS } else { KIND_TAGGED_RECORDS });
            into.put_u64(batch.base);
            if batch.tag != 0 {
                into.put_u64(batch.tag);
            }
            into.put_slice(&batch.records);
        }
        EntryPayload::Membership(membership) => {
            into.put_u8(KIND_MEMBERSHIP);
            put_membership(into, membership);
        }
    }
}

/// The entry at `index` whose bytes these are.
pub fn get_entry(index: u64, mut from: Bytes) -> Result<Entry, DecodeError> {
    let leader_id = get_leader_id(&mut from)?;
    let payload = match from.try_get_u8()? {
        KIND_BLANK => finish(EntryPayload::Blank, &from)?,
        KIND_RECORDS => {
            EntryPayload::Normal(Batch { base: from.try_get_u64()?, tag: 0, term: None, records: from })
        }
        KIND_TAGGED_RECORDS => {
            let (base, tag) = (from.try_get_u64()?, from.try_get_u64()?);
            EntryPayload::Normal(Batch { base, tag, term: None, records: from })
        }
        KIND_MEMBERSHIP => {
            let membership = get_membership(&mut from)?;
            finish(EntryPayload::Membership(membership), &from)?
        }
        kind => return Err(DecodeError::UnknownKind(kind)),
    };
    Ok(Entry { log_id: LogId::new(leader_id, index), payload })
}

/// `value`, unless bytes are left over.
pub fn finish<T>(value: T, rest: &Bytes) -> Result<T, DecodeError> {
    if rest.is_empty() { Ok(value) } else { Err(DecodeError::TooLong(rest.len())) }
}

pub fn put_optional_log_id(into: &mut BytesMut, id: Option<LogId>) {
    into.put_u8(u8::from(id.is_some()));
    let id = id.unwrap_or_default();
    into.put_u64(id.leader_id.term);
    into.put_u64(id.leader_id.node_id);
    into.put_u64(id.index);
}

pub fn get_optional_log_id(from: &mut Bytes) -> Result<Option<LogId>, DecodeError> {
    let present = from.try_get_u8()? != 0;
    let id = LogId::new(get_leader_id(from)?, from.try_get_u64()?);
    Ok(present.then_some(id))
}

pub fn put_optional_vote(into: &mut BytesMut, vote: Option<Vote>) {
    into.put_u8(u8::from(vote.is_some()));
    let vote = vote.unwrap_or_default();
    into.put_u64(vote.leader_id.term);
    into.put_u64(vote.leader_id.node_id);
    into.put_u8(u8::from(vote.committed));
}

pub fn get_optional_vote(from: &mut Bytes) -> Result<Option<Vote>, DecodeError> {
    let present = from.try_get_u8()? != 0;
    let leader_id = LeaderId::new(from.try_get_u64()?, get_node(from)?);
    let committed = from.try_get_u8()? != 0;
    Ok(present.then_some(Vote { leader_id, committed }))
}

pub fn put_stored_membership(into: &mut BytesMut, stored: &StoredMembership) {
    put_optional_log_id(into, *stored.log_id());
    put_membership(into, stored.membership());
}

pub fn get_stored_membership(from: &mut Bytes) -> Result<StoredMembership, DecodeError> {
    Ok(StoredMembership::new(get_optional_log_id(from)?, get_membership(from)?))
}

fn get_leader_id(from: &mut Bytes) -> Result<CommittedLeaderId<RaftNodeId>, DecodeError> {
    Ok(CommittedLeaderId::new(from.try_get_u64()?, get_node(from)?))
}

fn get_node(from: &mut Bytes) -> Result<RaftNodeId, DecodeError> {
    let id = from.try_get_u64()?;
    if i32::try_from(id).is_err() {
        return Err(DecodeError::NotANode(id));
    }
    Ok(id)
}

fn put_membership(into: &mut BytesMut, membership: &Membership) {
    let configs = membership.get_joint_config();
    put_count(into, configs.len());
    for voters in configs {
        put_count(into, voters.len());
        voters.iter().for_each(|id| into.put_u64(*id));
    }
    put_count(into, membership.nodes().count());
    for (id, member) in membership.nodes() {
        into.put_u64(*id);
        into.put_slice(member.directory_id.as_bytes());
        put_count(into, member.endpoints.len());
        for endpoint in &member.endpoints {
            put_text(into, &endpoint.listener);
            put_text(into, &endpoint.host);
            into.put_u16(endpoint.port);
        }
    }
}

fn get_membership(from: &mut Bytes) -> Result<Membership, DecodeError> {
    let mut configs = Vec::new();
    for _ in 0..from.try_get_u16()? {
        let mut voters = BTreeSet::new();
        for _ in 0..from.try_get_u16()? {
            voters.insert(get_node(from)?);
        }
        configs.push(voters);
    }
    let mut nodes = BTreeMap::new();
    for _ in 0..from.try_get_u16()? {
        let id = get_node(from)?;
        let directory_id = DirectoryId::from_u128(from.try_get_u128()?);
        let mut endpoints = Vec::new();
        for _ in 0..from.try_get_u16()? {
            let (listener, host) = (get_text(from)?, get_text(from)?);
            endpoints.push(Endpoint { listener, host, port: from.try_get_u16()? });
        }
        nodes.insert(id, Member { directory_id, endpoints });
    }
    Ok(Membership::new(configs, nodes))
}

fn put_count(into: &mut BytesMut, count: usize) {
    into.put_u16(u16::try_from(count).expect("a quorum has far fewer than 65536 members"));
}

fn put_text(into: &mut BytesMut, text: &str) {
    put_count(into, text.len());
    into.put_slice(text.as_bytes());
}

fn get_text(from: &mut Bytes) -> Result<String, DecodeError> {
    let len = from.try_get_u16()?.into();
    if from.len() < len {
        return Err(DecodeError::TooShort);
    }
    String::from_utf8(from.split_to(len).into()).map_err(|_| DecodeError::NotUtf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(directory: u128, hosts: &[&str]) -> Member {
        let endpoints = hosts
            .iter()
            .map(|host| Endpoint { listener: "CONTROLLER".into(), host: (*host).into(), port: 9093 })
            .collect();
        Member { directory_id: DirectoryId::from_u128(directory), endpoints }
    }

    fn entries() -> Vec<Entry> {
        let id = |index| LogId::new(CommittedLeaderId::new(7, 3), index);
        let nodes =
            BTreeMap::from([(1, member(9, &["a", "b"])), (2, member(0, &[])), (3, Member::default())]);
        let joint = vec![BTreeSet::from([1, 2]), BTreeSet::from([2])];
        vec![
            Entry { log_id: id(0), payload: EntryPayload::Blank },
            Entry {
                log_id: id(1),
                payload: EntryPayload::Normal(Batch {
                    base: 5,
                    tag: 0,
                    term: None,
                    records: Bytes::from_static(b"abc"),
                }),
            },
            Entry {
                log_id: id(2),
                payload: EntryPayload::Normal(Batch {
                    base: u64::MAX,
                    tag: 9,
                    term: None,
                    records: Bytes::new(),
                }),
            },
            Entry { log_id: id(3), payload: EntryPayload::Membership(Membership::new(joint, nodes)) },
        ]
    }

    #[test]
    fn entries_read_back_as_written() {
        for entry in entries() {
            let mut bytes = BytesMut::new();
            put_entry(&mut bytes, &entry);
            assert_eq!(get_entry(entry.log_id.index, bytes.freeze()), Ok(entry));
        }
    }

    #[test]
    fn a_cut_entry_is_an_error() {
        for entry in entries() {
            let mut bytes = BytesMut::new();
            put_entry(&mut bytes, &entry);
            let bytes = bytes.freeze();
            let fixed_part = match &entry.payload {
                EntryPayload::Normal(batch) if batch.tag == 0 => 25,
                EntryPayload::Normal(_) => 33,
                _ => bytes.len(),
            };
            for len in 0..fixed_part {
                assert!(get_entry(0, bytes.slice(..len)).is_err(), "{entry} cut to {len}");
            }
        }
    }
}
