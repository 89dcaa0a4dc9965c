//! The header of a record batch (magic 2): reading it out of bytes, walking the batches of a byte range, and writing
//! the few fields that a broker sets.
//!
//! Owns the header's layout and its checksum. Knows nothing of the records inside, of compression formats or of logs.
//! Invariant: a header that [`BatchHeader::check_ranges`] accepted has offsets and counts that can be computed with.
//!
//! ```text
//!  0 base offset (8) | 8 length of what follows (4) | 12 leader epoch (4) | 16 magic (1) | 17 CRC-32C (4)
//! 21 attributes (2) | 23 last offset delta (4) | 27 base timestamp (8) | 35 max timestamp (8)
//! 43 producer id (8) | 51 producer epoch (2) | 53 base sequence (4) | 57 record count (4) | 61 records
//! ```
//!
//! The checksum covers everything from the attributes on. Base offset and leader epoch lie before it, so that a leader
//! places a batch in its log without touching the rest.

use std::ops::Range;

use thiserror::Error;

use super::compression::{Compression, UnknownCompression};
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

/// The bytes before the records.
pub const HEADER_LEN: usize = 61;
/// Where the bytes begin that the checksum covers.
pub const CRC_FROM: usize = ATTRIBUTES_AT;
/// The bytes that a batch's length field does not count: base offset and the length itself.
pub const LOG_OVERHEAD: usize = 12;
/// Where the leader epoch is, which the checksum does not cover.
pub const LEADER_EPOCH_AT: usize = 12;
/// The one format that is written; 0 and 1 are the legacy message formats.
pub const MAGIC: i8 = 2;
/// The mark of a batch without sequence numbers.
pub const NO_SEQUENCE: i32 = -1;

const LENGTH_AT: usize = 8;
const MAGIC_AT: usize = 16;
const CRC_AT: usize = 17;
const ATTRIBUTES_AT: usize = 21;
const LAST_OFFSET_DELTA_AT: usize = 23;
const BASE_TIMESTAMP_AT: usize = 27;
const MAX_TIMESTAMP_AT: usize = 35;
const PRODUCER_ID_AT: usize = 43;
const PRODUCER_EPOCH_AT: usize = 51;
const BASE_SEQUENCE_AT: usize = 53;
const RECORD_COUNT_AT: usize = 57;

/// The bytes up to and including the magic, which tell size and format.
const SIZE_AND_MAGIC_LEN: usize = MAGIC_AT + 1;
/// Where a legacy message has its checksum.
const LEGACY_CRC_AT: usize = 12;
/// The least length of a legacy message; anything shorter is no batch of any format.
const LEGACY_LENGTH_MIN: i32 = 14;

/// The checksum of what `crc` is that of, and `more`; that of nothing is 0.
pub fn crc_append(crc: u32, more: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, more)
}

/// Why bytes are not a batch of magic 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BatchError {
    #[error("a batch needs {needed} bytes, and {available} are left")]
    Truncated { needed: usize, available: usize },
    #[error("a batch of length {length} is too short for its header")]
    TooShort { length: i32 },
    #[error("message format {0} is no longer written")]
    LegacyMagic(i8),
    #[error("{0} is not a magic number")]
    UnknownMagic(i8),
    #[error("the checksum of the batch is {stored:#010x}, that of its bytes {computed:#010x}")]
    Crc { stored: u32, computed: u32 },
    #[error("a batch cannot have base offset {base_offset} and last offset delta {last_offset_delta}")]
    OffsetRange { base_offset: Offset, last_offset_delta: i32 },
    #[error("a batch cannot have {0} records")]
    RecordCount(i32),
    #[error("a batch is of leader epoch {found} where epoch {known} wrote")]
    LeaderEpoch { found: LeaderEpoch, known: LeaderEpoch },
}

/// Who sets the timestamps of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// The producer, for each record.
    #[default]
    CreateTime,
    /// The leader, one for the whole batch: its max timestamp.
    LogAppendTime,
}

/// The attribute bits of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes(pub i16);

impl Attributes {
    const COMPRESSION: i16 = 0x07;
    const LOG_APPEND_TIME: i16 = 0x08;
    const TRANSACTIONAL: i16 = 0x10;
    const CONTROL: i16 = 0x20;
    /// The base timestamp says when the tombstones or the marker of the batch may go (KIP-534).
    const DELETE_HORIZON: i16 = 0x40;

