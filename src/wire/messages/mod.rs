//! The messages and records that the kafka-protocol crate lacks, in one declarative form that reads like Kafka's own
//! schema files. It owns the `messages!` macro; the encoding itself is in `codec`, the schemas are in the submodules.
//! A schema says everything about its bytes: the next version of a message costs a changed version text or a new row.
//!
//! ```text
//! messages! {
//!     /// What the message is.
//!     message RegisterThingRequest (request 99, versions "0-2", flexible "1+") {
//!         name: string "0+",                                      // in every version
//!         rack: string "1+" nullable "1+" ignorable true = null,  // dropped silently where the version lacks it
//!         things: [Thing] "0+",                                   // an array of a struct declared below
//!         hint: int32 "2+" tagged "2+" tag 0 = -1,                // written only when it is not -1
//!     }
//!     struct Thing { id: uuid "0+", flags: [int8] "0+" }
//! }
//! ```
//!
//! Types are Kafka's: bool, int8, int16, uint16, int32, uint32, int64, float64, string, uuid, bytes, records, a struct's
//! name, `[T]` for an array. Version texts are Kafka's: `"0+"`, `"2-4"`, `"3"`, `"none"`. A nullable field is an
//! `Option`; without a default it starts as an empty value, as in Kafka, and with `= null` as `None`. The attributes
//! of a field come in the order nullable, tagged, ignorable, default.
//!
//! The first word in the brackets is the kind: `request` and `response` choose the header version, `metadata`, `record` and
//! `data` have no header. The number is the API key, or the record's type. `exchanges!` ties a request to its response.
//!
//! Each message becomes a plain struct (public fields, `Default`, `Clone`, `Debug`, `PartialEq`) with the kafka-protocol
//! crate's `Encodable`, `Decodable`, `Message` and `HeaderVersion`, and with [`codec::Schema`]. To encode a field that is
//! set and that the version lacks is an error unless the field is ignorable. Unknown tagged fields are kept.

mod apis;
pub mod codec;
pub mod follower_fetch;
mod record_bytes;
mod value;
mod json;

pub use kafka_protocol::protocol::StrBytes;

