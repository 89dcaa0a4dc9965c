//! How a message and its structs become bytes and come back: the schema's rows (versions, fields) and the walk over
//! the fields of a struct, tagged fields included. It knows no message, and of single values only that they are some.
//!
//! Invariant: a field is on the wire exactly in the versions of its row.

use super::json;
use super::value::varint_size;
use anyhow::{Result, ensure};
use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::VersionRange;
use kafka_protocol::protocol::buf::{ByteBuf, ByteBufMut};
use serde_json::Value as Json;
use std::collections::BTreeMap;

pub use super::value::{FromDefault, Null, Nullable, Value, get_varint, null, put_varint};

/// Tagged fields by tag, as they are on the wire.
pub type TaggedFields = BTreeMap<i32, Bytes>;

/// The versions in which a field or message is valid, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    min: i16,
    max: i16,
}

impl Versions {
    pub const NONE: Versions = Versions { min: 0, max: -1 };

    /// Reads Kafka's notation: `0+`, `2-4`, `3` or `none`. Anything else fails the build, as it is only used in constants.
    pub const fn parse(text: &str) -> Versions {
        let text = text.as_bytes();
        if matches!(text, b"none") {
            return Versions::NONE;
        }
        let (min, mut at) = digits(text, 0);
        if at == text.len() {
            return Versions { min, max: min };
        }
        let sign = text[at];
        at += 1;
        if sign == b'+' {
            assert!(at == text.len(), "text after the plus of a version range");
            return Versions { min, max: i16::MAX };
        }
        assert!(sign == b'-', "a version range is 0+, 2-4, 3 or none");
        let (max, end) = digits(text, at);
        assert!(end == text.len() && min <= max, "a version range is 0+, 2-4, 3 or none");
        Versions { min, max }
    }

    pub const fn contains(self, version: i16) -> bool {
        self.min <= version && version <= self.max
    }

    pub const fn range(self) -> VersionRange {
        VersionRange { min: self.min, max: self.max }
    }
}

/// The number that starts at `at`, and where it ends.
const fn digits(text: &[u8], mut at: usize) -> (i16, usize) {
    let start = at;
    let mut number = 0;
    while at < text.len() && text[at].is_ascii_digit() {
        number = number * 10 + (text[at] - b'0') as i16;
        at += 1;
    }
    assert!(at > start, "a version range starts with a number");
    (number, at)
}

/// What a message is, which decides its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Request,
    Response,
    /// A record of a log, or a part of something else: no header.
    Record,
}

impl Kind {
    /// Reads the word of a schema; an unknown one fails the build.
    pub const fn parse(word: &str) -> Kind {
        match word.as_bytes() {
            b"request" => Kind::Request,
            b"response" => Kind::Response,
            b"metadata" | b"record" | b"data" => Kind::Record,
            _ => panic!("a message is a request, response, metadata, record or data"),
        }
    }
}

/// A message's own row: what it is called and in which versions it exists.
pub trait Schema: Struct {
    /// The API key of a request or response, the record type of a record.
    const KEY: i16;
    const NAME: &'static str;
    const VALID: Versions;
    const FLEXIBLE: Versions;
    const KIND: Kind;
}

/// ApiVersions: its response keeps the header of version 0, for clients that do not know the broker yet (KIP-511).
const API_VERSIONS: i16 = 18;

/// The version of the request or response header that goes with `version` of the message; 0 for records, which have none.
pub fn header_version<M: Schema>(version: i16) -> i16 {
    let flexible = i16::from(M::FLEXIBLE.contains(version));
    match M::KIND {
        Kind::Request => 1 + flexible,
        Kind::Response if M::KEY == API_VERSIONS => 0,
        Kind::Response => flexible,
        Kind::Record => 0,
    }
}

/// Where a value is written: in which version, and whether in the compact forms.
#[derive(Clone, Copy, Debug)]
pub struct At {
    pub version: i16,
    pub flexible: bool,
    /// It is the value of a tagged field itself.
    pub tagged: bool,
}

impl At {
    fn of<M: Schema>(version: i16) -> Result<At> {
        ensure!(M::VALID.contains(version), "{} has no version {version}", M::NAME);
        Ok(At { version, flexible: M::FLEXIBLE.contains(version), tagged: false })
    }

    fn in_tag(self) -> At {
        At { tagged: true, ..self }
    }

    /// For the fields of a struct.
    fn inside(self) -> At {
        At { tagged: false, ..self }
    }
}

pub fn encode_message<M: Schema, B: ByteBufMut>(message: &M, buf: &mut B, version: i16) -> Result<()> {
    message.put(buf, At::of::<M>(version)?)
}

pub fn message_size<M: Schema>(message: &M, version: i16) -> Result<usize> {
    message.size(At::of::<M>(version)?)
}

