//! One follower as its leader sees it: how far it has come and how long ago it had everything.
//!
//! Knows nothing of the in-sync set. Invariant: at `caught_up_at` the leader's log ended at or below the follower's
//! position of now, so the follower lags by at most the time since.

use super::{BrokerStanding, FollowerFetch};
use crate::fault::{self, Fault};
use crate::types::{BrokerEpoch, MonotonicMs, NodeId, Offset};

#[derive(Clone, Copy, Debug)]
pub(super) struct Follower {
    pub(super) node: NodeId,
    pub(super) standing: BrokerStanding,
    /// `None` until it fetches from this leader.
    pub(super) progress: Option<Progress>,
    /// When it last had all there was; `None` when that is not known of this term.
    caught_up_at: Option<MonotonicMs>,
    /// A sample of the leader's log end, taken at a fetch. Once the follower's position reaches it, the sample's time becomes
    /// `caught_up_at` and the next sample is taken. One sample at a time is enough, also when several fetches are under way
    /// before the first is flushed; comparing with the previous fetch alone, as Kafka does, would call such a follower
    /// lagging for ever.
    sample: Option<(Offset, MonotonicMs)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) log_end: Offset,
    pub(super) flushed: Offset,
    pub(super) log_start: Offset,
    pub(super) broker_epoch: BrokerEpoch,
}

impl Progress {
    fn is_of_process_before(self, known: Progress) -> bool {
        self.broker_epoch != BrokerEpoch::UNKNOWN && self.broker_epoch < known.broker_epoch
    }

    /// Fetches and reports come on several connections and overtake each other. A follower whose log has agreed with the
    /// leader's in this term cuts nothing of it again, so the furthest that one process has told is how far it is. Another
    /// process may have lost what was not flushed.
    fn after(self, known: Progress) -> Progress {
        if self.broker_epoch == BrokerEpoch::UNKNOWN || self.broker_epoch != known.broker_epoch {
            return self;
        }
        Progress {
            log_end: self.log_end.max(known.log_end),
            flushed: self.flushed.max(known.flushed),
            log_start: self.log_start.max(known.log_start),
            broker_epoch: self.broker_epoch,
        }
    }
}

impl Follower {
    pub(super) fn new(
        node: NodeId,
        standing: BrokerStanding,
        in_sync_since: Option<MonotonicMs>,
    ) -> Follower {
        Follower { node, standing, progress: None, caught_up_at: in_sync_since, sample: None }
    }

    pub(super) fn with_standing(self, standing: BrokerStanding) -> Follower {
        Follower { standing, ..self }
    }

    /// The offset below which this follower counts as holding everything.
    pub(super) fn position(&self, durable_acks: bool) -> Option<Offset> {
        self.progress.map(|progress| if durable_acks { progress.flushed } else { progress.log_end })
    }

    pub(super) fn fetched(
        &mut self,
        fetch: &FollowerFetch,
        leader_end: Offset,
        durable_acks: bool,
        now: MonotonicMs,
    ) {
        let told = Progress {
            log_end: fetch.fetch_offset,
            flushed: fetch
                .flushed_offset
                .map_or(fetch.fetch_offset, |flushed| flushed.min(fetch.fetch_offset)),
            log_start: fetch.log_start,
            broker_epoch: fetch.broker_epoch,
        };
        let progress = match self.progress {
            Some(known) if told.is_of_process_before(known) => return,
            Some(known) if !fault::is_active(Fault::TakesLateReports) => told.after(known),
            _ => told,
        };
        self.progress = Some(progress);
        let position = if durable_acks { progress.flushed } else { progress.log_end };
        if position >= leader_end {
            self.caught_up_at = Some(now);
            self.sample = None;
            return;
        }
        match self.sample {
            Some((end, at)) if position < end => debug_assert!(at <= now),
            Some((_, at)) => {
                self.caught_up_at = self.caught_up_at.max(Some(at));
                self.sample = Some((leader_end, now));
            }
            None => self.sample = Some((leader_end, now)),
        }
    }

    /// The leader's log, which ended at `before`, is about to grow.
    pub(super) fn leader_appends(&mut self, before: Offset, durable_acks: bool, now: MonotonicMs) {
        if self.position(durable_acks).is_some_and(|position| position >= before) {
            self.caught_up_at = Some(now);
        }
    }

    /// When the follower starts to count as lagging: `None` while it has all there is.
    pub(super) fn lags_from(
        &self,
        leader_end: Offset,
        durable_acks: bool,
        lag_max_ms: i64,
    ) -> Option<MonotonicMs> {
        if self.position(durable_acks).is_some_and(|position| position >= leader_end) {
            return None;
        }
        // Not caught up in this term at all: lagging since ever.
        Some(self.caught_up_at.map_or(MonotonicMs(i64::MIN), |at| at.plus(lag_max_ms).plus(1)))
    }

    /// Whether it may join an in-sync set: active, and fetching under its present registration.
    pub(super) fn is_eligible(&self) -> bool {
        let (BrokerStanding::Active(registered), Some(progress)) = (self.standing, self.progress) else {
            return false;
        };
        progress.broker_epoch == BrokerEpoch::UNKNOWN || progress.broker_epoch == registered
    }
}