/// Declares messages and their nested structs; see the module's documentation for the form.
macro_rules! messages {
    () => {};
    (
        $(#[$doc:meta])*
        message $name:ident ($kind:ident $key:literal, versions $versions:literal, flexible $flexible:literal) {
            $($fields:tt)*
        }
        $($rest:tt)*
    ) => {
        $crate::wire::messages::message_struct! { $(#[$doc])* $name { $($fields)* } }

        impl $crate::wire::messages::codec::Schema for $name {
            const KEY: i16 = $key;
            const NAME: &'static str = stringify!($name);
            const VALID: $crate::wire::messages::codec::Versions =
                $crate::wire::messages::codec::Versions::parse($versions);
            const FLEXIBLE: $crate::wire::messages::codec::Versions =
                $crate::wire::messages::codec::Versions::parse($flexible);
            const KIND: $crate::wire::messages::codec::Kind = $crate::wire::messages::codec::Kind::parse(stringify!($kind));
        }

        impl ::kafka_protocol::protocol::Message for $name {
            const VERSIONS: ::kafka_protocol::protocol::VersionRange =
                <$name as $crate::wire::messages::codec::Schema>::VALID.range();
            const DEPRECATED_VERSIONS: Option<::kafka_protocol::protocol::VersionRange> = None;
        }

        impl ::kafka_protocol::protocol::HeaderVersion for $name {
            fn header_version(version: i16) -> i16 {
                $crate::wire::messages::codec::header_version::<$name>(version)
            }
        }

        impl ::kafka_protocol::protocol::Encodable for $name {
            fn encode<B: ::kafka_protocol::protocol::buf::ByteBufMut>(
                &self,
                buf: &mut B,
                version: i16,
            ) -> ::anyhow::Result<()> {
                $crate::wire::messages::codec::encode_message(self, buf, version)
            }

            fn compute_size(&self, version: i16) -> ::anyhow::Result<usize> {
                $crate::wire::messages::codec::message_size(self, version)
            }
        }

        impl ::kafka_protocol::protocol::Decodable for $name {
            fn decode<B: ::kafka_protocol::protocol::buf::ByteBuf>(
                buf: &mut B,
                version: i16,
            ) -> ::anyhow::Result<Self> {
                $crate::wire::messages::codec::decode_message(buf, version)
            }
        }

        $crate::wire::messages::messages! { $($rest)* }
    };
    (
        $(#[$doc:meta])*
        struct $name:ident { $($fields:tt)* }
        $($rest:tt)*
    ) => {
        $crate::wire::messages::message_struct! { $(#[$doc])* $name { $($fields)* } }
        $crate::wire::messages::messages! { $($rest)* }
    };
}

/// The struct of a message or of a part of one, with its defaults and the walk over its fields.
macro_rules! message_struct {
    (
        $(#[$doc:meta])*
        $name:ident {
            $(
                $(#[$field_doc:meta])*
                $field:ident : $type:tt $versions:literal
                $(nullable $nullable:literal)?
                $(tagged $tagged:literal tag $tag:literal)?
                $(ignorable $ignorable:literal)?
                $(= $default:expr)?
            ),* $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $(
                $(#[$field_doc])*
                pub $field: $crate::wire::messages::field_type!($type $($nullable)?),
            )*
            /// Tagged fields of a newer peer, kept as they came.
            pub unknown_tagged_fields: ::std::collections::BTreeMap<i32, ::bytes::Bytes>,
        }

        impl Default for $name {
            fn default() -> Self {
                #[allow(unused_imports)]
                use $crate::wire::messages::codec::null;
                $name {
                    $($field: $crate::wire::messages::field_default!($($default)?),)*
                    unknown_tagged_fields: ::std::collections::BTreeMap::new(),
                }
            }
        }

        impl $crate::wire::messages::codec::Struct for $name {
            #[allow(unused_variables)]
            fn read_fields<V: $crate::wire::messages::codec::FieldReader>(
                &self,
                defaults: &Self,
                reader: &mut V,
            ) -> ::anyhow::Result<()> {
                $(
                    const { &$crate::wire::messages::field_spec!(
                        $field $versions $(nullable $nullable)? $(tagged $tagged $tag)? $(ignorable $ignorable)?
                    ) }
                    .read(&self.$field, &defaults.$field, reader)?;
                )*
                Ok(())
            }

            #[allow(unused_variables)]
            fn write_fields<V: $crate::wire::messages::codec::FieldWriter>(
                &mut self,
                writer: &mut V,
            ) -> ::anyhow::Result<()> {
                $(
                    const { &$crate::wire::messages::field_spec!(
                        $field $versions $(nullable $nullable)? $(tagged $tagged $tag)? $(ignorable $ignorable)?
                    ) }
                    .write(&mut self.$field, writer)?;
                )*
                Ok(())
            }

            fn unknown_tagged_fields(&self) -> &$crate::wire::messages::codec::TaggedFields {
                &self.unknown_tagged_fields
            }

            fn set_unknown_tagged_fields(&mut self, fields: $crate::wire::messages::codec::TaggedFields) {
                self.unknown_tagged_fields = fields;
            }
        }
    };
}

/// The Rust type of a field: an `Option` when any version allows null.
macro_rules! field_type {
    ($type:tt $nullable:literal) => { Option<$crate::wire::messages::field_type!($type)> };
    ([$item:tt]) => { Vec<$crate::wire::messages::field_type!($item)> };
    (bool) => { bool };
    (int8) => { i8 };
    (int16) => { i16 };
    (uint16) => { u16 };
    (int32) => { i32 };
    (uint32) => { u32 };
    (int64) => { i64 };
    (float64) => { f64 };
    (string) => { ::kafka_protocol::protocol::StrBytes };
    (uuid) => { ::uuid::Uuid };
    (bytes) => { ::bytes::Bytes };
    (records) => { $crate::wire::messages::RecordBytes };
    ($name:ident) => { $name };
}

/// What a field holds before anybody sets it.
macro_rules! field_default {
    () => {
        $crate::wire::messages::codec::Value::initial()
    };
    ($default:expr) => {
        $crate::wire::messages::codec::FromDefault::from_default($default)
    };
}

/// The constant that describes a field.
macro_rules! field_spec {
    (
        $field:ident $versions:literal
        $(nullable $nullable:literal)? $(tagged $tagged:literal $tag:literal)? $(ignorable $ignorable:literal)?
    ) => {
        $crate::wire::messages::codec::Field::new(stringify!($field), $versions)
            $(.nullable($nullable))?
            $(.tagged($tagged, $tag))?
            $(.ignorable($ignorable))?
    };
}

// Submodules see the macro as it is; others import it: `use crate::wire::messages::messages`.
pub(crate) use {field_default, field_spec, field_type, message_struct, messages};

/// Ties each of our requests to its response, as the crate does for its own.
macro_rules! exchanges {
    ($($request:ident => $response:ident),* $(,)?) => {
        $(impl ::kafka_protocol::protocol::Request for $request {
            const KEY: i16 = <$request as $crate::wire::messages::codec::Schema>::KEY;
            type Response = $response;
        })*
    };
}

pub mod add_raft_voter;
pub mod api_versions;
pub mod broker_heartbeat;
pub mod default_principal;
pub mod describe_log_dirs;
pub mod fetch_response;
pub mod consumer_protocol;
pub mod groups;
pub mod transactions;
pub mod list_offsets;
pub mod offset_commit;
pub mod offset_fetch;
pub mod txn_offset_commit;
pub mod delete_groups;
pub mod unregister_controller;
pub mod write_txn_markers;
pub mod raft;
pub mod readiness;
pub mod replica_ends;

pub use apis::*;
pub use record_bytes::RecordBytes;

pub mod metadata;
pub mod snapshot;

#[cfg(test)]
mod tests;
