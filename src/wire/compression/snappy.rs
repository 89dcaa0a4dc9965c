//! Snappy as Kafka's clients send it: Java's block framing, or one bare block.
//!
//! Owns the framing; leaves the blocks to the snappy library. Invariant: a block's declared length is believed only as
//! far as its bytes could expand to it.

use super::{Compression, DecompressError, Scratch};

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// Magic, version of the writer, least version of a reader.
const HEADER_LEN: usize = 16;
const VERSION: u32 = 1;
const BLOCK: usize = 32 * 1024;
/// More than any element can copy: three bytes make at most 64.
const EXPANSION_MAX: usize = 32;

pub(super) fn compress(input: &[u8]) -> Result<Vec<u8>, snap::Error> {
    let mut output = Vec::with_capacity(input.len() / 2 + 64);
    output.extend_from_slice(&MAGIC);
    output.extend_from_slice(&VERSION.to_be_bytes());
    output.extend_from_slice(&VERSION.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    let mut buffer = vec![0; snap::raw::max_compress_len(BLOCK.min(input.len()))];
    for block in input.chunks(BLOCK) {
        let len = encoder.compress(block, &mut buffer)?;
        output.extend_from_slice(&(len as u32).to_be_bytes());
        output.extend_from_slice(&buffer[..len]);
    }
    Ok(output)
}

/// The blocks of an input.
pub(super) enum Blocks<'i> {
    Framed(&'i [u8]),
    /// One block without framing; `None` once it is read.
    Bare(Option<&'i [u8]>),
}

impl<'i> Blocks<'i> {
    pub(super) fn new(input: &'i [u8]) -> Result<Blocks<'i>, DecompressError> {
        if input.starts_with(&MAGIC) {
            Ok(Blocks::Framed(after_header(input)?))
        } else {
            Ok(Blocks::Bare((!input.is_empty()).then_some(input)))
        }
    }

    /// Decompresses the next block, which may make `allowed` bytes, into the scratch buffer and returns its length;
    /// `None` at the end.
    pub(super) fn next(
        &mut self,
        allowed: usize,
        scratch: &mut Scratch,
    ) -> Result<Option<usize>, DecompressError> {
        let block = match self {
            Blocks::Bare(block) => block.take(),
            Blocks::Framed(rest) => {
                // A writer that was flushed and opened again repeats the header.
                while rest.starts_with(&MAGIC) {
                    *rest = after_header(rest)?;
                }
                next_framed(rest)?
            }
        };
        block.map(|block| decompress(block, allowed, scratch)).transpose()
    }
}

fn after_header(input: &[u8]) -> Result<&[u8], DecompressError> {
    let Some((header, rest)) = input.split_at_checked(HEADER_LEN) else {
        return Err(corrupt("the header is cut short"));
    };
    match u32_of(&header[8..12]) {
        0 => Err(corrupt("the framing has version 0")),
        _ => Ok(rest),
    }
}

fn next_framed<'i>(rest: &mut &'i [u8]) -> Result<Option<&'i [u8]>, DecompressError> {
    if rest.is_empty() {
        return Ok(None);
    }
    let Some((len, after)) = rest.split_at_checked(4) else {
        return Err(corrupt("the length of a block is cut short"));
    };
    let Some((block, after)) = after.split_at_checked(u32_of(len) as usize) else {
        return Err(corrupt("a block is cut short"));
    };
    *rest = after;
    Ok(Some(block))
}

fn decompress(block: &[u8], allowed: usize, scratch: &mut Scratch) -> Result<usize, DecompressError> {
    let len = snap::raw::decompress_len(block).map_err(|e| corrupt(&e.to_string()))?;
    if len > block.len() * EXPANSION_MAX {
        return Err(corrupt("a block cannot expand to its length"));
    }
    if len > allowed {
        return Err(DecompressError::TooLarge { limit: allowed });
    }
    snap::raw::Decoder::new().decompress(block, scratch.buffer(len)).map_err(|e| corrupt(&e.to_string()))
}

fn corrupt(reason: &str) -> DecompressError {
    DecompressError::corrupt(Compression::Snappy, &reason)
}

fn u32_of(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[u8]) -> Result<Vec<u8>, DecompressError> {
        super::super::decompress(Compression::Snappy, input, 100_000, &mut Scratch::new())
    }

    #[test]
    fn bare_blocks_and_repeated_headers_are_read() {
        let bare = snap::raw::Encoder::new().compress_vec(b"from librdkafka").unwrap();
        assert_eq!(read(&bare).unwrap(), b"from librdkafka");
        let framed = [compress(b"one ").unwrap(), compress(b"two").unwrap()].concat();
        assert_eq!(read(&framed).unwrap(), b"one two");
        assert_eq!(read(&compress(b"").unwrap()).unwrap(), b"");
        assert_eq!(read(b"").unwrap(), b"");
    }

    #[test]
    fn lengths_that_cannot_be_are_refused_before_memory_is_taken() {
        // A varint length of almost 4 GiB, and next to nothing after it.
        assert!(matches!(read(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 1]), Err(DecompressError::Corrupt { .. })));
        let huge = [&compress(b"x").unwrap()[..], &[0x7f, 0xff, 0xff, 0xff, 1, 2]].concat();
        assert!(matches!(read(&huge), Err(DecompressError::Corrupt { .. })));
    }
}
