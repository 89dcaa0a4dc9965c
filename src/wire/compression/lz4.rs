//! The LZ4 frame format, as much of it as Kafka's clients write and read.
//!
//! Owns the frame: descriptor, blocks, checksums (xxHash32). Leaves the blocks themselves to the LZ4 library. Invariant:
//! blocks are independent of one another, on write and on read.

use lz4::block::{CompressionMode, compress_bound, compress_to_buffer, decompress_to_buffer};

use super::{Chunk, Compression, DecompressError, Scratch};

/// The level at which Kafka uses the fast compressor; every other means the high-compression one.
pub(super) const DEFAULT_LEVEL: i32 = 9;

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// Version 1, independent blocks, nothing optional.
const FLAGS: u8 = 0b0110_0000;
/// Blocks of 64 KiB.
const BLOCK_DESCRIPTOR: u8 = 4 << 4;
const BLOCK: usize = 64 * 1024;
const STORED: u32 = 1 << 31;
/// More than LZ4 can expand anything by.
const EXPANSION_MAX: usize = 256;

pub(super) fn compress(input: &[u8], level: i32) -> std::io::Result<Vec<u8>> {
    let mode = match level {
        DEFAULT_LEVEL => CompressionMode::DEFAULT,
        level => CompressionMode::HIGHCOMPRESSION(level),
    };
    let mut output = Vec::with_capacity(input.len() / 2 + 32);
    output.extend_from_slice(&MAGIC);
    output.extend_from_slice(&[FLAGS, BLOCK_DESCRIPTOR, descriptor_checksum(&[FLAGS, BLOCK_DESCRIPTOR])]);
    let mut buffer = vec![0; compress_bound(BLOCK.min(input.len()))?];
    for block in input.chunks(BLOCK) {
        let len = compress_to_buffer(block, Some(mode), false, &mut buffer)?;
        let (size, bytes) = match len < block.len() {
            true => (len as u32, &buffer[..len]),
            false => (block.len() as u32 | STORED, block),
        };
        output.extend_from_slice(&size.to_le_bytes());
        output.extend_from_slice(bytes);
    }
    output.extend_from_slice(&[0; 4]);
    Ok(output)
}

/// The blocks of one frame.
pub(super) struct Frame<'i> {
    input: &'i [u8],
    block_max: usize,
    block_checksums: bool,
    ended: bool,
}

impl<'i> Frame<'i> {
    /// Reads the frame's descriptor.
    pub(super) fn new(input: &'i [u8]) -> Result<Frame<'i>, DecompressError> {
        let mut frame = Frame { input, block_max: 0, block_checksums: false, ended: false };
        if frame.take(4)? != MAGIC {
            return Err(corrupt("no frame starts here"));
        }
        let start = frame.input;
        let (flags, block_descriptor) = (frame.take(1)?[0], frame.take(1)?[0]);
        if flags >> 6 != 1 || flags & 0b11 != 0 {
            return Err(corrupt("the frame's version or flags are unknown"));
        }
        if flags & 0b10_0000 == 0 {
            return Err(corrupt("the blocks depend on one another"));
        }
        if flags & 0b1000 != 0 {
            frame.take(8)?;
        }
        let descriptor = &start[..start.len() - frame.input.len()];
        if frame.take(1)?[0] != descriptor_checksum(descriptor) {
            return Err(corrupt("the checksum of the frame's descriptor is wrong"));
        }
        if block_descriptor & 0b1000_1111 != 0 || block_descriptor >> 4 < 4 {
            return Err(corrupt("the block size is unknown"));
        }
        frame.block_max = 1 << (2 * (block_descriptor >> 4) + 8);
        frame.block_checksums = flags & 0b1_0000 != 0;
        Ok(frame)
    }

    /// The next block, decompressed; `None` after the frame's end mark. What follows it is ignored, the content's
    /// checksum too, as by Kafka.
    pub(super) fn next(&mut self, scratch: &mut Scratch) -> Result<Option<Chunk<'i>>, DecompressError> {
        if self.ended {
            return Ok(None);
        }
        let size = u32_of(self.take(4)?);
        if size == 0 {
            self.ended = true;
            return Ok(None);
        }
        let len = (size & !STORED) as usize;
        if len > self.block_max {
            return Err(corrupt("a block is longer than the frame allows"));
        }
        let block = self.take(len)?;
        if self.block_checksums && u32_of(self.take(4)?) != xxh32(block) {
            return Err(corrupt("the checksum of a block is wrong"));
        }
        if size & STORED != 0 {
            return Ok(Some(Chunk::Input(block)));
        }
        let buffer = scratch.buffer(self.block_max.min(len * EXPANSION_MAX));
        let written = decompress_to_buffer(block, Some(buffer.len() as i32), buffer)
            .map_err(|e| DecompressError::corrupt(Compression::Lz4, &e))?;
        Ok(Some(Chunk::Scratch(written)))
    }

