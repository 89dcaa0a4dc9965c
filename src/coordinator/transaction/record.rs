//! The records of `__transaction_state` and their bytes: a key is its type (int16) and the transactional id, a value its
//! version (int16) and its fields.
//!
//! Knows no rule of transactions. Invariant: decoding what was encoded gives the same record; a key of another type or a
//! value of a later version is told apart from damage, for a later Kafka may have written it.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::super::Encode;
use crate::wire::messages::codec::{self, Schema};
use crate::wire::messages::transactions::{TransactionLogKey, TransactionLogValue};

/// Why bytes are not a record, or a record has no bytes.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("a key without a type")]
    NoType,
    #[error("a value without a version")]
    NoVersion,
    #[error("{count} bytes follow {name}")]
    TrailingBytes { name: &'static str, count: usize },
    #[error("{name}: {reason}")]
    Malformed { name: &'static str, reason: String },
    #[error("transaction state {0} is not known")]
    State(i8),
}

/// What a transactional id was changed to.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub transactional_id: String,
    /// `None` when it is forgotten.
    pub value: Option<Versioned>,
}

/// A value with the version at which it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Versioned {
    pub version: i16,
    pub value: TransactionLogValue,
}

impl Encode for Record {
    type Error = RecordError;

    fn encode(&self) -> Result<(Bytes, Option<Bytes>), RecordError> {
        let key = TransactionLogKey {
            transactional_id: self.transactional_id.clone().into(),
            ..TransactionLogKey::default()
        };
        let key = put(TransactionLogKey::KEY, &key, 0)?;
        let value = self.value.as_ref().map(|value| put(value.version, &value.value, value.version));
        Ok((key, value.transpose()?))
    }
}

impl Record {
    /// The record in these bytes; `None` when it is of a type or version that is not known.
    pub fn decode(mut key: Bytes, value: Option<Bytes>) -> Result<Option<Record>, RecordError> {
        let kind = key.try_get_i16().map_err(|_| RecordError::NoType)?;
        if kind != TransactionLogKey::KEY {
            return Ok(None);
        }
        let transactional_id = get::<TransactionLogKey>(key, 0)?.transactional_id.to_string();
        let Some(mut value) = value else { return Ok(Some(Record { transactional_id, value: None })) };
        let version = value.try_get_i16().map_err(|_| RecordError::NoVersion)?;
        if !TransactionLogValue::VALID.contains(version) {
            return Ok(None);
        }
        let value = Some(Versioned { version, value: get(value, version)? });
        Ok(Some(Record { transactional_id, value }))
    }
}

fn put<M: Schema>(prefix: i16, message: &M, version: i16) -> Result<Bytes, RecordError> {
    let mut bytes = BytesMut::new();
    bytes.put_i16(prefix);
    codec::encode_message(message, &mut bytes, version).map_err(|error| malformed::<M>(&error))?;
    Ok(bytes.freeze())
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
