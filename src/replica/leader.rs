//! A partition's leader: when the high watermark moves, when parked answers leave, when the in-sync set changes.
//!
//! Must not know records, files or who transports its proposals. Invariants: within a leader epoch the high watermark never
//! falls; when it moves it passes neither the local position nor that of any replica of the maximal in-sync set, and at
//! least min.insync.replicas are in sync (KIP-966); each token is answered once.

use super::isr::IsrState;
use super::pending::Parked;
use super::progress::Follower;
use super::{
    AckError, AckToken, Acks, AlterOutcome, AlterPartition, BrokerStanding, Effect, FetchRejected,
    FollowerFetch, LogPosition, NotEnoughReplicas, Registration, ReplicaConfig,
};
use crate::fault::{self, Fault};
use crate::types::{BrokerEpoch, LeaderEpoch, MonotonicMs, NodeId, Offset, PartitionEpoch};

/// How long an in-sync proposal with an unknown outcome waits before it is made again.
const ALTER_RETRY_MS: i64 = 50;

/// Which part of the log a follower in sync has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InSyncFollower {
    pub node: NodeId,
    pub log_start: Offset,
    pub log_end: Offset,
}

#[derive(Debug)]
pub struct Leader {
    me: NodeId,
    my_standing: BrokerStanding,
    leader_epoch: LeaderEpoch,
    partition_epoch: PartitionEpoch,
    /// Where the log ended when this epoch began. A follower that has not reached it may lack committed records.
    epoch_start: Offset,
    followers: Vec<Follower>,
    isr: IsrState,
    config: ReplicaConfig,
    /// This broker may take itself for unfenced.
    lease_holds: bool,
    log: LogPosition,
    waits_for_flush: Parked,
    waits_for_high_watermark: Parked,
    waits_for_low_watermark: Parked,
}

impl Leader {
    /// Begins a term. The driver has written the start of the epoch to the epoch cache before.
    pub fn new(
        me: NodeId,
        registration: &Registration,
        log: LogPosition,
        config: ReplicaConfig,
        now: MonotonicMs,
        out: &mut Vec<Effect>,
    ) -> Leader {
        let mut leader = Leader {
            me,
            my_standing: BrokerStanding::Absent,
            leader_epoch: registration.leader_epoch,
            partition_epoch: registration.partition_epoch,
            epoch_start: log.log_end,
            followers: Vec::new(),
            isr: IsrState::Committed(registration.isr.clone()),
            config,
            lease_holds: true,
            log,
            waits_for_flush: Parked::default(),
            waits_for_high_watermark: Parked::default(),
            waits_for_low_watermark: Parked::default(),
        };
        leader.set_replicas(registration, now);
        leader.advance_high_watermark(now, out);
        leader
    }

    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    pub fn partition_epoch(&self) -> PartitionEpoch {
        self.partition_epoch
    }

    pub fn epoch_start(&self) -> Offset {
        self.epoch_start
    }

    pub fn high_watermark(&self) -> Offset {
        self.log.high_watermark
    }

    pub fn isr(&self) -> &IsrState {
        &self.isr
    }

    /// Whether each fetch of a follower matters, also one that says nothing new: it may be what lets the follower join.
    pub fn watches_followers(&self) -> bool {
        let is_missing = |follower: &Follower| {
            follower.progress.is_none() || !self.isr.committed().contains(&follower.node)
        };
        self.isr.is_pending()
            || self.followers.iter().any(|follower| follower.standing.is_alive() && is_missing(follower))
    }

    /// The followers in the committed in-sync set that have fetched in this term.
    pub fn in_sync_followers(&self) -> impl Iterator<Item = InSyncFollower> + Clone {
        let in_sync = self.followers.iter().filter(|follower| self.isr.committed().contains(&follower.node));
        in_sync.filter_map(|follower| {
            let progress = follower.progress?;
            let (log_start, log_end) = (progress.log_start, progress.log_end);
            Some(InSyncFollower { node: follower.node, log_start, log_end })
        })
    }