    pub fn compression(self) -> Result<Compression, UnknownCompression> {
        Compression::from_id((self.0 & Self::COMPRESSION) as u8)
    }

    pub fn timestamp_type(self) -> TimestampType {
        if self.has(Self::LOG_APPEND_TIME) { TimestampType::LogAppendTime } else { TimestampType::CreateTime }
    }

    pub fn is_transactional(self) -> bool {
        self.has(Self::TRANSACTIONAL)
    }

    pub fn is_control(self) -> bool {
        self.has(Self::CONTROL)
    }

    pub fn has_delete_horizon(self) -> bool {
        self.has(Self::DELETE_HORIZON)
    }

    #[must_use]
    pub fn with_delete_horizon(self, on: bool) -> Attributes {
        self.with(Self::DELETE_HORIZON, on)
    }

    #[must_use]
    pub fn with_compression(self, compression: Compression) -> Attributes {
        Attributes(self.0 & !Self::COMPRESSION | i16::from(compression.id()))
    }

    #[must_use]
    pub fn with_timestamp_type(self, timestamp_type: TimestampType) -> Attributes {
        self.with(Self::LOG_APPEND_TIME, timestamp_type == TimestampType::LogAppendTime)
    }

    #[must_use]
    pub fn with_transactional(self, on: bool) -> Attributes {
        self.with(Self::TRANSACTIONAL, on)
    }

    #[must_use]
    pub fn with_control(self, on: bool) -> Attributes {
        self.with(Self::CONTROL, on)
    }

    fn has(self, bit: i16) -> bool {
        self.0 & bit != 0
    }

    fn with(self, bit: i16, on: bool) -> Attributes {
        Attributes(if on { self.0 | bit } else { self.0 & !bit })
    }
}

