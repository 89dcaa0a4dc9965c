//! Which record of each key is the last one in the part of a log that is compacted: a hash table of fixed size that knows
//! digests instead of keys. Must not know where the keys come from.
//!
//! Digests have 128 bits and depend on a secret, so that nobody can make two keys that are taken for one. Invariant: at least
//! one slot is empty, so that every search ends.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;

use crate::types::Offset;

/// Half of the digest, the other half, and the offset plus one; an empty slot is all zeros.
type Slot = [u64; 3];

/// As with Kafka, a map is not larger than this.
const BYTES_MAX: usize = i32::MAX as usize;

#[derive(Debug)]
pub(super) struct OffsetMap {
    slots: Vec<Slot>,
    used: usize,
    used_max: usize,
    secret: [u64; 2],
}

/// What a map may cost, and its secret.
#[derive(Clone, Copy, Debug)]
pub struct MapLimits {
    pub bytes: usize,
    /// How much of it may be filled; beyond about 0.9 searches become slow.
    pub load_factor: f64,
    pub secret: u128,
}

impl OffsetMap {
    /// A map for up to `keys` keys, if the limits allow so many.
    pub(super) fn new(limits: &MapLimits, keys: u64) -> OffsetMap {
        let load = if limits.load_factor > 0.0 { limits.load_factor.min(1.0) } else { f64::MIN_POSITIVE };
        let affordable = (limits.bytes.min(BYTES_MAX) / size_of::<Slot>()).max(2);
        // Saturates, and is then more than affordable.
        let needed = (keys as f64 / load).ceil() as usize;
        let slots = needed.saturating_add(2).min(affordable);
        let used_max = ((slots as f64 * load) as usize).clamp(1, slots - 1);
        let secret = [limits.secret as u64, (limits.secret >> 64) as u64];
        OffsetMap { slots: vec![[0; 3]; slots], used: 0, used_max, secret }
    }

    /// Notes that a record with the key is at `offset`. `false` when there is no room for a further key.
    pub(super) fn put(&mut self, key: &[u8], offset: Offset) -> bool {
        let [high, low] = self.digest(key);
        let at = self.find(high, low);
        if self.slots[at][2] == 0 {
            if self.used == self.used_max {
                return false;
            }
            self.used += 1;
        }
        self.slots[at] = [high, low, offset.0 as u64 + 1];
        true
    }

    /// The offset that was last put for the key.
    pub(super) fn get(&self, key: &[u8]) -> Option<Offset> {
        let [high, low] = self.digest(key);
        self.slots[self.find(high, low)][2].checked_sub(1).map(|offset| Offset(offset as i64))
    }

    /// How many keys are known.
    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// The slot of a digest, or the one where it belongs.
    fn find(&self, high: u64, low: u64) -> usize {
        let mut at = (high % self.slots.len() as u64) as usize;
        while self.slots[at][2] != 0 && self.slots[at][..2] != [high, low] {
            at = (at + 1) % self.slots.len();
        }
        at
    }

    fn digest(&self, key: &[u8]) -> [u64; 2] {
        self.secret.map(|secret| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(secret);
            hasher.write(key);
            hasher.finish()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(bytes: usize) -> MapLimits {
        MapLimits { bytes, load_factor: 0.9, secret: 0x1234_5678_9abc_def0_0fed_cba9_8765_4321 }
    }

    #[test]
    fn the_last_offset_of_each_key_is_known() {
        let mut map = OffsetMap::new(&limits(1 << 20), 5000);
        for round in 0..3 {
            for key in 0..5000i64 {
                assert!(map.put(&key.to_be_bytes(), Offset(round * 10_000 + key)));
            }
        }
        assert_eq!(map.len(), 5000);
        for key in 0..5000i64 {
            assert_eq!(map.get(&key.to_be_bytes()), Some(Offset(20_000 + key)));
            assert_eq!(map.get(&(key + 5000).to_be_bytes()), None);
        }
        assert!(map.put(b"", Offset(0)));
        assert_eq!(map.get(b""), Some(Offset(0)));
    }

    #[test]
    fn a_full_map_takes_no_further_key_and_finds_the_ones_it_has() {
        for bytes in [0, 24, 48, 100, 2400] {
            let mut map = OffsetMap::new(&limits(bytes), u64::MAX);
            let fits = (0..1000u32).take_while(|key| map.put(&key.to_be_bytes(), Offset(1))).count();
            assert!(fits >= 1 && fits <= (bytes / 24).max(2), "{fits} of {bytes}");
            assert!(!map.put(b"other", Offset(2)));
            assert!(map.put(&0u32.to_be_bytes(), Offset(3)));
            assert_eq!(map.get(&0u32.to_be_bytes()), Some(Offset(3)));
            assert_eq!(map.get(b"other"), None);
        }
    }

    #[test]
    fn memory_is_bounded_by_the_limit_and_by_the_need() {
        let bytes = |map: &OffsetMap| map.slots.len() * size_of::<Slot>();
        assert!(bytes(&OffsetMap::new(&limits(10_000), u64::MAX)) <= 10_000);
        assert!(bytes(&OffsetMap::new(&limits(1 << 27), 10)) <= 1000);
        for load_factor in [0.0, -1.0, 2.0, f64::NAN] {
            let map = OffsetMap::new(&MapLimits { load_factor, ..limits(1000) }, 10);
            assert!(map.used_max >= 1 && map.used_max < map.slots.len());
        }
    }
}
