//! The producer snapshot file (`<offset>.snapshot`): Kafka's version 1, and behind it what Kafka forgets.
//!
//! Owns the layout and its checksum. Knows nothing of where the file lies. Invariant: what [`decode`] accepts was written
//! whole.
//!
//! ```text
//! version (2) | CRC-32C of all after it (4) | count (4) | entries of 46 bytes:
//! producer id (8) | epoch (2) | last sequence (4) | last offset (8) | offset delta (4) | timestamp (8)
//! | coordinator epoch (4) | first offset of the open transaction, -1 if none (8)
//!
//! and, unless it is empty:
//! "more" (4) | for each producer with more than one batch, in the order of the entries:
//! producer id (8) | count (1) | the batches before the last, oldest first, of 24 bytes:
//! last sequence (4) | last offset (8) | offset delta (4) | timestamp (8)
//! ```
//!
//! An entry keeps the last batch alone. A producer whose batches before that were written, but not acknowledged to it, sends
//! them again, and must not be told that they are out of order. Kafka reads its entries and takes what follows for no
//! more than a part of the checksum.

use bytes::{Buf, BufMut};
use thiserror::Error;

use super::entry::{BATCHES_MAX, ProducerEntry, SequencedBatch};
use crate::types::{Offset, ProducerEpoch, ProducerId, TimestampMs};

const VERSION: i16 = 1;
const HEADER_LEN: usize = 10;
const ENTRIES_AT: usize = 6;
const ENTRY_LEN: usize = 46;
/// Begins the batches before the last.
const MORE: &[u8; 4] = b"more";
const BATCH_LEN: usize = 24;

/// Why bytes are not a producer snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SnapshotError {
    #[error("the producer snapshot is cut short or too long")]
    Length,
    #[error("version {0} of producer snapshots is unknown")]
    Version(i16),
    #[error("the checksum of the producer snapshot is {stored:#010x}, that of its bytes {computed:#010x}")]
    Crc { stored: u32, computed: u32 },
}

/// The file's bytes for the given producers.
pub fn encode<'a>(producers: impl Iterator<Item = (ProducerId, &'a ProducerEntry)>) -> Vec<u8> {
    let mut producers: Vec<_> = producers.collect();
    // Kafka keeps no order; this one makes equal states equal files.
    producers.sort_by_key(|(producer_id, _)| *producer_id);
    let mut out = Vec::with_capacity(HEADER_LEN + producers.len() * ENTRY_LEN);
    out.put_i16(VERSION);
    out.put_u32(0);
    out.put_i32(producers.len() as i32);
    for (producer_id, entry) in &producers {
        let last = entry.last_batch();
        out.put_i64(producer_id.0);
        out.put_i16(entry.epoch.0);
        out.put_i32(entry.last_sequence());
        out.put_i64(last.map_or(Offset::UNKNOWN, |batch| batch.last_offset).0);
        out.put_i32(last.map_or(0, |batch| batch.offset_delta));
        out.put_i64(entry.last_timestamp.0);
        out.put_i32(entry.coordinator_epoch);
        out.put_i64(entry.current_txn_first_offset.unwrap_or(Offset::UNKNOWN).0);
    }
    encode_earlier(&producers, &mut out);
    let crc = crc32c::crc32c(&out[ENTRIES_AT..]);
    out[2..ENTRIES_AT].copy_from_slice(&crc.to_be_bytes());
    out
}

fn encode_earlier(producers: &[(ProducerId, &ProducerEntry)], out: &mut Vec<u8>) {
    let mut begins = true;
    for (producer_id, entry) in producers {
        let Some((_, earlier @ [_, ..])) = entry.batches().split_last() else { continue };
        if std::mem::take(&mut begins) {
            out.put_slice(MORE);
        }
        out.put_i64(producer_id.0);
        out.put_u8(earlier.len() as u8);
        for batch in earlier {
            out.put_i32(batch.last_sequence);
            out.put_i64(batch.last_offset.0);
            out.put_i32(batch.offset_delta);
            out.put_i64(batch.timestamp.0);
        }
    }
}

