//! Parked answers, ordered by the offset that they wait for.
//!
//! Knows nothing of what the offset measures (high watermark, flushed, low watermark). Invariant: ordered by offset, and
//! every token that goes in comes out once.

use std::collections::VecDeque;

use super::AckToken;
use crate::types::{MonotonicMs, Offset};

#[derive(Debug, Default)]
pub(super) struct Parked {
    queue: VecDeque<Entry>,
    /// No entry's deadline is earlier. It may lag behind when entries leave; then one look at the queue mends it.
    earliest: Option<MonotonicMs>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    upto: Offset,
    token: AckToken,
    deadline: MonotonicMs,
}

impl Parked {
    /// Parks a token until the measure reaches `upto` or the deadline passes.
    pub(super) fn park(&mut self, upto: Offset, token: AckToken, deadline: MonotonicMs) {
        self.earliest = Some(self.earliest.map_or(deadline, |earliest| earliest.min(deadline)));
        let entry = Entry { upto, token, deadline };
        // Appends come in order; only the retry of a batch that is already in the log waits for an earlier offset.
        if self.queue.back().is_none_or(|last| last.upto <= upto) {
            self.queue.push_back(entry);
        } else {
            let at = self.queue.partition_point(|parked| parked.upto <= upto);
            self.queue.insert(at, entry);
        }
    }

    /// The next token whose offset is reached.
    pub(super) fn pop_reached(&mut self, reached: Offset) -> Option<AckToken> {
        let token = self.queue.pop_front_if(|entry| entry.upto <= reached)?.token;
        if self.queue.is_empty() {
            self.earliest = None;
        }
        Some(token)
    }

    /// Takes out every token whose deadline has come.
    pub(super) fn expire(&mut self, now: MonotonicMs, mut expired: impl FnMut(AckToken)) {
        if self.earliest.is_none_or(|earliest| earliest > now) {
            return;
        }
        self.queue.retain(|entry| {
            let keep = entry.deadline > now;
            if !keep {
                expired(entry.token);
            }
            keep
        });
        self.earliest = self.queue.iter().map(|entry| entry.deadline).min();
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = AckToken> + '_ {
        self.earliest = None;
        self.queue.drain(..).map(|entry| entry.token)
    }

    /// When [`expire`](Self::expire) should be called, at the latest.
    pub(super) fn deadline(&self) -> Option<MonotonicMs> {
        self.earliest
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
}
