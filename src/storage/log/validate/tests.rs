//! What is accepted, refused and changed, case by case, and that nothing invalid gets through.

use proptest::prelude::*;

use super::*;
use crate::types::{ProducerEpoch, ProducerId};
use crate::wire::batch::Attributes;
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::records::Records;

const NOW: TimestampMs = TimestampMs(1_700_000_000_000);

fn rules() -> Rules {
    Rules::of(&LogConfig::default())
}

fn validated(records: &Bytes, rules: &Rules) -> Result<Validated, ValidationError> {
    validate(records, rules, Origin::Client, NOW, &mut Scratch::new())
}

/// A batch of records with these timestamps before now, keys and equal values.
fn batch(builder: BatchBuilder, records: &[(i64, Option<&str>)]) -> Bytes {
    let mut builder = builder;
    for (age, key) in records {
        builder.push(TimestampMs(NOW.0 - age), key.map(str::as_bytes), Some(&[b'v'; 100]), &[]);
    }
    builder.build().unwrap()
}

/// The batch with its header changed and sealed again.
fn changed(batch: &Bytes, change: impl FnOnce(&mut BatchHeader)) -> Bytes {
    let mut header = BatchHeader::parse(batch).unwrap();
    change(&mut header);
    let (length, body) = (header.batch_length, &batch[HEADER_LEN..]);
    header.seal(body);
    assert_eq!(header.batch_length, length);
    [&header.encode()[..], body].concat().into()
}

fn three(compression: Compression) -> Bytes {
    batch(BatchBuilder::new().compression(compression), &[(9, Some("a")), (3, None), (5, Some("b"))])
}

