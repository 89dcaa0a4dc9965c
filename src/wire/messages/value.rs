//! The values that fields hold, and their bytes: Kafka's primitive types, strings, bytes and arrays in their plain and
//! compact forms. It must not know the rows of a schema.
//!
//! Invariant: a decoder never reserves more memory than the bytes that remain could fill.

use super::codec::At;
use anyhow::{Result, bail, ensure};
use bytes::{Buf, BufMut, Bytes};
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::protocol::buf::{ByteBuf, ByteBufMut};
use serde_json::Value as Json;
use uuid::Uuid;

use super::json;
use crate::types::kafka_uuid;

/// Anything that a field can hold.
pub trait Value: PartialEq + Sized {
    /// What a field of this type holds when its schema names no default.
    fn initial() -> Self;
    fn put<B: ByteBufMut>(&self, buf: &mut B, at: At) -> Result<()>;
    fn size(&self, at: At) -> Result<usize>;
    fn get<B: ByteBuf>(buf: &mut B, at: At) -> Result<Self>;

    /// The value as Kafka's tools print it.
    fn to_json(&self, at: At) -> Result<Json>;

    fn is_null(&self) -> bool {
        false
    }
}

/// A value that has a form for null: string, bytes, array, struct.
pub trait Nullable: Value {
    fn put_null<B: ByteBufMut>(buf: &mut B, at: At);
    fn null_size(at: At) -> usize;
    fn get_nullable<B: ByteBuf>(buf: &mut B, at: At) -> Result<Option<Self>>;
    /// What comes before a value that is there, where null and not null need telling apart: a struct's one byte.
    fn put_present<B: ByteBufMut>(_buf: &mut B) -> usize {
        0
    }
    const PRESENT_SIZE: usize = 0;
}

impl<T: Nullable> Value for Option<T> {
    fn initial() -> Self {
        Some(T::initial())
    }

    fn put<B: ByteBufMut>(&self, buf: &mut B, at: At) -> Result<()> {
        match self {
            Some(value) => {
                T::put_present(buf);
                value.put(buf, at)
            }
            None => {
                T::put_null(buf, at);
                Ok(())
            }
        }
    }

    fn size(&self, at: At) -> Result<usize> {
        match self {
            Some(value) => Ok(T::PRESENT_SIZE + value.size(at)?),
            None => Ok(T::null_size(at)),
        }
    }

    fn get<B: ByteBuf>(buf: &mut B, at: At) -> Result<Self> {
        T::get_nullable(buf, at)
    }

    fn to_json(&self, at: At) -> Result<Json> {
        self.as_ref().map_or(Ok(Json::Null), |value| value.to_json(at))
    }

    fn is_null(&self) -> bool {
        self.is_none()
    }
}

/// The default `null` of a schema.
#[derive(Clone, Copy, Debug)]
pub struct Null;

#[allow(non_upper_case_globals)]
pub const null: Null = Null;

/// A field's value from the default that its schema gives.
pub trait FromDefault<D> {
    fn from_default(default: D) -> Self;
}

impl<T> FromDefault<Null> for Option<T> {
    fn from_default(_: Null) -> Self {
        None
    }
}

impl FromDefault<&'static str> for StrBytes {
    fn from_default(default: &'static str) -> Self {
        StrBytes::from_static_str(default)
    }
}

impl FromDefault<&'static str> for Option<StrBytes> {
    fn from_default(default: &'static str) -> Self {
        Some(StrBytes::from_static_str(default))
    }
}

macro_rules! fixed_size_values {
    ($($type:ty: $put:ident $get:ident;)*) => {
        $(
            impl Value for $type {
                fn initial() -> Self {
                    Self::default()
                }

                fn put<B: ByteBufMut>(&self, buf: &mut B, _at: At) -> Result<()> {
                    buf.$put(*self);
                    Ok(())
                }

                fn size(&self, _at: At) -> Result<usize> {
                    Ok(size_of::<$type>())
                }

                fn get<B: ByteBuf>(buf: &mut B, _at: At) -> Result<Self> {
                    Ok(buf.$get()?)
                }

                fn to_json(&self, _at: At) -> Result<Json> {
                    Ok(Json::from(*self))
                }
            }

            impl FromDefault<$type> for $type {
                fn from_default(default: $type) -> Self {
                    default
                }
            }
        )*
    };
}