/// Every field of a batch header, as read or to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: Offset,
    /// The bytes after this field: the whole batch less [`LOG_OVERHEAD`].
    pub batch_length: i32,
    pub leader_epoch: LeaderEpoch,
    pub magic: i8,
    pub crc: u32,
    pub attributes: Attributes,
    pub last_offset_delta: i32,
    pub base_timestamp: TimestampMs,
    pub max_timestamp: TimestampMs,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub base_sequence: i32,
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`, which need not hold the records. Only what locates the batch is
    /// checked: magic and length; a broken batch can then be told by its checksum before its fields are judged.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        let (magic, size) = magic_and_size(bytes)?;
        if magic != MAGIC {
            return Err(BatchError::LegacyMagic(magic));
        }
        let length = i32_at(bytes, LENGTH_AT);
        if size < HEADER_LEN {
            return Err(BatchError::TooShort { length });
        }
        if bytes.len() < HEADER_LEN {
            return Err(BatchError::Truncated { needed: HEADER_LEN, available: bytes.len() });
        }
        Ok(BatchHeader {
            base_offset: Offset(i64_at(bytes, 0)),
            batch_length: length,
            leader_epoch: LeaderEpoch(i32_at(bytes, LEADER_EPOCH_AT)),
            magic,
            crc: i32_at(bytes, CRC_AT) as u32,
            attributes: Attributes(i16_at(bytes, ATTRIBUTES_AT)),
            last_offset_delta: i32_at(bytes, LAST_OFFSET_DELTA_AT),
            base_timestamp: TimestampMs(i64_at(bytes, BASE_TIMESTAMP_AT)),
            max_timestamp: TimestampMs(i64_at(bytes, MAX_TIMESTAMP_AT)),
            producer_id: ProducerId(i64_at(bytes, PRODUCER_ID_AT)),
            producer_epoch: ProducerEpoch(i16_at(bytes, PRODUCER_EPOCH_AT)),
            base_sequence: i32_at(bytes, BASE_SEQUENCE_AT),
            record_count: i32_at(bytes, RECORD_COUNT_AT),
        })
    }

    /// The header's bytes, with the checksum that it holds.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        put(&mut bytes, 0, self.base_offset.0.to_be_bytes());
        put(&mut bytes, LENGTH_AT, self.batch_length.to_be_bytes());
        put(&mut bytes, LEADER_EPOCH_AT, self.leader_epoch.0.to_be_bytes());
        put(&mut bytes, MAGIC_AT, self.magic.to_be_bytes());
        put(&mut bytes, CRC_AT, self.crc.to_be_bytes());
        put(&mut bytes, ATTRIBUTES_AT, self.attributes.0.to_be_bytes());
        put(&mut bytes, LAST_OFFSET_DELTA_AT, self.last_offset_delta.to_be_bytes());
        put(&mut bytes, BASE_TIMESTAMP_AT, self.base_timestamp.0.to_be_bytes());
        put(&mut bytes, MAX_TIMESTAMP_AT, self.max_timestamp.0.to_be_bytes());
        put(&mut bytes, PRODUCER_ID_AT, self.producer_id.0.to_be_bytes());
        put(&mut bytes, PRODUCER_EPOCH_AT, self.producer_epoch.0.to_be_bytes());
        put(&mut bytes, BASE_SEQUENCE_AT, self.base_sequence.to_be_bytes());
        put(&mut bytes, RECORD_COUNT_AT, self.record_count.to_be_bytes());
        bytes
    }

    /// The whole batch, header and records.
    pub fn size_in_bytes(&self) -> usize {
        LOG_OVERHEAD + self.batch_length.max(0) as usize
    }

    pub fn last_offset(&self) -> Offset {
        Offset(self.base_offset.0.saturating_add(i64::from(self.last_offset_delta)))
    }

    /// The offset after the batch.
    pub fn next_offset(&self) -> Offset {
        Offset(self.last_offset().0.saturating_add(1))
    }

    /// The sequence number of the last record; [`NO_SEQUENCE`] when there are none. Sequences wrap at `i32::MAX`.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence == NO_SEQUENCE {
            NO_SEQUENCE
        } else {
            sequence_plus(self.base_sequence, self.last_offset_delta)
        }
    }

    pub fn has_producer_id(&self) -> bool {
        self.producer_id > ProducerId::NONE
    }

    pub fn compression(&self) -> Result<Compression, UnknownCompression> {
        self.attributes.compression()
    }

    pub fn timestamp_type(&self) -> TimestampType {
        self.attributes.timestamp_type()
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes.is_transactional()
    }

    pub fn is_control(&self) -> bool {
        self.attributes.is_control()
    }

    /// When the tombstones or the marker of the batch may go, once compaction has set it.
    pub fn delete_horizon(&self) -> Option<TimestampMs> {
        self.attributes.has_delete_horizon().then_some(self.base_timestamp)
    }

    /// The largest timestamp of a record that the batch holds; -1 when it has none or none is left.
    pub fn newest_timestamp(&self) -> TimestampMs {
        if self.record_count == 0 { TimestampMs::NONE } else { self.max_timestamp }
    }

    /// The header of what is left of the batch without its records: it still tells offsets and sequences.
    #[must_use]
    pub fn emptied(&self) -> BatchHeader {
        let attributes = self.attributes.with_compression(Compression::None).with_delete_horizon(false);
        let (record_count, base_timestamp) = (0, TimestampMs::NONE);
        let mut emptied = BatchHeader { attributes, record_count, base_timestamp, ..*self };
        emptied.seal(&[]);
        emptied
    }

    /// Checks that the offsets and the record count are ones that a log can hold. Compaction may leave fewer records
    /// than offsets, even none.
    pub fn check_ranges(&self) -> Result<(), BatchError> {
        let last = self.base_offset.0.checked_add(i64::from(self.last_offset_delta));
        if self.base_offset < Offset::ZERO || self.last_offset_delta < 0 || last.is_none_or(|o| o == i64::MAX)
        {
            return Err(BatchError::OffsetRange {
                base_offset: self.base_offset,
                last_offset_delta: self.last_offset_delta,
            });
        }
        if self.record_count < 0 || i64::from(self.record_count) > i64::from(self.last_offset_delta) + 1 {
            return Err(BatchError::RecordCount(self.record_count));
        }
        Ok(())
    }

    /// Compares the stored checksum with that of `batch`, the whole batch of this header.
    pub fn check_crc(&self, batch: &[u8]) -> Result<(), BatchError> {
        let size = self.size_in_bytes();
        let Some(covered) = batch.get(ATTRIBUTES_AT..size) else {
            return Err(BatchError::Truncated { needed: size, available: batch.len() });
        };
        match crc32c::crc32c(covered) {
            computed if computed == self.crc => Ok(()),
            computed => Err(BatchError::Crc { stored: self.crc, computed }),
        }
    }

    /// Sets the length and the checksum to those of a batch that consists of this header and `body`.
    pub fn seal(&mut self, body: &[u8]) {
        let length = HEADER_LEN - LOG_OVERHEAD + body.len();
        self.batch_length = i32::try_from(length).expect("a batch is smaller than 2 GiB");
        let head = crc32c::crc32c(&self.encode()[ATTRIBUTES_AT..]);
        self.crc = crc32c::crc32c_append(head, body);
    }

    /// Sets the timestamp type and the max timestamp; true when that changed anything, so that the checksum no longer
    /// holds until [`BatchHeader::seal`].
    pub fn set_timestamps(&mut self, timestamp_type: TimestampType, max_timestamp: TimestampMs) -> bool {
        if self.timestamp_type() == timestamp_type && self.max_timestamp == max_timestamp {
            return false;
        }
        self.attributes = self.attributes.with_timestamp_type(timestamp_type);
        self.max_timestamp = max_timestamp;
        true
    }
}

/// The sequence number `delta` records after `sequence`; after `i32::MAX` comes 0.
pub fn sequence_plus(sequence: i32, delta: i32) -> i32 {
    (sequence.wrapping_add(delta)) & i32::MAX
}

/// The sequence number `delta` records before `sequence`; before 0 comes `i32::MAX`.
pub fn sequence_minus(sequence: i32, delta: i32) -> i32 {
    (sequence.wrapping_sub(delta)) & i32::MAX
}

/// Magic and size in bytes of the batch, of any format, at the start of `bytes`.
pub fn magic_and_size(bytes: &[u8]) -> Result<(i8, usize), BatchError> {
    if bytes.len() < SIZE_AND_MAGIC_LEN {
        return Err(BatchError::Truncated { needed: SIZE_AND_MAGIC_LEN, available: bytes.len() });
    }
    let length = i32_at(bytes, LENGTH_AT);
    if length < LEGACY_LENGTH_MIN {
        return Err(BatchError::TooShort { length });
    }
    let magic = bytes[MAGIC_AT] as i8;
    if !(0..=MAGIC).contains(&magic) {
        return Err(BatchError::UnknownMagic(magic));
    }
    Ok((magic, LOG_OVERHEAD + length as usize))
}

/// Whether `bytes` begin with a whole message of an old format, whose checksum is another than that of batches.
pub fn is_legacy_message(bytes: &[u8]) -> bool {
    let Ok((magic, size)) = magic_and_size(bytes) else { return false };
    let Some(covered) = bytes.get(MAGIC_AT..size).filter(|_| magic < MAGIC) else { return false };
    let mut crc = flate2::Crc::new();
    crc.update(covered);
    crc.sum() == i32_at(bytes, LEGACY_CRC_AT) as u32
}

/// One batch inside a byte range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    pub header: BatchHeader,
    /// Where the batch lies in the bytes that were walked.
    pub range: Range<usize>,
    /// The whole batch.
    pub bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// The records, compressed as the header says.
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..]
    }

    pub fn check_crc(&self) -> Result<(), BatchError> {
        self.header.check_crc(self.bytes)
    }
}

/// What [`Batches`] makes of a last batch that is not there in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartialTail {
    /// An error: the bytes should have been whole.
    Refuse,
    /// The end: a fetch answer or a torn file may stop anywhere.
    Ignore,
}

/// Walks the batches of a byte range. Headers are parsed and their ranges checked; checksums are the caller's choice.
/// After an error the walk is over.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    position: usize,
    partial_tail: PartialTail,
    failed: bool,
}

impl<'a> Batches<'a> {
    pub fn new(bytes: &'a [u8], partial_tail: PartialTail) -> Batches<'a> {
        Batches { bytes, position: 0, partial_tail, failed: false }
    }

    /// Where the next batch starts: all before it was whole batches.
    pub fn position(&self) -> usize {
        self.position
    }

    fn read(&self) -> Result<Batch<'a>, BatchError> {
        let rest = &self.bytes[self.position..];
        let header = BatchHeader::parse(rest)?;
        let size = header.size_in_bytes();
        let Some(bytes) = rest.get(..size) else {
            return Err(BatchError::Truncated { needed: size, available: rest.len() });
        };
        header.check_ranges()?;
        Ok(Batch { header, range: self.position..self.position + size, bytes })
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Batch<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.position == self.bytes.len() {
            return None;
        }
        match self.read() {
            Ok(batch) => {
                self.position = batch.range.end;
                Some(Ok(batch))
            }
            Err(error) => {
                self.failed = true;
                let at_end = matches!(error, BatchError::Truncated { .. });
                (!at_end || self.partial_tail == PartialTail::Refuse).then_some(Err(error))
            }
        }
    }
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

fn i16_at(bytes: &[u8], at: usize) -> i16 {
    i16::from_be_bytes(array_at(bytes, at))
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(array_at(bytes, at))
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(array_at(bytes, at))
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> BatchHeader {
        BatchHeader {
            base_offset: Offset(7),
            batch_length: 49,
            leader_epoch: LeaderEpoch(3),
            magic: MAGIC,
            crc: 0,
            attributes: Attributes::default(),
            last_offset_delta: 2,
            base_timestamp: TimestampMs(1000),
            max_timestamp: TimestampMs(1002),
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: NO_SEQUENCE,
            record_count: 3,
        }
    }

    fn batch(body: &[u8]) -> Vec<u8> {
        let mut header = header();
        header.seal(body);
        [&header.encode()[..], body].concat()
    }

    #[test]
    fn a_header_survives_and_knows_its_offsets() {
        let bytes = batch(b"records");
        let header = BatchHeader::parse(&bytes).unwrap();
        assert_eq!(header.encode(), bytes[..HEADER_LEN]);
        assert_eq!(header.size_in_bytes(), bytes.len());
        assert_eq!((header.last_offset(), header.next_offset()), (Offset(9), Offset(10)));
        assert_eq!(header.last_sequence(), NO_SEQUENCE);
        header.check_crc(&bytes).unwrap();
        header.check_ranges().unwrap();
    }

    #[test]
    fn placing_keeps_the_checksum_and_new_timestamps_need_another() {
        let bytes = batch(b"records");
        let mut header = BatchHeader::parse(&bytes).unwrap();
        (header.base_offset, header.leader_epoch) = (Offset(1 << 40), LeaderEpoch(9));
        let placed = [&header.encode()[..], &bytes[HEADER_LEN..]].concat();
        assert_eq!(BatchHeader::parse(&placed), Ok(header));
        header.check_crc(&placed).unwrap();

        assert!(header.set_timestamps(TimestampType::LogAppendTime, TimestampMs(5555)));
        let stamped = [&header.encode()[..], &bytes[HEADER_LEN..]].concat();
        assert!(matches!(header.check_crc(&stamped), Err(BatchError::Crc { .. })));
        header.seal(&bytes[HEADER_LEN..]);
        header.check_crc(&stamped).unwrap();
        assert!(!header.set_timestamps(TimestampType::LogAppendTime, TimestampMs(5555)));
    }

    #[test]
    fn bad_headers_are_told_apart() {
        let good = batch(b"records");
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        assert_eq!(BatchHeader::parse(&with(MAGIC_AT, 1)), Err(BatchError::LegacyMagic(1)));
        assert_eq!(BatchHeader::parse(&with(MAGIC_AT, 3)), Err(BatchError::UnknownMagic(3)));
        assert_eq!(BatchHeader::parse(&with(MAGIC_AT, 255)), Err(BatchError::UnknownMagic(-1)));
        assert_eq!(BatchHeader::parse(&with(11, 48)), Err(BatchError::TooShort { length: 48 }));
        assert!(matches!(BatchHeader::parse(&with(8, 0x80)), Err(BatchError::TooShort { .. })));
        assert!(matches!(BatchHeader::parse(&good[..20]), Err(BatchError::Truncated { needed: 61, .. })));
        assert!(matches!(BatchHeader::parse(&[]), Err(BatchError::Truncated { .. })));
        let flipped = with(HEADER_LEN, b'R');
        let header = BatchHeader::parse(&flipped).unwrap();
        assert!(matches!(header.check_crc(&flipped), Err(BatchError::Crc { .. })));
        let short = &good[..good.len() - 1];
        assert!(matches!(header.check_crc(short), Err(BatchError::Truncated { .. })));

        let ranges = |change: fn(&mut BatchHeader)| {
            let mut changed = super::tests::header();
            change(&mut changed);
            changed.check_ranges()
        };
        assert!(matches!(ranges(|h| h.last_offset_delta = -1), Err(BatchError::OffsetRange { .. })));
        assert!(matches!(ranges(|h| h.base_offset = Offset(-1)), Err(BatchError::OffsetRange { .. })));
        assert!(matches!(ranges(|h| h.base_offset = Offset(i64::MAX)), Err(BatchError::OffsetRange { .. })));
        assert_eq!(ranges(|h| h.record_count = -1), Err(BatchError::RecordCount(-1)));
        assert_eq!(ranges(|h| h.record_count = 4), Err(BatchError::RecordCount(4)));
        assert_eq!(ranges(|h| h.record_count = 0), Ok(()));
    }

    #[test]
    fn batches_are_walked_to_the_end_or_to_a_partial_tail() {
        let one = batch(b"first");
        let two = batch(b"the second");
        let both = [&one[..], &two[..]].concat();
        let bodies: Vec<_> = Batches::new(&both, PartialTail::Refuse).map(|b| b.unwrap().body()).collect();
        assert_eq!(bodies, [&b"first"[..], b"the second"]);

        for cut in one.len() + 1..both.len() {
            let mut lenient = Batches::new(&both[..cut], PartialTail::Ignore);
            assert_eq!(lenient.next().unwrap().unwrap().range, 0..one.len());
            assert_eq!(lenient.next(), None);
            assert_eq!(lenient.position(), one.len());
            let strict: Vec<_> = Batches::new(&both[..cut], PartialTail::Refuse).collect();
            assert!(strict[0].is_ok() && matches!(strict[1], Err(BatchError::Truncated { .. })));
            assert_eq!(strict.len(), 2);
        }
    }

    #[test]
    fn attributes_are_set_bit_by_bit() {
        let all = Attributes::default()
            .with_compression(Compression::Zstd)
            .with_timestamp_type(TimestampType::LogAppendTime)
            .with_transactional(true)
            .with_control(true);
        assert_eq!(all.0, 0x3c);
        assert_eq!(all.compression(), Ok(Compression::Zstd));
        assert_eq!(all.with_compression(Compression::None).with_control(false).0, 0x18);
        assert!(Attributes(7).compression().is_err());
    }

    #[test]
    fn sequences_wrap_at_the_largest_integer() {
        assert_eq!(sequence_plus(i32::MAX, 1), 0);
        assert_eq!(sequence_plus(i32::MAX - 1, 5), 3);
        assert_eq!(sequence_minus(3, 5), i32::MAX - 1);
        assert_eq!(sequence_minus(0, 1), i32::MAX);
        assert_eq!(sequence_plus(5, 0), 5);
    }

    proptest! {
        #[test]
        fn sequences_go_back_where_they_came_from(sequence in 0..=i32::MAX, delta in 0..=i32::MAX) {
            prop_assert_eq!(sequence_minus(sequence_plus(sequence, delta), delta), sequence);
        }

        #[test]
        fn any_bytes_are_walked_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for batch in Batches::new(&bytes, PartialTail::Ignore).flatten() {
                let _ = (batch.header.last_offset(), batch.header.last_sequence(), batch.check_crc());
            }
        }

        #[test]
        fn mutated_batches_are_walked_without_harm(at in 0..200usize, byte in any::<u8>(), cut in 0..200usize) {
            let mut bytes = [batch(b"first"), batch(b"the second")].concat();
            let len = bytes.len();
            bytes[at % len] = byte;
            let whole = Batches::new(&bytes[..cut.min(len)], PartialTail::Refuse).count();
            prop_assert!(whole <= 3);
        }
    }
}
