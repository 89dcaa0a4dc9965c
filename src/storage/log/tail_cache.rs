//! The newest batches of a log, kept in memory so that consumers and followers at the end of it need no disk. Must not
//! know what may be shown to whom: a read names its bound.
//!
//! A batch that is kept pins the network frame that it came in. So small batches are copied, every log and all logs
//! together have a budget, and what is older than a while is dropped.
//!
//! Invariant: the batches are consecutive and the last one ends where the log does, or there are none.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use crate::storage::locked;
use crate::types::{Offset, TimestampMs};
use crate::wire::batch::HEADER_LEN;

/// Bodies up to this size are copied into memory of their own, so that they do not pin a frame.
const COPY_ON_PUSH: usize = 4096;
/// Bodies up to this size are copied into an answer: cheaper than one more part of a vectored write.
const COPY_ON_READ: usize = 1024;

/// The memory that all tail caches of a broker share.
#[derive(Debug)]
pub struct TailBudget {
    limit: usize,
    limit_per_log: usize,
    used: AtomicUsize,
}

impl TailBudget {
    /// At most `limit` bytes in all, and at most `limit_per_log` for one log.
    pub fn new(limit: usize, limit_per_log: usize) -> Arc<TailBudget> {
        Arc::new(TailBudget { limit, limit_per_log, used: AtomicUsize::new(0) })
    }

    /// The bytes that are kept now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub struct TailCache {
    budget: Arc<TailBudget>,
    tail: Mutex<Tail>,
    /// Nobody reads the log, so nothing is kept.
    is_idle: AtomicBool,
}

#[derive(Debug, Default)]
struct Tail {
    batches: VecDeque<Cached>,
    bytes: usize,
}

/// One batch; its header is apart because the broker wrote it.
#[derive(Debug)]
struct Cached {
    base: Offset,
    last: Offset,
    appended: TimestampMs,
    head: [u8; HEADER_LEN],
    body: Bytes,
}

impl Cached {
    fn len(&self) -> usize {
        HEADER_LEN + self.body.len()
    }

    fn cost(&self) -> usize {
        self.body.len() + size_of::<Cached>()
    }

    fn is_small(&self) -> bool {
        self.body.len() <= COPY_ON_READ
    }
}

impl TailCache {
    pub fn new(budget: Arc<TailBudget>) -> TailCache {
        TailCache { budget, tail: Mutex::default(), is_idle: AtomicBool::new(false) }
    }

    /// Whether nothing is kept from now on, because nobody reads the log.
    pub fn set_idle(&self, is_idle: bool) {
        self.is_idle.store(is_idle, Ordering::Relaxed);
        self.clear();
    }

    /// Keeps a batch that was appended to the log.
    pub fn push(&self, offsets: (Offset, Offset), head: &[u8; HEADER_LEN], body: &Bytes, now: TimestampMs) {
        if self.is_idle.load(Ordering::Relaxed) {
            return;
        }
        let body = if body.len() <= COPY_ON_PUSH { Bytes::copy_from_slice(body) } else { body.clone() };
        let cached = Cached { base: offsets.0, last: offsets.1, appended: now, head: *head, body };
        let mut tail = locked(&self.tail);
        let cost = cached.cost();
        tail.bytes += cost;
        self.budget.used.fetch_add(cost, Ordering::Relaxed);
        tail.batches.push_back(cached);
        while tail.bytes > self.budget.limit_per_log || self.budget.used() > self.budget.limit {
            if !self.drop_oldest(&mut tail) {
                break;
            }
        }
    }

    /// Drops the batches that were appended before `then`.
    pub fn expire(&self, then: TimestampMs) {
        let mut tail = locked(&self.tail);
        while tail.batches.front().is_some_and(|oldest| oldest.appended < then) {
            self.drop_oldest(&mut tail);
        }
        if tail.batches.is_empty() {
            tail.batches = VecDeque::new();
        }
    }

    /// Drops the batches that begin below `offset`: they are no longer in the log as they were appended.
    pub fn drop_below(&self, offset: Offset) {
        let mut tail = locked(&self.tail);
        while tail.batches.front().is_some_and(|oldest| oldest.base < offset) {
            self.drop_oldest(&mut tail);
        }
    }

    pub fn clear(&self) {
        let mut tail = locked(&self.tail);
        self.budget.used.fetch_sub(tail.bytes, Ordering::Relaxed);
        *tail = Tail::default();
    }

    fn drop_oldest(&self, tail: &mut Tail) -> bool {
        let Some(oldest) = tail.batches.pop_front() else { return false };
        let cost = oldest.cost();
        tail.bytes -= cost;
        self.budget.used.fetch_sub(cost, Ordering::Relaxed);
        true
    }