fixed_size_values! {
    i8: put_i8 try_get_i8;
    i16: put_i16 try_get_i16;
    u16: put_u16 try_get_u16;
    i32: put_i32 try_get_i32;
    u32: put_u32 try_get_u32;
    i64: put_i64 try_get_i64;
    f64: put_f64 try_get_f64;
}

impl Value for bool {
    fn initial() -> Self {
        false
    }

    fn put<B: ByteBufMut>(&self, buf: &mut B, _at: At) -> Result<()> {
        buf.put_u8(u8::from(*self));
        Ok(())
    }

    fn size(&self, _at: At) -> Result<usize> {
        Ok(1)
    }

    fn get<B: ByteBuf>(buf: &mut B, _at: At) -> Result<Self> {
        Ok(buf.try_get_u8()? != 0)
    }

    fn to_json(&self, _at: At) -> Result<Json> {
        Ok(Json::from(*self))
    }
}

impl FromDefault<bool> for bool {
    fn from_default(default: bool) -> Self {
        default
    }
}

impl Value for Uuid {
    fn initial() -> Self {
        Uuid::nil()
    }

    fn put<B: ByteBufMut>(&self, buf: &mut B, _at: At) -> Result<()> {
        buf.put_slice(self.as_bytes());
        Ok(())
    }

    fn size(&self, _at: At) -> Result<usize> {
        Ok(16)
    }

    fn get<B: ByteBuf>(buf: &mut B, _at: At) -> Result<Self> {
        Ok(Uuid::from_u128(buf.try_get_u128()?))
    }

    fn to_json(&self, _at: At) -> Result<Json> {
        Ok(Json::from(kafka_uuid::format(*self)))
    }
}

/// How a length is written before a value of changing size, where the compact forms are not used.
#[derive(Clone, Copy)]
pub(super) enum Length {
    Int16,
    Int32,
}

impl Length {
    pub(super) fn size(self, length: usize, at: At) -> usize {
        match (at.flexible, self) {
            (true, _) => varint_size(length as u32 + 1),
            (false, Length::Int16) => 2,
            (false, Length::Int32) => 4,
        }
    }

    pub(super) fn put<B: BufMut>(self, length: usize, buf: &mut B, at: At) -> Result<()> {
        let max =
            if at.flexible || matches!(self, Length::Int32) { i32::MAX as usize } else { i16::MAX as usize };
        ensure!(length <= max, "a length of {length} is more than the {max} that can be written");
        match (at.flexible, self) {
            (true, _) => put_varint(buf, length as u32 + 1),
            (false, Length::Int16) => buf.put_i16(length as i16),
            (false, Length::Int32) => buf.put_i32(length as i32),
        }
        Ok(())
    }

    fn put_null<B: BufMut>(self, buf: &mut B, at: At) {
        match (at.flexible, self) {
            (true, _) => put_varint(buf, 0),
            (false, Length::Int16) => buf.put_i16(-1),
            (false, Length::Int32) => buf.put_i32(-1),
        }
    }

    fn null_size(self, at: At) -> usize {
        match (at.flexible, self) {
            (true, _) => 1,
            (false, Length::Int16) => 2,
            (false, Length::Int32) => 4,
        }
    }

    /// The length, or none for null. Every item takes a byte at least, so a length beyond what remains is refused.
    fn get<B: ByteBuf>(self, buf: &mut B, at: At) -> Result<Option<usize>> {
        let length = match (at.flexible, self) {
            (true, _) => i64::from(get_varint(buf)?) - 1,
            (false, Length::Int16) => i64::from(buf.try_get_i16()?),
            (false, Length::Int32) => i64::from(buf.try_get_i32()?),
        };
        match usize::try_from(length) {
            Ok(length) if length <= buf.remaining() => Ok(Some(length)),
            Ok(length) => bail!("a length of {length} where {} bytes remain", buf.remaining()),
            Err(_) if length == -1 => Ok(None),
            Err(_) => bail!("a length of {length}"),
        }
    }
}

fn not_null<T>(value: Option<T>) -> Result<T> {
    value.ok_or_else(|| anyhow::anyhow!("null where the schema allows none"))
}

impl Value for StrBytes {
    fn initial() -> Self {
        StrBytes::new()
    }

    fn put<B: ByteBufMut>(&self, buf: &mut B, at: At) -> Result<()> {
        Length::Int16.put(self.len(), buf, at)?;
        buf.put_slice(self.as_bytes());
        Ok(())
    }

    fn size(&self, at: At) -> Result<usize> {
        Ok(Length::Int16.size(self.len(), at) + self.len())
    }

