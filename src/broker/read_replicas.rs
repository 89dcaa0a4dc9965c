//! The followers of a partition that is led here, as those who choose where a consumer reads see them (KIP-392): who is in
//! sync, and which part of the log each has.
//!
//! The partition's shard publishes; readers take no lock. Must not know racks or requests. Invariant: only replicas that
//! the committed in-sync set has are in it.

use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::ArcSwap;

use crate::replica::InSyncFollower;
use crate::types::{NodeId, Offset};

#[derive(Debug)]
struct Entry {
    node: NodeId,
    log_start: AtomicI64,
    log_end: AtomicI64,
}

#[derive(Debug, Default)]
pub struct ReadReplicas(ArcSwap<Vec<Entry>>);

impl ReadReplicas {
    /// Replaces what was known.
    pub(super) fn publish(&self, followers: impl Iterator<Item = InSyncFollower> + Clone) {
        let known = self.0.load();
        if known.iter().map(|entry| entry.node).eq(followers.clone().map(|follower| follower.node)) {
            for (entry, follower) in known.iter().zip(followers) {
                entry.log_start.store(follower.log_start.0, Ordering::Relaxed);
                entry.log_end.store(follower.log_end.0, Ordering::Relaxed);
            }
            return;
        }
        let entries = followers.map(|follower| Entry {
            node: follower.node,
            log_start: AtomicI64::new(follower.log_start.0),
            log_end: AtomicI64::new(follower.log_end.0),
        });
        self.0.store(entries.collect::<Vec<_>>().into());
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.load().is_empty()
    }

    /// Among those who have `offset` and are `eligible`, the one that has most.
    pub fn best(&self, offset: Offset, eligible: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let known = self.0.load();
        let able = known.iter().filter_map(|entry| {
            let log_end = entry.log_end.load(Ordering::Relaxed);
            let has_it = entry.log_start.load(Ordering::Relaxed) <= offset.0 && offset.0 <= log_end;
            (has_it && eligible(entry.node)).then_some((log_end, entry.node))
        });
        able.max().map(|(_, node)| node)
    }
}

#[cfg(test)]
mod tests {
    use super::ReadReplicas;
    use crate::replica::InSyncFollower;
    use crate::types::{NodeId, Offset};

    fn followers(followers: &[(i32, i64, i64)]) -> impl Iterator<Item = InSyncFollower> + Clone {
        followers.iter().map(|&(node, log_start, log_end)| InSyncFollower {
            node: NodeId(node),
            log_start: Offset(log_start),
            log_end: Offset(log_end),
        })
    }

    #[test]
    fn the_replica_that_has_most_is_best() {
        let replicas = ReadReplicas::default();
        assert_eq!(replicas.best(Offset(0), |_| true), None);
        replicas.publish(followers(&[(2, 0, 10), (3, 5, 20), (4, 0, 5)]));
        let best = |offset, not: i32| replicas.best(Offset(offset), |node| node != NodeId(not));
        assert_eq!(best(7, 0), Some(NodeId(3)));
        assert_eq!(best(7, 3), Some(NodeId(2)), "one that is not eligible");
        assert_eq!(best(3, 0), Some(NodeId(2)), "below where 3 begins");
        assert_eq!(best(20, 0), Some(NodeId(3)), "the end is in it");
        assert_eq!(best(21, 0), None, "nobody has come so far");
        // The same replicas with other offsets, and then others.
        replicas.publish(followers(&[(2, 0, 30), (3, 5, 20), (4, 0, 5)]));
        assert_eq!(replicas.best(Offset(7), |_| true), Some(NodeId(2)));
        replicas.publish(followers(&[(4, 0, 40)]));
        assert_eq!(replicas.best(Offset(7), |_| true), Some(NodeId(4)));
        replicas.publish(followers(&[]));
        assert_eq!(replicas.best(Offset(7), |_| true), None);
    }
}
