//! The checked frame in which the metadata log's segments hold entries. All numbers are big-endian.
//!
//! ```text
//!  0  u32  magic "FMRL"
//!  4  u32  length of the payload
//!  8  u32  CRC-32C of the length, of all that follows this field, and of the payload
//! 12  u64  index of the entry
//! 20  u64  durable: every entry below this index had been synced when the frame was written
//! 28  u64  committed: every entry below this index was known to be committed when the frame was written
//! 36       payload: the entry as in `codec`
//! ```
//!
//! `durable` tells a torn tail from damage: a frame that does not check out was lost in a crash, unless a later frame
//! says that it had been synced. `committed` lets a restarted node rebuild its image without asking a leader, at no
//! write of its own. Knows no files. Invariant: what `read` accepts is byte for byte what `write` made.

use bytes::{BufMut, Bytes, BytesMut};

pub const HEADER_LEN: usize = 36;
const MAGIC: [u8; 4] = *b"FMRL";
const CRC_AT: usize = 8;
const CRC_END: usize = 12;

/// One frame; the payload shares the bytes that it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub index: u64,
    pub durable: u64,
    pub committed: u64,
    pub payload: Bytes,
}

impl Frame {
    pub fn len(&self) -> usize {
        HEADER_LEN + self.payload.len()
    }

    /// Appends the frame to `into`.
    pub fn write(&self, into: &mut BytesMut) {
        let start = into.len();
        into.reserve(self.len());
        into.put_slice(&MAGIC);
        into.put_u32(u32::try_from(self.payload.len()).expect("an entry is far below 4 GiB"));
        into.put_u32(0);
        into.put_u64(self.index);
        into.put_u64(self.durable);
        into.put_u64(self.committed);
        into.put_slice(&self.payload);
        let crc = checksum(&into[start..]);
        into[start + CRC_AT..start + CRC_END].copy_from_slice(&crc.to_be_bytes());
    }

    /// The frame at the start of `bytes`; `None` when there is no whole and undamaged one.
    pub fn read(bytes: &Bytes) -> Option<Frame> {
        let header = bytes.first_chunk::<HEADER_LEN>()?;
        if header[..4] != MAGIC {
            return None;
        }
        let len = HEADER_LEN.checked_add(be_u32(header, 4) as usize)?;
        let whole = bytes.get(..len)?;
        if be_u32(header, CRC_AT) != checksum(whole) {
            return None;
        }
        Some(Frame {
            index: be_u64(header, 12),
            durable: be_u64(header, 20),
            committed: be_u64(header, 28),
            payload: bytes.slice(HEADER_LEN..len),
        })
    }

    /// The whole frames that begin anywhere in `bytes`, for telling what damage has hit.
    pub fn find_all(bytes: &Bytes) -> impl Iterator<Item = Frame> {
        let starts = bytes.windows(MAGIC.len()).enumerate().filter(|(_, window)| *window == MAGIC);
        starts.filter_map(|(at, _)| Frame::read(&bytes.slice(at..)))
    }
}

fn checksum(frame: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&frame[4..CRC_AT]), &frame[CRC_END..])
}

fn be_u32(header: &[u8; HEADER_LEN], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

fn be_u64(header: &[u8; HEADER_LEN], at: usize) -> u64 {
    u64::from(be_u32(header, at)) << 32 | u64::from(be_u32(header, at + 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(index: u64, durable: u64, payload: &'static [u8]) -> Frame {
        Frame { index, durable, committed: 1, payload: Bytes::from_static(payload) }
    }

    fn bytes_of(frames: &[Frame]) -> BytesMut {
        let mut bytes = BytesMut::new();
        frames.iter().for_each(|frame| frame.write(&mut bytes));
        bytes
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let written = frame(3, 2, b"payload");
        let bytes = bytes_of(std::slice::from_ref(&written));
        assert_eq!(Frame::read(&bytes.clone().freeze()), Some(written));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Frame::read(&damaged.freeze()), None, "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(Frame::read(&bytes.clone().freeze().slice(..len)), None);
        }
    }

    #[test]
    fn frames_are_found_behind_damage() {
        let frames = [frame(4, 4, b"a"), frame(5, 4, b"b"), frame(6, 6, b"c")];
        let mut bytes = bytes_of(&frames);
        bytes[20] ^= 1;
        assert_eq!(Frame::find_all(&bytes.freeze()).collect::<Vec<_>>(), frames[1..]);
    }
}
