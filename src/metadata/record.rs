//! One entry of the metadata log: Kafka's metadata records as one enum, and Kafka's framing of them (frame version, record
//! type, record version, fields). It owns which version of a record is written under which metadata version; it does not
//! know what the records do.

use super::features::MetadataVersion;
use crate::wire::messages::codec::{self, Schema};
use crate::wire::messages::metadata::{
    AbortTransactionRecord, AccessControlEntryRecord, BeginTransactionRecord, BrokerRegistrationChangeRecord,
    ClearElrRecord, ClientQuotaRecord, ConfigRecord, DelegationTokenRecord, EndTransactionRecord,
    FeatureLevelRecord, FenceBrokerRecord, NoOpRecord, PartitionChangeRecord, PartitionRecord,
    ProducerIdsRecord, RegisterBrokerRecord, RegisterControllerRecord, RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord, RemoveTopicRecord, RemoveUserScramCredentialRecord, TopicRecord,
    UnfenceBrokerRecord, UnregisterBrokerRecord, UnregisterControllerRecord, UserScramCredentialRecord,
    ZkMigrationStateRecord,
};
use bytes::{Bytes, BytesMut};

/// The only frame version that Kafka has released.
const FRAME_VERSION: u32 = 1;

/// Why bytes are not a metadata record, or a record has no bytes.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("frame version {0} of a metadata record is not known")]
    FrameVersion(u32),
    #[error("metadata record type {0} is not known")]
    Type(u32),
    #[error("{name} version {version} is not known")]
    Version { name: &'static str, version: u32 },
    #[error("{0} bytes follow a metadata record")]
    TrailingBytes(usize),
    #[error("metadata record: {0}")]
    Malformed(String),
}

impl RecordError {
    pub(super) fn malformed(error: impl std::fmt::Display) -> RecordError {
        RecordError::Malformed(error.to_string())
    }
}

macro_rules! records {
    ($($variant:ident($message:ident),)*) => {
        /// A metadata record.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Record {
            $($variant($message),)*
        }

        $(
            impl From<$message> for Record {
                fn from(message: $message) -> Record {
                    Record::$variant(message)
                }
            }
        )*

        impl Record {
            /// Kafka's number for the type.
            pub fn record_type(&self) -> i16 {
                match self {
                    $(Record::$variant(_) => $message::KEY,)*
                }
            }

            /// Kafka's name for the type.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Record::$variant(_) => $message::NAME,)*
                }
            }

            /// The record in Kafka's framing, at a version of the record.
            pub fn encode_at(&self, version: i16) -> Result<Bytes, RecordError> {
                let mut buf = BytesMut::new();
                codec::put_varint(&mut buf, FRAME_VERSION);
                codec::put_varint(&mut buf, self.record_type() as u32);
                codec::put_varint(&mut buf, version as u32);
                match self {
                    $(Record::$variant(message) => codec::encode_message(message, &mut buf, version),)*
                }
                .map_err(RecordError::malformed)?;
                Ok(buf.freeze())
            }

            /// Reads a whole frame; also gives the version that the record was written in.
            pub fn decode(mut frame: Bytes) -> Result<(Record, i16), RecordError> {
                let buf = &mut frame;
                let mut header = || codec::get_varint(buf).map_err(RecordError::malformed);
                let (frame_version, record_type, version) = (header()?, header()?, header()?);
                if frame_version != FRAME_VERSION {
                    return Err(RecordError::FrameVersion(frame_version));
                }
                $(
                    if record_type == $message::KEY as u32 {
                        let version = known_version::<$message>(version)?;
                        let message = codec::decode_message::<$message, _>(buf, version)
                            .map_err(RecordError::malformed)?;
                        if !buf.is_empty() {
                            return Err(RecordError::TrailingBytes(buf.len()));
                        }
                        return Ok((Record::$variant(message), version));
                    }
                )*
                Err(RecordError::Type(record_type))
            }

            /// The fields at a version, with Kafka's names; fields at their tagged default are left out.
            pub fn fields_as_json(&self, version: i16) -> Result<serde_json::Value, RecordError> {
                match self {
                    $(Record::$variant(message) => codec::to_json(message, version),)*
                }
                .map_err(RecordError::malformed)
            }
        }
    };
}

records! {
    RegisterBroker(RegisterBrokerRecord),
    UnregisterBroker(UnregisterBrokerRecord),
    Topic(TopicRecord),
    Partition(PartitionRecord),
    Config(ConfigRecord),
    PartitionChange(PartitionChangeRecord),
    FenceBroker(FenceBrokerRecord),
    UnfenceBroker(UnfenceBrokerRecord),
    RemoveTopic(RemoveTopicRecord),
    DelegationToken(DelegationTokenRecord),
    UserScramCredential(UserScramCredentialRecord),
    FeatureLevel(FeatureLevelRecord),
    ClientQuota(ClientQuotaRecord),
    ProducerIds(ProducerIdsRecord),
    BrokerRegistrationChange(BrokerRegistrationChangeRecord),
    AccessControlEntry(AccessControlEntryRecord),
    RemoveAccessControlEntry(RemoveAccessControlEntryRecord),
    NoOp(NoOpRecord),
    ZkMigrationState(ZkMigrationStateRecord),
    RemoveUserScramCredential(RemoveUserScramCredentialRecord),
    BeginTransaction(BeginTransactionRecord),
    EndTransaction(EndTransactionRecord),
    AbortTransaction(AbortTransactionRecord),
    RemoveDelegationToken(RemoveDelegationTokenRecord),
    RegisterController(RegisterControllerRecord),
    ClearElr(ClearElrRecord),
    UnregisterController(UnregisterControllerRecord),
}

impl Record {
    /// The version in which the record is written while `metadata_version` is finalized.
    pub fn version_under(&self, metadata_version: MetadataVersion) -> i16 {
        match self {
            Record::RegisterBroker(_) => metadata_version.register_broker_record_version(),
            Record::Partition(_) | Record::PartitionChange(_) => metadata_version.partition_record_version(),
            // Each version only added a field, and Kafka writes the first one that has what the record says.
            Record::BrokerRegistrationChange(change) if change.cordoned_log_dirs.is_some() => 3,
            Record::BrokerRegistrationChange(change) if !change.log_dirs.is_empty() => 2,
            Record::BrokerRegistrationChange(change) if change.in_controlled_shutdown != 0 => 1,
            _ => 0,
        }
    }

    /// The record in Kafka's framing, at the version that `metadata_version` asks for: the one of the image that the
    /// record was decided on.
    pub fn encode(&self, metadata_version: MetadataVersion) -> Result<Bytes, RecordError> {
        self.encode_at(self.version_under(metadata_version))
    }

    /// The record as Kafka's dump tool shows it: type, version and fields.
    pub fn to_json(&self, version: i16) -> Result<serde_json::Value, RecordError> {
        let mut words = String::new();
        for letter in self.name().chars() {
            if letter.is_ascii_uppercase() && !words.is_empty() {
                words.push('_');
            }
            words.push(letter.to_ascii_uppercase());
        }
        let fields = self.fields_as_json(version)?;
        Ok(serde_json::json!({ "type": words, "version": version, "data": fields }))
    }
}

fn known_version<M: Schema>(version: u32) -> Result<i16, RecordError> {
    i16::try_from(version)
        .ok()
        .filter(|version| M::VALID.contains(*version))
        .ok_or(RecordError::Version { name: M::NAME, version })
}