pub fn decode_message<M: Schema, B: ByteBuf>(buf: &mut B, version: i16) -> Result<M> {
    M::get(buf, At::of::<M>(version)?)
}

pub fn to_json<M: Schema>(message: &M, version: i16) -> Result<Json> {
    message.to_json(At::of::<M>(version)?)
}

/// A field's row in the schema.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    name: &'static str,
    versions: Versions,
    nullable: Versions,
    tagged: Versions,
    tag: i32,
    ignorable: bool,
}

impl Field {
    pub const fn new(name: &'static str, versions: &str) -> Field {
        let versions = Versions::parse(versions);
        Field { name, versions, nullable: Versions::NONE, tagged: Versions::NONE, tag: -1, ignorable: false }
    }

    #[must_use]
    pub const fn nullable(mut self, versions: &str) -> Field {
        self.nullable = Versions::parse(versions);
        self
    }

    #[must_use]
    pub const fn tagged(mut self, versions: &str, tag: i32) -> Field {
        self.tagged = Versions::parse(versions);
        self.tag = tag;
        self
    }

    #[must_use]
    pub const fn ignorable(mut self, ignorable: bool) -> Field {
        self.ignorable = ignorable;
        self
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Hands the value to the reader in the place where the version has it.
    pub fn read<T: Value, V: FieldReader>(&self, value: &T, default: &T, reader: &mut V) -> Result<()> {
        let version = reader.at().version;
        if !self.versions.contains(version) {
            ensure!(
                self.ignorable || value == default,
                "field {} is set, but version {version} does not have it",
                self.name
            );
            return Ok(());
        }
        ensure!(
            !value.is_null() || self.nullable.contains(version),
            "field {} must not be null in version {version}",
            self.name
        );
        if !self.tagged.contains(version) {
            reader.plain(self, value)
        } else if value == default {
            Ok(())
        } else {
            reader.tagged(self, self.tag, value)
        }
    }

    /// Lets the writer fill the value if the version has it.
    pub fn write<T: Value, V: FieldWriter>(&self, value: &mut T, writer: &mut V) -> Result<()> {
        let version = writer.at().version;
        if !self.versions.contains(version) {
            return Ok(());
        }
        let tag = self.tagged.contains(version).then_some(self.tag);
        if writer.fill(tag, value)? {
            ensure!(
                !value.is_null() || self.nullable.contains(version),
                "field {} is null, which version {version} does not allow",
                self.name
            );
        }
        Ok(())
    }
}

/// Walks over the fields of a struct that it only looks at.
pub trait FieldReader {
    fn at(&self) -> At;
    fn plain<T: Value>(&mut self, field: &Field, value: &T) -> Result<()>;
    fn tagged<T: Value>(&mut self, field: &Field, tag: i32, value: &T) -> Result<()>;
}

/// Walks over the fields of a struct that it fills.
pub trait FieldWriter {
    fn at(&self) -> At;
    /// Fills `value` if it is this writer's to fill, and tells whether it did. `tag` is none for a plain field.
    fn fill<T: Value>(&mut self, tag: Option<i32>, value: &mut T) -> Result<bool>;
}

/// A message or a part of one; implemented by `messages!`.
pub trait Struct: Default + PartialEq + Clone + 'static {
    fn read_fields<V: FieldReader>(&self, defaults: &Self, reader: &mut V) -> Result<()>;
    fn write_fields<V: FieldWriter>(&mut self, writer: &mut V) -> Result<()>;
    fn unknown_tagged_fields(&self) -> &TaggedFields;
    fn set_unknown_tagged_fields(&mut self, fields: TaggedFields);
}

struct Encoding<'a, B> {
    buf: &'a mut B,
    at: At,
    tagged: TaggedFields,
}

impl<B: ByteBufMut> FieldReader for Encoding<'_, B> {
    fn at(&self) -> At {
        self.at
    }

    fn plain<T: Value>(&mut self, _field: &Field, value: &T) -> Result<()> {
        value.put(self.buf, self.at)
    }

    fn tagged<T: Value>(&mut self, field: &Field, tag: i32, value: &T) -> Result<()> {
        let mut bytes = BytesMut::new();
        value.put(&mut bytes, self.at.in_tag())?;
        let taken = self.tagged.insert(tag, bytes.freeze());
        ensure!(
            taken.is_none(),
            "tag {tag} of field {} is also among the unknown tagged fields",
            field.name()
        );
        Ok(())
    }
}

struct Sizing {
    at: At,
    bytes: usize,
    tagged_fields: usize,
    tagged_bytes: usize,
}

impl Sizing {
    fn add_tagged(&mut self, tag: i32, size: usize) {
        self.tagged_fields += 1;
        self.tagged_bytes += varint_size(tag as u32) + varint_size(size as u32) + size;
    }
}

impl FieldReader for Sizing {
    fn at(&self) -> At {
        self.at
    }