    fn take(&mut self, len: usize) -> Result<&'i [u8], DecompressError> {
        let (taken, rest) =
            self.input.split_at_checked(len).ok_or_else(|| corrupt("the frame is cut short"))?;
        self.input = rest;
        Ok(taken)
    }
}

/// The frame with the right checksum of its descriptor.
pub(super) fn with_sound_descriptor(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let flags = frame.get(MAGIC.len()).copied().unwrap_or(0);
    let end = MAGIC.len() + if flags & 0b1000 != 0 { 10 } else { 2 };
    if let Some((before, [checksum, ..])) = frame.split_at_mut_checked(end) {
        *checksum = descriptor_checksum(&before[MAGIC.len()..]);
    }
    frame
}

fn corrupt(reason: &str) -> DecompressError {
    DecompressError::corrupt(Compression::Lz4, &reason)
}

fn descriptor_checksum(descriptor: &[u8]) -> u8 {
    (xxh32(descriptor) >> 8) as u8
}

fn u32_of(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

const PRIMES: [u32; 5] = [2_654_435_761, 2_246_822_519, 3_266_489_917, 668_265_263, 374_761_393];

/// xxHash32 with seed 0.
fn xxh32(bytes: &[u8]) -> u32 {
    let [p1, p2, p3, p4, p5] = PRIMES;
    let mut stripes = bytes.chunks_exact(16);
    let mut hash = p5;
    if bytes.len() >= 16 {
        let mut lanes = [p1.wrapping_add(p2), p2, 0, 0u32.wrapping_sub(p1)];
        for stripe in stripes.by_ref() {
            for (lane, word) in lanes.iter_mut().zip(stripe.chunks_exact(4)) {
                *lane = lane.wrapping_add(u32_of(word).wrapping_mul(p2)).rotate_left(13).wrapping_mul(p1);
            }
        }
        hash = [1, 7, 12, 18]
            .iter()
            .zip(lanes)
            .fold(0u32, |sum, (&bits, lane)| sum.wrapping_add(lane.rotate_left(bits)));
    }
    hash = hash.wrapping_add(bytes.len() as u32);
    let mut words = stripes.remainder().chunks_exact(4);
    for word in words.by_ref() {
        hash = hash.wrapping_add(u32_of(word).wrapping_mul(p3)).rotate_left(17).wrapping_mul(p4);
    }
    for &byte in words.remainder() {
        hash = hash.wrapping_add(u32::from(byte).wrapping_mul(p5)).rotate_left(11).wrapping_mul(p1);
    }
    hash = (hash ^ hash >> 15).wrapping_mul(p2);
    hash = (hash ^ hash >> 13).wrapping_mul(p3);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xxh32_gives_the_published_values() {
        assert_eq!(xxh32(b""), 0x02cc_5d05);
        assert_eq!(xxh32(b"abc"), 0x32d1_53ff);
        assert_eq!(xxh32(b"abcdefghijklmnopqrstuvwxyz"), 0x63a1_4d5f);
    }

    #[test]
    fn the_descriptor_is_the_one_that_java_clients_write() {
        assert_eq!(compress(b"", 9).unwrap(), [4, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82, 0, 0, 0, 0]);
    }

    #[test]
    fn dependent_blocks_and_unknown_flags_are_refused() {
        for (flags, descriptor) in [(0x40, 0x40), (0x61, 0x40), (0xa0, 0x40), (0x60, 0x30), (0x60, 0x41)] {
            let checksum = descriptor_checksum(&[flags, descriptor]);
            let frame = [&MAGIC[..], &[flags, descriptor, checksum, 0, 0, 0, 0]].concat();
            assert!(Frame::new(&frame).is_err(), "{flags:#x} {descriptor:#x}");
        }
        let wrong_checksum = [&MAGIC[..], &[FLAGS, BLOCK_DESCRIPTOR, 0, 0, 0, 0, 0]].concat();
        assert!(Frame::new(&wrong_checksum).is_err());
    }

    #[test]
    fn frames_of_other_writers_are_read() {
        let mut encoder = lz4::EncoderBuilder::new()
            .block_mode(lz4::BlockMode::Independent)
            .block_checksum(lz4::liblz4::BlockChecksum::BlockChecksumEnabled)
            .block_size(lz4::BlockSize::Max1MB)
            .content_size(300_000)
            .build(Vec::new())
            .unwrap();
        let sample = b"0123456789".repeat(30_000);
        std::io::Write::write_all(&mut encoder, &sample).unwrap();
        let (frame, result) = encoder.finish();
        result.unwrap();
        let output = super::super::decompress(Compression::Lz4, &frame, 300_000, &mut Scratch::new());
        assert!(output.unwrap() == sample);
    }
}
