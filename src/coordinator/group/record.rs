//! The records of `__consumer_offsets` in typed form, and their bytes: a key is its type (int16) and its fields, a value
//! its version (int16) and its fields.
//!
//! Knows no group. Invariant: decoding what was encoded gives the same record; a type that is not known here (of share and
//! streams groups) is told apart from damage, for it is none.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde_json::Value as Json;

use super::super::Encode;
use crate::wire::messages::StrBytes;
use crate::wire::messages::codec::{self, Schema};
use crate::wire::messages::groups::{
    ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue, ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue, GroupMetadataKey,
    GroupMetadataValue, LegacyOffsetCommitKey, LegacyOffsetCommitValue, OffsetCommitKey, OffsetCommitValue,
};

/// Why bytes are not a record, or a record has no bytes.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("a key of {0} bytes has no type")]
    NoType(usize),
    #[error("{name} version {version} is not known")]
    Version { name: &'static str, version: i16 },
    #[error("{count} bytes follow {name}")]
    TrailingBytes { name: &'static str, count: usize },
    #[error("{name}: {reason}")]
    Malformed { name: &'static str, reason: String },
}

macro_rules! records {
    ($($variant:ident($key:ident => $value:ident),)*) => {
        /// One record. A value of `None` is a tombstone.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Record {
            $($variant($key, Option<$value>),)*
        }

        impl Encode for Record {
            type Error = RecordError;

            /// The value is at the version in which Kafka 4.4 writes it.
            fn encode(&self) -> Result<(Bytes, Option<Bytes>), RecordError> {
                match self {
                    $(Record::$variant(key, value) => {
                        let value = value.as_ref().map(|value| with_prefix(self.value_version(), value)).transpose()?;
                        let mut bytes = BytesMut::new();
                        bytes.put_i16($key::KEY);
                        put(key, &mut bytes, 0)?;
                        Ok((bytes.freeze(), value))
                    })*
                }
            }
        }

        impl Record {
            /// The type of the key, its fields, and those of the value, which was written at `version`.
            pub fn to_json(&self, version: i16) -> Result<(i16, Json, Option<Json>), RecordError> {
                match self {
                    $(Record::$variant(key, value) => {
                        let key = codec::to_json(key, 0).map_err(|error| malformed::<$key>(&error))?;
                        let value = value.as_ref().map(|value| codec::to_json(value, version));
                        let value = value.transpose().map_err(|error| malformed::<$value>(&error))?;
                        Ok(($key::KEY, key, value))
                    })*
                }
            }

            /// The record in these bytes; `None` when its type is not known.
            pub fn decode(mut key: Bytes, value: Option<Bytes>) -> Result<Option<Record>, RecordError> {
                let size = key.len();
                let kind = key.try_get_i16().map_err(|_| RecordError::NoType(size))?;
                match kind {
                    $($key::KEY => {
                        let key = get::<$key>(key, 0)?;
                        let value = value.map(without_prefix::<$value>).transpose()?;
                        Ok(Some(Record::$variant(key, value)))
                    })*
                    _ => Ok(None),
                }
            }
        }
    };
}

records! {
    LegacyOffsetCommit(LegacyOffsetCommitKey => LegacyOffsetCommitValue),
    OffsetCommit(OffsetCommitKey => OffsetCommitValue),
    GroupMetadata(GroupMetadataKey => GroupMetadataValue),
    ConsumerGroupMetadata(ConsumerGroupMetadataKey => ConsumerGroupMetadataValue),
    ConsumerGroupPartitionMetadata(ConsumerGroupPartitionMetadataKey => ConsumerGroupPartitionMetadataValue),
    ConsumerGroupMemberMetadata(ConsumerGroupMemberMetadataKey => ConsumerGroupMemberMetadataValue),
    ConsumerGroupTargetAssignmentMetadata(
        ConsumerGroupTargetAssignmentMetadataKey => ConsumerGroupTargetAssignmentMetadataValue
    ),
    ConsumerGroupTargetAssignmentMember(
        ConsumerGroupTargetAssignmentMemberKey => ConsumerGroupTargetAssignmentMemberValue
    ),
    ConsumerGroupCurrentMemberAssignment(
        ConsumerGroupCurrentMemberAssignmentKey => ConsumerGroupCurrentMemberAssignmentValue
    ),
    ConsumerGroupRegularExpression(ConsumerGroupRegularExpressionKey => ConsumerGroupRegularExpressionValue),
}

impl Record {
    /// The group that a record of the consumer protocol is of, and whether the record is a tombstone.
    pub fn of_consumer_group(&self) -> Option<(StrBytes, bool)> {
        let (group, is_tombstone) = match self {
            Record::ConsumerGroupMetadata(key, value) => (&key.group_id, value.is_none()),
            Record::ConsumerGroupPartitionMetadata(key, value) => (&key.group_id, value.is_none()),
            Record::ConsumerGroupMemberMetadata(key, value) => (&key.group_id, value.is_none()),
            Record::ConsumerGroupTargetAssignmentMetadata(key, value) => (&key.group_id, value.is_none()),
            Record::ConsumerGroupTargetAssignmentMember(key, value) => (&key.group_id, value.is_none()),
            Record::ConsumerGroupCurrentMemberAssignment(key, value) => (&key.group_id, value.is_none()),
            Record::ConsumerGroupRegularExpression(key, value) => (&key.group_id, value.is_none()),
            Record::LegacyOffsetCommit(..) | Record::OffsetCommit(..) | Record::GroupMetadata(..) => {
                return None;
            }
        };
        Some((group.clone(), is_tombstone))
    }

    fn value_version(&self) -> i16 {
        match self {
            Record::GroupMetadata(..) => 3,
            // Only version 1 has a time of its own at which the offset expires.
            Record::OffsetCommit(_, Some(value)) if value.expire_timestamp != -1 => 1,
            Record::OffsetCommit(..) => 4,
            _ => 0,
        }
    }
}

fn with_prefix<M: Schema>(version: i16, message: &M) -> Result<Bytes, RecordError> {
    let mut bytes = BytesMut::new();
    bytes.put_i16(version);
    put(message, &mut bytes, version)?;
    Ok(bytes.freeze())
}

fn without_prefix<M: Schema>(mut bytes: Bytes) -> Result<M, RecordError> {
    let version = bytes.try_get_i16().map_err(|error| malformed::<M>(&error))?;
    if M::VALID.contains(version) {
        get(bytes, version)
    } else {
        Err(RecordError::Version { name: M::NAME, version })
    }
}

fn put<M: Schema>(message: &M, into: &mut BytesMut, version: i16) -> Result<(), RecordError> {
    codec::encode_message(message, into, version).map_err(|error| malformed::<M>(&error))
}

fn get<M: Schema>(mut bytes: Bytes, version: i16) -> Result<M, RecordError> {
    let message =
        codec::decode_message::<M, _>(&mut bytes, version).map_err(|error| malformed::<M>(&error))?;
    if bytes.is_empty() {
        Ok(message)
    } else {
        Err(RecordError::TrailingBytes { name: M::NAME, count: bytes.len() })
    }
}

fn malformed<M: Schema>(error: &impl std::fmt::Display) -> RecordError {
    RecordError::Malformed { name: M::NAME, reason: error.to_string() }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