/// The producers that the file holds. Of a file of Kafka's each has its last batch only.
pub fn decode(bytes: &[u8]) -> Result<Vec<(ProducerId, ProducerEntry)>, SnapshotError> {
    let mut rest = bytes;
    if rest.len() < HEADER_LEN {
        return Err(SnapshotError::Length);
    }
    match rest.get_i16() {
        VERSION => {}
        other => return Err(SnapshotError::Version(other)),
    }
    let stored = rest.get_u32();
    match crc32c::crc32c(rest) {
        computed if computed == stored => {}
        computed => return Err(SnapshotError::Crc { stored, computed }),
    }
    let len = usize::try_from(rest.get_i32()).ok().and_then(|count| count.checked_mul(ENTRY_LEN));
    let (entries, more) = len.and_then(|len| rest.split_at_checked(len)).ok_or(SnapshotError::Length)?;
    let mut producers: Vec<_> = entries.chunks_exact(ENTRY_LEN).map(decode_entry).collect();
    if !more.is_empty() {
        let earlier = more.strip_prefix(MORE).ok_or(SnapshotError::Length)?;
        decode_earlier(earlier, &mut producers)?;
    }
    Ok(producers)
}

fn decode_earlier(
    mut bytes: &[u8],
    producers: &mut [(ProducerId, ProducerEntry)],
) -> Result<(), SnapshotError> {
    let mut producers = producers.iter_mut();
    while !bytes.is_empty() {
        let producer_id = ProducerId(bytes.try_get_i64().map_err(|_| SnapshotError::Length)?);
        let count = usize::from(bytes.try_get_u8().map_err(|_| SnapshotError::Length)?);
        let (earlier, rest) = bytes.split_at_checked(count * BATCH_LEN).ok_or(SnapshotError::Length)?;
        bytes = rest;
        let entry = producers.find(|(id, _)| *id == producer_id).map(|(_, entry)| entry);
        let entry = entry.filter(|entry| entry.last_batch().is_some() && count < BATCHES_MAX);
        let earlier = earlier.chunks_exact(BATCH_LEN).map(|mut batch| SequencedBatch {
            last_sequence: batch.get_i32(),
            last_offset: Offset(batch.get_i64()),
            offset_delta: batch.get_i32(),
            timestamp: TimestampMs(batch.get_i64()),
        });
        entry.ok_or(SnapshotError::Length)?.recall(earlier);
    }
    Ok(())
}

