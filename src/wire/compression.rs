//! The compression codecs of record batches, framed exactly as Kafka's clients frame and expect them.
//!
//! Owns the codecs, their levels, and decompression as a stream of chunks out of reused buffers. Knows nothing of
//! batches or records. Invariant: no input makes a decoder produce more than its limit, nor hold much more memory than
//! what the input really expands to.
//!
//! * gzip: RFC 1952, several members allowed.
//! * snappy: blocks of 32 KiB in the framing of Java's snappy library; on read also one bare block, as librdkafka sends.
//! * lz4: the frame format with independent blocks of 64 KiB; on read any block size, independent only, since the
//!   Java client reads no others.
//! * zstd: frames.

mod lz4;
mod snappy;

use std::io::{Read, Write};

use thiserror::Error;
use zstd::stream::raw::{InBuffer, Operation, OutBuffer};

/// A codec, as the attributes of a batch name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    #[default]
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// A codec number that no Kafka version knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0} is not the number of a compression codec")]
pub struct UnknownCompression(pub u8);

/// A level that the codec does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{} has no compression level {level}", .compression.name())]
pub struct UnknownLevel {
    pub compression: Compression,
    pub level: i32,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{} compression failed: {reason}", .compression.name())]
pub struct CompressError {
    pub compression: Compression,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecompressError {
    #[error("the bytes are not valid {}: {reason}", .compression.name())]
    Corrupt { compression: Compression, reason: String },
    #[error("the bytes expand to more than the {limit} bytes allowed")]
    TooLarge { limit: usize },
}

impl DecompressError {
    fn corrupt(compression: Compression, reason: &dyn ToString) -> DecompressError {
        DecompressError::Corrupt { compression, reason: reason.to_string() }
    }
}

impl Compression {
    pub const ALL: [Compression; 5] =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

    /// The codec's number in the attributes of a batch.
    pub fn id(self) -> u8 {
        self as u8
    }

    pub fn from_id(id: u8) -> Result<Compression, UnknownCompression> {
        Compression::ALL.get(usize::from(id)).copied().ok_or(UnknownCompression(id))
    }

    /// The codec's name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    /// Kafka's default level; 0 for codecs without levels.
    pub fn default_level(self) -> i32 {
        match self {
            Compression::None | Compression::Snappy => 0,
            Compression::Gzip => -1,
            Compression::Lz4 => lz4::DEFAULT_LEVEL,
            Compression::Zstd => 3,
        }
    }

    fn has_level(self, level: i32) -> bool {
        match self {
            Compression::None | Compression::Snappy => level == 0,
            Compression::Gzip => level == -1 || (1..=9).contains(&level),
            Compression::Lz4 => (1..=17).contains(&level),
            Compression::Zstd => (-131_072..=22).contains(&level),
        }
    }
}

/// A codec with a level, ready to compress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Codec {
    compression: Compression,
    level: i32,
}

impl Codec {
    pub const NONE: Codec = Codec { compression: Compression::None, level: 0 };

    pub fn new(compression: Compression, level: i32) -> Result<Codec, UnknownLevel> {
        if compression.has_level(level) {
            Ok(Codec { compression, level })
        } else {
            Err(UnknownLevel { compression, level })
        }
    }

    pub fn compression(self) -> Compression {
        self.compression
    }

