//! Batches that Kafka 4.4.0's own classes wrote (`tests/wire/record_batches.txt`: a name and the bytes in hex), read and
//! written again.

use expect_test::expect;

use super::batch::{Batch, Batches, HEADER_LEN, NO_SEQUENCE, PartialTail, TimestampType};
use super::batch_builder::BatchBuilder;
use super::compression::{Codec, Compression, Decoder, Scratch, decompress};
use super::control::EndTxnMarker;
use super::records::{Records, Skim};
use crate::types::TimestampMs;

const GOLDEN: &str = include_str!("../../tests/wire/record_batches.txt");

fn golden() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    GOLDEN.lines().map(|line| {
        let (name, hex) = line.split_once(' ').unwrap();
        let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
        (name, bytes.collect())
    })
}

fn bytes_of(name: &str) -> Vec<u8> {
    golden().find(|(n, _)| *n == name).unwrap().1
}

fn only(bytes: &[u8]) -> Batch<'_> {
    let mut batches = Batches::new(bytes, PartialTail::Refuse);
    let batch = batches.next().unwrap().unwrap();
    assert!(batches.next().is_none());
    batch.check_crc().unwrap();
    batch
}

fn body_of(batch: &Batch<'_>) -> Vec<u8> {
    let codec = batch.header.compression().unwrap();
    decompress(codec, batch.body(), 1 << 20, &mut Scratch::new()).unwrap()
}

/// One line for the header, as short as it tells everything.
fn describe(batch: &Batch<'_>) -> String {
    let h = &batch.header;
    let mut text = format!(
        "{:?} {:?} offsets {}..={} epoch {} timestamps {}..={} records {}",
        h.compression().unwrap(),
        h.timestamp_type(),
        h.base_offset,
        h.last_offset(),
        h.leader_epoch,
        h.base_timestamp,
        h.max_timestamp,
        h.record_count,
    );
    if h.has_producer_id() {
        let (first, last) = (h.base_sequence, h.last_sequence());
        text += &format!(" producer {} epoch {} sequences {first}..={last}", h.producer_id, h.producer_epoch);
    }
    for (flag, name) in [(h.is_transactional(), " transactional"), (h.is_control(), " control")] {
        text += if flag { name } else { "" };
    }
    text
}

