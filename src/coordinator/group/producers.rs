//! The epochs at which producers have committed offsets in transactions, so that one that was fenced is refused before its
//! records are made. The log would refuse them as well, but only by failing the append.
//!
//! Invariant: an epoch never falls as long as the producer is known.

use std::collections::BTreeMap;

use super::Producer;
use crate::types::{ProducerEpoch, ProducerId, TimestampMs};

/// How long a producer is known that does nothing. The log forgets it after `producer.id.expiration.ms`, by default as
/// late as this.
const KEPT_MS: i64 = 24 * 60 * 60 * 1_000;

#[derive(Debug, Default)]
pub struct Producers {
    known: BTreeMap<ProducerId, Known>,
}

#[derive(Debug)]
struct Known {
    epoch: ProducerEpoch,
    /// `TimestampMs::NONE` until `expire` has come by, which knows the time.
    since: TimestampMs,
}

impl Producers {
    pub fn is_fenced(&self, producer: Producer) -> bool {
        self.known.get(&producer.id).is_some_and(|known| producer.epoch < known.epoch)
    }

    /// The producer has written, or its transaction has ended.
    pub fn seen(&mut self, producer: Producer) {
        let known = self
            .known
            .entry(producer.id)
            .or_insert(Known { epoch: producer.epoch, since: TimestampMs::NONE });
        known.epoch = known.epoch.max(producer.epoch);
        known.since = TimestampMs::NONE;
    }

    /// Forgets the producers that have been seen last too long ago, as far as this was called often enough to know.
    pub fn expire(&mut self, now: TimestampMs) {
        self.known.retain(|_, known| {
            if known.since == TimestampMs::NONE {
                known.since = now;
            }
            known.since > now.minus(KEPT_MS)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_epoch_is_fenced_for_a_day() {
        let producer = |epoch| Producer { id: ProducerId(7), epoch: ProducerEpoch(epoch) };
        let mut producers = Producers::default();
        assert!(!producers.is_fenced(producer(3)));
        producers.seen(producer(3));
        producers.seen(producer(2));
        assert!(producers.is_fenced(producer(2)) && !producers.is_fenced(producer(3)));
        producers.expire(TimestampMs(1_000));
        producers.expire(TimestampMs(999 + KEPT_MS));
        assert!(producers.is_fenced(producer(2)));
        producers.expire(TimestampMs(1_000 + KEPT_MS));
        assert!(!producers.is_fenced(producer(2)));
    }
}
