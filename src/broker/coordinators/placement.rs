//! Which partition of an internal topic a key belongs to: Kafka's rule, for its clients and tools reckon with it.

use crate::types::PartitionIndex;

/// `String.hashCode` of Java.
pub fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0, |hash: i32, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// The partition of a key in a topic with this many partitions, at least one.
pub fn partition_of(key: &str, partitions: usize) -> PartitionIndex {
    let count = i32::try_from(partitions).unwrap_or(i32::MAX).max(1);
    PartitionIndex(java_hash(key).checked_abs().unwrap_or(0) % count)
}

#[cfg(test)]
mod tests {
    use super::{java_hash, partition_of};
    use crate::types::PartitionIndex;

    #[test]
    fn keys_go_where_java_puts_them() {
        // From String.hashCode; the last one is Integer.MIN_VALUE, of which there is no absolute value.
        for (text, hash) in [
            ("", 0),
            ("a", 97),
            ("my-group", -1_906_497_762),
            ("snow ☃", -897_595_738),
            ("😀", 1_772_899),
            ("polygenelubricants", i32::MIN),
        ] {
            assert_eq!(java_hash(text), hash, "{text}");
        }
        assert_eq!(partition_of("my-group", 50), PartitionIndex(12));
        assert_eq!(partition_of("polygenelubricants", 50), PartitionIndex(0));
        assert_eq!(partition_of("a", 0), PartitionIndex(0));
    }
}
