//! Keys and values of records as text: as they are, or as the records that coordinators and the quorum keep.
//!
//! Invariant: what cannot be decoded says so in its place, and does not end the command.

use bytes::{Buf, Bytes};
use serde_json::{Value as Json, json};

use crate::cli::Failure;
use crate::cli::args::DumpArgs;
use crate::coordinator::group::record::Record as GroupRecord;
use crate::coordinator::transaction::record::Record as TransactionRecord;
use crate::coordinator::transaction::state::State;
use crate::metadata::Record as MetadataRecord;
use crate::wire::messages::codec::{self, Schema};
use crate::wire::messages::consumer_protocol::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use crate::wire::messages::groups::GroupMetadataValue;

/// How records are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decoder {
    Text,
    Offsets,
    Transactions,
    Metadata,
}

/// A record's key and value; what is not there is not shown.
pub(super) struct Shown {
    pub key: Option<String>,
    pub value: Option<String>,
}

impl Decoder {
    pub fn of(args: &DumpArgs) -> Decoder {
        if args.offsets_decoder {
            Decoder::Offsets
        } else if args.transaction_log_decoder {
            Decoder::Transactions
        } else if args.cluster_metadata_decoder {
            Decoder::Metadata
        } else {
            Decoder::Text
        }
    }

    pub fn show(self, key: Option<&[u8]>, value: Option<&[u8]>, offset: i64) -> Result<Shown, Failure> {
        let text = |part: Option<&[u8]>| part.map(|part| String::from_utf8_lossy(part).into_owned());
        let bytes = |part: Option<&[u8]>| part.map(Bytes::copy_from_slice);
        Ok(match self {
            Decoder::Text => Shown { key: text(key), value: text(value) },
            Decoder::Metadata => Shown { key: None, value: Some(metadata(bytes(value), offset)) },
            Decoder::Offsets => of_coordinator(bytes(key), bytes(value), offset, offsets)?,
            Decoder::Transactions => of_coordinator(bytes(key), bytes(value), offset, transactions)?,
        })
    }
}

fn metadata(value: Option<Bytes>, offset: i64) -> String {
    let shown = MetadataRecord::decode(value.unwrap_or_default())
        .and_then(|(record, version)| Ok(record.to_json(version)?.to_string()));
    shown.unwrap_or_else(|error| format!("Error at {offset}, skipping. {error}"))
}

/// The type of a key, its fields, and those of the value; `None` when the type is not known.
type Parts = Option<(i16, Json, Option<Json>)>;

fn of_coordinator(
    key: Option<Bytes>,
    value: Option<Bytes>,
    offset: i64,
    decode: impl FnOnce(Bytes, Option<Bytes>, i16) -> Result<Parts, Failure>,
) -> Result<Shown, Failure> {
    let Some(key) = key else {
        return Err(format!(
            "Failed to decode message at offset {offset} using the specified decoder (message had a missing key)"
        )
        .into());
    };
    let kind = (&key[..]).try_get_i16().unwrap_or(-1);
    let version = value.as_deref().and_then(|mut value| value.try_get_i16().ok()).unwrap_or(-1);
    let alone = |key| Shown { key: Some(key), value: None };
    Ok(match decode(key, value, version) {
        Ok(Some((kind, key, value))) => {
            let key = json!({ "type": kind.to_string(), "data": key }).to_string();
            let value = value.map_or("<DELETE>".to_owned(), |value| {
                json!({ "version": version.to_string(), "data": value }).to_string()
            });
            Shown { key: Some(key), value: Some(value) }
        }
        Ok(None) => alone(format!("Unknown record type {kind} at offset {offset}, skipping.")),
        Err(error) => alone(format!("Error at offset {offset}, skipping. {error}")),
    })
}

fn offsets(key: Bytes, value: Option<Bytes>, version: i16) -> Result<Parts, Failure> {
    let Some(record) = GroupRecord::decode(key, value)? else { return Ok(None) };
    let (kind, key, mut value) = record.to_json(version)?;
    if let GroupRecord::GroupMetadata(_, Some(group)) = &record
        && group.protocol_type.as_str() == "consumer"
        && let Some(value) = &mut value
    {
        show_members(group, value);
    }
    Ok(Some((kind, key, value)))
}

/// Has what members of consumer groups say to each other shown as fields; what is of another form stays as it is.
fn show_members(group: &GroupMetadataValue, value: &mut Json) {
    for (at, member) in group.members.iter().enumerate() {
        let mut show = |field: &str, shown: Option<Json>| {
            if let (Some(shown), Some(place)) = (shown, value.pointer_mut(&format!("/members/{at}/{field}")))
            {
                *place = shown;
            }
        };
        show("subscription", protocol_message::<ConsumerProtocolSubscription>(member.subscription.clone()));
        show("assignment", protocol_message::<ConsumerProtocolAssignment>(member.assignment.clone()));
    }
}

fn protocol_message<M: Schema>(mut bytes: Bytes) -> Option<Json> {
    let version = bytes.try_get_i16().ok().filter(|version| M::VALID.contains(*version))?;
    codec::to_json(&codec::decode_message::<M, _>(&mut bytes, version).ok()?, version).ok()
}

fn transactions(key: Bytes, value: Option<Bytes>, _version: i16) -> Result<Parts, Failure> {
    let Some(record) = TransactionRecord::decode(key, value)? else { return Ok(None) };
    let value = record.value.as_ref().map(|value| {
        let mut fields = codec::to_json(&value.value, value.version)?;
        let status = value.value.transaction_status;
        fields["transactionStatus"] = match State::from_id(status) {
            Some(state) => state.name().into(),
            None => status.to_string().into(),
        };
        Ok::<_, Failure>(fields)
    });
    let key = json!({ "transactionalId": record.transactional_id });
    Ok(Some((0, key, value.transpose()?)))
}

/// A control record of the quorum, at the version that its first field names.
pub(super) fn metadata_message<M: Schema>(mut bytes: Bytes) -> Result<Json, Failure> {
    let version = (&bytes[..]).try_get_i16().unwrap_or(0).clamp(0, 1);
    let version = if M::VALID.contains(version) { version } else { 0 };
    let message = codec::decode_message::<M, _>(&mut bytes, version)?;
    Ok(codec::to_json(&message, version)?)
}