    pub fn compress(self, input: &[u8]) -> Result<Vec<u8>, CompressError> {
        let failed = |reason: String| CompressError { compression: self.compression, reason };
        match self.compression {
            Compression::None => Ok(input.to_vec()),
            Compression::Gzip => gzip(input, self.level).map_err(|e| failed(e.to_string())),
            Compression::Snappy => snappy::compress(input).map_err(|e| failed(e.to_string())),
            Compression::Lz4 => lz4::compress(input, self.level).map_err(|e| failed(e.to_string())),
            Compression::Zstd => zstd::bulk::compress(input, self.level).map_err(|e| failed(e.to_string())),
        }
    }
}

impl From<Compression> for Codec {
    /// The codec at Kafka's default level.
    fn from(compression: Compression) -> Codec {
        Codec { compression, level: compression.default_level() }
    }
}

fn gzip(input: &[u8], level: i32) -> std::io::Result<Vec<u8>> {
    let level = match u32::try_from(level) {
        Ok(level) => flate2::Compression::new(level),
        Err(_) => flate2::Compression::default(),
    };
    let mut encoder = flate2::write::GzEncoder::new(Vec::with_capacity(input.len() / 2 + 32), level);
    encoder.write_all(input)?;
    encoder.finish()
}

/// Decompresses all of `input`; an error when it expands to more than `limit` bytes.
pub fn decompress(
    compression: Compression,
    input: &[u8],
    limit: usize,
    scratch: &mut Scratch,
) -> Result<Vec<u8>, DecompressError> {
    let mut decoder = Decoder::new(compression, input, limit, scratch)?;
    let mut output = Vec::new();
    while decoder.fill()? {
        let chunk = decoder.buffered();
        output.extend_from_slice(chunk);
        let len = chunk.len();
        decoder.consume(len);
    }
    Ok(output)
}

/// An lz4 frame whose descriptor has the right checksum, whatever it had.
pub fn with_sound_lz4_descriptor(frame: &[u8]) -> Vec<u8> {
    lz4::with_sound_descriptor(frame)
}

/// How much a streaming codec hands out at a time.
const CHUNK: usize = 64 * 1024;
/// Buffers larger than this are given back after use.
const KEEP: usize = 1024 * 1024;

/// The buffers of a decoder, kept from one batch to the next.
#[derive(Default)]
pub struct Scratch {
    chunk: Vec<u8>,
    zstd: Option<zstd::stream::raw::Decoder<'static>>,
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch::default()
    }

    /// The first `len` bytes of the buffer, which grows as needed.
    fn buffer(&mut self, len: usize) -> &mut [u8] {
        if self.chunk.len() < len {
            self.chunk.resize(len, 0);
        }
        &mut self.chunk[..len]
    }
}

/// Decompresses one input as a stream: `fill` makes the next chunk, `buffered` shows what of it is not consumed yet.
pub struct Decoder<'i, 's> {
    source: Source<'i>,
    scratch: &'s mut Scratch,
    /// The chunk in the scratch buffer, or in the input where the bytes are stored as they are.
    chunk: Chunk<'i>,
    position: usize,
    produced: usize,
    limit: usize,
}