    /// Whole batches from the one that holds `from`, all below `upto`, at most `max_bytes` of them save that the first
    /// one comes whatever its size when `min_one_batch`. `None` when `from` is not in memory.
    pub fn read(
        &self,
        from: Offset,
        max_bytes: usize,
        upto: Offset,
        min_one_batch: bool,
    ) -> Option<Vec<Bytes>> {
        let tail = locked(&self.tail);
        if tail.batches.front().is_none_or(|oldest| from < oldest.base) {
            return None;
        }
        let first = tail.batches.partition_point(|batch| batch.last < from);
        let (mut total, mut copied, mut parts) = (0, 0, 1);
        let mut end = first;
        for batch in tail.batches.range(first..) {
            let first_of_all = end == first && min_one_batch;
            if batch.last >= upto || (total + batch.len() > max_bytes && !first_of_all) {
                break;
            }
            total += batch.len();
            copied += if batch.is_small() { batch.len() } else { HEADER_LEN };
            parts += if batch.is_small() { 0 } else { 2 };
            end += 1;
        }
        if end == first {
            return Some(Vec::new());
        }
        let batches = tail.batches.range(first..end);
        let mut scratch = Vec::with_capacity(copied);
        for batch in batches.clone() {
            scratch.extend_from_slice(&batch.head);
            if batch.is_small() {
                scratch.extend_from_slice(&batch.body);
            }
        }
        let scratch = Bytes::from(scratch);
        let mut answer = Vec::with_capacity(parts);
        let (mut start, mut at) = (0, 0);
        for batch in batches {
            if batch.is_small() {
                at += batch.len();
            } else {
                at += HEADER_LEN;
                answer.push(scratch.slice(start..at));
                answer.push(batch.body.clone());
                start = at;
            }
        }
        if start < at {
            answer.push(scratch.slice(start..at));
        }
        Some(answer)
    }
}

impl Drop for TailCache {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{TailBudget, TailCache};
    use crate::types::{Offset, TimestampMs};
    use crate::wire::batch::HEADER_LEN;

    fn push(cache: &TailCache, base: i64, body: usize, now: i64) {
        let body = Bytes::from(vec![base as u8; body]);
        cache.push((Offset(base), Offset(base + 1)), &[base as u8; HEADER_LEN], &body, TimestampMs(now));
    }

    fn read(cache: &TailCache, from: i64, max: usize, upto: i64, min_one: bool) -> Option<Vec<u8>> {
        cache.read(Offset(from), max, Offset(upto), min_one).map(|parts| parts.concat())
    }

    fn expected(batches: &[(i64, usize)]) -> Vec<u8> {
        batches.iter().flat_map(|&(base, body)| vec![base as u8; HEADER_LEN + body]).collect()
    }

    #[test]
    fn reads_whole_batches_within_both_bounds() {
        let cache = TailCache::new(TailBudget::new(1 << 20, 1 << 20));
        for (base, body) in [(10, 100), (12, 2000), (14, 9000), (16, 10), (18, 10)] {
            push(&cache, base, body, 0);
        }
        assert_eq!(read(&cache, 9, 1 << 20, 100, true), None);
        let all = expected(&[(10, 100), (12, 2000), (14, 9000), (16, 10), (18, 10)]);
        assert_eq!(read(&cache, 10, 1 << 20, 100, true), Some(all.clone()));
        assert_eq!(read(&cache, 11, 1 << 20, 100, true), Some(all));
        assert_eq!(read(&cache, 13, 1 << 20, 18, true), Some(expected(&[(12, 2000), (14, 9000), (16, 10)])));
        assert_eq!(read(&cache, 12, 2061, 100, true), Some(expected(&[(12, 2000)])));
        assert_eq!(read(&cache, 12, 2060, 100, true), Some(expected(&[(12, 2000)])));
        assert_eq!(read(&cache, 12, 2060, 100, false), Some(vec![]));
        assert_eq!(read(&cache, 12, 2060, 12, true), Some(vec![]));
    }

    #[test]
    fn budgets_and_age_bound_what_is_kept() {
        let budget = TailBudget::new(30_000, 20_000);
        let (one, two) = (TailCache::new(budget.clone()), TailCache::new(budget.clone()));
        for base in 0..10 {
            push(&one, base * 2, 5000, base);
        }
        assert!(budget.used() <= 20_000);
        assert_eq!(read(&one, 10, 1 << 20, 100, true), None);
        assert!(read(&one, 14, 1 << 20, 100, true).is_some());
        for base in 0..10 {
            push(&two, base * 2, 5000, base);
        }
        assert!(budget.used() <= 30_000);
        two.drop_below(Offset(17));
        assert_eq!(read(&two, 16, 1 << 20, 100, true), None);
        assert_eq!(read(&two, 18, 1 << 20, 100, true), Some(expected(&[(18, 5000)])));
        one.expire(TimestampMs(9));
        assert_eq!(read(&one, 16, 1 << 20, 100, true), None);
        assert_eq!(read(&one, 18, 1 << 20, 100, true), Some(expected(&[(18, 5000)])));
        drop((one, two));
        assert_eq!(budget.used(), 0);
    }
}