    /// How far a process of a follower is known to be: its log end, and what it has flushed.
    #[cfg(test)]
    pub(super) fn known_of(&self, node: NodeId) -> Option<(BrokerEpoch, Offset, Offset)> {
        let follower = self.followers.iter().find(|follower| follower.node == node)?;
        follower.progress.map(|progress| (progress.broker_epoch, progress.log_end, progress.flushed))
    }

    /// How many answers are parked here.
    pub fn parked(&self) -> usize {
        self.waits_for_flush.len() + self.waits_for_high_watermark.len() + self.waits_for_low_watermark.len()
    }

    /// The lowest log start among this log and the live followers: records below are gone everywhere.
    pub fn low_watermark(&self) -> Offset {
        let alive = self.followers.iter().filter(|follower| follower.standing.is_alive());
        alive.fold(self.log.log_start, |low, follower| {
            low.min(follower.progress.map_or(Offset::UNKNOWN, |progress| progress.log_start))
        })
    }

    /// Whether an append may be written at all.
    pub fn check_append(&self, acks: Acks) -> Result<(), NotEnoughReplicas> {
        let (in_sync, required) = (self.isr.committed().len(), self.effective_min_isr());
        if acks == Acks::All && in_sync < required {
            Err(NotEnoughReplicas { in_sync, required })
        } else {
            Ok(())
        }
    }

    /// The local log ends here now.
    pub fn append_done(&mut self, log_end: Offset, now: MonotonicMs, out: &mut Vec<Effect>) {
        assert!(log_end >= self.log.log_end, "a leader's log never shrinks");
        // Who had everything until now is as far behind as this moment, however long ago it said so: a follower that wants
        // nothing new need not be heard.
        for follower in &mut self.followers {
            follower.leader_appends(self.log.log_end, self.config.durable_acks, now);
        }
        self.log.log_end = log_end;
        if !self.config.durable_acks {
            self.local_position_moved(now, out);
        }
    }

    /// Parks an answer until everything below `upto` is acknowledged; answers at once where it already is.
    pub fn await_ack(
        &mut self,
        token: AckToken,
        acks: Acks,
        upto: Offset,
        deadline: MonotonicMs,
        out: &mut Vec<Effect>,
    ) {
        assert!(upto <= self.log.log_end, "an answer cannot wait for records that are not appended");
        match acks {
            Acks::Leader if upto <= self.position() => out.push(Effect::Answer { token, result: Ok(()) }),
            Acks::Leader => self.waits_for_flush.park(upto, token, deadline),
            Acks::All => {
                if fault::is_active(Fault::AcknowledgesEarly) {
                    return out.push(Effect::Answer { token, result: Ok(()) });
                }
                self.waits_for_high_watermark.park(upto, token, deadline);
                self.answer_below_high_watermark(out);
            }
        }
    }

    /// The local log is flushed below this offset.
    pub fn flushed(&mut self, flushed: Offset, now: MonotonicMs, out: &mut Vec<Effect>) {
        assert!(flushed <= self.log.log_end, "flushed passes the log end");
        self.log.flushed = self.log.flushed.max(flushed);
        if self.config.durable_acks {
            self.local_position_moved(now, out);
        }
    }

    /// The local log starts here now.
    pub fn log_start_moved(&mut self, log_start: Offset, out: &mut Vec<Effect>) {
        self.log.log_start = self.log.log_start.max(log_start);
        self.answer_below_low_watermark(out);
    }

    /// Parks an answer until records below `upto` are deleted on every live replica.
    pub fn await_low_watermark(
        &mut self,
        token: AckToken,
        upto: Offset,
        deadline: MonotonicMs,
        out: &mut Vec<Effect>,
    ) {
        self.waits_for_low_watermark.park(upto, token, deadline);
        self.answer_below_low_watermark(out);
    }

