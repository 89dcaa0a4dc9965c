//! The epochs at which producers have committed offsets in transactions, so that one that was fenced is refused before its
//! records are made. The log would refuse them as well, but only by failing the append. And how many of its transactions have
//! ended here: while a transaction's coordinator is being asked about a commit, the transaction may end, and the commit would
//! begin another one that nobody ends.
//!
//! Invariant: an epoch never falls as long as the producer is known.

use std::collections::BTreeMap;

use super::Producer;
use crate::types::{ProducerEpoch, ProducerId, TimestampMs};

/// How long a producer is known that does nothing. The log forgets it after `producer.id.expiration.ms`, by default as
/// late as this.
const KEPT_MS: i64 = 24 * 60 * 60 * 1_000;

/// How many transactions of a producer have ended, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended(pub u64);

#[derive(Debug, Default)]
pub struct Producers {
    known: BTreeMap<ProducerId, Known>,
}

#[derive(Debug)]
struct Known {
    epoch: ProducerEpoch,
    ended: u64,
    /// `TimestampMs::NONE` until `expire` has come by, which knows the time.
    since: TimestampMs,
}

impl Producers {
    pub fn is_fenced(&self, producer: Producer) -> bool {
        self.known.get(&producer.id).is_some_and(|known| producer.epoch < known.epoch)
    }

    /// The producer has written.
    pub fn seen(&mut self, producer: Producer) {
        self.known(producer);
    }

    /// A transaction of the producer has ended.
    pub fn ended(&mut self, producer: Producer) {
        self.known(producer).ended += 1;
    }

    /// How many of its transactions have ended so far.
    pub fn ends(&self, producer: ProducerId) -> Ended {
        Ended(self.known.get(&producer).map_or(0, |known| known.ended))
    }

    fn known(&mut self, producer: Producer) -> &mut Known {
        let new = Known { epoch: producer.epoch, ended: 0, since: TimestampMs::NONE };
        let known = self.known.entry(producer.id).or_insert(new);
        known.epoch = known.epoch.max(producer.epoch);
        known.since = TimestampMs::NONE;
        known
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
