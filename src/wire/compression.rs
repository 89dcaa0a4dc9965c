//! The compression codecs of record batches.

use thiserror::Error;

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
}