    /// A follower asks for records: so it has everything below its fetch offset.
    pub fn follower_fetched(
        &mut self,
        fetch: &FollowerFetch,
        now: MonotonicMs,
        out: &mut Vec<Effect>,
    ) -> Result<(), FetchRejected> {
        let (leader_end, durable) = (self.log.log_end, self.config.durable_acks);
        let follower = self.followers.iter_mut().find(|follower| follower.node == fetch.follower);
        let follower = follower.ok_or(FetchRejected::NotReplica)?;
        if fetch.broker_epoch != BrokerEpoch::UNKNOWN && fetch.broker_epoch < follower.standing.epoch() {
            return Err(FetchRejected::StaleBrokerEpoch);
        }
        follower.fetched(fetch, leader_end, durable, now);
        let node = follower.node;
        self.maybe_expand_isr(node, now, out);
        self.advance_high_watermark(now, out);
        self.answer_below_low_watermark(out);
        Ok(())
    }

    /// The metadata shows the partition so. What is older than what is known here changes nothing; the same partition
    /// epoch again brings news of the brokers only, since the in-sync set is as it was.
    pub fn registration(&mut self, registration: &Registration, now: MonotonicMs, out: &mut Vec<Effect>) {
        if registration.partition_epoch < self.partition_epoch
            || registration.leader_epoch < self.leader_epoch
        {
            return;
        }
        if registration.partition_epoch > self.partition_epoch {
            self.partition_epoch = registration.partition_epoch;
            self.isr = IsrState::Committed(registration.isr.clone());
        }
        if registration.leader_epoch > self.leader_epoch {
            self.leader_epoch = registration.leader_epoch;
            self.epoch_start = self.log.log_end;
            self.followers.clear();
        }
        self.set_replicas(registration, now);
        self.expand_isr(now, out);
        self.advance_high_watermark(now, out);
        self.answer_below_low_watermark(out);
    }

    /// The controller's answer to the proposal that was made at partition epoch `proposed_at`.
    pub fn alter_done(
        &mut self,
        proposed_at: PartitionEpoch,
        outcome: AlterOutcome,
        now: MonotonicMs,
        out: &mut Vec<Effect>,
    ) {
        if proposed_at != self.partition_epoch || !self.isr.is_pending() {
            return; // the metadata has settled it meanwhile
        }
        match outcome {
            AlterOutcome::Applied { leader_epoch, partition_epoch, isr } => {
                if leader_epoch == self.leader_epoch && partition_epoch >= self.partition_epoch {
                    self.partition_epoch = partition_epoch;
                    self.isr = IsrState::Committed(isr);
                    self.expand_isr(now, out);
                    self.advance_high_watermark(now, out);
                }
            }
            AlterOutcome::Refused => {
                self.isr.revert();
                self.advance_high_watermark(now, out);
            }
            AlterOutcome::Superseded => {}
            AlterOutcome::Unknown => self.isr.set_retry_at(Some(now.plus(ALTER_RETRY_MS))),
        }
    }

    /// The settings changed.
    pub fn configure(&mut self, config: ReplicaConfig, now: MonotonicMs, out: &mut Vec<Effect>) {
        self.config = config;
        self.local_position_moved(now, out);
    }

    /// Whether another replica may be elected while this broker is fenced: one of the in-sync set; one of the eligible
    /// leader replicas, of which there are none only when enough are in sync (KIP-966); or any, uncleanly.
    pub fn others_may_lead(&self) -> bool {
        let may_be_eligible = self.isr.committed().len() < self.effective_min_isr();
        let may_be_elected = self.isr.maximal_len() > 1 || may_be_eligible || self.config.unclean_election;
        !self.followers.is_empty() && may_be_elected
    }

    /// Whether this broker may still take itself for unfenced. While it may not, and others may be elected uncleanly, the
    /// high watermark stands: else a leader that is alone in sync would go on acknowledging what is lost already. Of
    /// cleanly elected leaders the in-sync set takes care.
    pub fn lease(&mut self, holds: bool, now: MonotonicMs, out: &mut Vec<Effect>) {
        if std::mem::replace(&mut self.lease_holds, holds) != holds {
            self.advance_high_watermark(now, out);
        }
    }

