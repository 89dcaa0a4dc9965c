//! Fetches that wait for more bytes. A waiter is a counter; whoever publishes new records subtracts their bytes, and at zero
//! the fetch wakes. Nothing is evaluated again, and a fetch that waits costs no CPU.
//!
//! Must not know requests or logs. Invariant: a waiter that registers and then looks at the view either sees a change in the
//! view or is told of it: the publisher stores the view first and takes the lock of the list after.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Which end of the log a fetch reads up to, and so whose movement it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A consumer of read_uncommitted.
    HighWatermark,
    /// A consumer of read_committed.
    LastStable,
    /// A follower.
    LogEnd,
}

/// Bytes that became readable below each bound. `u64::MAX` wakes whoever waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advance {
    pub high_watermark: u64,
    pub last_stable: u64,
    pub log_end: u64,
}

impl Advance {
    fn is_none(self) -> bool {
        self == Advance::default()
    }

    fn below(self, bound: Bound) -> u64 {
        match bound {
            Bound::HighWatermark => self.high_watermark,
            Bound::LastStable => self.last_stable,
            Bound::LogEnd => self.log_end,
        }
    }
}

/// One fetch that waits, for any number of partitions. Dropping it takes it out of all their lists, also when the connection
/// goes away in the middle.
#[derive(Debug)]
pub struct FetchWaiter {
    missing: Arc<Missing>,
    registrations: Vec<(Arc<Waiters>, usize)>,
}

/// The bytes that a fetch still wants.
#[derive(Debug)]
struct Missing {
    bytes: AtomicI64,
    enough: Notify,
}

impl FetchWaiter {
    /// A fetch that wants this many bytes.
    pub fn new(min_bytes: usize) -> FetchWaiter {
        let bytes = AtomicI64::new(i64::try_from(min_bytes).unwrap_or(i64::MAX));
        FetchWaiter { missing: Arc::new(Missing { bytes, enough: Notify::new() }), registrations: Vec::new() }
    }

    /// Registers with a partition. After the last registration, look at the views once more and report what is there already
    /// with [`found`](Self::found); then sleep.
    pub fn register(&mut self, waiters: &Arc<Waiters>, bound: Bound) {
        let slot = waiters.insert(Entry { missing: self.missing.clone(), bound });
        self.registrations.push((waiters.clone(), slot));
    }

    /// So many bytes are there; true when they are enough now.
    pub fn found(&self, bytes: u64) -> bool {
        self.missing.found(bytes)
    }

    /// Resolves when there are enough bytes, at once when there were before.
    pub async fn enough(&self) {
        self.missing.enough.notified().await;
    }
}

impl Missing {
    fn found(&self, bytes: u64) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let before = self
            .bytes
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |missing| Some(missing.saturating_sub(bytes)));
        let before = before.unwrap_or(0);
        if before > 0 && before <= bytes {
            self.enough.notify_one();
        }
        before <= bytes
    }
}

impl Drop for FetchWaiter {
    fn drop(&mut self) {
        for (waiters, slot) in self.registrations.drain(..) {
            waiters.remove(slot);
        }
    }
}

/// The fetches that wait for one partition.
#[derive(Debug, Default)]
pub struct Waiters {
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Entry {
    missing: Arc<Missing>,
    bound: Bound,
}

impl Waiters {
    /// Tells the waiting fetches of new bytes. Call it after the new view is stored.
    pub fn publish(&self, advance: Advance) {
        if advance.is_none() {
            return;
        }
        for entry in locked(&self.slots).entries.iter().flatten() {
            let bytes = advance.below(entry.bound);
            if bytes > 0 {
                entry.missing.found(bytes);
            }
        }
    }

    /// Wakes everybody: the partition moved, failed or went away.
    pub fn wake_all(&self) {
        self.publish(Advance { high_watermark: u64::MAX, last_stable: u64::MAX, log_end: u64::MAX });
    }

    fn insert(&self, entry: Entry) -> usize {
        let mut slots = locked(&self.slots);
        match slots.free.pop() {
            Some(slot) => {
                slots.entries[slot] = Some(entry);
                slot
            }
            None => {
                slots.entries.push(Some(entry));
                slots.entries.len() - 1
            }
        }
    }

    fn remove(&self, slot: usize) {
        let mut slots = locked(&self.slots);
        slots.entries[slot] = None;
        slots.free.push(slot);
        if slots.free.len() == slots.entries.len() {
            // Nobody waits: give the memory of a busy hour back.
            *slots = Slots::default();
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt as _;

    use super::{Advance, Bound, FetchWaiter, Waiters};

    fn committed(bytes: u64) -> Advance {
        Advance { high_watermark: bytes, last_stable: bytes, log_end: 0 }
    }

    fn is_woken(waiter: &FetchWaiter) -> bool {
        waiter.enough().now_or_never().is_some()
    }

    #[test]
    fn wakes_when_the_bytes_of_all_partitions_suffice() {
        let (one, two) = (Arc::new(Waiters::default()), Arc::new(Waiters::default()));
        let mut waiter = FetchWaiter::new(100);
        waiter.register(&one, Bound::HighWatermark);
        waiter.register(&two, Bound::HighWatermark);
        assert!(!is_woken(&waiter));
        one.publish(committed(60));
        one.publish(Advance { log_end: 1000, ..Advance::default() });
        assert!(!is_woken(&waiter));
        two.publish(committed(40));
        assert!(is_woken(&waiter));
        drop(waiter);
        assert!(one.slots.lock().unwrap().entries.is_empty());
        assert!(two.slots.lock().unwrap().entries.is_empty());
    }

    #[test]
    fn each_bound_has_its_own_movement() {
        let waiters = Arc::new(Waiters::default());
        let fetch = |bound| {
            let mut waiter = FetchWaiter::new(1);
            waiter.register(&waiters, bound);
            waiter
        };
        let consumer = fetch(Bound::HighWatermark);
        let committed = fetch(Bound::LastStable);
        let follower = fetch(Bound::LogEnd);
        waiters.publish(Advance { log_end: 5, ..Advance::default() });
        assert!(!is_woken(&consumer) && !is_woken(&committed) && is_woken(&follower));
        waiters.publish(Advance { high_watermark: 5, ..Advance::default() });
        assert!(is_woken(&consumer) && !is_woken(&committed));
        waiters.wake_all();
        assert!(is_woken(&committed));
    }

    #[test]
    fn what_is_there_already_counts() {
        let waiter = FetchWaiter::new(10);
        assert!(!waiter.found(9));
        assert!(waiter.found(1));
        assert!(waiter.found(0));
        assert!(FetchWaiter::new(0).found(0));
    }

    #[test]
    fn slots_are_used_again() {
        let waiters = Arc::new(Waiters::default());
        let mut stays = FetchWaiter::new(1);
        stays.register(&waiters, Bound::HighWatermark);
        for _ in 0..100 {
            FetchWaiter::new(1).register(&waiters, Bound::HighWatermark);
        }
        assert_eq!(waiters.slots.lock().unwrap().entries.len(), 2);
    }
}