enum Source<'i> {
    Plain(&'i [u8]),
    Gzip(Box<flate2::bufread::MultiGzDecoder<&'i [u8]>>),
    Snappy(snappy::Blocks<'i>),
    Lz4(lz4::Frame<'i>),
    Zstd(Zstd<'i>),
}

struct Zstd<'i> {
    input: &'i [u8],
    between_frames: bool,
}

enum Chunk<'i> {
    Scratch(usize),
    Input(&'i [u8]),
}

impl<'i, 's> Decoder<'i, 's> {
    pub fn new(
        compression: Compression,
        input: &'i [u8],
        limit: usize,
        scratch: &'s mut Scratch,
    ) -> Result<Decoder<'i, 's>, DecompressError> {
        let source = match compression {
            Compression::None => Source::Plain(input),
            Compression::Gzip => Source::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(input))),
            Compression::Snappy => Source::Snappy(snappy::Blocks::new(input)?),
            Compression::Lz4 => Source::Lz4(lz4::Frame::new(input)?),
            Compression::Zstd => {
                match &mut scratch.zstd {
                    Some(decoder) => decoder.reinit(),
                    none => zstd::stream::raw::Decoder::new().map(|decoder| *none = Some(decoder)),
                }
                .map_err(|e| DecompressError::corrupt(compression, &e))?;
                Source::Zstd(Zstd { input, between_frames: true })
            }
        };
        Ok(Decoder { source, scratch, chunk: Chunk::Input(&[]), position: 0, produced: 0, limit })
    }

    /// The decompressed bytes at hand.
    pub fn buffered(&self) -> &[u8] {
        let chunk = match self.chunk {
            Chunk::Scratch(len) => &self.scratch.chunk[..len],
            Chunk::Input(bytes) => bytes,
        };
        &chunk[self.position..]
    }

    pub fn consume(&mut self, len: usize) {
        self.position += len;
    }

    /// Makes sure that something is buffered; false at the end.
    pub fn fill(&mut self) -> Result<bool, DecompressError> {
        while self.buffered().is_empty() {
            let allowed = self.limit - self.produced;
            self.position = 0;
            self.chunk = match &mut self.source {
                Source::Plain(input) => Chunk::Input(std::mem::take(input)),
                Source::Gzip(decoder) => {
                    let read = decoder.read(self.scratch.buffer(CHUNK));
                    Chunk::Scratch(read.map_err(|e| DecompressError::corrupt(Compression::Gzip, &e))?)
                }
                Source::Snappy(blocks) => match blocks.next(allowed, self.scratch) {
                    Ok(Some(len)) => Chunk::Scratch(len),
                    Ok(None) => return Ok(false),
                    Err(DecompressError::TooLarge { .. }) => return Err(self.too_large()),
                    Err(error) => return Err(error),
                },
                Source::Lz4(frame) => match frame.next(self.scratch)? {
                    Some(chunk) => chunk,
                    None => return Ok(false),
                },
                Source::Zstd(zstd) => Chunk::Scratch(zstd.next(self.scratch)?),
            };
            let len = self.buffered().len();
            if len > allowed {
                self.chunk = Chunk::Input(&[]);
                return Err(self.too_large());
            }
            if len == 0 && !matches!(self.source, Source::Snappy(_) | Source::Lz4(_)) {
                return Ok(false);
            }
            self.produced += len;
        }
        Ok(true)
    }

    fn too_large(&self) -> DecompressError {
        DecompressError::TooLarge { limit: self.limit }
    }
}

impl Drop for Decoder<'_, '_> {
    fn drop(&mut self) {
        if self.scratch.chunk.len() > KEEP {
            self.scratch.chunk = Vec::new();
        }
        // The decoder keeps its window, of which it has touched no more than it made.
        if self.produced > KEEP {
            self.scratch.zstd = None;
        }
    }
}

impl Zstd<'_> {
    /// Decompresses up to a chunk into the scratch buffer and returns its length; 0 at the end.
    fn next(&mut self, scratch: &mut Scratch) -> Result<usize, DecompressError> {
        let corrupt = |reason: &str| DecompressError::corrupt(Compression::Zstd, &reason);
        scratch.buffer(CHUNK);
        let Scratch { chunk, zstd: Some(decoder) } = scratch else {
            return Err(corrupt("no decoder"));
        };
        loop {
            if self.input.is_empty() && self.between_frames {
                return Ok(0);
            }
            let mut input = InBuffer::around(self.input);
            let mut output = OutBuffer::around(&mut chunk[..CHUNK]);
            let hint = decoder.run(&mut input, &mut output).map_err(|e| corrupt(&e.to_string()))?;
            let (read, written) = (input.pos(), output.pos());
            self.input = &self.input[read..];
            self.between_frames = hint == 0;
            if written > 0 {
                return Ok(written);
            }
            if read == 0 && !self.between_frames {
                return Err(corrupt("the last frame is cut short"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;

    fn all(compression: Compression, input: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
        decompress(compression, input, limit, &mut Scratch::new())
    }

    static SAMPLES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(samples);

    fn samples() -> Vec<Vec<u8>> {
        let mut noise = 1u32;
        let mut random = |n: usize| -> Vec<u8> {
            (0..n)
                .map(|_| {
                    noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (noise >> 24) as u8
                })
                .collect()
        };
        vec![
            b"x".to_vec(),
            b"a flood of water ".repeat(20_000),
            random(200_000),
            [vec![0; 70_000], random(70_000)].concat(),
            random(CHUNK),
            vec![7; 2 * CHUNK],
        ]
    }

    #[test]
    fn every_codec_gives_back_what_it_was_given() {
        for compression in Compression::ALL {
            for sample in SAMPLES.iter() {
                let compressed = Codec::from(compression).compress(sample).unwrap();
                assert!(&all(compression, &compressed, sample.len()).unwrap() == sample, "{compression:?}");
                assert_eq!(
                    all(compression, &compressed, sample.len() - 1),
                    Err(DecompressError::TooLarge { limit: sample.len() - 1 }),
                    "{compression:?}"
                );
            }
        }
    }

    #[test]
    fn every_level_works_and_no_other_is_accepted() {
        let sample = b"the quick brown fox ".repeat(500);
        let levels = [(Compression::Gzip, -1..=9), (Compression::Lz4, 1..=17), (Compression::Zstd, -7..=22)];
        for (compression, range) in levels {
            for level in range.filter(|&l| compression != Compression::Gzip || l != 0) {
                let compressed = Codec::new(compression, level).unwrap().compress(&sample).unwrap();
                assert_eq!(all(compression, &compressed, 1 << 20).unwrap(), sample);
            }
        }
        for (compression, level) in
            [(Compression::Gzip, 0), (Compression::Gzip, 10), (Compression::Lz4, 0), (Compression::Zstd, 23)]
        {
            assert_eq!(Codec::new(compression, level), Err(UnknownLevel { compression, level }));
        }
    }

    #[test]
    fn a_cut_stream_is_an_error_and_never_a_short_answer() {
        for compression in &Compression::ALL[1..] {
            let sample = &SAMPLES[3];
            let compressed = Codec::from(*compression).compress(sample).unwrap();
            for cut in [0, 1, 3, 10, 17, compressed.len() / 2, compressed.len() - 1] {
                match all(*compression, &compressed[..cut], 1 << 20) {
                    Err(DecompressError::Corrupt { .. }) => {}
                    Ok(output) => assert!(output.is_empty() && cut == 0, "{compression:?} cut at {cut}"),
                    Err(error) => panic!("{compression:?} cut at {cut}: {error}"),
                }
            }
        }
    }

    #[test]
    fn zstd_and_gzip_members_may_follow_one_another() {
        for compression in [Compression::Gzip, Compression::Zstd] {
            let one = Codec::from(compression).compress(b"one ").unwrap();
            let two = Codec::from(compression).compress(b"two").unwrap();
            assert_eq!(all(compression, &[one, two].concat(), 100).unwrap(), b"one two");
        }
    }

    /// Every sample by every codec but none.
    static COMPRESSED: LazyLock<Vec<(Compression, Vec<u8>)>> = LazyLock::new(|| {
        let mut compressed = Vec::new();
        for &codec in &Compression::ALL[1..] {
            compressed.extend(SAMPLES.iter().map(|s| (codec, Codec::from(codec).compress(s).unwrap())));
        }
        compressed
    });

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn mutated_input_stays_within_its_limit(
            which in any::<proptest::sample::Index>(),
            flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
            cut in any::<proptest::sample::Index>(),
        ) {
            let (compression, mut compressed) = which.get(&COMPRESSED).clone();
            for (at, byte) in flips {
                let at = at.index(compressed.len());
                compressed[at] = byte;
            }
            compressed.truncate(1 + cut.index(compressed.len()));
            if let Ok(output) = all(compression, &compressed, 300_000) {
                prop_assert!(output.len() <= 300_000);
            }
        }

        #[test]
        fn any_bytes_are_decompressed_without_harm(codec in 0..5usize, input in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = all(Compression::ALL[codec], &input, 10_000);
        }
    }
}