    fn plain<T: Value>(&mut self, _field: &Field, value: &T) -> Result<()> {
        self.bytes += value.size(self.at)?;
        Ok(())
    }

    fn tagged<T: Value>(&mut self, _field: &Field, tag: i32, value: &T) -> Result<()> {
        let size = value.size(self.at.in_tag())?;
        self.add_tagged(tag, size);
        Ok(())
    }
}

struct DecodingPlain<'a, B> {
    buf: &'a mut B,
    at: At,
}

impl<B: ByteBuf> FieldWriter for DecodingPlain<'_, B> {
    fn at(&self) -> At {
        self.at
    }

    fn fill<T: Value>(&mut self, tag: Option<i32>, value: &mut T) -> Result<bool> {
        if tag.is_none() {
            *value = T::get(self.buf, self.at)?;
        }
        Ok(tag.is_none())
    }
}

struct DecodingTagged {
    at: At,
    fields: TaggedFields,
}

impl FieldWriter for DecodingTagged {
    fn at(&self) -> At {
        self.at
    }

    fn fill<T: Value>(&mut self, tag: Option<i32>, value: &mut T) -> Result<bool> {
        let Some(mut bytes) = tag.and_then(|tag| self.fields.remove(&tag)) else { return Ok(false) };
        *value = T::get(&mut bytes, self.at.in_tag())?;
        ensure!(bytes.is_empty(), "{} bytes follow the value of a tagged field", bytes.len());
        Ok(true)
    }
}

impl<T: Struct> Value for T {
    fn initial() -> Self {
        T::default()
    }

    fn put<B: ByteBufMut>(&self, buf: &mut B, at: At) -> Result<()> {
        let at = at.inside();
        let mut encoding = Encoding { buf, at, tagged: self.unknown_tagged_fields().clone() };
        self.read_fields(&T::default(), &mut encoding)?;
        let Encoding { buf, tagged, .. } = encoding;
        if !at.flexible {
            ensure!(tagged.is_empty(), "version {} has no tagged fields, but some are set", at.version);
            return Ok(());
        }
        put_varint(buf, tagged.len() as u32);
        for (tag, bytes) in &tagged {
            put_varint(buf, *tag as u32);
            put_varint(buf, bytes.len() as u32);
            buf.put_slice(bytes);
        }
        Ok(())
    }

    fn size(&self, at: At) -> Result<usize> {
        let at = at.inside();
        let mut sizing = Sizing { at, bytes: 0, tagged_fields: 0, tagged_bytes: 0 };
        self.read_fields(&T::default(), &mut sizing)?;
        for (tag, bytes) in self.unknown_tagged_fields() {
            sizing.add_tagged(*tag, bytes.len());
        }
        if !at.flexible {
            ensure!(
                sizing.tagged_fields == 0,
                "version {} has no tagged fields, but some are set",
                at.version
            );
            return Ok(sizing.bytes);
        }
        Ok(sizing.bytes + varint_size(sizing.tagged_fields as u32) + sizing.tagged_bytes)
    }

    fn get<B: ByteBuf>(buf: &mut B, at: At) -> Result<Self> {
        let at = at.inside();
        let mut value = T::default();
        value.write_fields(&mut DecodingPlain { buf, at })?;
        if at.flexible {
            let fields = get_tagged_fields(buf)?;
            if !fields.is_empty() {
                let mut tagged = DecodingTagged { at, fields };
                value.write_fields(&mut tagged)?;
                value.set_unknown_tagged_fields(tagged.fields);
            }
        }
        Ok(value)
    }

    fn to_json(&self, at: At) -> Result<Json> {
        json::object(self, at)
    }
}

impl<T: Struct> Nullable for T {
    /// Kafka marks a null struct by -1, but as a tagged field by 0.
    fn put_null<B: ByteBufMut>(buf: &mut B, at: At) {
        buf.put_i8(if at.tagged { 0 } else { -1 });
    }

    fn null_size(_at: At) -> usize {
        1
    }

    fn get_nullable<B: ByteBuf>(buf: &mut B, at: At) -> Result<Option<Self>> {
        let mark = buf.try_get_i8()?;
        if mark < 0 || (at.tagged && mark == 0) { Ok(None) } else { Ok(Some(T::get(buf, at)?)) }
    }

    fn put_present<B: ByteBufMut>(buf: &mut B) -> usize {
        buf.put_i8(1);
        1
    }

    const PRESENT_SIZE: usize = 1;
}

fn get_tagged_fields<B: ByteBuf>(buf: &mut B) -> Result<TaggedFields> {
    let mut fields = TaggedFields::new();
    for _ in 0..get_varint(buf)? {
        let tag = i32::try_from(get_varint(buf)?)?;
        let length = get_varint(buf)? as usize;
        ensure!(fields.insert(tag, buf.try_get_bytes(length)?).is_none(), "tag {tag} comes twice");
    }
    Ok(fields)
}