fn invalid(result: Result<Validated, ValidationError>) -> InvalidBatch {
    match result {
        Err(ValidationError::Invalid(invalid)) => invalid,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_good_batch_is_kept_as_it_is() {
    for compression in Compression::ALL {
        let batch = three(compression);
        let validated = validated(&batch, &rules()).unwrap();
        assert_eq!(validated.header, BatchHeader::parse(&batch).unwrap());
        assert_eq!(validated.header.max_timestamp, TimestampMs(NOW.0 - 3));
        assert!(!validated.recompressed);
        // Not a copy: the bytes of the request.
        assert_eq!(validated.body.as_ptr(), batch[HEADER_LEN..].as_ptr());

        let (header, body) = validated.place(Offset(500), LeaderEpoch(3));
        let placed = [&header.encode()[..], &body].concat();
        header.check_crc(&placed).unwrap();
        assert_eq!((header.base_offset, header.last_offset()), (Offset(500), Offset(502)));
    }
}

#[test]
fn damaged_bytes_are_told_from_invalid_batches() {
    let good = three(Compression::None);
    let corrupt =
        |bytes: Bytes| assert!(matches!(validated(&bytes, &rules()), Err(ValidationError::Corrupt(_))));
    corrupt(good.slice(..good.len() - 1));
    corrupt(good.slice(..20));
    let mut flipped = good.to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    corrupt(flipped.into());

    assert_eq!(invalid(validated(&Bytes::new(), &rules())), InvalidBatch::Missing);
    let twice = Bytes::from([&good[..], &good].concat());
    assert_eq!(invalid(validated(&twice, &rules())), InvalidBatch::MoreThanOne);
    let mut legacy = good.to_vec();
    legacy[16] = 1;
    assert_eq!(invalid(validated(&legacy.into(), &rules())), InvalidBatch::LegacyFormat(1));
}

#[test]
fn headers_that_clients_may_not_send_are_refused() {
    let good = three(Compression::Lz4);
    let refused = |change: &dyn Fn(&mut BatchHeader)| invalid(validated(&changed(&good, change), &rules()));
    let offset = |offset| move |h: &mut BatchHeader| h.base_offset = Offset(offset);
    assert_eq!(refused(&offset(1)), InvalidBatch::BaseOffset(Offset(1)));
    assert_eq!(refused(&|h| h.attributes = h.attributes.with_control(true)), InvalidBatch::Control);
    for (count, last_offset_delta) in [(0, -1), (3, 3), (2, 2), (-1, -2), (i32::MIN, i32::MAX)] {
        let change = |h: &mut BatchHeader| (h.record_count, h.last_offset_delta) = (count, last_offset_delta);
        assert_eq!(refused(&change), InvalidBatch::Count { count, last_offset_delta });
    }
    assert_eq!(refused(&|h| h.producer_id = ProducerId(7)), InvalidBatch::Sequence(-1));
    let unknown = changed(&good, |h| h.attributes = Attributes(5));
    assert_eq!(validated(&unknown, &rules()), Err(UnknownCompression(5).into()));

    let idempotent = changed(&good, |h| {
        (h.producer_id, h.producer_epoch, h.base_sequence) = (ProducerId(7), ProducerEpoch(0), 0);
    });
    validated(&idempotent, &rules()).unwrap();
    // A coordinator writes at the offsets that it likes to give, and control records.
    let control = changed(&good, |h| {
        h.base_offset = Offset(9);
        h.attributes = h.attributes.with_control(true);
    });
    validate(&control, &rules(), Origin::Coordinator, NOW, &mut Scratch::new()).unwrap();
}

#[test]
fn records_that_do_not_fit_their_header_are_refused() {
    for compression in Compression::ALL {
        let good = three(compression);
        let with_count =
            |count: i32| changed(&good, |h| (h.record_count, h.last_offset_delta) = (count, count - 1));
        assert!(matches!(
            invalid(validated(&with_count(2), &rules())),
            InvalidBatch::Record { index: 1, error: RecordError::TrailingBytes }
        ));
        let too_many = invalid(validated(&with_count(4), &rules()));
        assert!(matches!(too_many, InvalidBatch::Record { index: 3, error: RecordError::UnexpectedEnd }));

        let mut gap = BatchBuilder::new().compression(compression);
        gap.push_at(0, NOW, None, None, &[]);
        gap.push_at(2, NOW, None, None, &[]);
        let gap = changed(&gap.build().unwrap(), |h| h.last_offset_delta = 1);
        let expected = InvalidBatch::OffsetDelta { index: 1, offset_delta: 2 };
        assert_eq!(invalid(validated(&gap, &rules())), expected);
    }
    // The header says zstd, the records are something else.
    let lie = changed(&three(Compression::None), |h| {
        h.attributes = h.attributes.with_compression(Compression::Zstd);
    });
    assert!(matches!(invalid(validated(&lie, &rules())), InvalidBatch::Record { .. }));
}

#[test]
fn timestamps_outside_of_the_bounds_are_refused_record_by_record() {
    let rules = Rules { timestamp_before_max_ms: 1000, timestamp_after_max_ms: 50, ..rules() };
    let good = batch(BatchBuilder::new(), &[(1000, None), (-50, None), (0, None)]);
    validated(&good, &rules).unwrap();
    // No timestamp is always in time.
    validated(&batch(BatchBuilder::new(), &[(NOW.0 + 1, None)]), &rules).unwrap();

    for compression in Compression::ALL {
        let builder = BatchBuilder::new().compression(compression);
        let bad = batch(builder, &[(0, None), (1001, None), (0, None), (-51, None)]);
        let Err(ValidationError::Timestamps(rejected)) = validated(&bad, &rules) else { panic!() };
        assert_eq!(rejected.errors.iter().map(|e| e.index).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(
            rejected.to_string(),
            "2 records are refused: record 1: the timestamp 1699999998999 is not between 1699999999000 and \
             1700000000050; record 3: the timestamp 1700000000051 is not between 1699999999000 and 1700000000050"
        );
    }
    for timestamp in [i64::MIN, i64::MAX] {
        let extreme = changed(&batch(BatchBuilder::new(), &[(0, None)]), |h| {
            h.base_timestamp = TimestampMs(timestamp);
        });
        assert!(matches!(validated(&extreme, &rules), Err(ValidationError::Timestamps(_))));
    }
}

#[test]
fn a_compacted_topic_wants_keys() {
    let rules = Rules { compacted: true, ..rules() };
    for compression in Compression::ALL {
        let Err(ValidationError::Records(rejected)) = validated(&three(compression), &rules) else {
            panic!()
        };
        assert_eq!((rejected.count, rejected.errors[0].index), (1, 1));
    }
    validated(&batch(BatchBuilder::new(), &[(0, Some(""))]), &rules).unwrap();
}

#[test]
fn many_errors_are_counted_and_the_first_are_told() {
    let rules = Rules { compacted: true, ..rules() };
    let bad = batch(BatchBuilder::new(), &vec![(0, None); RECORD_ERRORS_MAX + 5]);
    let Err(ValidationError::Records(rejected)) = validated(&bad, &rules) else { panic!() };
    assert_eq!((rejected.count, rejected.errors.len()), (RECORD_ERRORS_MAX + 5, RECORD_ERRORS_MAX));
}

#[test]
fn the_leader_sets_the_time_if_the_topic_says_so() {
    let rules = Rules { timestamp_type: TimestampType::LogAppendTime, timestamp_before_max_ms: 0, ..rules() };
    for compression in Compression::ALL {
        let batch = three(compression);
        let Validated { header, body, .. } = validated(&batch, &rules).unwrap();
        assert_eq!((header.timestamp_type(), header.max_timestamp), (TimestampType::LogAppendTime, NOW));
        header.check_crc(&[&header.encode()[..], &body].concat()).unwrap();
        assert_eq!(body, batch[HEADER_LEN..]);
    }
    // A producer may not pretend to be one.
    let pretended = batch(BatchBuilder::new().log_append_time(NOW), &[(0, None)]);
    for timestamp_type in [TimestampType::CreateTime, TimestampType::LogAppendTime] {
        let rules = Rules { timestamp_type, ..rules };
        assert!(matches!(validated(&pretended, &rules), Err(ValidationError::Timestamps(_))));
    }
}

#[test]
fn a_wrong_max_timestamp_is_put_right() {
    let wrong = changed(&three(Compression::Snappy), |h| h.max_timestamp = TimestampMs(1));
    let Validated { header, body, .. } = validated(&wrong, &rules()).unwrap();
    assert_eq!(header.max_timestamp, TimestampMs(NOW.0 - 3));
    header.check_crc(&[&header.encode()[..], &body].concat()).unwrap();
}

#[test]
fn the_codec_of_the_topic_is_applied() {
    let plain = three(Compression::None);
    for source in Compression::ALL {
        for target in Compression::ALL {
            let rules = Rules { codec: Some(target.into()), ..rules() };
            let batch = three(source);
            let Validated { header, body, recompressed } = validated(&batch, &rules).unwrap();
            assert_eq!(recompressed, source != target);
            assert_eq!(header.compression(), Ok(target));
            header.check_crc(&[&header.encode()[..], &body].concat()).unwrap();
            let records = decompress(target, &body, 10_000, &mut Scratch::new()).unwrap();
            assert_eq!(records, plain[HEADER_LEN..]);
            assert_eq!(Records::new(&records, 3).count(), 3);
        }
    }
    // Control records stay as they were written.
    let control = batch(BatchBuilder::new().control(true), &[(0, Some("k"))]);
    let rules = Rules { codec: Some(Compression::Gzip.into()), ..rules() };
    let kept = validate(&control, &rules, Origin::Coordinator, NOW, &mut Scratch::new()).unwrap();
    assert_eq!(kept.header.compression(), Ok(Compression::None));
}

#[test]
fn sizes_are_bounded_as_sent_as_written_and_as_expanded() {
    let batch = three(Compression::None);
    let size = batch.len();
    validated(&batch, &Rules { batch_bytes_max: size, ..rules() }).unwrap();
    let too_large = Rules { batch_bytes_max: size - 1, ..rules() };
    assert_eq!(validated(&batch, &too_large), Err(ValidationError::TooLarge { size, max: size - 1 }));

    // Small when sent, too large once it is written without compression.
    let compressed = three(Compression::Zstd);
    assert!(compressed.len() < size);
    validated(&compressed, &too_large).unwrap();
    let plain = Rules { codec: Some(Codec::NONE), ..too_large };
    assert!(matches!(validated(&compressed, &plain), Err(ValidationError::TooLarge { .. })));

    for codec in &Compression::ALL[1..] {
        let body = size - HEADER_LEN;
        let exact = Rules { expansion_max: body, ..rules() };
        validated(&three(*codec), &exact).unwrap();
        let less = Rules { expansion_max: body - 1, ..rules() };
        assert!(matches!(
            invalid(validated(&three(*codec), &less)),
            InvalidBatch::Record { error: RecordError::Decompress(DecompressError::TooLarge { .. }), .. }
        ));
    }
}

#[test]
fn the_records_of_a_compressed_batch_are_bounded_one_by_one() {
    let plain = three(Compression::None);
    let records = Skim::new(&plain[HEADER_LEN..], 3);
    let largest = records.map(|record| record.unwrap().body_len).max().unwrap();
    let exact = Rules { record_bytes_max: largest, ..rules() };
    let less = Rules { record_bytes_max: largest - 1, ..rules() };
    for target in [None, Some(Codec::NONE), Some(Compression::Lz4.into())] {
        let (exact, less) = (Rules { codec: target, ..exact }, Rules { codec: target, ..less });
        for codec in &Compression::ALL[1..] {
            validated(&three(*codec), &exact).unwrap();
            let refused = invalid(validated(&three(*codec), &less));
            assert_eq!(refused, InvalidBatch::RecordTooLarge { index: 0, size: largest, max: largest - 1 });
        }
        validated(&plain, &less).unwrap();
    }
}

#[test]
fn a_bomb_costs_no_memory() {
    // 64 MiB of one record in about 6 KB of zstd.
    let mut builder = BatchBuilder::new().compression(Compression::Zstd);
    builder.push(NOW, None, Some(&vec![0; 64 << 20]), &[]);
    let bomb = builder.build().unwrap();
    assert!(bomb.len() < 10_000);
    let rules = Rules { expansion_max: 1 << 20, ..rules() };
    assert!(matches!(invalid(validated(&bomb, &rules)), InvalidBatch::Record { .. }));
}

proptest! {
    /// Whatever comes in, even under a true checksum: what is accepted decodes to the records that the header announces.
    #[test]
    fn nothing_invalid_gets_through(
        codec in 0..5usize,
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..3),
        target in proptest::option::of(0..5usize),
        origin in prop_oneof![Just(Origin::Client), Just(Origin::Coordinator)],
    ) {
        let mut bytes = three(Compression::ALL[codec]).to_vec();
        for (at, byte) in flips {
            // Not magic and length: they are looked at before the checksum.
            let at = 21 + at.index(bytes.len() - 21);
            bytes[at] = byte;
        }
        let batch = changed(&bytes.into(), |_| {});
        let rules = Rules { codec: target.map(|t| Compression::ALL[t].into()), expansion_max: 1 << 20, ..rules() };
        if let Ok(Validated { header, body, .. }) = validate(&batch, &rules, origin, NOW, &mut Scratch::new()) {
            header.check_crc(&[&header.encode()[..], &body].concat()).unwrap();
            header.check_ranges().unwrap();
            let codec = header.compression().unwrap();
            let plain = decompress(codec, &body, 1 << 20, &mut Scratch::new()).unwrap();
            let records: Vec<_> = Records::new(&plain, header.record_count).map(Result::unwrap).collect();
            prop_assert_eq!(records.len() as i32, header.last_offset_delta + 1);
            prop_assert!(records.iter().enumerate().all(|(index, r)| r.offset_delta == index as i32));
        }
    }
}
