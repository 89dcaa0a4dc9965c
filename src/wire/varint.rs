//! Zigzag varints as records hold them: small numbers of either sign in few bytes.
//!
//! Owns the encoding and its limits (5 bytes for 32 bits, 10 for 64). Knows nothing of records.

/// The most bytes that a varint of 32 bits takes.
pub const VARINT_MAX: usize = 5;
/// The most bytes that a varint of 64 bits takes.
pub const VARLONG_MAX: usize = 10;

pub fn put_varint(out: &mut Vec<u8>, value: i32) {
    put_unsigned(out, u64::from(zigzag32(value)));
}

pub fn put_varlong(out: &mut Vec<u8>, value: i64) {
    put_unsigned(out, zigzag64(value));
}

pub fn varint_len(value: i32) -> usize {
    unsigned_len(u64::from(zigzag32(value)))
}

pub fn varlong_len(value: i64) -> usize {
    unsigned_len(zigzag64(value))
}

/// Undoes zigzag: 0, 1, 2, 3 are 0, -1, 1, -2.
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn zigzag32(value: i32) -> u32 {
    (value << 1 ^ value >> 31) as u32
}

fn zigzag64(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn put_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn unsigned_len(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_take_the_bytes_that_kafka_gives_them() {
        for (value, bytes) in [
            (0, &[0][..]),
            (-1, &[1]),
            (1, &[2]),
            (63, &[0x7e]),
            (-64, &[0x7f]),
            (64, &[0x80, 1]),
            (i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out, bytes);
            assert_eq!(varint_len(value), bytes.len());
        }
        assert_eq!(varlong_len(i64::MIN), VARLONG_MAX);
        assert_eq!(varint_len(i32::MIN), VARINT_MAX);
    }

    proptest! {
        #[test]
        fn lengths_are_those_of_the_encoding(value: i64) {
            let mut out = Vec::new();
            put_varlong(&mut out, value);
            prop_assert_eq!(out.len(), varlong_len(value));
            prop_assert_eq!(unzigzag(zigzag64(value)), value);
            let small = value as i32;
            out.clear();
            put_varint(&mut out, small);
            prop_assert_eq!(out.len(), varint_len(small));
        }
    }
}