    /// Whether the high watermark stands because the lease is over; nobody says when it is renewed.
    pub fn is_held_back(&self) -> bool {
        !self.lease_holds && self.config.unclean_election && !self.followers.is_empty()
    }

    /// Time has passed: answers that waited too long leave, followers that lag too long are to leave the in-sync set.
    pub fn tick(&mut self, now: MonotonicMs, out: &mut Vec<Effect>) {
        for parked in
            [&mut self.waits_for_flush, &mut self.waits_for_high_watermark, &mut self.waits_for_low_watermark]
        {
            parked.expire(now, |token| out.push(Effect::Answer { token, result: Err(AckError::TimedOut) }));
        }
        if self.isr.retry_at().is_some_and(|at| at <= now) {
            self.propose(out);
        }
        self.maybe_shrink_isr(now, out);
        // A follower outside the in-sync set that fell behind holds the high watermark back no longer.
        self.advance_high_watermark(now, out);
    }

    /// When [`tick`](Self::tick) has something to do, at the latest.
    pub fn next_deadline(&self) -> Option<MonotonicMs> {
        let (log_end, config) = (self.log.log_end, &self.config);
        let lagging = self
            .followers
            .iter()
            .filter(|follower| !self.isr.is_pending() && self.isr.may_contain(follower.node));
        lagging
            .filter_map(|follower| follower.lags_from(log_end, config.durable_acks, config.lag_time_max_ms))
            .chain(self.isr.retry_at())
            .chain(self.waits_for_flush.deadline())
            .chain(self.waits_for_high_watermark.deadline())
            .chain(self.waits_for_low_watermark.deadline())
            .min()
    }

    /// Ends the term: whatever is parked is answered.
    pub fn resign(mut self, out: &mut Vec<Effect>) {
        for parked in
            [&mut self.waits_for_flush, &mut self.waits_for_high_watermark, &mut self.waits_for_low_watermark]
        {
            out.extend(
                parked.drain().map(|token| Effect::Answer { token, result: Err(AckError::NotLeader) }),
            );
        }
    }

    /// How far the local log counts.
    fn position(&self) -> Offset {
        let durable = self.config.durable_acks && !fault::is_active(Fault::CommitsUnflushed);
        if durable { self.log.flushed } else { self.log.log_end }
    }

    fn effective_min_isr(&self) -> usize {
        self.config.min_insync_replicas.min(self.followers.len() + 1)
    }

    fn set_replicas(&mut self, registration: &Registration, now: MonotonicMs) {
        let mut known = std::mem::take(&mut self.followers);
        for &(node, standing) in &registration.replicas {
            if node == self.me {
                self.my_standing = standing;
                continue;
            }
            let follower = match known.iter().position(|follower| follower.node == node) {
                Some(at) => known.swap_remove(at).with_standing(standing),
                None => Follower::new(node, standing, self.isr.may_contain(node).then_some(now)),
            };
            self.followers.push(follower);
        }
    }

    fn local_position_moved(&mut self, now: MonotonicMs, out: &mut Vec<Effect>) {
        let position = self.position();
        while let Some(token) = self.waits_for_flush.pop_reached(position) {
            out.push(Effect::Answer { token, result: Ok(()) });
        }
        self.advance_high_watermark(now, out);
    }

    fn is_lagging(&self, follower: &Follower, now: MonotonicMs) -> bool {
        let config = &self.config;
        follower
            .lags_from(self.log.log_end, config.durable_acks, config.lag_time_max_ms)
            .is_some_and(|from| from <= now)
    }

    /// Moves the high watermark to the lowest position among the maximal in-sync set and the followers that are about to
    /// join it; without the latter a follower could run after the high watermark for ever.
    fn advance_high_watermark(&mut self, now: MonotonicMs, out: &mut Vec<Effect>) {
        if self.isr.committed().len() < self.effective_min_isr() || self.is_held_back() {
            return;
        }
        let mut high_watermark = self.position();
        for follower in &self.followers {
            let joining = || follower.is_eligible() && !self.is_lagging(follower, now);
            if self.isr.may_contain(follower.node) || joining() {
                let Some(position) = follower.position(self.config.durable_acks) else { return };
                high_watermark = high_watermark.min(position);
            }
        }
        if high_watermark > self.log.high_watermark {
            self.log.high_watermark = high_watermark;
            out.push(Effect::HighWatermark(high_watermark));
            self.answer_below_high_watermark(out);
        }
    }