fn decode_entry(mut bytes: &[u8]) -> (ProducerId, ProducerEntry) {
    let producer_id = ProducerId(bytes.get_i64());
    let epoch = ProducerEpoch(bytes.get_i16());
    let last_sequence = bytes.get_i32();
    let last_offset = Offset(bytes.get_i64());
    let offset_delta = bytes.get_i32();
    let timestamp = TimestampMs(bytes.get_i64());
    let coordinator_epoch = bytes.get_i32();
    let txn_first_offset = Offset(bytes.get_i64());
    let mut entry = ProducerEntry::EMPTY;
    entry.epoch = epoch;
    entry.coordinator_epoch = coordinator_epoch;
    entry.current_txn_first_offset = (txn_first_offset >= Offset::ZERO).then_some(txn_first_offset);
    entry.last_timestamp = timestamp;
    if last_offset >= Offset::ZERO {
        entry.push(epoch, SequencedBatch { last_sequence, last_offset, offset_delta, timestamp });
    }
    (producer_id, entry)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Written by `ProducerStateManager.writeSnapshot` of Kafka 4.4.0.
    const GOLDEN: &str = include_str!("../../../../tests/storage/producer_snapshots.txt");

    fn golden(name: &str) -> Vec<u8> {
        let line = GOLDEN.lines().find(|line| line.split(' ').next() == Some(name)).unwrap();
        let hex = line.split(' ').nth(1).unwrap();
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn kafkas_files_are_read_and_written_again_the_same() {
        let expected = expect_test::expect![[r#"
            1000 epoch 2 coordinator -1 at 1700000000009 txn None: sequences 10..=14 offsets 110..=114
            1001 epoch 5 coordinator 6 at 1700000000100 txn Some(Offset(90)): sequences 2147483638..=2147483647 offsets 90..=99
            1002 epoch 0 coordinator 3 at 1700000000200 txn None:
        "#]];
        let bytes = golden("snapshot-three");
        let producers = decode(&bytes).unwrap();
        let mut text = String::new();
        for (id, entry) in &producers {
            let ProducerEntry { epoch, coordinator_epoch, last_timestamp, current_txn_first_offset, .. } =
                entry;
            text += &format!("{id} epoch {epoch} coordinator {coordinator_epoch} at {last_timestamp}");
            text += &format!(" txn {current_txn_first_offset:?}:");
            for b in entry.batches() {
                let (sequence, offset) = (b.first_sequence(), b.first_offset());
                text += &format!(
                    " sequences {sequence}..={} offsets {offset}..={}",
                    b.last_sequence, b.last_offset
                );
            }
            text += "\n";
        }
        expected.assert_eq(&text);
        assert_eq!(encode(producers.iter().map(|(id, entry)| (*id, entry))), bytes);

        assert_eq!(decode(&golden("snapshot-empty")), Ok(vec![]));
        assert_eq!(encode(std::iter::empty()), golden("snapshot-empty"));
    }

    #[test]
    fn damage_is_found() {
        let good = golden("snapshot-three");
        for cut in 0..good.len() {
            assert!(decode(&good[..cut]).is_err());
        }
        let mut version = good.clone();
        version[1] = 2;
        assert_eq!(decode(&version), Err(SnapshotError::Version(2)));
        let mut flipped = good.clone();
        flipped[20] ^= 1;
        assert!(matches!(decode(&flipped), Err(SnapshotError::Crc { .. })));
        // A count that does not fit, under a true checksum.
        for count in [2u32, 4, 0x4000_0000, u32::MAX] {
            let mut wrong = good.clone();
            wrong[ENTRIES_AT..HEADER_LEN].copy_from_slice(&count.to_be_bytes());
            let crc = crc32c::crc32c(&wrong[ENTRIES_AT..]);
            wrong[2..ENTRIES_AT].copy_from_slice(&crc.to_be_bytes());
            assert_eq!(decode(&wrong), Err(SnapshotError::Length));
        }
    }

    fn producer(batches: i32) -> ProducerEntry {
        let mut entry = ProducerEntry::EMPTY;
        for at in 1..=batches {
            let (last_offset, timestamp) = (Offset(i64::from(at) * 10), TimestampMs(i64::from(at)));
            let batch = SequencedBatch { last_sequence: at * 2 - 1, last_offset, offset_delta: 1, timestamp };
            entry.push(ProducerEpoch(3), batch);
        }
        entry
    }

    /// Kafka's reader takes the entries that the count names, and checks the sum over the whole file.
    #[test]
    fn the_batches_before_the_last_are_kept_where_kafka_does_not_look() {
        let producers: Vec<_> =
            (0..8).map(|batches| (ProducerId(i64::from(batches)), producer(batches))).collect();
        let bytes = encode(producers.iter().map(|(id, entry)| (*id, entry)));
        assert_eq!(decode(&bytes), Ok(producers.clone()));
        let last_alone: Vec<_> = bytes[HEADER_LEN..HEADER_LEN + 8 * ENTRY_LEN].to_vec();
        let entries: Vec<_> = last_alone.chunks_exact(ENTRY_LEN).map(decode_entry).collect();
        for ((_, entry), (_, of_kafka)) in producers.iter().zip(&entries) {
            assert_eq!(of_kafka.last_batch(), entry.last_batch());
            assert_eq!((of_kafka.epoch, of_kafka.last_timestamp), (entry.epoch, entry.last_timestamp));
        }
        // Under a true checksum, whatever is cut off, added or of another producer is noticed.
        let more_at = HEADER_LEN + 8 * ENTRY_LEN;
        let with_crc = |mut bytes: Vec<u8>| {
            let crc = crc32c::crc32c(&bytes[ENTRIES_AT..]);
            bytes[2..ENTRIES_AT].copy_from_slice(&crc.to_be_bytes());
            bytes
        };
        let whole = [more_at].into_iter().chain((2..8).scan(more_at + 4, |at, batches: usize| {
            *at += 9 + (batches.min(BATCHES_MAX) - 1) * BATCH_LEN;
            Some(*at)
        }));
        let whole: Vec<usize> = whole.chain([more_at + 4]).collect();
        for cut in more_at..bytes.len() {
            let read = decode(&with_crc(bytes[..cut].to_vec()));
            assert_eq!(read.is_ok(), whole.contains(&cut), "cut to {cut}");
        }
        for (at, byte) in
            [(0, b'x'), (11, 0), (11, 9), (12, 5), (12, 255)].map(|(at, byte)| (more_at + at, byte))
        {
            let mut wrong = bytes.clone();
            wrong[at] = byte;
            assert_eq!(decode(&with_crc(wrong)), Err(SnapshotError::Length), "at {at}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(decode(&bytes).is_err());
        }
    }
}
