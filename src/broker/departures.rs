//! Which brokers have left the cluster a moment ago. Clients are told for that moment where they were: some drop all that they
//! have under way with a broker which is no longer listed, and look again only a second later, where they would else go over to
//! the new leaders at once.
//!
//! Must not know requests. Invariant: who is named is fenced in the newest image that was shown, and was not a moment before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::clock;
use crate::metadata::{Image, ImageVersion};
use crate::types::{MonotonicMs, NodeId};

/// Clients that lose a connection ask for metadata within a few tenths of a second, by the pauses that they make by default.
const MOMENT_MS: i64 = 1_000;

#[derive(Clone, Debug, Default)]
pub struct Departures(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    version: ImageVersion,
    serving: BTreeSet<NodeId>,
    left: BTreeMap<NodeId, MonotonicMs>,
}

impl Departures {
    /// Whom a reader of `image` should still be told of although they are fenced.
    pub fn look(&self, image: &Image, now: MonotonicMs) -> Vec<NodeId> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.show(image, now);
        seen.left.iter().filter(|(_, since)| now.0 < since.0 + MOMENT_MS).map(|(id, _)| *id).collect()
    }

    /// Looks at each image, so that nobody leaves unseen.
    pub async fn follow(self, mut images: watch::Receiver<Arc<Image>>) {
        loop {
            let image = Arc::clone(&images.borrow_and_update());
            self.look(&image, clock::monotonic());
            if images.changed().await.is_err() {
                return;
            }
        }
    }
}

impl Seen {
    fn show(&mut self, image: &Image, now: MonotonicMs) {
        if image.version <= self.version {
            return;
        }
        let serving = image.brokers.iter().filter(|broker| !broker.fenced).map(|broker| broker.id).collect();
        let before = std::mem::replace(&mut self.serving, serving);
        self.left.retain(|id, since| now.0 < since.0 + MOMENT_MS && !self.serving.contains(id));
        self.left.extend(before.difference(&self.serving).map(|id| (*id, now)));
        self.version = image.version;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::record::Record;
    use crate::wire::messages::metadata::{BrokerRegistrationChangeRecord, RegisterBrokerRecord};

    fn then(image: &Image, records: &[Record]) -> Image {
        let mut image = image.clone();
        records.iter().for_each(|record| image.apply(record));
        image
    }

    fn unfenced(id: i32) -> Record {
        let mut record = RegisterBrokerRecord::default();
        (record.broker_id, record.broker_epoch, record.fenced) = (id, 1, false);
        record.into()
    }

    fn change(id: i32, fenced: i8) -> Record {
        BrokerRegistrationChangeRecord { broker_id: id, broker_epoch: 1, fenced, ..Default::default() }.into()
    }

    #[test]
    fn who_left_is_named_for_a_moment() {
        let departures = Departures::default();
        let look = |image: &Image, now| departures.look(image, MonotonicMs(now));
        let both = then(&Image::default(), &[unfenced(1), unfenced(2)]);
        assert_eq!(look(&both, 0), []);
        let one = then(&both, &[change(2, 1)]);
        assert_eq!(look(&one, 10_000), [NodeId(2)]);
        // A reader who still has the image before, and one who comes later.
        assert_eq!(look(&both, 10_500), [NodeId(2)]);
        assert_eq!(look(&one, 10_999), [NodeId(2)]);
        assert_eq!(look(&one, 11_000), []);
        // Back, and gone again; the moment begins anew.
        let back = then(&one, &[change(2, -1)]);
        assert_eq!(look(&back, 11_100), []);
        let gone = then(&back, &[change(2, 1)]);
        assert_eq!(look(&gone, 11_200), [NodeId(2)]);
        // Who was never seen to serve has not left.
        let fresh = Departures::default();
        assert_eq!(fresh.look(&gone, MonotonicMs(0)), []);
    }
}
