//! How many producers are remembered: by a partition, and by all partitions of a broker together. Clients that take a new
//! producer id for every few records would otherwise fill the memory of brokers for as long as producers are kept (KIP-936).
//!
//! Owns the counting, and who is forgotten. Producers with an open transaction are not counted: they cannot be
//! forgotten, and are no more than there are transactional ids at work. Those about which a coordinator is being asked are
//! counted apart. Three quarters of what a broker may hold is for whoever comes first; the last
//! quarter is for the partitions that have less than an equal share of it, so that one partition's churn leaves the others
//! what they need. Invariant: `held` is the sum of the partitions' counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::ProducerState;

/// As one has to be forgotten, so many go at once, as a part of all: looking for the oldest takes as long for many.
const FORGOTTEN_PART: usize = 16;

/// The producers that all partitions of a broker remember.
#[derive(Debug)]
pub struct ProducerBudget {
    max: usize,
    held: AtomicUsize,
    /// How many counts are not 0: of partitions, and of the producers that they ask about.
    partitions: AtomicUsize,
    forgotten: AtomicU64,
}

impl ProducerBudget {
    pub fn new(max: usize) -> Arc<ProducerBudget> {
        let (held, partitions, forgotten) = Default::default();
        Arc::new(ProducerBudget { max, held, partitions, forgotten })
    }

    /// How many are remembered now, those with an open transaction not counted.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// How many have been forgotten since the start because there were too many.
    pub fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    /// How many should be given up where `count` of them are.
    fn surplus(&self, count: usize) -> usize {
        let (held, reserve) = (self.held(), self.max / 4);
        let share = reserve / self.partitions.load(Ordering::Relaxed).max(1);
        let over = held.saturating_sub(self.max - reserve);
        if over > 0 && count > share { over.min(count - share) } else { usize::from(held > self.max) }
    }
}

/// A part of the budget, given back when it goes.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// `None`: nobody counts.
    budget: Option<Arc<ProducerBudget>>,
    count: usize,
}

impl Held {
    pub(super) fn new(budget: Arc<ProducerBudget>) -> Held {
        Held { budget: Some(budget), count: 0 }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn set(&mut self, count: usize) {
        let before = std::mem::replace(&mut self.count, count);
        let Some(budget) = &self.budget else { return };
        if count > before {
            budget.held.fetch_add(count - before, Ordering::Relaxed);
        } else {
            budget.held.fetch_sub(before - count, Ordering::Relaxed);
        }
        if before == 0 && count > 0 {
            budget.partitions.fetch_add(1, Ordering::Relaxed);
        } else if before > 0 && count == 0 {
            budget.partitions.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn surplus(&self) -> usize {
        self.budget.as_ref().map_or(0, |budget| budget.surplus(self.count))
    }

    pub(super) fn note_forgotten(&self, count: usize) {
        if let Some(budget) = &self.budget {
            budget.forgotten.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
}

/// A copy counts as well.
impl Clone for Held {
    fn clone(&self) -> Held {
        let mut copy = Held { budget: self.budget.clone(), count: 0 };
        copy.set(self.count);
        copy
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl ProducerState {
    /// The same with at most `limit` producers, those with an open transaction not counted.
    pub fn limited(mut self, limit: usize) -> ProducerState {
        self.set_limit(limit);
        self
    }

    /// Counts in the budget from now on.
    pub fn counted(mut self, budget: Arc<ProducerBudget>) -> ProducerState {
        self.verifications.count_in(Held::new(budget.clone()));
        self.held = Held::new(budget);
        self.keep_bound();
        self
    }

    /// Counts in no budget any more.
    pub fn uncounted(mut self) -> ProducerState {
        self.verifications.count_in(Held::default());
        self.held = Held::default();
        self
    }

    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.keep_bound();
    }

    /// How many may be forgotten: they have no transaction open. (Some of the others may be missing in a part of a state.)
    fn idle(&self) -> usize {
        self.producers.len().saturating_sub(self.ongoing.len())
    }

    /// Forgets some if there are more than before and too many of them.
    pub(super) fn note_idle(&mut self) {
        if self.idle() != self.held.count() {
            self.keep_bound();
        }
    }

    /// Forgets as many as are too many, here or in the whole broker.
    pub fn keep_bound(&mut self) {
        let idle = self.idle();
        self.held.set(idle);
        let surplus = idle.saturating_sub(self.limit).max(self.held.surplus());
        if surplus > 0 {
            self.forget_oldest(surplus.max(idle / FORGOTTEN_PART));
            self.held.set(self.idle());
        }
    }

    /// Forgets those without an open transaction that wrote longest ago, all but one at the most.
    fn forget_oldest(&mut self, count: usize) {
        let idle = self.producers.iter().filter(|(_, entry)| entry.current_txn_first_offset.is_none());
        let mut oldest: Vec<_> = idle.map(|(&producer_id, entry)| (entry.last_used, producer_id)).collect();
        let count = count.min(oldest.len().saturating_sub(1));
        if count == 0 {
            return;
        }
        oldest.select_nth_unstable(count);
        for (_, producer_id) in &oldest[..count] {
            self.producers.remove(producer_id);
        }
        self.shrink();
        self.forgotten += count;
        self.held.note_forgotten(count);
    }

    /// How many were forgotten because there were too many, since it was asked last.
    pub fn take_forgotten(&mut self) -> usize {
        std::mem::take(&mut self.forgotten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_partition_holds_is_counted_until_it_goes() {
        let budget = ProducerBudget::new(100);
        let mut one = Held::new(budget.clone());
        let mut two = Held::new(budget.clone());
        one.set(5);
        two.set(3);
        one.set(2);
        assert_eq!((budget.held(), budget.partitions.load(Ordering::Relaxed)), (5, 2));
        let copy = two.clone();
        assert_eq!(budget.held(), 8);
        drop((copy, one));
        two.set(0);
        assert_eq!((budget.held(), budget.partitions.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn the_last_quarter_is_for_partitions_with_less_than_their_share() {
        let budget = ProducerBudget::new(100);
        let mut many = Held::new(budget.clone());
        many.set(75);
        assert_eq!(many.surplus(), 0);
        many.set(77);
        assert_eq!(many.surplus(), 2);
        let mut few = Held::new(budget.clone());
        // The share is 12 now.
        few.set(12);
        assert_eq!((few.surplus(), many.surplus()), (0, 14));
        few.set(13);
        assert_eq!(few.surplus(), 1);
        few.set(12);
        let others: Vec<Held> = (0..12)
            .map(|_| {
                let mut other = Held::new(budget.clone());
                other.set(1);
                other
            })
            .collect();
        // Beyond the whole budget nobody grows.
        assert_eq!(budget.held(), 101);
        assert!(others.iter().all(|other| other.surplus() == 1));
        assert_eq!(many.surplus(), 26);
    }
}