    fn answer_below_high_watermark(&mut self, out: &mut Vec<Effect>) {
        let enough = self.isr.maximal_len() >= self.effective_min_isr();
        let result = if enough { Ok(()) } else { Err(AckError::NotEnoughReplicasAfterAppend) };
        while let Some(token) = self.waits_for_high_watermark.pop_reached(self.log.high_watermark) {
            out.push(Effect::Answer { token, result });
        }
    }

    fn answer_below_low_watermark(&mut self, out: &mut Vec<Effect>) {
        if self.waits_for_low_watermark.len() == 0 {
            return;
        }
        let low_watermark = self.low_watermark();
        while let Some(token) = self.waits_for_low_watermark.pop_reached(low_watermark) {
            out.push(Effect::Answer { token, result: Ok(()) });
        }
    }

    /// A follower joins once it holds all that is committed, has reached this epoch, and keeps up. Keeping up is asked for so
    /// that a follower which reaches a high watermark that stands still (under min ISR) does not join only to be thrown
    /// out again.
    fn maybe_expand_isr(&mut self, node: NodeId, now: MonotonicMs, out: &mut Vec<Effect>) {
        let Some(follower) = self.followers.iter().find(|follower| follower.node == node) else { return };
        let has_reached = |position| position >= self.log.high_watermark && position >= self.epoch_start;
        // Below the start of this log its epochs are forgotten, and a follower may have other records there until it has
        // heard of the start.
        let knows_start = follower.progress.is_some_and(|progress| progress.log_start >= self.log.log_start);
        let reached = knows_start && follower.position(self.config.durable_acks).is_some_and(has_reached)
            || fault::is_active(Fault::ExpandsTooEarly);
        let may_join = !self.isr.is_pending() && !self.isr.may_contain(node) && follower.is_eligible();
        if may_join && reached && !self.is_lagging(follower, now) {
            let committed = self.isr.committed().to_vec();
            self.isr = IsrState::PendingExpand { committed, joining: node, retry_at: None };
            self.propose(out);
        }
    }

    /// Takes in whoever may join; a follower that has nothing to fetch says nothing that would remind of it.
    fn expand_isr(&mut self, now: MonotonicMs, out: &mut Vec<Effect>) {
        for at in 0..self.followers.len() {
            self.maybe_expand_isr(self.followers[at].node, now, out);
        }
    }

    fn maybe_shrink_isr(&mut self, now: MonotonicMs, out: &mut Vec<Effect>) {
        if self.isr.is_pending() {
            return;
        }
        let lagging = self.followers.iter().filter(|follower| self.is_lagging(follower, now));
        let leaving: Vec<NodeId> =
            lagging.map(|follower| follower.node).filter(|node| self.isr.may_contain(*node)).collect();
        if !leaving.is_empty() {
            let committed = self.isr.committed().to_vec();
            self.isr = IsrState::PendingShrink { committed, leaving, retry_at: None };
            self.propose(out);
        }
    }

    fn propose(&mut self, out: &mut Vec<Effect>) {
        self.isr.set_retry_at(None);
        let with_epoch = |node: NodeId| {
            let follower = self.followers.iter().find(|follower| follower.node == node);
            let fetched =
                follower.and_then(|follower| follower.progress).map(|progress| progress.broker_epoch);
            let epoch = if node == self.me { Some(self.my_standing.epoch()) } else { fetched };
            (node, epoch.unwrap_or(BrokerEpoch::UNKNOWN))
        };
        out.push(Effect::AlterPartition(AlterPartition {
            leader_epoch: self.leader_epoch,
            partition_epoch: self.partition_epoch,
            isr: self.isr.proposed().into_iter().map(with_epoch).collect(),
        }));
    }
}
