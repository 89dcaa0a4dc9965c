//! Golden messages cut short, changed and lied in, at every decoder; and garbage at the header. Nothing may panic, and
//! nothing may reserve more than a few megabytes for a frame of a few hundred bytes.

use super::allocator::peak_of;
use super::files::{VARIANTS, bytes};
use super::golden::{Check, check_all};
use super::random::Random;
use bytes::{BufMut, Bytes, BytesMut};
use floodmark::wire::api::{API_TABLE, ApiRow};
use floodmark::wire::frame::{decode, parse_request};
use floodmark::wire::messages::{ProduceRequest, codec};
use kafka_protocol::protocol::{Decodable, Encodable};
use std::fmt::Debug;

/// What decoding may hold for a small frame. The guard lets through, for each level of nesting, as many elements as
/// the highest tag has a number.
const SMALL_FRAME_PEAK: usize = 4 << 20;

/// What decoding may hold for a large frame that is all lies.
const LARGE_FRAME_LEN: usize = 512 << 10;
const LARGE_FRAME_PEAK: usize = 64 << 20;

/// Lengths that are too long in one way or another: as an i32, an i16, or a varint.
const LIES: [&[u8]; 7] = [
    &[0x7f, 0xff, 0xff, 0xff],
    &[0x80, 0x00, 0x00, 0x00],
    &[0x00, 0x04, 0x00, 0x00],
    &[0x7f, 0xff],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff],
    &[0xff, 0x7f],
];

/// Decodes, encodes what came out, and checks the memory.
fn feed<T: Decodable + Encodable>(frame: &Bytes, version: i16, most: usize, what: &str) {
    let peak = peak_of(|| {
        drop(decode::<T>(frame.clone(), version));
    });
    assert!(peak <= most, "{what}: decoding {} bytes held {peak}", frame.len());
    if let Ok(message) = decode::<T>(frame.clone(), version) {
        // Values beyond what the version can carry are an error, not a panic.
        drop(message.encode(&mut BytesMut::new(), version));
    }
}

struct BreakGolden;

impl Check for BreakGolden {
    fn check<T: Decodable + Encodable + Debug>(row: &ApiRow, version: i16, kind: &str) {
        let mut random = Random(
            0x9e37_79b9_7f4a_7c15 ^ (row.key as u64) << 32 ^ (version as u64) << 8 ^ kind.len() as u64,
        );
        for variant in VARIANTS {
            let golden = bytes(row, version, kind, variant);
            let feed = |frame: Bytes, how: &str| {
                let what = format!("{} {kind} version {version}{variant}, {how}", row.name);
                feed::<T>(&frame, version, SMALL_FRAME_PEAK, &what);
            };
            let places = |random: &mut Random| -> Vec<usize> {
                if golden.len() <= 64 {
                    (0..golden.len()).collect()
                } else {
                    (0..64).map(|_| random.below(golden.len())).collect()
                }
            };
            for len in places(&mut random) {
                feed(golden.slice(..len), "cut short");
            }
            for at in places(&mut random) {
                for lie in LIES {
                    let mut frame = golden.to_vec();
                    let end = frame.len().min(at + lie.len());
                    frame[at..end].copy_from_slice(&lie[..end - at]);
                    feed(frame.into(), "with a false length");
                }
            }
            for _ in 0..64 {
                let mut frame = golden.to_vec();
                for _ in 0..=random.below(4).min(frame.len()) {
                    if !frame.is_empty() {
                        let at = random.below(frame.len());
                        frame[at] = random.below(256) as u8;
                    }
                }
                feed(frame.into(), "changed");
            }
        }
    }
}

struct LieLarge;

impl Check for LieLarge {
    fn check<T: Decodable + Encodable + Debug>(row: &ApiRow, version: i16, kind: &str) {
        for filler in [0, 1] {
            for lie in [LIES[0], &[0x00, 0x04, 0x00, 0x00], &[0x00, 0x20, 0x00, 0x00], &[0x80, 0x80, 0x10]] {
                let mut frame = vec![filler; LARGE_FRAME_LEN];
                for start in (0..64).step_by(lie.len()) {
                    frame[start..start + lie.len()].copy_from_slice(lie);
                }
                let what = format!("{} {kind} version {version}, 512 KiB of {filler}", row.name);
                feed::<T>(&frame.into(), version, LARGE_FRAME_PEAK, &what);
            }
        }
    }
}

#[test]
fn broken_messages_cost_little() {
    check_all::<BreakGolden>();
}

#[test]
fn large_frames_full_of_lies_cost_a_bounded_amount() {
    check_all::<LieLarge>();
}

/// The dearest message there is for its size: empty topics, each with an unknown tagged field.
#[test]
fn a_dense_frame_is_refused_and_a_sparse_one_costs_a_bounded_amount() {
    let version = 9;
    let produce = |padding: usize| {
        let topics = 200_000u32;
        let mut frame = BytesMut::from(&[0, 0, 1, 0, 0, 0, 0][..]);
        codec::put_varint(&mut frame, topics + 1);
        for _ in 0..topics {
            // An empty name, no partitions, one tagged field: tag 99, no bytes.
            frame.put_slice(&[1, 1, 1, 99, 0]);
        }
        frame.put_slice(&[1, 99]);
        codec::put_varint(&mut frame, padding as u32);
        frame.put_bytes(0, padding);
        frame.freeze()
    };
    assert!(decode::<ProduceRequest>(produce(0), version).is_err());
    let peak = peak_of(|| drop(decode::<ProduceRequest>(produce(4 << 20), version).unwrap()));
    assert!(peak < 200 << 20, "{peak}");
}

#[test]
fn garbage_is_no_request() {
    let mut random = Random(7);
    for round in 0..200_000 {
        let mut frame: Vec<u8> = (0..random.below(40)).map(|_| random.below(256) as u8).collect();
        // Every other frame gets as far as the header's variable part.
        if round % 2 == 0 && frame.len() >= 4 {
            let row = &API_TABLE[random.below(API_TABLE.len())];
            frame[..2].copy_from_slice(&row.key.to_be_bytes());
            let version = row.min + random.below((row.max - row.min + 1) as usize) as i16;
            frame[2..4].copy_from_slice(&version.to_be_bytes());
        }
        let peak = peak_of(|| drop(parse_request(frame.into())));
        assert!(peak < 1 << 16, "a header held {peak} bytes");
    }
}