#[test]
fn headers_are_read() {
    let text: String =
        golden().map(|(name, bytes)| format!("{name}: {}\n", describe(&only(&bytes)))).collect();
    expect![[r#"
        none: None CreateTime offsets 0..=4 epoch -1 timestamps 1700000000000..=1700000000005 records 5
        gzip: Gzip CreateTime offsets 0..=4 epoch -1 timestamps 1700000000000..=1700000000005 records 5
        gzip-9: Gzip CreateTime offsets 0..=4 epoch -1 timestamps 1700000000000..=1700000000005 records 5
        snappy: Snappy CreateTime offsets 0..=4 epoch -1 timestamps 1700000000000..=1700000000005 records 5
        lz4: Lz4 CreateTime offsets 0..=4 epoch -1 timestamps 1700000000000..=1700000000005 records 5
        lz4-17: Lz4 CreateTime offsets 0..=4 epoch -1 timestamps 1700000000000..=1700000000005 records 5
        zstd: Zstd CreateTime offsets 0..=4 epoch -1 timestamps 1700000000000..=1700000000005 records 5
        zstd-22: Zstd CreateTime offsets 0..=4 epoch -1 timestamps 1700000000000..=1700000000005 records 5
        idempotent: None CreateTime offsets 123456789012..=123456789016 epoch 7 timestamps 1700000000000..=1700000000005 records 5 producer 4000 epoch 3 sequences 2147483645..=1
        transactional: Zstd CreateTime offsets 42..=46 epoch 7 timestamps 1700000000000..=1700000000005 records 5 producer 4000 epoch 3 sequences 10..=14 transactional
        log-append-time: None LogAppendTime offsets 9..=13 epoch 0 timestamps 1700000000000..=1800000000000 records 5
        commit: None CreateTime offsets 77..=77 epoch 5 timestamps 1700000000000..=1700000000000 records 1 producer 4000 epoch 3 sequences -1..=-1 transactional control
        abort: None CreateTime offsets 78..=78 epoch 5 timestamps 1700000000001..=1700000000001 records 1 producer 4001 epoch 4 sequences -1..=-1 transactional control
        big-gzip: Gzip CreateTime offsets 0..=3 epoch -1 timestamps 1700000000000..=1700000000003 records 4
        big-snappy: Snappy CreateTime offsets 0..=3 epoch -1 timestamps 1700000000000..=1700000000003 records 4
        big-lz4: Lz4 CreateTime offsets 0..=3 epoch -1 timestamps 1700000000000..=1700000000003 records 4
        big-zstd: Zstd CreateTime offsets 0..=3 epoch -1 timestamps 1700000000000..=1700000000003 records 4
    "#]].assert_eq(&text);
}

#[test]
fn records_are_read() {
    let bytes = bytes_of("none");
    let batch = only(&bytes);
    let show = |bytes: &[u8]| match bytes.len() {
        0..30 => format!("{:?}", String::from_utf8_lossy(bytes)),
        len => format!("{len} bytes"),
    };
    let shown = |bytes: Option<&[u8]>| bytes.map_or("none".into(), show);
    let mut text = String::new();
    for record in Records::new(batch.body(), batch.header.record_count) {
        let record = record.unwrap();
        text += &format!("+{} at {:+}: ", record.offset_delta, record.timestamp_delta);
        text += &format!("{} = {}", shown(record.key), shown(record.value));
        for header in record.headers {
            text += &format!(", {}: {}", show(header.key), shown(header.value));
        }
        text += "\n";
    }
    expect![[r#"
        +0 at +0: "key-0" = "value-0"
        +1 at +5: none = "no key"
        +2 at +3: "tombstone" = none
        +3 at +4: "with headers" = "v", "h1": "x", "empty": "", "null": none
        +4 at -1: "" = 496 bytes
    "#]]
    .assert_eq(&text);
}

#[test]
fn every_codec_holds_the_same_records() {
    for (kind, names) in [
        ("none", &["gzip", "gzip-9", "snappy", "lz4", "lz4-17", "zstd", "zstd-22", "transactional"][..]),
        ("big-zstd", &["big-gzip", "big-snappy", "big-lz4"]),
    ] {
        let bytes = bytes_of(kind);
        let expected = body_of(&only(&bytes));
        let count = only(&bytes).header.record_count;
        let skimmed: Vec<_> = Skim::new(&expected, count).map(Result::unwrap).collect();
        assert_eq!(skimmed.len(), count as usize);
        for name in names {
            let bytes = bytes_of(name);
            let batch = only(&bytes);
            assert!(body_of(&batch) == expected, "{name}");
            let codec = batch.header.compression().unwrap();
            let mut scratch = Scratch::new();
            let decoder = Decoder::new(codec, batch.body(), 1 << 20, &mut scratch).unwrap();
            let streamed: Vec<_> = Skim::compressed(decoder, count).map(Result::unwrap).collect();
            assert_eq!(streamed, skimmed, "{name}");
        }
    }
}

#[test]
fn what_is_built_is_what_kafka_builds() {
    for name in ["none", "idempotent", "log-append-time"] {
        let bytes = bytes_of(name);
        let Batch { header, bytes, .. } = only(&bytes);
        let mut builder = BatchBuilder::new()
            .base_offset(header.base_offset)
            .leader_epoch(header.leader_epoch)
            .producer(header.producer_id, header.producer_epoch, header.base_sequence);
        if header.timestamp_type() == TimestampType::LogAppendTime {
            builder = builder.log_append_time(header.max_timestamp);
        }
        for record in Records::new(&bytes[HEADER_LEN..], header.record_count) {
            let record = record.unwrap();
            let timestamp = TimestampMs(header.base_timestamp.0 + record.timestamp_delta);
            let headers: Vec<_> = record.headers.collect();
            builder.push(timestamp, record.key, record.value, &headers);
        }
        assert!(builder.build().unwrap() == bytes, "{name}");
    }
}

#[test]
fn markers_are_read_and_written_the_same() {
    let mut text = String::new();
    for name in ["commit", "abort"] {
        let bytes = bytes_of(name);
        let Batch { header, .. } = only(&bytes);
        let marker = EndTxnMarker::of_batch(&header, &bytes[HEADER_LEN..]).unwrap().unwrap();
        text += &format!("{marker:?}\n");
        assert_eq!(header.base_sequence, NO_SEQUENCE);
        let written =
            marker.batch(header.producer_id, header.producer_epoch, header.base_offset, header.leader_epoch);
        assert!(written == bytes, "{name}");
    }
    expect![[r#"
        EndTxnMarker { result: Commit, coordinator_epoch: 12, timestamp: TimestampMs(1700000000000) }
        EndTxnMarker { result: Abort, coordinator_epoch: 13, timestamp: TimestampMs(1700000000001) }
    "#]]
    .assert_eq(&text);
}

/// The compressors of lz4 and snappy find the same as those of Java; zstd and gzip differ in what they put into their
/// headers.
#[test]
fn compressed_bytes_are_those_of_java() {
    for (name, codec, same) in [
        ("snappy", Compression::Snappy, None),
        ("big-snappy", Compression::Snappy, None),
        ("lz4", Compression::Lz4, None),
        ("big-lz4", Compression::Lz4, None),
        ("zstd", Compression::Zstd, Some(4)),
        ("gzip", Compression::Gzip, Some(8)),
    ] {
        let bytes = bytes_of(name);
        let batch = only(&bytes);
        let ours = Codec::from(codec).compress(&body_of(&batch)).unwrap();
        let same = same.unwrap_or(ours.len());
        assert!(ours[..same] == batch.body()[..same], "{name}");
    }
}
