//! Followers that cannot wait for the answer to a fetch that they have under way here: they want another partition by now, as
//! after an election, and what is acknowledged waits for them. Kafka's followers wait in such a case for up to
//! `replica.fetch.wait.max.ms`.
//!
//! A follower counts its hurries; each of its fetches says how many there were when it was asked. Invariant: a fetch from
//! before the newest hurry of its follower waits for nothing, whichever of the two came first.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::types::{BrokerEpoch, NodeId};

/// How many hurries there were, of which process.
pub type Count = (BrokerEpoch, i64);

/// Cheap to clone; all clones share what is known.
#[derive(Clone, Debug, Default)]
pub struct Hurries(Arc<Mutex<BTreeMap<NodeId, watch::Sender<Count>>>>);

impl Hurries {
    /// Takes in what a fetch of this follower says. The follower must be a broker of the cluster, for it is remembered.
    pub fn heard(&self, follower: NodeId, count: Count) {
        let mut known = self.lock();
        let newest = known.entry(follower).or_insert_with(|| watch::Sender::new(count));
        newest.send_if_modified(|newest| {
            let is_newer = count > *newest;
            *newest = count.max(*newest);
            is_newer
        });
    }

    /// Resolves when the follower no longer waits for what it asked for with this count.
    pub async fn after(&self, follower: NodeId, count: Count) {
        let newest = self.lock().get(&follower).map(watch::Sender::subscribe);
        let Some(mut newest) = newest else { return std::future::pending().await };
        if newest.wait_for(|newest| *newest > count).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, watch::Sender<Count>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_fetch_from_before_a_hurry_waits_no_longer_whichever_comes_first() {
        let hurries = Hurries::default();
        let (follower, other) = (NodeId(2), NodeId(3));
        let count = |epoch, count| (BrokerEpoch(epoch), count);
        let is_over = |count| hurries.after(follower, count).now_or_never().is_some();
        hurries.heard(follower, count(7, 0));
        let mut waits = Box::pin(hurries.after(follower, count(7, 0)));
        assert!(waits.as_mut().now_or_never().is_none());
        hurries.heard(other, count(9, 9));
        assert!(waits.as_mut().now_or_never().is_none());
        hurries.heard(follower, count(7, 1));
        assert!(waits.now_or_never().is_some());
        assert!(is_over(count(7, 0)) && !is_over(count(7, 1)));
        // The next process counts from the beginning, and what the one before said says nothing of it.
        hurries.heard(follower, count(8, 0));
        hurries.heard(follower, count(7, 5));
        assert!(is_over(count(7, 5)) && !is_over(count(8, 0)));
    }
}