    fn get<B: ByteBuf>(buf: &mut B, at: At) -> Result<Self> {
        not_null(Self::get_nullable(buf, at)?)
    }

    fn to_json(&self, _at: At) -> Result<Json> {
        Ok(Json::from(self.as_str()))
    }
}

impl Nullable for StrBytes {
    fn put_null<B: ByteBufMut>(buf: &mut B, at: At) {
        Length::Int16.put_null(buf, at);
    }

    fn null_size(at: At) -> usize {
        Length::Int16.null_size(at)
    }

    fn get_nullable<B: ByteBuf>(buf: &mut B, at: At) -> Result<Option<Self>> {
        let Some(length) = Length::Int16.get(buf, at)? else { return Ok(None) };
        Ok(Some(StrBytes::try_from(buf.try_get_bytes(length)?)?))
    }
}

impl Value for Bytes {
    fn initial() -> Self {
        Bytes::new()
    }

    fn put<B: ByteBufMut>(&self, buf: &mut B, at: At) -> Result<()> {
        Length::Int32.put(self.len(), buf, at)?;
        buf.put_slice(self);
        Ok(())
    }

    fn size(&self, at: At) -> Result<usize> {
        Ok(Length::Int32.size(self.len(), at) + self.len())
    }

    fn get<B: ByteBuf>(buf: &mut B, at: At) -> Result<Self> {
        not_null(Self::get_nullable(buf, at)?)
    }

    fn to_json(&self, _at: At) -> Result<Json> {
        Ok(Json::from(json::base64(self)))
    }
}

impl Nullable for Bytes {
    fn put_null<B: ByteBufMut>(buf: &mut B, at: At) {
        Length::Int32.put_null(buf, at);
    }

    fn null_size(at: At) -> usize {
        Length::Int32.null_size(at)
    }

    fn get_nullable<B: ByteBuf>(buf: &mut B, at: At) -> Result<Option<Self>> {
        let Some(length) = Length::Int32.get(buf, at)? else { return Ok(None) };
        Ok(Some(buf.try_get_bytes(length)?))
    }
}

impl<T: Value> Value for Vec<T> {
    fn initial() -> Self {
        Vec::new()
    }

    fn put<B: ByteBufMut>(&self, buf: &mut B, at: At) -> Result<()> {
        Length::Int32.put(self.len(), buf, at)?;
        self.iter().try_for_each(|item| item.put(buf, at))
    }

    fn size(&self, at: At) -> Result<usize> {
        let length = Length::Int32.size(self.len(), at);
        self.iter().try_fold(length, |sum, item| Ok(sum + item.size(at)?))
    }

    fn get<B: ByteBuf>(buf: &mut B, at: At) -> Result<Self> {
        not_null(Self::get_nullable(buf, at)?)
    }

    fn to_json(&self, at: At) -> Result<Json> {
        self.iter().map(|item| item.to_json(at)).collect()
    }
}

impl<T: Value> Nullable for Vec<T> {
    fn put_null<B: ByteBufMut>(buf: &mut B, at: At) {
        Length::Int32.put_null(buf, at);
    }

    fn null_size(at: At) -> usize {
        Length::Int32.null_size(at)
    }

    fn get_nullable<B: ByteBuf>(buf: &mut B, at: At) -> Result<Option<Self>> {
        let Some(length) = Length::Int32.get(buf, at)? else { return Ok(None) };
        // Items in memory can be many times larger than their bytes: let the vector grow with what really comes.
        let mut items = Vec::with_capacity(length.min(1024));
        for _ in 0..length {
            items.push(T::get(buf, at)?);
        }
        Ok(Some(items))
    }
}

/// Writes an unsigned number in groups of seven bits, the lowest first.
pub fn put_varint<B: BufMut>(buf: &mut B, mut value: u32) {
    while value >= 0x80 {
        buf.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    buf.put_u8(value as u8);
}

/// Reads what `put_varint` writes.
pub fn get_varint<B: Buf>(buf: &mut B) -> Result<u32> {
    let mut value = 0u32;
    for shift in [0, 7, 14, 21, 28] {
        let byte = buf.try_get_u8()?;
        value |= u32::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    bail!("a varint longer than five bytes")
}

/// How many bytes `put_varint` writes.
pub fn varint_size(value: u32) -> usize {
    (32 - (value | 1).leading_zeros() as usize).div_ceil(7)
}
