//! The `records` of a message: record batches in the pieces in which the log gave them, each a slice of somebody's
//! buffer. It must not look into them.
//!
//! Encoders write each piece by itself, so that `wire::rope` can keep every one by reference. A decoder gives one piece.

use super::codec::At;
use super::value::{Length, Nullable, Value};
use anyhow::Result;
use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::buf::{ByteBuf, ByteBufMut};
use serde_json::Value as Json;
use std::collections::VecDeque;

/// Record batches, one after the other.
#[derive(Clone, Debug, Default)]
pub struct RecordBytes {
    pieces: VecDeque<Bytes>,
    len: usize,
}

impl RecordBytes {
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// In bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        self.pieces.iter()
    }

    /// All in one piece; copies if there are several.
    pub fn into_bytes(mut self) -> Bytes {
        if self.pieces.len() < 2 {
            return self.pieces.pop_front().unwrap_or_default();
        }
        let mut bytes = BytesMut::with_capacity(self.len);
        for piece in &self.pieces {
            bytes.extend_from_slice(piece);
        }
        bytes.freeze()
    }
}

impl From<Bytes> for RecordBytes {
    fn from(bytes: Bytes) -> RecordBytes {
        [bytes].into_iter().collect()
    }
}

impl From<Vec<Bytes>> for RecordBytes {
    fn from(pieces: Vec<Bytes>) -> RecordBytes {
        pieces.into_iter().collect()
    }
}

impl FromIterator<Bytes> for RecordBytes {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> RecordBytes {
        let mut records = RecordBytes::default();
        for piece in pieces {
            records.push(piece);
        }
        records
    }
}

/// Equal when the bytes are, whatever the pieces.
impl PartialEq for RecordBytes {
    fn eq(&self, other: &RecordBytes) -> bool {
        self.len == other.len && self.pieces.iter().flatten().eq(other.pieces.iter().flatten())
    }
}

impl Value for RecordBytes {
    fn initial() -> RecordBytes {
        RecordBytes::default()
    }

    fn put<B: ByteBufMut>(&self, buf: &mut B, at: At) -> Result<()> {
        Length::Int32.put(self.len, buf, at)?;
        for piece in &self.pieces {
            buf.put_slice(piece);
        }
        Ok(())
    }

    fn size(&self, at: At) -> Result<usize> {
        Ok(Length::Int32.size(self.len, at) + self.len)
    }

    fn get<B: ByteBuf>(buf: &mut B, at: At) -> Result<RecordBytes> {
        Bytes::get(buf, at).map(RecordBytes::from)
    }

    fn to_json(&self, at: At) -> Result<Json> {
        self.clone().into_bytes().to_json(at)
    }
}

impl Nullable for RecordBytes {
    fn put_null<B: ByteBufMut>(buf: &mut B, at: At) {
        Bytes::put_null(buf, at);
    }

    fn null_size(at: At) -> usize {
        Bytes::null_size(at)
    }

    fn get_nullable<B: ByteBuf>(buf: &mut B, at: At) -> Result<Option<RecordBytes>> {
        Ok(Bytes::get_nullable(buf, at)?.map(RecordBytes::from))
    }
}
