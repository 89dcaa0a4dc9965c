//! What happens by itself: transactions that take longer than they said are aborted, and ids that nobody has used for long
//! are forgotten.
//!
//! Times are those of the records, since a transaction may be older than its coordinator. Invariant: only ids at rest are
//! forgotten.

use super::record::Record;
use super::state::{State, Transaction};
use super::{Context, Effect, Out, Producer, Settings, Transactions};
use crate::types::{ProducerId, TimestampMs};

/// So many ids are forgotten at a time, so that a batch of records stays small.
const FORGOTTEN_MAX: usize = 500;

impl Transactions {
    pub(super) fn sweep(&mut self, context: &Context<'_>, out: &mut Out) {
        let now = context.now.monotonic;
        let Settings { abort_interval_ms, expire_interval_ms, .. } = self.settings;
        if self.next_abort.is_some_and(|at| at <= now) {
            self.next_abort = Some(now.plus(abort_interval_ms));
            self.abort_overdue(context, out);
        }
        if self.next_expiration.is_some_and(|at| at <= now) {
            let is_done = self.forget_unused(context.now.wall, out);
            self.next_expiration = Some(if is_done { now.plus(expire_interval_ms) } else { now });
        }
    }

    fn abort_overdue(&mut self, context: &Context<'_>, out: &mut Out) {
        let overdue = self.transactions.iter().filter(|(_, open)| is_overdue(open, context.now.wall));
        for (id, producer) in overdue.map(|(id, open)| (id.clone(), open.producer())).collect::<Vec<_>>() {
            self.abort_timed_out(context, &id, producer, None, out);
        }
    }

    /// Aborts the transaction if it is still that of this producer and overdue.
    pub(super) fn abort_timed_out(
        &mut self,
        context: &Context<'_>,
        transactional_id: &str,
        producer: Producer,
        fresh: Option<ProducerId>,
        out: &mut Out,
    ) {
        let current = self.transactions.get(transactional_id);
        if !current.is_some_and(|open| open.producer() == producer && is_overdue(open, context.now.wall)) {
            return;
        }
        if self.fence(context, transactional_id, fresh, out).is_none() {
            out.effect(Effect::NeedsProducerId { transactional_id: transactional_id.to_owned(), producer });
        }
    }

    /// Forgets some of the ids that are past their time. True when there are no more of them.
    fn forget_unused(&mut self, now: TimestampMs, out: &mut Out) -> bool {
        let before = now.minus(self.settings.expiration_ms);
        let unused = self.transactions.iter().filter(|(_, id)| id.is_at_rest() && id.updated <= before);
        let unused: Vec<String> = unused.map(|(id, _)| id.clone()).take(FORGOTTEN_MAX).collect();
        for transactional_id in &unused {
            self.transactions.remove(transactional_id);
            out.record(Record { transactional_id: transactional_id.clone(), value: None });
        }
        unused.len() < FORGOTTEN_MAX
    }
}

/// Whether a transaction is open for longer than it may be. One of an outer coordinator has no bound.
fn is_overdue(transaction: &Transaction, now: TimestampMs) -> bool {
    transaction.state == State::Ongoing
        && transaction.timeout_ms != i32::MAX
        && now.0.saturating_sub(transaction.started.0) > i64::from(transaction.timeout_ms)
}
